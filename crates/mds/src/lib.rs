//! The metadata server: names, attributes, open files, and the locks that make them shared.
//!
//! - [`Mds`] is the whole server as one state machine without threads, sockets or clocks.
//! - `ops` has one file per operation; each says what it needs, then runs in a [`txn::Txn`].
//! - `records` and `keys` are the disk format; `mutation` the one place where changes become bytes.
//! - `fsck` reads a whole target, says what is wrong with it and mends that.
//!
//! Invariant: every change is one batch that also holds its answer; batches become durable in the
//! order of their transnos, so a crash takes a suffix, and a resent request is never done twice.

mod answer;
mod audit;
mod busy;
mod callback;
pub mod core;
pub mod cover;
mod destroy;
pub mod event;
mod first_ost;
pub mod format;
pub mod fsck;
pub mod hash;
pub mod keys;
mod leaks;
pub mod locks;
pub mod mutation;
pub mod namespace;
pub mod opens;
pub mod ops;
mod recent;
pub mod records;
pub mod recovery;
mod request;
mod room;
pub mod serve;
pub mod sharing;
pub mod store;
pub mod txn;
mod upkeep;
mod walks;
pub mod watermarks;

pub use crate::core::{GRACE, Mds};
pub use event::{Call, Output};
pub use format::format;
pub use ops::context::Rules;
pub use store::tables;
