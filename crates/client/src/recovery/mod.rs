//! Going on after a server's restart, an eviction, or the end of the process before this one.

pub(crate) mod heritage;
pub(crate) mod void;
