//! One commit: rows that change, blocks that were taken and freed; and its bytes in a log record.

use allocator::{Block, Extent};
use base::limits::KV_KEY_BYTES_MAX;

/// One row that a commit puts, or deletes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The table's number.
    pub table: u8,
    /// Its key.
    pub key: Vec<u8>,
    /// Its value; `None`: it is deleted.
    pub value: Option<Vec<u8>>,
}

/// Blocks that an object has from this commit on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Where.
    pub place: Extent,
    /// The sum of each block, which was written before the commit. `None`: unwritten, and reads as zero.
    pub sums: Option<Vec<u32>>,
}

/// What changes at once, or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Commit {
    /// Rows, in order.
    pub rows: Vec<Row>,
    /// Blocks that were free before.
    pub taken: Vec<Taken>,
    /// Blocks that were unwritten before, and hold bytes from now on.
    pub written: Vec<Taken>,
    /// Blocks that are free from now on.
    pub freed: Vec<Extent>,
}

const WITH_SUMS: u8 = 0;
const UNWRITTEN: u8 = 1;
const DELETED: u32 = u32::MAX;

fn put_extent(bytes: &mut Vec<u8>, extent: Extent) {
    bytes.extend_from_slice(&extent.start.0.to_le_bytes());
    bytes.extend_from_slice(&extent.blocks.to_le_bytes());
}

impl Commit {
    /// It can be read back: keys are no longer than tables have them, and each block has its sum.
    pub fn is_sound(&self) -> bool {
        let mut rows = self.rows.iter();
        let has_all =
            |taken: &Taken, sums: &[u32]| sums.len() as u64 == u64::from(taken.place.blocks);
        let is_whole = |taken: &Taken| {
            let sums = taken.sums.as_ref();
            sums.is_none_or(|sums| has_all(taken, sums))
        };
        rows.all(|row| row.key.len() <= KV_KEY_BYTES_MAX)
            && self.taken.iter().all(is_whole)
            && self
                .written
                .iter()
                .all(|written| written.sums.is_some() && is_whole(written))
    }

    /// All extents that it names.
    pub fn places(&self) -> impl Iterator<Item = Extent> {
        let taken = self.taken.iter().chain(&self.written);
        let taken = taken.map(|taken| taken.place);
        taken.chain(self.freed.iter().copied())
    }

    /// The body of its record.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let counts = [
            self.rows.len(),
            self.taken.len(),
            self.written.len(),
            self.freed.len(),
        ];
        for count in counts {
            bytes.extend_from_slice(&(count as u32).to_le_bytes());
        }
        for row in &self.rows {
            let value = row.value.as_deref();
            let len = value.map_or(DELETED, |value| value.len() as u32);
            bytes.push(row.table);
            bytes.extend_from_slice(&(row.key.len() as u16).to_le_bytes());
            bytes.extend_from_slice(&len.to_le_bytes());
            bytes.extend_from_slice(&row.key);
            bytes.extend_from_slice(value.unwrap_or_default());
        }
        for taken in self.taken.iter().chain(&self.written) {
            put_extent(&mut bytes, taken.place);
            bytes.push(if taken.sums.is_some() {
                WITH_SUMS
            } else {
                UNWRITTEN
            });
            for sum in taken.sums.iter().flatten() {
                bytes.extend_from_slice(&sum.to_le_bytes());
            }
        }
        self.freed
            .iter()
            .for_each(|extent| put_extent(&mut bytes, *extent));
        bytes
    }

    /// The commit of a record's body; `None` where it is none.
    pub fn decode(body: &[u8]) -> Option<Commit> {
        let mut bytes = Reader(body);
        let counts = [bytes.word()?, bytes.word()?, bytes.word()?, bytes.word()?];
        let mut commit = Commit::default();
        for _ in 0..counts[0] {
            commit.rows.push(bytes.row()?);
        }
        for _ in 0..counts[1] {
            commit.taken.push(bytes.taken()?);
        }
        for _ in 0..counts[2] {
            let written = bytes.taken()?;
            written.sums.as_ref()?;
            commit.written.push(written);
        }
        for _ in 0..counts[3] {
            commit.freed.push(bytes.extent()?);
        }
        bytes.0.is_empty().then_some(commit)
    }
}

/// The rest of a body.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn word(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn extent(&mut self) -> Option<Extent> {
        let start = u64::from_le_bytes(self.take(8)?.try_into().ok()?);
        Some(Extent::new(Block(start), self.word()?))
    }

    fn row(&mut self) -> Option<Row> {
        let table = self.byte()?;
        let key_len = u16::from_le_bytes(self.take(2)?.try_into().ok()?);
        let value_len = self.word()?;
        let key = self.take(usize::from(key_len))?.to_vec();
        let value = match value_len {
            DELETED => None,
            len => Some(self.take(len as usize)?.to_vec()),
        };
        Some(Row { table, key, value })
    }

    fn taken(&mut self) -> Option<Taken> {
        let place = self.extent()?;
        let sums = match self.byte()? {
            UNWRITTEN => None,
            WITH_SUMS => {
                let bytes = self.take(usize::try_from(place.blocks).ok()?.checked_mul(4)?)?;
                let words = bytes.chunks_exact(4);
                Some(
                    words
                        .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
                        .collect(),
                )
            }
            _ => return None,
        };
        Some(Taken { place, sums })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Rng, SeededRng};

    #[test]
    fn a_commit_is_read_back_and_any_other_bytes_are_one_or_none() {
        let place = Extent::new(Block(1 << 40), 2);
        let commit = Commit {
            rows: vec![
                Row {
                    table: 3,
                    key: b"k".to_vec(),
                    value: Some(vec![7; 300]),
                },
                Row {
                    table: 0,
                    key: Vec::new(),
                    value: None,
                },
            ],
            taken: vec![
                Taken {
                    place,
                    sums: Some(vec![1, 2]),
                },
                Taken { place, sums: None },
            ],
            written: vec![Taken {
                place,
                sums: Some(vec![3, 4]),
            }],
            freed: vec![place],
        };
        let bytes = commit.encode();
        assert_eq!(Commit::decode(&bytes), Some(commit));
        assert_eq!(Commit::decode(&[&bytes[..], &[0]].concat()), None);
        let mut rng = SeededRng::new(1);
        for len in 0..bytes.len() {
            assert_eq!(Commit::decode(&bytes[..len]), None);
            let mut harmed = bytes.clone();
            harmed[len] ^= 1 << rng.below(8);
            // No panic; and what is read is written the same way.
            let read = Commit::decode(&harmed);
            assert!(read.is_none_or(|commit| commit.encode() == harmed));
        }
    }
}
