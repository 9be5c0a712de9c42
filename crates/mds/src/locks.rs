//! The lock table as an MDT uses it: the locks on each file, and the answers that a lock may cover
//! (docs/locks.md, section 6).

use std::collections::VecDeque;

use base::limits::{LEASE_WITHDRAWN_MAX, WRITE_LEASE_CONTENTION_WINDOW};
use base::{BootEpoch, ClientId, Fid, LockHandle, Tick};
use dlm::{
    Bits, Contention, ContentionRule, Cover, Grant, IdMap, IdSet, Input, Limits, Lock, LockTable,
    Mode, OpId, Output, TryGrant,
};

use crate::ops::context::{Needs, resource};

/// The exclusive lock on a new file under which its maker works without asking.
pub const EXCLUSIVE: Bits =
    Bits(Bits::PERM.0 | Bits::UPDATE.0 | Bits::XATTR.0 | Bits::DOM.0 | Bits::OPEN.0);

/// The bits of a lease that cover the files of a directory.
pub const CHILDREN: Bits = Bits(Bits::NAMES.0 | Bits::CHILD.0);

/// The bits of a write lease (docs/locks.md, section 11): in EX the holder alone sees and changes what is in
/// the directory.
pub const WRITE_LEASE: Bits = Bits(Bits::LOOKUP.0 | Bits::LEASE.0);

/// Children that a write lease may be born without. Beyond: none is given. What is left of the bound is for
/// withdrawals from the lease for reading that it becomes.
pub const BORN_WITHOUT_MAX: usize = LEASE_WITHDRAWN_MAX / 2;

/// What a client needs to hold for an answer to be covered.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    /// Without these there is no cover.
    pub required: Bits,
    /// These too where they are free.
    pub optional: Bits,
}

/// All locks of the target.
#[derive(Default)]
pub struct Locks {
    table: LockTable,
    now: Tick,
    /// The locks that a client was given on a file to read it, and its write lease, newest last.
    held: IdMap<(ClientId, Fid), Vec<LockHandle>>,
    /// The last exclusive lock given on a file.
    exclusive: IdMap<Fid, (ClientId, LockHandle)>,
    /// The write lease of each directory that has one.
    write_leases: IdMap<Fid, (ClientId, LockHandle)>,
    /// Directories of which a client's lease has lost entries.
    disturbed: IdSet<(ClientId, Fid)>,
    /// Directories whose write leases were called back for writers lately.
    fought_over: IdMap<Fid, Contention>,
    /// When each of those may be forgotten.
    cooling: VecDeque<(Tick, Fid)>,
}

impl Locks {
    /// Nothing is locked in this boot of the target.
    pub fn new(limits: Limits, boot_epoch: BootEpoch) -> Locks {
        Locks {
            table: LockTable::of_boot(limits, boot_epoch.0),
            ..Locks::default()
        }
    }

    /// The table below.
    pub fn table(&self) -> &LockTable {
        &self.table
    }

    /// The time as the last input said.
    pub fn set_now(&mut self, now: Tick) {
        self.now = now;
    }

    fn step(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.table.step(self.now, input, &mut out);
        for output in &out {
            if let Output::Withdraw {
                client, resource, ..
            } = output
            {
                self.disturbed.insert((*client, Fid(resource.id)));
            }
        }
        out
    }

    /// Begins an operation.
    pub fn begin(&mut self, op: OpId, client: ClientId, needs: &Needs) -> Vec<Output> {
        let wants = needs.wants.clone();
        self.step(Input::Begin {
            op,
            client: Some(client),
            wants,
        })
    }

    /// Ends an operation, whether it ran or not.
    pub fn end(&mut self, op: OpId) -> Vec<Output> {
        self.step(Input::End { op })
    }

    /// A client gives locks back.
    pub fn cancel(&mut self, client: ClientId, handles: Vec<LockHandle>) -> Vec<Output> {
        for handle in &handles {
            self.forget_handle(client, *handle);
        }
        self.step(Input::Cancel { client, handles })
    }

