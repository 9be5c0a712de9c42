//! File data: cached bytes, extent locks, write-behind, read-ahead.

pub(crate) mod asking;
pub(crate) mod close;
pub(crate) mod cover;
pub(crate) mod extents;
pub(crate) mod failures;
pub(crate) mod file;
pub(crate) mod flush;
pub(crate) mod glimpse;
pub(crate) mod kernel_pages;
pub(crate) mod losses;
pub(crate) mod pages;
pub(crate) mod read;
pub(crate) mod readahead;
pub(crate) mod reshape;
pub(crate) mod reshapes;
pub(crate) mod revoke;
mod room;
pub(crate) mod seek;
pub(crate) mod watch;
pub(crate) mod write;
