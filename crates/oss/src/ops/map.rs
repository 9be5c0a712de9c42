//! Where an object lies on the disk.

use base::{ByteRange, FsError};
use layout::ObjectId;
use wire::ost::{Reply, StoredExtent};

use crate::failure::Outcome;
use crate::locks::Wish;
use crate::oss::Oss;
use crate::step::{Job, Need, Step};

/// About so many extents are told at once.
const EXTENTS_MAX: usize = 1000;

/// Waits until no other client holds unwritten bytes that have yet to get a place.
pub(crate) fn map(object: ObjectId, offset: u64) -> Outcome<Step> {
    if offset == u64::MAX {
        return Err(FsError::Invalid.into());
    }
    let wish = Wish::read(object, ByteRange::from(offset))?;
    Ok(Step::Park(Job::Map { object, offset }, Need::Lock(wish)))
}

impl Oss {
    /// The lock is there.
    pub(crate) fn map_locked(&self, object: ObjectId, offset: u64) -> Outcome<Step> {
        let found = self.objects.map(object, offset, EXTENTS_MAX)?;
        let extents = found.extents.into_iter().map(|placed| StoredExtent {
            offset: placed.offset,
            bytes: placed.bytes,
            block: placed.block.0,
            written: placed.is_written,
        });
        Step::answer(Reply::Map {
            extents: extents.collect(),
            next: found.next,
        })
    }
}
