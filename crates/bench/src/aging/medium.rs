//! What the lab reads and writes: batches of extents, and how long they took.

use allocator::Extent;

use crate::error::Result;

/// Bytes of a block.
pub const BLOCK_BYTES: u64 = 4096;
/// Blocks of a MiB.
pub const MIB_BLOCKS: u64 = (1 << 20) / BLOCK_BYTES;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To a client.
    Read,
    /// To the disk.
    Write,
}

/// A disk that takes time: the model, or a file or device at hand.
pub trait Medium {
    /// Transfers these extents, in any order. The next batch may begin before this one has ended.
    fn batch(&mut self, direction: Direction, extents: &[Extent]) -> Result<()>;

    /// Waits for all batches. Returns seconds since the last wait.
    fn drain(&mut self) -> Result<f64>;
}

/// In the order of their places, neighbours joined.
pub fn sorted_runs(extents: &[Extent]) -> Vec<(u64, u64)> {
    let range = |extent: &Extent| (extent.start.0, extent.end().0);
    let mut ranges: Vec<(u64, u64)> = extents.iter().map(range).collect();
    ranges.sort_unstable();
    ranges.dedup_by(|next, before| {
        let joined = next.0 <= before.1;
        if joined {
            before.1 = before.1.max(next.1);
        }
        joined
    });
    ranges
}

#[cfg(test)]
mod tests {
    use allocator::Block;

    use super::*;

    #[test]
    fn neighbours_are_one_run() {
        let extents = [(8, 4), (0, 4), (4, 2), (20, 1)];
        let extents = extents.map(|(start, blocks)| Extent::new(Block(start), blocks));
        assert_eq!(sorted_runs(&extents), [(0, 6), (8, 12), (20, 21)]);
        assert_eq!(sorted_runs(&[]), []);
    }
}
