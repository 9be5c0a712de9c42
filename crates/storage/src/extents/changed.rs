//! Objects that differ from the rows in the tables: what they are now, and the commits that make it durable.
//! Pure.

use std::collections::BTreeMap;

use allocator::Extent;

use super::commit::{Commit, Row};
use super::rows::{ExtentTables, Head, encode_head, encode_segment, object_key, segment_key};
use super::segment::{Named, SEGMENT_BLOCKS, Segment};
use crate::objects::ObjectId;

/// Bytes of an object that is one row.
const WHOLE_BYTES_MAX: u64 = 64 << 10;
/// Its blocks.
const WHOLE_BLOCKS_MAX: u32 = 16;
/// Bytes that a row or an extent takes in a commit besides what is in it.
const ROW_BYTES: usize = 48;

/// A segment that changed.
#[derive(Debug, Default)]
pub struct Part {
    /// Its blocks now.
    pub segment: Segment,
    /// Its blocks that are free with the next commit.
    pub freed: Vec<Extent>,
    /// Blocks by the last commit.
    stored_blocks: u64,
    /// The tables have rows of it by the last commit.
    has_rows: bool,
    is_changed: bool,
}

/// An object that changed.
#[derive(Debug, Default)]
pub struct Object {
    /// One past its last byte; `None`: there is no such object.
    pub size: Option<u64>,
    /// Blocks that it has.
    pub blocks: u64,
    /// Segments that changed, and others that were looked at.
    parts: BTreeMap<u64, Part>,
    /// As the last commit has it.
    stored: Option<Head>,
    is_changed: bool,
}

impl Object {
    /// As its rows have it: the head, and segment 0 where it is in the head's row.
    pub fn of_rows(rows: Option<(Head, Option<Segment>)>) -> Object {
        let Some((head, whole)) = rows else {
            return Object::default();
        };
        let mut object = Object {
            size: Some(head.size),
            blocks: head.blocks,
            stored: Some(head),
            ..Object::default()
        };
        if let Some(segment) = whole {
            object.parts.insert(0, Part::of(segment, false));
        }
        object
    }

    /// A commit is due.
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// The tables have it all in one row.
    pub fn is_stored_whole(&self) -> bool {
        self.stored.is_some_and(|head| head.is_whole)
    }

    /// The tables may have rows of segments.
    pub fn has_segment_rows(&self) -> bool {
        self.stored.is_some_and(|head| !head.is_whole)
    }

    /// A segment, where it is known here.
    pub fn part(&self, number: u64) -> Option<&Segment> {
        self.parts.get(&number).map(|part| &part.segment)
    }

    /// Segments known here, from `first` on.
    pub fn numbers(&self, first: u64) -> impl Iterator<Item = u64> {
        self.parts.range(first..).map(|(number, _)| *number)
    }

    /// Blocks of a segment that the last commit names.
    pub fn named(&self, number: u64) -> Option<Vec<Extent>> {
        let part = self.parts.get(&number)?;
        let pieces = part.segment.pieces().iter();
        let named = pieces.filter(|piece| piece.named != Named::Not);
        let places = named.map(|piece| piece.place);
        Some(places.chain(part.freed.iter().copied()).collect())
    }

    /// Segment `number` is as its rows have it; an empty one has none.
    pub fn know(&mut self, number: u64, segment: Segment) {
        let has_rows = segment.blocks() > 0;
        self.parts.insert(number, Part::of(segment, has_rows));
    }

    /// Changes the object itself.
    pub fn set_size(&mut self, size: u64) {
        self.is_changed |= self.size != Some(size);
        self.size = Some(size);
    }

    /// There is no such object any more. Its segments must be empty.
    pub fn remove(&mut self) {
        self.is_changed = true;
        self.size = None;
    }

    /// Changes a segment, if it is known.
    #[must_use]
    pub fn change(&mut self, number: u64, change: impl FnOnce(&mut Part)) -> bool {
        let Some(part) = self.parts.get_mut(&number) else {
            return false;
        };
        let before = u64::from(part.segment.blocks());
        change(part);
        part.is_changed = true;
        self.is_changed = true;
        self.blocks = self.blocks - before + u64::from(part.segment.blocks());
        true
    }

    /// Forgets what the tables have by now. True: all of it.
    pub fn forget(&mut self) -> bool {
        if !self.is_changed {
            return true;
        }
        let whole = self.is_stored_whole();
        self.parts
            .retain(|number, part| part.is_changed || whole && *number == 0);
        false
    }

    /// It fits in one row.
    fn is_whole(&self) -> bool {
        let part = self.parts.get(&0);
        let fits = part.is_some_and(|part| {
            let pieces = part.segment.pieces();
            let end = pieces.last().map_or(0, |piece| piece.end());
            end <= WHOLE_BLOCKS_MAX && u64::from(part.segment.blocks()) == self.blocks
        });
        self.size.is_some_and(|size| size <= WHOLE_BYTES_MAX) && (fits || self.blocks == 0)
    }

