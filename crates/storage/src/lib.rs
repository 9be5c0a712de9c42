//! Durable state: the one crate that touches `std::fs`.
//!
//! [`Disk`] is about six calls on one linear run of bytes, with file, memory and faulty backends.
//! [`Kv`] is an ordered, transactional store on a `Disk`. [`TargetDir`] is a directory with
//! superblocks. [`ObjectStore`] holds the bytes of objects. Formats: `docs/disk.md`; the choice of
//! the engine: `docs/adr/0002-metadata-engine.md`.
//!
//! Invariant: what was damaged on disk is reported as damage; it is never served, never skipped.

mod anchor;
pub mod disk;
pub mod error;
pub mod fence;
pub mod kv;
pub mod objects;
pub mod pace;
mod regular;
pub mod room;
pub mod target;

pub use disk::{CheckedDisk, Disk, FaultyDisk, FileDisk, MemDisk, Survivors};
pub use error::{Result, StorageError};
pub use fence::{Fence, Process, is_running};
pub use kv::{Batch, Commit, Hole, KeyRange, Kv, KvOptions, KvStats, TableId, Ticket, Visit};
pub use objects::{
    OPEN_FILES_MAX, ObjectFiles, ObjectId, ObjectMemory, ObjectStat, ObjectStore, SealedObjects,
    SpaceStat, check_seal, examine_seals,
};
pub use pace::{COMMIT_BYTES, COMMIT_MS, Pace, Taken};
pub use room::Room;
pub use target::{
    FirstRecords, FormatRequest, FsName, KeyKind, State, Superblock, SystemRandom, Target,
    TargetDir, TargetError, TargetKey, Uuid,
};
