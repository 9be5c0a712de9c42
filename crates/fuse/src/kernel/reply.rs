//! Bodies of answers, from plain Rust types to the protocol's structures.

use std::time::Duration;

use base::Timestamp;

use super::abi::FileLock;
use super::abi::answer;
use super::attributes::Attributes;
use super::request::LockKind;

/// The answer to OPEN, OPENDIR, and the second half of CREATE's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opened {
    /// Comes back in each request on this open file.
    pub handle: u64,
    /// No page cache: each read and write is asked.
    pub direct_io: bool,
    /// Cached pages of the file stay; else the open drops them. For a directory: cached entries.
    pub keep_cache: bool,
    /// Entries of this directory may be cached.
    pub cache_dir: bool,
    /// lseek fails.
    pub nonseekable: bool,
    /// There is no file position at all.
    pub stream: bool,
    /// Closing sends no FLUSH.
    pub no_flush: bool,
    /// Direct writes to one file may run in parallel.
    pub parallel_direct_writes: bool,
}

impl Opened {
    pub(super) fn encode(&self) -> answer::Open {
        let flags = [
            (self.direct_io, answer::FOPEN_DIRECT_IO),
            (self.keep_cache, answer::FOPEN_KEEP_CACHE),
            (self.cache_dir, answer::FOPEN_CACHE_DIR),
            (self.nonseekable, answer::FOPEN_NONSEEKABLE),
            (self.stream, answer::FOPEN_STREAM),
            (self.no_flush, answer::FOPEN_NOFLUSH),
            (
                self.parallel_direct_writes,
                answer::FOPEN_PARALLEL_DIRECT_WRITES,
            ),
        ];
        let open_flags = flags
            .iter()
            .filter(|(set, _)| *set)
            .fold(0, |all, (_, flag)| all | flag);
        answer::Open {
            fh: self.handle,
            open_flags,
            backing_id: 0,
        }
    }
}

/// The answer to STATFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileSystemStatus {
    /// Space in units of `fragment_size`.
    pub blocks: u64,
    /// Free space, likewise.
    pub blocks_free: u64,
    /// Free space for who is not root, likewise.
    pub blocks_available: u64,
    /// Inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Preferred I/O size in bytes.
    pub block_size: u32,
    /// Bytes in a name.
    pub name_max: u32,
    /// Unit of the block counts in bytes.
    pub fragment_size: u32,
}

impl FileSystemStatus {
    pub(super) fn encode(&self) -> answer::Statfs {
        answer::Statfs {
            blocks: self.blocks,
            blocks_free: self.blocks_free,
            blocks_available: self.blocks_available,
            files: self.files,
            files_free: self.files_free,
            block_size: self.block_size,
            name_max: self.name_max,
            fragment_size: self.fragment_size,
            padding: 0,
            spare: [0; 6],
        }
    }
}

/// The answer to GETLK: a lock in the way, or `Unlock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockReply {
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// What is held; `Unlock` where nothing is in the way.
    pub kind: LockKind,
    /// Who holds it.
    pub pid: u32,
}

impl LockReply {
    pub(super) fn encode(&self) -> answer::Lock {
        let kind = self.kind.number();
        answer::Lock {
            lock: FileLock {
                start: self.start,
                end: self.end,
                kind,
                pid: self.pid,
            },
        }
    }
}

pub(super) fn attributes(valid: Duration, attributes: &Attributes) -> answer::AttrOut {
    answer::AttrOut {
        attr_valid: valid.as_secs(),
        attr_valid_nanos: valid.subsec_nanos(),
        unused: 0,
        attr: attributes.encode(),
    }
}

/// STATX's answer: the basic attributes, and the birth time where it is known.
pub(super) fn statx(
    valid: Duration,
    attributes: &Attributes,
    birth: Option<Timestamp>,
) -> answer::Statx {
    let (rdev_major, rdev_minor) = super::attributes::unpack_device(attributes.rdev);
    let birth_mask = if birth.is_some() {
        libc::STATX_BTIME
    } else {
        0
    };
    answer::Statx {
        attr_valid: valid.as_secs(),
        attr_valid_nanos: valid.subsec_nanos(),
        mask: libc::STATX_BASIC_STATS | birth_mask,
        block_size: attributes.block_size,
        nlink: attributes.nlink,
        uid: attributes.uid,
        gid: attributes.gid,
        mode: attributes.mode as u16,
        ino: attributes.ino,
        size: attributes.size,
        blocks: attributes.blocks,
        atime: statx_time(attributes.atime),
        btime: statx_time(birth.unwrap_or_default()),
        ctime: statx_time(attributes.ctime),
        mtime: statx_time(attributes.mtime),
        rdev_major,
        rdev_minor,
        ..answer::Statx::default()
    }
}

fn statx_time(time: Timestamp) -> answer::StatxTime {
    answer::StatxTime {
        secs: time.secs,
        nanos: time.nanos,
        reserved: 0,
    }
}
