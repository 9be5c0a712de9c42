//! Sockets by their paths. Whether a process listens there, a place in its queue, and the removal of sockets
//! whose processes have died.

use std::ffi::OsStr;
use std::fs::{DirEntry, File};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, socket};
use nix::unistd::geteuid;
use rustix::fs::FlockOperation;

/// How long it is looked whether a process listens.
const GLANCE: Duration = Duration::from_millis(1);
/// How long the lock of a directory is waited for. It is held for as long as files are made and removed.
const LOCKED_MAX: Duration = Duration::from_secs(1);

/// Waits for a place in the queue of the process that listens there, no longer than `patience`.
pub fn connect(path: &Path, patience: Duration) -> std::io::Result<UnixStream> {
    let kind = SockType::Stream;
    let socket = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None)?;
    let stream = UnixStream::from(socket);
    // On Linux this ends the wait of connect(2), too (unix(7), socket(7)).
    stream.set_write_timeout(Some(patience))?;
    nix::sys::socket::connect(stream.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(stream)
}

/// A process listens there.
pub fn listens(path: &Path) -> bool {
    match connect(path, GLANCE) {
        Ok(_) => true,
        // So many wait for an answer that nobody gives: it will be named as silent.
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

/// The paths at which processes listen, as the kernel lists them: those of its network namespace.
pub fn listened_at() -> Vec<PathBuf> {
    let listed = std::fs::read("/proc/net/unix").unwrap_or_default();
    listed
        .split(|byte| *byte == b'\n')
        .filter_map(listened_in)
        .collect()
}

/// The path in a line of `/proc/net/unix`, if a process listens there.
fn listened_in(line: &[u8]) -> Option<PathBuf> {
    /// The field of the flags, and that of the path, which may have spaces.
    const FIELDS: (usize, usize) = (3, 7);
    /// `__SO_ACCEPTCON`.
    const LISTENS: u32 = 1 << 16;
    let mut rest = line;
    let mut flags = 0;
    for field in 0..FIELDS.1 {
        let end = rest.iter().position(|byte| *byte == b' ')?;
        if field == FIELDS.0 {
            flags = u32::from_str_radix(std::str::from_utf8(&rest[..end]).ok()?, 16).ok()?;
        }
        rest = rest[end..].trim_ascii_start();
    }
    let is_path = flags & LISTENS != 0 && rest.starts_with(b"/");
    is_path.then(|| PathBuf::from(OsStr::from_bytes(rest)))
}

/// The right to make and remove sockets in a directory of this user's, while it lives. A process that
/// stands still with it keeps nobody from that for long.
pub struct Changing(#[expect(dead_code, reason = "holds the lock")] Option<File>);

impl Changing {
    /// Waits for it.
    pub fn of(directory: &Path) -> Changing {
        let began = Instant::now();
        let Ok(opened) = File::open(directory) else {
            return Changing(None);
        };
        while rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive).is_err() {
            if began.elapsed() > LOCKED_MAX {
                return Changing(None);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Changing(Some(opened))
    }

    /// Removes sockets of this user's whose processes have died. Each is named by a number that a later
    /// mount, or process, may have.
    pub fn remove_dead(&self, directory: &Path) {
        let listed = std::fs::read_dir(directory).into_iter().flatten().flatten();
        for entry in listed.filter(is_dead) {
            // It is in nobody's way where it stays.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn is_dead(entry: &DirEntry) -> bool {
    let Ok(found) = entry.metadata() else {
        return false;
    };
    let is_ours = found.file_type().is_socket() && found.uid() == geteuid().as_raw();
    let refused = |path: &Path| {
        connect(path, GLANCE).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    };
    is_ours && refused(&entry.path())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_kernel_says_where_processes_listen() {
        let dir = tempfile::tempdir().unwrap();
        let [dead, living] = ["dead", "with a space"].map(|name| dir.path().join(name));
        drop(UnixListener::bind(&dead).unwrap());
        let _listener = UnixListener::bind(&living).unwrap();
        let _connected = UnixStream::connect(&living).unwrap();
        let all = listened_at();
        assert!(!all.contains(&dead));
        assert_eq!(all.iter().filter(|path| **path == living).count(), 1);
    }

    #[test]
    fn only_sockets_of_the_dead_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let [dead, living, file] = ["dead", "living", "file"].map(|name| dir.path().join(name));
        drop(UnixListener::bind(&dead).unwrap());
        let _listener = UnixListener::bind(&living).unwrap();
        std::fs::write(&file, "").unwrap();
        Changing::of(dir.path()).remove_dead(dir.path());
        assert!(!dead.exists() && living.exists() && file.exists());
        assert!(listens(&living) && !listens(&dead));
    }
}
