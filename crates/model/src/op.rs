//! Path-level calls as data.

use base::{FsError, Timestamp};
use wire::FileKind;
use wire::mdt::{RenameMode, SetTime, XattrMode};
use wire::ost::AllocateMode;

use crate::node::Stat;

/// Open files a process has at most; an [`Op`] names one by its slot, below this.
pub const SLOTS: u8 = 6;

/// Flags of `open(2)`; `O_NOFOLLOW` is always set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenHow {
    /// Open for reading. Without `read` and `write` it is opened for reading, too.
    pub read: bool,
    /// Open for writing.
    pub write: bool,
    /// `O_APPEND`.
    pub append: bool,
    /// `O_CREAT`.
    pub create: bool,
    /// `O_EXCL`; only with `create`.
    pub exclusive: bool,
    /// `O_TRUNC`; only with `write`.
    pub truncate: bool,
}

/// One call. Paths are relative to the root, without `.`, `..` or doubled slashes; symlinks' targets
/// must name nothing, so that following one finds nothing.
#[allow(missing_docs, reason = "the fields are the calls' own arguments")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// `mkdir`.
    Mkdir { path: String, mode: u16 },
    /// `mknod`: a regular file, fifo, socket or device.
    Mknod {
        path: String,
        kind: FileKind,
        mode: u16,
        rdev: u32,
    },
    /// `symlink`.
    Symlink { path: String, target: String },
    /// `link`, which follows no symlink.
    Link { from: String, to: String },
    /// `unlink`.
    Unlink { path: String },
    /// `rmdir`.
    Rmdir { path: String },
    /// `renameat2`.
    Rename {
        from: String,
        to: String,
        mode: RenameMode,
        /// A whiteout stays under the old name.
        whiteout: bool,
    },
    /// `chmod`, which follows symlinks.
    Chmod { path: String, mode: u16 },
    /// `lchown`.
    Chown {
        path: String,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    /// `utimensat`, which follows no symlink here.
    SetTimes {
        path: String,
        atime: Option<SetTime>,
        mtime: Option<SetTime>,
    },
    /// `truncate`, which follows symlinks.
    Truncate { path: String, size: u64 },
    /// `lstat`.
    Stat { path: String },
    /// `readlink`.
    ReadLink { path: String },
    /// `opendir` and all of `readdir`.
    List { path: String },
    /// `lsetxattr`.
    SetXattr {
        path: String,
        name: String,
        value: Vec<u8>,
        mode: XattrMode,
    },
    /// `lgetxattr`.
    GetXattr { path: String, name: String },
    /// `llistxattr`.
    ListXattrs { path: String },
    /// `lremovexattr`.
    RemoveXattr { path: String, name: String },
    /// `open`; what was in the slot is closed first. Fifos, sockets and devices are not opened.
    Open {
        slot: u8,
        path: String,
        how: OpenHow,
        mode: u16,
    },
    /// `open` of a directory with `O_TMPFILE`; of `how` counts whether it is read, appended to, or
    /// exclusive, which forbids a name.
    OpenNameless {
        slot: u8,
        path: String,
        how: OpenHow,
        mode: u16,
    },
    /// `linkat` of an open file.
    LinkOpen { slot: u8, to: String },
    /// `close`.
    Close { slot: u8 },
    /// `pread`.
    Read { slot: u8, offset: u64, len: usize },
    /// `pwrite` of [`Op::data`].
    Write {
        slot: u8,
        offset: u64,
        len: usize,
        fill: u8,
    },
    /// `ftruncate`.
    SetLength { slot: u8, size: u64 },
    /// `fallocate`.
    Allocate {
        slot: u8,
        offset: u64,
        len: u64,
        mode: AllocateMode,
    },
    /// `fstat`.
    Fstat { slot: u8 },
    /// `fsync`.
    Fsync { slot: u8 },
}

/// What a call showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// Nothing but that it succeeded.
    Nothing,
    /// It was not made: the slot is empty, or the file is of a kind that is not opened.
    Skipped,
    /// Bytes read, a link's target, an attribute's value.
    Bytes(Vec<u8>),
    /// Bytes written.
    Count(usize),
    /// Names with their kinds, sorted.
    Names(Vec<(Vec<u8>, FileKind)>),
    /// Attributes' names, sorted.
    Xattrs(Vec<Vec<u8>>),
    /// Attributes.
    Stat(Stat),
    /// Access and modification times, where the call fixed them.
    Times(Option<Timestamp>, Option<Timestamp>),
    /// An errno that no [`FsError`] stands for.
    Odd(i32),
}

/// A call's result.
pub type Outcome = Result<Seen, FsError>;

impl Op {
    /// The bytes that a [`Op::Write`] writes.
    pub fn data(len: usize, fill: u8) -> Vec<u8> {
        (0..len).map(|i| fill.wrapping_add(i as u8)).collect()
    }

    /// The open file it uses: a test with several mounts must send it where the slot was opened.
    pub fn slot(&self) -> Option<u8> {
        match self {
            Op::Open { slot, .. }
            | Op::OpenNameless { slot, .. }
            | Op::LinkOpen { slot, .. }
            | Op::Close { slot }
            | Op::Read { slot, .. }
            | Op::Write { slot, .. }
            | Op::SetLength { slot, .. }
            | Op::Allocate { slot, .. }
            | Op::Fstat { slot }
            | Op::Fsync { slot } => Some(*slot),
            _ => None,
        }
    }

    /// The paths it names, for a comparison of just these.
    pub fn paths(&self) -> Vec<&str> {
        match self {
            Op::Mkdir { path, .. }
            | Op::Mknod { path, .. }
            | Op::Symlink { path, .. }
            | Op::Unlink { path }
            | Op::Rmdir { path }
            | Op::Chmod { path, .. }
            | Op::Chown { path, .. }
            | Op::SetTimes { path, .. }
            | Op::Truncate { path, .. }
            | Op::Stat { path }
            | Op::ReadLink { path }
            | Op::List { path }
            | Op::SetXattr { path, .. }
            | Op::GetXattr { path, .. }
            | Op::ListXattrs { path }
            | Op::RemoveXattr { path, .. }
            | Op::Open { path, .. } => vec![path],
            Op::Link { from, to } | Op::Rename { from, to, .. } => vec![from, to],
            Op::LinkOpen { to, .. } => vec![to],
            _ => Vec::new(),
        }
    }
}
