//! Small writes to blocks in a row, which go to the disk as one. Pure.

use allocator::{Block, Extent};

use super::log::BLOCK_BYTES;

/// Bytes that are gathered. Beyond: they are written.
const GATHERED_BYTES_MAX: usize = 1 << 20;
/// A write of so many bytes is one by itself.
const SMALL_BYTES_MAX: usize = 128 << 10;

/// Blocks in a row, and the bytes that are to be written there.
#[derive(Debug, Default)]
pub struct Gathered {
    start: Block,
    bytes: Vec<u8>,
}

impl Gathered {
    fn place(&self) -> Extent {
        Extent::new(self.start, (self.bytes.len() as u64 / BLOCK_BYTES) as u32)
    }

    /// There are bytes for one of these blocks.
    pub fn overlaps(&self, place: Extent) -> bool {
        self.place().overlaps(place)
    }

    /// Adds whole blocks, or replaces those that it has. `false`: they do not fit, and what was gathered is
    /// to be written first.
    pub fn add(&mut self, start: Block, bytes: &[u8]) -> bool {
        if self.bytes.is_empty() {
            self.start = start;
        }
        let Some(skipped) = start.0.checked_sub(self.start.0) else {
            return false;
        };
        let begin = (skipped * BLOCK_BYTES) as usize;
        let end = begin + bytes.len();
        let fits = begin <= self.bytes.len() && end <= GATHERED_BYTES_MAX;
        if !fits || bytes.len() > SMALL_BYTES_MAX {
            return false;
        }
        if end > self.bytes.len() {
            self.bytes.resize(end, 0);
        }
        self.bytes[begin..end].copy_from_slice(bytes);
        true
    }

    /// What was gathered, which is to be written now.
    pub fn take(&mut self) -> Option<(Block, Vec<u8>)> {
        let bytes = std::mem::take(&mut self.bytes);
        (!bytes.is_empty()).then_some((self.start, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = BLOCK_BYTES as usize;

    #[test]
    fn blocks_in_a_row_are_one_write_and_a_block_has_its_last_bytes() {
        let mut gathered = Gathered::default();
        assert!(gathered.add(Block(7), &[1; BLOCK]) && gathered.add(Block(8), &[2; 2 * BLOCK]));
        assert!(gathered.add(Block(8), &[3; BLOCK]));
        assert!(gathered.overlaps(Extent::new(Block(9), 4)));
        assert!(!gathered.overlaps(Extent::new(Block(10), 4)));
        // Neither before it nor with a gap.
        assert!(!gathered.add(Block(6), &[4; BLOCK]) && !gathered.add(Block(11), &[4; BLOCK]));
        let (start, bytes) = gathered.take().unwrap();
        assert_eq!((start, bytes.len()), (Block(7), 3 * BLOCK));
        assert_eq!([bytes[0], bytes[BLOCK], bytes[2 * BLOCK]], [1, 3, 2]);
        assert!(gathered.take().is_none() && !gathered.overlaps(Extent::new(Block(7), 1)));
        assert!(!gathered.add(Block(1), &[0; SMALL_BYTES_MAX + BLOCK]));
    }
}
