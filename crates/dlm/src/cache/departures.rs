//! Giving locks up: when others want them, when they are old or too many, when all are void.

use base::{LockHandle, Tick};

use super::{BY_AGE, CacheOutput, LockCache, Reason, Release};
use crate::lock::Keep;
use crate::mode::Mode;

impl LockCache {
    pub(super) fn release(&mut self, now: Tick, handle: LockHandle, out: &mut Vec<CacheOutput>) {
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
    pub(super) fn start_drop(&mut self, slot: u32, reason: Reason, out: &mut Vec<CacheOutput>) {
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

    pub(super) fn give_up(
        &mut self,
        handle: LockHandle,
        reason: Reason,
        out: &mut Vec<CacheOutput>,
    ) {
        let Some(slot) = self.by_handle.get(&handle).copied() else {
            return;
        };
        if self.locks.at(slot).is_idle() {
            self.idle.remove(&mut self.locks, BY_AGE, slot);
        }
        self.locks.at_mut(slot).leaving = Some(reason);
        self.start_drop(slot, reason, out);
    }

    /// The lock goes with a message that is about to be sent, be it asked for already or not. That
    /// answers the client that wants it. The caller has invalidated what it covers.
    pub fn carry_off(&mut self, handle: LockHandle) {
        let Some(slot) = self.by_handle.get(&handle).copied() else {
            return;
        };
        let was_going = self.locks.at(slot).dropping.is_some();
        self.remove(slot);
        self.dropping -= usize::from(was_going);
    }

    pub(super) fn dropped(&mut self, now: Tick, handle: LockHandle, out: &mut Vec<CacheOutput>) {
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

    /// As [`LockCache::dropped`], but the lock stays in `mode` and in use, if nobody minds.
    pub(super) fn kept(
        &mut self,
        now: Tick,
        handle: LockHandle,
        mode: Mode,
        out: &mut Vec<CacheOutput>,
    ) {
        let Some(slot) = self.by_handle.get(&handle).copied() else {
            return;
        };
        let entry = self.locks.at_mut(slot);
        if entry.dropping != Some(Keep::Nothing) || !entry.keep_in(mode) {
            return self.dropped(now, handle, out);
        }
        entry.dropping = None;
        entry.used_at = now;
        self.dropping -= 1;
        let keep = Keep::Mode(mode);
        self.releases.push_back(Release::Convert(handle, keep));
    }

    pub(super) fn drop_all(&mut self, out: &mut Vec<CacheOutput>) {
        *self = LockCache::new(self.limits);
        out.push(CacheOutput::DropAll);
    }

    pub(super) fn pass_time(&mut self, now: Tick, out: &mut Vec<CacheOutput>) {
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

    /// A lock called back long ago whose grant never came is given up unseen. Its callbacks are not
    /// remembered for ever, so its grant must not be believed any more.
    fn refuse_late_grants(&mut self, now: Tick) {
        for handle in self.early.expire(now, self.limits.early_age) {
            self.gone.insert(handle, self.limits.early_max);
            self.releases.push_back(Release::Cancel(handle));
        }
    }

    /// Gives up the longest unused locks where there are too many, a batch at a time.
    pub(super) fn thin_out(&mut self, out: &mut Vec<CacheOutput>) {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::Bits;
    use crate::cache::{CacheInput, CacheLimits};
    use crate::lock::{Cover, Grant, ResourceId};

    /// What went with a message is not given back once more, nor is a part of it kept.
    #[test]
    fn a_lock_that_is_being_given_back_can_be_carried_off() {
        let mut cache = LockCache::new(CacheLimits::default());
        let handle = LockHandle(7);
        let grant = Grant {
            handle,
            resource: ResourceId { space: 1, id: 9 },
            mode: Mode::EX,
            cover: Cover::Bits(Bits::UPDATE | Bits::XATTR),
            version: 1,
            withdrawn: Vec::new(),
        };
        let in_use = false;
        let wanted = CacheInput::Blocking {
            handle,
            mode: Mode::EX,
            cover: Cover::Bits(Bits::UPDATE),
        };
        let mut out = Vec::new();
        cache.step(Tick(0), CacheInput::Granted { grant, in_use }, &mut out);
        cache.step(Tick(1), wanted, &mut out);
        assert!(matches!(out[..], [CacheOutput::Drop { .. }]), "{out:?}");
        cache.carry_off(handle);
        cache.step(Tick(2), CacheInput::Dropped { handle }, &mut out);
        assert_eq!((cache.lock_count(), cache.release_count()), (0, 0));
    }
}
