//! Reading objects on extents: where their bytes are, the bytes, and whether they are what was written.

use std::collections::btree_map::Entry;
use std::ops::Range;

use allocator::{Extent, Io};
use base::ByteRange;
use bytes::Bytes;

use super::ExtentObjects;
use super::state::State;
use crate::disk::Disk;
use crate::error::{Result, StorageError};
use crate::extents::changed::{Object, segment_of};
use crate::extents::log::BLOCK_BYTES;
use crate::extents::segment::{Content, Piece, SEGMENT_BLOCKS, Segment};
use crate::objects::ObjectId;

const BLOCK: usize = BLOCK_BYTES as usize;

/// Blocks in a row, and their sums.
#[derive(Debug)]
pub(super) struct Source {
    /// The block of the object where they begin.
    first: u64,
    pub(super) place: Extent,
    sums: Vec<u32>,
}

impl Source {
    /// The first block whose bytes are not what its sum says.
    fn mismatch(&self, bytes: &[u8]) -> Option<Mismatch> {
        let blocks = (self.first..)
            .zip(&self.sums)
            .zip(bytes.chunks_exact(BLOCK));
        let mut wrong = blocks.filter(|((_, sum), bytes)| crc32c::crc32c(bytes) != **sum);
        wrong
            .next()
            .map(|((block, sum), _)| Mismatch { block, sum: *sum })
    }
}

/// What a read will do.
struct Plan {
    size: u64,
    sources: Vec<Source>,
    io: Io,
}

/// A block whose bytes are not what its sum says.
struct Mismatch {
    block: u64,
    sum: u32,
}

/// The blocks of the object that bytes `offset` to `end` touch.
pub(super) fn blocks_of(offset: u64, end: u64) -> Range<u64> {
    offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)
}

/// The parts of blocks that are in one segment each: its number, and the blocks in it.
pub(super) fn by_segments(blocks: Range<u64>) -> impl Iterator<Item = (u64, Range<u32>)> {
    let mut next = blocks.start;
    std::iter::from_fn(move || {
        let (number, first) = segment_of(next);
        let left = blocks.end.checked_sub(next).filter(|left| *left > 0)?;
        let count = left.min(u64::from(SEGMENT_BLOCKS - first)) as u32;
        next += u64::from(count);
        Some((number, first..first + count))
    })
}

impl ExtentObjects {
    /// An object's size and blocks.
    pub(super) fn shape(&self, state: &State, id: ObjectId) -> Result<Option<(u64, u64)>> {
        if let Some(object) = state.changed.get(&id) {
            return Ok(object.size.map(|size| (size, object.blocks)));
        }
        let head = self.records.head(id)?;
        Ok(head.map(|(head, _)| (head.size, head.blocks)))
    }

    /// A segment as it is now.
    pub(super) fn segment(&self, state: &State, id: ObjectId, number: u64) -> Result<Segment> {
        let rows = match state.changed.get(&id) {
            Some(object) => match object.part(number) {
                Some(segment) => return Ok(segment.clone()),
                None => object.has_segment_rows(),
            },
            None => match self.records.head(id)? {
                Some((_, Some(whole))) if number == 0 => return Ok(whole),
                head => head.is_some_and(|(head, _)| !head.is_whole),
            },
        };
        match rows {
            true => self.records.segment(id, number),
            false => Ok(Segment::default()),
        }
    }

    /// Sees to it that `state` has the object and its segment `number`, to be changed.
    pub(super) fn know(&self, state: &mut State, id: ObjectId, number: u64) -> Result<()> {
        self.know_object(state, id)?;
        if state.object(id)?.part(number).is_none() {
            let segment = self.segment(state, id, number)?;
            state.object(id)?.know(number, segment);
        }
        Ok(())
    }

    /// The same for the object alone.
    pub(super) fn know_object(&self, state: &mut State, id: ObjectId) -> Result<()> {
        if let Entry::Vacant(place) = state.changed.entry(id) {
            place.insert(Object::of_rows(self.records.head(id)?));
        }
        Ok(())
    }

