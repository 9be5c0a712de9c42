//! Space of the disk that was taken from the file system below: for whole groups, in small steps where that
//! has little left.

use std::collections::BTreeSet;
use std::ops::{Bound, Range};
use std::sync::Arc;

use allocator::{Block, Extent, GROUP_BLOCKS, Group};

use crate::disk::{Backing, Disk};
use crate::error::{Result, StorageError};
use crate::extents::device::ExtentDisk;
use crate::extents::geometry::{STEP_BLOCKS, steps_of};
use crate::extents::log::BLOCK_BYTES;
use crate::space::SpaceStat;

/// Bytes of a step. No more than may be given out between two looks at the space below.
pub const STEP_BYTES: u64 = STEP_BLOCKS as u64 * BLOCK_BYTES;
/// The space of a whole group is taken where there is so much more below.
const GROUPS_LEFT_MIN: u64 = 4;
/// So many steps are tried in vain in one search for blocks that have space.
pub const TRIED_MAX: u32 = 16;

/// What was taken since the store was opened. Taking it again changes nothing below.
#[derive(Debug, Default)]
pub struct Backed {
    groups: BTreeSet<u32>,
    /// Steps of other groups, by their numbers.
    steps: BTreeSet<u64>,
    /// Groups that may have space which nothing needs.
    loose: BTreeSet<Group>,
    /// Groups in which a server that was killed may have taken space, though it named no block there.
    unknown: Range<u32>,
    /// Space was not to be had below, the last time: it is when so many bytes are available there.
    full_until: Option<u64>,
    /// The last bytes below may be taken, which are kept for records else.
    takes_all: bool,
    /// Where blocks with space are looked for.
    from: Block,
    /// When nothing was found: how often blocks had become free.
    searched: Option<u64>,
}

impl Backed {
    /// Nothing was taken since the store was opened. The `loose` groups have space from before, and any of
    /// `all` may.
    pub fn new(loose: impl IntoIterator<Item = Group>, all: Range<u32>) -> Backed {
        Backed {
            loose: loose.into_iter().collect(),
            unknown: all,
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
        let Some(group) = behind.chain(self.loose.range(..=last)).next().copied() else {
            return self.unknown.next().map(Group);
        };
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

    /// From now on the last bytes below may be taken.
    pub fn take_last_bytes(&mut self) {
        self.takes_all = true;
    }

    /// Space was not to be had below, and there is no more now.
    pub fn is_full_below(&mut self, device: &ExtentDisk<Arc<dyn Disk>>) -> Result<bool> {
        if let Some(until) = self.full_until {
            let below = device.disk().backing()?;
            let is_full = below.is_some_and(|below| below.space.available < until);
            if !is_full {
                (self.full_until, self.searched) = (None, None);
            }
        }
        Ok(self.full_until.is_some())
    }

    /// Bytes that must be available below for a step to be taken there: what is left then is for records.
    fn least(&self, space: &SpaceStat) -> u64 {
        STEP_BYTES + if self.takes_all { 0 } else { space.floor() }
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
        if self.has(block) {
            return Ok(());
        }
        let below = device.disk().backing()?;
        let least = below.map_or(0, |below| self.least(&below.space));
        let available = below.map_or(u64::MAX, |below| below.space.available);
        if available < least {
            self.full_until = Some(least);
            return Err(no_space());
        }
        let taken = self.reserve_around(device, block, below);
        if let Err(StorageError::NoSpace { .. }) = &taken {
            // The system keeps some for itself, and may have given a part. The next attempt is when there is
            // more.
            self.full_until = Some(least.max(available.saturating_add(STEP_BYTES)));
            self.loose.insert(block.group());
        }
        taken
    }

    /// Takes the space of a block's group, or of its step where there is less below.
    fn reserve_around(
        &mut self,
        device: &ExtentDisk<Arc<dyn Disk>>,
        block: Block,
        below: Option<Backing>,
    ) -> Result<()> {
        let group = block.group();
        let all = blocks_of(device, group);
        let takes_all = below.is_none_or(|below| {
            below.space.available / GROUPS_LEFT_MIN >= u64::from(all.blocks) * BLOCK_BYTES
        });
        if takes_all {
            reserve(device, all)?;
            self.groups.insert(group.0);
            self.loose.insert(group);
            return Ok(());
        }
        self.reserve_step(device, block)
    }

    /// Takes the space of a block's step, or makes sure of it where that was taken.
    fn reserve_step(&mut self, device: &ExtentDisk<Arc<dyn Disk>>, block: Block) -> Result<()> {
        let group = block.group();
        let first = block.in_group() / STEP_BLOCKS * STEP_BLOCKS;
        let blocks = STEP_BLOCKS.min(device.geometry().blocks_of(group) - first);
        reserve(device, Extent::new(group.block(first), blocks))?;
        self.steps.insert(step_of(block));
        Ok(())
    }

    /// The block's space was taken since the store was opened.
    pub fn has(&self, block: Block) -> bool {
        self.groups.contains(&block.group().0) || self.steps.contains(&step_of(block))
    }

    /// Space of this group was taken since the store was opened.
    pub fn has_any(&self, group: Group) -> bool {
        let [first, last] = [group.block(0), group.block(GROUP_BLOCKS - 1)].map(step_of);
        self.groups.contains(&group.0) || self.steps.range(first..=last).next().is_some()
    }

    /// Makes sure that a block has its space.
    ///
    /// `false`: it has lost what an earlier life of the store took, as when the file was copied without it.
    pub fn confirm(&mut self, device: &ExtentDisk<Arc<dyn Disk>>, block: Block) -> Result<bool> {
        if self.has(block) {
            return Ok(true);
        }
        match self.reserve_step(device, block) {
            Ok(()) => Ok(true),
            Err(StorageError::NoSpace { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn no_space() -> StorageError {
    StorageError::NoSpace {
        at: "the disk below the extents".to_owned(),
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
