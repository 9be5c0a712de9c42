//! What remains of a process that was killed, or failed, while the kernel forgot something for it.
//! Threads that wait in the kernel for answers which only the next process can give. Its sockets
//! and locks stay until the last of them has left.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use fuse::kernel::notify::SENDER;
use nix::sys::socket::{Shutdown, shutdown};
use nix::unistd::Pid;
use rustix::fs::FlockOperation;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// Asks for a descriptor of one thread, of a process whose first one is gone: `PIDFD_THREAD`, which
/// is this flag of `open` by definition.
const OF_A_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(nix::libc::O_EXCL as u32);
/// SIGKILL in the sets of signals that /proc shows.
const KILLED: u64 = 1 << (nix::libc::SIGKILL - 1);

/// Of one process.
#[derive(Debug, PartialEq, Eq)]
pub struct Remains {
    /// Threads that wait.
    waiting: Vec<Pid>,
    /// It was not killed from outside.
    failed: bool,
}

/// What a thread may still do.
#[derive(Debug, PartialEq, Eq)]
enum Thread {
    /// Nothing: it is over.
    Over,
    /// Nothing: the process failed, and it waits for the others, or the others for it.
    Failed,
    /// It was killed, and waits until the kernel has forgotten.
    Waits,
    /// Who knows.
    Boots,
}

impl Remains {
    /// Of `process`; None: it is gone, or may still do something, or did just now. The result is certain only
    /// when it is found twice. A signal that was found may have come just after the thread had left the
    /// kernel. A thread that is found in the kernel after that does not leave it again.
    pub fn of(process: Pid) -> Option<Remains> {
        // The first thread tells no kernel anything. Mostly it lives, and no other is looked at.
        if matches!(thread_of(process, process)?, Thread::Boots | Thread::Waits) {
            return None;
        }
        let (mut waiting, mut failed) = (Vec::new(), false);
        for thread in threads_of(process) {
            match thread_of(process, thread) {
                // It was there when they were listed.
                None | Some(Thread::Over) => {}
                Some(Thread::Failed) => failed = true,
                Some(Thread::Waits) => waiting.push(thread),
                Some(Thread::Boots) => return None,
            }
        }
        waiting.sort();
        (!waiting.is_empty()).then_some(Remains { waiting, failed })
    }

    /// It failed by itself.
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// Frees the sockets and file locks that the process would free by its end. The next process needs them,
    /// and peers wait on the sockets. They are reached through a thread, for the process has no descriptors
    /// any more. Descriptors that this process holds too came from the supervisor, and stay for the next one.
    pub fn let_go(&self) -> io::Result<()> {
        let Some(thread) = self.waiting.first() else {
            return Ok(());
        };
        let numbers = PathBuf::from(format!("/proc/{thread}/fd"));
        let id = rustix::process::Pid::from_raw(thread.as_raw());
        let through = pidfd_open(id.ok_or(io::ErrorKind::NotFound)?, OF_A_THREAD)?;
        let ours = descriptors(Path::new("/proc/self/fd"))?.map(|(_, what)| what);
        let ours: HashSet<PathBuf> = ours.collect();
        for (number, what) in descriptors(&numbers)? {
            let free: fn(OwnedFd) = match what.to_str() {
                _ if ours.contains(&what) => continue,
                Some(socket) if socket.starts_with("socket:") => hang_up,
                Some(file) if file.starts_with('/') => unlock,
                _ => continue,
            };
            free(pidfd_getfd(&through, number, PidfdGetfdFlags::empty())?);
        }
        Ok(())
    }
}

/// Who waits for an answer hears that none comes, and others can listen there.
fn hang_up(socket: OwnedFd) {
    // Fails where there is nobody at the other end.
    let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
}

fn unlock(file: OwnedFd) {
    // Fails where it is nothing that could be locked.
    let _ = rustix::fs::flock(&file, FlockOperation::Unlock);
}

/// Open descriptors as `/proc/PID/fd` lists them: their numbers, and what they lead to.
fn descriptors(listed: &Path) -> io::Result<impl Iterator<Item = (RawFd, PathBuf)>> {
    Ok(fs::read_dir(listed)?.flatten().filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        Some((number, fs::read_link(entry.path()).ok()?))
    }))
}

fn threads_of(process: Pid) -> Vec<Pid> {
    let listed = fs::read_dir(format!("/proc/{process}/task"));
    let entries = listed.into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.map(Pid::from_raw).collect()
}

fn thread_of(process: Pid, thread: Pid) -> Option<Thread> {
    let status = fs::read_to_string(format!("/proc/{process}/task/{thread}/status")).ok()?;
    Some(Thread::in_status(&status))
}

impl Thread {
    /// From its `status` in /proc (proc_pid_status(5)).
    fn in_status(status: &str) -> Thread {
        let word = |key: &str| {
            let mut lines = status.lines();
            let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            value.unwrap_or_default().trim_start()
        };
        let was_killed = u64::from_str_radix(word("SigPnd"), 16).unwrap_or(0) & KILLED != 0;
        // All others are killed then, and are idle, which no other thread of a program is, when they
        // are through with what they did in the kernel.
        let failed = word("CoreDumping") == "1";
        match word("State").chars().next() {
            Some('Z' | 'X') => Thread::Over,
            Some('I') if failed => Thread::Failed,
            Some('D') if failed && !was_killed => Thread::Failed,
            Some('D') if was_killed && word("Name").starts_with(SENDER) => Thread::Waits,
            _ => Thread::Boots,
        }
    }
}

#[cfg(test)]
#[path = "remains_tests.rs"]
mod tests;
