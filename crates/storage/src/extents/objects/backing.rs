//! Space of the disk that was taken from the file system below: for whole groups, in small steps where that
//! has little left.

use std::collections::BTreeSet;
use std::sync::Arc;

use allocator::{Block, Extent, Group};

use crate::disk::Disk;
use crate::error::{Result, StorageError};
use crate::extents::device::ExtentDisk;
use crate::extents::log::BLOCK_BYTES;

/// Blocks of a step. No more than may be given out between two looks at the space below.
const STEP_BLOCKS: u64 = 64;
/// The space of a whole group is taken where there is so much more below.
const GROUPS_LEFT_MIN: u64 = 4;

/// What was taken since the store was opened. Taking it again changes nothing below.
#[derive(Debug, Default)]
pub struct Backed {
    groups: BTreeSet<u32>,
    /// Steps of other groups, by their numbers.
    steps: BTreeSet<u64>,
}

/// The parts of an extent that are in one step each.
pub fn steps_of(place: Extent) -> impl Iterator<Item = Extent> {
    let mut rest = place;
    std::iter::from_fn(move || {
        let to_end = STEP_BLOCKS - rest.start.0 % STEP_BLOCKS;
        let (step, behind) = rest.split(to_end as u32);
        rest = behind;
        (step.blocks > 0).then_some(step)
    })
}

impl Backed {
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
        let (group, step) = (block.group(), block.0 / STEP_BLOCKS);
        if self.groups.contains(&group.0) || self.steps.contains(&step) {
            return Ok(());
        }
        let all = blocks_of(device, group);
        let below = device.disk().backing()?;
        let takes_all = below.is_none_or(|below| {
            below.available / GROUPS_LEFT_MIN >= u64::from(all.blocks) * BLOCK_BYTES
        });
        if takes_all {
            reserve(device, all)?;
            self.groups.insert(group.0);
            return Ok(());
        }
        let last = all.end().0.min((step + 1) * STEP_BLOCKS);
        let first = step * STEP_BLOCKS;
        reserve(device, Extent::new(Block(first), (last - first) as u32))?;
        self.steps.insert(step);
        Ok(())
    }
}

fn blocks_of(device: &ExtentDisk<Arc<dyn Disk>>, group: Group) -> Extent {
    Extent::new(group.block(0), device.geometry().blocks_of(group))
}

fn reserve(device: &ExtentDisk<Arc<dyn Disk>>, place: Extent) -> Result<()> {
    let offset = device.geometry().data_offset(place.start);
    let bytes = u64::from(place.blocks) * BLOCK_BYTES;
    device.disk().reserve(offset, bytes)
}
