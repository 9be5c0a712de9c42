//! Blocking callbacks: asking the holders of locks to give way, and what they give back.

use base::{ClientId, LockHandle};

use super::outstanding::Blocking;
use super::{LockTable, Output};
use crate::bits::Bits;
use crate::lock::{Cover, Keep, OpId};
use crate::mode::{Mode, ModeSet};

impl LockTable {
    /// Asks the holder of `slot` to make room for `mode` on `cover`, unless it was asked already.
    /// True if a callback went out.
    pub(super) fn call_back(&mut self, slot: u32, mode: Mode, cover: Cover) -> bool {
        let lock = self.locks.at(slot).lock;
        let (now, deadline) = (self.now, self.limits.callback_deadline);
        let (deadlines, clients) = (&mut self.deadlines, &mut self.clients);
        let mut first = false;
        let blocking = self.blocking.entry(lock.handle).or_insert_with(|| {
            first = true;
            clients.entry(lock.client).or_default().called_back += 1;
            Blocking {
                client: lock.client,
                due: deadlines.add(now.after(deadline), lock.client),
                bits: Bits::NONE,
                modes: ModeSet::default(),
                revokers: Vec::new(),
            }
        });
        let wanted = cover.bits() & lock.cover.bits();
        if !first && blocking.bits.contains(wanted) && blocking.modes.implies(mode) {
            return false;
        }
        blocking.bits |= wanted;
        blocking.modes.insert(mode);
        let cover = match cover {
            Cover::Bits(_) => Cover::Bits(blocking.bits),
            Cover::Range(_) => cover,
        };
        self.out.push(Output::Blocking {
            client: lock.client,
            handle: lock.handle,
            resource: lock.resource,
            mode,
            cover,
        });
        true
    }

    /// Asks the holder of `slot` to give up `bits`; `op` waits for it.
    pub(super) fn revoke_for(&mut self, slot: u32, bits: Bits, op: OpId) {
        self.call_back(slot, Mode::EX, Cover::Bits(bits));
        let handle = self.locks.at(slot).lock.handle;
        if let Some(blocking) = self.blocking.get_mut(&handle) {
            blocking.revokers.push((op, bits));
        }
    }

    /// Everything asked of a lock that is going away counts as answered.
    pub(super) fn forget_callbacks(&mut self, handle: LockHandle) {
        if let Some(blocking) = self.blocking.remove(&handle) {
            self.deadlines.remove(blocking.due);
            self.callback_answered(blocking.client);
            for (op, _) in blocking.revokers {
                self.op_answered(op);
            }
        }
        self.forget_lease(handle);
        self.forget_glimpse(handle);
    }

    /// A client gives part of a lock back.
    pub(super) fn convert(&mut self, client: ClientId, handle: LockHandle, keep: Keep) {
        let Some(slot) = self.slot_of(client, handle) else {
            // It may have crossed an eviction on the way.
            return;
        };
        let lock = self.locks.at(slot).lock;
        let (mode, cover) = match (keep, lock.cover) {
            (Keep::Bits(bits), Cover::Bits(had)) => {
                (keep.mode_of(lock.mode), Cover::Bits(bits & had))
            }
            (Keep::Mode(mode), cover) if lock.mode.covers(mode) => (mode, cover),
            (Keep::Nothing, _) => (lock.mode, Cover::Bits(Bits::NONE)),
            (Keep::Mode(_), _) => return self.misuse(client, "convert to a stronger mode"),
            (Keep::Bits(_), Cover::Range(_)) => return self.misuse(client, "bits of an extent"),
        };
        if cover.is_empty() {
            return self.remove_lock(slot);
        }
        self.reshape_lock(slot, mode, cover);
        self.narrow_lease(slot);
        self.narrow_blocking(slot);
    }

    /// After a lock has shrunk: is its callback answered now? What is still wanted of it gets a
    /// new deadline, because the holder made progress.
    fn narrow_blocking(&mut self, slot: u32) {
        let lock = self.locks.at(slot).lock;
        let Some(blocking) = self.blocking.get_mut(&lock.handle) else {
            return;
        };
        let left = lock.cover.bits();
        let (waiting, answered): (Vec<_>, Vec<_>) = blocking
            .revokers
            .drain(..)
            .partition(|(_, bits)| left.overlaps(*bits));
        blocking.revokers = waiting;
        self.deadlines.remove(blocking.due);
        if blocking.concerns(&lock) {
            let at = self.now.after(self.limits.callback_deadline);
            blocking.due = self.deadlines.add(at, lock.client);
        } else {
            self.blocking.remove(&lock.handle);
            self.callback_answered(lock.client);
        }
        for (op, _) in answered {
            self.op_answered(op);
        }
    }
}
