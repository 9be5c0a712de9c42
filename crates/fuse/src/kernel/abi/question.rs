//! Fixed parts of requests, after the header.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::FileLock;

macro_rules! questions {
    ($($(#[$meta:meta])* $name:ident, $size:literal { $($field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
        pub struct $name { $(pub $field: $type),* }

        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

questions! {
    /// FORGET.
    Forget, 8 { lookups: u64 }
    /// Starts BATCH_FORGET; `count` [`ForgetOne`] follow.
    BatchForget, 8 { count: u32, unused: u32 }
    /// One of a BATCH_FORGET.
    ForgetOne, 16 { nodeid: u64, lookups: u64 }
    /// GETATTR.
    Getattr, 16 { flags: u32, unused: u32, fh: u64 }
    /// STATX.
    Statx, 24 { flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    /// MKNOD; the name follows.
    Mknod, 16 { mode: u32, rdev: u32, umask: u32, padding: u32 }
    /// MKDIR; the name follows.
    Mkdir, 8 { mode: u32, umask: u32 }
    /// RENAME; old and new name follow.
    Rename, 8 { new_parent: u64 }
    /// RENAME2; old and new name follow.
    Rename2, 16 { new_parent: u64, flags: u32, padding: u32 }
    /// LINK; the new name follows.
    Link, 8 { source: u64 }
    /// SETATTR.
    Setattr, 88 {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64,
        atime: u64, mtime: u64, ctime: u64, atime_nanos: u32, mtime_nanos: u32, ctime_nanos: u32,
        mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    /// OPEN and OPENDIR.
    Open, 8 { flags: u32, open_flags: u32 }
    /// CREATE and TMPFILE; CREATE's name follows.
    Create, 16 { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    /// RELEASE and RELEASEDIR.
    Release, 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    /// FLUSH.
    Flush, 24 { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    /// READ, READDIR, READDIRPLUS.
    Read, 40 {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    /// WRITE; the data follows.
    Write, 40 {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    /// FSYNC and FSYNCDIR.
    Fsync, 16 { fh: u64, flags: u32, padding: u32 }
    /// SETXATTR; the name and the value follow.
    Setxattr, 8 { size: u32, flags: u32 }
    /// Follows [`Setxattr`] when SETXATTR_EXT was taken.
    SetxattrTail, 8 { setxattr_flags: u32, padding: u32 }
    /// GETXATTR, whose name follows, and LISTXATTR.
    Getxattr, 8 { size: u32, padding: u32 }
    /// GETLK, SETLK, SETLKW.
    Lock, 48 { fh: u64, owner: u64, lock: FileLock, flags: u32, padding: u32 }
    /// ACCESS.
    Access, 8 { mask: u32, padding: u32 }
    /// INTERRUPT.
    Interrupt, 8 { unique: u64 }
    /// BMAP.
    Bmap, 16 { block: u64, block_size: u32, padding: u32 }
    /// IOCTL; `in_size` bytes follow.
    Ioctl, 32 { fh: u64, flags: u32, command: u32, argument: u64, in_size: u32, out_size: u32 }
    /// POLL.
    Poll, 24 { fh: u64, kernel_handle: u64, flags: u32, events: u32 }
    /// NOTIFY_REPLY; the data follows.
    Retrieved, 40 { unused1: u64, offset: u64, size: u32, unused2: u32, unused3: u64, unused4: u64 }
    /// FALLOCATE.
    Fallocate, 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    /// LSEEK.
    Lseek, 24 { fh: u64, offset: u64, whence: u32, padding: u32 }
    /// COPY_FILE_RANGE and COPY_FILE_RANGE_64.
    CopyFileRange, 56 {
        fh_in: u64, offset_in: u64, nodeid_out: u64, fh_out: u64, offset_out: u64, length: u64,
        flags: u64,
    }
}

/// GETATTR and STATX: the handle counts.
pub const GETATTR_FH: u32 = 1 << 0;
/// OPEN and CREATE: clear setuid and setgid.
pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// READ: the lock owner counts.
pub const READ_LOCKOWNER: u32 = 1 << 1;
/// WRITE: comes from the page cache, caller and handle are guesses.
pub const WRITE_CACHE: u32 = 1 << 0;
/// WRITE: the lock owner counts.
pub const WRITE_LOCKOWNER: u32 = 1 << 1;
/// WRITE: clear setuid and setgid.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// RELEASE: flush first.
pub const RELEASE_FLUSH: u32 = 1 << 0;
/// RELEASE: drop the owner's flock.
pub const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
/// FSYNC: data is enough.
pub const FSYNC_FDATASYNC: u32 = 1 << 0;
/// GETLK and SETLK: a BSD lock.
pub const LK_FLOCK: u32 = 1 << 0;
/// IOCTL: of a directory.
pub const IOCTL_DIR: u32 = 1 << 4;
/// SETXATTR: the ACL clears setgid.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// POLL: tell when ready.
pub const POLL_SCHEDULE_NOTIFY: u32 = 1 << 0;

/// SETATTR's `valid` bits.
pub mod valid {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const LOCKOWNER: u32 = 1 << 9;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}
