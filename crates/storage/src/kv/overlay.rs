//! Committed batches that are not durable yet, laid over the engine. A layer is what some run of batches
//! changes in all: the last word on each key, and ranges in which everything below the layer is gone. Two
//! layers exist at most: the one being filled and the one being flushed.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::batch::{KeyRange, Op};
use super::key::Key;

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
    pub(super) points: BTreeMap<Key, Change>,
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
        let doomed: Vec<Key> = doomed.map(|(key, _)| key.clone()).collect();
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
        let before = before.filter(|(_, end)| end.as_deref().is_none_or(|end| end > start));
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
    pub(super) points: Vec<(Key, Change)>,
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
        let mut points = Vec::new();
        let mut cleared = Cleared::default();
        let mut stop: Option<Vec<u8>> = None;
        let mut stop_before = |key: &[u8]| {
            if stop.as_deref().is_none_or(|stop| key < stop) {
                stop = Some(key.to_vec());
            }
        };
        for layer in layers {
            let mut hidden = layer.cleared.ranges_into(range);
            for hidden in hidden.by_ref().take(limit) {
                points.retain(|(key, _): &(Key, Change)| !hidden.contains(key));
                cleared.insert(hidden);
            }
            if let Some(beyond) = hidden.next() {
                stop_before(&beyond.start);
            }
            let mut upper = layer.points.range::<[u8], _>(bounds(range));
            points = laid_over(points, upper.by_ref().take(limit));
            if let Some((beyond, _)) = upper.next() {
                stop_before(beyond);
            }
        }
        if let Some(stop) = &stop {
            points.truncate(points.partition_point(|(key, _)| **key < **stop));
        }
        View {
            points,
            cleared,
            stop,
        }
    }
}

/// Both, ascending; of a key in both what `upper` says.
fn laid_over<'a>(
    lower: Vec<(Key, Change)>,
    upper: impl Iterator<Item = (&'a Key, &'a Change)>,
) -> Vec<(Key, Change)> {
    let mut upper = upper.map(|(key, change)| (key.clone(), change.clone()));
    if lower.is_empty() {
        return upper.collect();
    }
    let Some(mut above) = upper.next() else {
        return lower;
    };
    let mut points = Vec::with_capacity(lower.len() + upper.size_hint().0 + 1);
    let mut lower = lower.into_iter().peekable();
    loop {
        while let Some(below) = lower.next_if(|(key, _)| *key < above.0) {
            points.push(below);
        }
        lower.next_if(|(key, _)| *key == above.0);
        points.push(above);
        match upper.next() {
            Some(next) => above = next,
            None => break,
        }
    }
    points.extend(lower);
    points
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use base::{Rng, SeededRng};

    use super::*;

    type Rows = BTreeMap<Vec<u8>, u8>;

    fn key(rng: &mut SeededRng) -> Vec<u8> {
        let len = rng.below(3) as usize + 1;
        (0..len).map(|_| b'a' + rng.below(3) as u8).collect()
    }

    fn range(rng: &mut SeededRng) -> KeyRange {
        let (a, b) = (key(rng), key(rng));
        match rng.below(5) {
            0 => KeyRange::all(),
            1 => KeyRange::from(a),
            2 => KeyRange::prefix(&a),
            _ => KeyRange::new(a.clone().min(b.clone()), a.max(b)),
        }
    }

    /// A layer, and its effect on `rows`.
    fn layer(rng: &mut SeededRng, rows: &mut Rows) -> Layer {
        let mut layer = Layer::new(1);
        for n in 0..rng.below(20) {
            let key = key(rng);
            match rng.below(6) {
                0 => {
                    let range = range(rng);
                    rows.retain(|key, _| !range.contains(key));
                    layer.apply(0, Op::DeleteRange(range));
                }
                1 => {
                    rows.remove(&key);
                    layer.apply(0, Op::Delete(Key::new(&key)));
                }
                _ => {
                    rows.insert(key.clone(), n as u8);
                    layer.apply(0, Op::Put(Key::new(&key), [n as u8].as_slice().into()));
                }
            }
        }
        layer
    }

    /// What a scan in runs of `limit` items shows of `below` under `layers`.
    fn shown(layers: &[Layer], below: &Rows, range: &KeyRange, limit: usize) -> Vec<(Vec<u8>, u8)> {
        let mut shown = Vec::new();
        let mut rest = range.clone();
        loop {
            let view = View::take(layers.iter().map(|l| &l.tables[0]), &rest, limit);
            let mut part = rest.clone();
            part.end = view.stop.clone().or(part.end);
            let mut rows: BTreeMap<Vec<u8>, Option<u8>> = below
                .iter()
                .filter(|(key, _)| part.contains(key) && !view.cleared.contains(key))
                .map(|(key, value)| (key.clone(), Some(*value)))
                .collect();
            let points = view.points.iter();
            rows.extend(points.map(|(key, c)| (key.to_vec(), c.as_ref().map(|value| value[0]))));
            shown.extend(rows.into_iter().filter_map(|(key, v)| Some((key, v?))));
            match view.stop {
                Some(stop) => rest.start = stop,
                None => return shown,
            }
        }
    }

    #[test]
    fn views_in_runs_of_any_size_show_what_all_layers_make_of_the_rows() {
        for seed in 0..4_000 {
            let mut rng = SeededRng::new(seed);
            let mut rows = Rows::new();
            layer(&mut rng, &mut rows);
            let below = rows.clone();
            let layers = [layer(&mut rng, &mut rows), layer(&mut rng, &mut rows)];
            let range = range(&mut rng);
            let expected: Vec<_> = rows
                .into_iter()
                .filter(|(k, _)| range.contains(k))
                .collect();
            for limit in [1, 2, 3, 100] {
                let shown = shown(&layers, &below, &range, limit);
                assert_eq!(shown, expected, "seed {seed}, limit {limit}");
            }
        }
    }

    #[test]
    fn cleared_ranges_join_what_they_touch() {
        let mut cleared = Cleared::default();
        for (start, end) in [("b", "c"), ("e", "f"), ("c", "d"), ("a", "a5")] {
            cleared.insert(KeyRange::new(start, end));
        }
        let ranges: Vec<_> = cleared.ranges().collect();
        let expected = [("a", "a5"), ("b", "d"), ("e", "f")];
        assert_eq!(
            ranges,
            expected.map(|(start, end)| KeyRange::new(start, end))
        );
        cleared.insert(KeyRange::from("c"));
        assert_eq!(cleared.ranges().last(), Some(KeyRange::from("b")));
        assert!(cleared.contains(b"zz") && !cleared.contains(b"a5"));
    }
}
