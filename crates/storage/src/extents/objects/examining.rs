//! The check of a store of objects on extents: its maps against its rows, and every byte against its sum.

use base::ByteRange;

use super::ExtentObjects;
use super::reading::NUMBERS_MAX;
use crate::error::{Result, StorageError};
use crate::extents::audit::{Finding, audit};
use crate::extents::log::BLOCK_BYTES;
use crate::extents::segment::SEGMENT_BLOCKS;
use crate::objects::ObjectId;

/// Bytes that are read at once.
const READ_BYTES: u64 = 1 << 20;

impl ExtentObjects {
    /// Compares the maps with the extents that objects have. All must be durable.
    pub fn audit(&self) -> Result<Vec<Finding>> {
        let mut named = Vec::new();
        for id in self.objects()? {
            self.each_segment(id, |_, segment| {
                named.extend(segment.pieces().iter().map(|piece| piece.place));
            })?;
        }
        Ok(audit(self.state().device.maps(), &named))
    }

    /// Reads every byte; calls `visit` with those of an object that are not what was written.
    pub fn examine(&self, visit: &mut dyn FnMut(ObjectId, ByteRange)) -> Result<()> {
        for id in self.objects()? {
            let mut numbers = Vec::new();
            self.each_segment(id, |number, _| numbers.push(number))?;
            for number in numbers {
                let start = number * u64::from(SEGMENT_BLOCKS) * BLOCK_BYTES;
                let end = start + u64::from(SEGMENT_BLOCKS) * BLOCK_BYTES;
                self.examine_range(id, ByteRange::new(start, end), READ_BYTES, visit)?;
            }
        }
        Ok(())
    }

    /// Reads so much at once; where that is damaged, a block at once.
    fn examine_range(
        &self,
        id: ObjectId,
        range: ByteRange,
        step: u64,
        visit: &mut dyn FnMut(ObjectId, ByteRange),
    ) -> Result<()> {
        for start in (range.start..range.end).step_by(step as usize) {
            let part = ByteRange::new(start, (start + step).min(range.end));
            match self.read_checked(id, start, part.len() as usize) {
                Err(StorageError::DamagedBytes { .. }) if step > BLOCK_BYTES => {
                    self.examine_range(id, part, BLOCK_BYTES, visit)?;
                }
                Err(StorageError::DamagedBytes { range, .. }) => visit(id, range),
                read => drop(read?),
            }
        }
        Ok(())
    }

    fn each_segment(
        &self,
        id: ObjectId,
        mut visit: impl FnMut(u64, &crate::extents::segment::Segment),
    ) -> Result<()> {
        let mut first = 0;
        loop {
            let state = self.state();
            let numbers = self.numbers(&state, id, first, NUMBERS_MAX)?;
            for number in &numbers {
                visit(*number, &self.segment(&state, id, *number)?);
            }
            match numbers.last() {
                Some(last) => first = last + 1,
                None => return Ok(()),
            }
        }
    }
}
