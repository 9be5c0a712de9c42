//! The watchdog: kills the mounts of a call that takes too long. The call then returns, and its test fails
//! instead of waiting for ever.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::threads;

/// How long one operation may take.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How often the watchdog looks.
const TURN: Duration = Duration::from_millis(100);
/// When this much passes between two looks, the whole machine stood still, and it counts for nobody.
const STANDSTILL: Duration = Duration::from_secs(5);

/// Watches operations and the processes that serve them.
#[derive(Clone, Default)]
pub struct Watchdog {
    watched: Arc<Mutex<Watched>>,
}

#[derive(Default)]
struct Watched {
    next: u64,
    running: BTreeMap<u64, Running>,
    /// The cluster's processes; of a mount, where it is: aborting it makes calls on it return.
    processes: Vec<(u32, Option<PathBuf>)>,
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
            let mut last = Instant::now();
            while thread.look() {
                thread::sleep(TURN);
                let now = Instant::now();
                thread.forgive(now - last);
                last = now;
            }
        });
        dog
    }

    /// `passed` since the last look. Where more threads want to run than there are processors, each gets less
    /// done, and less counts.
    fn forgive(&self, passed: Duration) {
        let counted = match passed > STANDSTILL {
            true => 0.0,
            false => threads::share_of_processor(),
        };
        let forgiven = passed.mul_f64(1.0 - counted);
        for running in self.lock().running.values_mut() {
            running.until += forgiven;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process to describe when something hangs; a mount, at `point`, is ended then, too.
    pub fn add(&self, pid: u32, point: Option<&Path>) {
        let point = point.map(Path::to_owned);
        self.lock().processes.push((pid, point));
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

    /// The cluster's processes that are still there with a thread that nothing can end. The test's own is
    /// not among them: it runs other tests, too, whose calls may well be waiting for a mount that they
    /// killed. A call of this test that never returns keeps its mount in use, which is found when that
    /// is to end.
    pub fn stuck(&self) -> Vec<u32> {
        let pids: Vec<u32> = self.lock().processes.iter().map(|(pid, _)| *pid).collect();
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
            for (pid, point) in &watched.processes {
                if let Some(point) = point {
                    abort(*pid, point);
                }
            }
        }
        !watched.ended
    }
}

/// Ends a mount whatever it waits for. A thread of it that waits inside the kernel for a page keeps
/// its device open when it is killed, and so everybody waiting; a forced unmount cuts the device off,
/// though it says that the mount is busy.
pub fn abort(pid: u32, point: &Path) {
    let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
    let _ = umount2(point, MntFlags::MNT_FORCE);
}

/// The state of a mount's threads, which has hung; ends it.
pub fn hung(pid: u32, point: &Path) -> String {
    let state = threads::describe(pid);
    abort(pid, point);
    state
}

fn describe(processes: &[(u32, Option<PathBuf>)]) -> String {
    let mut text = String::new();
    let test = (std::process::id(), None);
    for (pid, point) in processes.iter().chain([&test]) {
        let name = match (*pid == test.0, point) {
            (true, _) => "test",
            (_, Some(_)) => "mount",
            (_, None) => "server",
        };
        text.push_str(&format!("\n{name} {pid}:\n{}", threads::describe(*pid)));
    }
    text
}
