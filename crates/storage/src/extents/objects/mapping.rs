//! Where an object lies on the disk, for who wants to see it.

use super::ExtentObjects;
use super::reading::NUMBERS_MAX;
use crate::error::Result;
use crate::extents::changed::segment_of;
use crate::extents::log::BLOCK_BYTES;
use crate::extents::segment::{Content, Piece, SEGMENT_BLOCKS};
use crate::objects::{ObjectId, ObjectMap, Placed};

/// A piece of segment `number`, in bytes of the object.
fn placed(number: u64, piece: &Piece) -> Placed {
    let first = number * u64::from(SEGMENT_BLOCKS) + u64::from(piece.first);
    Placed {
        offset: first * BLOCK_BYTES,
        bytes: u64::from(piece.place.blocks) * BLOCK_BYTES,
        block: piece.place.start,
        is_written: matches!(piece.content, Content::Written(_)),
    }
}

impl ExtentObjects {
    /// The extents from the block of `offset` on: those of whole segments, until there are `limit`.
    pub(super) fn map_from(&self, id: ObjectId, offset: u64, limit: usize) -> Result<ObjectMap> {
        let state = self.state();
        let mut map = ObjectMap::default();
        if self.shape(&state, id)?.is_none() {
            return Ok(map);
        }
        let (first, block) = segment_of(offset / BLOCK_BYTES);
        let numbers = self.numbers(&state, id, first, NUMBERS_MAX)?;
        for number in &numbers {
            if map.extents.len() >= limit {
                map.next = Some(number * u64::from(SEGMENT_BLOCKS) * BLOCK_BYTES);
                return Ok(map);
            }
            let segment = self.segment(&state, id, *number)?;
            let from = if *number == first { block } else { 0 };
            let parts = segment.parts(&(from..SEGMENT_BLOCKS));
            map.extents
                .extend(parts.iter().map(|piece| placed(*number, piece)));
        }
        let last = numbers.last().filter(|_| numbers.len() == NUMBERS_MAX);
        map.next = last.map(|last| (last + 1) * u64::from(SEGMENT_BLOCKS) * BLOCK_BYTES);
        Ok(map)
    }
}
