//! What the core wants done, in order.

use base::{ClientId, FsError, Transno};
use bytes::Bytes;
use layout::ObjectId;
use wire::ost::{Callback, Reply};

use crate::durability::SyncTicket;
use crate::work::{ListWork, ReadWork, SyncWork};

/// Outputs, oldest first.
pub type Outbox = Vec<Output>;

/// One thing to do.
#[derive(Debug)]
pub enum Output {
    /// Answer a request.
    Reply {
        /// Whose.
        client: ClientId,
        /// Which, as the caller of `handle` named it.
        tag: u64,
        /// The answer.
        result: Result<Answer, FsError>,
        /// The modification it made; zero: none.
        transno: Transno,
    },
    /// Ask a client something.
    Callback {
        /// Whom.
        client: ClientId,
        /// To be given back with the answer.
        id: u64,
        /// What.
        callback: Callback,
    },
    /// The client did not answer in time: its locks are gone; end its session.
    Evict {
        /// Whom.
        client: ClientId,
    },
    /// Run [`crate::Syncer::run`] with this, then call [`crate::Oss::synced`].
    SyncWanted {
        /// Names it.
        ticket: SyncTicket,
        /// What to hand to it.
        work: SyncWork,
    },
    /// Run [`crate::Syncer::read`] with this, answer the request with what it gives, and call
    /// [`crate::Oss::read_done`].
    ReadWanted {
        /// Whose.
        client: ClientId,
        /// Which, as the caller of `handle` named it.
        tag: u64,
        /// What to hand to it.
        work: ReadWork,
    },
    /// Run [`crate::Syncer::list`] with this, and answer the request with what it gives.
    ListWanted {
        /// Which, as the caller of `handle` named it.
        tag: u64,
        /// What to hand to it.
        work: ListWork,
    },
    /// Run [`crate::Syncer::remove`] with these, in any portions, and call
    /// [`crate::Oss::removed`] with each.
    RemoveWanted {
        /// Objects that have a tombstone.
        objects: Vec<ObjectId>,
    },
    /// The target must not go on; every request fails from here on.
    Stop {
        /// Why, for the log.
        reason: String,
    },
}

/// A reply and its file data.
#[derive(Debug)]
pub struct Answer {
    /// Its `bulk` field counts from the start of `data`.
    pub reply: Reply,
    /// For the bulk region.
    pub data: Bytes,
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Answer {
        Answer {
            reply,
            data: Bytes::new(),
        }
    }
}
