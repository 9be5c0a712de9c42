//! Who uses a mount, found out without touching it: links in /proc are read, never followed.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// How a process uses a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsedBy {
    /// Its working directory is there.
    WorkingDirectory,
    /// Its root directory is there.
    Root,
    /// Its program is there.
    Program,
    /// A file is open.
    OpenFile,
    /// A file is mapped.
    Mapping,
}

impl fmt::Display for UsedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UsedBy::WorkingDirectory => "works in",
            UsedBy::Root => "has its root at",
            UsedBy::Program => "runs",
            UsedBy::OpenFile => "has open",
            UsedBy::Mapping => "has mapped",
        })
    }
}

/// One process and one thing of the mount it uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountUser {
    /// Process id.
    pub pid: u32,
    /// The process's name.
    pub command: String,
    /// What it uses.
    pub path: PathBuf,
    /// How.
    pub by: UsedBy,
}

impl fmt::Display for MountUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "pid {} ({}) {} {}",
            self.pid,
            self.command,
            self.by,
            self.path.display()
        )
    }
}

/// Processes that use the mount at `point`, which must be resolved; each once, by pid.
///
/// Processes of other users are seen by root only, those in other mount namespaces where they
/// call the mount by the same path.
pub fn users(point: &Path) -> Vec<MountUser> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut users: Vec<MountUser> = processes
        .flatten()
        .filter_map(|process| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            user(pid, &process.path(), point)
        })
        .collect();
    users.sort_by_key(|user| user.pid);
    users
}

fn user(pid: u32, process: &Path, point: &Path) -> Option<MountUser> {
    let link = |name: &str, by| Some((below(&process.join(name), point)?, by));
    let (path, by) = link("cwd", UsedBy::WorkingDirectory)
        .or_else(|| link("root", UsedBy::Root))
        .or_else(|| link("exe", UsedBy::Program))
        .or_else(|| Some((open_file(process, point)?, UsedBy::OpenFile)))
        .or_else(|| Some((mapping(process, point)?, UsedBy::Mapping)))?;
    let command = command(process);
    Some(MountUser {
        pid,
        command,
        path,
        by,
    })
}

/// A process's name.
pub(super) fn command(process: &Path) -> String {
    let command = fs::read(process.join("comm")).unwrap_or_default();
    String::from_utf8_lossy(&command).trim_end().to_owned()
}

/// The link's target, if it is `point` or below.
pub(super) fn below(link: &Path, point: &Path) -> Option<PathBuf> {
    fs::read_link(link)
        .ok()
        .filter(|target| target.starts_with(point))
}

fn open_file(process: &Path, point: &Path) -> Option<PathBuf> {
    let mut descriptors = fs::read_dir(process.join("fd")).ok()?.flatten();
    descriptors.find_map(|descriptor| below(&descriptor.path(), point))
}

fn mapping(process: &Path, point: &Path) -> Option<PathBuf> {
    let maps = fs::read(process.join("maps")).ok()?;
    maps.split(|byte| *byte == b'\n')
        .filter_map(mapped_path)
        .find(|path| path.starts_with(point))
}

/// The path at the end of a line of maps: the first `/` starts it, no field before has one.
fn mapped_path(line: &[u8]) -> Option<PathBuf> {
    let start = line.iter().position(|byte| *byte == b'/')?;
    let path = line[start..]
        .strip_suffix(b" (deleted)")
        .unwrap_or(&line[start..]);
    Some(PathBuf::from(OsString::from_vec(path.to_vec())))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn finds_an_open_file_of_this_process_and_only_that() {
        let directory = tempfile::tempdir().unwrap();
        let point = fs::canonicalize(directory.path()).unwrap();
        let mine = |users: Vec<MountUser>| {
            users
                .into_iter()
                .find(|user| user.pid == std::process::id())
        };
        assert_eq!(mine(users(&point)), None);
        let file = File::create(point.join("open")).unwrap();
        let user = mine(users(&point)).unwrap();
        assert_eq!((user.by, user.path), (UsedBy::OpenFile, point.join("open")));
        assert!(!user.command.is_empty());
        drop(file);
        assert_eq!(mine(users(&point)), None);
    }

    #[test]
    fn reads_paths_with_blanks_from_maps() {
        let line = b"7f00-7f01 r--p 00000000 00:2a 17   /mnt/a b (deleted)";
        assert_eq!(
            mapped_path(line).unwrap().as_os_str().as_bytes(),
            b"/mnt/a b"
        );
        assert_eq!(
            mapped_path(b"7f00-7f01 rw-p 00000000 00:00 0   [heap]"),
            None
        );
    }
}
