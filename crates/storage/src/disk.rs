//! A linear run of bytes that survives: the seam below everything durable.

pub mod checked;
mod device;
pub mod faulty;
pub mod file;
pub mod memory;
mod unwritten;

pub use checked::CheckedDisk;
pub use device::{Backing, Disk};
pub use faulty::{FaultyDisk, Survivors};
pub use file::FileDisk;
pub(crate) use file::disk_of;
pub use memory::MemDisk;
pub use unwritten::UnwrittenDisk;
