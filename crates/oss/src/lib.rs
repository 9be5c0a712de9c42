//! The object storage server: file data, its sizes and its extent locks. [`Oss`] is all of it as one
//! deterministic state machine; [`serve`] puts it on a network.

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
pub mod upgrade;
mod work;

pub use durability::SyncTicket;
pub use objects::TOMBSTONE_AGE;
pub use oss::Oss;
pub use outbox::{Answer, Outbox, Output};
pub use recovery::Boot;
pub use step::Call;
pub use syncer::Syncer;
pub use work::{ListWork, ReadWork, SyncWork, Touched};
