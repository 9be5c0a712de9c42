//! Recovery after a server restart, an eviction, or the end of the previous process.

mod claims;
mod inherit;
pub(crate) mod takeover;
pub(crate) mod void;
mod void_inode;
