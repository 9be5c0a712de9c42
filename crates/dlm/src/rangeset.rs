//! A union of byte ranges, for asking whether anything in it overlaps another range.

use std::collections::BTreeMap;

use base::ByteRange;

/// Disjoint ranges by start.
#[derive(Debug, Default)]
pub(crate) struct RangeSet {
    ends: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Adds every byte of `range`.
    pub fn insert(&mut self, range: ByteRange) {
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&from, &to)) = self
            .ends
            .range(..=end)
            .next_back()
            .filter(|(_, to)| **to >= start)
        {
            self.ends.remove(&from);
            start = start.min(from);
            end = end.max(to);
        }
        self.ends.insert(start, end);
    }

    /// Some byte of `range` is in the set.
    pub fn overlaps(&self, range: ByteRange) -> bool {
        let last = self.ends.range(..range.end).next_back();
        last.is_some_and(|(_, to)| *to > range.start)
    }
}

#[cfg(test)]
mod tests {
    use base::{Rng, SeededRng};

    use super::*;

    #[test]
    fn agrees_with_a_map_of_bytes() {
        let mut rng = SeededRng::new(3);
        for _ in 0..50 {
            let (mut set, mut bytes) = (RangeSet::default(), [false; 200]);
            for _ in 0..20 {
                let start = rng.below(190);
                let range = ByteRange::new(start, start + 1 + rng.below(10));
                let naive = bytes[range.start as usize..range.end as usize].contains(&true);
                assert_eq!(set.overlaps(range), naive);
                if rng.below(2) == 0 {
                    set.insert(range);
                    bytes[range.start as usize..range.end as usize].fill(true);
                }
            }
        }
    }
}
