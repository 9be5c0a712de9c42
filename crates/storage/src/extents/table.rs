//! The table of a checkpoint: where each group's map is, and from which record of the log on to go.

use allocator::{Block, Cursors, Group, Summary};

use super::geometry::{ENTRY_BYTES, Geometry};
use super::log::{BLOCK_BYTES, Piece, Position};

const MAGIC: &[u8; 8] = b"GLINTTAB";
/// The last bytes of the first block are the sum of all others.
const SUM_AT: usize = BLOCK_BYTES as usize - 4;
/// A group without a map has this for a slot.
const NO_SLOT: u8 = 2;

/// Where a group's map is, its sum, and what it says in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// 0 or 1.
    pub slot: u8,
    /// Of the block.
    pub sum: u32,
    /// Free blocks of the group.
    pub summary: Summary,
}

impl Entry {
    fn encode(entry: Option<&Entry>) -> [u8; ENTRY_BYTES as usize] {
        let mut bytes = [0; ENTRY_BYTES as usize];
        bytes[8] = NO_SLOT;
        if let Some(Entry { slot, sum, summary }) = entry {
            bytes[..4].copy_from_slice(&sum.to_le_bytes());
            bytes[4..6].copy_from_slice(&(summary.free as u16).to_le_bytes());
            bytes[6..8].copy_from_slice(&(summary.runs as u16).to_le_bytes());
            bytes[8..10].copy_from_slice(&[*slot, summary.levels]);
        }
        bytes
    }

    /// The outer `None`: it is no entry.
    fn decode(bytes: &[u8]) -> Option<Option<Entry>> {
        let short = |at: usize| u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        match bytes[8] {
            NO_SLOT => Some(None),
            slot @ (0 | 1) => Some(Some(Entry {
                slot,
                sum: u32::from_le_bytes(bytes[..4].try_into().ok()?),
                summary: Summary {
                    free: short(4),
                    runs: short(6),
                    levels: bytes[9],
                },
            })),
            _ => None,
        }
    }
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Checkpoints so far.
    pub sequence: u64,
    /// The maps are true up to this commit.
    pub maps_ticket: u64,
    /// Rows of this record, and those before, are in their tables.
    pub start: Position,
    /// Where the allocator's search begins.
    pub cursors: Cursors,
    /// Of each group; `None`: no block of it is in use.
    pub entries: Vec<Option<Entry>>,
}

/// The sum of a map or table; never that of an empty disk.
pub fn sum_of(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

impl Table {
    /// Its bytes, and their place: tables take turns.
    pub fn encode(&self, geometry: &Geometry) -> Piece {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&geometry.id.0);
        let Position {
            block,
            ticket,
            sum,
            life,
        } = self.start;
        for number in [
            self.sequence,
            self.maps_ticket,
            block,
            ticket,
            life,
            self.cursors.small.0,
        ] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for number in [sum, self.cursors.stream.0, self.entries.len() as u32] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.resize(BLOCK_BYTES as usize, 0);
        for entry in &self.entries {
            bytes.extend_from_slice(&Entry::encode(entry.as_ref()));
        }
        bytes.resize((geometry.table_blocks * BLOCK_BYTES) as usize, 0);
        let sum = sum_of(&bytes);
        bytes[SUM_AT..SUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        let offset = geometry.table_offset(self.sequence % 2);
        Piece { offset, bytes }
    }

    /// The table in `bytes`; `None` where there is no whole one of this store.
    pub fn decode(geometry: &Geometry, bytes: &[u8]) -> Option<Table> {
        let mut summed = bytes.to_vec();
        let sum = summed.get_mut(SUM_AT..SUM_AT + 4)?;
        let written = sum.to_vec();
        sum.fill(0);
        if sum_of(&summed).to_le_bytes()[..] != written
            || &bytes[..8] != MAGIC
            || bytes[8..24] != geometry.id.0
        {
            return None;
        }
        let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let groups = word(80)?;
        if groups != geometry.groups() {
            return None;
        }
        let entry = |group: u32| {
            let at = BLOCK_BYTES as usize + group as usize * ENTRY_BYTES as usize;
            Entry::decode(bytes.get(at..at + ENTRY_BYTES as usize)?)
        };
        Some(Table {
            sequence: long(24)?,
            maps_ticket: long(32)?,
            start: Position {
                block: long(40)?,
                ticket: long(48)?,
                life: long(56)?,
                sum: word(72)?,
            },
            cursors: Cursors {
                small: Block(long(64)?),
                stream: Group(word(76)?),
            },
            entries: (0..groups).map(entry).collect::<Option<_>>()?,
        })
    }
}
