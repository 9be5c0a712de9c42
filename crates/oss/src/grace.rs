//! The first minute after a restart, in which clients send again what was not durable.
//!
//! They do so without a lock, since those of the old life are void, and that is refused where
//! somebody else has a lock by then (docs/recovery.md). Who needs a lock gets it all the same; who
//! only guesses that it will be needed does not.

use std::time::Duration;

use base::Tick;

/// How long it lasts: as at the MDT.
const GRACE: Duration = Duration::from_secs(60);

/// Whether it is over.
#[derive(Debug)]
pub(crate) enum Grace {
    /// Nobody has looked at the clock yet.
    Before,
    /// It ends then.
    Until(Tick),
    /// It is over, or there was nothing to send again.
    Over,
}

impl Grace {
    /// At the start of a life; `first`: there was none before.
    pub fn at_start(first: bool) -> Grace {
        if first { Grace::Over } else { Grace::Before }
    }

    pub fn tick(&mut self, now: Tick) {
        match *self {
            Grace::Before => *self = Grace::Until(now.after(GRACE)),
            Grace::Until(end) if end <= now => *self = Grace::Over,
            Grace::Until(_) | Grace::Over => {}
        }
    }

    pub fn is_over(&self) -> bool {
        matches!(self, Grace::Over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_a_minute_from_the_first_tick_but_not_in_the_first_life() {
        assert!(Grace::at_start(true).is_over());
        let mut grace = Grace::at_start(false);
        let start = Tick(7);
        grace.tick(start);
        grace.tick(start.after(GRACE / 2));
        assert!(!grace.is_over());
        grace.tick(start.after(GRACE));
        assert!(grace.is_over());
    }
}
