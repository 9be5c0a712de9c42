//! Blocks, extents and groups of a disk, and the owner of a window.

use std::fmt;

/// Blocks of a group, as a power of two.
pub const GROUP_ORDER: usize = 15;
/// Blocks of a group: 128 MiB of blocks of 4 KiB.
pub const GROUP_BLOCKS: u32 = 1 << GROUP_ORDER;

/// A block of the disk's data, from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Block(pub u64);

impl Block {
    /// The group that it is in.
    pub fn group(self) -> Group {
        Group((self.0 / u64::from(GROUP_BLOCKS)) as u32)
    }

    /// Its number inside its group.
    pub fn in_group(self) -> u32 {
        (self.0 % u64::from(GROUP_BLOCKS)) as u32
    }

    /// The block `blocks` further on.
    pub fn after(self, blocks: u32) -> Block {
        Block(self.0 + u64::from(blocks))
    }
}

/// A group of blocks, from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Group(pub u32);

impl Group {
    /// Its block number `index`.
    pub fn block(self, index: u32) -> Block {
        Block(u64::from(self.0) * u64::from(GROUP_BLOCKS) + u64::from(index))
    }
}

/// Blocks in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// The first one.
    pub start: Block,
    /// How many.
    pub blocks: u32,
}

impl Extent {
    /// `blocks` of them from `start` on.
    pub fn new(start: Block, blocks: u32) -> Extent {
        Extent { start, blocks }
    }

    /// The block behind the last one.
    pub fn end(self) -> Block {
        self.start.after(self.blocks)
    }

    /// The first `blocks` of it, and the rest.
    pub fn split(self, blocks: u32) -> (Extent, Extent) {
        let blocks = blocks.min(self.blocks);
        let rest = Extent::new(self.start.after(blocks), self.blocks - blocks);
        (Extent::new(self.start, blocks), rest)
    }

    /// Shares a block with `other`.
    pub fn overlaps(self, other: Extent) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// The same blocks, cut where groups end.
    pub fn by_groups(self) -> impl Iterator<Item = Extent> {
        let mut rest = self;
        std::iter::from_fn(move || {
            let in_group = GROUP_BLOCKS - rest.start.in_group();
            let (first, behind) = rest.split(in_group);
            rest = behind;
            (first.blocks > 0).then_some(first)
        })
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "blocks {} to {}", self.start.0, self.end().0)
    }
}

/// An object that grows, for as long as it has windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u128);
