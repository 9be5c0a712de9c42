//! Setting an object's size.

use base::{ByteRange, ClientId, FsError, LockHandle, Tick};
use layout::ObjectId;
use wire::ost::Reply;

use crate::failure::Outcome;
use crate::locks::Wish;
use crate::objects::{Change, file_range};
use crate::oss::{Job, Need, Oss, Step};

/// What is to be cut or grown.
#[derive(Debug)]
pub(crate) struct Truncate {
    pub object: ObjectId,
    pub size: u64,
    pub change: Change,
}

impl Oss {
    /// Under a lock held, or as what was done before, at once; else under a lock of the target's
    /// own on the whole object.
    pub(crate) fn truncate(
        &mut self,
        now: Tick,
        client: ClientId,
        truncate: Truncate,
        under: LockHandle,
    ) -> Outcome<Step> {
        file_range(0, truncate.size)?;
        if under == LockHandle(0) {
            let wish = Wish::write(truncate.object, ByteRange::ALL)?;
            if self.is_redone(now, client, wish) {
                return self.truncate_locked(now, &truncate);
            }
            return Ok(Step::Park(Job::Truncate(truncate), Need::Lock(wish)));
        }
        // All that changes: the bytes cut off, or the zeros that come.
        let from = truncate.size.min(self.objects.size(truncate.object)?);
        let wish = Wish::write(truncate.object, ByteRange::from(from))?;
        match self.locks.allows(client, under, wish) {
            true => self.truncate_locked(now, &truncate),
            false => Err(FsError::Stale.into()),
        }
    }

    /// What an earlier life of the target did, or the process before of the client, is done once more.
    fn is_redone(&mut self, now: Tick, client: ClientId, wish: Wish) -> bool {
        let again = self.is_recovering() || self.left_behind.contains(&client);
        self.writes_for_who_was_before(client, wish)
            || again && self.locks.is_free(now, client, wish)
    }

    /// The lock is there.
    pub(crate) fn truncate_locked(&mut self, now: Tick, truncate: &Truncate) -> Outcome<Step> {
        self.objects
            .admit(truncate.object, truncate.change.ticket)?;
        let transno = self.modified(now, 0);
        self.objects
            .truncate(truncate.object, truncate.size, truncate.change)?;
        let attr = self.objects.attr(truncate.object)?;
        Ok(Step::Done(Reply::Written { attr }.into(), transno))
    }
}
