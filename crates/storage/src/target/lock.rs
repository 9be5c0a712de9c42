//! Exclusive hold of a file by one process, and who holds it.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::error::{Result, StorageError};

/// Held until dropped, or until the process ends however it ends.
#[derive(Debug)]
pub(crate) struct ExclusiveLock(#[allow(dead_code)] Flock<File>);

/// Locks `file`, which is at `path`, or says who holds it.
pub(crate) fn lock_exclusive(file: &File, path: &Path) -> Result<ExclusiveLock> {
    let failed = |error| StorageError::from_io(path.display(), "lock it", &error);
    let handle = file.try_clone().map_err(failed)?;
    match Flock::lock(handle, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(ExclusiveLock(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Err(StorageError::InUse {
            at: path.display().to_string(),
            holder: holder(file),
        }),
        Err((_, errno)) => Err(failed(errno.into())),
    }
}

/// The process that holds a lock on `file`, where /proc tells.
fn holder(file: &File) -> Option<u32> {
    let metadata = file.metadata().ok()?;
    let (major, minor) = (
        nix::sys::stat::major(metadata.dev()),
        nix::sys::stat::minor(metadata.dev()),
    );
    let wanted = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| holder_in(line, &wanted))
}

/// The holder in a line such as `1: FLOCK  ADVISORY  WRITE 4711 fd:00:1234 0 EOF`, if it is about
/// the file `wanted`.
fn holder_in(line: &str, wanted: &str) -> Option<u32> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    match fields.as_slice() {
        [_, "FLOCK", _, _, pid, file, ..] if *file == wanted => pid.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_holder_of_that_file_alone() {
        let line = "7: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF";
        assert_eq!(holder_in(line, "fe:00:1234"), Some(4711));
        assert_eq!(holder_in(line, "fe:00:123"), None);
        assert_eq!(
            holder_in("7: POSIX ADVISORY WRITE 1 fe:00:1234 0 EOF", "fe:00:1234"),
            None
        );
        assert_eq!(
            holder_in(
                "7: -> FLOCK ADVISORY WRITE 9 fe:00:1234 0 EOF",
                "fe:00:1234"
            ),
            None
        );
        assert_eq!(holder_in("", ""), None);
    }
}
