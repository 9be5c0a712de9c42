//! How a store is opened.

use std::sync::Arc;

use crate::pace::Pace;
use crate::room::Room;

/// Who drains the overlay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// A thread of its own: soon when someone waits, else at its pace.
    Thread,
    /// Nobody but [`super::Kv::flush_once`], which a call that would wait calls itself: tests and the
    /// simulator.
    Manual,
}

/// The bounds of a [`super::Kv`].
#[derive(Debug, Clone)]
pub struct KvOptions {
    /// What messages call it: a target's name.
    pub name: String,
    /// Who drains the overlay.
    pub commit: Commit,
    /// When it is drained though nobody waits.
    pub pace: Arc<Pace>,
    /// Bytes of keys and values not yet durable. Beyond: `commit` blocks until they have drained.
    pub overlay_bytes_max: usize,
    /// Bytes of the engine's page cache.
    pub cache_bytes: usize,
    /// What its writes fall back on when the disk is full; `None`: then the store stops.
    pub room: Option<Arc<dyn Room>>,
}

impl KvOptions {
    /// The defaults, for the target called `name`.
    pub fn new(name: impl Into<String>) -> KvOptions {
        KvOptions {
            name: name.into(),
            commit: Commit::Thread,
            pace: Pace::usual(),
            overlay_bytes_max: 64 << 20,
            cache_bytes: 64 << 20,
            room: None,
        }
    }

    /// The same, drained by hand.
    pub fn manual(mut self) -> KvOptions {
        self.commit = Commit::Manual;
        self
    }
}
