//! The process of a supervised client: what it leaves, and its remains.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use handover::Death;
use threads::JoinHandle;

use crate::programs::Desk;

/// A client's memory, of which a run needs a small part.
pub(super) const MEMORY_BYTES: u64 = 32 << 20;
/// Links of a client: its processes take turns, for the threads of a dead one take time to end.
pub(super) const SEATS: u32 = 4;

/// The process of a supervised client.
pub(super) struct Worker {
    pub memory: OwnedFd,
    pub seat: u32,
    pub death: Death,
    /// Where programs find it.
    pub desk: Arc<Desk>,
    /// Dead ones whose threads are being ended, by seat.
    pub remains: Vec<Option<JoinHandle<()>>>,
}

impl Worker {
    /// A client that has this memory and no process yet.
    pub fn new(memory: OwnedFd) -> Worker {
        Worker {
            memory,
            seat: 0,
            death: Death::after(0),
            desk: Arc::default(),
            remains: (0..SEATS).map(|_| None).collect(),
        }
    }
}
