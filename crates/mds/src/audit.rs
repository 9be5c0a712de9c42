//! Whether what the target has in memory holds together, and what in it is not finished. For tests
//! and the simulator.

use std::collections::BTreeSet;

use base::{ClientId, Fid};
use dlm::Lock;

use crate::core::Mds;

impl Mds {
    /// All locks that are granted.
    pub fn all_locks(&self) -> Vec<Lock> {
        self.locks.table().locks().copied().collect()
    }

    /// Which files who has open.
    pub fn uses(&self) -> Vec<(ClientId, Fid)> {
        self.opens
            .all()
            .map(|open| (open.client, open.fid))
            .collect()
    }

    /// What contradicts itself in the lock table.
    pub fn audit(&self) -> Result<(), String> {
        self.locks.table().audit()
    }

    /// Sequences whose clients were given up, as long as objects of files that went with them may come
    /// and are searched for.
    pub fn searched(&self) -> BTreeSet<u64> {
        self.leaks.sequences().clone()
    }

    /// What is under way or has yet to be: nothing, where no client asks for anything and time
    /// enough has passed.
    pub fn unfinished(&self) -> Vec<String> {
        let table = self.locks.table();
        let frames = self.clients.values().map(|session| session.frames.len());
        let counts = [
            (table.waiting_count(), "that wait for locks"),
            (table.callback_count(), "callbacks without an answer"),
            (self.parked.len(), "requests that wait"),
            (frames.sum(), "frames that wait"),
            (self.unanswered.len(), "answers that wait for durability"),
            (self.tickets.len(), "batches that are not durable"),
            (self.newcomers.len(), "requests of clients not known yet"),
            (
                self.left_behind.len(),
                "clients with uses of a process that is gone",
            ),
            (
                usize::from(self.recovery.is_open()),
                "recovery that goes on",
            ),
            (
                usize::from(self.recovery.is_grace()),
                "time in which clients tell what they have open",
            ),
            (self.sharing.len(), "changes that are held back"),
            (self.destroys.len(), "OSTs that have objects to remove"),
            (self.leaks.len(), "searches for objects of lost files"),
        ];
        let left = counts.into_iter().filter(|(count, _)| *count > 0);
        left.map(|(count, what)| format!("{count} {what}"))
            .collect()
    }
}
