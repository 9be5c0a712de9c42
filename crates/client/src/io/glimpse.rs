//! Sizes from whoever knows them: the OST, and through it the writer.

use base::{Fid, FsError};
use wire::ost::{ObjectAttr, Reply, Request};

use crate::cache::merge_object;
use crate::client::{Client, Stat, unexpected};
use crate::cluster::object_of;

impl Client {
    /// The attributes with the size as of now. Nothing covers the size afterwards.
    pub(crate) async fn glimpse(&self, fid: Fid) -> Result<Stat, FsError> {
        let object = self.glimpse_object(fid, false).await?;
        let state = self.lock();
        let attr = state.known(fid).and_then(|inode| inode.attr.clone());
        let mut attr = attr.ok_or(FsError::Stale)?;
        merge_object(&mut attr, object);
        Ok(Stat {
            attr,
            valid: false,
            stamp: state.stamp(),
        })
    }

    /// The object as of now.
    pub(crate) async fn glimpse_object(
        &self,
        fid: Fid,
        speculative: bool,
    ) -> Result<ObjectAttr, FsError> {
        let target = self.target_of(fid)?;
        let request = Request::Glimpse {
            object: object_of(fid),
            speculative,
        };
        let answer = self.0.ost(target, request).await?;
        match answer.reply {
            Reply::Glimpsed { attr } => Ok(attr),
            other => Err(unexpected(&other)),
        }
    }
}
