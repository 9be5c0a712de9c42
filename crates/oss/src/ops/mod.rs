//! The operations, one file each: what they check, what they lock, what they do.

mod append;
mod destroy;
mod glimpse;
mod inherit;
mod list;
mod read;
mod reshape;
mod seek;
mod watch;
mod write;

pub(crate) use append::Append;
pub(crate) use glimpse::glimpse;
pub(crate) use list::{LISTED_MAX, list, page};
pub(crate) use read::Read;
pub(crate) use reshape::Reshape;
pub(crate) use seek::{Seek, seek};
pub(crate) use watch::{Watch, announce};
pub(crate) use write::Write;
