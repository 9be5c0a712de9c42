//! A map from byte ranges to a small value: which bytes are cached, dirty, or on their way.

use std::collections::BTreeMap;

use base::ByteRange;

/// Disjoint byte ranges, each with a value. Neighbours of equal value are one range, so a file
/// written from front to back is a single entry.
#[derive(Debug, Clone)]
pub struct Extents<V> {
    /// Start of a range -> its end and value. Ranges are never empty and never overlap.
    ranges: BTreeMap<u64, (u64, V)>,
    /// Bytes in all ranges.
    total: u64,
}

impl<V> Default for Extents<V> {
    fn default() -> Extents<V> {
        Extents {
            ranges: BTreeMap::new(),
            total: 0,
        }
    }
}

impl<V: Copy + PartialEq> Extents<V> {
    /// Bytes that have a value.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Gives every byte of `range` the value, whatever it had before.
    pub fn insert(&mut self, range: ByteRange, value: V) {
        if range.is_empty() {
            return;
        }
        self.remove(range);
        self.total += range.len();
        let ByteRange { mut start, mut end } = range;
        if let Some((&before, &(reach, v))) = self.ranges.range(..start).next_back()
            && (reach, v) == (start, value)
        {
            start = before;
        }
        if let Some(&(after, _)) = self.ranges.get(&end).filter(|(_, v)| *v == value) {
            self.ranges.remove(&end);
            end = after;
        }
        self.ranges.insert(start, (end, value));
    }

    /// Gives the value to those bytes of `range` that have none.
    pub fn insert_where_absent(&mut self, range: ByteRange, value: V) {
        for gap in self.gaps(range) {
            self.insert(gap, value);
        }
    }

    /// Takes the value from every byte of `range`.
    pub fn remove(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        // The range that reaches in from the left keeps its left part, and its right one if it
        // reaches out again.
        if let Some((&start, &(end, value))) = self.ranges.range(..range.start).next_back()
            && end > range.start
        {
            self.ranges.insert(start, (range.start, value));
            self.total -= end.min(range.end) - range.start;
            if end > range.end {
                self.ranges.insert(range.end, (end, value));
            }
        }
        while let Some((&start, &(end, value))) = self.ranges.range(range.start..range.end).next() {
            self.ranges.remove(&start);
            self.total -= end.min(range.end) - start;
            if end > range.end {
                self.ranges.insert(range.end, (end, value));
            }
        }
    }

    /// The ranges inside `range`, cut to it, in order.
    pub fn within(&self, range: ByteRange) -> impl Iterator<Item = (ByteRange, V)> + '_ {
        let first = self
            .ranges
            .range(..range.start)
            .next_back()
            .map_or(range.start, |(s, _)| *s);
        self.ranges
            .range(first..range.end.max(first))
            .filter_map(move |(&start, &(end, value))| {
                Some((ByteRange::new(start, end).intersection(range)?, value))
            })
    }

    /// All ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = (ByteRange, V)> + '_ {
        self.ranges
            .iter()
            .map(|(&start, &(end, value))| (ByteRange::new(start, end), value))
    }

    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// From the start of the first range to the end of the last.
    pub fn span(&self) -> ByteRange {
        let first = self.ranges.keys().next().copied().unwrap_or(0);
        ByteRange::new(first, self.last().map_or(first, |last| last.end))
    }

    /// The last range.
    pub fn last(&self) -> Option<ByteRange> {
        self.ranges
            .last_key_value()
            .map(|(&start, &(end, _))| ByteRange::new(start, end))
    }

    /// The ranges of `range` whose bytes have no value, in order.
    pub fn gaps(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        for (held, _) in self.within(range) {
            if at < held.start {
                gaps.push(ByteRange::new(at, held.start));
            }
            at = held.end;
        }
        if at < range.end {
            gaps.push(ByteRange::new(at, range.end));
        }
        gaps
    }

    /// Some byte of `range` has a value.
    pub fn touches(&self, range: ByteRange) -> bool {
        self.within(range).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Op {
        Insert(ByteRange, u8),
        Absent(ByteRange, u8),
        Remove(ByteRange),
    }

    fn range() -> impl Strategy<Value = ByteRange> {
        (0u64..60, 0u64..20).prop_map(|(start, len)| ByteRange::new(start, start + len))
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (range(), 0u8..3).prop_map(|(r, v)| Op::Insert(r, v)),
            (range(), 0u8..3).prop_map(|(r, v)| Op::Absent(r, v)),
            range().prop_map(Op::Remove),
        ]
    }

    fn apply(reference: &mut [Option<u8>; 80], op: &Op) {
        let (range, value, keep) = match op {
            Op::Insert(range, value) => (range, Some(*value), false),
            Op::Absent(range, value) => (range, Some(*value), true),
            Op::Remove(range) => (range, None, false),
        };
        for byte in &mut reference[range.start as usize..range.end as usize] {
            if !(keep && byte.is_some()) {
                *byte = value;
            }
        }
    }

    fn check(extents: &Extents<u8>, reference: &[Option<u8>; 80]) {
        let mut seen = [None; 80];
        let mut last: Option<(ByteRange, u8)> = None;
        for (range, value) in extents.iter() {
            assert!(!range.is_empty());
            if let Some((before, v)) = last {
                assert!(before.end < range.start || (before.end == range.start && v != value));
            }
            last = Some((range, value));
            seen[range.start as usize..range.end as usize].fill(Some(value));
        }
        assert_eq!(&seen, reference);
        assert_eq!(extents.total(), reference.iter().flatten().count() as u64);
    }

    #[test]
    fn a_file_written_front_to_back_is_one_range() {
        let mut extents = Extents::default();
        for block in 0..1000 {
            extents.insert(ByteRange::new(block * 10, block * 10 + 10), ());
        }
        assert_eq!(extents.iter().count(), 1);
        assert!(extents.touches(ByteRange::ALL) && !extents.touches(ByteRange::from(10_000)));
    }

    proptest! {
        #[test]
        fn agrees_with_an_array(ops in proptest::collection::vec(op(), 1..60), look in range()) {
            let mut extents = Extents::default();
            let mut reference = [None; 80];
            for op in &ops {
                apply(&mut reference, op);
                match *op {
                    Op::Insert(range, value) => extents.insert(range, value),
                    Op::Absent(range, value) => extents.insert_where_absent(range, value),
                    Op::Remove(range) => extents.remove(range),
                }
                check(&extents, &reference);
            }
            let mut gaps = [true; 80];
            for (held, _) in extents.within(look) {
                gaps[held.start as usize..held.end as usize].fill(false);
            }
            let listed: Vec<u64> = extents.gaps(look).iter().flat_map(|g| g.start..g.end).collect();
            let expected: Vec<u64> =
                (look.start..look.end).filter(|at| gaps[*at as usize]).collect();
            prop_assert_eq!(&listed, &expected);
            prop_assert!(listed.iter().all(|at| reference[*at as usize].is_none()));
        }
    }
}
