//! The protocol's structures as they lie in memory, in the machine's byte order.

pub mod answer;
pub mod init;
pub mod notice;
pub mod question;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Major version of the protocol; there was never an 8.
pub const MAJOR: u32 = 7;
/// Newest minor version this layer knows.
pub const MINOR: u32 = 45;
/// Oldest minor version this layer serves (Linux 5.4).
pub const MINOR_OLDEST: u32 = 31;
/// The nodeid of the root directory.
pub const ROOT_NODEID: u64 = 1;
/// Smallest read buffer the kernel accepts.
pub const READ_BUFFER_MIN: usize = 8192;
/// Set in `unique` when the kernel sends a request again after a resend notice.
pub const UNIQUE_RESENT: u64 = 1 << 63;
/// Set in the `unique` of an INTERRUPT, else equal to that of the request it is about.
pub const UNIQUE_INTERRUPT: u64 = 1;

/// Starts each request.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct InHeader {
    pub len: u32,
    pub opcode: u32,
    pub unique: u64,
    pub nodeid: u64,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
    /// Length of the extensions at the request's end, in units of 8 bytes.
    pub extension_words: u16,
    pub padding: u16,
}

/// Starts each answer and each notice.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct OutHeader {
    pub len: u32,
    /// A negated errno; in a notice its code.
    pub error: i32,
    /// 0 in a notice.
    pub unique: u64,
}

/// Starts each extension at the end of a request.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ExtensionHeader {
    /// Bytes of the extension, this header included.
    pub size: u32,
    /// 0 to 31: that many security contexts; else a type.
    pub kind: u32,
}

/// Extension that carries supplementary groups.
pub const EXTENSION_GROUPS: u32 = 32;

/// One POSIX or flock lock.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FileLock {
    pub start: u64,
    /// Last byte covered.
    pub end: u64,
    pub kind: u32,
    pub pid: u32,
}

const _: () = assert!(size_of::<InHeader>() == 40);
const _: () = assert!(size_of::<OutHeader>() == 16);
const _: () = assert!(size_of::<ExtensionHeader>() == 8);
const _: () = assert!(size_of::<FileLock>() == 24);

macro_rules! opcodes {
    ($($name:ident = $number:literal),* $(,)?) => {
        /// What a request asks for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        #[expect(missing_docs, reason = "each is the operation of that name in fuse.h")]
        pub enum Opcode { $($name = $number),* }

        impl Opcode {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$name),*];

            /// The opcode with this number, if known.
            pub fn from_number(number: u32) -> Option<Opcode> {
                match number { $($number => Some(Opcode::$name),)* _ => None }
            }
        }
    };
}

opcodes! {
    Lookup = 1, Forget = 2, Getattr = 3, Setattr = 4, Readlink = 5, Symlink = 6, Mknod = 8,
    Mkdir = 9, Unlink = 10, Rmdir = 11, Rename = 12, Link = 13, Open = 14, Read = 15, Write = 16,
    Statfs = 17, Release = 18, Fsync = 20, Setxattr = 21, Getxattr = 22, Listxattr = 23,
    Removexattr = 24, Flush = 25, Init = 26, Opendir = 27, Readdir = 28, Releasedir = 29,
    Fsyncdir = 30, Getlk = 31, Setlk = 32, Setlkw = 33, Access = 34, Create = 35, Interrupt = 36,
    Bmap = 37, Destroy = 38, Ioctl = 39, Poll = 40, NotifyReply = 41, BatchForget = 42,
    Fallocate = 43, Readdirplus = 44, Rename2 = 45, Lseek = 46, CopyFileRange = 47,
    Syncfs = 50, Tmpfile = 51, Statx = 52, CopyFileRange64 = 53,
}

impl Opcode {
    /// The protocol's minor version that brought it, as far back as matters here.
    pub fn since_minor(self) -> u32 {
        match self {
            Opcode::CopyFileRange64 => 45,
            Opcode::Statx => 39,
            Opcode::Tmpfile => 37,
            Opcode::Syncfs => 34,
            _ => MINOR_OLDEST,
        }
    }

    /// Whether the kernel waits for an answer.
    pub fn wants_answer(self) -> bool {
        use Opcode::{BatchForget, Forget, Interrupt, NotifyReply};
        !matches!(self, Forget | BatchForget | Interrupt | NotifyReply)
    }
}