    fn changed_parts(&self) -> impl Iterator<Item = u64> {
        let changed = self.parts.iter().filter(|(_, part)| part.is_changed);
        changed.map(|(number, _)| *number)
    }

    /// Adds what changed to `commit`, until that is full. True: all of it is there.
    fn add_to(&mut self, id: ObjectId, tables: &ExtentTables, commit: &mut Building) -> bool {
        let (whole, was_whole) = (self.is_whole(), self.is_stored_whole());
        let mut stored = self.stored.unwrap_or_default();
        // Of a part that moves between the two kinds of rows all is put anew.
        if let Some(first) = self.parts.get_mut(&0) {
            first.is_changed |= whole != was_whole;
        }
        let is_in_head = |number: u64| whole && number == 0;
        let mut numbers: Vec<u64> = self.changed_parts().collect();
        // What goes to the head's row goes with it, at last: a commit before may be the last one.
        numbers.sort_by_key(|number| is_in_head(*number));
        let mut is_full = false;
        for number in numbers {
            // What leaves the head's row leaves it with the first commit.
            let must = is_in_head(number) || was_whole && number == 0;
            is_full = commit.bytes >= commit.bytes_max && !must;
            if is_full {
                break;
            }
            let part = self.parts.entry(number).or_default();
            stored.blocks = stored.blocks + u64::from(part.segment.blocks()) - part.stored_blocks;
            commit.add_part((id, number), part, tables, is_in_head(number));
        }
        let size = self.size;
        self.stored = match is_full {
            true => {
                // A crash between leaves bytes of neither beyond the end.
                let size = size.unwrap_or(0).max(stored.size);
                Some(Head {
                    size,
                    is_whole: false,
                    ..stored
                })
            }
            false => size.map(|size| Head {
                size,
                blocks: self.blocks,
                is_whole: whole,
            }),
        };
        let value = self.stored.map(|head| {
            let empty = Segment::default();
            let first = self.part(0).unwrap_or(&empty);
            encode_head(&head, head.is_whole.then_some(first))
        });
        commit.row(tables.extents.0, object_key(id).to_vec(), value);
        self.is_changed = is_full;
        !is_full
    }
}

impl Part {
    fn of(segment: Segment, has_rows: bool) -> Part {
        Part {
            stored_blocks: segment.blocks().into(),
            segment,
            has_rows,
            ..Part::default()
        }
    }
}

/// A commit that is put together.
#[derive(Debug)]
pub struct Building {
    commit: Commit,
    bytes: usize,
    bytes_max: usize,
}

impl Building {
    /// One that is full at about `bytes_max`.
    pub fn new(bytes_max: usize) -> Building {
        Building {
            commit: Commit::default(),
            bytes: 0,
            bytes_max,
        }
    }

    /// The commit.
    pub fn finish(self) -> Commit {
        self.commit
    }

    /// Adds what changed of `object`. True: all of it is there.
    pub fn add(&mut self, id: ObjectId, tables: &ExtentTables, object: &mut Object) -> bool {
        let has_room = self.bytes < self.bytes_max;
        has_room && object.add_to(id, tables, self)
    }

    fn row(&mut self, table: u8, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.bytes += ROW_BYTES + value.as_ref().map_or(0, Vec::len);
        self.commit.rows.push(Row { table, key, value });
    }

    fn add_part(
        &mut self,
        (id, number): (ObjectId, u64),
        part: &mut Part,
        tables: &ExtentTables,
        in_head: bool,
    ) {
        let (taken, written) = part.segment.name();
        let named = taken.iter().chain(&written);
        let sums: usize = named
            .map(|named| named.sums.as_ref().map_or(0, Vec::len))
            .sum();
        self.bytes += (taken.len() + written.len() + part.freed.len()) * ROW_BYTES + sums * 4;
        self.commit.taken.extend(taken);
        self.commit.written.extend(written);
        self.commit.freed.append(&mut part.freed);
        let key = segment_key(id, number);
        if part.segment.blocks() > 0 && !in_head {
            let (places, sums) = encode_segment(&part.segment);
            self.row(tables.extents.0, key.clone(), Some(places));
            self.row(tables.sums.0, key, Some(sums));
            part.has_rows = true;
        } else if std::mem::take(&mut part.has_rows) {
            self.row(tables.extents.0, key.clone(), None);
            self.row(tables.sums.0, key, None);
        }
        part.stored_blocks = part.segment.blocks().into();
        part.is_changed = false;
    }
}

/// The segment that has block `block` of an object, and the block's number in it.
pub fn segment_of(block: u64) -> (u64, u32) {
    let blocks = u64::from(SEGMENT_BLOCKS);
    (block / blocks, (block % blocks) as u32)
}
