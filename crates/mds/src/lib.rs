//! The metadata server: names, attributes, open files, and the locks that make them shared. [`Mds`] is all of
//! it as one state machine, `ops` has one file for each operation, and [`serve`] puts it on a network.
//! docs/disk.md, docs/locks.md and docs/recovery.md are the normative texts.

mod answer;
mod audit;
mod busy;
mod callback;
mod change_set;
mod changing;
pub mod core;
pub mod cover;
mod destroy;
mod effect;
pub mod event;
mod first_ost;
pub mod format;
pub mod fsck;
mod inquiries;
pub mod keys;
mod leaks;
pub mod locks;
pub mod mutation;
pub mod namespace;
pub mod opens;
pub mod ops;
mod recent;
mod reclaimed;
pub mod records;
pub mod recovery;
mod request;
#[cfg(test)]
mod rig;
mod room;
pub mod serve;
pub mod sharing;
pub mod store;
pub mod txn;
mod updates;
mod upkeep;
mod walks;
pub mod watermarks;

pub use crate::core::Mds;
pub use event::{Call, OstInquiry, Output};
pub use format::format;
pub use ops::context::Rules;
pub use recovery::GRACE;
pub use store::tables;
