//! The handshake: what the kernel offers, what a file system wants, and what both agree on.

use std::time::Duration;

use super::abi::init::InitOut;
use super::abi::{MAJOR, MINOR, Opcode, notice};
use super::request::{Dialect, InitRequest};

pub use super::abi::init::InitFlags;

/// Bytes in a page of the kernel. 4096 also where pages are larger: bounds only get tighter.
const PAGE_BYTES: u32 = 4096;
/// Largest WRITE or READ in bytes; the kernel's own bound is 256 pages by default.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Pages in one request of a kernel without MAX_PAGES.
const PAGES_WITHOUT_MAX_PAGES: u32 = 32;
/// Fewest background requests: writing back dirty mmap pages must not queue behind parked reads.
const BACKGROUND_MIN: u16 = 1024;

/// Features that are never taken, no matter which process wishes them.
const NEVER: InitFlags = InitFlags::WRITEBACK_CACHE
    .with(InitFlags::NO_OPEN_SUPPORT)
    .with(InitFlags::NO_OPENDIR_SUPPORT)
    .with(InitFlags::READDIRPLUS_AUTO)
    .with(InitFlags::MAP_ALIGNMENT)
    .with(InitFlags::SUBMOUNTS)
    .with(InitFlags::HAS_INODE_DAX)
    .with(InitFlags::PASSTHROUGH)
    .with(InitFlags::OVER_IO_URING)
    .with(InitFlags::SECURITY_CTX);

/// The kernel to act as if under: its features as of that version, newer ones hidden.
///
/// The features, and the first kernel that has each. Distribution kernels carry later features under old
/// numbers; a mask emulates the oldest.
///
/// | flag | protocol | Linux | 5.14 | 6.1 |
/// |---|---|---|---|---|
/// | HANDLE_KILLPRIV_V2, SETXATTR_EXT | 7.33 | 5.12 | yes | yes |
/// | SYNCFS (operation) | 7.34 | 5.14 | yes | yes |
/// | INIT_EXT, SECURITY_CTX | 7.36 | 5.17 | no | yes |
/// | TMPFILE (operation) | 7.37 | 6.1 | no | yes |
/// | HAS_EXPIRE_ONLY, CREATE_SUPP_GROUP | 7.38 | 6.2, 6.3 | no | no |
/// | DIRECT_IO_ALLOW_MMAP, STATX (operation) | 7.39 | 6.6 | no | no |
/// | PASSTHROUGH, NO_EXPORT_SUPPORT, HAS_RESEND | 7.40 | 6.9 | no | no |
/// | ALLOW_IDMAP | 7.41 | 6.12 | no | no |
/// | OVER_IO_URING | 7.42 | 6.14 | no | no |
/// | REQUEST_TIMEOUT | 7.43 | 6.15 | no | no |
/// | INC_EPOCH (notice) | 7.44 | 6.16 | no | no |
/// | PRUNE (notice), COPY_FILE_RANGE_64 (operation) | 7.45 | 6.18 | no | no |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KernelLevel {
    /// All that the running kernel offers.
    #[default]
    Running,
    /// Linux 5.14 as released (the base of RHEL 9).
    Linux5_14,
    /// Linux 6.1 as released (Debian 12).
    Linux6_1,
    /// Any other.
    Masked {
        /// Newest minor version of the protocol.
        minor: u32,
        /// Features that may be seen.
        flags: InitFlags,
    },
}

impl KernelLevel {
    fn minor(self) -> u32 {
        match self {
            KernelLevel::Running => MINOR,
            KernelLevel::Linux5_14 => 34,
            KernelLevel::Linux6_1 => 37,
            KernelLevel::Masked { minor, .. } => minor,
        }
    }

    fn flags(self) -> InitFlags {
        match self {
            KernelLevel::Running => InitFlags(u64::MAX),
            KernelLevel::Linux5_14 => InitFlags((1 << 30) - 1),
            KernelLevel::Linux6_1 => InitFlags((1 << 34) - 1),
            KernelLevel::Masked { flags, .. } => flags,
        }
    }
}

/// What the kernel offers, after the mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitOffer {
    /// Minor version of the protocol.
    pub minor: u32,
    /// Features.
    pub flags: InitFlags,
    /// Largest read-ahead in bytes. The answer can lower it only; [`super::Mount`] can raise it.
    pub max_readahead: u32,
}

