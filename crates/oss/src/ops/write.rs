//! Writing bytes that a lock covers.

use base::{ByteRange, ClientId, FsError, LockHandle, Tick};
use layout::ObjectId;
use wire::ost::Reply;

use crate::failure::Outcome;
use crate::locks::Wish;
use crate::objects::{Change, file_range};
use crate::oss::{Oss, Step};

/// What is to be written, and by which right.
#[derive(Debug)]
pub(crate) struct Write<'a> {
    pub object: ObjectId,
    pub offset: u64,
    pub data: &'a [u8],
    pub change: Change,
    pub under: LockHandle,
}

impl Oss {
    /// Never waits: a client that gives a lock back writes first.
    pub(crate) fn write(
        &mut self,
        now: Tick,
        client: ClientId,
        write: &Write<'_>,
    ) -> Outcome<Step> {
        let range = file_range(write.offset, write.data.len() as u64)?;
        self.check_right_to_write(now, client, write.under, write.object, range)?;
        self.objects.admit(write.object, write.change.ticket)?;
        self.objects.admit_growth(write.object, range)?;
        // A write that fails half-way has changed something, too.
        let transno = self.modified(now);
        self.objects
            .write(write.object, write.offset, write.data, write.change)?;
        let attr = self.objects.attr(write.object)?;
        Ok(Step::Done(Reply::Written { attr }.into(), transno))
    }

    /// `client` holds `under` and it covers `range`. Without a lock here its right is the MDT's
    /// exclusive lock on the file; then nobody else can have one here, and whoever has one got it
    /// after that right was lost.
    fn check_right_to_write(
        &mut self,
        now: Tick,
        client: ClientId,
        under: LockHandle,
        object: ObjectId,
        range: ByteRange,
    ) -> Outcome<()> {
        let right = match under {
            LockHandle(0) => self
                .locks
                .is_free(now, client, Wish::write(object, ByteRange::ALL)?),
            _ => self
                .locks
                .allows(client, under, Wish::write(object, range)?),
        };
        if right {
            Ok(())
        } else {
            Err(FsError::Stale.into())
        }
    }
}
