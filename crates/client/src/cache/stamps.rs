//! Moments in the life of what is cached: what was asked before something was withdrawn is old.

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
