//! Fixed parts of answers, after the header.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::FileLock;

macro_rules! answers {
    ($($(#[$meta:meta])* $name:ident, $size:literal { $($field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        pub struct $name { $(pub $field: $type),* }

        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

answers! {
    /// A file's attributes, part of several answers.
    Attr, 88 {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64,
        atime_nanos: u32, mtime_nanos: u32, ctime_nanos: u32, mode: u32, nlink: u32,
        uid: u32, gid: u32, rdev: u32, block_size: u32, flags: u32,
    }
    /// LOOKUP, MKNOD, MKDIR, SYMLINK, LINK; first part of CREATE, TMPFILE, and of plus entries.
    Entry, 128 {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nanos: u32, attr_valid_nanos: u32, attr: Attr,
    }
    /// GETATTR, SETATTR.
    AttrOut, 104 { attr_valid: u64, attr_valid_nanos: u32, unused: u32, attr: Attr }
    /// A time in STATX.
    StatxTime, 16 { secs: i64, nanos: u32, reserved: i32 }
    /// STATX.
    Statx, 288 {
        attr_valid: u64, attr_valid_nanos: u32, flags: u32, spare: [u64; 2],
        mask: u32, block_size: u32, attributes: u64, nlink: u32, uid: u32, gid: u32,
        mode: u16, spare0: [u16; 1], ino: u64, size: u64, blocks: u64, attributes_mask: u64,
        atime: StatxTime, btime: StatxTime, ctime: StatxTime, mtime: StatxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    /// OPEN, OPENDIR; second part of CREATE and TMPFILE.
    Open, 16 { fh: u64, open_flags: u32, backing_id: i32 }
    /// WRITE, COPY_FILE_RANGE.
    Write, 8 { size: u32, padding: u32 }
    /// STATFS.
    Statfs, 80 {
        blocks: u64, blocks_free: u64, blocks_available: u64, files: u64, files_free: u64,
        block_size: u32, name_max: u32, fragment_size: u32, padding: u32, spare: [u32; 6],
    }
    /// GETXATTR and LISTXATTR when asked for the size.
    Getxattr, 8 { size: u32, padding: u32 }
    /// GETLK.
    Lock, 24 { lock: FileLock }
    /// IOCTL; data follows.
    Ioctl, 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    /// POLL.
    Poll, 8 { revents: u32, padding: u32 }
    /// LSEEK.
    Lseek, 8 { offset: u64 }
    /// BMAP.
    Bmap, 8 { block: u64 }
    /// COPY_FILE_RANGE_64.
    Copied, 8 { bytes: u64 }
    /// Starts a directory entry; the name follows, padded to 8 bytes.
    Dirent, 24 { ino: u64, next: u64, name_len: u32, kind: u32 }
}

/// OPEN's answer: no page cache.
pub const FOPEN_DIRECT_IO: u32 = 1 << 0;
/// OPEN's answer: cached pages stay.
pub const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// OPEN's answer: not seekable.
pub const FOPEN_NONSEEKABLE: u32 = 1 << 2;
/// OPENDIR's answer: entries may be cached.
pub const FOPEN_CACHE_DIR: u32 = 1 << 3;
/// OPEN's answer: no file position.
pub const FOPEN_STREAM: u32 = 1 << 4;
/// OPEN's answer: no FLUSH at close.
pub const FOPEN_NOFLUSH: u32 = 1 << 5;
/// OPEN's answer: direct writes may run in parallel.
pub const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
