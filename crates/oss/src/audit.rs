//! Whether what the target has in memory holds together, and what in it is not finished. For tests
//! and the simulator.

use dlm::Lock;

use crate::oss::Oss;

impl Oss {
    /// All locks that are granted.
    pub fn all_locks(&self) -> Vec<Lock> {
        self.locks.table().locks().copied().collect()
    }

    /// What contradicts itself in the lock table.
    pub fn audit(&self) -> Result<(), String> {
        self.locks.table().audit()
    }

    /// What is under way or has yet to be: nothing, where no client asks for anything and time
    /// enough has passed.
    pub fn unfinished(&self) -> Vec<String> {
        let table = self.locks.table();
        let counts = [
            (table.waiting_count(), "that wait for locks"),
            (table.callback_count(), "callbacks without an answer"),
            (self.parked_count(), "requests that wait"),
            (
                usize::from(!self.durability.is_settled()),
                "sync that is due or goes on",
            ),
            (self.reading.len(), "clients whose reads go on"),
            (
                self.left_behind.len(),
                "clients with locks of a process that is gone",
            ),
            (
                usize::from(self.recovery.window.is_open()),
                "recovery that goes on",
            ),
        ];
        let left = counts.into_iter().filter(|(count, _)| *count > 0);
        left.map(|(count, what)| format!("{count} {what}"))
            .collect()
    }
}
