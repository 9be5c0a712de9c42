//! Space of the disk that was taken from the file system below: for whole groups, in small steps where that
//! has little left.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use allocator::{Block, Extent, Group};

use crate::disk::Disk;
use crate::error::{Result, StorageError};
use crate::extents::device::ExtentDisk;
use crate::extents::log::BLOCK_BYTES;

/// Blocks of a step. No more than may be given out between two looks at the space below.
pub const STEP_BLOCKS: u32 = 64;
/// The space of a whole group is taken where there is so much more below.
const GROUPS_LEFT_MIN: u64 = 4;

/// Bytes below with which that is full.
const FULL_BELOW: u64 = 4 * STEP_BLOCKS as u64 * BLOCK_BYTES;

/// What was taken since the store was opened. Taking it again changes nothing below.
#[derive(Debug, Default)]
pub struct Backed {
    groups: BTreeSet<u32>,
    /// Steps of other groups, by their numbers.
    steps: BTreeSet<u64>,
    /// Groups that may have space which nothing needs.
    loose: BTreeSet<Group>,
    /// Space was not to be had below, the last time.
    is_full_below: bool,
    /// Where blocks with space are looked for.
    from: Block,
    /// When nothing was found: how often blocks had become free.
    searched: Option<u64>,
}

/// The parts of an extent that are in one step each.
pub fn steps_of(place: Extent) -> impl Iterator<Item = Extent> {
    let mut rest = place;
    std::iter::from_fn(move || {
        let to_end = STEP_BLOCKS - rest.start.in_group() % STEP_BLOCKS;
        let (step, behind) = rest.split(to_end);
        rest = behind;
        (step.blocks > 0).then_some(step)
    })
}

impl Backed {
    /// Nothing was taken since the store was opened; these groups have space from before.
    pub fn new(loose: impl IntoIterator<Item = Group>) -> Backed {
        Backed {
            loose: loose.into_iter().collect(),
            ..Backed::default()
        }
    }

    /// Blocks of these groups became free.
    pub fn add_loose(&mut self, groups: BTreeSet<Group>) {
        self.loose.extend(groups);
    }

    /// A group that may have space which nothing needs: the first one behind `last`, going round.
    pub fn take_loose(&mut self, last: Group) -> Option<Group> {
        let behind = self.loose.range((Bound::Excluded(last), Bound::Unbounded));
        let group = behind.chain(self.loose.range(..=last)).next().copied()?;
        self.loose.remove(&group);
        Some(group)
    }

    /// The space of these blocks, which are whole steps, was given back.
    pub fn forget(&mut self, place: Extent) {
        self.groups.remove(&place.start.group().0);
        for step in steps_of(place) {
            self.steps.remove(&step_of(step.start));
        }
    }

    /// Space was not to be had below, and there is hardly any now.
    pub fn is_full_below(&mut self, device: &ExtentDisk<Arc<dyn Disk>>) -> Result<bool> {
        if self.is_full_below {
            let below = device.disk().backing()?;
            let is_full = below.is_some_and(|below| below.space.available < FULL_BELOW);
            (self.is_full_below, self.searched) = (is_full, self.searched.filter(|_| is_full));
        }
        Ok(self.is_full_below)
    }

    /// Space is not to be had below.
    pub fn note_full_below(&mut self) {
        self.is_full_below = true;
    }

    /// Nothing was found, and no block became free since.
    pub fn has_searched(&self, frees: u64) -> bool {
        self.searched == Some(frees)
    }

    /// Nothing was found.
    pub fn note_searched(&mut self, frees: u64) {
        self.searched = Some(frees);
    }

    /// Where blocks that have space are looked for.
    pub fn search_from(&self) -> Block {
        self.from
    }

    /// Some were found, and `from` is behind them.
    pub fn note_found(&mut self, from: Block) {
        self.from = from;
    }

    /// Takes the space of `place`. Says how many of its blocks, from the first one on, have theirs.
    pub fn take(&mut self, device: &ExtentDisk<Arc<dyn Disk>>, place: Extent) -> Result<u32> {
        let mut taken = 0;
        for step in steps_of(place) {
            match self.take_step(device, step.start) {
                Ok(()) => taken += step.blocks,
                Err(StorageError::NoSpace { .. }) => break,
                Err(error) => {
                    tracing::error!("{place}: its space cannot be taken: {error}");
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    fn take_step(&mut self, device: &ExtentDisk<Arc<dyn Disk>>, block: Block) -> Result<()> {
        let (group, step) = (block.group(), step_of(block));
        if self.groups.contains(&group.0) || self.steps.contains(&step) {
            return Ok(());
        }
        let all = blocks_of(device, group);
        let below = device.disk().backing()?;
        let takes_all = below.is_none_or(|below| {
            below.space.available / GROUPS_LEFT_MIN >= u64::from(all.blocks) * BLOCK_BYTES
        });
        if takes_all {
            reserve(device, all)?;
            self.groups.insert(group.0);
            self.loose.insert(group);
            return Ok(());
        }
        let first = block.in_group() / STEP_BLOCKS * STEP_BLOCKS;
        let blocks = STEP_BLOCKS.min(all.blocks - first);
        reserve(device, Extent::new(group.block(first), blocks))?;
        self.steps.insert(step);
        Ok(())
    }
}

fn step_of(block: Block) -> u64 {
    block.0 / u64::from(STEP_BLOCKS)
}

fn blocks_of(device: &ExtentDisk<Arc<dyn Disk>>, group: Group) -> Extent {
    Extent::new(group.block(0), device.geometry().blocks_of(group))
}

fn reserve(device: &ExtentDisk<Arc<dyn Disk>>, place: Extent) -> Result<()> {
    let offset = device.geometry().data_offset(place.start);
    let bytes = u64::from(place.blocks) * BLOCK_BYTES;
    device.disk().reserve(offset, bytes)
}
