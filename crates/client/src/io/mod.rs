//! File data: cached bytes, extent locks, write-behind, read-ahead.

pub(crate) mod allocate;
pub(crate) mod asking;
pub(crate) mod close;
pub(crate) mod cover;
pub(crate) mod cut;
pub(crate) mod extents;
pub(crate) mod failures;
pub(crate) mod file;
pub(crate) mod flush;
pub(crate) mod glimpse;
pub(crate) mod pages;
pub(crate) mod read;
pub(crate) mod readahead;
pub(crate) mod revoke;
mod room;
pub(crate) mod truncate;
pub(crate) mod write;