    /// A client gives a part of a lock back.
    pub fn convert(
        &mut self,
        client: ClientId,
        handle: LockHandle,
        keep: dlm::Keep,
    ) -> Vec<Output> {
        if keep == dlm::Keep::Nothing {
            return self.cancel(client, vec![handle]);
        }
        let out = self.step(Input::Convert {
            client,
            handle,
            keep,
        });
        if let Some(lock) = self.table.holds(client, handle)
            && !is_write_lease(lock)
        {
            let dir = Fid(lock.resource.id);
            self.forget_write_lease(dir, (client, handle));
        }
        out
    }

    fn forget_write_lease(&mut self, dir: Fid, lease: (ClientId, LockHandle)) {
        if self.write_leases.get(&dir) == Some(&lease) {
            self.write_leases.remove(&dir);
        }
    }

    fn forget_handle(&mut self, client: ClientId, handle: LockHandle) {
        let Some(lock) = self.table.holds(client, handle) else {
            return;
        };
        let fid = Fid(lock.resource.id);
        if self.exclusive.get(&fid) == Some(&(client, handle)) {
            self.exclusive.remove(&fid);
        }
        self.forget_write_lease(fid, (client, handle));
        if let Some(handles) = self.held.get_mut(&(client, fid)) {
            handles.retain(|h| *h != handle);
            if handles.is_empty() {
                self.held.remove(&(client, fid));
                self.disturbed.remove(&(client, fid));
            }
        }
    }

    /// A client has forgotten a withdrawn entry of a directory.
    pub fn acknowledge(
        &mut self,
        client: ClientId,
        handle: LockHandle,
        version: u64,
    ) -> Vec<Output> {
        self.step(Input::WithdrawAck {
            client,
            handle,
            version,
        })
    }

    /// A client has said what it knows of a file it holds exclusively.
    pub fn glimpsed(
        &mut self,
        client: ClientId,
        handle: LockHandle,
        value: Vec<u8>,
    ) -> Vec<Output> {
        self.step(Input::GlimpseReply {
            client,
            handle,
            value,
        })
    }

    /// All locks that a client holds.
    pub fn handles(&self, client: ClientId) -> Vec<LockHandle> {
        self.table.handles(client)
    }

    /// A client waits for nothing any more.
    pub fn succeed(&mut self, client: ClientId) -> Vec<Output> {
        self.step(Input::Succeed { client })
    }

    /// A client is gone.
    pub fn evict(&mut self, client: ClientId) -> Vec<Output> {
        self.held.retain(|(holder, _), _| *holder != client);
        self.exclusive.retain(|_, (holder, _)| *holder != client);
        self.write_leases.retain(|_, (holder, _)| *holder != client);
        self.disturbed.retain(|(holder, _)| *holder != client);
        self.step(Input::Evict { client })
    }

    /// Time has passed.
    pub fn tick(&mut self) -> Vec<Output> {
        self.step(Input::Tick)
    }

    /// The client's lock on `fid` in PR with most of `wish`, an old one or a new one. It is `None` if its
    /// locks do not cover the required bits.
    ///
    /// A new one is for what the others lack: they stay, and none is given back as needless. There is
    /// none while a withdrawal from an old one is not acknowledged: its client may give that one back for
    /// it, which would be taken for the acknowledgement.
    pub fn share(
        &mut self,
        op: Option<OpId>,
        client: ClientId,
        fid: Fid,
        wish: Wish,
    ) -> Option<Grant> {
        let locks = self.shared_by(client, fid);
        let held = union(&locks);
        let wanted = lacking(&locks, wish.required | wish.optional);
        let is_acknowledged = |lock: &Lock| self.table.unacknowledged(lock.handle).next().is_none();
        if !wanted.is_empty() && locks.iter().all(is_acknowledged) {
            let ask = TryGrant {
                op,
                client,
                resource: resource(fid),
                mode: Mode::PR,
            };
            let required = wish.required & wanted;
            let fresh = self.table.try_grant(self.now, ask, required, wanted);
            if let Some(fresh) = fresh.and_then(|fresh| self.gained(client, fid, held, fresh)) {
                return Some(fresh);
            }
        }
        let old = most(&locks, wish.required | wish.optional)?;
        held.contains(wish.required)
            .then(|| grant_of(old, self.table.version()))
    }

