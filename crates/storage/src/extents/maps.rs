//! The committed maps: which blocks the records name, up to the last commit. Pure.

use std::collections::BTreeSet;

use allocator::{Block, Extent, GROUP_BLOCKS, GROUP_WORDS, Group};

use super::commit::Commit;
use super::log::BLOCK_BYTES;

/// One group's bitmap: set bits are in use.
pub type Map = [u64; GROUP_WORDS];

/// What is in memory of a group's map.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Known {
    /// No block was ever in use.
    Unused,
    /// The last checkpoint has it.
    Away,
    Here(Box<Map>),
}

/// The maps of all groups; those that were not needed yet are on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maps {
    groups: Vec<Known>,
    /// Changed since the last checkpoint.
    changed: BTreeSet<u32>,
}

/// A commit takes a block that is in use, or frees one that is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contradiction(pub Extent);

impl Maps {
    /// Of groups for each of which a checkpoint has a map, or not: then no block is in use.
    pub fn new(has_map: impl IntoIterator<Item = bool>) -> Maps {
        let known = |has| if has { Known::Away } else { Known::Unused };
        Maps {
            groups: has_map.into_iter().map(known).collect(),
            changed: BTreeSet::new(),
        }
    }

    /// A group's map, as the last checkpoint has it.
    pub fn put(&mut self, group: u32, map: Map) {
        self.groups[group as usize] = Known::Here(Box::new(map));
    }

    /// A group's map is on the disk, and must be put first.
    pub fn is_away(&self, group: u32) -> bool {
        matches!(self.groups[group as usize], Known::Away)
    }

    /// A group's map; `None` where no block was ever in use, or it is away.
    pub fn map(&self, group: u32) -> Option<&Map> {
        match &self.groups[group as usize] {
            Known::Here(map) => Some(map),
            Known::Unused | Known::Away => None,
        }
    }

    /// Forgets a map that the last checkpoint has. `false`: it changed since, and stays.
    pub fn forget(&mut self, group: u32) -> bool {
        let known = &mut self.groups[group as usize];
        if self.changed.contains(&group) {
            return false;
        }
        if matches!(known, Known::Here(_)) {
            *known = Known::Away;
        }
        true
    }

    /// Groups that `commit` names and whose maps are away: they must be put before it is applied.
    pub fn away_from(&self, commit: &Commit) -> BTreeSet<u32> {
        let groups = commit.places().flat_map(Extent::by_groups);
        let groups = groups.map(|part| part.start.group().0);
        groups.filter(|group| self.is_away(*group)).collect()
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

    /// One of the 64 blocks of a group is in use that have their bits in one word with block `bit`.
    pub fn has_used_beside(&self, group: u32, bit: u32) -> bool {
        self.map(group)
            .is_some_and(|map| map[bit as usize / 64] != 0)
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
            let known = &mut self.groups[group as usize];
            if !matches!(known, Known::Here(_)) {
                *known = Known::Here(Box::new([0; GROUP_WORDS]));
            }
            let Known::Here(map) = known else {
                continue;
            };
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

    /// All runs of blocks in use, ascending.
    pub fn runs(&self) -> Vec<Extent> {
        let mut runs: Vec<Extent> = Vec::new();
        let groups = (0..self.groups.len() as u32).filter(|group| self.map(*group).is_some());
        let blocks = groups.flat_map(|group| (0..GROUP_BLOCKS).map(move |n| Group(group).block(n)));
        for block in blocks.filter(|block| self.is_used(*block)) {
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
