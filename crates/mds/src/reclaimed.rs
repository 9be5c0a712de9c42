//! Which write leases of an earlier boot clients have claimed, and whether a set is under write leases.

use std::collections::HashMap;

use base::{ClientId, Fid, LockHandle};
use wire::update::LeasedDir;

use crate::locks::Locks;
use crate::ops::context::resource;

/// With so many claims no refusal is remembered any more: sets wait for the end of the window then.
const REMEMBERED_MAX: usize = 1 << 18;

/// What a claim was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    Given,
    Refused,
}

/// The write leases that clients have claimed since a restart.
#[derive(Debug, Default)]
pub(crate) struct ReclaimedLeases {
    /// As long as requests of boots before may come.
    claimed: Option<HashMap<(ClientId, Fid), Claim>>,
}

impl ReclaimedLeases {
    /// Clients may have write leases of the boot before.
    pub fn expected() -> ReclaimedLeases {
        ReclaimedLeases {
            claimed: Some(HashMap::new()),
        }
    }

    /// Requests of the boot before, under its write leases, may still come.
    pub fn is_open(&self) -> bool {
        self.claimed.is_some()
    }

    /// The client had the lease in a boot before, whichever handle that had.
    pub fn has(&self, client: ClientId, dir: Fid) -> bool {
        self.claim(client, dir) == Some(Claim::Given)
    }

    /// The client does not get the lease of one of the directories: a set of these need not wait for it.
    pub fn lack(&self, client: ClientId, dirs: &[LeasedDir]) -> bool {
        let is_refused =
            |leased: &LeasedDir| self.claim(client, leased.dir) == Some(Claim::Refused);
        dirs.iter().any(is_refused)
    }

    fn claim(&self, client: ClientId, dir: Fid) -> Option<Claim> {
        self.claimed.as_ref()?.get(&(client, dir)).copied()
    }

    /// A claim is answered. A lease that was given once is not refused later.
    pub fn add(&mut self, client: ClientId, dir: Fid, claim: Claim) {
        let Some(claimed) = &mut self.claimed else {
            return;
        };
        match claim {
            Claim::Given => drop(claimed.insert((client, dir), claim)),
            Claim::Refused if claimed.len() >= REMEMBERED_MAX => {}
            Claim::Refused => drop(claimed.entry((client, dir)).or_insert(claim)),
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
