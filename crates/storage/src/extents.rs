//! The object store of extents on one disk, which does not age (docs/adr/0020-extents.md, docs/disk.md).

pub mod log;

pub use log::{Area, Log, LogFull, Piece};
