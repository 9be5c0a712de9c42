//! Calls of many processes on three mounts, under any fault and load, are those that one local file system
//! could have answered.
// SEMANTICS: cache.names, cache.attributes, cache.pages, op.append, op.rename, op.mmap, crash.server
// SEMANTICS: crash.mount, crash.full

use std::thread::sleep;
use std::time::Duration;

use base::{Rng, SeededRng};
use history::check::Policy;
use history::clock::now;
use history::object::Kind;
use history::programs::Habits;
use history::report::Fault;
use history::run::{Callers, LONG, judge};
use mounted::{
    BusyProcesses, Cluster, FaultInjection, FaultKind, Layout, SmallDisk, count, in_own_network,
    seed,
};

const CALLER: &str = env!("CARGO_BIN_EXE_glint-caller");
const MOUNTS: usize = 3;
/// Of the clusters that are simulated beside, where they are.
const FIRST_SEED: u64 = 1;
/// What the servers have.
const DISK: u64 = 1 << 30;
/// Pauses between two faults, in milliseconds.
const PAUSE: (u64, u64) = (400, 2500);

/// A run.
struct Plan {
    faults: Vec<FaultKind>,
    busy: u64,
    seconds: u64,
    kinds: Vec<Kind>,
}

impl Plan {
    /// With these faults, beside as many busy processes as the environment says.
    fn of(faults: &[FaultKind], busy: u64, seconds: u64) -> Plan {
        Plan {
            faults: faults.to_vec(),
            busy: count("GLINT_HISTORY_BUSY", busy),
            seconds: count("GLINT_HISTORY_SECONDS", seconds),
            kinds: Kind::all(),
        }
    }

    /// On objects of these kinds, where the environment does not say which.
    fn of_kinds(self, kinds: &[Kind]) -> Plan {
        let kinds = kinds.to_vec();
        Plan { kinds, ..self }
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
            syncs: if self.is_full() { 1 } else { 12 },
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
            let rng = SeededRng::new(seed);
            let injection =
                FaultInjection::new(cluster, rng).with_disk(disk.path(), &Default::default());
            self.work(injection, seed);
        });
    }

    /// All processes work while things fail; then what there is in the end is looked at on each mount.
    fn work(&self, mut injection: FaultInjection, seed: u64) {
        let kinds = Kind::chosen().unwrap_or_else(|| self.kinds.clone());
        let (cluster, time) = (injection.cluster(), (seed, self.seconds));
        let mut callers = Callers::new(CALLER, cluster, time, self.habits(), kinds);
        let limit = Duration::from_secs(self.seconds) + LONG;
        let busy = BusyProcesses::start(self.busy, FIRST_SEED);
        callers.begin(cluster);
        let watch = cluster.watch(limit, "all calls");
        let faults = self.meet(&mut injection, seed, callers.deadline);
        callers.wait(|_, _| false);
        drop((watch, busy));
        callers.look(injection.cluster(), limit);
        let cluster = injection.end();
        let policy = Policy {
            full: self.is_full(),
            ..Policy::default()
        };
        judge(&callers.history(), &faults, &policy);
        drop(cluster);
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

/// So many run beside, where the machine is to be busy.
const BUSY: u64 = 6;

/// What of SEMANTICS is kept: all but this. `GLINT_HISTORY_KINDS` names others.
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
                // SEMANTICS: op.lseek
                let kinds = all_but(&[Kind::End]);
                Plan::of(&$faults, BUSY, SOAK).of_kinds(&kinds).run();
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
