//! Where objects end, as far as that is sealed (docs/disk.md, `ost_seals`). A lost end, and bytes that
//! another program has added, are not taken for the object's.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use base::ByteRange;

use crate::error::{Result, StorageError};
use crate::kv::{KeyRange, Kv, TableId};
use crate::objects::seal::{END, Seal, key, place_of_key};
use crate::objects::store::ObjectId;

/// Objects whose ends are remembered.
const REMEMBERED_MAX: usize = 65_536;

/// What is remembered of the ends of objects.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// Where they are sealed, or that they are not.
    sealed: HashMap<ObjectId, Option<u64>>,
    /// Objects of which no sealed byte is missing at their end.
    whole: HashSet<ObjectId>,
}

impl Ends {
    /// The end is sealed there; none: it is not, and may change.
    pub fn note(&mut self, id: ObjectId, end: Option<u64>) {
        if self.sealed.len() >= REMEMBERED_MAX {
            self.sealed.clear();
        }
        self.sealed.insert(id, end);
    }

    /// Where the end is sealed, or that it is not; none: nobody has looked.
    pub fn sealed(&self, id: ObjectId) -> Option<Option<u64>> {
        self.sealed.get(&id).copied()
    }

    /// No sealed byte is missing at the object's end.
    pub fn is_whole(&self, id: ObjectId) -> bool {
        self.whole.contains(&id)
    }

    /// Remembers that.
    pub fn note_whole(&mut self, id: ObjectId) {
        if self.whole.len() >= REMEMBERED_MAX {
            self.whole.clear();
        }
        self.whole.insert(id);
    }

    /// Nothing is known of the object.
    pub fn forget(&mut self, id: ObjectId) {
        self.sealed.remove(&id);
        self.whole.remove(&id);
    }
}

/// Where the records say that an object ends; none: nothing is said. Nobody serves the target.
pub fn recorded_end(kv: &Kv, table: TableId, id: ObjectId) -> Result<Option<u64>> {
    let row = kv.get_with(table, &key(id, END), |row| Seal::decode(END, row))?;
    let seal = row.and_then(|seal| seal.ok());
    Ok(seal.filter(|seal| !seal.open).map(|seal| seal.len))
}

/// Where the records say that objects end, as far as they say. Nobody serves the target.
pub fn sealed_ends(kv: &Kv, table: TableId) -> Result<Vec<(ObjectId, u64)>> {
    let (mut ends, mut damage) = (Vec::new(), None);
    kv.scan(table, &KeyRange::all(), |key, row| {
        let end = place_of_key(key).and_then(|(id, at)| match at {
            END => Seal::decode(at, row).map(|seal| Some((id, seal))),
            _ => Ok(None),
        });
        match end {
            Ok(found) => {
                let sealed = found.filter(|(_, seal)| !seal.open);
                ends.extend(sealed.map(|(id, seal)| (id, seal.len)));
                return ControlFlow::Continue(());
            }
            Err(wrong) => damage = Some(wrong),
        }
        ControlFlow::Break(())
    })?;
    match damage {
        None => Ok(ends),
        Some(wrong) => Err(StorageError::damaged(kv.name(), wrong.record, wrong.reason)),
    }
}

/// An object that does not end where it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WrongEnd {
    /// Where it ended.
    pub end: u64,
    /// The bytes that are missing, up to there, or that are too many, from there on.
    pub bytes: ByteRange,
}

impl WrongEnd {
    /// Of an object that ended at `end` and has `size` bytes.
    pub fn of(end: u64, size: u64) -> Option<WrongEnd> {
        let bytes = ByteRange::new(end.min(size), end.max(size));
        (end != size).then_some(WrongEnd { end, bytes })
    }
}
