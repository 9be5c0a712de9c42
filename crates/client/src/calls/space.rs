//! Space and files of the whole file system. SEMANTICS: op.statfs

use std::collections::BTreeSet;
use std::time::Duration;

use base::{Fid, FsError, TargetIndex};
use wire::mdt::{Reply, Request, Space};
use wire::ost;

use crate::executor::join_all;
use crate::session::client::{Client, unexpected};

/// For how long an answer is good enough: `find` and `du` ask at each start, for the kind of file
/// system only.
const AGE_MAX: Duration = Duration::from_secs(30);

impl Client {
    /// Bytes from the OSTs and files from the MDT, at most half a minute old. They are never older than this
    /// mount's last write or removal, or than another mount's change that it was told of. While space of
    /// removed files comes back the servers are asked anew.
    pub async fn statfs(&self) -> Result<Space, FsError> {
        let now = self.0.clock.tick();
        if let Some(space) = self.lock().servers.space(now, AGE_MAX) {
            return Ok(space);
        }
        let asked = self.lock().cache.stamp();
        let space = self.ask_space().await?;
        let mut state = self.lock();
        // Not where others have changed something meanwhile.
        let is_newest = state.cache.stamp() == asked;
        match is_newest && !space.settling {
            true => state.servers.learn_space(now, space),
            false => state.servers.forget_space(),
        }
        Ok(space)
    }

    /// Asks the file's OST how long an object can be there.
    pub(crate) async fn ask_size_limit(&self, fid: Fid) -> Result<(), FsError> {
        let target = self.target_of(fid)?;
        match self.0.ost(target, ost::Request::StatFs).await?.reply {
            ost::Reply::Space(space) => {
                let servers = &mut self.lock().servers;
                servers.learn_size_limit(target, space.object_bytes_max);
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }

    /// All targets are asked at once.
    async fn ask_space(&self) -> Result<Space, FsError> {
        let osts = self.0.cluster.osts().map(|(target, _)| Some(*target));
        let parts = std::iter::once(None).chain(osts);
        let parts = join_all(parts.map(|target| self.space_of(target)).collect()).await;
        Ok(sum(&parts.into_iter().collect::<Result<Vec<_>, _>>()?))
    }

    /// The bytes of an OST, or the files of the MDT.
    async fn space_of(&self, ost: Option<TargetIndex>) -> Result<Space, FsError> {
        let Some(target) = ost else {
            return match self.0.mdt(Request::StatFs).await? {
                Reply::Space(space) => Ok(Space {
                    files_total: space.files_total,
                    files_free: space.files_free,
                    settling: space.settling,
                    ..Space::default()
                }),
                other => Err(unexpected(&other)),
            };
        };
        match self.0.ost(target, ost::Request::StatFs).await?.reply {
            ost::Reply::Space(space) => Ok(Space {
                files_total: 0,
                files_free: 0,
                ..space
            }),
            other => Err(unexpected(&other)),
        }
    }
}

/// The space of all targets; that of a disk once, however many of them are on it.
fn sum(parts: &[Space]) -> Space {
    let (mut all, mut disks) = (Space::default(), BTreeSet::new());
    for part in parts {
        if part.disk == 0 || disks.insert(part.disk) {
            all.bytes_total += part.bytes_total;
            all.bytes_free += part.bytes_free;
            all.bytes_available += part.bytes_available;
        }
        all.files_total += part.files_total;
        all.files_free += part.files_free;
        all.settling |= part.settling;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_of_several_targets_counts_once() {
        let on = |disk, bytes| Space {
            bytes_total: bytes,
            bytes_free: bytes / 2,
            bytes_available: bytes / 4,
            files_total: 1,
            disk,
            ..Space::default()
        };
        let all = sum(&[on(0, 64), on(7, 256), on(7, 256), on(8, 512), on(0, 1024)]);
        let expected = Space {
            files_total: 5,
            ..on(0, 64 + 256 + 512 + 1024)
        };
        assert_eq!(all, expected);
    }
}
