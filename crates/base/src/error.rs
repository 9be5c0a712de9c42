//! The three families of errors, never mixed.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a file system call can fail with. Carried on the wire; `fuse` alone maps it to errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FsError {
    /// No such name, file or attribute holder.
    NotFound,
    /// The name is taken.
    Exists,
    /// A directory was needed.
    NotDirectory,
    /// A directory is not allowed here.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// Permission bits or ownership forbid it.
    AccessDenied,
    /// Only the owner or root may.
    NotPermitted,
    /// The argument makes no sense.
    Invalid,
    /// The name is longer than 255 bytes, or the symlink target or path is too long.
    NameTooLong,
    /// Past the largest file size.
    FileTooBig,
    /// No space or no free record.
    NoSpace,
    /// The link count is at its limit.
    TooManyLinks,
    /// Rename would make a directory its own ancestor, or crosses what cannot be crossed.
    Loop,
    /// Link or rename between file systems.
    CrossDevice,
    /// The extended attribute does not exist.
    NoAttribute,
    /// The operation is not offered.
    NotSupported,
    /// The buffer given is too small, or a value too large for it.
    Range,
    /// The value is larger than the limit for it.
    TooLarge,
    /// The file is in use in a way that forbids it.
    Busy,
    /// The file is being executed or written in a way that forbids it.
    TextBusy,
    /// The id is known no more: look the name up again.
    Stale,
    /// The handle is not open, or not for this.
    BadHandle,
    /// Read-only mount or target.
    ReadOnly,
    /// A bound was reached; try again.
    TryAgain,
    /// The caller was interrupted.
    Interrupted,
    /// Data could not be read or written; the log says why.
    Io,
    /// A device or peer is not there.
    NoDevice,
    /// Seek past the last data or hole.
    NoData,
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FsError::NotFound => "no such file or directory",
            FsError::Exists => "file exists",
            FsError::NotDirectory => "not a directory",
            FsError::IsDirectory => "is a directory",
            FsError::NotEmpty => "directory not empty",
            FsError::AccessDenied => "permission denied",
            FsError::NotPermitted => "operation not permitted",
            FsError::Invalid => "invalid argument",
            FsError::NameTooLong => "name too long",
            FsError::FileTooBig => "file too big",
            FsError::NoSpace => "no space left",
            FsError::TooManyLinks => "too many links",
            FsError::Loop => "would make a directory its own ancestor",
            FsError::CrossDevice => "crosses file systems",
            FsError::NoAttribute => "no such attribute",
            FsError::NotSupported => "not supported",
            FsError::Range => "out of range for the buffer",
            FsError::TooLarge => "value too large",
            FsError::Busy => "busy",
            FsError::TextBusy => "text file busy",
            FsError::Stale => "stale file id",
            FsError::BadHandle => "bad file handle",
            FsError::ReadOnly => "read-only",
            FsError::TryAgain => "try again",
            FsError::Interrupted => "interrupted",
            FsError::Io => "input/output error",
            FsError::NoDevice => "no such device",
            FsError::NoData => "no data there",
        })
    }
}

impl std::error::Error for FsError {}

/// The conversation broke, not the call. Each variant's doc says what the caller must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Disrupted {
    /// No answer in time (soft mounts only): report an I/O error.
    Timeout,
    /// The server evicted us: drop everything its locks covered, reconnect, fail the open files.
    Evicted,
    /// The server restarted: drop every cache and lock of the old epoch, then ask again.
    NewEpoch,
    /// The target is not served there: fetch the configuration again.
    WrongTarget,
    /// The peer refused us (key, version, name): stop and tell the person.
    Refused,
    /// This side is shutting down: give up.
    Closed,
}

/// What a call fails with that has no answer, or that it is to be asked again.
impl From<Disrupted> for FsError {
    fn from(cause: Disrupted) -> FsError {
        match cause {
            Disrupted::NewEpoch | Disrupted::WrongTarget => FsError::TryAgain,
            Disrupted::Timeout | Disrupted::Evicted | Disrupted::Refused | Disrupted::Closed => {
                FsError::Io
            }
        }
    }
}

impl fmt::Display for Disrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Disrupted::Timeout => "no answer in time",
            Disrupted::Evicted => "evicted by the server",
            Disrupted::NewEpoch => "the server restarted",
            Disrupted::WrongTarget => "the target is not served there",
            Disrupted::Refused => "refused by the peer",
            Disrupted::Closed => "shutting down",
        })
    }
}

impl std::error::Error for Disrupted {}

/// A stored record is not what was written. Stops the target; is never served, never skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Which record of which table or file.
    pub record: String,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "damaged record {}: {}", self.record, self.reason)
    }
}

impl std::error::Error for Damage {}
