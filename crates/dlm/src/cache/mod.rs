//! The client's half: the locks it holds, which calls use them, and which to give back.

mod audit;
mod changes;
mod early;
mod entry;
mod lease;
mod message;

use std::collections::{HashMap, VecDeque};

use base::{ClientId, LockHandle, Tick};

use self::changes::OwnChanges;
use self::early::{EarlyCallback, EarlyCallbacks, Gone};
use self::entry::Cached;
pub use self::message::{CacheInput, CacheLimits, CacheOutput, Reason, Release};
use crate::bits::Bits;
use crate::interval::IntervalTree;
use crate::lock::{Cover, Grant, Keep, ResourceId, conflict};
use crate::mode::Mode;
use crate::slab::{List, Slab};

/// The lists a cached lock is on.
const BY_RESOURCE: usize = 0;
const BY_AGE: usize = 1;

/// Extents of a resource with more locks than this are found through a tree.
const TREE_ABOVE: u32 = 8;
/// Locks of a resource with more than this are not compared with a new one.
const COMPARED_MAX: u32 = 16;

/// The locks of one client on one target.
#[derive(Default)]
pub struct LockCache {
    limits: CacheLimits,
    locks: Slab<Cached>,
    by_handle: HashMap<LockHandle, u32>,
    resources: HashMap<ResourceId, Resource>,
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

