//! A file's attributes and a directory's entry, as answers carry them.

use std::time::Duration;

use base::Timestamp;

use super::abi::answer;

/// A timeout the kernel treats as endless, far from overflow in its arithmetic.
pub const FOREVER: Duration = Duration::from_secs(1 << 31);

/// What stat(2) shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes {
    /// st_ino.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
    /// Access time.
    pub atime: Timestamp,
    /// Modification time.
    pub mtime: Timestamp,
    /// Change time.
    pub ctime: Timestamp,
    /// Type and permission bits (st_mode).
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, as the kernel packs it: see [`pack_device`].
    pub rdev: u32,
    /// Preferred I/O size in bytes.
    pub block_size: u32,
}

impl Attributes {
    pub(super) fn encode(&self) -> answer::Attr {
        answer::Attr {
            ino: self.ino,
            size: self.size,
            blocks: self.blocks,
            atime: self.atime.secs as u64,
            mtime: self.mtime.secs as u64,
            ctime: self.ctime.secs as u64,
            atime_nanos: self.atime.nanos,
            mtime_nanos: self.mtime.nanos,
            ctime_nanos: self.ctime.nanos,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            block_size: self.block_size,
            flags: 0,
        }
    }
}

/// The protocol's 32 bits for a device node's numbers: 12 bits of major, 20 of minor.
pub fn pack_device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xfff00) << 12)
}

/// Major and minor number out of [`pack_device`]'s form.
pub fn unpack_device(packed: u32) -> (u32, u32) {
    (
        (packed >> 8) & 0xfff,
        (packed & 0xff) | ((packed >> 12) & 0xfff00),
    )
}

/// What a name leads to, and for how long the kernel may believe it.
///
/// Each one the kernel takes with a nodeid other than 0 adds 1 to what it will FORGET.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The inode's id in the protocol; 0 says that the name does not exist (LOOKUP), or that this
    /// entry is not to be remembered (READDIRPLUS).
    pub nodeid: u64,
    /// Tells apart inodes that had the same nodeid one after the other.
    pub generation: u64,
    /// How long the name leads there.
    pub entry_valid: Duration,
    /// How long the attributes hold.
    pub attributes_valid: Duration,
    /// The attributes.
    pub attributes: Attributes,
}

impl Entry {
    /// An entry that says that the name does not exist, and may be believed for `valid`.
    pub fn negative(valid: Duration) -> Entry {
        Entry {
            nodeid: 0,
            generation: 0,
            entry_valid: valid,
            attributes_valid: Duration::ZERO,
            attributes: Attributes::default(),
        }
    }

    pub(super) fn encode(&self) -> answer::Entry {
        answer::Entry {
            nodeid: self.nodeid,
            generation: self.generation,
            entry_valid: self.entry_valid.as_secs(),
            attr_valid: self.attributes_valid.as_secs(),
            entry_valid_nanos: self.entry_valid.subsec_nanos(),
            attr_valid_nanos: self.attributes_valid.subsec_nanos(),
            attr: self.attributes.encode(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_packing() {
        for (major, minor) in [(0, 0), (8, 1), (259, 0xabcde), (0xfff, 0xfffff)] {
            assert_eq!(unpack_device(pack_device(major, minor)), (major, minor));
        }
        assert_eq!(pack_device(8, 1), 0x801);
    }

    #[test]
    fn times_before_1970_survive() {
        let attributes = Attributes {
            mtime: Timestamp { secs: -5, nanos: 7 },
            ..Attributes::default()
        };
        let raw = attributes.encode();
        assert_eq!((raw.mtime as i64, raw.mtime_nanos), (-5, 7));
    }
}
