//! Other mount namespaces that have a mount too, found out without touching it. The kernel keeps a mount
//! alive for them when it is off here.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::table::{DeviceNumber, MountEntry, mounts_of};
use super::users::{below, command};

/// A thread in another mount namespace that has a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    /// Its id; of several in that namespace any one's.
    pub pid: u32,
    /// Its name.
    pub command: String,
    /// Its working or root directory is in the mount.
    pub is_inside: bool,
}

impl fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the mount namespace of pid {} ({})",
            self.pid, self.command
        )
    }
}

/// Threads in other mount namespaces that have the file system of `number`: those inside, and one of each
/// namespace. None where it is mounted in this namespace as well. Root sees all, others their own.
///
/// Threads, as the last of a process may wait in the kernel when its first is a zombie, and keep its
/// namespace.
pub fn elsewhere(number: DeviceNumber) -> Vec<Elsewhere> {
    let Ok(ours) = mounts_of(Path::new("/proc/self")) else {
        return Vec::new();
    };
    if ours.iter().any(|entry| entry.number == number) {
        return Vec::new();
    }
    let (own, mut seen) = (namespace(Path::new("/proc/self")), HashSet::new());
    let mut found = Vec::new();
    for thread in listed(Path::new("/proc")).flat_map(|process| listed(&process.join("task"))) {
        let theirs = namespace(&thread).filter(|theirs| Some(theirs) != own.as_ref());
        let Some((theirs, pid)) = theirs.zip(number_of(&thread)) else {
            continue;
        };
        let is_there = |entry: &MountEntry| entry.number == number;
        let mut listed = mounts_of(&thread).unwrap_or_default();
        listed.retain(is_there);
        let is_inside = listed.iter().any(|entry| is_inside(&thread, &entry.point));
        if is_inside || !listed.is_empty() && seen.insert(theirs) {
            let command = command(&thread);
            found.push(Elsewhere {
                pid,
                command,
                is_inside,
            });
        }
    }
    found
}

/// What is in `directory` and has a number for a name.
fn listed(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let listed = fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = listed.map(|entry| entry.path());
    paths.filter(|path| number_of(path).is_some())
}

fn number_of(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.parse().ok()
}

fn namespace(thread: &Path) -> Option<PathBuf> {
    fs::read_link(thread.join("ns/mnt")).ok()
}

fn is_inside(thread: &Path, point: &Path) -> bool {
    let is_below = |link| below(&thread.join(link), point).is_some();
    is_below("cwd") || is_below("root")
}
