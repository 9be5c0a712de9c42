//! A directory that holds targets: `DIR/key` and one directory for each target, with a superblock.
//! docs/disk.md says which files are touched, and when.

mod directory;
mod error;
mod key;
pub(crate) mod lock;
mod making;
mod random;
mod superblock;
mod upgrading;

pub use directory::{FormatRequest, ObjectBytes, State, Target, TargetDir};
pub use error::TargetError;
pub use key::{KeyKind, TargetKey};
pub use making::FirstRecords;
pub use random::SystemRandom;
pub use superblock::{FsName, SUPERBLOCK_BYTES, SUPERBLOCK_VERSION, Superblock, Uuid};
pub use upgrading::Stage;
