//! Modes and kinds that calls pass as flags, told apart.

/// What kind of lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// None.
    Unlock,
    /// A kind this layer does not know.
    Other(u32),
}

impl LockKind {
    pub(super) fn parse(kind: u32) -> LockKind {
        match kind as i32 {
            libc::F_RDLCK => LockKind::Read,
            libc::F_WRLCK => LockKind::Write,
            libc::F_UNLCK => LockKind::Unlock,
            _ => LockKind::Other(kind),
        }
    }

    pub(crate) fn number(self) -> u32 {
        match self {
            LockKind::Read => libc::F_RDLCK as u32,
            LockKind::Write => libc::F_WRLCK as u32,
            LockKind::Unlock => libc::F_UNLCK as u32,
            LockKind::Other(kind) => kind,
        }
    }
}

const WHITEOUT_UNREPLACED: u32 = libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE;

/// What rename does with a name that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces it.
    Replace,
    /// Fails.
    NoReplace,
    /// Swaps both.
    Exchange,
    /// Replaces it, or fails, and leaves a whiteout under the old name.
    Whiteout {
        /// A name that is taken is replaced.
        replace: bool,
    },
    /// Flags that are not known, or contradict each other.
    Other(u32),
}

impl RenameMode {
    pub(super) fn parse(flags: u32) -> RenameMode {
        match flags {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            libc::RENAME_WHITEOUT => RenameMode::Whiteout { replace: true },
            WHITEOUT_UNREPLACED => RenameMode::Whiteout { replace: false },
            other => RenameMode::Other(other),
        }
    }
}

/// What setxattr does with an attribute that is or is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrMode {
    /// Sets it.
    Any,
    /// Fails where it is there.
    Create,
    /// Fails where it is not there.
    Replace,
    /// Flags that are not known or contradict each other.
    Other(u32),
}

impl XattrMode {
    pub(super) fn parse(flags: u32) -> XattrMode {
        match flags as i32 {
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => XattrMode::Other(flags),
        }
    }
}

/// What fallocate does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FallocateMode {
    /// Reserves space; the file grows unless `keep_size`.
    Allocate {
        /// The size stays.
        keep_size: bool,
    },
    /// Makes a hole; the size stays.
    PunchHole,
    /// Makes it read as zeros; the file grows unless `keep_size`.
    ZeroRange {
        /// The size stays.
        keep_size: bool,
    },
    /// Flags that are not offered here, or contradict each other.
    Other(u32),
}

impl FallocateMode {
    pub(super) fn parse(flags: u32) -> FallocateMode {
        const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE;
        const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
        let keep_size = flags as i32 & KEEP != 0;
        match (flags as i32 & !KEEP, keep_size) {
            (0, _) => FallocateMode::Allocate { keep_size },
            (PUNCH, true) => FallocateMode::PunchHole,
            (ZERO, _) => FallocateMode::ZeroRange { keep_size },
            _ => FallocateMode::Other(flags),
        }
    }
}

/// What lseek looks for. Plain offsets never get here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// The next byte that is not in a hole.
    Data,
    /// The next hole.
    Hole,
    /// Something else.
    Other(u32),
}

impl Whence {
    pub(super) fn parse(whence: u32) -> Whence {
        match whence as i32 {
            libc::SEEK_DATA => Whence::Data,
            libc::SEEK_HOLE => Whence::Hole,
            _ => Whence::Other(whence),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fallocate_modes_are_told_apart() {
        let parse = |flags: i32| FallocateMode::parse(flags as u32);
        assert_eq!(parse(0), FallocateMode::Allocate { keep_size: false });
        assert_eq!(parse(3), FallocateMode::PunchHole);
        assert_eq!(parse(0x11), FallocateMode::ZeroRange { keep_size: true });
        assert_eq!(parse(2), FallocateMode::Other(2));
        assert_eq!(parse(8), FallocateMode::Other(8));
    }

    #[test]
    fn rename_takes_flags_that_go_together() {
        assert_eq!(RenameMode::parse(0), RenameMode::Replace);
        assert_eq!(RenameMode::parse(3), RenameMode::Other(3));
        assert_eq!(RenameMode::parse(6), RenameMode::Other(6));
        let whiteout = |replace| RenameMode::Whiteout { replace };
        assert_eq!(RenameMode::parse(4), whiteout(true));
        assert_eq!(RenameMode::parse(5), whiteout(false));
    }
}
