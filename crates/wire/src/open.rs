//! Open files, as messages name them.

use serde::{Deserialize, Serialize};

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Access {
    /// Reading.
    pub read: bool,
    /// Writing.
    pub write: bool,
    /// Executing: no writer may be there, none may come.
    pub exec: bool,
}

/// An open file, as the MDT names it for one client. Zero: not registered there.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct OpenHandle(pub u64);

/// The right to write objects of a file; each OST write carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WriteTicket {
    /// The layout's generation.
    pub layout_generation: u32,
    /// The MDT's count of write-opens; an OST refuses what is older than a destroyed object's.
    pub open_epoch: u64,
}
