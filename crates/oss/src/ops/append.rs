//! Appending: the target picks the place, under a lock of its own on everything from there on.

use base::{ByteRange, Tick};
use wire::ost::Reply;

use crate::failure::Outcome;
use crate::locks::Wish;
use crate::objects::file_range;
use crate::oss::Oss;
use crate::step::{Append, Job, Need, Step};

impl Oss {
    /// Waits until nobody else holds anything at or after the end. Who could make the object
    /// longer with bytes not yet written holds a lock there, so the end is then known.
    pub(crate) fn append(&mut self, append: Append) -> Outcome<Step> {
        let from = self.objects.size(append.object)?;
        let wish = Wish::write(append.object, ByteRange::from(from))?;
        Ok(Step::Park(
            Job::Append(Append { from, ..append }),
            Need::Lock(wish),
        ))
    }

    /// The lock is there.
    pub(crate) fn append_locked(&mut self, now: Tick, append: Append) -> Outcome<Step> {
        let offset = self.objects.size(append.object)?;
        if offset < append.from {
            // Cut while we waited: the bytes between may be locked by others.
            return self.append(append);
        }
        let range = file_range(offset, append.data.len() as u64)?;
        self.objects.admit(append.object, append.change.ticket)?;
        self.objects.admit_growth(append.object, range)?;
        let transno = self.modified(now, append.data.len() as u64);
        self.objects
            .write(append.object, offset, &append.data, append.change)?;
        let attr = self.objects.attr(append.object)?;
        Ok(Step::Done(Reply::Appended { offset, attr }.into(), transno))
    }
}
