//! Reserving, freeing and zeroing ranges.

use base::limits::FILE_BYTES_MAX;
use base::{ByteRange, ClientId, FsError, Tick};
use layout::ObjectId;
use wire::ost::{AllocateMode, Reply};

use crate::failure::Outcome;
use crate::locks::Wish;
use crate::objects::Change;
use crate::oss::{Job, Need, Oss, Step};

/// What is to be done to which range.
#[derive(Debug)]
pub(crate) struct Allocate {
    pub object: ObjectId,
    pub range: ByteRange,
    pub mode: AllocateMode,
    pub change: Change,
}

/// What must be locked: the range; everything after it, too, where the size can change.
fn wish_of(allocate: &mut Allocate) -> Outcome<Wish> {
    let range = &mut allocate.range;
    if allocate.mode == AllocateMode::PunchHole {
        // A hole may reach to the end of file and beyond.
        range.end = range.end.min(FILE_BYTES_MAX);
    }
    if range.is_empty() {
        return Err(FsError::Invalid.into());
    }
    if range.end > FILE_BYTES_MAX {
        return Err(FsError::FileTooBig.into());
    }
    let grows = matches!(allocate.mode, AllocateMode::Extend | AllocateMode::Zero);
    let locked = if grows {
        ByteRange::from(range.start)
    } else {
        *range
    };
    Ok(Wish::write(allocate.object, locked)?)
}

impl Oss {
    /// Under the client's lock, where that covers it: the client keeps it until it is answered, so
    /// that nothing may wait here for those who wait for that lock. Otherwise waits for a lock of the
    /// target's own.
    pub(crate) fn allocate(
        &mut self,
        now: Tick,
        client: ClientId,
        mut allocate: Allocate,
    ) -> Outcome<Step> {
        let wish = wish_of(&mut allocate)?;
        match self.locks.covers(client, wish) {
            true => self.allocate_locked(now, &allocate),
            false => Ok(Step::Park(Job::Allocate(allocate), Need::Lock(wish))),
        }
    }

    /// The lock is there.
    pub(crate) fn allocate_locked(&mut self, now: Tick, allocate: &Allocate) -> Outcome<Step> {
        let Allocate {
            object,
            range,
            mode,
            change,
        } = *allocate;
        self.objects.admit(object, change.ticket)?;
        if mode != AllocateMode::PunchHole {
            self.objects.admit_growth(object, range)?;
        }
        let transno = self.modified(now, 0);
        self.objects.allocate(object, range, mode, change)?;
        let attr = self.objects.attr(object)?;
        Ok(Step::Done(Reply::Written { attr }.into(), transno))
    }
}
