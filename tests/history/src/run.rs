//! Runs of processes on the mounts of a cluster: starts them, ends them, and checks their histories.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use mounted::Cluster;

use crate::check::{Policy, Violation, check};
use crate::clock::now;
use crate::event::Event;
use crate::object::Kind;
use crate::programs::Habits;
use crate::recorder::parse;
use crate::report::{Fault, describe};

/// Of each mount.
pub const PROCESSES: usize = 3;
/// How long calls may take to return after all is well; and each look at what there is, as long again as
/// that was made.
pub const LONG: Duration = Duration::from_secs(90);
/// Violations of one sort that are told.
const TOLD_MAX: usize = 2;

/// A process that is ended with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What all processes of a run have in common.
pub struct Callers {
    /// The program.
    pub program: &'static str,
    /// Where their records are, on the local file system.
    pub records: PathBuf,
    /// Of what they do.
    pub seed: u64,
    /// How they do it.
    pub habits: Habits,
    /// What they work on.
    pub kinds: Vec<Kind>,
    /// They begin no more calls after this.
    pub deadline: u64,
    seconds: u64,
    running: Vec<(usize, Running)>,
    started: usize,
}

impl Callers {
    /// None yet; `program` is `glint-caller`.
    pub fn new(
        program: &'static str,
        cluster: &Cluster,
        (seed, seconds): (u64, u64),
        habits: Habits,
        kinds: Vec<Kind>,
    ) -> Callers {
        Callers {
            program,
            records: cluster.local(),
            seed,
            habits,
            kinds,
            deadline: 0,
            seconds,
            running: Vec::new(),
            started: 0,
        }
    }

    /// Makes what all work on, and starts some processes on each mount.
    pub fn begin(&mut self, cluster: &Cluster) {
        self.run(cluster, LONG, &["prepare", &root(cluster, 0)]);
        self.deadline = now() + self.seconds * 1_000_000_000;
        for mount in (0..cluster.mount_count() * PROCESSES).map(|one| one % cluster.mount_count()) {
            self.start(cluster, mount);
        }
    }

    /// Starts another process on a mount.
    pub fn start(&mut self, cluster: &Cluster, mount: usize) {
        let kinds: Vec<String> = self.kinds.iter().map(Kind::to_string).collect();
        let (process, record) = self.number_of_another();
        let mut caller = Command::new(self.program);
        caller.args(["work", &root(cluster, mount), &record, &process]);
        caller.args([mount.to_string(), self.seed.to_string()]);
        caller.arg(self.habits.syncs.to_string());
        caller.arg(if self.habits.flushes { "flushes" } else { "-" });
        caller.args([self.deadline.to_string(), kinds.join(",")]);
        let child = caller.spawn().expect("a process can be started");
        self.running.push((mount, Running(child)));
    }

    fn number_of_another(&mut self) -> (String, String) {
        let process = self.started;
        self.started += 1;
        let record = self.records.join(format!("record{process}"));
        (process.to_string(), record.display().to_string())
    }

    /// Kills all on a mount.
    pub fn kill(&mut self, mount: usize) {
        self.running.retain(|(its, _)| *its != mount);
    }

    /// Starts others for those that a load from a mapping has killed, where `is_excused` says that it may.
    pub fn replace_killed(&mut self, cluster: &Cluster, is_excused: impl Fn(usize) -> bool) {
        let mut ended = Vec::new();
        self.running.retain_mut(|(mount, running)| {
            let status = running.0.try_wait().expect("a child can be waited for");
            ended.extend(status.map(|status| (*mount, status)));
            status.is_none()
        });
        for (mount, status) in ended {
            let is_killed = status.signal() == Some(libc::SIGBUS) && is_excused(mount);
            assert!(is_killed || status.success(), "a caller ends with {status}");
            if is_killed {
                self.start(cluster, mount);
            }
        }
    }

    /// Waits until all have ended, each well or as `is_excused` says.
    pub fn wait(&mut self, is_excused: impl Fn(usize, ExitStatus) -> bool) {
        for (mount, mut running) in std::mem::take(&mut self.running) {
            let status = running.0.wait().expect("a child can be waited for");
            let is_well = status.success() || is_excused(mount, status);
            assert!(is_well, "a caller ends with {status}");
        }
    }

    /// Looks at what there is in the end, on each mount.
    pub fn look(&mut self, cluster: &Cluster, limit: Duration) {
        for mount in 0..cluster.mount_count() {
            let (process, record) = self.number_of_another();
            let root = root(cluster, mount);
            let words = ["look", &root, &record, &process, &mount.to_string()];
            self.run(cluster, limit, &words);
        }
    }

    /// Runs a process to its end.
    fn run(&self, cluster: &Cluster, limit: Duration, words: &[&str]) {
        let mut caller = Command::new(self.program);
        let status = cluster.timed_for(limit, words[0], || caller.args(words).status());
        assert!(status.is_ok_and(|status| status.success()), "{words:?}");
    }

    /// All that they were told.
    pub fn history(&self) -> Vec<Event> {
        let records = (0..self.started).map(|one| self.records.join(format!("record{one}")));
        records.flat_map(|record| read(&record)).collect()
    }
}

fn root(cluster: &Cluster, mount: usize) -> String {
    cluster.root(mount).display().to_string()
}

/// The calls of one process; none where it was killed before it had begun.
fn read(record: &Path) -> Vec<Event> {
    let text = std::fs::read_to_string(record).unwrap_or_default();
    match text.contains('\n') {
        true => parse(&text).expect("a record can be read"),
        false => Vec::new(),
    }
}

/// Panics with what contradicts itself: of each sort the first ones.
pub fn judge(history: &[Event], faults: &[Fault], policy: &Policy) {
    let began = Instant::now();
    let violations = check(history, policy);
    let (calls, took) = (history.len(), began.elapsed());
    let found = violations.len();
    println!(
        "{calls} calls, {} faults: {found} violations ({took:?})",
        faults.len()
    );
    let mut sorts: BTreeMap<String, Vec<&Violation>> = BTreeMap::new();
    for violation in &violations {
        sorts.entry(violation.sort()).or_default().push(violation);
    }
    let texts = sorts.iter().map(|(sort, violations)| {
        let told = violations.iter().take(TOLD_MAX);
        let told: String = told.map(|one| describe(one, history, faults)).collect();
        format!("{} times: {sort}\n{told}", violations.len())
    });
    let texts: Vec<String> = texts.collect();
    assert!(
        violations.is_empty(),
        "{found} violations\n{}",
        texts.join("\n")
    );
}
