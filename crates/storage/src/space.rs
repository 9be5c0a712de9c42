//! The space of a target, as the system and the stores of objects tell it.

use base::limits::FILE_BYTES_MAX;

/// The space of a target, in bytes and objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpaceStat {
    /// All of it, in bytes.
    pub total: u64,
    /// Not in use, in bytes.
    pub free: u64,
    /// Not in use and not reserved for root, in bytes.
    pub available: u64,
    /// Objects that fit in all; zero where there is no such bound.
    pub objects_total: u64,
    /// Objects that still fit.
    pub objects_free: u64,
    /// One past the last byte that an object can have.
    pub object_bytes_max: u64,
    /// Names the disk among those of all machines that are running. Zero: unknown.
    pub disk: u64,
}

/// The most that is kept free, however large the disk, in bytes.
const FLOOR_BYTES_MAX: u64 = 64 << 20;

impl SpaceStat {
    /// What the system says of a disk.
    pub(crate) fn of(found: &nix::sys::statvfs::Statvfs) -> SpaceStat {
        let unit = found.fragment_size();
        SpaceStat {
            total: found.blocks() * unit,
            free: found.blocks_free() * unit,
            available: found.blocks_available() * unit,
            objects_total: found.files(),
            objects_free: found.files_free(),
            object_bytes_max: FILE_BYTES_MAX,
            disk: 0,
        }
    }

    /// Bytes kept free on a disk of this size, so that records can be written and objects removed
    /// when data have taken all they may.
    pub fn floor(&self) -> u64 {
        (self.total / 16).min(FLOOR_BYTES_MAX)
    }
}
