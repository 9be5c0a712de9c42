//! Finding data and holes.

use base::ByteRange;
use wire::ost::Reply;

use crate::failure::Outcome;
use crate::locks::Wish;
use crate::oss::Oss;
use crate::step::{Job, Need, Seek, Step};

/// Waits until no other client holds unwritten bytes where the answer may lie.
pub(crate) fn seek(seek: Seek) -> Outcome<Step> {
    if seek.offset == u64::MAX {
        return Err(base::FsError::NoData.into());
    }
    let wish = Wish::read(seek.object, ByteRange::from(seek.offset))?;
    Ok(Step::Park(Job::Seek(seek), Need::Lock(wish)))
}

impl Oss {
    /// The lock is there.
    pub(crate) fn seek_locked(&self, seek: &Seek) -> Outcome<Step> {
        let found = self.objects.seek(seek.object, seek.offset, seek.hole)?;
        Step::answer(Reply::Offset(found))
    }
}
