//! A killed process with targets and a mount, on which the kernel still waits for a read. The process cannot
//! end before the next one has answered the read, for which that one needs the targets.
// SEMANTICS: crash.mount
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::ports::free_address;
use support::{Staying, eventually, glint, needs_root};

const BLOCK: usize = 4096;
/// A read of what is far away is not read ahead of.
const CACHED_AT: u64 = 6 << 20;

type Read = std::io::Result<Vec<u8>>;

/// A file system with its mount `mnt`, and another mount `other` that stands still. Its restarted targets
/// wait for `other`, and answer no read.
struct Place {
    dir: tempfile::TempDir,
    up: Staying,
    other: Staying,
    reading: Option<JoinHandle<Read>>,
}

/// Reads of the start of the file, of which the kernel has a page near its end.
fn read(mnt: &Path, begins: impl FnOnce(Pid) + Send + 'static) -> JoinHandle<Read> {
    let file = File::open(mnt.join("file")).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    let mut block = vec![0; BLOCK];
    file.read_exact_at(&mut block, CACHED_AT).unwrap();
    let reads = move || {
        begins(nix::unistd::gettid());
        file.read_exact_at(&mut block, 0).map(|()| block)
    };
    std::thread::spawn(reads)
}

/// A thread waits in the kernel, in the named call of it.
fn waits_in(thread: Pid, call: nix::libc::c_long) -> bool {
    let waits = fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).unwrap();
    waits.split(' ').next() == Some(&*call.to_string())
}

impl Place {
    /// The process that serves is held up, and was killed.
    fn held_up() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for point in ["mnt", "other"] {
            fs::create_dir(at(point)).unwrap();
        }
        let address = free_address();
        let listen = format!("{address},unix:{}", at("socket").display());
        let words = ["up", "--dir", "D", "--mount", "mnt", "--supervisor"];
        let up = Staying::start(dir.path(), &[&words[..], &["--listen", &listen]].concat());
        let words = ["mount", &address, "other", "--key", "D/key"];
        let other = Staying::start(dir.path(), &words);
        fs::write(at("other/file"), vec![1; 8 << 20]).unwrap();
        File::open(at("other/file")).unwrap().sync_all().unwrap();

        let (begins, begun) = mpsc::channel();
        let (go, gone) = mpsc::channel();
        let reading = read(&at("mnt"), move |thread| {
            begins.send(thread).unwrap();
            gone.recv().unwrap();
        });
        let thread = begun.recv().unwrap();
        let place = Place {
            dir,
            up,
            other,
            reading: Some(reading),
        };
        let first = place.server();
        kill(first, Signal::SIGSTOP).unwrap();
        eventually("it stands still", || stands_still(first));
        go.send(()).unwrap();
        eventually("the read waits", || {
            waits_in(thread, nix::libc::SYS_pread64)
        });
        place.other.signal(Signal::SIGSTOP);
        kill(first, Signal::SIGKILL).unwrap();
        eventually("another serves", || {
            place.servers().iter().any(|pid| *pid != first)
        });
        let second = place.server();
        eventually("the kernel waits for the read", || is_held_up(second));
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Processes that serve, or cannot end.
    fn servers(&self) -> Vec<Pid> {
        let supervisor = self.up.pid();
        let children = format!("/proc/{supervisor}/task/{supervisor}/children");
        let children = fs::read_to_string(children).unwrap();
        let numbers = children.split_whitespace();
        numbers
            .map(|pid| Pid::from_raw(pid.parse().unwrap()))
            .collect()
    }

    fn server(&self) -> Pid {
        match self.servers()[..] {
            [pid] => pid,
            ref others => panic!("{others:?}: {}", self.up.said()),
        }
    }

    /// What became of the read.
    fn reads(&mut self) -> Read {
        let reading = self.reading.take().unwrap();
        eventually("the read is over", || reading.is_finished());
        reading.join().unwrap()
    }

    fn thaw(&self) {
        self.other.signal(Signal::SIGCONT);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for server in self.servers() {
                let _ = kill(server, Signal::SIGCONT);
            }
            self.thaw();
            let _ = glint(self.dir.path(), &["umount", "--force", "mnt"]);
        }
    }
}

/// What the kernel says of each of its threads.
fn threads(process: Pid) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let status = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("status")).ok();
    threads.filter_map(status).collect()
}

/// A thread of it is where the kernel forgets.
fn is_held_up(process: Pid) -> bool {
    threads(process)
        .iter()
        .any(|status| status.contains("fuse-notify") && status.contains("State:\tD"))
}

/// A signal has stopped all of it, which takes a moment: until then a read may be answered.
fn stands_still(process: Pid) -> bool {
    threads(process)
        .iter()
        .all(|status| status.contains("State:\tT"))
}

/// No signal to the process as a whole is pending.
fn has_taken_its_signals(process: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mut lines = status.lines();
    lines.any(|line| line == "ShdPnd:\t0000000000000000")
}

/// The next one serves although the one that `signal` ends cannot end.
fn goes_on_after(signal: Signal) {
    if needs_root() {
        return;
    }
    let mut place = Place::held_up();
    let second = place.server();
    kill(second, signal).unwrap();
    eventually("a third serves", || {
        place.servers().iter().any(|pid| *pid != second)
    });
    let both = place.servers();
    assert!(both.contains(&second), "the killed one ended by itself");
    place.thaw();
    eventually("the killed one ends", || !place.servers().contains(&second));
    assert_eq!(place.reads().unwrap(), vec![1; BLOCK]);
    for (here, there) in [("mnt", "other"), ("other", "mnt")] {
        fs::write(place.at(here).join("new"), here).unwrap();
        let read = fs::read(place.at(there).join("new")).unwrap();
        assert_eq!(read, here.as_bytes());
    }
    let said = place.up.said();
    assert_eq!(said.matches("the kernel holds up").count(), 1, "{said}");
    place.other.signal(Signal::SIGTERM);
    assert_eq!(place.other.ended(), Some(0), "{}", place.other.said());
    glint(place.dir.path(), &["down", "mnt"]).worked();
    assert_eq!(place.up.ended(), Some(0), "{}", place.up.said());
    glint(place.dir.path(), &["fsck", "D"]).worked();
}

#[test]
fn targets_of_a_killed_process_that_cannot_end_are_served_by_the_next() {
    goes_on_after(Signal::SIGKILL);
}

#[test]
fn targets_of_a_failed_process_that_cannot_end_are_served_by_the_next() {
    goes_on_after(Signal::SIGABRT);
}

/// No other goes on, for it was asked to end before: calls fail, and do not wait for ever.
#[test]
fn a_mount_whose_last_process_cannot_end_fails_all_calls() {
    if needs_root() {
        return;
    }
    let mut place = Place::held_up();
    let last = place.server();
    place.up.signal(Signal::SIGTERM);
    let supervisor = Pid::from_raw(place.up.pid() as i32);
    eventually("it is passed on", || has_taken_its_signals(supervisor));
    kill(last, Signal::SIGKILL).unwrap();
    assert_eq!(place.up.ended(), Some(1), "{}", place.up.said());
    place.reads().unwrap_err();
    let error = fs::read(place.at("mnt/file")).unwrap_err();
    let expected = nix::errno::Errno::ENOTCONN as i32;
    assert_eq!(error.raw_os_error(), Some(expected), "a dead mount");
    eventually("it has ended", || kill(last, None).is_err());
    place.thaw();
}
