//! A directory that holds targets: `DIR/key` and one directory per target, each with a superblock.
//!
//! Nothing that is not ours is ever touched, nothing is formatted twice, and one process at a time
//! serves a target.

mod directory;
mod error;
mod key;
pub(crate) mod lock;
mod making;
mod random;
mod superblock;

pub use directory::{FormatRequest, State, Target, TargetDir};
pub use error::TargetError;
pub use key::{KeyKind, TargetKey};
pub use making::FirstRecords;
pub use random::SystemRandom;
pub use superblock::{FsName, SUPERBLOCK_BYTES, SUPERBLOCK_VERSION, Superblock, Uuid};
