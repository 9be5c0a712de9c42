//! What servers and clients hold, looked at from outside. At any moment no server contradicts
//! itself, and once nobody asks for anything both ends know the same locks, and nothing is left.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::{ClientId, Fid, LockHandle};
use dlm::{Lock, Mode};
use rpc::ClientUuid;

use super::{Cluster, Machine};

/// How long a cluster may take to come to rest: sessions of clients that are gone end, callbacks
/// are given up, objects are removed.
const REST_MAX: Duration = Duration::from_secs(120);
/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_secs(2);
/// How long objects of lost files are searched for (`mds`, leaks), and some more.
const SEARCHES_MAX: Duration = Duration::from_secs(2000);
/// How often it is looked meanwhile whether that goes on.
const SEARCH_LOOK: Duration = Duration::from_secs(60);
/// How late timers ring meanwhile: nobody asks for anything, and half an hour of ticks is most of a run's
/// work.
const SEARCH_SLACK: Duration = Duration::from_secs(4);

impl Cluster {
    fn machines(&self) -> impl Iterator<Item = &Machine> {
        std::iter::once(&self.mdt).chain(&self.osts)
    }

    /// What servers say that cannot be, whatever is under way.
    pub fn contradictions(&self) -> Vec<String> {
        let of = |machine: &Machine| {
            let broken = machine.audit()?.err()?;
            Some(format!("{}: {broken}", machine.name()))
        };
        let found = self.machines().filter_map(of);
        found.chain(self.shared_files_of_one()).collect()
    }

    /// Files that the MDT gave to one client alone, of which others have locks on bytes. What that
    /// client writes it sends without asking for one.
    fn shared_files_of_one(&self) -> Vec<String> {
        let alone = self.mdt.locks_by_client();
        let alone = alone.filter(|(_, lock)| lock.mode == Mode::EX);
        let owners: BTreeMap<u64, ClientUuid> = alone
            .map(|(client, lock)| (lock.resource.id, client))
            .collect();
        let of = |machine: &Machine| {
            let name = machine.name();
            let is_shared = |(client, lock): &(ClientUuid, Lock)| {
                let owner = owners.get(&lock.resource.id);
                owner.is_some_and(|owner| owner != client)
            };
            let shared = machine.locks_by_client().filter(is_shared);
            let told = move |(client, lock)| {
                format!("{name} gave {client:?} {lock:?} on a file that another has to itself")
            };
            shared.map(told).collect::<Vec<_>>()
        };
        self.osts.iter().flat_map(of).collect()
    }

    /// There may be objects of nobody that a search has yet to find. It comes again and again, for
    /// a while, since a client may write before it hears from the MDT that it was given up.
    fn may_have_leaked_objects(&self) -> bool {
        let searched = self.mdt.searched();
        let objects = self.osts.iter().flat_map(Machine::stored);
        let mut sequences = objects.flatten().map(|object| object.fid.sequence());
        sequences.any(|sequence| searched.contains(&sequence))
    }

    /// Waits until nothing is under way. What is left after all says so.
    pub fn come_to_rest(&self) -> Vec<String> {
        let left = self.left_soon();
        if !left.is_empty() || !self.may_have_leaked_objects() {
            return left;
        }
        self.scheduler.set_timer_slack(SEARCH_SLACK);
        let mut waited = Duration::ZERO;
        while self.may_have_leaked_objects() && waited < SEARCHES_MAX {
            threads::sleep(SEARCH_LOOK);
            waited += SEARCH_LOOK;
        }
        self.scheduler.set_timer_slack(Duration::ZERO);
        self.left_soon()
    }

    fn left_soon(&self) -> Vec<String> {
        let mut waited = Duration::ZERO;
        loop {
            threads::sleep(LOOK);
            let left = self.left();
            waited += LOOK;
            if left.is_empty() || waited >= REST_MAX {
                return left;
            }
        }
    }

    fn left(&self) -> Vec<String> {
        let mut found = self.contradictions();
        for (number, mount) in self.mounts.iter().enumerate() {
            let unfinished = mount.client().unfinished();
            found.extend(
                unfinished
                    .iter()
                    .map(|what| format!("client {number}: {what}")),
            );
        }
        for machine in self.machines() {
            let name = machine.name();
            let unfinished = machine.unfinished();
            found.extend(unfinished.iter().map(|what| format!("{name}: {what}")));
            found.extend(self.unmatched(machine));
        }
        found
    }

