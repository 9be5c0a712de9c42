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
    /// It holds what is not ours, and a target was looked for.
    OthersAlone {
        /// The directory.
        dir: PathBuf,
        /// As in [`TargetError::NotOurs`].
        files: u64,
    },
    /// It is not there.
    NoDirectory {
        /// The directory.
        dir: PathBuf,
    },
    /// It belongs to another user, who can change what is in it at any time.
    Others {
        /// The directory.
        dir: PathBuf,
        /// That user.
        owner: u32,
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
    /// It has no such target.
    NotThere {
        /// The directory.
        dir: PathBuf,
        /// The target.
        target: TargetName,
    },
    /// Its objects are files.
    NoExtents {
        /// Where extents would be.
        path: PathBuf,
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
    /// Its objects are partly in files and partly on extents.
    Upgrading {
        /// The directory.
        dir: PathBuf,
        /// The target.
        target: TargetName,
    },
    /// Moving its objects to extents needs more space.
    NoRoom {
        /// The target's directory.
        path: PathBuf,
        /// What its file system must have, in bytes.
        needed: u64,
        /// What it has.
        available: u64,
    },
    /// There is a file among its objects that is none of them.
    NoObject {
        /// The file.
        path: PathBuf,
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

    /// The same where a target was looked for: there is nothing to format then.
    pub fn where_one_was_looked_for(self) -> TargetError {
        match self {
            TargetError::NotOurs { dir, files } => TargetError::OthersAlone { dir, files },
            error => error,
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
        match self.path() {
            Some(path) => write!(f, "{}{}", path.display(), self.words()),
            None => f.write_str(&self.words()),
        }
    }
}

impl TargetError {
    /// The file or directory that the message begins with.
    fn path(&self) -> Option<&Path> {
        match self {
            TargetError::Io { path, .. }
            | TargetError::NotADirectory { path }
            | TargetError::NotOurs { dir: path, .. }
            | TargetError::OthersAlone { dir: path, .. }
            | TargetError::NoDirectory { dir: path }
            | TargetError::Others { dir: path, .. }
            | TargetError::IsTarget { dir: path, .. }
            | TargetError::NoTarget { dir: path }
            | TargetError::Exists { dir: path, .. }
            | TargetError::Unknown { dir: path, .. }
            | TargetError::NotThere { dir: path, .. }
            | TargetError::NoExtents { path }
            | TargetError::OtherFileSystem { dir: path, .. }
            | TargetError::Damaged { path, .. }
            | TargetError::ForeignVersion { path, .. }
            | TargetError::Upgrading { dir: path, .. }
            | TargetError::NoRoom { path, .. }
            | TargetError::NoObject { path }
            | TargetError::KeyExposed { path, .. }
            | TargetError::KeyMissing { path }
            | TargetError::ServerKeyMissing { path }
            | TargetError::KeyMalformed { path } => Some(path),
            TargetError::Twice { .. } | TargetError::Storage(_) => None,
        }
    }

    /// What is wrong with it, and what to do.
    fn words(&self) -> String {
        match self {
            TargetError::Io { action, reason, .. } => format!(": cannot {action}: {reason}"),
            TargetError::NotADirectory { .. } => " is not a directory; name one".into(),
            TargetError::NotOurs { files, .. } => {
                format!(" holds {}; choose an empty directory", foreign(*files))
            }
            TargetError::OthersAlone { files, .. } => format!(
                " holds {}, and no target; name the directory of a target",
                foreign(*files)
            ),
            TargetError::NoDirectory { .. } => {
                " is not there; look at the path, or make a target with glint format".into()
            }
            TargetError::Others { owner, .. } => format!(
                " belongs to user {owner}, who could have what is written there go elsewhere; do this as that \
                 user, or give it to yours: chown -R"
            ),
            TargetError::IsTarget { dir, target } => is_target(dir, *target),
            TargetError::NoTarget { .. } => " holds no target; make one with glint format".into(),
            TargetError::Exists { targets, .. } => exist(targets),
            TargetError::Twice { target } => {
                format!("{target} is named twice; name each target once")
            }
            TargetError::Unknown { target, .. } => {
                format!(" has no {target} to erase; leave it out of --erase")
            }
            TargetError::NotThere { target, .. } => format!(" has no {target}"),
            TargetError::NoExtents { .. } => {
                " is not there: objects are files; glint upgrade moves them to extents".into()
            }
            TargetError::OtherFileSystem { found, .. } => {
                format!(" belongs to the file system {found}; choose another directory")
            }
            TargetError::Damaged { why, .. } => {
                format!(" is damaged: {why}; restore it from a copy of the target")
            }
            TargetError::ForeignVersion { found, .. } => format!(
                " has format version {found}, this program has {SUPERBLOCK_VERSION}; \
                 use the program that wrote it"
            ),
            TargetError::Upgrading { dir, target } => format!(
                ": an upgrade of {target} was interrupted; go on with it first: glint upgrade {}",
                dir.display()
            ),
            TargetError::NoRoom {
                needed, available, ..
            } => format!(
                ": {available} bytes are free, and an upgrade needs {needed}; \
                 make room, nothing was changed yet"
            ),
            TargetError::NoObject { .. } => " is no object of Glint's; move it elsewhere".into(),
            TargetError::KeyExposed { mode, .. } => format!(
                " may be read by others than its owner (mode {mode:04o}); \
                 chmod 600 it, and make a new key if others have read it"
            ),
            TargetError::KeyMissing { .. } => {
                " is missing; it is the key of the file system: copy \
                 it from another directory of its targets, or from a client that has it"
                    .into()
            }
            TargetError::ServerKeyMissing { .. } => " is missing; servers prove it to each other: \
                 serve the directory of the MGS, which makes one where there is none, and copy that"
                .into(),
            TargetError::KeyMalformed { .. } => {
                " is not a key; it must be 64 hexadecimal digits on one line".into()
            }
            TargetError::Storage(error) => error.to_string(),
        }
    }
}

fn foreign(files: u64) -> String {
    match files {
        1 => "1 file that is not Glint's".to_owned(),
        files => format!("{files} files that are not Glint's"),
    }
}

/// `dir` is the directory of `target`, where one is to be named that has targets in it.
fn is_target(dir: &Path, target: TargetName) -> String {
    let within = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let within = within.parent().unwrap_or(&within).display();
    format!(" is the directory of one target, {target}; name the one that it is in: {within}")
}

fn exist(targets: &[TargetName]) -> String {
    let names = listed(targets, ", ", |target| target.to_string());
    let erased = listed(targets, ",", super::directory::dir_name);
    let (it, holds) = match targets.len() {
        1 => ("it", "it holds"),
        _ => ("them", "they hold"),
    };
    format!(" has {names} already; to lose {it} and all {holds}, add --erase {erased}")
}

fn listed(targets: &[TargetName], comma: &str, spelt: fn(TargetName) -> String) -> String {
    let spelt: Vec<String> = targets.iter().copied().map(spelt).collect();
    spelt.join(comma)
}

impl std::error::Error for TargetError {}
