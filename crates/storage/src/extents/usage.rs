//! Which blocks of a store of extents are in use, by its last checkpoint and the log behind that. Reads only,
//! also beside the process that serves the store.

use allocator::{GROUP_BLOCKS, Group};

use super::maps::Map;
use super::recovery::committed_maps;
use crate::disk::Disk;
use crate::error::{Result, StorageError};

/// Blocks of a part: 1 MiB.
pub const PART_BLOCKS: u32 = 256;
/// Parts of a group.
pub const GROUP_PARTS: usize = (GROUP_BLOCKS / PART_BLOCKS) as usize;
/// How often it is read anew where it was written meanwhile.
const TRIES: usize = 10;

/// Blocks of a group that are in use, of each part.
pub type GroupUse = [u16; GROUP_PARTS];

/// Which blocks are in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Blocks of data that there are.
    pub blocks: u64,
    /// Of each group. None: no block of it was ever in use.
    pub groups: Vec<Option<Box<GroupUse>>>,
}

impl Usage {
    /// That of the store on `disk`, which messages call `name`.
    pub fn read(disk: &dyn Disk, name: &str) -> Result<Usage> {
        let mut tried = 1;
        loop {
            match Usage::read_once(disk, name) {
                Err(StorageError::Damaged { .. }) if tried < TRIES => tried += 1,
                read => return read,
            }
        }
    }

    fn read_once(disk: &dyn Disk, name: &str) -> Result<Usage> {
        let mut groups = Vec::new();
        let geometry = committed_maps(disk, name, &mut |_: Group, map: Option<&Map>| {
            groups.push(map.map(|map| Box::new(use_of(map))));
        })?;
        Ok(Usage {
            blocks: geometry.data_blocks,
            groups,
        })
    }

    /// Blocks in use, of all groups.
    pub fn used_blocks(&self) -> u64 {
        let parts = self.groups.iter().flatten().flat_map(|group| group.iter());
        parts.map(|used| u64::from(*used)).sum()
    }
}

fn use_of(map: &Map) -> GroupUse {
    let mut parts = [0; GROUP_PARTS];
    let words = PART_BLOCKS as usize / 64;
    for (part, words) in parts.iter_mut().zip(map.chunks(words)) {
        *part = words.iter().map(|word| word.count_ones() as u16).sum();
    }
    parts
}
