//! Moving small objects together in idle time: those that one frame read together, and that lie apart.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use allocator::{Extent, is_scattered, visits};
use threads::MutexGuard;

use super::ExtentObjects;
use super::scattered::Scattered;
use super::state::State;
use crate::error::{Result, StorageError};
use crate::extents::log::BLOCK_BYTES;
use crate::extents::segment::{Named, Segment};
use crate::objects::ObjectId;

/// Blocks of an object that is moved. Larger ones have runs of their own.
const SMALL_BLOCKS_MAX: u64 = 255;
/// Sets that are moved between two looks of the caller.
const SETS_AT_ONCE: usize = 16;

impl ExtentObjects {
    fn scattered(&self) -> MutexGuard<'_, Scattered> {
        self.scattered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers objects that a frame reads together, if their bytes, at `places`, lie apart.
    pub(super) fn note_together(
        &self,
        objects: impl IntoIterator<Item = ObjectId>,
        places: &[Extent],
    ) {
        if is_scattered(places) {
            self.scattered().add(objects.into_iter().collect());
        }
    }

    /// Somebody reads or writes: this is no idle time.
    pub(super) fn note_work(&self) {
        self.work.fetch_add(1, Ordering::Relaxed);
    }

    /// Moves what lies apart, as long as nobody reads or writes.
    pub(super) fn tidy(&self) -> Result<()> {
        let work = self.work.load(Ordering::Relaxed);
        let is_idle = || self.work.load(Ordering::Relaxed) == work;
        if self.work_seen.swap(work, Ordering::Relaxed) != work {
            return Ok(());
        }
        self.shrink_in_idle_time(&is_idle)?;
        let mut moved = false;
        for _ in 0..SETS_AT_ONCE {
            let Some(objects) = self.scattered().take() else {
                break;
            };
            match self.move_together(&objects, &is_idle) {
                Ok(any) => moved |= any,
                // A full or damaged place is named by those who need it.
                Err(StorageError::NoSpace { .. } | StorageError::DamagedBytes { .. }) => {}
                Err(error) => return Err(error),
            }
            if !is_idle() {
                self.scattered().add(objects);
                break;
            }
        }
        match moved {
            true => self.make_durable(None),
            false => Ok(()),
        }
    }

    /// Writes these objects anew, one behind the other, if there is a better place.
    fn move_together(&self, objects: &[ObjectId], is_idle: &dyn Fn() -> bool) -> Result<bool> {
        if !self.prepare_place(objects)? {
            return Ok(false);
        }
        for id in objects {
            if !is_idle() {
                break;
            }
            self.move_one(&mut self.state(), *id)?;
        }
        Ok(true)
    }

    /// Reserves a run for them. `false`: there is none that is better than where they are.
    fn prepare_place(&self, objects: &[ObjectId]) -> Result<bool> {
        let mut state = self.state();
        let (mut places, mut blocks) = (Vec::new(), 0);
        for id in objects {
            if let Some(segment) = self.movable(&state, *id)? {
                places.extend(segment.pieces().iter().map(|piece| piece.place));
                blocks += segment.blocks();
            }
        }
        if !is_scattered(&places) {
            return Ok(false);
        }
        let run = u64::from(state.device.prepare_small(blocks)?);
        Ok(u64::from(blocks).div_ceil(run.max(1)) * 4 <= visits(&places) * 3)
    }

    /// The blocks of a small object whose bytes are durable; `None`: it has others, or none.
    fn movable(&self, state: &State, id: ObjectId) -> Result<Option<Segment>> {
        let shape = self.shape(state, id)?;
        let Some((_, blocks)) = shape.filter(|(_, blocks)| (1..=SMALL_BLOCKS_MAX).contains(blocks))
        else {
            return Ok(None);
        };
        let segment = self.segment(state, id, 0)?;
        let mut pieces = segment.pieces().iter();
        let is_durable = pieces.all(|piece| piece.named == Named::Written);
        let is_all = u64::from(segment.blocks()) == blocks;
        Ok((is_durable && is_all).then_some(segment))
    }

    fn move_one(&self, state: &mut State, id: ObjectId) -> Result<()> {
        let Some(segment) = self.movable(state, id)? else {
            return Ok(());
        };
        for piece in segment.pieces() {
            let mut bytes =
                Vec::with_capacity((u64::from(piece.place.blocks) * BLOCK_BYTES) as usize);
            for block in piece.first..piece.end() {
                bytes.extend(self.raw_block(state, id, block.into())?);
            }
            self.put_blocks(state, id, piece.first.into(), &bytes)?;
        }
        Ok(())
    }
}
