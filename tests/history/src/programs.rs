//! The programs of the processes: one call after the other on objects that all processes share, from a seed.

mod blocks;
mod directories;
mod files;
mod locks;
mod logs;
mod names;
mod replaced;
mod sizes;
mod words;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use base::{Rng, SeededRng};

use crate::clock::now;
use crate::event::Outcome;
use crate::object::Kind;
use crate::recorder::Recorder;

/// Below the root of a mount.
const PLACE: &str = "history";
/// Logs, locks and directories are left for new ones after this: what is stuck, or long, is left behind.
const AGE: u64 = 2_000_000_000;
/// Processes of one history, each with names and sizes of its own.
const PROCESSES_MAX: u32 = 4096;
/// The longest rest between two calls, in microseconds.
const REST_MAX: u64 = 1500;

/// How a process goes about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Habits {
    /// One write in so many is followed by `fsync`, and is done when both are.
    pub syncs: u64,
    /// Each store into a mapping is followed by `msync`, and is done when both are.
    pub flushes: bool,
}

/// One process.
pub struct Worker {
    dir: PathBuf,
    process: u32,
    habits: Habits,
    rng: SeededRng,
    made: u64,
    /// Names of its own in the directory of that number.
    names: Vec<u32>,
    directory: u32,
    recorder: Recorder,
}

/// A result as an outcome.
fn outcome<T>(result: io::Result<T>, done: impl FnOnce(T) -> Outcome) -> Outcome {
    match result {
        Ok(result) => done(result),
        Err(error) => match error.raw_os_error() {
            Some(errno) => Outcome::Failed(errno),
            None => Outcome::Flawed(error.to_string()),
        },
    }
}

fn done(result: io::Result<()>) -> Outcome {
    outcome(result, |()| Outcome::Done)
}

/// Makes what all processes work on; once, before they begin.
pub fn prepare(root: &Path) -> io::Result<()> {
    let dir = root.join(PLACE);
    fs::create_dir(&dir)?;
    for sub in [
        logs::DIR,
        locks::DIR,
        directories::DIR,
        names::DIRS[0],
        names::DIRS[1],
    ] {
        fs::create_dir(dir.join(sub))?;
    }
    blocks::prepare(&dir)?;
    words::prepare(&dir)?;
    replaced::prepare(&dir)?;
    sizes::prepare(&dir)?;
    File::open(&dir)?.sync_all()
}

impl Worker {
    /// One that works below the mount `root`.
    pub fn new(root: &Path, process: u32, seed: u64, habits: Habits, recorder: Recorder) -> Worker {
        assert!(process < PROCESSES_MAX, "too many processes");
        Worker {
            dir: root.join(PLACE),
            process,
            habits,
            rng: SeededRng::new(seed ^ (u64::from(process) << 48)),
            made: 0,
            names: Vec::new(),
            directory: 0,
            recorder,
        }
    }

    /// A number that no process makes again.
    fn unique(&mut self) -> u64 {
        self.made += 1;
        (u64::from(self.process) + 1) << 40 | self.made
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.rng.below(one_in) == 0
    }

    /// A number below `bound`.
    fn pick(&mut self, bound: u32) -> u32 {
        self.rng.below(u64::from(bound)) as u32
    }

    /// Whether this write is to be durable when it is done.
    fn syncs(&mut self) -> bool {
        self.chance(self.habits.syncs)
    }

    /// Works on objects of these kinds until `deadline`.
    pub fn work(mut self, kinds: &[Kind], deadline: u64) {
        let mut open = files::Files::default();
        while now() < deadline {
            let kind = kinds[self.pick(kinds.len() as u32) as usize];
            match kind {
                Kind::Block => blocks::step(&mut self, &mut open),
                Kind::Word => words::step(&mut self, &mut open),
                Kind::Replaced => replaced::step(&mut self),
                Kind::Size | Kind::End => sizes::step(&mut self, &mut open, kind),
                Kind::Log => logs::step(&mut self, &mut open),
                Kind::Lock => locks::step(&mut self),
                Kind::Directory => directories::step(&mut self),
                Kind::Names => names::step(&mut self),
            }
            let rest = self.rng.below(REST_MAX);
            sleep(Duration::from_micros(rest));
        }
    }

    /// Looks at all that there is, once.
    pub fn look_at_all(mut self) -> io::Result<()> {
        blocks::look(&mut self);
        words::look(&mut self);
        replaced::look(&mut self);
        sizes::look(&mut self);
        logs::look(&mut self)?;
        directories::look(&mut self)
    }
}

/// Which log, lock or directory it is the time for.
fn epoch() -> u32 {
    (now() / AGE) as u32
}
