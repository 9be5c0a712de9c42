//! The ageing lab: how placement by the object store's allocator ages. `glint bench aging` runs it on a model
//! disk in virtual time.

mod array;
mod claims;
mod drive;
mod jobs;
mod lab;
mod medium;
mod paper;
pub mod parameters;
mod sections;
mod target;

pub use lab::{Disk, Lab};
