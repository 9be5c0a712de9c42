//! The distributed lock manager: a server's [`LockTable`], and its mirror in a client, the [`LockCache`].
//! Both are pure state machines: time and input are arguments, output is data. docs/locks.md is the normative
//! text.

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
pub use contention::{Contention, ContentionRule};
pub use ids::{IdHash, IdHasher, IdMap, IdSet};
pub use lock::{Cover, Grant, Keep, Lock, OpId, ResourceId};
pub use mode::{Mode, ModeSet};
pub use table::{
    Glimpsed, Input, Kind, Limits, LockTable, Output, Readmitted, Refusal, TryGrant, Want,
};