    /// Keeps the lock just granted, if it has anything that those before did not have.
    fn gained(&mut self, client: ClientId, fid: Fid, held: Bits, fresh: Grant) -> Option<Grant> {
        if held.contains(fresh.cover.bits()) {
            // Nobody has heard of it yet.
            self.step(Input::Cancel {
                client,
                handles: vec![fresh.handle],
            });
            return None;
        }
        if !fresh.withdrawn.is_empty() {
            // Entries under change are outside until an answer about them says otherwise.
            self.disturbed.insert((client, fid));
        }
        let handles = self.held.entry((client, fid)).or_default();
        handles.push(fresh.handle);
        Some(fresh)
    }

    /// The client's locks in `held` on `fid`, the oldest first.
    fn shared_by(&mut self, client: ClientId, fid: Fid) -> Vec<Lock> {
        let Some(handles) = self.held.get_mut(&(client, fid)) else {
            return Vec::new();
        };
        let mut locks = Vec::with_capacity(handles.len());
        handles.retain(|handle| {
            let lock = self.table.holds(client, *handle);
            locks.extend(lock.copied());
            lock.is_some()
        });
        if handles.is_empty() {
            self.held.remove(&(client, fid));
            self.disturbed.remove(&(client, fid));
        }
        locks
    }

    /// The client's lease on `dir`, if it has one that covers children's attributes.
    pub fn lease(&mut self, client: ClientId, dir: Fid) -> Option<Grant> {
        let locks = self.shared_by(client, dir);
        let lease = most(&locks, CHILDREN)?;
        lease
            .cover
            .bits()
            .contains(CHILDREN)
            .then(|| grant_of(lease, self.table.version()))
    }

    /// Gives the client the file for itself, if nobody else has a lock on it.
    pub fn exclude(&mut self, op: Option<OpId>, client: ClientId, fid: Fid) -> Option<Grant> {
        let ask = TryGrant {
            op,
            client,
            resource: resource(fid),
            mode: Mode::EX,
        };
        let grant = self.table.try_grant(self.now, ask, EXCLUSIVE, Bits::NONE)?;
        self.exclusive.insert(fid, (client, grant.handle));
        Some(grant)
    }

    /// Gives the client the write lease of `dir`, in which other clients use nothing. Refused where others
    /// hold, await or change anything of the directory, and where it is contended. A client that has the
    /// lease gets the same lock again.
    pub fn try_write_lease(
        &mut self,
        op: Option<OpId>,
        client: ClientId,
        dir: Fid,
    ) -> Option<Grant> {
        self.try_write_lease_without(op, client, dir, &[])
    }

    /// The same of a directory of which other clients use these children: the lease does not cover them.
    pub fn try_write_lease_without(
        &mut self,
        op: Option<OpId>,
        client: ClientId,
        dir: Fid,
        used: &[Fid],
    ) -> Option<Grant> {
        if let Some(lock) = self.write_lease(client, dir) {
            let mut grant = grant_of(lock, self.table.version());
            grant.withdrawn.extend(self.table.withdrawn(lock.handle));
            return Some(grant);
        }
        let is_fought_over = |contention: &Contention| contention.holds(self.now);
        if used.len() > BORN_WITHOUT_MAX
            || self.table.is_used_by_others(client, resource(dir))
            || self.fought_over.get(&dir).is_some_and(is_fought_over)
        {
            return None;
        }
        let ask = TryGrant {
            op,
            client,
            resource: resource(dir),
            mode: Mode::EX,
        };
        let mut grant = self
            .table
            .try_grant(self.now, ask, WRITE_LEASE, Bits::NONE)?;
        // Others enter the directory before they change a name in it, also where they use the file.
        let children = used.iter().map(|child| (child.0, Bits::CHILD));
        self.table.withhold(grant.handle, children.clone());
        grant.withdrawn.extend(children);
        if !grant.withdrawn.is_empty() {
            self.disturbed.insert((client, dir));
        }
        self.write_leases.insert(dir, (client, grant.handle));
        self.held
            .entry((client, dir))
            .or_default()
            .push(grant.handle);
        Some(grant)
    }

