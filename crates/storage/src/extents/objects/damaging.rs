//! Marks bytes of objects as damaged that another store of them has found so (`glint upgrade`).

use base::ByteRange;

use super::ExtentObjects;
use super::reading::{blocks_of, by_segments};
use crate::error::Result;
use crate::extents::segment::Content;
use crate::objects::ObjectId;

impl ExtentObjects {
    /// The durable blocks that `range` touches are not what was written, as another store of the object has
    /// found out. Reads of them fail from now on, and after a restart when this is durable.
    pub fn mark_damaged(&self, id: ObjectId, range: ByteRange) -> Result<()> {
        let mut state = self.state();
        for (number, blocks) in by_segments(blocks_of(range.start, range.end)) {
            self.know(&mut state, id, number)?;
            state.change(id, number, |part| {
                for mut piece in part.segment.take(&blocks) {
                    if let Content::Written(sums) = &mut piece.content {
                        sums.iter_mut().for_each(|sum| *sum = !*sum);
                    }
                    part.segment.put(piece);
                }
            })?;
        }
        Ok(())
    }
}
