//! Which process on which machine, in a way that a process on the same machine can tell whether it
//! still runs.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Bytes of a host's name that are kept.
pub(super) const HOST_BYTES_MAX: usize = 64;

/// A process that holds targets, or wants to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// The running kernel: another one after each boot.
    pub(super) kernel: [u8; 16],
    /// The name space of process ids.
    pub(super) space: u64,
    /// When it started, in ticks since the boot: ids are used again.
    pub(super) started: u64,
    pub(super) pid: u32,
    /// The machine, for people.
    pub(super) host: String,
    /// Acts as one on another machine: see [`Process::apart`].
    pub(super) is_apart: bool,
}

/// The running kernel: another one after each boot, and on each machine.
pub(crate) fn kernel() -> io::Result<[u8; 16]> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    parse_id(boot.trim()).ok_or_else(|| garbled("the boot id"))
}

impl Process {
    /// This one.
    pub fn this() -> io::Result<Process> {
        let host = fs::read_to_string("/proc/sys/kernel/hostname")?;
        let pid = std::process::id();
        let started = started("self").ok_or_else(|| garbled("/proc/self/stat"))?;
        Ok(Process {
            kernel: kernel()?,
            space: fs::metadata("/proc/self/ns/pid")?.ino(),
            started,
            pid,
            host: cut(host.trim()),
            is_apart: false,
        })
    }

    /// This one, as if on the machine called `host`, of which nobody here knows what runs there and
    /// whose `flock`s nobody here sees. For tests of storage that machines share.
    pub fn apart(host: &str) -> io::Result<Process> {
        let mut kernel = [0; 16];
        for (index, byte) in host.bytes().enumerate() {
            kernel[index % 16] ^= byte.rotate_left((index / 16) as u32);
        }
        Ok(Process {
            kernel,
            host: cut(host),
            is_apart: true,
            ..Process::this()?
        })
    }

    /// Made by [`Process::apart`].
    pub(crate) fn is_apart(&self) -> bool {
        self.is_apart
    }

    /// It is known to have ended. Not known of those on other machines, or in other name spaces.
    pub(super) fn is_gone(&self, seen_by: &Process) -> bool {
        let is_seen = self.kernel == seen_by.kernel && self.space == seen_by.space;
        is_seen && started(&self.pid.to_string()) != Some(self.started)
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)
    }
}

fn garbled(what: &str) -> io::Error {
    io::Error::other(format!("{what} cannot be understood"))
}

fn cut(host: &str) -> String {
    let mut end = host.len().min(HOST_BYTES_MAX);
    while !host.is_char_boundary(end) {
        end -= 1;
    }
    host[..end].to_owned()
}

fn parse_id(text: &str) -> Option<[u8; 16]> {
    let digits = text.replace('-', "");
    let id = u128::from_str_radix(&digits, 16).ok()?;
    (digits.len() == 32).then(|| id.to_be_bytes())
}

/// Whether a process of this machine runs. One whose threads are not all gone may still write, and has its
/// files open.
pub fn is_running(pid: u32) -> bool {
    started(&pid.to_string()).is_some()
}

/// When the process that /proc knows by this name started; None: it has ended.
fn started(name: &str) -> Option<u64> {
    started_in(&fs::read_to_string(format!("/proc/{name}/stat")).ok()?)
}

/// The same, from what stands in `/proc/PID/stat`: behind the name, which may hold anything.
fn started_in(stat: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = behind.split_whitespace().collect();
    let (state, threads, started) = (fields.first()?, fields.get(17)?, fields.get(19)?);
    // A process that was not waited for yet. Its first thread may be a zombie before the others have ended.
    let ended = matches!(*state, "Z" | "X") && matches!(*threads, "0" | "1");
    started.parse().ok().filter(|_| !ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_one_runs_and_an_ended_one_is_gone() {
        let this = Process::this().unwrap();
        assert!(!this.is_gone(&this));
        let earlier = Process {
            started: this.started + 1,
            ..this.clone()
        };
        assert!(earlier.is_gone(&this), "the id was used again");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let other = Process {
            pid: child.id(),
            ..this.clone()
        };
        child.wait().unwrap();
        assert!(other.is_gone(&this));
        assert!(!other.is_gone(&Process::apart("elsewhere").unwrap()));
    }

    /// As while a process ends that has many threads.
    #[test]
    fn a_process_runs_as_long_as_one_of_its_threads() {
        let script = format!(
            "import ctypes, threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n\
             print(1, flush=True)\nctypes.CDLL(None).syscall({}, 0)",
            libc::SYS_exit
        );
        let mut child = std::process::Command::new("python3")
            .args(["-c", &script])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let stat = format!("/proc/{}/stat", child.id());
        while !fs::read_to_string(&stat).unwrap().contains(") Z ") {
            std::thread::yield_now();
        }
        assert!(is_running(child.id()));
        child.kill().unwrap();
        let ended = || !is_running(child.id());
        while !ended() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }

    #[test]
    fn a_name_may_hold_anything() {
        let stat = |state, threads| {
            format!("7 (a) Z b) {state} 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 {threads} 0 4242 0 0")
        };
        assert_eq!(started_in(&stat("S", 1)), Some(4242));
        assert_eq!(started_in(&stat("Z", 1)), None);
        assert_eq!(started_in(&stat("Z", 2)), Some(4242), "a thread still runs");
        assert_eq!(started_in(""), None);
    }
}
