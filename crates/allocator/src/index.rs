//! Which groups have free runs of which length: found without looking at groups one by one.

use std::collections::BTreeSet;

use crate::map::{GROUP_WORDS, GroupMap, free_words_of};
use crate::places::{GROUP_ORDER, Group};

const LEVELS: usize = GROUP_ORDER + 1;

/// What is known of a group although its bitmap is not in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Free blocks.
    pub free: u32,
    /// Runs of free blocks.
    pub runs: u32,
    /// A free chunk of 2^n blocks, aligned to its size, is there for n below this. Zero: none.
    pub levels: u8,
}

impl Summary {
    /// That of a group in memory.
    pub fn of(map: &GroupMap) -> Summary {
        Summary {
            free: map.free(),
            runs: map.runs(),
            levels: map.largest_level().map_or(0, |level| level as u8 + 1),
        }
    }

    /// That of a group of `blocks`, of which those whose bits are set in `used` are not free.
    pub fn of_used(used: &[u64; GROUP_WORDS], blocks: u32) -> Summary {
        Summary::of(&GroupMap::from_free(&free_words_of(used, blocks)))
    }

    /// That of a group of `blocks`, all of which are free. A disk has thousands of them when it is new, and a
    /// start asks for each.
    pub fn of_empty(blocks: u32) -> Summary {
        let levels = blocks.checked_ilog2().map_or(0, |level| level as u8 + 1);
        Summary {
            free: blocks,
            runs: blocks.min(1),
            levels,
        }
    }

    /// Rounded down to a power of two: the average free run, as a level. `None` where no block is free.
    fn average_level(self) -> Option<usize> {
        self.free
            .checked_div(self.runs)?
            .checked_ilog2()
            .map(|level| level as usize)
    }

    fn largest_level(self) -> Option<usize> {
        usize::from(self.levels).checked_sub(1)
    }
}

/// Groups in order of their numbers, for each level of their largest and of their average free run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    summaries: Vec<Summary>,
    by_largest: [BTreeSet<Group>; LEVELS],
    by_average: [BTreeSet<Group>; LEVELS],
    free: u64,
}

/// The first group of `sets` from `from` on, going round.
fn next(sets: &[BTreeSet<Group>], from: Group) -> Option<Group> {
    let behind = sets.iter().filter_map(|set| set.range(from..).next()).min();
    let round = || sets.iter().filter_map(|set| set.first()).min();
    behind.or_else(round).copied()
}

impl Index {
    /// Of groups without a free block.
    pub fn new(groups: usize) -> Index {
        Index {
            summaries: vec![Summary::default(); groups],
            by_largest: Default::default(),
            by_average: Default::default(),
            free: 0,
        }
    }

    /// Free blocks of all groups.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// What is known of `group`.
    pub fn summary(&self, group: Group) -> Summary {
        self.summaries[group.0 as usize]
    }

    /// From now on `group` is like this.
    pub fn put(&mut self, group: Group, new: Summary) {
        let old = std::mem::replace(&mut self.summaries[group.0 as usize], new);
        self.free = self.free + u64::from(new.free) - u64::from(old.free);
        let place = |sets: &mut [BTreeSet<Group>], old: Option<usize>, new: Option<usize>| {
            if old == new {
                return;
            }
            old.map(|level| sets[level].remove(&group));
            new.map(|level| sets[level].insert(group));
        };
        let (was, is) = (old.largest_level(), new.largest_level());
        place(&mut self.by_largest, was, is);
        place(
            &mut self.by_average,
            old.average_level(),
            new.average_level(),
        );
    }

    /// A group that surely has a run of 2^`level` blocks: the first from `from` on, going round.
    pub fn with_chunk(&self, level: usize, from: Group) -> Option<Group> {
        next(self.by_largest.get(level..)?, from)
    }

    /// The same for a group whose runs are so long on average.
    pub fn with_average(&self, level: usize, from: Group) -> Option<Group> {
        next(self.by_average.get(level..)?, from)
    }

    /// A group with one of the largest free chunks there are: the first from `from` on, going round.
    pub fn with_largest(&self, from: Group) -> Option<Group> {
        let level = self.by_largest.iter().rposition(|set| !set.is_empty())?;
        next(&self.by_largest[level..=level], from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::GROUP_BLOCKS;

    #[test]
    fn an_empty_group_is_as_its_bitmap_says() {
        let powers = (0..=GROUP_ORDER).map(|level| 1 << level);
        let around = powers.flat_map(|blocks: u32| [blocks - 1, blocks, blocks + 1]);
        for blocks in around.filter(|blocks| *blocks <= GROUP_BLOCKS) {
            let by_bitmap = Summary::of_used(&[0; GROUP_WORDS], blocks);
            assert_eq!(Summary::of_empty(blocks), by_bitmap, "{blocks} blocks");
        }
    }
}
