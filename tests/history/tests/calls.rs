//! Calls of many processes on three mounts, whatever fails and however busy the machine is, are those that
//! one local file system could have answered.
// SEMANTICS: cache.names, cache.attributes, cache.pages, op.append, op.rename, op.mmap, crash.server
// SEMANTICS: crash.mount, crash.full

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use base::{Rng, SeededRng};
use history::check::{Policy, Violation, check};
use history::clock::now;
use history::event::Event;
use history::object::Kind;
use history::programs::Habits;
use history::recorder::parse;
use history::report::{Fault, describe};
use mounted::{Cluster, FaultInjection, FaultKind, Layout, SmallDisk, count, in_own_network, seed};

const CALLER: &str = env!("CARGO_BIN_EXE_glint-caller");
const MOUNTS: usize = 3;
const PROCESSES: usize = 3;
/// What the servers have.
const DISK: u64 = 1 << 30;
/// How long calls may take to return after all is well; and each look at what there is, as long again as
/// that was made.
const LONG: Duration = Duration::from_secs(90);
/// Pauses between two faults, in milliseconds.
const PAUSE: (u64, u64) = (400, 2500);
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

/// A run.
struct Plan {
    faults: Vec<FaultKind>,
    hogs: u64,
    seconds: u64,
    kinds: Vec<Kind>,
}

impl Plan {
    /// With these faults, beside as many busy loops as the environment says.
    fn of(faults: &[FaultKind], hogs: u64, seconds: u64) -> Plan {
        Plan {
            faults: faults.to_vec(),
            hogs: count("GLINT_HISTORY_HOGS", hogs),
            seconds: count("GLINT_HISTORY_SECONDS", seconds),
            kinds: Kind::all(),
        }
    }

    /// On objects of these kinds, where the environment does not say which.
    fn of_kinds(self, kinds: &[Kind]) -> Plan {
        let kinds = kinds.to_vec();
        Plan { kinds, ..self }
    }

    fn kinds(&self) -> Vec<Kind> {
        match std::env::var("GLINT_HISTORY_KINDS") {
            Ok(kinds) => kinds.split(',').map(|kind| kind.parse().unwrap()).collect(),
            Err(_) => self.kinds.clone(),
        }
    }

    fn is_full(&self) -> bool {
        self.faults.contains(&FaultKind::FillDisk)
    }

    /// What processes do so that SEMANTICS promises all of it. A full disk takes what was not
    /// synced, and the death of a server leaves the order of stores that were not synced open.
    fn habits(&self) -> Habits {
        let kills = [
            FaultKind::KillServers,
            FaultKind::KillMountAndServers,
            FaultKind::KillServersBehindCut,
        ];
        Habits {
            syncs: self.is_full(),
            flushes: self.is_full() || kills.iter().any(|kill| self.faults.contains(kill)),
        }
    }

    fn run(&self) {
        let seed = seed();
        in_own_network(|| {
            let disk = SmallDisk::in_memory(DISK);
            let mut cluster = Cluster::of(Layout {
                places: &[(Some(disk.path()), "mgs,mdt,ost")],
                has_links: true,
                ..Layout::default()
            });
            for _ in 0..MOUNTS {
                cluster.mount_with(&["--supervisor"]);
            }
            let records = cluster.local();
            let rng = SeededRng::new(seed);
            let injection =
                FaultInjection::new(cluster, rng).with_disk(disk.path(), &Default::default());
            let (cluster, faults) = self.work(injection, seed, &records);
            let history = histories(&records);
            let policy = Policy {
                full: self.is_full(),
            };
            tell(&history, &faults, policy);
            drop(cluster);
        });
    }

    /// All processes work while things fail; then what there is in the end is looked at on each mount.
    fn work(
        &self,
        mut injection: FaultInjection,
        seed: u64,
        records: &Path,
    ) -> (Cluster, Vec<Fault>) {
        let root = injection.cluster().root(0);
        caller(
            &["prepare", &root.display().to_string()],
            LONG,
            injection.cluster(),
        );
        let deadline = now() + self.seconds * 1_000_000_000;
        let hogs: Vec<Running> = (0..self.hogs).map(|_| hog()).collect();
        let limit = Duration::from_secs(self.seconds) + LONG;
        let watch = injection.cluster().watch(limit, "all calls");
        let running: Vec<Running> = (0..MOUNTS * PROCESSES)
            .map(|process| self.start(injection.cluster(), process, (seed, deadline), records))
            .collect();
        let faults = self.meet(&mut injection, seed, deadline);
        running.into_iter().for_each(ends_well);
        drop(watch);
        drop(hogs);
        for mount in 0..MOUNTS {
            let root = injection.cluster().root(mount).display().to_string();
            let process = MOUNTS * PROCESSES + mount;
            let record = records
                .join(format!("record{process}"))
                .display()
                .to_string();
            let (process, mount) = (process.to_string(), mount.to_string());
            let words = ["look", &root, &record, &process, &mount];
            caller(&words, limit, injection.cluster());
        }
        (injection.end(), faults)
    }

