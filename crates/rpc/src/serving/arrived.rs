//! Frames of requests before and while the machine has them: data, below the rim that moves them.

use std::sync::Arc;
use std::time::Instant;

use base::Xid;

use super::machine::Room;
use crate::batch::{Batch, ReplyMessage};
use crate::server::{Connected, Responder};

/// A frame of requests that came.
pub(super) struct Arrived {
    pub responder: Responder,
    pub batch: Batch,
    /// The client sent it before, perhaps to an earlier boot of the target.
    pub resent: bool,
}

/// A frame that was begun, and is not done.
pub(super) struct Begun {
    pub session: Arc<Connected>,
    pub slot: u16,
    pub xid: Xid,
    pub first_tag: u64,
    pub batch: Batch,
    pub answered: Option<Vec<ReplyMessage>>,
    /// Its requests that were begun.
    pub done: usize,
    /// What the others may take.
    pub room: Room,
}

/// A frame that came, or what is left of it.
pub(super) enum Frame {
    Arrived(Arrived),
    Begun(Begun),
}

/// What the thread that tells the time waits for beside its own ticks.
#[derive(Debug, Default)]
pub(super) struct Timer {
    pub ending: bool,
    /// A frame may go then.
    pub due: Option<Instant>,
}
