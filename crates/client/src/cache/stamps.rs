//! Moments in the life of what is cached: what was asked before something was withdrawn is old.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Fid, Transno};

/// When a lock on a file's bytes was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AskedExtent {
    /// The last write of ours that was answered by then.
    pub written: Transno,
    /// The state's stamp.
    pub stamp: u64,
}

/// A moment in a directory's life at this client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub dir: Fid,
    /// The state's stamp then.
    pub asked: u64,
    /// How many changes of names there had been.
    pub changes: u64,
}

/// What was withdrawn, in order.
pub(crate) struct Withdrawals {
    /// How many there were. Who hands answers over reads it without the state's lock.
    stamp: Arc<AtomicU64>,
    /// The newest from a directory that is not known any more.
    dropped: u64,
}

impl Withdrawals {
    /// None yet; they are counted in `stamp`.
    pub fn new(stamp: Arc<AtomicU64>) -> Withdrawals {
        Withdrawals { stamp, dropped: 0 }
    }

    /// The last one.
    pub fn stamp(&self) -> u64 {
        self.stamp.load(Ordering::SeqCst)
    }

    /// One more: an answer prepared before is used once. Returns which it is.
    pub fn withdraw(&mut self) -> u64 {
        self.stamp.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// A directory of which `withdrawn` was the last is not known any more.
    pub fn dropped(&mut self, withdrawn: u64) {
        self.dropped = self.dropped.max(withdrawn);
    }

    /// Those of a directory, of which `withdrawn` is the last known, were made before `asked`.
    pub fn are_before(&self, asked: u64, withdrawn: u64) -> bool {
        withdrawn.max(self.dropped) <= asked
    }
}
