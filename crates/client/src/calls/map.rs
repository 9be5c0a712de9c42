//! Where a file's bytes lie on the disk of its OST.

use base::{ByteRange, Fid, FsError, TargetIndex};
use wire::ost;

use crate::session::client::{Client, unexpected};
use crate::session::cluster::object_of;

/// A part of a file as its OST has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMap {
    /// The OST.
    pub target: TargetIndex,
    /// Ascending; see [`ost::Reply::Map`].
    pub extents: Vec<ost::StoredExtent>,
    /// From where on there may be more. None: these are all.
    pub next: Option<u64>,
}

impl Client {
    /// The extents of a file from `offset` on. Bytes written here are sent first. `NotSupported` where the
    /// OST keeps objects as files of another file system.
    pub async fn map(&self, fid: Fid, offset: u64) -> Result<FileMap, FsError> {
        self.learn_stores(fid).await;
        self.write_out(fid, ByteRange::ALL).await;
        self.stat(fid).await?;
        let target = self.target_of(fid)?;
        let object = object_of(fid);
        let request = ost::Request::Map { object, offset };
        match self.0.ost(target, request).await?.reply {
            ost::Reply::Map { extents, next } => Ok(FileMap {
                target,
                extents,
                next,
            }),
            other => Err(unexpected(&other)),
        }
    }
}
