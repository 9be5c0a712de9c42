//! Ends what hangs: the mounts of a call that takes too long are killed, so that the call returns and
//! its test fails instead of waiting for ever.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::threads;

/// How long one operation may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Watches operations and the processes that serve them.
#[derive(Clone, Default)]
pub struct Watchdog {
    watched: Arc<Mutex<Watched>>,
}

#[derive(Default)]
struct Watched {
    next: u64,
    running: BTreeMap<u64, Running>,
    /// The cluster's processes; the flag: killing it makes calls on its mount return.
    processes: Vec<(u32, bool)>,
    bitten: Option<String>,
    ended: bool,
}

struct Running {
    what: String,
    until: Instant,
}

/// An operation being watched until this is dropped.
pub struct Watch {
    dog: Watchdog,
    id: u64,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.dog.lock().running.remove(&self.id);
    }
}

impl Watchdog {
    /// Starts its thread, which lives until [`Watchdog::end`].
    pub fn start() -> Watchdog {
        let dog = Watchdog::default();
        let thread = dog.clone();
        thread::spawn(move || {
            while thread.look() {
                thread::sleep(Duration::from_millis(100));
            }
        });
        dog
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process to describe when something hangs; a mount is killed then, too.
    pub fn add(&self, pid: u32, is_mount: bool) {
        self.lock().processes.push((pid, is_mount));
    }

    /// The process has ended.
    pub fn remove(&self, pid: u32) {
        self.lock().processes.retain(|(other, _)| *other != pid);
    }

    /// Watches until the answer is dropped.
    pub fn watch(&self, what: &str, limit: Duration) -> Watch {
        let mut watched = self.lock();
        watched.next += 1;
        let id = watched.next;
        let until = Instant::now() + limit;
        watched.running.insert(
            id,
            Running {
                what: what.to_owned(),
                until,
            },
        );
        drop(watched);
        Watch {
            dog: self.clone(),
            id,
        }
    }

    /// Runs `operation`; panics if it has to be ended.
    pub fn timed<T>(&self, what: &str, limit: Duration, operation: impl FnOnce() -> T) -> T {
        let watch = self.watch(what, limit);
        let result = operation();
        drop(watch);
        let bitten = self.lock().bitten.clone();
        if let Some(report) = bitten {
            panic!("{report}");
        }
        result
    }

    /// Processes that are still there with a thread that nothing can end.
    pub fn stuck(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.lock().processes.iter().map(|(pid, _)| *pid).collect();
        pids.push(std::process::id());
        pids.into_iter()
            .filter(|pid| threads::is_stuck(*pid))
            .collect()
    }

    /// It watches nothing more.
    pub fn end(&self) {
        self.lock().ended = true;
    }

    fn look(&self) -> bool {
        let mut watched = self.lock();
        let now = Instant::now();
        let late = watched.running.values().find(|running| running.until < now);
        if let (Some(late), None) = (late, &watched.bitten) {
            let report = format!("`{}` hung{}", late.what, describe(&watched.processes));
            eprintln!("{report}");
            watched.bitten = Some(report);
            for (pid, _) in watched.processes.iter().filter(|(_, is_mount)| *is_mount) {
                let _ = kill(Pid::from_raw(*pid as i32), Signal::SIGKILL);
            }
        }
        !watched.ended
    }
}

fn describe(processes: &[(u32, bool)]) -> String {
    let mut text = String::new();
    let test = (std::process::id(), false);
    for (pid, is_mount) in processes.iter().chain([&test]) {
        let name = match (*pid == test.0, is_mount) {
            (true, _) => "test",
            (_, true) => "mount",
            (_, false) => "server",
        };
        text.push_str(&format!("\n{name} {pid}:\n{}", threads::describe(*pid)));
    }
    text
}