    /// What a server and its clients do not say alike.
    fn unmatched(&self, machine: &Machine) -> Vec<String> {
        let name = machine.name();
        let mut sessions = machine.sessions();
        let mut found = Vec::new();
        let mut locks = BTreeMap::<ClientId, BTreeMap<LockHandle, Lock>>::new();
        for lock in machine.locks() {
            locks
                .entry(lock.client)
                .or_default()
                .insert(lock.handle, lock);
        }
        let mut uses = BTreeMap::<ClientId, Vec<Fid>>::new();
        for (client, fid) in machine.uses() {
            uses.entry(client).or_default().push(fid);
        }
        for (number, mount) in (0..).zip(&self.mounts) {
            let crashes = self
                .seats
                .get(number as usize)
                .map_or(0, |seat| seat.crashes());
            let Some(client) = sessions.remove(&super::secret_of(number, crashes).uuid()) else {
                found.push(format!("{name} has no session of client {number}"));
                continue;
            };
            let theirs = locks.remove(&client).unwrap_or_default();
            let held = mount.client().held(name);
            let ours: BTreeMap<_, _> = held.into_iter().map(|lock| (lock.handle, lock)).collect();
            let handles: BTreeSet<_> = theirs.keys().chain(ours.keys()).collect();
            for handle in handles {
                let (given, had) = (theirs.get(handle), ours.get(handle));
                if given != had {
                    found.push(format!(
                        "{name} gave client {number} {given:?}, it has {had:?}"
                    ));
                }
            }
            let mut open = uses.remove(&client).unwrap_or_default();
            open.sort_unstable();
            if machine.is_mdt() && open != mount.client().uses() {
                let known = mount.client().uses();
                found.push(format!(
                    "{name}: client {number} uses {open:?}, it says {known:?}"
                ));
            }
        }
        sessions.remove(&self.mdt.secret().uuid());
        let strangers = sessions.keys().map(|uuid| format!("a session of {uuid:?}"));
        let lost = locks
            .values()
            .map(|locks| format!("locks of nobody: {locks:?}"));
        let open = uses
            .values()
            .map(|open| format!("files open by nobody: {open:?}"));
        let all = strangers.chain(lost).chain(open);
        found.extend(all.map(|what| format!("{name} has {what}")));
        found
    }
}

impl Machine {
    /// Whether what its server has in memory holds together. None: nothing runs on it.
    fn audit(&self) -> Option<Result<(), String>> {
        self.look(|mds| mds.audit(), |oss| oss.audit())
    }

    fn unfinished(&self) -> Vec<String> {
        let unfinished = self.look(mds::Mds::unfinished, oss::Oss::unfinished);
        unfinished.unwrap_or_else(|| vec!["it is off".to_owned()])
    }

    fn locks(&self) -> Vec<Lock> {
        let locks = self.look(mds::Mds::all_locks, oss::Oss::all_locks);
        locks.unwrap_or_default()
    }

    /// Locks of clients that are connected.
    fn locks_by_client(&self) -> impl Iterator<Item = (ClientUuid, Lock)> {
        let names: BTreeMap<_, _> = self
            .sessions()
            .into_iter()
            .map(|(uuid, client)| (client, uuid))
            .collect();
        let locks = self.locks().into_iter();
        locks.filter_map(move |lock| Some((*names.get(&lock.client)?, lock)))
    }

    fn uses(&self) -> Vec<(ClientId, Fid)> {
        self.look(mds::Mds::uses, |_| Vec::new())
            .unwrap_or_default()
    }

    /// Sequences of which an MDT searches for objects of lost files.
    fn searched(&self) -> BTreeSet<u64> {
        let searched = self.look(mds::Mds::searched, |_| BTreeSet::new());
        searched.unwrap_or_default()
    }

    fn sessions(&self) -> BTreeMap<ClientUuid, ClientId> {
        let sessions = self.connected();
        let sessions = sessions.iter();
        sessions
            .map(|one| (one.peer().uuid, one.client()))
            .collect()
    }
}
