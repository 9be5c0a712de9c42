//! One request of the kernel, parsed: borrowed names and data, plain Rust types.
//!
//! Any bytes parse to a request or to a [`Malformed`]; none panic.

pub(super) mod body;
mod mode;
mod parse;

use std::fmt;

use super::abi::Opcode;
use super::abi::question as raw;
use super::open::OpenFlags;
use super::setattr::SetAttributes;
use body::Body;

pub use body::Fault;
pub use mode::{FallocateMode, LockKind, RenameMode, Whence, XattrMode};

/// A request and who makes it.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Names the request in its answer and in interrupts.
    pub unique: u64,
    /// Sent a second time after a resend notice.
    pub resent: bool,
    /// The inode it is about; for names the directory.
    pub nodeid: u64,
    /// The caller's file system uid; all ones where it has none in this mount's user namespace.
    pub uid: u32,
    /// The caller's file system gid, likewise.
    pub gid: u32,
    /// The calling thread; 0 where it lives in another pid namespace, and for write-back.
    pub pid: u32,
    /// The supplementary group a new object may need, where the kernel sends it.
    pub group: Option<u32>,
    /// The kind of request.
    pub opcode: Opcode,
    /// What is asked.
    pub op: Op<'a>,
}

/// What is asked. Names are without NUL and, from a sane kernel, without `/`.
#[derive(Debug, Clone, Copy)]
#[expect(
    missing_docs,
    reason = "fields carry the names and units of the calls they come from"
)]
pub enum Op<'a> {
    Init(InitRequest),
    Lookup {
        name: &'a [u8],
    },
    /// No answer.
    Forget {
        lookups: u64,
    },
    /// No answer.
    BatchForget(Forgets<'a>),
    Getattr {
        handle: Option<u64>,
    },
    Setattr(SetAttributes),
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod {
        name: &'a [u8],
        mode: u32,
        rdev: u32,
        umask: u32,
    },
    Mkdir {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_parent: u64,
        new_name: &'a [u8],
        mode: RenameMode,
    },
    /// The request's nodeid is the new directory.
    Link {
        source: u64,
        name: &'a [u8],
    },
    Open {
        flags: OpenFlags,
        kill_suid_gid: bool,
    },
    Create {
        name: &'a [u8],
        mode: u32,
        umask: u32,
        flags: OpenFlags,
        kill_suid_gid: bool,
    },
    Tmpfile {
        mode: u32,
        umask: u32,
        flags: OpenFlags,
    },
    Read {
        handle: u64,
        offset: u64,
        size: u32,
        lock_owner: Option<u64>,
        flags: OpenFlags,
    },
    Write(WriteRequest<'a>),
    Statfs,
    Release(ReleaseRequest),
    Fsync {
        handle: u64,
        data_only: bool,
    },
    Setxattr {
        name: &'a [u8],
        value: &'a [u8],
        mode: XattrMode,
        acl_kills_sgid: bool,
    },
    /// `size` 0 asks for the size only.
    Getxattr {
        name: &'a [u8],
        size: u32,
    },
    /// `size` 0 asks for the size only.
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: &'a [u8],
    },
    Flush {
        handle: u64,
        lock_owner: u64,
    },
    Opendir {
        flags: OpenFlags,
    },
    Readdir {
        handle: u64,
        offset: u64,
        size: u32,
    },
    Readdirplus {
        handle: u64,
        offset: u64,
        size: u32,
    },
    Releasedir(ReleaseRequest),
    Fsyncdir {
        handle: u64,
        data_only: bool,
    },
    Getlk(LockRequest),
    Setlk {
        lock: LockRequest,
        wait: bool,
    },
    Access {
        mask: u32,
    },
    /// No answer. `unique` is that of the request to give up.
    Interrupt {
        unique: u64,
    },
    Bmap {
        block: u64,
        block_size: u32,
    },
    Destroy,
    Ioctl(IoctlRequest<'a>),
    Poll {
        handle: u64,
        kernel_handle: u64,
        events: u32,
        notify: bool,
    },
    /// No answer: the data a retrieve notice asked for.
    NotifyReply {
        offset: u64,
        data: &'a [u8],
    },
    Fallocate {
        handle: u64,
        offset: u64,
        length: u64,
        mode: FallocateMode,
    },
    Lseek {
        handle: u64,
        offset: u64,
        whence: Whence,
    },
    CopyFileRange(CopyRequest),
    Syncfs,
    Statx {
        handle: Option<u64>,
        flags: u32,
        mask: u32,
    },
}

/// The kernel's offer at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitRequest {
    /// Protocol version.
    pub major: u32,
    /// Protocol version.
    pub minor: u32,
    /// Largest read-ahead in bytes.
    pub max_readahead: u32,
    /// Features, both halves.
    pub flags: u64,
}

