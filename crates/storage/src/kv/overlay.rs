//! Committed batches that are not durable yet, laid over the engine.
//!
//! A layer is what some run of batches changes in all: the last word on each key, and ranges in
//! which everything below the layer is gone. Two layers exist at most: the one being filled and
//! the one being flushed.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::batch::{KeyRange, Op};

/// What a map entry costs beside its bytes, roughly.
const ENTRY_OVERHEAD: usize = 64;

/// A value, or its absence where it was deleted.
pub(super) type Change = Option<Arc<[u8]>>;

/// What a run of batches changes.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) tables: Vec<TableLayer>,
    pub(super) bytes: usize,
}

/// What it changes in one table. Points win over cleared ranges.
#[derive(Debug, Default)]
pub(super) struct TableLayer {
    pub(super) points: BTreeMap<Box<[u8]>, Change>,
    pub(super) cleared: Cleared,
}

impl Layer {
    /// Changes nothing in `tables` tables.
    pub(super) fn new(tables: usize) -> Layer {
        Layer {
            tables: std::iter::repeat_with(TableLayer::default)
                .take(tables)
                .collect(),
            bytes: 0,
        }
    }

    /// Adds `op` on table number `table`.
    pub(super) fn apply(&mut self, table: usize, op: Op) {
        let layer = &mut self.tables[table];
        match op {
            Op::Put(key, value) => {
                self.bytes += key.len() + value.len() + ENTRY_OVERHEAD;
                layer.points.insert(key, Some(value));
            }
            Op::Delete(key) => {
                self.bytes += key.len() + ENTRY_OVERHEAD;
                layer.points.insert(key, None);
            }
            Op::DeleteRange(range) => {
                self.bytes += range.start.len() + ENTRY_OVERHEAD;
                layer.clear(range);
            }
        }
    }
}

impl TableLayer {
    fn clear(&mut self, range: KeyRange) {
        let doomed = self.points.range::<[u8], _>(bounds(&range));
        let doomed: Vec<Box<[u8]>> = doomed.map(|(key, _)| key.clone()).collect();
        for key in doomed {
            self.points.remove(&key);
        }
        self.cleared.insert(range);
    }

    /// What this layer says of `key`; `None` where it leaves the answer to the one below.
    pub(super) fn get(&self, key: &[u8]) -> Option<Change> {
        match self.points.get(key) {
            Some(change) => Some(change.clone()),
            None => self.cleared.contains(key).then_some(None),
        }
    }
}

pub(super) fn bounds(range: &KeyRange) -> (Bound<&[u8]>, Bound<&[u8]>) {
    let end = range
        .end
        .as_deref()
        .map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(range.start.as_slice()), end)
}

/// A set of keys made of disjoint ranges that do not touch: start to end, `None` for no end.
#[derive(Debug, Clone, Default)]
pub(super) struct Cleared(BTreeMap<Vec<u8>, Option<Vec<u8>>>);

/// Compares ends of ranges: no end is after every end.
fn compare_ends(a: &Option<Vec<u8>>, b: &Option<Vec<u8>>) -> Ordering {
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(a), Some(b)) => a.cmp(b),
    }
}

fn reaches(end: &Option<Vec<u8>>, key: &[u8]) -> bool {
    end.as_deref().is_none_or(|end| key <= end)
}

impl Cleared {
    /// Adds `range`, joining what it touches.
    pub(super) fn insert(&mut self, range: KeyRange) {
        let KeyRange { mut start, mut end } = range;
        let before = self.0.range(..=start.clone()).next_back();
        if let Some((first, last)) = before
            && reaches(last, &start)
        {
            start = first.clone();
        }
        loop {
            let next = self.0.range(start.clone()..).next();
            let Some((first, _)) = next.filter(|(first, _)| reaches(&end, first)) else {
                break;
            };
            let joined = self.0.remove(&first.clone()).unwrap_or_default();
            if compare_ends(&joined, &end) == Ordering::Greater {
                end = joined;
            }
        }
        self.0.insert(start, end);
    }

    /// `key` is in it.
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        let below = (Bound::Unbounded, Bound::Included(key));
        let before = self.0.range::<[u8], _>(below).next_back();
        before.is_some_and(|(_, end)| end.as_deref().is_none_or(|end| key < end))
    }

    /// Its ranges, ascending.
    pub(super) fn ranges(&self) -> impl Iterator<Item = KeyRange> + '_ {
        self.0.iter().map(|(start, end)| KeyRange {
            start: start.clone(),
            end: end.clone(),
        })
    }

    /// Its ranges that reach into `range`, ascending.
    fn ranges_into<'a>(&'a self, range: &'a KeyRange) -> impl Iterator<Item = KeyRange> + 'a {
        let start = range.start.as_slice();
        let below = (Bound::Unbounded, Bound::Excluded(start));
        let before = self.0.range::<[u8], _>(below).next_back();
        let rest = self.0.range::<[u8], _>(bounds(range));
        before.into_iter().chain(rest).map(|(start, end)| KeyRange {
            start: start.clone(),
            end: end.clone(),
        })
    }
}

/// A copy of what layers say about part of a table, taken at one moment.
#[derive(Debug)]
pub(super) struct View {
    /// Keys that have a last word, ascending.
    pub(super) points: Vec<(Box<[u8]>, Change)>,
    /// Where the engine's rows are hidden.
    pub(super) cleared: Cleared,
    /// The view ends before this key; `None` where it covers all that was asked for.
    pub(super) stop: Option<Vec<u8>>,
}

impl View {
    /// What `layers` (the lower first) say about `range`, at most about `limit` items of each.
    pub(super) fn take<'a>(
        layers: impl Iterator<Item = &'a TableLayer>,
        range: &KeyRange,
        limit: usize,
    ) -> View {
        let mut merged = TableLayer::default();
        let mut stop: Option<Vec<u8>> = None;
        let mut stop_before = |key: &[u8]| {
            if stop.as_deref().is_none_or(|stop| key < stop) {
                stop = Some(key.to_vec());
            }
        };
        for layer in layers {
            let mut hidden = layer.cleared.ranges_into(range);
            for hidden in hidden.by_ref().take(limit) {
                merged.clear(hidden);
            }
            if let Some(beyond) = hidden.next() {
                stop_before(&beyond.start);
            }
            let mut points = layer.points.range::<[u8], _>(bounds(range));
            for (key, change) in points.by_ref().take(limit) {
                merged.points.insert(key.clone(), change.clone());
            }
            if let Some((beyond, _)) = points.next() {
                stop_before(beyond);
            }
        }
        if let Some(stop) = &stop {
            merged.points.split_off(stop.as_slice());
        }
        View {
            points: merged.points.into_iter().collect(),
            cleared: merged.cleared,
            stop,
        }
    }
}
