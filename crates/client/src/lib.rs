//! A file system without FUSE: POSIX-shaped calls on FIDs over ONE cache that locks cover.
//!
//! The kernel rim, tools and tests use [`Client`]; [`Mounted`] makes one. Statahead and write-behind
//! are policies over the cache. What must wait is parked as data ([`executor`]).

mod audit;
mod cache;
mod callbacks;
mod calls;
mod client;
mod cluster;
pub mod executor;
mod forgetting;
mod giving_up;
mod handles;
mod io;
pub mod kernel;
mod locks;
mod mount;
pub mod params;
mod places;
mod recovery;
mod remembered;
#[cfg(test)]
mod rig;
mod sequence;
mod stalls;
mod statahead;
pub mod stats;
mod untold;

pub use cache::inode::Reached;
pub use calls::{Changed, Credentials, DirPage, Moved, OpenWish, Opened, PageEntry, PinnedFile};
pub use client::{Client, Entry, NewNode, Place, Stat};
pub use handles::HandleId;
pub use io::losses::Unwritten;
pub use io::read::{ReadData, ReadTo};
pub use io::write::WriteWish;
pub use mount::{MountConfig, MountError, Mounted, Patience};
pub use remembered::{FurtherNode, Heritage, Left, begin_serving, end_serving, note_offer, offer};
pub use statahead::advice::{Advice, Heard, NameRange, RANGE_PART_MAX};
pub use statahead::reading::FETCHED_BYTES_MAX;
pub use statahead::report::{Pattern, WalkReport};
pub use statahead::tree::TreePart;
