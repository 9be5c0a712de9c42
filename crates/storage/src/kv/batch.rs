//! What a caller hands to the store: tables, key ranges, batches.

use std::sync::Arc;

use super::key::Key;

/// A table, by the number its owner gave it when the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u8);

/// A batch's place in the order of commits since the store was opened; zero is before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ticket(pub u64);

/// Keys from `start` on, up to and without `end` where there is one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyRange {
    /// The first key inside.
    pub start: Vec<u8>,
    /// The first key beyond, if there is one.
    pub end: Option<Vec<u8>>,
}

impl KeyRange {
    /// Every key.
    pub fn all() -> KeyRange {
        KeyRange::default()
    }

    /// `[start, end)`. Holds nothing where `end <= start`.
    pub fn new(start: impl Into<Vec<u8>>, end: impl Into<Vec<u8>>) -> KeyRange {
        KeyRange {
            start: start.into(),
            end: Some(end.into()),
        }
    }

    /// `start` and everything after it.
    pub fn from(start: impl Into<Vec<u8>>) -> KeyRange {
        KeyRange {
            start: start.into(),
            end: None,
        }
    }

    /// Every key that begins with `prefix`.
    pub fn prefix(prefix: &[u8]) -> KeyRange {
        // The next key that does not: raise the last byte that can be raised, drop what follows.
        let last = prefix.iter().rposition(|&byte| byte != u8::MAX);
        let end = last.map(|last| {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            end
        });
        KeyRange {
            start: prefix.to_vec(),
            end,
        }
    }

    /// The part after `key`, without it.
    pub fn after(mut self, key: &[u8]) -> KeyRange {
        let next = [key, &[0]].concat();
        self.start = self.start.max(next);
        self
    }

    /// `key` is inside.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.start.as_slice() && self.end.as_deref().is_none_or(|end| key < end)
    }

    /// No key is inside.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }
}

/// One change.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Put(Key, Arc<[u8]>),
    Delete(Key),
    DeleteRange(KeyRange),
}

/// A row that a batch put, or deleted, for a log elsewhere.
#[derive(Debug, Clone)]
pub struct Logged {
    /// The table.
    pub table: TableId,
    /// The row's key.
    pub key: Vec<u8>,
    /// Its value; `None`: it was deleted.
    pub value: Option<Arc<[u8]>>,
}

impl Batch {
    /// Its rows; ranges are left out.
    pub(crate) fn rows(&self) -> Vec<Logged> {
        let ops = self.ops.iter();
        ops.filter_map(|(table, op)| Logged::of(*table, op))
            .collect()
    }
}

impl Logged {
    /// `None`: a range of rows.
    pub(super) fn of(table: TableId, op: &Op) -> Option<Logged> {
        let (key, value) = match op {
            Op::Put(key, value) => (key, Some(value.clone())),
            Op::Delete(key) => (key, None),
            Op::DeleteRange(_) => return None,
        };
        Some(Logged {
            table,
            key: key.to_vec(),
            value,
        })
    }
}

/// Changes that happen together or not at all, in the order they were added.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    pub(super) ops: Vec<(TableId, Op)>,
}

impl Batch {
    /// No change yet.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Gives `key` the value `value`.
    pub fn put(
        &mut self,
        table: TableId,
        key: impl AsRef<[u8]>,
        value: impl Into<Arc<[u8]>>,
    ) -> &mut Batch {
        let key = Key::new(key.as_ref());
        self.ops.push((table, Op::Put(key, value.into())));
        self
    }

    /// Takes `key` away, if it is there.
    pub fn delete(&mut self, table: TableId, key: impl AsRef<[u8]>) -> &mut Batch {
        self.ops.push((table, Op::Delete(Key::new(key.as_ref()))));
        self
    }

    /// Takes every key in `range` away.
    pub fn delete_range(&mut self, table: TableId, range: KeyRange) -> &mut Batch {
        if !range.is_empty() {
            self.ops.push((table, Op::DeleteRange(range)));
        }
        self
    }

    /// Adds the changes of `later` after these.
    pub fn append(&mut self, mut later: Batch) -> &mut Batch {
        self.ops.append(&mut later.ops);
        self
    }

    /// How many changes it holds.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// It changes nothing.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_the_next_begins() {
        let range = KeyRange::prefix(b"a\xff");
        assert!(range.contains(b"a\xff") && range.contains(b"a\xff\xff\xff"));
        assert!(!range.contains(b"a\xfe\xff") && !range.contains(b"b"));
        assert_eq!(KeyRange::prefix(b"\xff\xff").end, None);
        assert_eq!(KeyRange::prefix(b""), KeyRange::all());
    }

    #[test]
    fn after_excludes_the_key_and_keeps_the_start() {
        let range = KeyRange::new("c", "x");
        assert!(!range.clone().after(b"d").contains(b"d"));
        assert!(range.clone().after(b"d").contains(b"d\0"));
        assert_eq!(range.clone().after(b"a"), range);
        assert!(KeyRange::new("x", "c").is_empty() && KeyRange::new("x", "x").is_empty());
    }
}
