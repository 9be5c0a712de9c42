//! One file per call. Each answers from the cache under its locks, or asks a server.

pub(crate) mod attributes;
mod births;
mod execution;
mod lease_walk;
mod leases;
mod links;
pub(crate) mod listing;
mod local_attributes;
mod local_link;
mod local_move;
mod local_removal;
mod local_rename;
mod local_xattr;
pub(crate) mod lookup;
mod make;
mod map;
pub(crate) mod open;
mod pinned;
mod privileges;
pub(crate) mod read;
mod replacing;
pub(crate) mod resize;
pub(crate) mod seek;
mod space;
mod unheard;
pub(crate) mod write;
mod xattr;

pub use links::Moved;
pub use listing::{DirPage, PageEntry};
pub use map::FileMap;
pub use open::Opened;
pub use pinned::PinnedFile;
pub use privileges::{CAPABILITY, Changed, Credentials};
pub use unheard::Unheard;