    fn start(
        &self,
        cluster: &Cluster,
        process: usize,
        (seed, deadline): (u64, u64),
        records: &Path,
    ) -> Running {
        let mount = process % MOUNTS;
        let habits = self.habits();
        let kinds: Vec<String> = self.kinds().iter().map(Kind::to_string).collect();
        let mut caller = Command::new(CALLER);
        caller.arg("work").arg(cluster.root(mount));
        caller.arg(records.join(format!("record{process}")));
        caller.args([process.to_string(), mount.to_string(), seed.to_string()]);
        caller.arg(if habits.syncs { "syncs" } else { "-" });
        caller.arg(if habits.flushes { "flushes" } else { "-" });
        caller.args([deadline.to_string(), kinds.join(",")]);
        Running(caller.spawn().unwrap())
    }

    fn meet(&self, injection: &mut FaultInjection, seed: u64, deadline: u64) -> Vec<Fault> {
        let mut rng = SeededRng::new(!seed);
        let mut faults = Vec::new();
        while now() < deadline {
            let pause = PAUSE.0 + rng.below(PAUSE.1 - PAUSE.0);
            let left = deadline.saturating_sub(now()) / 1_000_000;
            sleep(Duration::from_millis(pause.min(left)));
            if self.faults.is_empty() || left <= pause {
                continue;
            }
            let kind = self.faults[rng.below(self.faults.len() as u64) as usize];
            let begin = now();
            let what = injection.inject(kind);
            let end = now();
            faults.push(Fault { begin, end, what });
        }
        faults
    }
}

fn hog() -> Running {
    let mut hog = Command::new("sh");
    Running(hog.args(["-c", "while :; do :; done"]).spawn().unwrap())
}

/// Runs a process to its end.
fn caller(words: &[&str], limit: Duration, cluster: &Cluster) {
    let mut caller = Command::new(CALLER);
    let status = cluster.timed_for(limit, words[0], || caller.args(words).status());
    assert!(status.unwrap().success(), "{words:?}");
}

fn ends_well(mut running: Running) {
    let status = running.0.wait().unwrap();
    assert!(status.success(), "a caller ends with {status}");
}

fn histories(records: &Path) -> Vec<Event> {
    let files = (0..).map(|process| records.join(format!("record{process}")));
    let texts = files.map_while(|path| std::fs::read_to_string(path).ok());
    texts.flat_map(|text| parse(&text).unwrap()).collect()
}

/// Panics with what contradicts itself: of each sort the first ones.
fn tell(history: &[Event], faults: &[Fault], policy: Policy) {
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

/// So many run beside, where the machine is to be busy.
const BUSY: u64 = 6;

/// What of SEMANTICS is kept: all but this, of which the long runs tell.
fn all_but(not_yet: &[Kind]) -> Vec<Kind> {
    let all = Kind::all().into_iter();
    all.filter(|kind| !not_yet.contains(kind)).collect()
}

#[test]
fn calls_without_faults_are_those_of_one_file_system() {
    let plan = Plan::of(&[], 0, 20);
    // SEMANTICS: op.lseek
    plan.of_kinds(&all_but(&[Kind::End])).run();
}

#[test]
fn calls_beside_faults_on_a_busy_machine_are_those_of_one_file_system() {
    let all = FaultKind::ALL.into_iter();
    let faults: Vec<FaultKind> = all.filter(|one| *one != FaultKind::FillDisk).collect();
    // SEMANTICS: op.lseek
    let kinds = all_but(&[Kind::End]);
    Plan::of(&faults, BUSY, 40).of_kinds(&kinds).run();
}

/// Half an hour of each kind.
const SOAK: u64 = 1800;

macro_rules! soaks {
    ($($name:ident: $faults:expr,)*) => {
        $(
            #[test]
            #[ignore = "soak: half an hour"]
            fn $name() {
                Plan::of(&$faults, BUSY, SOAK).run();
            }
        )*
    };
}

soaks! {
    soak_calls_on_a_busy_machine: [],
    soak_calls_beside_kills_of_servers: [FaultKind::KillServers],
    soak_calls_beside_kills_of_processes_of_mounts: [FaultKind::KillMount],
    soak_calls_beside_kills_of_both: [FaultKind::KillMountAndServers],
    soak_calls_beside_processes_that_stand_still: [FaultKind::FreezeServers, FaultKind::FreezeMount],
    soak_calls_beside_cuts: [FaultKind::Cut, FaultKind::KillServersBehindCut],
    soak_calls_beside_full_disks: [FaultKind::FillDisk],
    soak_calls_beside_all_faults: FaultKind::ALL,
}
