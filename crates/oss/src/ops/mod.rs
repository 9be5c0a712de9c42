//! The operations, one file each: what they check, what they lock, what they do.

mod allocate;
mod append;
mod destroy;
mod glimpse;
mod read;
mod seek;
mod truncate;
mod write;

pub(crate) use allocate::Allocate;
pub(crate) use append::Append;
pub(crate) use glimpse::glimpse;
pub(crate) use read::Read;
pub(crate) use seek::{Seek, seek};
pub(crate) use truncate::Truncate;
pub(crate) use write::Write;
