//! What storage can fail with. Every message says what, where, and how to mend it.

use std::fmt;
use std::io;
use std::sync::Arc;

use base::{ByteRange, Damage, FsError};
use nix::errno::Errno;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, StorageError>;

/// Why a disk, a key-value store or an object did not do as asked. `at` names the file or target.
#[derive(Debug, Clone)]
pub enum StorageError {
    /// The operating system refused.
    Io {
        /// Which file or target.
        at: String,
        /// What was tried.
        action: &'static str,
        /// The system's class of the error.
        kind: io::ErrorKind,
        /// The system's words.
        reason: String,
    },
    /// No blocks, inodes or quota left.
    NoSpace {
        /// Which file or target.
        at: String,
    },
    /// Past the largest size of a file, here or below us.
    FileTooBig {
        /// Which file or target.
        at: String,
    },
    /// Another process, or another part of this one, holds it.
    InUse {
        /// Which file or target.
        at: String,
        /// Who, where the system tells.
        holder: Option<u32>,
    },
    /// Somebody else has the target's fence; nothing was changed.
    Fenced {
        /// Which target.
        at: String,
        /// Who.
        holder: String,
    },
    /// This process does not have the target's fence any more.
    FenceLost {
        /// Which target.
        at: String,
        /// Who has it now, or why nobody.
        why: String,
    },
    /// What is stored is not what was written.
    Damaged {
        /// Which file or target.
        at: String,
        /// Which record, and what is wrong with it.
        damage: Damage,
    },
    /// Bytes of an object are not those that were written.
    DamagedBytes {
        /// Which object of which target.
        at: String,
        /// Which bytes, in one of which it is.
        range: ByteRange,
    },
    /// Written by another version of the program.
    ForeignVersion {
        /// Which file or target.
        at: String,
        /// The version found.
        found: u32,
        /// The version this program reads and writes.
        ours: u32,
    },
    /// The caller asked for what is not offered; nothing was done.
    Refused {
        /// Which file or target.
        at: String,
        /// Why.
        reason: String,
    },
    /// Stopped by an earlier error; nothing was done.
    Stopped {
        /// Which file or target.
        at: String,
        /// The error that stopped it.
        cause: Arc<StorageError>,
    },
}

impl StorageError {
    /// The system's `error` while doing `action` at `at`, sorted into its class.
    pub fn from_io(at: impl fmt::Display, action: &'static str, error: &io::Error) -> StorageError {
        let at = at.to_string();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                StorageError::NoSpace { at }
            }
            io::ErrorKind::FileTooLarge => StorageError::FileTooBig { at },
            kind => StorageError::Io {
                at,
                action,
                kind,
                reason: words(error),
            },
        }
    }

    /// What should be there is not, or not any more.
    pub fn is_missing(&self) -> bool {
        use io::ErrorKind::{NotADirectory, NotFound, StaleNetworkFileHandle};
        let StorageError::Io { kind, .. } = self else {
            return false;
        };
        matches!(kind, NotFound | NotADirectory | StaleNetworkFileHandle)
    }

    /// Damage of `record` at `at`.
    pub fn damaged(
        at: impl fmt::Display,
        record: impl Into<String>,
        reason: impl Into<String>,
    ) -> StorageError {
        StorageError::Damaged {
            at: at.to_string(),
            damage: Damage {
                record: record.into(),
                reason: reason.into(),
            },
        }
    }

    /// A request that is refused before anything is done.
    pub fn refused(at: impl fmt::Display, reason: impl Into<String>) -> StorageError {
        StorageError::Refused {
            at: at.to_string(),
            reason: reason.into(),
        }
    }

    /// The damage behind this error, also where it stopped a target earlier.
    pub fn damage(&self) -> Option<&Damage> {
        match self {
            StorageError::Damaged { damage, .. } => Some(damage),
            StorageError::Stopped { cause, .. } => cause.damage(),
            _ => None,
        }
    }
}

/// What the system said, with what to do where that is always the same.
pub(crate) fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "this user (uid {}) may not ({error}); run glint as the user who owns the targets, or \
             give them to this one with chown -R, and see that their owner may read and write them",
            nix::unistd::geteuid()
        ),
        _ => error.to_string(),
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageError::Io {
                at, action, reason, ..
            } => write!(f, "{at}: cannot {action}: {reason}"),
            StorageError::NoSpace { at } => {
                write!(f, "{at}: no space left; free some or add a target")
            }
            StorageError::FileTooBig { at } => {
                write!(f, "{at}: past the largest size of a file there")
            }
            StorageError::InUse {
                at,
                holder: Some(pid),
            } => write!(f, "{at} is in use by process {pid}; stop it first"),
            StorageError::InUse { at, holder: None } => {
                write!(f, "{at} is in use by another process; stop it first")
            }
            StorageError::Fenced { at, holder } => write!(
                f,
                "{at} is in use by {holder}, which keeps its fence; stop it there first"
            ),
            StorageError::FenceLost { at, why } => {
                write!(f, "{at}: {why}; this process writes nothing more to it")
            }
            StorageError::Damaged { at, damage } => write!(
                f,
                "{at}: {damage}; restore it from a copy, or run glint fsck"
            ),
            StorageError::DamagedBytes { at, range } => write!(
                f,
                "{at} is damaged: bytes {} to {} are not what was written; restore the file from a \
                 copy, or write it anew",
                range.start, range.end
            ),
            StorageError::ForeignVersion { at, found, ours } => write!(
                f,
                "{at} has format version {found}, this program reads {ours}; use the program that wrote it"
            ),
            StorageError::Refused { at, reason } => write!(f, "{at}: refused: {reason}"),
            StorageError::Stopped { at, cause } => {
                write!(
                    f,
                    "{at} stopped after an error and must be restarted: {cause}"
                )
            }
        }
    }
}

impl std::error::Error for StorageError {}

impl From<&StorageError> for FsError {
    fn from(error: &StorageError) -> FsError {
        match error {
            StorageError::NoSpace { .. } => FsError::NoSpace,
            StorageError::FileTooBig { .. } => FsError::FileTooBig,
            StorageError::Stopped { cause, .. } => match FsError::from(&**cause) {
                // What was full may be free again, but the target does not run any more.
                FsError::NoSpace | FsError::FileTooBig => FsError::Io,
                other => other,
            },
            _ => FsError::Io,
        }
    }
}

/// The process has as many files open as it may, or the system has.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EMFILE | Errno::ENFILE))
}
