//! Finding data and holes.

use base::ByteRange;
use layout::ObjectId;
use wire::ost::Reply;

use crate::failure::Outcome;
use crate::locks::Wish;
use crate::oss::Oss;
use crate::step::{Job, Need, Seek, Step};

/// Waits until no other client holds unwritten bytes where the answer may lie.
pub(crate) fn seek(object: ObjectId, offset: u64, hole: bool) -> Outcome<Step> {
    if offset == u64::MAX {
        return Err(base::FsError::NoData.into());
    }
    let wish = Wish::read(object, ByteRange::from(offset))?;
    let seek = Seek {
        object,
        offset,
        hole,
    };
    Ok(Step::Park(Job::Seek(seek), Need::Lock(wish)))
}

impl Oss {
    /// The lock is there.
    pub(crate) fn seek_locked(&self, seek: &Seek) -> Outcome<Step> {
        let found = self.objects.seek(seek.object, seek.offset, seek.hole)?;
        Step::answer(Reply::Offset(found))
    }
}
