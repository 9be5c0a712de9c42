//! The client's half: the locks it holds, which calls use them, and which to give back.

mod arrivals;
mod audit;
mod changes;
mod departures;
mod early;
mod entry;
mod lease;
mod message;

use std::collections::VecDeque;

use base::{ClientId, LockHandle, Tick};

use self::changes::OwnChanges;
use self::early::{EarlyCallbacks, Gone};
use self::entry::Cached;
pub use self::message::{CacheInput, CacheLimits, CacheOutput, Reason, Release};
use crate::bits::Bits;
use crate::ids::IdMap;
use crate::interval::IntervalTree;
use crate::lock::{Cover, Grant, Keep, Lock, ResourceId, conflict};
use crate::mode::Mode;
use crate::slab::{List, Slab};

/// The lists a cached lock is on.
const BY_RESOURCE: usize = 0;
const BY_AGE: usize = 1;

/// Extents of a resource with more locks than this are found through a tree.
const TREE_ABOVE: u32 = 8;

/// The locks of one client on one target.
#[derive(Default)]
pub struct LockCache {
    limits: CacheLimits,
    locks: Slab<Cached>,
    by_handle: IdMap<LockHandle, u32>,
    resources: IdMap<ResourceId, Resource>,
    /// Idle locks, the longest unused first.
    idle: List,
    /// Locks the owner is flushing.
    dropping: usize,
    /// The server asked for no more than this.
    shrink_to: Option<usize>,
    early: EarlyCallbacks,
    gone: Gone,
    changes: OwnChanges,
    releases: VecDeque<Release>,
}

#[derive(Default)]
struct Resource {
    locks: List,
    extents: Option<Box<IntervalTree>>,
}

/// Every extent in a cache is of one holder: its own client.
const SELF: ClientId = ClientId(0);

impl LockCache {
    /// An empty cache with these bounds.
    pub fn new(limits: CacheLimits) -> LockCache {
        LockCache {
            limits,
            ..LockCache::default()
        }
    }

    /// Takes one event and appends what the owner must do for it, in order. What is to be sent
    /// to the server is fetched by [`LockCache::take_releases`].
    pub fn step(&mut self, now: Tick, input: CacheInput, out: &mut Vec<CacheOutput>) {
        match input {
            CacheInput::Granted { grant, in_use } => self.granted(now, &grant, in_use, out),
            CacheInput::Refused { handle } => self.refuse(handle),
            CacheInput::Blocking {
                handle,
                mode,
                cover,
            } => {
                self.blocking(now, handle, mode, cover, out);
            }
            CacheInput::Withdraw {
                handle,
                key,
                bits,
                version,
            } => {
                self.withdraw(now, handle, (key, bits, version), out);
            }
            CacheInput::Release { handle } => self.release(now, handle, out),
            CacheInput::Dropped { handle } => self.dropped(now, handle, out),
            CacheInput::Kept { handle, mode } => self.kept(now, handle, mode, out),
            CacheInput::Withdrawn { handle, version } => {
                if self.by_handle.contains_key(&handle) {
                    self.releases
                        .push_back(Release::WithdrawAck(handle, version));
                }
            }
            CacheInput::Readmitted {
                handle,
                key,
                bits,
                version,
            } => {
                let max = self.limits.withdrawn_max;
                if let Some(lease) = self.lease_mut(handle) {
                    lease.readmit(key, bits, version, max);
                }
            }
            CacheInput::GiveUp { handle } => self.give_up(handle, Reason::Asked, out),
            CacheInput::Shrink => self.shrink_to = Some(self.locks.len() - self.locks.len() / 4),
            CacheInput::NewEpoch => self.drop_all(out),
            CacheInput::Tick => self.pass_time(now, out),
        }
        self.thin_out(out);
    }

    /// A lock that allows `mode` on `cover`, if one is held that nobody wants back. It counts as
    /// used now.
    pub fn lookup(
        &mut self,
        now: Tick,
        resource: ResourceId,
        mode: Mode,
        cover: Cover,
    ) -> Option<LockHandle> {
        let slot = self.find(resource, mode, cover)?;
        self.touch(now, slot);
        Some(self.locks.at(slot).handle)
    }

    /// As [`LockCache::lookup`], and the lock stays until the call's [`CacheInput::Release`],
    /// however much it is wanted. The call must not wait for the server meanwhile, unless it is
    /// for I/O under this very lock.
    pub fn acquire(
        &mut self,
        now: Tick,
        resource: ResourceId,
        mode: Mode,
        cover: Cover,
    ) -> Option<LockHandle> {
        let slot = self.find(resource, mode, cover)?;
        // What is left of a lock that is being dropped in part serves too, and is not idle.
        if self.locks.at(slot).is_idle() {
            self.idle.remove(&mut self.locks, BY_AGE, slot);
        }
        let entry = self.locks.at_mut(slot);
        entry.uses += 1;
        entry.used_at = now;
        Some(entry.handle)
    }

