//! Reserving, freeing and finding space inside a file. SEMANTICS: op.fallocate, op.lseek

use base::limits::FILE_BYTES_MAX;
use base::{ByteRange, Fid, FsError};
use wire::mdt::WriteTicket;
use wire::ost::{self, AllocateMode};

use crate::client::{Client, unexpected};
use crate::cluster::object_of;
use crate::kernel::Forget;

/// What [`wire::Attr::blocks`] counts.
const BLOCK_BYTES: u64 = 512;

impl Client {
    /// `fallocate(2)` of a plain range.
    pub async fn allocate(
        &self,
        fid: Fid,
        range: ByteRange,
        mode: AllocateMode,
    ) -> Result<(), FsError> {
        if range.end > FILE_BYTES_MAX {
            return Err(FsError::FileTooBig);
        }
        self.begin_writing(fid).await?;
        let result = self.allocate_open(fid, range, mode).await;
        self.end_writing(fid);
        result
    }

    async fn allocate_open(
        &self,
        fid: Fid,
        range: ByteRange,
        mode: AllocateMode,
    ) -> Result<(), FsError> {
        self.lock_all(fid).await?;
        let sent = self.allocate_locked(fid, range, mode).await;
        self.end_use(fid);
        sent?;
        self.0.forget(Forget::Pages { fid, range }).await;
        self.tell_size(fid).await
    }

    async fn allocate_locked(
        &self,
        fid: Fid,
        range: ByteRange,
        mode: AllocateMode,
    ) -> Result<(), FsError> {
        self.write_out(fid, ByteRange::ALL).await?;
        let now = self.lock().content_time(fid, self.0.clock.now());
        let ticket = {
            let mut state = self.lock();
            state.with_pages(fid, |file| {
                file.pages.discard(range);
                file.write_open
                    .map_or(WriteTicket::default(), |open| open.ticket)
            })
        };
        let target = self.target_of(fid)?;
        let object = object_of(fid);
        let request = ost::Request::Allocate {
            object,
            range,
            mode,
            ticket,
            mtime: now,
        };
        let sent = self.0.change_object(target, request).await;
        let mut state = self.lock();
        // Again: a read that overtook the request has brought what was there before it.
        state.with_pages(fid, |file| file.pages.discard(range));
        let (attr, transno) = sent?;
        let file = state.file(fid);
        file.sent(transno);
        file.content_changed(now);
        file.known = attr;
        state.uncommitted.insert(fid);
        Ok(())
    }

    /// The next data (or hole) at or after `offset`.
    pub async fn seek(&self, fid: Fid, offset: u64, hole: bool) -> Result<u64, FsError> {
        self.write_out(fid, ByteRange::ALL).await?;
        let stat = self.stat(fid).await?;
        let size = stat.attr.size;
        if offset >= size {
            return Err(FsError::NoData);
        }
        // Whoever has a block for each of its bytes has no hole worth a request.
        if stat.valid && stat.attr.blocks.saturating_mul(BLOCK_BYTES) >= size {
            return Ok(if hole { size } else { offset });
        }
        let never_sent = self.lock().file(fid).unsent;
        if never_sent {
            return match hole {
                true => Ok(offset),
                false => Err(FsError::NoData),
            };
        }
        let target = self.target_of(fid)?;
        let request = ost::Request::Seek {
            object: object_of(fid),
            offset,
            hole,
        };
        let answer = self.0.ost(target, request).await?;
        match answer.reply {
            ost::Reply::Offset(found) => Ok(found),
            other => Err(unexpected(&other)),
        }
    }
}
