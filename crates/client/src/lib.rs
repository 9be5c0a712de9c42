//! A file system without FUSE: POSIX-shaped calls ([`Client`]) on FIDs over one cache that locks cover.
//! [`Mounted`] makes a client. A call that must wait is parked as data ([`executor`]).

mod cache;
mod calls;
mod coherence;
pub mod executor;
mod journal;
mod mount;
mod policy;
mod recovery;
#[cfg(test)]
mod rig;
mod session;
mod work;

pub use cache::handle::HandleId;
pub use cache::kernel_pages::ReadTo;
pub use cache::stale_names::Reached;
pub use calls::read::ReadData;
pub use calls::write::WriteWish;
pub use calls::{
    CAPABILITY, Changed, Credentials, DirPage, FileMap, Moved, Opened, PageEntry, PinnedFile,
    Unheard,
};
pub use journal::attempts::{AttemptBody, AttemptJournal, AttemptRecord};
pub use journal::nodes::FurtherNode;
pub use journal::serving::{Left, begin_serving, end_serving, note_offer, offer};
pub use mount::Mounted;
pub use mount::config::{MountConfig, MountError, Patience};
pub use policy::statahead::report::{Pattern, WalkReport};
pub use policy::statahead::tree::TreePart;
pub use recovery::takeover::TakeoverState;
pub use session::client::{Client, Entry, NewNode, Place, Stat};
pub use session::file_handle::OpenWish;
pub use session::{kernel, params, stats};
pub use work::advice::{Advice, Heard, NameRange, RANGE_PART_MAX};
pub use work::reading::FETCHED_BYTES_MAX;
pub use work::write_errors::Unwritten;
