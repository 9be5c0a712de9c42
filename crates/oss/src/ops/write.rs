//! Writing bytes that a lock covers.

use base::{BootEpoch, ByteRange, ClientId, FsError, LockHandle, Tick};
use layout::ObjectId;
use wire::mdt::WriteTicket;
use wire::ost::UNDER_MDT;

use crate::failure::Outcome;
use crate::locks::Wish;
use crate::objects::{Change, file_range};
use crate::oss::Oss;
use crate::step::Step;

/// What is to be written, and by which right.
#[derive(Debug)]
pub(crate) struct Write<'a> {
    pub object: ObjectId,
    pub offset: u64,
    pub data: &'a [u8],
    pub change: Change,
    pub under: LockHandle,
    /// The boot it is meant for; zero: any.
    pub boot_epoch: BootEpoch,
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
        self.is_meant_for_this_boot(write.boot_epoch)?;
        let right = match write.under {
            UNDER_MDT => self.is_first_to_write(now, client, write.object, write.change.ticket)?,
            LockHandle(0) => {
                let wish = Wish::write(write.object, range)?;
                self.writes_for_who_was_before(client, wish)
                    || self.is_alone(now, client, write.object)?
            }
            held => {
                let wish = Wish::write(write.object, range)?;
                self.locks.allows(client, held, wish)
            }
        };
        if !right {
            return Err(FsError::Stale.into());
        }
        self.objects.admit(write.object, write.change.ticket)?;
        self.objects.admit_growth(write.object, range)?;
        // A write that fails half-way has changed something, too.
        let transno = self.modified(now, write.data.len() as u64);
        self.objects
            .write(write.object, write.offset, write.data, write.change)?;
        let attr = self.objects.attr(write.object)?;
        Ok(Step::Done(self.changed(attr).into(), transno))
    }

    /// The client's process has taken the place of another, of whose locks it does not know the names.
    pub(crate) fn writes_for_who_was_before(&self, client: ClientId, wish: Wish) -> bool {
        self.left_behind.contains_key(&client) && self.locks.covers(client, wish)
    }

    /// A right without a lock here: then nobody else can have one, and the client that has one got
    /// it after that right was lost.
    pub(crate) fn is_alone(
        &mut self,
        now: Tick,
        client: ClientId,
        object: ObjectId,
    ) -> Outcome<bool> {
        let wish = Wish::write(object, ByteRange::ALL)?;
        Ok(self.locks.is_free(now, client, wish))
    }

    /// What comes late, of a time when an earlier boot was known, was sent anew for this one.
    pub(crate) fn is_meant_for_this_boot(&self, boot_epoch: BootEpoch) -> Outcome<()> {
        let is_meant = boot_epoch == BootEpoch(0) || boot_epoch == self.recovery.boot_epoch;
        is_meant.then_some(()).ok_or(FsError::Stale.into())
    }

    /// Under the MDT's exclusive lock, which only the maker of a file is given. Who wrote under a
    /// later open did so after that right was lost, and may have given its lock back since.
    fn is_first_to_write(
        &mut self,
        now: Tick,
        client: ClientId,
        object: ObjectId,
        ticket: WriteTicket,
    ) -> Outcome<bool> {
        let is_first = ticket.open_epoch >= self.objects.open_epoch(object)?;
        Ok(is_first && self.is_alone(now, client, object)?)
    }
}
