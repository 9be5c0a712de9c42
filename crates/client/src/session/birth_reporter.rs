//! The reporting of births to the MDT: one task at a time does it.

use crate::executor::{Oneshot, WaitList};

/// Whether a task reports, and the tasks that wait for it.
#[derive(Default)]
pub(crate) struct BirthReporter {
    is_reporting: bool,
    waiting: WaitList,
}

impl BirthReporter {
    /// `None`: the caller reports, and then calls [`BirthReporter::end`]. Else it resolves when another task
    /// has reported some births.
    pub fn begin(&mut self) -> Option<Oneshot<()>> {
        match std::mem::replace(&mut self.is_reporting, true) {
            true => Some(self.waiting.wait()),
            false => None,
        }
    }

    /// A task reports.
    pub fn is_reporting(&self) -> bool {
        self.is_reporting
    }

    /// Some births were reported, or could not be.
    pub fn end(&mut self) {
        self.is_reporting = false;
        self.waiting.wake_all();
    }
}