    /// Every inode bit on which `mode` is allowed by some lock that is held and not wanted back.
    pub fn held_bits(&self, resource: ResourceId, mode: Mode) -> Bits {
        let Some(record) = self.resources.get(&resource) else {
            return Bits::NONE;
        };
        let locks = record.locks.iter(&self.locks, BY_RESOURCE);
        locks.fold(Bits::NONE, |held, slot| {
            let entry = self.locks.at(slot);
            held | match entry.rest() {
                _ if !entry.mode.covers(mode) => Bits::NONE,
                None | Some(Keep::Mode(_)) => entry.cover.bits(),
                Some(Keep::Bits(rest)) => rest,
                Some(Keep::Nothing) => Bits::NONE,
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

    /// Some lock on the resource is held.
    pub fn is_locked(&self, resource: ResourceId) -> bool {
        self.resources.contains_key(&resource)
    }

    /// The lock is held, for whatever mode and part.
    pub fn holds(&self, handle: LockHandle) -> bool {
        self.by_handle.contains_key(&handle)
    }

    /// State read at `version` may be kept: a lock in PR or stronger has covered `bits` since
    /// before it was read, and no change of it is known since. With a `key` it is the state of
    /// that entry of a directory, else of the inode or the directory as a whole.
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

    fn granted(&mut self, now: Tick, grant: &Grant, in_use: bool, out: &mut Vec<CacheOutput>) {
        if self.holds(grant.handle) || self.gone.contains(grant.handle) {
            return;
        }
        let slot = self.insert(now, grant, u32::from(in_use));
        let early = self.early.take(grant.handle);
        if early.is_empty() && grant.withdrawn.is_empty() {
            self.drop_redundant(slot);
        }
        self.announce_withheld(grant, out);
        for callback in early {
            match callback {
                EarlyCallback::Blocking(mode, cover) => {
                    self.blocking(now, grant.handle, mode, cover, out);
                }
                EarlyCallback::Withdraw { key, bits, version } => {
                    let max = self.limits.withdrawn_max;
                    if let Some(lease) = self.lease_mut(grant.handle) {
                        lease.withdraw(key, bits, version, max);
                    }
                }
            }
        }
    }

    /// What is kept of these entries, under an older lock, is not covered by the new one.
    fn announce_withheld(&self, grant: &Grant, out: &mut Vec<CacheOutput>) {
        for (key, bits) in &grant.withdrawn {
            out.push(CacheOutput::Withdrawn {
                handle: grant.handle,
                resource: grant.resource,
                key: *key,
                bits: *bits,
                version: grant.version,
            });
        }
    }

    /// Of two idle locks on the same part one is enough. Nothing needs to be invalidated: the
    /// other covers it without a gap.
    ///
    /// Only for a grant that nothing was withdrawn from and no callback has overtaken. Else the
    /// same callback may be under way to the older lock, and that one must not be given up before
    /// what it covered is forgotten.
    fn drop_redundant(&mut self, fresh: u32) {
        let new = self.locks.at(fresh);
        let Some(record) = self.resources.get(&new.resource) else {
            return;
        };
        if record.locks.len > COMPARED_MAX
            || !(new.uses > 0 || new.is_idle())
            || new.rest().is_some()
        {
            return;
        }
        let others = || {
            record
                .locks
                .iter(&self.locks, BY_RESOURCE)
                .filter(|slot| *slot != fresh)
        };
        let replaced = |slot: &u32| {
            let old = self.locks.at(*slot);
            old.is_idle() && new.mode.covers(old.mode) && new.cover.contains(old.cover)
        };
        let mut surplus: Vec<u32> = others().filter(replaced).collect();
        let covered = |slot: u32| {
            let old = self.locks.at(slot);
            old.rest().is_none() && old.mode.covers(new.mode) && old.cover.contains(new.cover)
        };
        if surplus.is_empty() && new.is_idle() && new.lease.is_none() && others().any(covered) {
            surplus.push(fresh);
        }
        for slot in surplus {
            let handle = self.remove(slot);
            self.releases.push_back(Release::Cancel(handle));
        }
    }

    fn blocking(
        &mut self,
        now: Tick,
        handle: LockHandle,
        mode: Mode,
        cover: Cover,
        out: &mut Vec<CacheOutput>,
    ) {
        let Some(slot) = self.by_handle.get(&handle).copied() else {
            if !self.gone.contains(handle) {
                let callback = EarlyCallback::Blocking(mode, cover);
                self.early
                    .remember(now, handle, callback, self.limits.early_max);
            }
            return;
        };
        let was_idle = self.locks.at(slot).is_idle();
        self.locks.at_mut(slot).want(mode, cover);
        if was_idle && !self.locks.at(slot).is_idle() {
            self.idle.remove(&mut self.locks, BY_AGE, slot);
        }
        self.start_drop(slot, Reason::Conflict, out);
    }

    fn withdraw(
        &mut self,
        now: Tick,
        handle: LockHandle,
        (key, bits, version): (u64, Bits, u64),
        out: &mut Vec<CacheOutput>,
    ) {
        let max = self.limits.withdrawn_max;
        if let Some(slot) = self.by_handle.get(&handle).copied() {
            let entry = self.locks.at_mut(slot);
            let resource = entry.resource;
            if let Some(lease) = entry.lease.as_mut() {
                lease.withdraw(key, bits, version, max);
            }
            out.push(CacheOutput::Withdrawn {
                handle,
                resource,
                key,
                bits,
                version,
            });
        } else if !self.gone.contains(handle) {
            let callback = EarlyCallback::Withdraw { key, bits, version };
            if self
                .early
                .remember(now, handle, callback, self.limits.early_max)
            {
                self.releases
                    .push_back(Release::WithdrawAck(handle, version));
            }
        }
    }

    fn release(&mut self, now: Tick, handle: LockHandle, out: &mut Vec<CacheOutput>) {
        let Some(slot) = self.by_handle.get(&handle).copied() else {
            return;
        };
        let entry = self.locks.at_mut(slot);
        if entry.uses == 0 {
            return;
        }
        entry.uses -= 1;
        entry.used_at = now;
        if entry.is_idle() {
            self.idle.push(&mut self.locks, BY_AGE, slot);
        }
        let reason = self.locks.at(slot).leaving.unwrap_or(Reason::Conflict);
        self.start_drop(slot, reason, out);
    }

    /// Has the owner flush what is wanted of the lock, unless a call uses it, it is being flushed
    /// already, or nothing is wanted.
    fn start_drop(&mut self, slot: u32, reason: Reason, out: &mut Vec<CacheOutput>) {
        let entry = self.locks.at_mut(slot);
        if entry.uses > 0 || entry.dropping.is_some() {
            return;
        }
        let Some(keep) = entry.rest() else {
            return;
        };
        entry.dropping = Some(keep);
        self.dropping += 1;
        let (handle, resource, cover) = (entry.handle, entry.resource, entry.going(keep));
        out.push(CacheOutput::Drop {
            handle,
            resource,
            cover,
            keep,
            reason,
        });
    }

    fn give_up(&mut self, handle: LockHandle, reason: Reason, out: &mut Vec<CacheOutput>) {
        let Some(slot) = self.by_handle.get(&handle).copied() else {
            return;
        };
        if self.locks.at(slot).is_idle() {
            self.idle.remove(&mut self.locks, BY_AGE, slot);
        }
        self.locks.at_mut(slot).leaving = Some(reason);
        self.start_drop(slot, reason, out);
    }

    fn dropped(&mut self, now: Tick, handle: LockHandle, out: &mut Vec<CacheOutput>) {
        let Some(slot) = self.by_handle.get(&handle).copied() else {
            return;
        };
        let Some(keep) = self.locks.at_mut(slot).dropping.take() else {
            return;
        };
        self.dropping -= 1;
        if keep == Keep::Nothing {
            self.remove(slot);
            self.releases.push_back(Release::Cancel(handle));
            return;
        }
        let entry = self.locks.at_mut(slot);
        entry.shrink(keep);
        entry.used_at = now;
        self.releases.push_back(Release::Convert(handle, keep));
        if self.locks.at(slot).is_idle() {
            self.idle.push(&mut self.locks, BY_AGE, slot);
        }
        let reason = self.locks.at(slot).leaving.unwrap_or(Reason::Conflict);
        self.start_drop(slot, reason, out);
    }

    fn drop_all(&mut self, out: &mut Vec<CacheOutput>) {
        *self = LockCache::new(self.limits);
        out.push(CacheOutput::DropAll);
    }

    fn pass_time(&mut self, now: Tick, out: &mut Vec<CacheOutput>) {
        self.refuse_late_grants(now);
        for _ in 0..self.limits.batch {
            let Some(oldest) = self.oldest_idle() else {
                break;
            };
            let entry = self.locks.at(oldest);
            if now.since(entry.used_at) < self.limits.age_max {
                break;
            }
            self.give_up(entry.handle, Reason::Aged, out);
        }
    }

    /// A lock called back long ago whose grant never came is given up unseen: its callbacks are
    /// not remembered for ever, so its grant must not be believed any more.
    fn refuse_late_grants(&mut self, now: Tick) {
        for handle in self.early.expire(now, self.limits.early_age) {
            self.gone.insert(handle, self.limits.early_max);
            self.releases.push_back(Release::Cancel(handle));
        }
    }

    /// Gives up the longest unused locks where there are too many, a batch at a time.
    fn thin_out(&mut self, out: &mut Vec<CacheOutput>) {
        for _ in 0..self.limits.batch {
            let staying = self.locks.len() - self.dropping;
            let crowded = self.idle.len as usize > self.limits.lru_max;
            let asked = self.shrink_to.is_some_and(|max| staying > max);
            let Some(oldest) = self.oldest_idle().filter(|_| crowded || asked) else {
                self.shrink_to = self.shrink_to.filter(|_| asked);
                return;
            };
            self.give_up(self.locks.at(oldest).handle, Reason::Crowded, out);
        }
    }

    fn oldest_idle(&self) -> Option<u32> {
        (self.idle.len > 0).then_some(self.idle.head)
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