    /// The segments from `first` on that may have blocks, ascending, at most `limit` of those with rows.
    pub(super) fn numbers(
        &self,
        state: &State,
        id: ObjectId,
        first: u64,
        limit: usize,
    ) -> Result<Vec<u64>> {
        let (mut found, has_rows) = match state.changed.get(&id) {
            Some(object) => (
                object.numbers(first).collect::<Vec<_>>(),
                object.has_segment_rows(),
            ),
            None => match self.records.head(id)? {
                Some((head, _)) if head.is_whole => (vec![0], false),
                head => (Vec::new(), head.is_some()),
            },
        };
        if has_rows {
            let rows = self.records.segments(id, first, limit)?;
            // Rows behind these come with the next call, and so do changes behind them.
            if let Some(last) = rows.get(limit - 1) {
                found.retain(|number| number <= last);
            }
            found.extend(rows);
        }
        found.retain(|number| *number >= first);
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Up to `len` bytes at `offset`, checked.
    pub(super) fn read_checked(&self, id: ObjectId, offset: u64, len: usize) -> Result<Bytes> {
        loop {
            let Some(plan) = self.plan(id, offset, len)? else {
                return Ok(Bytes::new());
            };
            let end = plan.size.min(offset.saturating_add(len as u64));
            let blocks = blocks_of(offset, end);
            let mut bytes = vec![0; (blocks.end - blocks.start) as usize * BLOCK];
            let read = self.fill(&plan.sources, blocks.start, &mut bytes);
            self.state().end_read(plan.io);
            self.read_ended.notify_all();
            match read? {
                None => {
                    let skipped = (offset - blocks.start * BLOCK_BYTES) as usize;
                    let bytes = Bytes::from(bytes);
                    return Ok(bytes.slice(skipped..skipped + (end - offset) as usize));
                }
                // Or it was written meanwhile.
                Some(wrong) => self.check_changed(id, &wrong)?,
            }
        }
    }

    fn plan(&self, id: ObjectId, offset: u64, len: usize) -> Result<Option<Plan>> {
        let mut state = self.state();
        let Some((size, sources)) = self.sources(&mut state, id, offset, len)? else {
            return Ok(None);
        };
        let io = state.begin_read();
        Ok(Some(Plan { size, sources, io }))
    }

    /// An object's size, and where its bytes from `offset` on are, which can be read then. None: there are
    /// none.
    pub(super) fn sources(
        &self,
        state: &mut State,
        id: ObjectId,
        offset: u64,
        len: usize,
    ) -> Result<Option<(u64, Vec<Source>)>> {
        let shape = self.shape(state, id)?;
        let Some((size, _)) = shape.filter(|(size, _)| offset < *size && len > 0) else {
            return Ok(None);
        };
        let end = size.min(offset.saturating_add(len as u64));
        let mut sources: Vec<Source> = Vec::new();
        for (number, range) in by_segments(blocks_of(offset, end)) {
            let segment = self.segment(state, id, number)?;
            for piece in segment.parts(&range) {
                add_source(&mut sources, number, piece);
            }
        }
        for source in &sources {
            state.device.make_readable(source.place)?;
        }
        Ok(Some((size, sources)))
    }

    /// Reads to `bytes`, which begin with block `first`. Says of which block the sum is wrong.
    fn fill(&self, sources: &[Source], first: u64, bytes: &mut [u8]) -> Result<Option<Mismatch>> {
        for source in sources {
            let start = (source.first - first) as usize * BLOCK;
            let buffer = &mut bytes[start..start + source.place.blocks as usize * BLOCK];
            if self.ahead().copy(source.place, buffer) && source.mismatch(buffer).is_none() {
                continue;
            }
            let offset = self.geometry.data_offset(source.place.start);
            self.disk.read(offset, buffer)?;
            if let Some(wrong) = source.mismatch(buffer) {
                return Ok(Some(wrong));
            }
        }
        Ok(None)
    }

    /// Fails where the block still has that sum: then its bytes are damaged.
    fn check_changed(&self, id: ObjectId, wrong: &Mismatch) -> Result<()> {
        let (number, block) = segment_of(wrong.block);
        let segment = self.segment(&self.state(), id, number)?;
        let sum = segment.at(block).and_then(|piece| piece.sum_of(block));
        if sum != Some(wrong.sum) {
            return Ok(());
        }
        let start = wrong.block * BLOCK_BYTES;
        Err(StorageError::DamagedBytes {
            at: self.at(id),
            range: ByteRange::new(start, start + BLOCK_BYTES),
        })
    }

    /// The bytes of one block as they lie there; zeros where none were written.
    pub(super) fn raw_block(&self, state: &mut State, id: ObjectId, block: u64) -> Result<Vec<u8>> {
        let (number, block_in) = segment_of(block);
        let segment = self.segment(state, id, number)?;
        let mut bytes = vec![0; BLOCK];
        let mut sources = Vec::new();
        for piece in segment.parts(&(block_in..block_in + 1)) {
            state.device.make_readable(piece.place)?;
            add_source(&mut sources, number, piece);
        }
        match self.fill(&sources, block, &mut bytes)? {
            None => Ok(bytes),
            // Nobody else changes it: this is the one who does.
            Some(wrong) => {
                let start = wrong.block * BLOCK_BYTES;
                Err(StorageError::DamagedBytes {
                    at: self.at(id),
                    range: ByteRange::new(start, start + BLOCK_BYTES),
                })
            }
        }
    }

    /// A read of these bytes has to wait for a device.
    pub(super) fn must_wait(&self, id: ObjectId, offset: u64, len: usize) -> Result<bool> {
        let mut state = self.state();
        let end = offset.saturating_add(len as u64);
        let Some((number, range)) = by_segments(blocks_of(offset, end)).next() else {
            return Ok(false);
        };
        let segment = self.segment(&state, id, number)?;
        for piece in segment.parts(&range) {
            state.device.make_readable(piece.place)?;
        }
        drop(state);
        let mut parts = segment.parts(&range).into_iter();
        Ok(parts.any(|piece| {
            let offset = self.geometry.data_offset(piece.place.start);
            let len = u64::from(piece.place.blocks) * BLOCK_BYTES;
            !self.ahead().has(piece.place)
                && matches!(piece.content, Content::Written(_))
                && self.disk.is_cold(offset, len)
        }))
    }

    /// The first byte from `offset` on that was written.
    pub(super) fn next_data(&self, id: ObjectId, offset: u64) -> Result<Option<u64>> {
        let state = self.state();
        let Some((size, _)) = self.shape(&state, id)? else {
            return Ok(None);
        };
        let (mut first, mut block) = segment_of(offset / BLOCK_BYTES);
        loop {
            let numbers = self.numbers(&state, id, first, NUMBERS_MAX)?;
            for number in &numbers {
                let segment = self.segment(&state, id, *number)?;
                let from = if *number == first { block } else { 0 };
                let mut parts = segment.parts(&(from..SEGMENT_BLOCKS)).into_iter();
                let written = parts.find(|piece| matches!(piece.content, Content::Written(_)));
                if let Some(piece) = written {
                    let found =
                        (number * u64::from(SEGMENT_BLOCKS) + u64::from(piece.first)) * BLOCK_BYTES;
                    return Ok(Some(found.max(offset)).filter(|found| *found < size));
                }
            }
            match numbers.last() {
                Some(last) if last * u64::from(SEGMENT_BLOCKS) * BLOCK_BYTES < size => {
                    (first, block) = (last + 1, 0);
                }
                _ => return Ok(None),
            }
        }
    }

    /// The first byte from `offset` on that was not written, or the end.
    pub(super) fn next_hole(&self, id: ObjectId, offset: u64) -> Result<Option<u64>> {
        let state = self.state();
        let Some((size, _)) = self.shape(&state, id)?.filter(|(size, _)| offset < *size) else {
            return Ok(None);
        };
        for (number, range) in by_segments(blocks_of(offset, size)) {
            let segment = self.segment(&state, id, number)?;
            let mut at = range.start;
            for piece in segment.parts(&range) {
                if piece.first > at || piece.content == Content::Unwritten {
                    break;
                }
                at = piece.end();
            }
            if at < range.end {
                let found = (number * u64::from(SEGMENT_BLOCKS) + u64::from(at)) * BLOCK_BYTES;
                return Ok(Some(found.max(offset).min(size)));
            }
        }
        Ok(Some(size))
    }

    /// Every object there is.
    pub(super) fn objects(&self) -> Result<Vec<ObjectId>> {
        let state = self.state();
        let mut found = self.records.objects()?;
        found.retain(|id| !state.changed.contains_key(id));
        let changed = state.changed.iter();
        let there = changed.filter(|(_, object)| object.size.is_some());
        found.extend(there.map(|(id, _)| *id));
        Ok(found)
    }
}

/// Segments with rows that are looked at in one go.
pub(super) const NUMBERS_MAX: usize = 1024;

fn add_source(sources: &mut Vec<Source>, number: u64, piece: Piece) {
    let first = number * u64::from(SEGMENT_BLOCKS) + u64::from(piece.first);
    let Content::Written(sums) = piece.content else {
        return;
    };
    match sources.last_mut() {
        Some(last)
            if last.place.end() == piece.place.start
                && last.first + u64::from(last.place.blocks) == first =>
        {
            last.place.blocks += piece.place.blocks;
            last.sums.extend(sums);
        }
        _ => sources.push(Source {
            first,
            place: piece.place,
            sums,
        }),
    }
}
