//! What is known of a segment whose bytes change, or did so lately. Pure.

use std::ops::Range;

use base::ByteRange;

use super::seal::{BLOCK, SEGMENT, Seal, extent_of, part_in};
use crate::kv::Ticket;

/// A sum, and the bytes of the segment that it covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sum {
    pub bytes: Range<u64>,
    pub sum: u32,
}

impl Sum {
    /// These are the bytes of `data`, which begins at `start` of the same segment or object.
    pub fn is_sound(&self, start: u64, data: &[u8]) -> bool {
        let bytes = (self.bytes.start - start) as usize..(self.bytes.end - start) as usize;
        let bytes = data.get(bytes);
        bytes.is_some_and(|bytes| crc32c::crc32c(bytes) == self.sum)
    }
}

/// What is known of one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Block {
    /// It did not change: the seal says.
    #[default]
    Kept,
    /// It changed: its bytes say.
    Unknown,
    /// Its first so many bytes, and no others, were written just now.
    Written { len: u16, sum: u32 },
}

/// A segment that is open.
#[derive(Debug, Default)]
pub(super) struct Changing {
    /// What was known before.
    seal: Seal,
    /// From the first block to the last one that changed. The blocks behind these are kept.
    blocks: Vec<Block>,
    /// Changes under way.
    writers: u32,
    /// The last change, by its number.
    pub changed: u64,
    /// All changes up to this one are durable.
    pub synced: u64,
    /// It is durable with this batch that the segment is open.
    pub opened: Ticket,
}

impl Changing {
    /// One of which so much was known.
    pub fn new(seal: Seal) -> Changing {
        Changing {
            seal,
            ..Changing::default()
        }
    }

    /// Roughly the bytes of memory that it takes.
    pub fn weight(&self) -> usize {
        size_of::<Changing>() + self.blocks.len() * size_of::<Block>() + self.seal.sums.len() * 4
    }

    /// Nothing is remembered of its blocks: all are read when it is sealed.
    pub fn forget(&mut self) {
        self.seal = Seal::default();
        self.blocks = Vec::new();
    }

    /// Change `number` of `range` of the object begins; the segment is number `segment`.
    pub fn begin(&mut self, number: u64, segment: u64, range: ByteRange) {
        self.writers += 1;
        self.changed = number;
        let part = part_in(segment, range);
        let (first, end) = (part.start / BLOCK, part.end.div_ceil(BLOCK));
        // Of blocks further on nothing is known that would have to be forgotten.
        let end = (end as usize).min(self.blocks.len().max(self.seal.sums.len()));
        if self.blocks.len() < end {
            self.blocks.resize(end, Block::Kept);
        }
        let touched = self.blocks.get_mut(first as usize..end);
        let touched = touched.into_iter().flatten();
        touched.for_each(|block| *block = Block::Unknown);
    }

    /// Change `number` is done; `now` numbers that. `data` was written at `offset` of the object, if
    /// that worked.
    pub fn end(&mut self, number: u64, now: u64, segment: u64, written: Option<(u64, &[u8])>) {
        let alone = self.writers == 1 && self.changed == number;
        self.writers = self.writers.saturating_sub(1);
        self.changed = now;
        if let Some((offset, data)) = written {
            let range = ByteRange::new(offset, offset + data.len() as u64);
            let part = part_in(segment, range);
            if part.is_empty() {
                return;
            }
            let from = (segment * SEGMENT + part.start - offset) as usize;
            let data = &data[from..from + (part.end - part.start) as usize];
            self.note(part, data, alone);
        }
    }

    /// These bytes are there now; not `alone`: or others.
    fn note(&mut self, part: Range<u64>, data: &[u8], alone: bool) {
        let (first, end) = (part.start / BLOCK, part.end.div_ceil(BLOCK));
        if self.blocks.len() < end as usize {
            self.blocks.resize(end as usize, Block::Kept);
        }
        for block in first..end {
            let start = part.start.max(block * BLOCK);
            let stop = part.end.min((block + 1) * BLOCK);
            let bytes = &data[(start - part.start) as usize..(stop - part.start) as usize];
            self.blocks[block as usize] = match alone && start == block * BLOCK {
                true => Block::Written {
                    len: bytes.len() as u16,
                    sum: crc32c::crc32c(bytes),
                },
                false => Block::Unknown,
            };
        }
    }

    /// It has not changed since, and does not.
    pub fn is_quiet(&self, since: u64) -> bool {
        self.writers == 0 && self.changed <= since
    }

    /// The sums that hold for blocks that share a byte with `part` of the segment.
    pub fn sums(&self, part: Range<u64>) -> Vec<Sum> {
        let blocks = (part.start / BLOCK) as usize..part.end.div_ceil(BLOCK) as usize;
        blocks.filter_map(|block| self.sum(block)).collect()
    }

    fn sum(&self, block: usize) -> Option<Sum> {
        match self.blocks.get(block).copied().unwrap_or_default() {
            Block::Unknown => None,
            Block::Written { len, sum } => {
                let start = block as u64 * BLOCK;
                let bytes = start..start + u64::from(len);
                Some(Sum { bytes, sum })
            }
            Block::Kept => {
                let bytes = self.seal.extent(block)?;
                let sum = *self.seal.sums.get(block)?;
                Some(Sum { bytes, sum })
            }
        }
    }

    /// The sums of all blocks of a segment of `len` bytes, as far as they are known.
    pub fn known(&self, len: u64) -> Vec<Option<u32>> {
        let blocks = 0..len.div_ceil(BLOCK) as usize;
        let known = |block| {
            let bytes = extent_of(block, len);
            self.sum(block)
                .filter(|sum| Some(&sum.bytes) == bytes.as_ref())
                .map(|sum| sum.sum)
        };
        blocks.map(known).collect()
    }
}
