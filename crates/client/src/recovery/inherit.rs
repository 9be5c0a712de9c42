//! Locks on bytes that a process which takes over a mount inherits from the one before. They are of files
//! whose pages the kernel could not forget in time, since a read on its way holds some. What was stored into
//! later pages is written back after that read, under the lock that it was stored under.

use std::collections::BTreeSet;

use base::{Fid, FsError, TargetIndex};
use wire::ost::{ExtentGrant, ObjectAttr, Reply, Request};

use crate::cache::holder::Holder;
use crate::cache::inode::Inode;
use crate::cache::stamps::AskedExtent;
use crate::coherence::cover::take_extent;
use crate::executor::{AT_ONCE, each_of};
use crate::session::client::{Client, unexpected};
use crate::session::cluster::object_of;
use crate::session::state::State;

/// A lock of the process before, to be this one's.
#[derive(Debug)]
pub(crate) struct Inherited {
    fid: Fid,
    target: TargetIndex,
    grant: ExtentGrant,
    attr: ObjectAttr,
    asked: AskedExtent,
}

impl Client {
    /// The locks of these files stay when this process is settled, where they are open.
    pub(crate) async fn inherit_locks(&self, mut fids: BTreeSet<Fid>) -> Vec<Inherited> {
        fids.retain(|fid| self.lock().cache.known(*fid).is_some_and(Inode::is_open));
        let inherited = each_of(Vec::from_iter(fids), AT_ONCE, |fid| async move {
            let lock = self.inherit_lock(fid).await;
            lock.inspect_err(|error| tracing::debug!("{fid}: no lock is inherited: {error}"))
        });
        inherited.await.into_iter().flatten().collect()
    }

    async fn inherit_lock(&self, fid: Fid) -> Result<Inherited, FsError> {
        let (target, asked) = (self.target_of(fid)?, self.lock().cache.asks_extent(fid));
        let object = object_of(fid);
        let answer = self
            .0
            .ost_urgent(target, Request::Inherit { object })
            .await?;
        let Reply::Locked { grant, attr } = answer.reply else {
            return Err(unexpected(&answer.reply));
        };
        Ok(Inherited {
            fid,
            target,
            grant,
            attr,
            asked,
        })
    }
}

impl State {
    /// Those that did not go with a boot of their OST since.
    pub(crate) fn still_inherited(&self, mut inherited: Vec<Inherited>) -> Vec<Inherited> {
        inherited.retain(|one| self.servers.is_of_this_boot_of(one.target, one.asked));
        inherited
    }

    /// They are given back as if others wanted them: when the kernel has forgotten.
    pub(crate) fn keep_inherited(&mut self, inherited: Vec<Inherited>) {
        for Inherited {
            fid,
            target,
            grant,
            attr,
            ..
        } in inherited
        {
            take_extent(self, fid, target, &grant, attr);
            self.locks
                .give_up_or_refuse(Holder::Ost(target), grant.handle);
        }
    }
}