/// A WRITE.
#[derive(Debug, Clone, Copy)]
pub struct WriteRequest<'a> {
    /// The open file; a guess when `from_cache`.
    pub handle: u64,
    /// Where, in bytes.
    pub offset: u64,
    /// What.
    pub data: &'a [u8],
    /// Comes from dirty pages (mmap): there is no caller, and it must not wait for a lock that
    /// waits for these pages.
    pub from_cache: bool,
    /// Clear setuid, and setgid where the group may execute.
    pub kill_suid_gid: bool,
    /// Who holds POSIX locks, for mandatory locking.
    pub lock_owner: Option<u64>,
    /// The flags the file is open with now: fcntl may have added O_APPEND.
    pub flags: OpenFlags,
}

/// An IOCTL. What the kernel copies in and out is as long as the command says.
#[derive(Debug, Clone, Copy)]
pub struct IoctlRequest<'a> {
    /// The open file or directory.
    pub handle: u64,
    /// It is a directory.
    pub on_directory: bool,
    /// The command.
    pub command: u32,
    /// Its argument as the caller gave it.
    pub argument: u64,
    /// What the caller's argument points to.
    pub data: &'a [u8],
    /// Bytes that the caller takes back at most.
    pub out_size: u32,
}

/// A RELEASE or RELEASEDIR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReleaseRequest {
    /// The handle that is gone after this.
    pub handle: u64,
    /// The flags it was opened with.
    pub flags: OpenFlags,
    /// Flush first.
    pub flush: bool,
    /// The owner whose BSD lock ends.
    pub flock_owner: Option<u64>,
}

/// GETLK, SETLK and SETLKW.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRequest {
    /// The open file.
    pub handle: u64,
    /// Who locks.
    pub owner: u64,
    /// First byte.
    pub start: u64,
    /// Last byte; `i64::MAX` is the end of the file, wherever it is.
    pub end: u64,
    /// Shared, exclusive or none.
    pub kind: LockKind,
    /// The process, for who asks about it.
    pub pid: u32,
    /// A BSD lock of the whole file.
    pub flock: bool,
}

/// A copy_file_range; the request's nodeid is the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyRequest {
    /// Open source.
    pub handle_in: u64,
    /// From where, in bytes.
    pub offset_in: u64,
    /// The target.
    pub nodeid_out: u64,
    /// Open target.
    pub handle_out: u64,
    /// To where, in bytes.
    pub offset_out: u64,
    /// Bytes.
    pub length: u64,
    /// Of the system call.
    pub flags: u64,
}

/// The nodeids of a BATCH_FORGET, each with how many lookups it gives back.
#[derive(Clone, Copy)]
pub struct Forgets<'a> {
    bytes: &'a [u8],
}

impl Iterator for Forgets<'_> {
    /// nodeid, lookups.
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let mut body = Body::new(self.bytes);
        let one: raw::ForgetOne = body.take().ok()?;
        self.bytes = &self.bytes[size_of::<raw::ForgetOne>()..];
        Some((one.nodeid, one.lookups))
    }
}

impl fmt::Debug for Forgets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Forgets({})",
            self.bytes.len() / size_of::<raw::ForgetOne>()
        )
    }
}

/// How the handshake shaped the messages that follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dialect {
    /// SETXATTR_EXT was taken.
    pub long_setxattr: bool,
}

/// A request that could not be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    /// Whom to answer, if that much could be read. `None` also where no answer is expected.
    pub unique: Option<u64>,
    /// The number of the operation, 0 if unread.
    pub opcode: u32,
    /// What is wrong.
    pub fault: Fault,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Opcode::from_number(self.opcode) {
            Some(opcode) => write!(f, "request {opcode:?}: {}", self.fault),
            None => write!(f, "request {}: {}", self.opcode, self.fault),
        }
    }
}

impl std::error::Error for Malformed {}

#[cfg(test)]
mod tests;
