//! A directory to mount on, made here and removed on drop, with whatever is mounted there.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

use crate::error::{BenchError, During, Result};

/// How long an unmount waits for the last user of a file to leave.
const BUSY_PATIENCE: Duration = Duration::from_secs(10);
const BUSY_TURN: Duration = Duration::from_millis(20);

/// An empty directory of our own.
#[derive(Debug)]
pub(crate) struct MountPoint {
    path: PathBuf,
}

impl MountPoint {
    /// Makes it; its parent must be there.
    pub(crate) fn create(path: PathBuf) -> Result<MountPoint> {
        fs::create_dir(&path).during(|| format!("making {}", path.display()))?;
        Ok(MountPoint { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether something is mounted there.
    pub(crate) fn is_mounted(&self) -> bool {
        mounted_below(&self.path).contains(&self.path)
    }

    /// Unmounts what is mounted there, waiting a little for users to leave.
    pub(crate) fn unmount(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            match umount2(&self.path, MntFlags::empty()) {
                Err(Errno::EBUSY) if start.elapsed() < BUSY_PATIENCE => {
                    std::thread::sleep(BUSY_TURN);
                }
                Err(error) => {
                    return Err(BenchError::Io {
                        doing: format!("unmounting {}", self.path.display()),
                        source: error.into(),
                    });
                }
                Ok(()) => return Ok(()),
            }
        }
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        if self.is_mounted() {
            // Users that are still there keep the file system alive, but not the mount.
            let _ = umount2(&self.path, MntFlags::MNT_DETACH);
        }
        // Never recursive: whatever a failed unmount left below is not ours to delete.
        let _ = fs::remove_dir(&self.path);
    }
}

/// Every mount point at or below a path, the last mounted first.
pub(crate) fn mounted_below(path: &Path) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let points = points.map(|point| PathBuf::from(unescape(point)));
    let mut below: Vec<PathBuf> = points.filter(|point| point.starts_with(path)).collect();
    below.reverse();
    below
}

/// mountinfo writes a space, a tab, a newline and a backslash in octal (proc_pid_mountinfo(5)).
fn unescape(text: &str) -> String {
    text.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_removed_unless_it_holds_something() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("with space");
        let point = MountPoint::create(path.clone()).unwrap();
        assert!(!point.is_mounted());
        assert!(MountPoint::create(path.clone()).is_err());
        drop(point);
        assert!(!path.exists());
        let point = MountPoint::create(path.clone()).unwrap();
        fs::write(path.join("file"), "precious").unwrap();
        drop(point);
        assert!(path.join("file").exists());
    }

    #[test]
    fn octal_is_read_back() {
        assert_eq!(unescape("/a\\040b\\134c"), "/a b\\c");
    }
}
