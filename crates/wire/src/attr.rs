//! Attributes of a file, and what covers them.

use base::{Fid, LockHandle, Timestamp};
use layout::Layout;
use serde::{Deserialize, Serialize};

/// What kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileKind {
    /// Bytes.
    Regular,
    /// Names.
    Directory,
    /// A path.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// How far the MDT's size, blocks and mtime can be trusted (size on MDT, Xfast).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SizeState {
    /// Exact: never written, or closed by its last writer and committed on the OSTs.
    Strict,
    /// A writer is or was there: the OSTs (or the writer) know better.
    Ask,
}

/// Everything `stat` shows, and what a client needs to reach the bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attr {
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
    /// Device number of a device file, as the kernel encodes it; else zero.
    pub rdev: u32,
    /// Extended attributes exist.
    pub has_xattrs: bool,
    /// How far `size`, `blocks` and `mtime` can be trusted.
    pub size_state: SizeState,
    /// Where the bytes are.
    pub layout: Layout,
    /// Last access (relatime).
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// When `mtime` was last set: a write after this, known to an OST, has a later one.
    pub mtime_set: Timestamp,
    /// Last change of the attributes.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
    /// Bytes.
    pub size: u64,
    /// Space used, in units of 512 bytes.
    pub blocks: u64,
    /// Grows with each change of this file at its MDT (the change's transno): of two replies about
    /// one file the higher is the newer.
    pub version: u64,
}

/// The set-group-id bit of a mode.
const S_ISGID: u16 = 0o2000;

/// Mode and group of a new file that its maker gives `mode` and `gid`. A directory with the set-group-id bit
/// gives its group to what is made in it, and the bit to directories.
pub fn inherited(dir: (u16, u32), kind: FileKind, (mode, gid): (u16, u32)) -> (u16, u32) {
    let (dir_mode, dir_gid) = dir;
    let mode = mode & 0o7777;
    match (dir_mode & S_ISGID != 0, kind) {
        (false, _) => (mode, gid),
        (true, FileKind::Directory) => (mode | S_ISGID, dir_gid),
        (true, _) => (mode, dir_gid),
    }
}

/// A lock handed to the client inside a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The lock's name at the server.
    pub handle: LockHandle,
    /// The file or directory it is on.
    pub fid: Fid,
    /// Its mode, as `dlm::Mode` numbers it.
    pub mode: u8,
    /// Its inode bits now (all it has, not just those newly given).
    pub bits: u32,
    /// The resource's version at the grant (directory leases count withdrawals).
    pub version: u64,
}

/// The lease that comes with an answer about a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lease {
    /// None: names and attributes found are true once.
    None,
    /// The lock that covers them; its bits say what.
    Held(Grant),
}

/// What keeps a file's attributes valid at the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cover {
    /// Nothing: true when it left the server, to be used once.
    None,
    /// The CHILD bit of the lease on the directory it was found in.
    Parent,
    /// A lock on the file itself.
    Own(Grant),
}

/// A file with attributes, as replies carry it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The file.
    pub fid: Fid,
    /// Its attributes.
    pub attr: Attr,
    /// What keeps them valid.
    pub cover: Cover,
}

/// A directory after an operation in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirState {
    /// The directory.
    pub fid: Fid,
    /// Its attributes after the operation.
    pub attr: Attr,
    /// The lease version the reply was made at (a later withdrawal has a higher one). Zero: others
    /// are changing the directory too, so that its lease covers nothing of this reply.
    pub version: u64,
}

/// What to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewFile {
    /// Its id, minted by the client from its sequence.
    pub fid: Fid,
    /// Its kind; never [`FileKind::Symlink`] without `target`.
    pub kind: FileKind,
    /// Permission bits after the umask.
    pub mode: u16,
    /// Device number.
    pub rdev: u32,
    /// A symlink's target bytes.
    pub target: Vec<u8>,
}

/// Size, blocks and mtime that a writer knows, for size on MDT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeUpdate {
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    /// Last write.
    pub mtime: Timestamp,
    /// The OSTs have committed all of it: with no other writer open, the size becomes strict.
    pub committed: bool,
}
