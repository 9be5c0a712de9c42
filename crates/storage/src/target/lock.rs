//! Exclusive hold of a file by one process, and who holds it.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::error::{Result, StorageError};

/// How long a process that was killed may take to let go of its files. It is dead to all others, but its
/// memory goes first, and what it had asked of a disk.
pub(crate) const ENDING_MAX: Duration = Duration::from_secs(10);
/// How long a holder that /proc does not name may take. As a rule it was killed a moment ago, and has let go
/// since it was looked; else it is on another machine, or in another namespace.
const UNNAMED_MAX: Duration = Duration::from_secs(2);
/// How often it is looked whether it has.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Held until dropped, or until the process ends however it ends.
#[derive(Debug)]
pub(crate) struct ExclusiveLock(#[allow(dead_code)] Flock<File>);

/// Locks `file`, which is at `path`, or says who holds it. Waits for a holder that was killed.
pub(crate) fn lock_exclusive(file: &File, path: &Path) -> Result<ExclusiveLock> {
    let began = Instant::now();
    let mut has_said = false;
    loop {
        let holder = match try_lock(file, path)? {
            Ok(lock) => return Ok(lock),
            Err(holder) => holder,
        };
        if began.elapsed() > patience(holder.map(is_ending)) {
            let at = path.display().to_string();
            return Err(StorageError::InUse { at, holder });
        }
        if holder.is_some() && !std::mem::replace(&mut has_said, true) {
            let (at, seconds) = (path.display(), ENDING_MAX.as_secs());
            tracing::warn!(
                "{at}: waits for up to {seconds} s until a process that was killed has let go of it"
            );
        }
        std::thread::sleep(LOOK);
    }
}

/// How long a holder is waited for that is ending, or is not; none: nobody is named.
fn patience(is_ending: Option<bool>) -> Duration {
    match is_ending {
        Some(true) => ENDING_MAX,
        Some(false) => Duration::ZERO,
        None => UNNAMED_MAX,
    }
}

/// Tries once; the holder, where /proc tells, if another has it.
fn try_lock(file: &File, path: &Path) -> Result<std::result::Result<ExclusiveLock, Option<u32>>> {
    let failed = |error| StorageError::from_io(path.display(), "lock it", &error);
    let handle = file.try_clone().map_err(failed)?;
    match Flock::lock(handle, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Ok(ExclusiveLock(lock))),
        Err((_, Errno::EWOULDBLOCK)) => Ok(Err(holder(file))),
        Err((_, errno)) => Err(failed(errno.into())),
    }
}

/// The process has ended, or was killed and will do nothing more.
fn is_ending(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    match (stat, status) {
        (Ok(stat), Ok(status)) => has_ended(&stat) || is_killed(&status),
        // Gone by now, and its lock with it.
        _ => true,
    }
}

/// In `/proc/PID/stat`: it is a zombie, or exits (`PF_EXITING`).
fn has_ended(stat: &str) -> bool {
    const EXITING: u32 = 4;
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    let fields: Vec<&str> = behind.split_whitespace().collect();
    let flags = fields.get(6).and_then(|flags| flags.parse().ok());
    matches!(fields.first(), Some(&("Z" | "X")))
        || flags.is_some_and(|flags: u32| flags & EXITING > 0)
}

/// In `/proc/PID/status`: a SIGKILL is pending.
fn is_killed(status: &str) -> bool {
    const KILL: u64 = 1 << (libc::SIGKILL - 1);
    let pending = |line: &str| {
        let mask = line
            .strip_prefix("SigPnd:")
            .or(line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    let masks = status.lines().filter_map(pending);
    masks.fold(0, |all, mask| all | mask) & KILL > 0
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
    fn a_process_that_was_killed_is_ending() {
        let stat = |state, flags| format!("7 (a) Z b) {state} 1 7 7 0 -1 {flags} 0 0 0");
        assert!(!has_ended(&stat("S", 4_194_560)));
        assert!(has_ended(&stat("S", 4_194_564)));
        assert!(has_ended(&stat("Z", 0)));
        assert!(!has_ended(""));
        let status = |own, shared| format!("Name:\tx\nSigPnd:\t{own}\nShdPnd:\t{shared}\n");
        let (none, kill) = ("0000000000000000", "0000000000000100");
        assert!(!is_killed(&status(none, none)));
        assert!(is_killed(&status(kill, none)) && is_killed(&status(none, kill)));
        assert!(!is_ending(std::process::id()));
    }

    #[test]
    fn who_has_let_go_since_it_was_looked_is_waited_for() {
        assert_eq!(patience(Some(false)), Duration::ZERO);
        assert!(patience(None) > LOOK && patience(None) < patience(Some(true)));
    }

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
