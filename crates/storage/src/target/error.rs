//! Why a directory cannot be formatted or served.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use base::TargetName;

use super::superblock::{FsName, SUPERBLOCK_VERSION};
use crate::error::StorageError;

/// Why a directory cannot be formatted or served; the message says how to mend it.
#[derive(Debug, Clone)]
pub enum TargetError {
    /// The system refused.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The system's words.
        reason: String,
    },
    /// A directory is needed.
    NotADirectory {
        /// What is there.
        path: PathBuf,
    },
    /// It holds what is not ours.
    NotOurs {
        /// The directory.
        dir: PathBuf,
        /// How many files and directories; at most `FOREIGN_MAX` are counted.
        files: u64,
    },
    /// It is not there.
    NoDirectory {
        /// The directory.
        dir: PathBuf,
    },
    /// It is the directory of one target.
    IsTarget {
        /// The directory.
        dir: PathBuf,
        /// The target.
        target: TargetName,
    },
    /// There is no target in it.
    NoTarget {
        /// The directory.
        dir: PathBuf,
    },
    /// It has those targets already.
    Exists {
        /// The directory.
        dir: PathBuf,
        /// The targets.
        targets: Vec<TargetName>,
    },
    /// A list names a target twice.
    Twice {
        /// The target.
        target: TargetName,
    },
    /// It has no such target.
    Unknown {
        /// The directory.
        dir: PathBuf,
        /// The target.
        target: TargetName,
    },
    /// Its targets belong to another file system.
    OtherFileSystem {
        /// The directory.
        dir: PathBuf,
        /// The file system there.
        found: FsName,
    },
    /// A superblock is not what was written, or is not there.
    Damaged {
        /// The superblock's file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Another version of the program formatted it.
    ForeignVersion {
        /// The superblock's file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// Others than its owner may read the key.
    KeyExposed {
        /// The key's file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// There is no key.
    KeyMissing {
        /// Where its file should be.
        path: PathBuf,
    },
    /// There is no key of the servers.
    ServerKeyMissing {
        /// Where it would be.
        path: PathBuf,
    },
    /// The key file holds no key.
    KeyMalformed {
        /// The key's file.
        path: PathBuf,
    },
    /// A file inside failed; also when the target is in use.
    Storage(StorageError),
}

impl TargetError {
    pub(super) fn io(path: &Path, action: &'static str, error: &io::Error) -> TargetError {
        TargetError::Io {
            path: path.to_owned(),
            action,
            reason: crate::error::words(error),
        }
    }
}

impl From<StorageError> for TargetError {
    fn from(error: StorageError) -> TargetError {
        TargetError::Storage(error)
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetError::Io {
                path,
                action,
                reason,
            } => write!(f, "{}: cannot {action}: {reason}", path.display()),
            TargetError::NotADirectory { path } => {
                write!(f, "{} is not a directory; name one", path.display())
            }
            TargetError::NotOurs { dir, files } => write!(
                f,
                "{} holds {files} {} not Glint's; choose an empty directory",
                dir.display(),
                if *files == 1 {
                    "file that is"
                } else {
                    "files that are"
                }
            ),
            TargetError::NoDirectory { dir } => write!(
                f,
                "{} is not there; look at the path, or make a target with glint format",
                dir.display()
            ),
            TargetError::IsTarget { dir, target } => {
                let within = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
                let within = within.parent().unwrap_or(&within);
                write!(
                    f,
                    "{} is the directory of one target, {target}; name the one that it is in: {}",
                    dir.display(),
                    within.display()
                )
            }
            TargetError::NoTarget { dir } => write!(
                f,
                "{} holds no target; make one with glint format",
                dir.display()
            ),
            TargetError::Exists { dir, targets } => {
                let names = listed(targets, ", ", |target| target.to_string());
                let erased = listed(targets, ",", super::directory::dir_name);
                let (it, holds) = match targets.len() {
                    1 => ("it", "it holds"),
                    _ => ("them", "they hold"),
                };
                let dir = dir.display();
                write!(
                    f,
                    "{dir} has {names} already; to lose {it} and all {holds}, add --erase {erased}"
                )
            }
            TargetError::Twice { target } => {
                write!(f, "{target} is named twice; name each target once")
            }
            TargetError::Unknown { dir, target } => {
                write!(
                    f,
                    "{} has no {target} to erase; leave it out of --erase",
                    dir.display()
                )
            }
            TargetError::OtherFileSystem { dir, found } => write!(
                f,
                "{} belongs to the file system {found}; choose another directory",
                dir.display()
            ),
            TargetError::Damaged { path, why } => write!(
                f,
                "{} is damaged: {why}; restore it from a copy of the target",
                path.display()
            ),
            TargetError::ForeignVersion { path, found } => write!(
                f,
                "{} has format version {found}, this program has {SUPERBLOCK_VERSION}; use the program that wrote it",
                path.display()
            ),
            TargetError::KeyExposed { path, mode } => write!(
                f,
                "{} may be read by others than its owner (mode {mode:04o}); chmod 600 it, and make a new key if others have read it",
                path.display()
            ),
            TargetError::KeyMissing { path } => write!(
                f,
                "{} is missing; it is the key of the file system: copy it from another directory of its targets, or from a client that has it",
                path.display()
            ),
            TargetError::ServerKeyMissing { path } => write!(
                f,
                "{} is missing; servers prove it to each other: serve the directory of the MGS, which makes one where there is none, and copy that",
                path.display()
            ),
            TargetError::KeyMalformed { path } => write!(
                f,
                "{} is not a key; it must be 64 hexadecimal digits on one line",
                path.display()
            ),
            TargetError::Storage(error) => error.fmt(f),
        }
    }
}

fn listed(targets: &[TargetName], comma: &str, spelt: fn(TargetName) -> String) -> String {
    let spelt: Vec<String> = targets.iter().copied().map(spelt).collect();
    spelt.join(comma)
}

impl std::error::Error for TargetError {}
