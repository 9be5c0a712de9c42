//! What an application asked for when it opened a file.

use std::fmt;

/// Set by the kernel when a file is opened to be executed. Not part of the C library's headers.
const O_EXEC_INTERNAL: u32 = 0x20;

/// The flags of open(2), as the kernel passes them on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct OpenFlags(pub u32);

/// What a handle may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Both.
    ReadWrite,
}

impl Access {
    /// Whether it includes writing.
    pub fn writes(self) -> bool {
        self != Access::Read
    }

    /// Whether it includes reading.
    pub fn reads(self) -> bool {
        self != Access::Write
    }
}

impl OpenFlags {
    fn has(self, flag: i32) -> bool {
        let flag = flag as u32;
        self.0 & flag == flag
    }

    /// Reading, writing or both. The value 3, which ioctl-only opens use, counts as both.
    pub fn access(self) -> Access {
        match (self.0 as i32) & libc::O_ACCMODE {
            libc::O_RDONLY => Access::Read,
            libc::O_WRONLY => Access::Write,
            _ => Access::ReadWrite,
        }
    }

    /// O_APPEND: each write goes to the end.
    pub fn appends(self) -> bool {
        self.has(libc::O_APPEND)
    }

    /// O_TRUNC.
    pub fn truncates(self) -> bool {
        self.has(libc::O_TRUNC)
    }

    /// O_EXCL.
    pub fn exclusive(self) -> bool {
        self.has(libc::O_EXCL)
    }

    /// O_DIRECT.
    pub fn direct(self) -> bool {
        self.has(libc::O_DIRECT)
    }

    /// O_DSYNC, or O_SYNC which includes it: a write returns when its data is durable.
    pub fn data_sync(self) -> bool {
        self.has(libc::O_DSYNC)
    }

    /// Opened by execve(2), to be run.
    pub fn executes(self) -> bool {
        self.0 & O_EXEC_INTERNAL != 0
    }
}

impl fmt::Debug for OpenFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenFlags({:#o})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_flags_of_open() {
        let append = OpenFlags((libc::O_WRONLY | libc::O_APPEND) as u32);
        assert!(append.access().writes() && !append.access().reads() && append.appends());
        let sync = OpenFlags((libc::O_RDWR | libc::O_SYNC) as u32);
        assert!(sync.data_sync() && sync.access().reads() && !sync.executes());
        assert!(OpenFlags(O_EXEC_INTERNAL).executes());
    }
}
