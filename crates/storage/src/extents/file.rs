//! The file that a target's extents are in: how large it is, and how it is made.

use std::io::ErrorKind;
use std::path::Path;

use allocator::Block;

use super::block_device;
use super::device::ExtentDisk;
use super::geometry::{Geometry, StoreId};
use super::log::BLOCK_BYTES;
use crate::disk::{Disk, FileDisk};
use crate::error::{Result, StorageError};
use crate::space::SpaceStat;

/// A file whose size is not given is so many times as long as its file system, which may grow. It is less
/// where no file can be so long.
const TIMES_AS_LONG: [u64; 3] = [4, 2, 1];
/// The log has this part of the file, within these bounds.
const LOG_PART: u64 = 64;
const LOG_BLOCKS_MIN: u64 = 256;
const LOG_BLOCKS_MAX: u64 = 16_384;

/// The data begin at a multiple of so many blocks: groups then lie alike on the stripes of an array.
const ALIGNED_BLOCKS: u64 = 256;

/// Makes an empty store in a new file at `path`, of `bytes` or as its file system has space. The space of
/// what is not data is taken at once; that of a group when something is put there.
pub fn make(path: &Path, id: StoreId, bytes: Option<u64>) -> Result<()> {
    let disk = FileDisk::create(path)?;
    let geometry = match bytes {
        Some(bytes) => geometry_of(id, bytes, log_blocks_of(bytes))?,
        None => growing_geometry(id, &disk)?,
    };
    disk.set_len(geometry.blocks * BLOCK_BYTES)?;
    disk.reserve(0, geometry.data_offset(Block(0)))?;
    ExtentDisk::create(&disk, &geometry)
}

/// The parts of a store that grows as long as its file system has space.
fn growing_geometry(id: StoreId, disk: &FileDisk) -> Result<Geometry> {
    let below = disk
        .backing()?
        .map_or_else(SpaceStat::default, |below| below.space);
    let log_blocks = log_blocks_of(below.available);
    let mut tried = TIMES_AS_LONG.into_iter().peekable();
    while let Some(times) = tried.next() {
        let geometry = geometry_of(id, below.total.saturating_mul(times), log_blocks)?;
        match disk.set_len(geometry.blocks * BLOCK_BYTES) {
            Err(StorageError::FileTooBig { .. }) if tried.peek().is_some() => {}
            done => return done.map(|()| geometry),
        }
    }
    Err(StorageError::FileTooBig {
        at: disk.path().display().to_string(),
    })
}

/// The file system can have no such file: it takes no space beforehand, or has no files so long.
pub fn is_unsupported(error: &StorageError) -> bool {
    match error {
        StorageError::FileTooBig { .. } => true,
        StorageError::Io { kind, .. } => *kind == ErrorKind::Unsupported,
        _ => false,
    }
}

/// Makes an empty store on the block device at `path`, which has `bytes` of it, or all. With `erases`, what
/// the device held is lost; else one that holds something is refused.
pub fn make_on(path: &Path, id: StoreId, bytes: Option<u64>, erases: bool) -> Result<()> {
    let disk = block_device::open_unused(path, erases)?;
    let len = disk.len()?;
    let bytes = bytes.unwrap_or(len);
    if bytes > len {
        let reason = format!("it has {len} bytes, not {bytes}");
        return Err(StorageError::refused(path.display(), reason));
    }
    let geometry = geometry_of(id, bytes, log_blocks_of(bytes)).map_err(|_| {
        let reason = format!("{bytes} bytes are too few; it needs more than 2 MiB");
        StorageError::refused(path.display(), reason)
    })?;
    ExtentDisk::create(&disk, &geometry)
}

/// Blocks of the log where there is space for `bytes`.
fn log_blocks_of(bytes: u64) -> u64 {
    (bytes / LOG_PART / BLOCK_BYTES).clamp(LOG_BLOCKS_MIN, LOG_BLOCKS_MAX)
}

/// The parts of a store of `bytes` with a log of `log_blocks` or a little more.
fn geometry_of(id: StoreId, bytes: u64, mut log_blocks: u64) -> Result<Geometry> {
    loop {
        let geometry = Geometry::new(id, bytes, log_blocks)?;
        let first = geometry.blocks - geometry.data_blocks;
        match first % ALIGNED_BLOCKS {
            0 => return Ok(geometry),
            // A longer log may leave a group less: then once more.
            past => log_blocks += ALIGNED_BLOCKS - past,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_begin_at_a_whole_mebibyte_whatever_the_size() {
        let sizes = [
            3 << 20,
            128 << 20,
            1 << 30,
            (1 << 40) + 4096 * 77,
            (137 << 20) + 1,
        ];
        for bytes in sizes
            .into_iter()
            .chain((0..300).map(|n| (1 << 27) + n * 123_457))
        {
            let geometry = geometry_of(StoreId([1; 16]), bytes, log_blocks_of(bytes)).unwrap();
            assert_eq!(geometry.data_offset(Block(0)) % (1 << 20), 0, "{bytes}");
        }
    }
}
