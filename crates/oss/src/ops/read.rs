//! Reading bytes, with a lock in the same message where one is free.

use base::limits::BULK_BYTES_MAX;
use base::{ByteRange, ClientId, FsError, LockHandle, Tick};
use layout::ObjectId;
use wire::ost::{ExtentGrant, Reply};

use crate::failure::Outcome;
use crate::locks::{self, Wish};
use crate::oss::{Oss, Step};
use crate::outbox::Answer;

/// What is to be read, and by which right.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Read {
    pub object: ObjectId,
    pub offset: u64,
    pub len: u32,
    pub lock_mode: u8,
    pub under: LockHandle,
}

/// May the bytes be read?
enum Right {
    /// Yes: under a lock held, or one just granted.
    Granted(Option<ExtentGrant>),
    /// Somebody may hold newer bytes: enqueue first.
    NotNow,
}

impl Oss {
    /// Answers at once. Where a lock is wanted and not free, the answer has no lock and no bytes:
    /// those here may be older than those of a writer.
    pub(crate) fn read(&mut self, now: Tick, client: ClientId, read: &Read) -> Outcome<Step> {
        if read.len as usize > BULK_BYTES_MAX {
            return Err(FsError::Invalid.into());
        }
        let right = self.right_to_read(now, client, read)?;
        let attr = self.objects.attr(read.object)?;
        let (data, grant) = match right {
            Right::Granted(grant) => (
                self.objects.read(read.object, read.offset, read.len)?,
                grant,
            ),
            Right::NotNow => (Vec::new(), None),
        };
        let reply = Reply::Read {
            bulk: (0, data.len() as u32),
            grant,
            attr,
        };
        Step::answer(Answer { reply, data })
    }

    fn right_to_read(&mut self, now: Tick, client: ClientId, read: &Read) -> Outcome<Right> {
        let len = u64::from(read.len);
        let range = ByteRange::at(read.offset, len).ok_or(FsError::Invalid)?;
        let wish = Wish::read(read.object, range)?;
        if read.under != LockHandle(0) {
            return match self.locks.allows(client, read.under, wish) {
                true => Ok(Right::Granted(None)),
                false => Err(FsError::Stale.into()),
            };
        }
        if read.lock_mode != 0 {
            // The reader's kernel caches whole files under one lock (docs/locks.md).
            let wish = Wish::of(read.object, read.lock_mode, ByteRange::ALL)?;
            let grant = self.locks.try_grant(now, client, wish);
            return Ok(grant.map_or(Right::NotNow, |grant| {
                Right::Granted(Some(locks::told(&grant)))
            }));
        }
        // The reader has the file to itself, or is to be told that it has not.
        match range.is_empty() || self.locks.is_free(now, client, wish) {
            true => Ok(Right::Granted(None)),
            false => Err(FsError::Stale.into()),
        }
    }
}
