//! The committed maps: which blocks the records name, up to the last commit. Pure.

use std::collections::BTreeSet;

use allocator::{Block, Extent, GROUP_BLOCKS, GROUP_WORDS, Group};

use super::commit::Commit;
use super::log::BLOCK_BYTES;

/// One group's bitmap: set bits are in use.
pub type Map = [u64; GROUP_WORDS];

/// The maps of all groups. A group that never had a block in use has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maps {
    groups: Vec<Option<Box<Map>>>,
    /// Changed since the last checkpoint.
    changed: BTreeSet<u32>,
}

/// A commit takes a block that is in use, or frees one that is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contradiction(pub Extent);

impl Maps {
    /// Of `groups` groups without a block in use.
    pub fn new(groups: u32) -> Maps {
        Maps {
            groups: vec![None; groups as usize],
            changed: BTreeSet::new(),
        }
    }

    /// A group's map, as a checkpoint has it.
    pub fn put(&mut self, group: u32, map: Map) {
        self.groups[group as usize] = Some(Box::new(map));
    }

    /// A group's map.
    pub fn map(&self, group: u32) -> Option<&Map> {
        self.groups[group as usize].as_deref()
    }

    /// Applies a commit whole, or not at all.
    pub fn apply(&mut self, commit: &Commit) -> Result<(), Contradiction> {
        // A commit may free and take the same block only in two commits: each of its blocks is named once.
        let mut written = commit.written.iter().map(|written| written.place);
        if let Some(free) = written.find(|place| !self.are_all(*place, true)) {
            return Err(Contradiction(free));
        }
        let taken = commit.taken.iter().map(|taken| (taken.place, true));
        let freed = commit.freed.iter().map(|extent| (*extent, false));
        let changes: Vec<(Extent, bool)> = taken.chain(freed).collect();
        for (done, (extent, used)) in changes.iter().enumerate() {
            if !self.are_all(*extent, !used) {
                for (extent, used) in &changes[..done] {
                    self.set(*extent, !used);
                }
                return Err(Contradiction(*extent));
            }
            self.set(*extent, *used);
        }
        Ok(())
    }

    /// The block is in use.
    pub fn is_used(&self, block: Block) -> bool {
        let bit = block.in_group();
        let map = self.map(block.group().0);
        map.is_some_and(|map| map[bit as usize / 64] >> (bit % 64) & 1 == 1)
    }

    fn are_all(&self, extent: Extent, used: bool) -> bool {
        let mut blocks = extent.start.0..extent.end().0;
        blocks.all(|block| self.is_used(Block(block)) == used)
    }

    fn set(&mut self, extent: Extent, used: bool) {
        for part in extent.by_groups() {
            let Group(group) = part.start.group();
            self.changed.insert(group);
            let map = self.groups[group as usize].get_or_insert_with(|| Box::new([0; GROUP_WORDS]));
            let first = part.start.in_group();
            for bit in first..first + part.blocks {
                let mask = 1 << (bit % 64);
                let word = &mut map[bit as usize / 64];
                *word = if used { *word | mask } else { *word & !mask };
            }
        }
    }

    /// Groups changed since the last checkpoint.
    pub fn changed(&self) -> &BTreeSet<u32> {
        &self.changed
    }

    /// A checkpoint has them all.
    pub fn checkpointed(&mut self) {
        self.changed.clear();
    }

    /// Blocks in use.
    pub fn used(&self) -> u64 {
        let words = self.groups.iter().flatten().flat_map(|map| map.iter());
        words.map(|word| u64::from(word.count_ones())).sum()
    }

    /// All runs of blocks in use, ascending.
    pub fn runs(&self) -> Vec<Extent> {
        let mut runs: Vec<Extent> = Vec::new();
        let blocks = 0..self.groups.len() as u64 * u64::from(GROUP_BLOCKS);
        for block in blocks.map(Block).filter(|block| self.is_used(*block)) {
            match runs.last_mut() {
                Some(last) if last.end() == block => last.blocks += 1,
                _ => runs.push(Extent::new(block, 1)),
            }
        }
        runs
    }
}

/// A map's block.
pub fn encode(map: &Map) -> Vec<u8> {
    map.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The map of a block.
pub fn decode(block: &[u8; BLOCK_BYTES as usize]) -> Map {
    let mut map = [0; GROUP_WORDS];
    for (word, bytes) in map.iter_mut().zip(block.chunks_exact(8)) {
        let mut eight = [0; 8];
        eight.copy_from_slice(bytes);
        *word = u64::from_le_bytes(eight);
    }
    map
}
