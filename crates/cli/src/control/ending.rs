//! How a mount ended, for those who wait for it.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Of a mount that is ended before its servers have taken everything.
pub const FORCED: &str = "it was forced to end: what its servers had not taken yet is lost";
/// How long the process that is told of the end has to hear it.
const FAREWELL: Duration = Duration::from_millis(300);
/// How often it is looked whether somebody still waits.
const LOOK: Duration = Duration::from_millis(200);

/// Known once the mount has ended.
#[derive(Default)]
pub struct Ending {
    outcome: Mutex<Option<Result<(), String>>>,
    is_known: Condvar,
}

impl Ending {
    /// So it ended.
    pub fn note(&self, outcome: Result<(), String>) {
        let mut known = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        known.get_or_insert(outcome);
        self.is_known.notify_all();
    }

    /// So it ended, of a process that ends now: the process that waits has a moment to hear it.
    pub fn tell(&self, outcome: Result<(), String>) {
        self.note(outcome);
        std::thread::sleep(FAREWELL);
    }

    /// How it ended, if it has.
    pub fn outcome(&self) -> Option<Result<(), String>> {
        let known = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        known.clone()
    }

    /// Waits for that as long as `is_wanted` says so.
    pub fn wait(&self, is_wanted: &dyn Fn() -> bool) -> Option<Result<(), String>> {
        let mut known = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        while known.is_none() && is_wanted() {
            let waited = self.is_known.wait_timeout(known, LOOK);
            known = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        known.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_stays_and_nobody_waits_in_vain() {
        let ending = Ending::default();
        assert_eq!(ending.wait(&|| false), None);
        ending.note(Err("some".to_owned()));
        ending.note(Ok(()));
        assert_eq!(ending.wait(&|| true), Some(Err("some".to_owned())));
        assert_eq!(ending.outcome(), Some(Err("some".to_owned())));
    }
}
