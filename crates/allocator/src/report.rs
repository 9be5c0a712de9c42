//! One line of `mb_groups`: the free space of a group.

use std::fmt;

use crate::map::GroupMap;
use crate::places::Group;

/// Counts of chunks in a line: 2^0 to 2^13 blocks. Larger chunks count as several of the largest.
const COLUMNS: usize = 14;

/// The free space of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupReport {
    /// Which group.
    pub group: Group,
    /// Free blocks.
    pub free: u32,
    /// Runs of free blocks.
    pub runs: u32,
    /// The first free block; the group's size where there is none.
    pub first_free: u32,
    /// Free chunks of each power of two that are no part of a larger one.
    pub chunks: [u32; COLUMNS],
}

impl GroupReport {
    /// That of `map`.
    pub fn of(group: Group, map: &GroupMap) -> GroupReport {
        let mut chunks = [0; COLUMNS];
        for level in 0..=crate::places::GROUP_ORDER {
            let column = level.min(COLUMNS - 1);
            chunks[column] += map.chunks(level) << (level - column);
        }
        GroupReport {
            group,
            free: map.free(),
            runs: map.runs(),
            first_free: map.first_free().unwrap_or(crate::places::GROUP_BLOCKS),
            chunks,
        }
    }
}

impl fmt::Display for GroupReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupReport {
            group,
            free,
            runs,
            first_free,
            chunks,
        } = self;
        write!(f, "#{:<5}: {free:<5} {runs:<5} {first_free:<5} [", group.0)?;
        for count in chunks {
            write!(f, " {count:<5}")?;
        }
        f.write_str("]")
    }
}
