//! The file that a target's extents are in: how large it is, and how it is made.

use std::path::Path;

use super::device::ExtentDisk;
use super::geometry::{Geometry, StoreId};
use super::log::BLOCK_BYTES;
use crate::disk::{Disk, FileDisk};
use crate::error::Result;

/// Of a file whose size is not given: this part of what its file system has left is for others.
const LEFT_TO_OTHERS: u64 = 16;
/// The log has this part of the file, within these bounds.
const LOG_PART: u64 = 64;
const LOG_BLOCKS_MIN: u64 = 256;
const LOG_BLOCKS_MAX: u64 = 16_384;

/// Makes an empty store in a new file at `path`. The space of what is not data is taken at once; that of a
/// group when something is put there.
pub fn make(path: &Path, id: StoreId, bytes: Option<u64>) -> Result<()> {
    let disk = FileDisk::create(path)?;
    let below = disk.backing()?.map_or(0, |below| below.available);
    let bytes = bytes.unwrap_or(below - below / LEFT_TO_OTHERS);
    let log_blocks = (bytes / LOG_PART / BLOCK_BYTES).clamp(LOG_BLOCKS_MIN, LOG_BLOCKS_MAX);
    let geometry = Geometry::new(id, bytes, log_blocks)?;
    disk.set_len(geometry.blocks * BLOCK_BYTES)?;
    disk.reserve(0, geometry.data_offset(allocator::Block(0)))?;
    ExtentDisk::create(&disk, &geometry)
}
