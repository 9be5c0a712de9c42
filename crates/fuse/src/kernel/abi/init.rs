//! The handshake: INIT's question and answer, and the bits both carry.

use std::fmt;
use std::ops::{BitAnd, BitOr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What the kernel offers.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct InitIn {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u32,
}

/// The rest of the offer, there when [`InitFlags::INIT_EXT`] is set.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct InitInTail {
    pub flags2: u32,
    pub unused: [u32; 11],
}

/// What we take.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct InitOut {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u32,
    pub max_background: u16,
    pub congestion_threshold: u16,
    pub max_write: u32,
    pub time_gran: u32,
    pub max_pages: u16,
    pub map_alignment: u16,
    pub flags2: u32,
    pub max_stack_depth: u32,
    pub request_timeout: u16,
    pub unused: [u16; 11],
}

const _: () = assert!(size_of::<InitIn>() + size_of::<InitInTail>() == 64);
const _: () = assert!(size_of::<InitOut>() == 64);

/// Features the kernel offers and a file system takes, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct InitFlags(pub u64);

macro_rules! init_flags {
    ($($(#[doc = $doc:literal])+ $name:ident = $bit:literal;)*) => {
        impl InitFlags {
            $($(#[doc = $doc])+ pub const $name: InitFlags = InitFlags(1 << $bit);)*

            const NAMES: &'static [(InitFlags, &'static str)] =
                &[$((InitFlags::$name, stringify!($name))),*];
        }
    };
}

init_flags! {
    /// Several READs of one file may be on their way at once.
    ASYNC_READ = 0;
    /// POSIX locks are asked of us instead of being kept in the kernel.
    POSIX_LOCKS = 1;
    /// OPEN carries O_TRUNC and truncates by itself.
    ATOMIC_O_TRUNC = 3;
    /// LOOKUP of `.` and `..` is answered, so file handles (name_to_handle_at, NFS) outlive caches.
    EXPORT_SUPPORT = 4;
    /// WRITEs may be larger than a page.
    BIG_WRITES = 5;
    /// The umask is sent along instead of being applied.
    DONT_MASK = 6;
    /// Answers may be spliced.
    SPLICE_WRITE = 7;
    /// Spliced pages may be moved.
    SPLICE_MOVE = 8;
    /// Requests may be spliced.
    SPLICE_READ = 9;
    /// BSD locks are asked of us.
    FLOCK_LOCKS = 10;
    /// IOCTL on directories is asked.
    HAS_IOCTL_DIR = 11;
    /// Cached pages are dropped when a fresh mtime or size differs.
    AUTO_INVAL_DATA = 12;
    /// Directories are read with attributes.
    DO_READDIRPLUS = 13;
    /// The kernel chooses between READDIR and READDIRPLUS. Slow on cold walks; never taken.
    READDIRPLUS_AUTO = 14;
    /// Direct I/O may be asynchronous.
    ASYNC_DIO = 15;
    /// The kernel keeps dirty pages. Pins sizes; never taken.
    WRITEBACK_CACHE = 16;
    /// The kernel would go on without OPEN after one ENOSYS. Never taken.
    NO_OPEN_SUPPORT = 17;
    /// LOOKUP and READDIR of one directory may run in parallel.
    PARALLEL_DIROPS = 18;
    /// The first form of clearing setuid bits.
    HANDLE_KILLPRIV = 19;
    /// The kernel checks POSIX ACLs it reads as extended attributes.
    POSIX_ACL = 20;
    /// Reading after an abort gives ECONNABORTED instead of ENODEV.
    ABORT_ERROR = 21;
    /// The answer's `max_pages` counts.
    MAX_PAGES = 22;
    /// Targets of symbolic links stay in the page cache.
    CACHE_SYMLINKS = 23;
    /// The kernel would go on without OPENDIR after one ENOSYS. Never taken.
    NO_OPENDIR_SUPPORT = 24;
    /// Cached pages are dropped only when told to.
    EXPLICIT_INVAL_DATA = 25;
    /// virtiofs only.
    MAP_ALIGNMENT = 26;
    /// virtiofs only.
    SUBMOUNTS = 27;
    /// WRITE, OPEN and SETATTR say when setuid and setgid bits must go.
    HANDLE_KILLPRIV_V2 = 28;
    /// SETXATTR's longer header, which says when an ACL clears setgid.
    SETXATTR_EXT = 29;
    /// INIT carries 64 bits of flags.
    INIT_EXT = 30;
    /// New objects come with a security context.
    SECURITY_CTX = 32;
    /// virtiofs only.
    HAS_INODE_DAX = 33;
    /// Creations carry the supplementary group that setgid directories ask for.
    CREATE_SUPP_GROUP = 34;
    /// INVAL_ENTRY can expire an entry instead of dropping it.
    HAS_EXPIRE_ONLY = 35;
    /// Shared mappings of files opened with direct I/O.
    DIRECT_IO_ALLOW_MMAP = 36;
    /// The kernel may read and write a file of another file system itself.
    PASSTHROUGH = 37;
    /// File handles are refused where EXPORT_SUPPORT is not taken.
    NO_EXPORT_SUPPORT = 38;
    /// The kernel can send unanswered requests again.
    HAS_RESEND = 39;
    /// Id-mapped mounts.
    ALLOW_IDMAP = 40;
    /// Requests may travel over io_uring.
    OVER_IO_URING = 41;
    /// Unanswered requests end the connection after a while.
    REQUEST_TIMEOUT = 42;
}

impl InitFlags {
    /// None.
    pub const NONE: InitFlags = InitFlags(0);

    /// The bits from both halves of the wire's form.
    pub fn from_halves(low: u32, high: u32) -> InitFlags {
        InitFlags(u64::from(low) | u64::from(high) << 32)
    }

    /// The first half of the wire's form.
    pub fn low(self) -> u32 {
        self.0 as u32
    }

    /// The second half of the wire's form.
    pub fn high(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Whether all of `other` are in.
    pub const fn contains(self, other: InitFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both together.
    pub const fn with(self, other: InitFlags) -> InitFlags {
        InitFlags(self.0 | other.0)
    }

    /// These but not those.
    pub const fn without(self, other: InitFlags) -> InitFlags {
        InitFlags(self.0 & !other.0)
    }
}

impl BitOr for InitFlags {
    type Output = InitFlags;

    fn bitor(self, other: InitFlags) -> InitFlags {
        self.with(other)
    }
}

impl BitAnd for InitFlags {
    type Output = InitFlags;

    fn bitand(self, other: InitFlags) -> InitFlags {
        InitFlags(self.0 & other.0)
    }
}

impl fmt::Debug for InitFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::NAMES.iter().filter(|(flag, _)| self.contains(*flag));
        f.debug_set()
            .entries(named.map(|(_, name)| format_args!("{name}").to_string()))
            .finish()
    }
}
