//! Why mounting or unmounting failed, and how to mend it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::users::MountUser;

/// Each says what is wrong and what to do.
#[derive(Debug)]
pub enum MountError {
    /// /dev/fuse is not there.
    NoDevice,
    /// /dev/fuse may not be opened.
    DeviceRefused,
    /// The kernel has no FUSE.
    NoKernelSupport,
    /// fusermount3 is not installed.
    NoFusermount,
    /// An ordinary user asked for allow_other.
    AllowOtherRefused,
    /// This user may not mount or unmount there.
    NotPermitted {
        /// The mount point.
        point: PathBuf,
        /// What was said.
        reason: String,
    },
    /// The mount point does not exist.
    NoPoint(PathBuf),
    /// The mount point is no directory.
    NotDirectory(PathBuf),
    /// A server died and left its mount.
    Dead(PathBuf),
    /// What is mounted there does not answer.
    Silent(PathBuf),
    /// Something is mounted there.
    AlreadyMounted(PathBuf),
    /// Nothing of ours is mounted there.
    NotMounted(PathBuf),
    /// Processes use it.
    Busy {
        /// The mount point.
        point: PathBuf,
        /// Those that could be seen.
        users: Vec<MountUser>,
    },
    /// fusermount3 failed in a way not listed here.
    Fusermount(String),
    /// A system call failed.
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// How it failed.
        error: io::Error,
    },
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MountError::NoDevice => f.write_str(
                "/dev/fuse is missing: load the module with `modprobe fuse`; in a container pass \
                 the device in (`--device /dev/fuse`)",
            ),
            MountError::DeviceRefused => f.write_str(
                "/dev/fuse may not be opened: run as root, or allow it with \
                 `chmod 666 /dev/fuse`",
            ),
            MountError::NoKernelSupport => {
                f.write_str("the kernel knows no FUSE: load the module with `modprobe fuse`")
            }
            MountError::NoFusermount => f.write_str(
                "fusermount3 is missing, which mounts for users other than root: install the \
                 package fuse3, or run as root",
            ),
            MountError::AllowOtherRefused => f.write_str(
                "allow_other is refused: put a line `user_allow_other` into /etc/fuse.conf, \
                 leave the option out, or run as root",
            ),
            MountError::NotPermitted { point, reason } => write!(
                f,
                "{} may not be mounted on or unmounted by this user ({reason}): own the \
                 directory, or run as root",
                point.display()
            ),
            _ => self.fmt_point(f),
        }
    }
}

impl MountError {
    fn fmt_point(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MountError::NoPoint(point) => {
                write!(
                    f,
                    "{0} does not exist: create it with `mkdir -p {0}`",
                    point.display()
                )
            }
            MountError::NotDirectory(point) => {
                write!(f, "{} is not a directory: choose one", point.display())
            }
            MountError::Dead(point) => write!(
                f,
                "{0} holds a dead mount whose server is gone (\"Transport endpoint is not \
                 connected\"): remove it with `fusermount3 -uz {0}` or, as root, `umount -l {0}`",
                point.display()
            ),
            MountError::Silent(point) => write!(
                f,
                "{0} holds a mount that does not answer: wait for its server, or remove it with \
                 `umount -l {0}`",
                point.display()
            ),
            MountError::AlreadyMounted(point) => write!(
                f,
                "{0} is mounted already: unmount it with `umount {0}`, or choose another \
                 directory",
                point.display()
            ),
            MountError::NotMounted(point) => {
                write!(f, "nothing of FUSE is mounted on {}", point.display())
            }
            MountError::Busy { point, users } => {
                write!(f, "{} is in use", point.display())?;
                for (index, user) in users.iter().enumerate() {
                    let mark = if index == 0 { ":" } else { ";" };
                    write!(f, "{mark} {user}")?;
                }
                write!(
                    f,
                    "; end these processes, or have them leave it, and try again"
                )
            }
            MountError::Fusermount(text) => write!(f, "fusermount3 failed: {text}"),
            MountError::Io { what, path, error } => {
                write!(f, "cannot {what} {}: {error}", path.display())
            }
            _ => Ok(()),
        }
    }
}

impl std::error::Error for MountError {}
