//! One file per call. Each answers from the cache under its locks, or asks a server.

pub(crate) mod attributes;
mod links;
pub(crate) mod listing;
pub(crate) mod lookup;
mod make;
pub(crate) mod open;
mod pinned;
mod privileges;
mod replacing;
mod space;
mod xattr;

pub use links::Moved;
pub use listing::{DirPage, PageEntry};
pub use open::{OpenWish, Opened};
pub use pinned::PinnedFile;
pub use privileges::{Changed, Credentials};
