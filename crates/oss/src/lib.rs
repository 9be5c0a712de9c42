//! The object storage server: file data, its sizes and its extent locks.
//!
//! [`Oss`] is the whole of it as one deterministic state machine: requests, callback answers and
//! time go in, replies, callbacks and wanted syncs come out. [`serve`] puts it on a network.
//!
//! Invariant: bytes are read and written only under a lock that covers them, the caller's or the
//! target's own; what `committed` covers survives a crash.

mod audit;
mod clients;
mod durability;
mod failure;
pub mod fsck;
mod locks;
mod objects;
mod ops;
mod oss;
mod outbox;
mod peer_watermark;
pub mod records;
mod recovery;
mod resizing;
mod room;
pub mod serve;
mod step;
mod syncer;
mod work;

pub use durability::SyncTicket;
pub use objects::TOMBSTONE_AGE;
pub use oss::Oss;
pub use outbox::{Answer, Outbox, Output};
pub use recovery::Boot;
pub use step::Call;
pub use syncer::Syncer;
pub use work::{ListWork, ReadWork, SyncWork, Touched};
