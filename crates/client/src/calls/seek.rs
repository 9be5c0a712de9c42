//! Finding data and holes in a file. SEMANTICS: op.lseek

use base::{ByteRange, Fid, FsError};
use wire::ost;

use crate::cache::file::FileState;
use crate::session::client::{Client, unexpected};
use crate::session::cluster::object_of;

/// What [`wire::Attr::blocks`] counts.
const BLOCK_BYTES: u64 = 512;

impl Client {
    /// The next data (or hole) at or after `offset`.
    pub async fn seek(&self, fid: Fid, offset: u64, hole: bool) -> Result<u64, FsError> {
        self.learn_stores(fid).await;
        self.write_out(fid, ByteRange::ALL).await;
        let stat = self.stat(fid).await?;
        let size = stat.attr.size;
        if offset >= size {
            return Err(FsError::NoData);
        }
        // A file that has a block for each of its bytes has no hole worth a request.
        let blocks = self.lock().stored_blocks(fid);
        if blocks.is_some_and(|blocks| blocks.saturating_mul(BLOCK_BYTES) >= size) {
            return Ok(if hole { size } else { offset });
        }
        let never_sent = self.lock().cache.file(fid).object.is_unsent();
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

    /// What was stored into a mapping here only the kernel has, which does not write it back for a
    /// seek. It does when it forgets the pages.
    pub(crate) async fn learn_stores(&self, fid: Fid) {
        let is_held = |file: &mut FileState| file.in_kernel.holds(ByteRange::ALL);
        let may_be_stored = self.lock().cache.file_known(fid).is_some_and(is_held);
        if may_be_stored {
            self.forget_range(fid, ByteRange::ALL).await;
        }
    }
}
