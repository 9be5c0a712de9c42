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

/// What is known by a mark at its beginning: what it is, the mark's offset, the mark.
const KNOWN: &[(&str, usize, &[u8])] = &[
    ("a store of objects of Glint's", 0, b"GLINTEXT"),
    ("a partition table (GPT)", 512, b"EFI PART"),
    ("a file system (ext2, ext3 or ext4)", 1080, &[0x53, 0xef]),
    ("a file system (XFS)", 0, b"XFSB"),
    ("a file system (btrfs)", 65_600, b"_BHRfS_M"),
    ("an encrypted volume (LUKS)", 0, b"LUKS"),
    ("a physical volume (LVM)", 512, b"LABELONE"),
    ("swap space", 4086, b"SWAPSPACE2"),
    ("a partition table (MBR)", 510, &[0x55, 0xaa]),
];

/// A device that can hold extents of 4 KiB, and that nothing else uses. Refused where it holds something,
/// but if `erases`.
pub fn open_unused(path: &Path, erases: bool) -> Result<FileDisk> {
    check_kind(path)?;
    check_is_free(path)?;
    let disk = FileDisk::open(path)?;
    match contents(&disk)? {
        Some(found) if !erases => {
            let reason = format!("it holds {found}, which --erase-device would destroy");
            Err(StorageError::refused(path.display(), reason))
        }
        _ => Ok(disk),
    }
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

/// What it holds. None: both ends of it are zeros.
fn contents(disk: &FileDisk) -> Result<Option<&'static str>> {
    let len = disk.len()?;
    let part = len.min(MARKS_BYTES);
    let mut is_blank = true;
    for offset in [0, len - part] {
        let mut bytes = vec![0; part as usize];
        disk.read(offset, &mut bytes)?;
        let has = |at: usize, mark: &[u8]| bytes.get(at..at + mark.len()) == Some(mark);
        let known = KNOWN.iter().find(|(_, at, mark)| has(*at, mark));
        if let Some((what, ..)) = known.filter(|_| offset == 0) {
            return Ok(Some(what));
        }
        is_blank &= bytes.iter().all(|byte| *byte == 0);
    }
    Ok((!is_blank).then_some("something already"))
}
