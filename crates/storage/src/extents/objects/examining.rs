//! The check of a store of objects on extents: its maps against its rows, and every byte against its sum.

use std::collections::BTreeSet;

use base::ByteRange;

use super::ExtentObjects;
use super::reading::NUMBERS_MAX;
use super::state::State;
use crate::error::{Result, StorageError};
use crate::extents::audit::{Finding, audit};
use crate::extents::commit::Commit;
use crate::extents::log::BLOCK_BYTES;
use crate::extents::segment::{SEGMENT_BLOCKS, Segment};
use crate::objects::{Flaw, ObjectId, ObjectStore};

/// Bytes that are read at once.
const READ_BYTES: u64 = 1 << 20;

/// The part of a range that an object of `size` bytes has.
fn clipped(range: ByteRange, size: u64) -> ByteRange {
    let end = range.end.min(size).max(range.start);
    ByteRange::new(range.start, end)
}

impl ExtentObjects {
    /// Compares the maps with the extents that objects have, both as of the last commit.
    pub fn audit(&self) -> Result<Vec<Finding>> {
        let mut state = self.state();
        let mut objects: BTreeSet<ObjectId> = self.records.objects()?.into_iter().collect();
        objects.extend(state.changed.keys());
        let mut named = Vec::new();
        for id in objects {
            self.each_segment(&state, id, |number, segment| {
                let changed = state.changed.get(&id);
                let places = segment.pieces().iter().map(|piece| piece.place);
                match changed.and_then(|object| object.named(number)) {
                    Some(extents) => named.extend(extents),
                    None => named.extend(places),
                }
            })?;
        }
        Ok(audit(state.device.all_maps()?, &named))
    }

    /// Reads every byte, and compares the maps.
    pub(super) fn examine(&self, visit: &mut dyn FnMut(Flaw)) -> Result<()> {
        for finding in self.audit()? {
            visit(match finding {
                Finding::Twice(extent) => Flaw::Twice(extent),
                Finding::Free(extent) => Flaw::Free(extent),
                Finding::Leaked(extent) => Flaw::Leaked(extent),
            });
        }
        for id in self.objects()? {
            let size = self.stat(id)?.unwrap_or_default().size;
            let mut numbers = Vec::new();
            self.each_segment(&self.state(), id, |number, _| numbers.push(number))?;
            for number in numbers {
                let start = number * u64::from(SEGMENT_BLOCKS) * BLOCK_BYTES;
                let end = start + u64::from(SEGMENT_BLOCKS) * BLOCK_BYTES;
                let range = ByteRange::new(start, end);
                self.examine_range(id, range, READ_BYTES, &mut |flaw| {
                    visit(match flaw {
                        // The rest of the last block is nobody's.
                        Flaw::Bytes(id, found) => Flaw::Bytes(id, clipped(found, size)),
                        other => other,
                    });
                })?;
            }
        }
        Ok(())
    }

    /// Frees blocks that no object has, durably. Nothing else may change meanwhile.
    pub(super) fn free_leaks(&self) -> Result<u64> {
        self.sync_all()?;
        let leaked = self
            .audit()?
            .into_iter()
            .filter_map(|finding| match finding {
                Finding::Leaked(extent) => Some(extent),
                Finding::Twice(_) | Finding::Free(_) => None,
            });
        let commit = Commit {
            freed: leaked.collect(),
            ..Commit::default()
        };
        let blocks = commit.freed.iter().map(|extent| u64::from(extent.blocks));
        let blocks = blocks.sum();
        if blocks > 0 {
            self.state().device.commit(&commit)?;
            self.sync_all()?;
        }
        Ok(blocks)
    }

    /// Reads so much at once; where that is damaged, a block at once.
    fn examine_range(
        &self,
        id: ObjectId,
        range: ByteRange,
        step: u64,
        visit: &mut dyn FnMut(Flaw),
    ) -> Result<()> {
        for start in (range.start..range.end).step_by(step as usize) {
            let part = ByteRange::new(start, (start + step).min(range.end));
            match self.read_checked(id, start, part.len() as usize) {
                Err(StorageError::DamagedBytes { .. }) if step > BLOCK_BYTES => {
                    self.examine_range(id, part, BLOCK_BYTES, visit)?;
                }
                Err(StorageError::DamagedBytes { range, .. }) => visit(Flaw::Bytes(id, range)),
                read => drop(read?),
            }
        }
        Ok(())
    }

    fn each_segment(
        &self,
        state: &State,
        id: ObjectId,
        mut visit: impl FnMut(u64, &Segment),
    ) -> Result<()> {
        let mut first = 0;
        loop {
            let numbers = self.numbers(state, id, first, NUMBERS_MAX)?;
            for number in &numbers {
                visit(*number, &self.segment(state, id, *number)?);
            }
            match numbers.last() {
                Some(last) => first = last + 1,
                None => return Ok(()),
            }
        }
    }
}