/// What a file system asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitWish {
    /// Features; those not offered fall away.
    pub flags: InitFlags,
    /// Requests without a waiting caller (read-ahead, write-back) under way at once; at least 1024.
    pub max_background: u16,
    /// From how many of them on the kernel holds back read-ahead.
    pub congestion_threshold: u16,
    /// Largest WRITE in bytes, at most [`TRANSFER_BYTES_MAX`].
    pub max_write: u32,
    /// Largest read-ahead in bytes.
    pub max_readahead: u32,
    /// After how long an unanswered request ends the connection, where the kernel can.
    pub request_timeout: Option<Duration>,
}

impl Default for InitWish {
    /// What suits a coherent network file system. Wish locks, ACLs and O_TRUNC by adding to it. Targets of
    /// symlinks are not for the kernel to keep: it would follow a link whose name it is about to forget
    /// without a question.
    fn default() -> InitWish {
        InitWish {
            flags: InitFlags::ASYNC_READ
                | InitFlags::BIG_WRITES
                | InitFlags::EXPORT_SUPPORT
                | InitFlags::DO_READDIRPLUS
                | InitFlags::ASYNC_DIO
                | InitFlags::PARALLEL_DIROPS
                | InitFlags::MAX_PAGES
                | InitFlags::EXPLICIT_INVAL_DATA
                | InitFlags::HANDLE_KILLPRIV_V2
                | InitFlags::SETXATTR_EXT
                | InitFlags::CREATE_SUPP_GROUP
                | InitFlags::HAS_EXPIRE_ONLY
                | InitFlags::DIRECT_IO_ALLOW_MMAP
                | InitFlags::HAS_RESEND,
            max_background: 4 * BACKGROUND_MIN,
            congestion_threshold: 3 * BACKGROUND_MIN,
            max_write: TRANSFER_BYTES_MAX,
            max_readahead: TRANSFER_BYTES_MAX,
            request_timeout: None,
        }
    }
}

/// What was agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// Minor version of the protocol.
    pub minor: u32,
    /// Features.
    pub flags: InitFlags,
    /// Largest WRITE in bytes.
    pub max_write: u32,
    /// Largest read-ahead in bytes.
    pub max_readahead: u32,
    /// Background requests at once.
    pub max_background: u16,
    /// Where the kernel starts to hold back.
    pub congestion_threshold: u16,
}

impl Granted {
    /// Entries can be expired, not only dropped.
    pub fn expires_entries(&self) -> bool {
        self.flags.contains(InitFlags::HAS_EXPIRE_ONLY)
    }

    /// All entries can be made to be looked up again at once.
    pub fn increments_epoch(&self) -> bool {
        self.minor >= notice::MINOR_INC_EPOCH
    }

    /// Unused inodes can be dropped by list.
    pub fn prunes(&self) -> bool {
        self.minor >= notice::MINOR_PRUNE
    }

    /// Unanswered requests can be sent again.
    pub fn resends(&self) -> bool {
        self.flags.contains(InitFlags::HAS_RESEND)
    }

    /// Whether a kernel of this level knows the operation. Others are answered ENOSYS, which
    /// makes the kernel do without.
    pub(super) fn knows(&self, opcode: Opcode) -> bool {
        opcode.since_minor() <= self.minor
    }

    pub(super) fn dialect(&self) -> Dialect {
        Dialect {
            long_setxattr: self.flags.contains(InitFlags::SETXATTR_EXT),
        }
    }
}

/// The kernel's offer as `level` lets it be seen.
pub(super) fn offer(init: &InitRequest, level: KernelLevel) -> InitOffer {
    InitOffer {
        minor: init.minor.min(MINOR).min(level.minor()),
        flags: InitFlags(init.flags) & level.flags(),
        max_readahead: init.max_readahead,
    }
}

