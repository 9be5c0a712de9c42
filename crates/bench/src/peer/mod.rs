//! Other file systems that people would use instead, set up over the same link.

mod sshfs;

pub use sshfs::Sshfs;