    /// Every lock on the resource counts as used now.
    pub fn touch_all(&mut self, now: Tick, resource: ResourceId) {
        let Some(record) = self.resources.get(&resource) else {
            return;
        };
        let slots: Vec<u32> = record.locks.iter(&self.locks, BY_RESOURCE).collect();
        slots.into_iter().for_each(|slot| self.touch(now, slot));
    }

    /// Every inode bit on which `mode` is allowed by some lock that is held and not wanted back.
    pub fn held_bits(&self, resource: ResourceId, mode: Mode) -> Bits {
        let Some(record) = self.resources.get(&resource) else {
            return Bits::NONE;
        };
        let locks = record.locks.iter(&self.locks, BY_RESOURCE);
        locks.fold(Bits::NONE, |held, slot| {
            let entry = self.locks.at(slot);
            let (kept, bits) = match entry.rest() {
                None => (entry.mode, entry.cover.bits()),
                Some(Keep::Nothing) => (entry.mode, Bits::NONE),
                Some(Keep::Mode(kept)) => (kept, entry.cover.bits()),
                Some(keep @ Keep::Bits(rest)) => (keep.mode_of(entry.mode), rest),
            };
            match kept.covers(mode) {
                true => held | bits,
                false => held,
            }
        })
    }

    /// A lock on bytes that allows `mode` on `cover`, be it wanted back or not: it is still held.
    pub fn held_extent(
        &self,
        resource: ResourceId,
        mode: Mode,
        cover: Cover,
    ) -> Option<LockHandle> {
        let record = self.resources.get(&resource)?;
        let held = record
            .locks
            .iter(&self.locks, BY_RESOURCE)
            .map(|slot| self.locks.at(slot));
        let mut allowing = held
            .filter(|entry| entry.mode.covers(mode) && entry.cover.contains(cover))
            .map(|entry| (entry.rest().is_some(), entry.handle));
        // One that stays is better than one that goes.
        let first = allowing.next()?;
        Some(allowing.find(|(going, _)| !going).unwrap_or(first).1)
    }

    /// `mode` on `cover` is allowed by a lock that is held and not wanted back.
    pub fn allows(&self, resource: ResourceId, mode: Mode, cover: Cover) -> bool {
        self.find(resource, mode, cover).is_some()
    }

    /// The locks that no call uses and nobody wants, least recently used first.
    pub fn idle_handles(&self) -> Vec<LockHandle> {
        self.idle
            .iter(&self.locks, BY_AGE)
            .map(|slot| self.locks.at(slot).handle)
            .collect()
    }

    /// The locks on the resource.
    pub fn handles_on(&self, resource: ResourceId) -> impl Iterator<Item = LockHandle> {
        self.on_resource(resource).map(|entry| entry.handle)
    }

    /// Some lock on the resource is held.
    pub fn is_locked(&self, resource: ResourceId) -> bool {
        self.resources.contains_key(&resource)
    }

    /// The mode in which the lock is held.
    pub fn mode_of(&self, handle: LockHandle) -> Option<Mode> {
        let slot = self.by_handle.get(&handle)?;
        Some(self.locks.at(*slot).mode)
    }

    /// The lock is held, for whatever mode and part.
    pub fn holds(&self, handle: LockHandle) -> bool {
        self.by_handle.contains_key(&handle)
    }

    /// State read at `version` may be kept. A lock in PR or stronger has covered `bits` since
    /// before it was read, and no change of it is known since. With a `key` it is the state of that
    /// entry of a directory, else of the inode or the directory as a whole.
    pub fn admits(&self, resource: ResourceId, key: Option<u64>, bits: Bits, version: u64) -> bool {
        self.changes.admit((resource, key), bits, version)
            && self
                .on_resource(resource)
                .any(|entry| entry.admits(key, bits, version))
    }

    /// What is kept of the entry `key` may be used: a lease with `bits` covers it still.
    pub fn covers_entry(&self, resource: ResourceId, key: u64, bits: Bits) -> bool {
        self.on_resource(resource)
            .any(|entry| entry.covers_entry(key, bits))
    }

    fn on_resource(&self, resource: ResourceId) -> impl Iterator<Item = &Cached> {
        let record = self.resources.get(&resource).into_iter();
        record
            .flat_map(|record| record.locks.iter(&self.locks, BY_RESOURCE))
            .map(|slot| self.locks.at(slot))
    }

    /// A reply to our own change carried `version`: what was read before is old. With a `key` the
    /// change was to that entry of a directory, else to the inode or the directory as a whole.
    pub fn changed(&mut self, resource: ResourceId, key: Option<u64>, bits: Bits, version: u64) {
        let max = self.limits.changes_max;
        self.changes.note((resource, key), bits, version, max);
    }

