//! Writing objects on extents: bytes go to new places, or to blocks of which no commit says what they hold.

use std::borrow::Cow;
use std::ops::Range;

use allocator::Length;

use super::ExtentObjects;
use super::reading::{blocks_of, by_segments};
use super::state::{For, State};
use crate::error::Result;
use crate::extents::log::BLOCK_BYTES;
use crate::extents::segment::{Content, Named, Piece, SEGMENT_BLOCKS};
use crate::objects::ObjectId;

const BLOCK: usize = BLOCK_BYTES as usize;

/// Whole blocks of one segment.
struct Run<'a> {
    id: ObjectId,
    number: u64,
    blocks: Range<u32>,
    bytes: &'a [u8],
    /// How long the object will be.
    length: Length,
}

impl ExtentObjects {
    /// Writes all of `data` at `offset`, a segment at a time.
    pub(super) fn write_parts(&self, id: ObjectId, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset + data.len() as u64;
        if data.is_empty() {
            return self.with_room(|state| {
                self.know_object(state, id)?;
                let size = state.object(id)?.size.unwrap_or(0);
                state.object(id)?.set_size(size);
                Ok(())
            });
        }
        self.with_room(|state| {
            self.know_object(state, id)?;
            let size = state.object(id)?.size.unwrap_or(0);
            // A write to the last block puts zeros there itself.
            match offset > size && offset / BLOCK_BYTES > size / BLOCK_BYTES {
                true => self.clear_tail(state, id),
                false => Ok(()),
            }
        })?;
        for (number, blocks) in by_segments(blocks_of(offset, end)) {
            let base = number * u64::from(SEGMENT_BLOCKS) * BLOCK_BYTES;
            let start = offset.max(base + u64::from(blocks.start) * BLOCK_BYTES);
            let stop = end.min(base + u64::from(blocks.end) * BLOCK_BYTES);
            // What was written stays so, whatever the next attempt finds.
            let mut from = start;
            self.with_room(|state| {
                // A commit since the last look may have forgotten it.
                self.know_object(state, id)?;
                let length = self.length(state, id, (offset, end))?;
                let part = &data[(from - offset) as usize..(stop - offset) as usize];
                self.write_part(state, id, &mut from, part, length)
                    .or_else(|error| {
                        let kept = self.take_back(state, id, (start, stop))?;
                        from = from.min(kept);
                        Err(error)
                    })
            })?;
        }
        Ok(())
    }

    /// Frees what a write of `start` to `stop` has put behind the object's end, before a commit names it: no
    /// object would have it. Says where that begins.
    fn take_back(&self, state: &mut State, id: ObjectId, (start, stop): (u64, u64)) -> Result<u64> {
        let size = state.object(id)?.size.unwrap_or(0);
        let kept = start.max(size.next_multiple_of(BLOCK_BYTES));
        for (number, range) in by_segments(blocks_of(kept, stop)) {
            state.free(id, number, range)?;
        }
        Ok(kept)
    }

    /// How long an object will be of which `offset` to `end` is written.
    fn length(&self, state: &mut State, id: ObjectId, (offset, end): (u64, u64)) -> Result<Length> {
        let object = state.object(id)?;
        let size = object.size.unwrap_or(0);
        let is_new = offset == 0 && object.blocks == 0;
        Ok(match is_new {
            // All of a small file comes at once.
            true => Length::Known(end.div_ceil(BLOCK_BYTES)),
            false => Length::Open(size.max(end).div_ceil(BLOCK_BYTES)),
        })
    }

    /// Bytes beyond the end within the last block must read as zero once the object goes on behind it.
    pub(super) fn clear_tail(&self, state: &mut State, id: ObjectId) -> Result<()> {
        let size = state.object(id)?.size.unwrap_or(0);
        let (block, used) = (size / BLOCK_BYTES, (size % BLOCK_BYTES) as usize);
        if used == 0 {
            return Ok(());
        }
        let mut bytes = self.raw_block(state, id, block)?;
        if bytes[used..].iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        bytes[used..].fill(0);
        self.put_blocks(state, id, block, &bytes)
    }

    /// Writes to blocks of one segment. Where that fails, `start` is moved behind what was written.
    fn write_part(
        &self,
        state: &mut State,
        id: ObjectId,
        start: &mut u64,
        data: &[u8],
        length: Length,
    ) -> Result<()> {
        let stop = *start + data.len() as u64;
        let blocks = blocks_of(*start, stop);
        let bytes = self.whole_blocks(state, id, *start, data)?;
        let (number, range) = by_segments(blocks.clone())
            .next()
            .unwrap_or((0, Range::default()));
        let run = Run {
            id,
            number,
            blocks: range,
            bytes: &bytes,
            length,
        };
        let mut at = run.blocks.start;
        let put = self.put_run(state, &run, &mut at);
        let done = blocks.start + u64::from(at - run.blocks.start);
        *start = stop.min(done * BLOCK_BYTES).max(*start);
        put?;
        let object = state.object(id)?;
        let size = object.size.unwrap_or(0).max(stop);
        object.set_size(size);
        Ok(())
    }

