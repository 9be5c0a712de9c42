//! Durable state, and the one crate that touches `std::fs`: [`Disk`], [`Kv`], [`TargetDir`], [`ObjectStore`].
//! Damage on a disk is reported, and never served or skipped. docs/disk.md is the normative text.

mod anchor;
pub mod disk;
pub mod error;
pub mod extents;
pub mod fence;
pub mod kv;
pub mod objects;
pub mod pace;
mod regular;
pub mod room;
mod space;
pub mod target;
pub mod upgrade;

pub use disk::{Backing, CheckedDisk, Disk, FaultyDisk, FileDisk, MemDisk, Survivors};
pub use error::{Result, StorageError};
pub use fence::{Fence, Process, is_running};
pub use kv::{Batch, Commit, Hole, KeyRange, Kv, KvOptions, KvStats, TableId, Ticket, Visit};
pub use objects::{
    Flaw, OPEN_FILES_MAX, ObjectFiles, ObjectId, ObjectMap, ObjectMemory, ObjectStat, ObjectStore,
    Placed, SealedObjects, Wanted, check_seal, examine_seals, recorded_end,
};
pub use pace::{COMMIT_BYTES, COMMIT_MS, Pace, Taken};
pub use room::Room;
pub use space::SpaceStat;
pub use target::{
    FirstRecords, FormatRequest, FsName, KeyKind, ObjectBytes, Stage, State, Superblock,
    SystemRandom, Target, TargetDir, TargetError, TargetKey, Uuid,
};
