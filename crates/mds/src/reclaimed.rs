//! Which write leases of an earlier boot clients have claimed, and whether a set is under write leases.

use std::collections::HashSet;

use base::{ClientId, Fid, LockHandle};
use wire::update::LeasedDir;

use crate::locks::Locks;
use crate::ops::context::resource;

/// The write leases that clients have claimed since a restart.
#[derive(Debug, Default)]
pub(crate) struct ReclaimedLeases {
    /// As long as requests of boots before may come.
    claimed: Option<HashSet<(ClientId, Fid)>>,
}

impl ReclaimedLeases {
    /// Clients may have write leases of the boot before.
    pub fn expected() -> ReclaimedLeases {
        ReclaimedLeases {
            claimed: Some(HashSet::new()),
        }
    }

    /// Requests of the boot before, under its write leases, may still come.
    pub fn is_open(&self) -> bool {
        self.claimed.is_some()
    }

    /// The client had the lease in a boot before, whichever handle that had.
    pub fn has(&self, client: ClientId, dir: Fid) -> bool {
        let claimed = self.claimed.as_ref();
        claimed.is_some_and(|claimed| claimed.contains(&(client, dir)))
    }

    pub fn add(&mut self, client: ClientId, dir: Fid) {
        if let Some(claimed) = &mut self.claimed {
            claimed.insert((client, dir));
        }
    }

    /// All of it is done, or lost.
    pub fn end(&mut self) {
        self.claimed = None;
    }
}

/// The client holds the write lease of each directory, by the handle that it names. It names none of a lease
/// that came with the request before, and another one of a lease that it has claimed since.
pub(crate) fn are_leased(
    (locks, reclaimed): (&Locks, &ReclaimedLeases),
    client: ClientId,
    dirs: &[LeasedDir],
) -> bool {
    dirs.iter().all(|leased| {
        let is_it = |lease: LockHandle| {
            let lock = locks.table().holds(client, lease);
            lock.is_some_and(|lock| lock.resource == resource(leased.dir))
        };
        let is_named = leased.lease == LockHandle::default()
            || is_it(leased.lease)
            || reclaimed.has(client, leased.dir);
        is_named && locks.holds_write_lease(client, leased.dir)
    })
}
