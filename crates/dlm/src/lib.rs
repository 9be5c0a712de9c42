//! The distributed lock manager: a server's lock table and its mirror in a client.
//!
//! Both are pure state machines: time and input are arguments, output is data. They know no inode,
//! file, clock or socket; a resource is a number, and what a bit covers is its owner's affair.
//! docs/locks.md is the specification.
//!
//! Invariant: two locks, or a lock and a running operation, that conflict are never held at once by
//! different clients, and every waiting request is granted once its holders behave.

pub mod bits;
pub mod cache;
pub mod contention;
mod ids;
mod interval;
pub mod lock;
pub mod mode;
mod rangeset;
mod slab;
pub mod table;

pub use bits::Bits;
pub use cache::{CacheInput, CacheLimits, CacheOutput, LockCache, Reason, Release};
pub use contention::ContentionRule;
pub use ids::{IdHash, IdHasher, IdMap, IdSet};
pub use lock::{Cover, Grant, Keep, Lock, OpId, ResourceId};
pub use mode::{Mode, ModeSet};
pub use table::{
    Glimpsed, Input, Kind, Limits, LockTable, Output, Readmitted, Refusal, TryGrant, Want,
};
