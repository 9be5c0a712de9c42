//! The lock table as an MDT uses it: who holds which lock on which file, and which answers a lock
//! may cover.
//!
//! A lease covers an answer about a directory only while nobody else is changing what it says:
//! no operation in flight withdraws it, and the client has acknowledged every earlier withdrawal.
//! Otherwise the answer is the truth once, without cover.

use base::{BootEpoch, ClientId, Fid, LockHandle, Tick};
use dlm::{
    Bits, Cover, Grant, IdMap, IdSet, Input, Limits, Lock, LockTable, Mode, OpId, Output, TryGrant,
};

use crate::ops::context::{Needs, resource};

/// The exclusive lock on a new file under which its maker works without asking.
pub const EXCLUSIVE: Bits =
    Bits(Bits::PERM.0 | Bits::UPDATE.0 | Bits::XATTR.0 | Bits::DOM.0 | Bits::OPEN.0);

/// The bits of a lease that cover the files of a directory.
const CHILDREN: Bits = Bits(Bits::NAMES.0 | Bits::CHILD.0);

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
    /// The locks in PR that a client was given on a file, newest last.
    held: IdMap<(ClientId, Fid), Vec<LockHandle>>,
    /// The last exclusive lock given on a file.
    exclusive: IdMap<Fid, (ClientId, LockHandle)>,
    /// Directories of which a client's lease has lost entries.
    disturbed: IdSet<(ClientId, Fid)>,
    /// What operations in flight withdraw from a directory's leases.
    withdrawing: IdMap<Fid, Vec<(OpId, u64)>>,
    /// Withdrawals a client has not acknowledged, by directory.
    unacknowledged: IdMap<(ClientId, Fid), u32>,
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
                let place = (*client, Fid(resource.id));
                self.disturbed.insert(place);
                *self.unacknowledged.entry(place).or_default() += 1;
            }
        }
        out
    }

    /// Begins an operation.
    pub fn begin(&mut self, op: OpId, client: ClientId, needs: &Needs) -> Vec<Output> {
        for note in &needs.notes {
            self.withdrawing
                .entry(note.dir)
                .or_default()
                .push((op, note.key));
        }
        let wants = needs.wants.clone();
        self.step(Input::Begin {
            op,
            client: Some(client),
            wants,
        })
    }

    /// Ends an operation, whether it ran or not.
    pub fn end(&mut self, op: OpId, needs: &Needs) -> Vec<Output> {
        self.forget_op(op, needs);
        self.step(Input::End { op })
    }

    /// The table has dropped an operation itself.
    pub fn forget_op(&mut self, op: OpId, needs: &Needs) {
        for note in &needs.notes {
            if let Some(keys) = self.withdrawing.get_mut(&note.dir) {
                keys.retain(|(other, _)| *other != op);
                if keys.is_empty() {
                    self.withdrawing.remove(&note.dir);
                }
            }
        }
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
        match keep {
            dlm::Keep::Nothing => self.cancel(client, vec![handle]),
            keep => self.step(Input::Convert {
                client,
                handle,
                keep,
            }),
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
        dir: Fid,
        handle: LockHandle,
        version: u64,
    ) -> Vec<Output> {
        if let Some(count) = self.unacknowledged.get_mut(&(client, dir)) {
            *count -= 1;
            if *count == 0 {
                self.unacknowledged.remove(&(client, dir));
            }
        }
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
        self.disturbed.retain(|(holder, _)| *holder != client);
        self.unacknowledged
            .retain(|(holder, _), _| *holder != client);
        self.step(Input::Evict { client })
    }

    /// Time has passed.
    pub fn tick(&mut self) -> Vec<Output> {
        self.step(Input::Tick)
    }

    /// The client's lock on `fid` in PR with most of `wish`, an old one or a new one; `None` where
    /// its locks do not cover what is required.
    ///
    /// A new one is for what the others lack: they stay, and none is given back as needless.
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
        if !wanted.is_empty() {
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

    /// The client's locks in PR on `fid`, the oldest first.
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

    /// Another operation is changing one of `keys` of `dir` (any, where `None`), or the client has
    /// not yet heard of such a change. No lease of it covers that now.
    pub fn is_changing(
        &self,
        op: Option<OpId>,
        client: ClientId,
        dir: Fid,
        keys: Option<&[u64]>,
    ) -> bool {
        let others = self.withdrawing.get(&dir).into_iter().flatten();
        let mut others = others.filter(|(other, _)| Some(*other) != op);
        others.any(|(_, key)| keys.is_none_or(|keys| keys.contains(key)))
            || self.unacknowledged.contains_key(&(client, dir))
    }

    /// The client's lease on `dir` may have lost entries since it was given.
    pub fn is_disturbed(&self, client: ClientId, dir: Fid) -> bool {
        self.disturbed.contains(&(client, dir))
    }

    /// The client's lease on `dir` covers these keys again (the list itself, where `None`).
    pub fn readmit(&mut self, op: Option<OpId>, client: ClientId, dir: Fid, keys: Option<&[u64]>) {
        if !self.is_disturbed(client, dir) {
            return;
        }
        let handles = self.held.get(&(client, dir)).cloned().unwrap_or_default();
        for handle in handles {
            match keys {
                None => {
                    self.table.readmit(op, client, handle, None, Bits::LIST);
                }
                Some(keys) => {
                    for key in keys {
                        let bits = Bits::NAMES | Bits::CHILD;
                        self.table.readmit(op, client, handle, Some(*key), bits);
                    }
                }
            }
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