/// What `wish` comes to under `offer`, and the answer that says so.
pub(super) fn agree(offer: &InitOffer, wish: &InitWish) -> (Granted, InitOut) {
    let extended = wish.flags.with(InitFlags::INIT_EXT);
    let mut flags = (extended & offer.flags).without(NEVER);
    if wish.request_timeout.is_none() {
        flags = flags.without(InitFlags::REQUEST_TIMEOUT);
    }
    let max_pages = match flags.contains(InitFlags::MAX_PAGES) {
        true => TRANSFER_BYTES_MAX / PAGE_BYTES,
        false => PAGES_WITHOUT_MAX_PAGES,
    };
    let max_background = wish.max_background.max(BACKGROUND_MIN);
    let granted = Granted {
        minor: offer.minor,
        flags,
        max_write: wish.max_write.clamp(PAGE_BYTES, max_pages * PAGE_BYTES),
        max_readahead: wish.max_readahead.min(offer.max_readahead),
        max_background,
        congestion_threshold: wish.congestion_threshold.clamp(1, max_background),
    };
    (granted, answer(&granted, max_pages, wish.request_timeout))
}

fn answer(granted: &Granted, max_pages: u32, timeout: Option<Duration>) -> InitOut {
    let timeout = timeout.map_or(0, |limit| limit.as_secs().clamp(1, u64::from(u16::MAX)));
    InitOut {
        major: MAJOR,
        minor: granted.minor,
        max_readahead: granted.max_readahead,
        flags: granted.flags.low(),
        max_background: granted.max_background,
        congestion_threshold: granted.congestion_threshold,
        max_write: granted.max_write,
        time_gran: 1,
        max_pages: max_pages as u16,
        map_alignment: 0,
        flags2: granted.flags.high(),
        max_stack_depth: 0,
        request_timeout: timeout as u16,
        unused: [0; 11],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything() -> InitRequest {
        InitRequest {
            major: 7,
            minor: 46,
            max_readahead: 128 << 10,
            flags: u64::MAX,
        }
    }

    fn agreed(level: KernelLevel, wish: &InitWish) -> (Granted, InitOut) {
        agree(&offer(&everything(), level), wish)
    }

    #[test]
    fn the_running_kernel_gives_the_whole_wish() {
        let (granted, out) = agreed(KernelLevel::Running, &InitWish::default());
        assert!(granted.flags.contains(InitWish::default().flags));
        assert_eq!(InitFlags::from_halves(out.flags, out.flags2), granted.flags);
        assert!(granted.expires_entries() && granted.increments_epoch() && granted.prunes());
        assert_eq!(
            (out.minor, out.max_write, out.max_pages),
            (45, 1 << 20, 256)
        );
        assert_eq!((out.time_gran, out.max_readahead), (1, 128 << 10));
        assert!(granted.knows(Opcode::CopyFileRange64));
        assert!(!granted.flags.contains(InitFlags::REQUEST_TIMEOUT));
    }

    #[test]
    fn old_levels_hide_what_they_had_not() {
        let (old, out) = agreed(KernelLevel::Linux5_14, &InitWish::default());
        assert!(!old.expires_entries() && !old.increments_epoch());
        assert!(
            old.flags
                .contains(InitFlags::SETXATTR_EXT | InitFlags::HANDLE_KILLPRIV_V2)
        );
        assert!(!old.flags.contains(InitFlags::INIT_EXT) && out.flags2 == 0);
        assert!(old.knows(Opcode::Syncfs) && !old.knows(Opcode::Tmpfile));
        let (newer, _) = agreed(KernelLevel::Linux6_1, &InitWish::default());
        assert!(newer.flags.contains(InitFlags::INIT_EXT) && !newer.expires_entries());
        assert!(newer.knows(Opcode::Tmpfile) && !newer.knows(Opcode::Statx));
    }

    #[test]
    fn what_is_never_taken_is_not_taken() {
        let wish = InitWish {
            flags: InitFlags(u64::MAX),
            ..InitWish::default()
        };
        let (granted, _) = agreed(KernelLevel::Running, &wish);
        assert_eq!(granted.flags & NEVER, InitFlags::NONE);
    }

    #[test]
    fn small_wishes_are_raised_to_what_must_be() {
        let wish = InitWish {
            flags: InitFlags::NONE,
            max_background: 3,
            congestion_threshold: 9999,
            max_write: 1,
            ..InitWish::default()
        };
        let (granted, out) = agreed(KernelLevel::Running, &wish);
        assert_eq!(
            (granted.max_background, granted.congestion_threshold),
            (1024, 1024)
        );
        assert_eq!((out.max_write, out.max_pages), (4096, 32));
        let (large, _) = agreed(
            KernelLevel::Running,
            &InitWish {
                flags: InitFlags::NONE,
                ..InitWish::default()
            },
        );
        assert_eq!(large.max_write, 128 << 10);
    }
}
