//! Which parts of a directory's list are known without a gap.

/// Where a list ends.
pub(crate) const END: u64 = u64::MAX;
/// Parts remembered: one for each reader, about. Beyond: the first is forgotten.
const PARTS_MAX: usize = 64;

/// Parts in order, with a gap between each two.
#[derive(Debug, Default)]
pub(crate) struct Known {
    parts: Vec<Part>,
}

/// No entry is missing whose cookie is greater than `after` and at most `until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    after: u64,
    until: u64,
}

impl Known {
    /// Every entry is known.
    pub fn is_complete(&self) -> bool {
        let whole = Part {
            after: 0,
            until: END,
        };
        self.parts == [whole]
    }

    /// How far the entries after `cookie` are known; that itself where they are not.
    pub fn until(&self, cookie: u64) -> u64 {
        let part = self.parts.iter().rfind(|part| part.after <= cookie);
        part.map_or(cookie, |part| part.until.max(cookie))
    }

    /// The part after `cookie` ends at a gap, behind which more is known.
    pub fn is_torn_after(&self, cookie: u64) -> bool {
        let until = self.until(cookie);
        self.parts.iter().any(|part| part.after > until)
    }

    /// No entry is missing between the two, the second included.
    pub fn learn(&mut self, after: u64, until: u64) {
        if until <= after {
            return;
        }
        let mut joined = Part { after, until };
        let (touching, mut apart): (Vec<Part>, Vec<Part>) = self
            .parts
            .iter()
            .partition(|part| part.after <= until && after <= part.until);
        for part in touching {
            joined.after = joined.after.min(part.after);
            joined.until = joined.until.max(part.until);
        }
        let at = apart.partition_point(|part| part.after < joined.after);
        apart.insert(at, joined);
        if apart.len() > PARTS_MAX {
            apart.remove(0);
        }
        self.parts = apart;
    }

    /// Entries between the two may be missing.
    pub fn forget(&mut self, after: u64, until: u64) {
        let rest = |part: &Part| {
            let before = Part {
                until: part.until.min(after),
                ..*part
            };
            let behind = Part {
                after: part.after.max(until),
                ..*part
            };
            [before, behind]
        };
        let rest = self.parts.iter().flat_map(rest);
        self.parts = rest.filter(|part| part.after < part.until).collect();
    }

    /// Nothing is known.
    pub fn forget_all(&mut self) {
        self.parts.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(parts: &[(u64, u64)]) -> Known {
        let mut known = Known::default();
        parts
            .iter()
            .for_each(|(after, until)| known.learn(*after, *until));
        known
    }

    #[test]
    fn parts_that_touch_become_one() {
        let mut known = known(&[(0, 10), (30, 40), (10, 20)]);
        assert_eq!(
            [0, 5, 20, 25, 30, 40].map(|c| known.until(c)),
            [20, 20, 20, 25, 40, 40]
        );
        known.learn(15, END);
        assert!(known.is_complete() && known.parts.len() == 1);
    }

    #[test]
    fn what_is_forgotten_leaves_what_is_before_and_behind() {
        let mut known = known(&[(0, END)]);
        known.forget(10, 20);
        assert!(!known.is_complete());
        assert_eq!(
            [0, 10, 15, 20, 99].map(|c| known.until(c)),
            [10, 10, 15, END, END]
        );
        assert!(known.is_torn_after(0) && !known.is_torn_after(20));
        known.forget(0, 50);
        assert_eq!((known.until(0), known.until(50)), (0, END));
        known.learn(0, 50);
        assert!(known.is_complete());
    }

    #[test]
    fn an_empty_part_is_none_and_there_are_not_too_many() {
        let mut known = known(&[(7, 7)]);
        assert!(known.parts.is_empty());
        (0..2 * PARTS_MAX as u64).for_each(|n| known.learn(10 * n, 10 * n + 5));
        assert_eq!(known.parts.len(), PARTS_MAX);
        assert_eq!(known.until(1), 1);
    }
}
