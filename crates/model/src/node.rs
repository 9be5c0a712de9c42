//! One file of the model.

use std::collections::BTreeMap;

use base::{Fid, Name, Timestamp};
use wire::FileKind;

/// What `lstat` shows of a file, without times and without what each file system chooses itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// What kind of file.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky: 0o7777.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Hard links; for a directory two plus its subdirectories.
    pub nlink: u32,
    /// Bytes; zero for what is neither a regular file nor a symlink.
    pub size: u64,
    /// Device number of a device file; else zero.
    pub rdev: u32,
}

/// What a file holds besides attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// A regular file's bytes.
    Bytes(Vec<u8>),
    /// A directory's names, and the directory it is in.
    Names {
        /// Name to file.
        names: BTreeMap<Name, Fid>,
        /// What `..` is.
        parent: Fid,
    },
    /// A symlink's text.
    Target(Vec<u8>),
    /// Nothing: fifo, socket, device.
    Nothing,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// What kind of file.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky: 0o7777.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Hard links; for a directory two plus its subdirectories, zero once removed.
    pub nlink: u32,
    /// Device number of a device file; else zero.
    pub rdev: u32,
    /// Last access; `None` after a read (relatime leaves it open).
    pub atime: Option<Timestamp>,
    /// Last change of the content; `None` where POSIX leaves open whether the call sets it.
    pub mtime: Option<Timestamp>,
    /// Last change of the attributes.
    pub ctime: Timestamp,
    /// Extended attributes by full name.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Bytes, names or target.
    pub body: Body,
    /// Open handles.
    pub opens: u32,
    /// It was made without a name and has got none yet, and may get one.
    pub linkable: bool,
}

impl Node {
    /// What `lstat` shows.
    pub fn stat(&self) -> Stat {
        Stat {
            kind: self.kind,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink,
            size: match &self.body {
                Body::Bytes(bytes) | Body::Target(bytes) => bytes.len() as u64,
                Body::Names { .. } | Body::Nothing => 0,
            },
            rdev: self.rdev,
        }
    }

    /// It is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }
}
