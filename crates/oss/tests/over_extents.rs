//! The tests of a target once more, with the bytes of its objects on extents.

#![allow(
    clippy::duplicate_mod,
    reason = "each of these files is a test program of its own, too"
)]

#[path = "allocate.rs"]
mod allocate;
#[path = "cuts.rs"]
mod cuts;
#[path = "fsck.rs"]
mod fsck;
#[path = "full.rs"]
mod full;
#[path = "joins.rs"]
mod joins;
#[path = "list.rs"]
mod list;
#[path = "random.rs"]
mod random;
#[path = "recovery.rs"]
mod recovery;
#[path = "scripts.rs"]
mod scripts;
#[path = "tickets.rs"]
mod tickets;

const OVER_EXTENTS: bool = true;
