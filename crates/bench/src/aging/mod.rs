//! The ageing lab: how placement by the object store's allocator ages. `glint bench aging` runs it.

mod array;
mod claims;
mod device;
mod drive;
mod jobs;
mod lab;
mod medium;
mod paper;
pub mod parameters;
mod sections;
mod target;
mod trees;
mod wear;

pub use device::Erase;
pub use lab::{Disk, Lab};
