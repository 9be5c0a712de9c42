//! Write leases that this mount asks for: that of a directory once at a time, and not again soon after a
//! refusal. docs/locks.md, section 11.

use std::collections::HashMap;
use std::time::Duration;

use base::{Fid, Tick};

use crate::executor::{Oneshot, WaitList};

/// So long a directory is not asked for after a refusal.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Refusals remembered. Beyond, all are forgotten.
const REFUSED_MAX: usize = 4096;

/// What a call does that wants the lease of a directory.
pub(crate) enum Wish {
    /// It asks, and then calls [`LeaseWishes::end`].
    Ask,
    /// Another call asks: look again after this.
    Wait(Oneshot<()>),
    /// The lease was refused lately.
    No,
}

/// The directories that are asked for, and those that were refused.
#[derive(Default)]
pub(crate) struct LeaseWishes {
    asked: HashMap<Fid, WaitList>,
    refused: HashMap<Fid, Tick>,
}

impl LeaseWishes {
    /// A call wants the lease of `dir`.
    pub fn begin(&mut self, dir: Fid, now: Tick) -> Wish {
        if let Some(waiting) = self.asked.get_mut(&dir) {
            return Wish::Wait(waiting.wait());
        }
        let refused = self.refused.get(&dir);
        if refused.is_some_and(|then| now.since(*then) < AGAIN_AFTER) {
            return Wish::No;
        }
        self.asked.insert(dir, WaitList::default());
        Wish::Ask
    }

    /// The answer is there.
    pub fn end(&mut self, dir: Fid, now: Tick, is_had: bool) {
        if let Some(mut waiting) = self.asked.remove(&dir) {
            waiting.wake_all();
        }
        if is_had {
            self.refused.remove(&dir);
            return;
        }
        if self.refused.len() >= REFUSED_MAX {
            self.refused.clear();
        }
        self.refused.insert(dir, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Fid = Fid(7);

    #[test]
    fn a_directory_is_asked_for_once_at_a_time_and_not_soon_after_a_refusal() {
        let (mut wishes, now) = (LeaseWishes::default(), Tick(0));
        assert!(matches!(wishes.begin(DIR, now), Wish::Ask));
        assert!(matches!(wishes.begin(DIR, now), Wish::Wait(_)));
        wishes.end(DIR, now, false);
        assert!(matches!(wishes.begin(DIR, now), Wish::No));
        assert!(matches!(wishes.begin(Fid(8), now), Wish::Ask));
        let later = now.after(AGAIN_AFTER);
        assert!(matches!(wishes.begin(DIR, later), Wish::Ask));
        wishes.end(DIR, later, true);
        assert!(matches!(wishes.begin(DIR, later), Wish::Ask));
    }
}
