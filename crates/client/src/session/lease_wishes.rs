//! Write leases that this mount asks for: that of a directory once at a time, and not again soon after a
//! refusal. docs/locks.md, section 11.

use std::collections::HashMap;
use std::time::Duration;

use base::{Fid, Tick};

use crate::executor::{Oneshot, WaitList};

/// So long a directory is not asked for after a refusal.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// So soon after the last directory the next one belongs to the same walk.
const STRIDE: Duration = Duration::from_secs(2);
/// Leases asked for ahead at once, at most.
const AHEAD_MAX: usize = 256;
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

/// A process that changes one directory of a tree after the other.
struct Walk {
    /// The directories above the last one, the nearest first.
    above: Vec<Fid>,
    since: Tick,
    /// Directories that it came to.
    count: u32,
}

/// The directories that are asked for, and those that were refused.
#[derive(Default)]
pub(crate) struct LeaseWishes {
    asked: HashMap<Fid, WaitList>,
    refused: HashMap<Fid, Tick>,
    walk: Option<Walk>,
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

    /// A directory is asked for, which is below these, the nearest first. Those of them below which more are
    /// to be asked for, and how many: twice as many each time, as long as a walk goes on.
    pub fn walks(&mut self, above: Vec<Fid>, now: Tick) -> Option<(Vec<Fid>, usize)> {
        let walk = self
            .walk
            .take()
            .filter(|walk| now.since(walk.since) < STRIDE);
        let before = walk.as_ref().map_or(&[][..], |walk| &walk.above);
        // What is below the root need have nothing in common.
        let is_common = |fid: &&Fid| before.contains(fid) && **fid != Fid::ROOT;
        let shared: Vec<Fid> = above.iter().filter(is_common).copied().collect();
        let count = walk
            .filter(|_| !shared.is_empty())
            .map_or(0, |walk| walk.count + 1);
        let since = now;
        self.walk = Some(Walk {
            above,
            since,
            count,
        });
        let ahead = AHEAD_MAX.min(1 << count.saturating_sub(1).min(16));
        (!shared.is_empty()).then_some((shared, ahead))
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

    #[test]
    fn a_walk_asks_for_twice_as_many_each_time() {
        let mut wishes = LeaseWishes::default();
        let mut walks = |above: &[u64], at| {
            let above = above.iter().map(|fid| Fid(*fid)).collect();
            wishes.walks(above, Tick(0).after(Duration::from_secs(at)))
        };
        let below = |tops: &[u64], count| {
            let tops: Vec<Fid> = tops.iter().map(|fid| Fid(*fid)).collect();
            Some((tops, count))
        };
        assert_eq!(walks(&[7, 6], 1), None);
        assert_eq!(walks(&[7, 6], 1), below(&[7, 6], 1));
        assert_eq!(walks(&[8, 7, 6], 2), below(&[7, 6], 2));
        assert_eq!(walks(&[9, 6], 3), below(&[6], 4));
        assert_eq!(walks(&[5], 3), None);
        assert_eq!(walks(&[5, Fid::ROOT.0], 3), below(&[5], 1));
        assert_eq!(walks(&[5], 6), None);
        for _ in 0..10 {
            walks(&[5], 6);
        }
        assert_eq!(walks(&[5], 6), below(&[5], AHEAD_MAX));
    }
}
