//! Sizes from those that know them: the OST, and through it the writer.

use base::{Fid, FsError, Transno};
use wire::ost::{ObjectAttr, Reply, Request};

use crate::cache::attributes::merge_object;
use crate::session::client::{Client, Stat, unexpected};
use crate::session::cluster::object_of;

impl Client {
    /// The attributes with the size as of now. Nothing covers the size afterwards.
    pub(crate) async fn glimpse(&self, fid: Fid) -> Result<Stat, FsError> {
        let object = self.glimpse_object(fid, false).await?;
        let state = self.lock();
        let attr = state.cache.known(fid).and_then(|inode| inode.attr.clone());
        let mut attr = attr.ok_or(FsError::Stale)?;
        merge_object(&mut attr, object);
        Ok(Stat {
            attr,
            valid: false,
            stamp: state.cache.stamp(),
        })
    }

    /// The object as of now, with the bytes that this client has yet to send. After a restart of
    /// the OST no lock is there through which it would hear of them.
    pub(crate) async fn glimpse_object(
        &self,
        fid: Fid,
        speculative: bool,
    ) -> Result<ObjectAttr, FsError> {
        let target = self.target_of(fid)?;
        loop {
            let asked = self.last_written(fid);
            let request = Request::Glimpse {
                object: object_of(fid),
                speculative,
            };
            let answer = self.0.ost(target, request).await?;
            let Reply::Glimpsed { attr } = answer.reply else {
                return Err(unexpected(&answer.reply));
            };
            let state = self.lock();
            let file = state.cache.known(fid).and_then(|inode| inode.file.as_ref());
            match file {
                None => return Ok(attr),
                Some(file) if file.durability.written() == asked => {
                    return Ok(file.with_unsent_blocks(file.with_unsent(attr)));
                }
                // What was unsent then was sent since, and the answer may be older.
                Some(_) => {}
            }
        }
    }

    /// The last write of ours that was answered.
    fn last_written(&self, fid: Fid) -> Transno {
        let state = self.lock();
        let file = state.cache.known(fid).and_then(|inode| inode.file.as_ref());
        file.map_or(Transno(0), |file| file.durability.written())
    }
}