    /// The bytes of all blocks that `data` at `start` touches, what they have besides included.
    fn whole_blocks<'a>(
        &self,
        state: &mut State,
        id: ObjectId,
        start: u64,
        data: &'a [u8],
    ) -> Result<Cow<'a, [u8]>> {
        let stop = start + data.len() as u64;
        let (head, tail) = (
            (start % BLOCK_BYTES) as usize,
            (stop % BLOCK_BYTES) as usize,
        );
        if head == 0 && tail == 0 {
            return Ok(Cow::Borrowed(data));
        }
        let size = self.shape(state, id)?.map_or(0, |(size, _)| size);
        let blocks = blocks_of(start, stop);
        let mut bytes = vec![0; (blocks.end - blocks.start) as usize * BLOCK];
        if head > 0 {
            let old = self.block_until(state, id, blocks.start, size)?;
            bytes[..BLOCK].copy_from_slice(&old);
        }
        let is_read = head > 0 && blocks.end - blocks.start == 1;
        if tail > 0 && stop < size && !is_read {
            let old = self.block_until(state, id, blocks.end - 1, size)?;
            let last = bytes.len() - BLOCK;
            bytes[last..].copy_from_slice(&old);
        }
        bytes[head..head + data.len()].copy_from_slice(data);
        Ok(Cow::Owned(bytes))
    }

    /// A block of an object of `size` bytes: zeros behind its end.
    fn block_until(
        &self,
        state: &mut State,
        id: ObjectId,
        block: u64,
        size: u64,
    ) -> Result<Vec<u8>> {
        let start = block * BLOCK_BYTES;
        if start >= size {
            return Ok(vec![0; BLOCK]);
        }
        let mut bytes = self.raw_block(state, id, block)?;
        let used = (size - start).min(BLOCK_BYTES) as usize;
        bytes[used..].fill(0);
        Ok(bytes)
    }

    /// Zeros a part of one block, where it was written.
    pub(super) fn zero_in_block(
        &self,
        state: &mut State,
        id: ObjectId,
        block: u64,
        part: Range<usize>,
    ) -> Result<()> {
        let size = self.shape(state, id)?.map_or(0, |(size, _)| size);
        let mut bytes = self.block_until(state, id, block, size)?;
        if bytes[part.clone()].iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        bytes[part].fill(0);
        self.put_blocks(state, id, block, &bytes)
    }

    /// Puts a block that the object has.
    pub(super) fn put_blocks(
        &self,
        state: &mut State,
        id: ObjectId,
        block: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let blocks = block..block + (bytes.len() / BLOCK) as u64;
        let length = Length::Open(blocks.end);
        for (number, range) in by_segments(blocks) {
            let run = Run {
                id,
                number,
                blocks: range,
                bytes,
                length,
            };
            self.put_run(state, &run, &mut run.blocks.start.clone())?;
        }
        Ok(())
    }

    /// Writes whole blocks from block `at` of the run on: in place where no commit says what is there, else
    /// to new places. Moves `at` behind those that were written.
    fn put_run(&self, state: &mut State, run: &Run<'_>, at: &mut u32) -> Result<()> {
        self.know(state, run.id, run.number)?;
        while *at < run.blocks.end {
            let bytes = &run.bytes[(*at - run.blocks.start) as usize * BLOCK..];
            *at += match self.writable(state, run, *at)? {
                Some(piece) => self.write_there(state, run, piece, bytes)?,
                None => self.write_anew(state, run, *at, bytes)?,
            };
        }
        Ok(())
    }

    /// The piece from block `at` on, if it may be written in place.
    fn writable(&self, state: &mut State, run: &Run<'_>, at: u32) -> Result<Option<Piece>> {
        let segment = state.object(run.id)?.part(run.number);
        let piece = segment.and_then(|segment| segment.at(at));
        let piece = piece.filter(|piece| piece.is_writable());
        Ok(piece.map(|piece| piece.part(&(at..run.blocks.end))))
    }

    fn write_there(
        &self,
        state: &mut State,
        run: &Run<'_>,
        piece: Piece,
        bytes: &[u8],
    ) -> Result<u32> {
        let blocks = piece.place.blocks;
        let bytes = &bytes[..blocks as usize * BLOCK];
        state.device.write(piece.place.start, bytes)?;
        let range = piece.first..piece.end();
        let piece = Piece {
            content: content_of(bytes),
            ..piece
        };
        state.change(run.id, run.number, |part| {
            part.segment.take(&range);
            part.segment.put(piece);
        })?;
        Ok(blocks)
    }

    fn write_anew(&self, state: &mut State, run: &Run<'_>, at: u32, bytes: &[u8]) -> Result<u32> {
        let mut end = at + 1;
        let segment = state.object(run.id)?.part(run.number);
        let has = |block| segment?.at(block).map(Piece::is_writable);
        let replaces = has(at).is_some();
        while end < run.blocks.end && has(end) == replaces.then_some(false) {
            end += 1;
        }
        let logical = run.number * u64::from(SEGMENT_BLOCKS) + u64::from(at);
        let wanted = For {
            id: run.id,
            logical,
            length: match replaces {
                // What is replaced does not grow.
                true => Length::Known(logical + u64::from(end - at)),
                false => run.length,
            },
            goal: state.goal(run.id, run.number, at),
        };
        let place = state.place(wanted, end - at)?;
        let bytes = &bytes[..place.blocks as usize * BLOCK];
        state.device.write(place.start, bytes)?;
        state.free(run.id, run.number, at..at + place.blocks)?;
        let piece = Piece {
            first: at,
            place,
            content: content_of(bytes),
            named: Named::Not,
        };
        state.put(run.id, run.number, piece)?;
        Ok(place.blocks)
    }
}

fn content_of(bytes: &[u8]) -> Content {
    Content::Written(bytes.chunks_exact(BLOCK).map(crc32c::crc32c).collect())
}