    /// Another client than the holder uses a child of a directory. The holder, which knows nothing of the
    /// child yet, is not told that its write lease does not cover it.
    pub fn leave_out(&mut self, client: ClientId, dir: Fid, child: Fid) {
        let lease = self.write_leases.get(&dir).copied();
        if let Some((holder, handle)) = lease.filter(|(holder, _)| *holder != client) {
            self.table.withhold(handle, [(child.0, Bits::CHILD)]);
            self.disturbed.insert((holder, dir));
        }
    }

    /// Some client has a write lease.
    pub fn has_write_leases(&self) -> bool {
        !self.write_leases.is_empty()
    }

    /// The client has the write lease of a directory.
    pub fn has_write_lease(&self, client: ClientId) -> bool {
        self.write_leases
            .values()
            .any(|(holder, _)| *holder == client)
    }

    /// Another client has the write lease of `dir`.
    pub fn is_closed(&self, client: ClientId, dir: Fid) -> bool {
        let lease = self.write_leases.get(&dir);
        lease.is_some_and(|(holder, _)| *holder != client)
    }

    /// Another client has the write lease of `dir`, and that covers its child `fid`.
    pub fn is_closed_for(&self, client: ClientId, dir: Fid, fid: Fid) -> bool {
        let lease = self.write_leases.get(&dir);
        lease.is_some_and(|(holder, handle)| {
            *holder != client && !self.table.is_withdrawn(*handle, fid.0, Bits::CHILD)
        })
    }

    /// The client has the write lease of `dir`, and that does not cover its child `fid`.
    pub fn is_outside(&self, client: ClientId, dir: Fid, fid: Fid) -> bool {
        let lease = self.write_lease(client, dir);
        lease.is_some_and(|lock| self.table.is_withdrawn(lock.handle, fid.0, Bits::CHILD))
    }

    /// A writer is about to enter `dir`, which has a write lease. Where that happens twice in a short time
    /// the directory gives none for a while. Writers that wait for the same callback count once.
    pub fn note_writer(&mut self, dir: Fid) {
        let lease = self.write_leases.get(&dir);
        if lease.is_none_or(|(_, handle)| self.table.is_wanted_back(*handle)) {
            return;
        }
        let rule = ContentionRule {
            max: 1,
            window: WRITE_LEASE_CONTENTION_WINDOW,
            hold: self.table.limits().lease_contention.hold,
        };
        while let Some((_, cold)) = self.cooling.pop_front_if(|(at, _)| *at <= self.now) {
            let contention = self.fought_over.get_mut(&cold);
            let is_over = contention.is_none_or(|contention| {
                contention.expire(self.now, rule);
                contention.forgotten_at(rule).is_none()
            });
            if is_over {
                self.fought_over.remove(&cold);
            }
        }
        let contention = self.fought_over.entry(dir).or_default();
        contention.note(self.now, rule);
        if let Some(at) = contention.forgotten_at(rule) {
            self.cooling.push_back((at, dir));
        }
    }

    /// Another client holds or awaits a lock on `fid`, or an operation for another works on it.
    pub fn is_used_by_others(&self, fid: Fid, client: ClientId) -> bool {
        self.table.is_used_by_others(client, resource(fid))
    }

    /// The client has the write lease of `dir`.
    pub fn holds_write_lease(&self, client: ClientId, dir: Fid) -> bool {
        self.write_lease(client, dir).is_some()
    }

    fn write_lease(&self, client: ClientId, dir: Fid) -> Option<&Lock> {
        let (holder, handle) = *self.write_leases.get(&dir)?;
        let lock = self.table.holds(holder, handle)?;
        (holder == client && is_write_lease(lock)).then_some(lock)
    }

    /// Who holds the file exclusively, and the lock.
    pub fn exclusive_holder(&mut self, fid: Fid) -> Option<Grant> {
        let (client, handle) = *self.exclusive.get(&fid)?;
        let Some(lock) = self
            .table
            .holds(client, handle)
            .filter(|lock| lock.mode == Mode::EX && lock.cover.bits().contains(EXCLUSIVE))
        else {
            self.exclusive.remove(&fid);
            return None;
        };
        Some(grant_of(lock, self.table.version()))
    }