    /// Early cancel: our own idle locks that a request about to be sent would conflict with. They
    /// are ours no more; the request carries their handles, and the caller has invalidated what
    /// they covered before it is sent.
    pub fn take_conflicting(
        &mut self,
        resource: ResourceId,
        mode: Mode,
        cover: Cover,
    ) -> Vec<LockHandle> {
        let Some(record) = self.resources.get(&resource) else {
            return Vec::new();
        };
        let in_the_way = |slot: &u32| {
            let entry = self.locks.at(*slot);
            entry.is_idle() && conflict((entry.mode, entry.cover), (mode, cover))
        };
        let slots: Vec<u32> = record
            .locks
            .iter(&self.locks, BY_RESOURCE)
            .filter(in_the_way)
            .collect();
        slots.into_iter().map(|slot| self.remove(slot)).collect()
    }

    /// At most `max` messages for the server, oldest first.
    pub fn take_releases(&mut self, max: usize) -> Vec<Release> {
        let count = self.releases.len().min(max);
        self.releases.drain(..count).collect()
    }

    /// Messages waiting to be taken.
    pub fn release_count(&self) -> usize {
        self.releases.len()
    }

    /// All locks held by this client, which its server calls `client`.
    pub fn locks(&self, client: ClientId) -> impl Iterator<Item = Lock> {
        self.locks.iter().map(move |(_, held)| Lock {
            handle: held.handle,
            client,
            resource: held.resource,
            mode: held.mode,
            cover: held.cover,
        })
    }

    /// Locks held.
    pub fn lock_count(&self) -> usize {
        self.locks.len()
    }

    /// Locks held that no call uses and nobody wants.
    pub fn idle_count(&self) -> usize {
        self.idle.len as usize
    }

    /// Changes how many idle locks are kept. Surplus goes with the next steps.
    pub fn set_lru_max(&mut self, max: usize) {
        self.limits.lru_max = max;
    }

    /// Changes how long an idle lock is kept.
    pub fn set_age_max(&mut self, max: std::time::Duration) {
        self.limits.age_max = max;
    }

    fn find(&self, resource: ResourceId, mode: Mode, cover: Cover) -> Option<u32> {
        let record = self.resources.get(&resource)?;
        let serves = |slot: u32| self.locks.at(slot).serves(mode, cover);
        match (&record.extents, cover) {
            (Some(extents), Cover::Range(range)) => {
                let mut found = None;
                extents.overlapping(range, None, &mut |slot| {
                    found = serves(slot).then_some(slot);
                    found.is_none()
                });
                found
            }
            _ => record
                .locks
                .iter(&self.locks, BY_RESOURCE)
                .find(|slot| serves(*slot)),
        }
    }

    /// Marks a lock as used now.
    fn touch(&mut self, now: Tick, slot: u32) {
        self.locks.at_mut(slot).used_at = now;
        if self.locks.at(slot).is_idle() {
            self.idle.remove(&mut self.locks, BY_AGE, slot);
            self.idle.push(&mut self.locks, BY_AGE, slot);
        }
    }

    fn lease_mut(&mut self, handle: LockHandle) -> Option<&mut lease::LeaseView> {
        let slot = *self.by_handle.get(&handle)?;
        self.locks.at_mut(slot).lease.as_deref_mut()
    }

    fn insert(&mut self, now: Tick, grant: &Grant, uses: u32) -> u32 {
        let slot = self.locks.insert(|_| Cached::new(grant, uses, now));
        self.by_handle.insert(grant.handle, slot);
        let record = self.resources.entry(grant.resource).or_default();
        record.locks.push(&mut self.locks, BY_RESOURCE, slot);
        if let (Some(extents), Cover::Range(range)) = (&mut record.extents, grant.cover) {
            extents.insert(range, SELF, slot);
        } else if record.locks.len > TREE_ABOVE {
            let mut extents = Box::new(IntervalTree::default());
            for member in record.locks.iter(&self.locks, BY_RESOURCE) {
                if let Cover::Range(range) = self.locks.at(member).cover {
                    extents.insert(range, SELF, member);
                }
            }
            record.extents = Some(extents);
        }
        if uses == 0 {
            self.idle.push(&mut self.locks, BY_AGE, slot);
        }
        slot
    }

    fn remove(&mut self, slot: u32) -> LockHandle {
        if self.locks.at(slot).is_idle() {
            self.idle.remove(&mut self.locks, BY_AGE, slot);
        }
        let entry = self.locks.at(slot);
        let (handle, resource, cover) = (entry.handle, entry.resource, entry.cover);
        if let Some(record) = self.resources.get_mut(&resource) {
            record.locks.remove(&mut self.locks, BY_RESOURCE, slot);
            if let (Some(extents), Cover::Range(range)) = (&mut record.extents, cover) {
                extents.remove(range, slot);
            }
            if record.locks.len == 0 {
                self.resources.remove(&resource);
            }
        }
        self.by_handle.remove(&handle);
        self.locks.remove(slot);
        self.gone.insert(handle, self.limits.early_max);
        handle
    }
}
