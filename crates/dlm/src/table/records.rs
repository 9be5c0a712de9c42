//! The table's records of one granted lock, one client and one operation: data, below the files that
//! change them.

use base::ClientId;

use super::message::{Glimpsed, Want};
use super::resource::Resource;
use crate::lock::{Lock, ResourceId};
use crate::slab::{Link, Linked, List};

/// The lists a lock is on.
pub(super) const BY_RESOURCE: usize = 0;
pub(super) const BY_CLIENT: usize = 1;

/// A granted lock in the slab.
pub(super) struct Held {
    pub lock: Lock,
    links: [Link; 2],
}

impl Held {
    /// A lock that is on no list yet.
    pub fn new(lock: Lock) -> Held {
        Held {
            lock,
            links: Default::default(),
        }
    }
}

impl Linked for Held {
    fn link(&self, kind: usize) -> &Link {
        &self.links[kind]
    }

    fn link_mut(&mut self, kind: usize) -> &mut Link {
        &mut self.links[kind]
    }
}

// A resource with one lock costs this, and its share of the hash table's empty places.
const _: () = assert!(size_of::<Held>() + 16 + size_of::<(ResourceId, Resource)>() * 2 <= 200);

/// One client with a lock, a waiting request or a due eviction.
#[derive(Default)]
pub(super) struct Client {
    /// Its granted locks, oldest first.
    pub locks: List,
    /// Its waiting requests.
    pub waiting: usize,
    /// Its locks that somebody waits for it to give back.
    pub called_back: usize,
    /// It was reported for eviction.
    pub eviction_due: bool,
    /// It was asked to cancel idle locks, and has not done so yet.
    pub shrinking: bool,
}

/// How far an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Waiting for locks, names and acknowledgements.
    Acquiring,
    /// Has all of those, and waits for answers to glimpses.
    Glimpsing,
    /// Told to run.
    Running,
}

/// One operation between `Begin` and `End`.
pub(super) struct Operation {
    pub client: Option<ClientId>,
    pub wants: Vec<Want>,
    pub stage: Stage,
    /// Locks and names not held yet.
    pub missing: usize,
    /// Withdrawals and revocations not answered yet.
    pub unanswered: usize,
    /// Glimpses not answered yet.
    pub unglimpsed: usize,
    pub glimpses: Vec<Glimpsed>,
    pub busy: bool,
    /// The version of its changes was given out.
    pub announced: bool,
}

impl Operation {
    /// It withdraws entries from leases.
    pub fn withdraws(&self) -> bool {
        self.wants
            .iter()
            .any(|want| matches!(want, Want::Withdraw { .. }))
    }
}
