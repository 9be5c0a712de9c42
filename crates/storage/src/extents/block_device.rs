//! A block device that is to hold a target's extents: whether it can, and whether it holds something else.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::stat::{major, minor};

use super::log::BLOCK_BYTES;
use crate::disk::{Disk, FileDisk};
use crate::error::{Result, StorageError};

/// File systems, volumes and partition tables have their marks in so many bytes at a device's ends.
const MARKS_BYTES: u64 = 1 << 20;

/// A device that can hold extents of 4 KiB, and that nothing else uses. Refused where it holds something,
/// but if `erases`.
pub fn open_unused(path: &Path, erases: bool) -> Result<FileDisk> {
    check_kind(path)?;
    check_is_free(path)?;
    let disk = FileDisk::open(path)?;
    if !erases && !is_blank(&disk)? {
        let reason = "it holds something already, which --erase-device would destroy";
        return Err(StorageError::refused(path.display(), reason));
    }
    Ok(disk)
}

fn check_kind(path: &Path) -> Result<()> {
    let at = path.display();
    let found = fs::metadata(path).map_err(|error| StorageError::from_io(at, "stat it", &error))?;
    if !found.file_type().is_block_device() {
        let reason = "it is no block device; for a file, give --store extents:SIZE";
        return Err(StorageError::refused(path.display(), reason));
    }
    let (major, minor) = (major(found.rdev()), minor(found.rdev()));
    let device = format!("/sys/dev/block/{major}:{minor}");
    // A partition has the queue of its disk.
    let sector = number_in(&format!("{device}/queue/logical_block_size"))
        .or_else(|| number_in(&format!("{device}/../queue/logical_block_size")));
    if let Some(sector) = sector.filter(|sector| *sector > BLOCK_BYTES) {
        let reason = format!("its sectors have {sector} bytes, and blocks have {BLOCK_BYTES}");
        return Err(StorageError::refused(path.display(), reason));
    }
    match number_in(&format!("{device}/alignment_offset")) {
        None | Some(0) => Ok(()),
        Some(bytes) => {
            let reason = format!("it begins {bytes} bytes before a block of its disk");
            Err(StorageError::refused(path.display(), reason))
        }
    }
}

fn number_in(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The kernel does not use it: it is not mounted, and no part of another device.
fn check_is_free(path: &Path) -> Result<()> {
    let mut options = OpenOptions::new();
    let alone = options.read(true).custom_flags(OFlag::O_EXCL.bits());
    match alone.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::ResourceBusy => {
            let reason = "it is mounted, or part of another device";
            Err(StorageError::refused(path.display(), reason))
        }
        Err(error) => Err(StorageError::from_io(path.display(), "open it", &error)),
    }
}

/// Both ends of it are zeros.
fn is_blank(disk: &FileDisk) -> Result<bool> {
    let len = disk.len()?;
    let part = len.min(MARKS_BYTES);
    for offset in [0, len - part] {
        let mut bytes = vec![0; part as usize];
        disk.read(offset, &mut bytes)?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}
