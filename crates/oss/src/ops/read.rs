//! Reading bytes, with a lock in the same message where one is free.

use base::limits::{BULK_BYTES_MAX, PEER_QUEUE_BYTES_MAX};
use base::{ByteRange, ClientId, FsError, LockHandle, Tick};
use bytes::Bytes;
use layout::ObjectId;
use wire::ost::{ExtentGrant, ObjectAttr, Reply};

use crate::failure::Outcome;
use crate::locks::{self, Wish};
use crate::oss::Oss;
use crate::outbox::Answer;
use crate::step::Step;
use crate::work::ReadWork;

/// Bytes that one client may have under way outside the core. Beyond: read in it, so that the
/// connection hears no more requests meanwhile.
const READING_BYTES_MAX: usize = PEER_QUEUE_BYTES_MAX / 2;

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
    /// Answers at once, or when the bytes are read. Where a lock is wanted and not free, the answer has no
    /// lock and no bytes: those here may be older than those of a writer.
    pub(crate) fn read(&mut self, now: Tick, client: ClientId, read: &Read) -> Outcome<Step> {
        if read.len as usize > BULK_BYTES_MAX {
            return Err(FsError::Invalid.into());
        }
        let right = self.right_to_read(now, client, read)?;
        let attr = self.objects.attr(read.object)?;
        if read.under != LockHandle(0)
            && let Some(work) = self.outside(client, read, attr)?
        {
            return Ok(Step::Read(work));
        }
        let (data, grant) = match right {
            Right::Granted(grant) => (
                self.objects.read(read.object, read.offset, read.len)?,
                grant,
            ),
            Right::NotNow => (Bytes::new(), None),
        };
        let reply = Reply::Read {
            bulk: (0, data.len() as u32),
            grant,
            attr,
        };
        Step::answer(Answer { reply, data })
    }

    /// What is to be read outside the core: where that takes its time, it holds up nobody.
    ///
    /// Right for reads under a lock that the client holds, and for these only. Nobody else changes
    /// the bytes while it holds the lock; it gives the lock up only when all that it asked for
    /// under it is answered; and if it is evicted, the answer goes nowhere. Its own changes may
    /// overtake such a read, but not the other way about: a read starts after all that came before
    /// it was done. Of the bytes that it has changed since it asked, the client keeps what it
    /// wrote (`asked` in the client's `io::pages`).
    ///
    /// No answer of this kind carries a lock, so none can be overtaken by the callback of one.
    fn outside(
        &mut self,
        client: ClientId,
        read: &Read,
        attr: ObjectAttr,
    ) -> Outcome<Option<ReadWork>> {
        let rest = attr.size.saturating_sub(read.offset);
        let len = rest.min(u64::from(read.len)) as usize;
        let under_way = self.reading.get(&client).copied().unwrap_or(0);
        let slow = len > 0 && self.objects.is_slow(read.object, read.offset, len)?;
        if !slow || under_way + len > READING_BYTES_MAX {
            return Ok(None);
        }
        *self.reading.entry(client).or_default() += len;
        Ok(Some(ReadWork {
            object: read.object,
            offset: read.offset,
            len,
            attr,
        }))
    }

    /// A read outside the core is done, or has failed.
    pub fn read_done(&mut self, client: ClientId, work: &ReadWork) {
        if let Some(under_way) = self.reading.get_mut(&client) {
            *under_way = under_way.saturating_sub(work.len);
            if *under_way == 0 {
                self.reading.remove(&client);
            }
        }
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
            if self.recovery.window.is_open() {
                return Ok(Right::NotNow);
            }
            let grant = self.locks.try_best(now, client, wish);
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
