//! fsck
