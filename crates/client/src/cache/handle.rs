//! How an open file or directory is named.

/// An open file or directory, as the kernel names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandleId(pub u64);