    /// Another client holds the file exclusively.
    pub fn is_others(&mut self, fid: Fid, client: ClientId) -> bool {
        self.exclusive_holder(fid).is_some()
            && self.exclusive.get(&fid).is_some_and(|e| e.0 != client)
    }

    /// The client holds this lock in EX on `fid`.
    pub fn is_under(&self, client: ClientId, handle: LockHandle, fid: Fid) -> bool {
        let asked = Cover::Bits(Bits::PERM | Bits::UPDATE);
        let lock = self.table.holds(client, handle);
        lock.is_some_and(|lock| lock.allows(resource(fid), Mode::EX, asked))
    }

    /// The entries of `dir` that no lease of the client covers now: keys, each with its bits. Other
    /// operations than `op` are changing them, or the client has not acknowledged that they were withdrawn.
    /// A key may come several times.
    pub fn changing(
        &self,
        op: Option<OpId>,
        client: ClientId,
        dir: Fid,
    ) -> impl Iterator<Item = (u64, Bits)> {
        let handles = self.held.get(&(client, dir)).into_iter().flatten();
        let unheard = handles.flat_map(|handle| self.table.unacknowledged(*handle));
        self.table.withdrawing(op, resource(dir)).chain(unheard)
    }

    /// Some of that is of one of `keys` (of any, where `None`).
    pub fn is_changing(
        &self,
        op: Option<OpId>,
        client: ClientId,
        dir: Fid,
        keys: Option<&[u64]>,
    ) -> bool {
        let mut changing = self.changing(op, client, dir);
        changing.any(|(key, _)| keys.is_none_or(|keys| keys.contains(&key)))
    }

    /// The client's lease on `dir` may have lost entries since it was given.
    pub fn is_disturbed(&self, client: ClientId, dir: Fid) -> bool {
        self.disturbed.contains(&(client, dir))
    }

    /// The client's lease on `dir` covers `bits` of `key` again (of the directory, where `None`).
    pub fn readmit(
        &mut self,
        op: Option<OpId>,
        (client, dir): (ClientId, Fid),
        key: Option<u64>,
        bits: Bits,
    ) {
        if !self.is_disturbed(client, dir) || bits.is_empty() {
            return;
        }
        let handles = self.held.get(&(client, dir)).cloned().unwrap_or_default();
        for handle in handles {
            self.table.readmit(op, client, handle, key, bits);
        }
    }

    /// The version that what was changed by `op` carries from now on.
    pub fn announce(&mut self, op: OpId) -> u64 {
        self.table.announce(op)
    }

    /// The version that what is read now carries.
    pub fn version(&self) -> u64 {
        self.table.version()
    }
}

impl std::fmt::Debug for Locks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Locks({})", self.table.lock_count())
    }
}

fn is_write_lease(lock: &Lock) -> bool {
    lock.mode == Mode::EX && lock.cover.bits().contains(WRITE_LEASE)
}

/// All that `locks` cover.
fn union(locks: &[Lock]) -> Bits {
    let covers = locks.iter().map(|lock| lock.cover.bits());
    covers.fold(Bits::NONE, |all, bits| all | bits)
}

/// Of `wished` what `locks` lack. Names and children belong into one lock, so that where one of the
/// two is lacking the lock with the other is asked for anew, to be replaced.
fn lacking(locks: &[Lock], wished: Bits) -> Bits {
    let lacking = wished.without(union(locks));
    let halves = locks.iter().map(|lock| lock.cover.bits());
    match lacking.overlaps(CHILDREN) {
        true => halves
            .filter(|bits| bits.overlaps(CHILDREN))
            .fold(lacking, |all, bits| all | bits),
        false => lacking,
    }
}

/// The lock with most of `bits`, the newest of several.
fn most(locks: &[Lock], bits: Bits) -> Option<&Lock> {
    let covered = |lock: &&Lock| (lock.cover.bits() & bits).0.count_ones();
    locks.iter().max_by_key(covered)
}

fn grant_of(lock: &Lock, version: u64) -> Grant {
    Grant {
        handle: lock.handle,
        resource: lock.resource,
        mode: lock.mode,
        cover: lock.cover,
        version,
        withdrawn: Vec::new(),
    }
}

#[cfg(test)]
#[path = "locks_tests.rs"]
mod tests;
