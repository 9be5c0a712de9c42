//! Sizes from those that know them: the OST, and through it the writer.

use base::{Fid, FsError, Transno};
use wire::ost::{ObjectAttr, Reply, Request};

use crate::cache::attributes::merge_object;
use crate::session::client::{Client, Stat, unexpected};
use crate::session::cluster::object_of;

/// In how many frames sizes are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Glimpsing {
    /// This one in its own.
    Alone,
    /// In one with those that are asked for in the same moment. The writer of a file that has one is asked
    /// after.
    Together,
}

impl Client {
    /// The attributes with the size as of now. Nothing covers the size afterwards.
    pub(crate) async fn glimpse(&self, fid: Fid) -> Result<Stat, FsError> {
        let object = self.glimpse_object(fid, Glimpsing::Alone).await?;
        let state = self.lock();
        let attr = state.cache.attr_of(fid).cloned();
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
        how: Glimpsing,
    ) -> Result<ObjectAttr, FsError> {
        let target = self.target_of(fid)?;
        loop {
            let asked = self.last_written(fid);
            let request = |speculative| Request::Glimpse {
                object: object_of(fid),
                speculative,
            };
            let together = match how {
                Glimpsing::Alone => Err(FsError::TryAgain),
                Glimpsing::Together => self.ost_together(target, request(true)).await,
            };
            let reply = match together {
                Err(FsError::TryAgain) => self.0.ost(target, request(false)).await?.reply,
                together => together?,
            };
            let Reply::Glimpsed { attr } = reply else {
                return Err(unexpected(&reply));
            };
            let state = self.lock();
            match state.cache.file_of(fid) {
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
        let file = state.cache.file_of(fid);
        file.map_or(Transno(0), |file| file.durability.written())
    }
}
