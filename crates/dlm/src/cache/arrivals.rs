//! What the server says: grants, blocking callbacks, withdrawals, in whatever order they come.

use base::{LockHandle, Tick};

use super::early::EarlyCallback;
use super::{BY_AGE, BY_RESOURCE, CacheOutput, LockCache, Reason, Release};
use crate::bits::Bits;
use crate::lock::{Cover, Grant};
use crate::mode::Mode;

/// Locks of a resource with more than this are not compared with a new one.
const COMPARED_MAX: u32 = 16;

impl LockCache {
    pub(super) fn granted(
        &mut self,
        now: Tick,
        grant: &Grant,
        in_use: bool,
        out: &mut Vec<CacheOutput>,
    ) {
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

    /// The server must not be left with a lock that nobody here knows: it would wait for an answer
    /// to its callback.
    pub(super) fn refuse(&mut self, handle: LockHandle) {
        if self.holds(handle) || self.gone.contains(handle) {
            return;
        }
        self.early.take(handle);
        self.gone.insert(handle, self.limits.early_max);
        self.releases.push_back(Release::Cancel(handle));
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

    pub(super) fn blocking(
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

    pub(super) fn withdraw(
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
}
