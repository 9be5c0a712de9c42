//! Changing where an object on extents has bytes: its size, holes, reserved space, its removal.

use allocator::Length;
use base::ByteRange;

use super::ExtentObjects;
use super::reading::{NUMBERS_MAX, blocks_of, by_segments};
use super::state::{For, State};
use crate::error::{Result, StorageError};
use crate::extents::changed::segment_of;
use crate::extents::log::BLOCK_BYTES;
use crate::extents::segment::{Content, Named, Piece, SEGMENT_BLOCKS};
use crate::objects::ObjectId;

impl ExtentObjects {
    /// Cuts or grows an object, which is made where there is none.
    pub(super) fn set_size(&self, state: &mut State, id: ObjectId, size: u64) -> Result<()> {
        self.know_object(state, id)?;
        let before = state.object(id)?.size.unwrap_or(0);
        if size > before {
            self.clear_tail(state, id)?;
        }
        // Space that was reserved beyond the end goes with any new one.
        self.free_from(state, id, size.div_ceil(BLOCK_BYTES))?;
        state.release(id);
        state.object(id)?.set_size(size);
        Ok(())
    }

    /// Frees all blocks of an object from `block` on.
    fn free_from(&self, state: &mut State, id: ObjectId, block: u64) -> Result<()> {
        let (mut first, mut from) = segment_of(block);
        loop {
            let numbers = self.numbers(state, id, first, NUMBERS_MAX)?;
            for number in &numbers {
                self.know(state, id, *number)?;
                let start = if *number == first { from } else { 0 };
                state.free(id, *number, start..SEGMENT_BLOCKS)?;
            }
            if numbers.len() < NUMBERS_MAX {
                return Ok(());
            }
            (first, from) = (numbers[numbers.len() - 1] + 1, 0);
        }
    }

    /// Frees the blocks that lie in `range` whole, and zeros the rest of it.
    pub(super) fn make_hole(
        &self,
        state: &mut State,
        id: ObjectId,
        range: ByteRange,
    ) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        self.know_object(state, id)?;
        let (first, end) = (range.start.div_ceil(BLOCK_BYTES), range.end / BLOCK_BYTES);
        let within = |at: u64| (at % BLOCK_BYTES) as usize;
        if first > end {
            let part = within(range.start)..within(range.end);
            return self.zero_in_block(state, id, end, part);
        }
        if within(range.start) > 0 {
            let part = within(range.start)..BLOCK_BYTES as usize;
            self.zero_in_block(state, id, first - 1, part)?;
        }
        if within(range.end) > 0 {
            self.zero_in_block(state, id, end, 0..within(range.end))?;
        }
        let (mut next, _) = segment_of(first);
        loop {
            let numbers = self.numbers(state, id, next, NUMBERS_MAX)?;
            for number in &numbers {
                let base = number * u64::from(SEGMENT_BLOCKS);
                let inside =
                    |block: u64| block.saturating_sub(base).min(u64::from(SEGMENT_BLOCKS)) as u32;
                if base >= end {
                    return Ok(());
                }
                self.know(state, id, *number)?;
                state.free(id, *number, inside(first)..inside(end))?;
            }
            if numbers.len() < NUMBERS_MAX {
                return Ok(());
            }
            next = numbers[numbers.len() - 1] + 1;
        }
    }

    /// Gives an object all blocks of `range`; those it does not have are unwritten.
    pub(super) fn take_space(
        &self,
        state: &mut State,
        id: ObjectId,
        range: ByteRange,
        keep_size: bool,
    ) -> Result<()> {
        self.know_object(state, id)?;
        let size = state.object(id)?.size.unwrap_or(0);
        let grows = !keep_size && !range.is_empty() && range.end > size;
        let blocks = match range.is_empty() {
            true => 0..0,
            false => blocks_of(range.start, range.end),
        };
        let wanted = (blocks.end - blocks.start).saturating_sub(state.object(id)?.blocks);
        if wanted > state.room() {
            return Err(StorageError::NoSpace { at: self.at(id) });
        }
        if grows {
            self.clear_tail(state, id)?;
        }
        let mut filled = Vec::new();
        for (number, part) in by_segments(blocks.clone()) {
            self.know(state, id, number)?;
            let known = state.object(id)?.part(number);
            let holes = known.map(|known| known.holes(&part));
            for hole in holes.unwrap_or_default() {
                filled.push((number, hole.clone()));
                if let Err(error) = self.fill_hole(state, (id, number), hole, blocks.end) {
                    // An object that is not made has none of it.
                    for (number, hole) in filled {
                        state.free(id, number, hole)?;
                    }
                    return Err(error);
                }
            }
        }
        let size = if grows { range.end } else { size };
        state.object(id)?.set_size(size);
        Ok(())
    }

    fn fill_hole(
        &self,
        state: &mut State,
        (id, number): (ObjectId, u64),
        hole: std::ops::Range<u32>,
        length: u64,
    ) -> Result<()> {
        let mut at = hole.start;
        while at < hole.end {
            let wanted = For {
                id,
                logical: number * u64::from(SEGMENT_BLOCKS) + u64::from(at),
                length: Length::Known(length),
                goal: state.goal(id, number, at),
            };
            let place = state.place(wanted, hole.end - at)?;
            let piece = Piece {
                first: at,
                place,
                content: Content::Unwritten,
                named: Named::Not,
            };
            state.put(id, number, piece)?;
            at += place.blocks;
        }
        Ok(())
    }

    /// Removes an object; says whether it was there.
    pub(super) fn take_away(&self, id: ObjectId) -> Result<bool> {
        let mut state = self.state();
        state.device.check_running()?;
        self.know_object(&mut state, id)?;
        if state.object(id)?.size.is_none() {
            return Ok(false);
        }
        self.free_from(&mut state, id, 0)?;
        state.release(id);
        state.object(id)?.remove();
        Ok(true)
    }
}
