//! A mount that is evicted, or dies without a supervisor, loses no more than SEMANTICS says. All other mounts
//! go on as one file system.
// SEMANTICS: crash.eviction, crash.mount

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use base::{Rng, SeededRng};
use history::check::Policy;
use history::clock::now;
use history::object::Kind;
use history::outage::{Cause, Outage, wall_time};
use history::programs::Habits;
use history::report::Fault;
use history::run::{Callers, LONG, PROCESSES, judge};
use mounted::{BusyProcesses, Cluster, Layout, count, in_own_network, seed};
use nix::sys::signal::Signal;

const CALLER: &str = env!("CARGO_BIN_EXE_glint-caller");
const MOUNTS: usize = 3;
/// Of the clusters that are simulated beside, where they are.
const FIRST_SEED: u64 = 10_000_000;
/// A mount says so of each target that has evicted it, and when that is over.
const EVICTED: &str = " evicted this mount: ";
const TOLD: &str = ": caches dropped after the eviction";
/// How long a mount may take to hear of it once it runs again and its link is mended.
const TOLD_MAX: Duration = Duration::from_secs(30);
/// Pauses between two outages, in milliseconds.
const PAUSE: (u64, u64) = (1000, 3000);
/// How long processes use a dead mount, in milliseconds.
const DEAD_MAX: u64 = 1000;

/// A run.
struct Plan {
    cause: Cause,
    /// After which servers evict.
    timeout: Duration,
    busy: u64,
    seconds: u64,
}

/// What was done to a mount, from when to when.
struct Blow {
    mount: usize,
    begin: u64,
    end: u64,
}

impl Plan {
    fn of(cause: Cause, timeout: u64, busy: u64, seconds: u64) -> Plan {
        Plan {
            cause,
            timeout: Duration::from_secs(count("GLINT_HISTORY_TIMEOUT", timeout)),
            busy: count("GLINT_HISTORY_BUSY", busy),
            seconds: count("GLINT_HISTORY_SECONDS", seconds),
        }
    }

    fn run(&self) {
        let seed = seed();
        in_own_network(|| {
            let mut cluster = Cluster::of(Layout {
                timeout: Some(self.timeout),
                has_links: true,
                ..Layout::default()
            });
            let options: &[&str] = match self.cause {
                Cause::Evicted => &["--supervisor"],
                Cause::Died => &[],
            };
            for _ in 0..MOUNTS {
                cluster.mount_with(options);
            }
            self.work(cluster, seed);
        });
    }

    fn work(&self, mut cluster: Cluster, seed: u64) {
        // What was synced just before an outage is looked for.
        let habits = Habits {
            syncs: 2,
            flushes: false,
        };
        // SEMANTICS: op.lseek
        let usual = || Kind::all().into_iter().filter(|kind| *kind != Kind::End);
        let kinds = Kind::chosen().unwrap_or_else(|| usual().collect());
        let time = (seed, self.seconds);
        let mut callers = Callers::new(CALLER, &cluster, time, habits, kinds);
        let limit = Duration::from_secs(self.seconds) + LONG;
        let busy = BusyProcesses::start(self.busy, FIRST_SEED);
        callers.begin(&cluster);
        let watch = cluster.watch(limit, "all calls");
        let blows = self.strike(&mut cluster, &mut callers, seed);
        callers.wait(|_, status| status.signal() == Some(libc::SIGBUS));
        drop((watch, busy));
        callers.look(&cluster, limit);
        let outages = match self.cause {
            Cause::Evicted => evictions(&cluster, &blows),
            Cause::Died => deaths(&blows),
        };
        assert!(!outages.is_empty(), "nothing happened");
        let faults: Vec<Fault> = outages.iter().map(fault).collect();
        let policy = Policy {
            outages,
            ..Policy::default()
        };
        judge(&callers.history(), &faults, &policy);
    }

    /// One mount after the other, in any order, until no call begins any more.
    fn strike(&self, cluster: &mut Cluster, callers: &mut Callers, seed: u64) -> Vec<Blow> {
        let mut rng = SeededRng::new(!seed);
        let mut blows = Vec::new();
        while now() < callers.deadline {
            let pause = PAUSE.0 + rng.below(PAUSE.1 - PAUSE.0);
            let left = callers.deadline.saturating_sub(now()) / 1_000_000;
            sleep(Duration::from_millis(pause.min(left)));
            if left <= pause {
                break;
            }
            let mount = rng.below(MOUNTS as u64) as usize;
            let begin = now();
            let end = match self.cause {
                Cause::Evicted => {
                    let is_cut = blows.len() % 2 == 1;
                    let end = self.silence(cluster, mount, is_cut, &mut rng);
                    callers.replace_killed(cluster, |struck| struck == mount);
                    end
                }
                Cause::Died => die(cluster, callers, mount, &mut rng),
            };
            blows.push(Blow { mount, begin, end });
        }
        blows
    }

    /// Nothing is heard of a mount for so long that it is evicted; when it is over.
    fn silence(&self, cluster: &Cluster, mount: usize, is_cut: bool, rng: &mut SeededRng) -> u64 {
        let told = cluster.said(mount).matches(TOLD).count();
        match is_cut {
            true => cluster.cut_off(mount),
            false => drop(cluster.signal_worker(mount, Signal::SIGSTOP)),
        }
        // The MDT waits for half as long again.
        sleep(self.timeout * 3 / 2 + Duration::from_millis(500 + rng.below(1000)));
        match is_cut {
            true => cluster.mend(mount),
            false => drop(cluster.signal_worker(mount, Signal::SIGCONT)),
        }
        let end = now();
        let begun = Instant::now();
        while cluster.said(mount).matches(TOLD).count() == told && begun.elapsed() < TOLD_MAX / 2 {
            sleep(Duration::from_millis(10));
        }
        end
    }
}

/// Its process is killed; it is mounted anew, and other processes go on there. When they do.
fn die(cluster: &mut Cluster, callers: &mut Callers, mount: usize, rng: &mut SeededRng) -> u64 {
    cluster.kill_mount_by_force(mount);
    sleep(Duration::from_millis(rng.below(DEAD_MAX)));
    callers.kill(mount);
    let mounted = cluster.mount_again(mount);
    assert_eq!(mounted, Ok(()));
    let end = now();
    (0..PROCESSES).for_each(|_| callers.start(cluster, mount));
    end
}

fn deaths(blows: &[Blow]) -> Vec<Outage> {
    let outage = |blow: &Blow| Outage {
        mount: blow.mount as u32,
        begin: blow.begin,
        end: blow.end,
        cause: Cause::Died,
    };
    blows.iter().map(outage).collect()
}

/// Each from the begin of the silence to when the mount says that it has dropped everything. Nobody else
/// is evicted.
fn evictions(cluster: &Cluster, blows: &[Blow]) -> Vec<Outage> {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let ahead = wall.map_or(0, |wall| wall.as_nanos() as u64) - now();
    let mut outages: BTreeMap<usize, Outage> = BTreeMap::new();
    for mount in 0..MOUNTS {
        let said = cluster.said(mount);
        let count = |words: &str| said.matches(words).count();
        assert_eq!(count(EVICTED), count(TOLD), "{said}");
        for line in said.lines().filter(|line| line.contains(TOLD)) {
            let end = wall_time(line).map(|time| time - ahead);
            let end = end.unwrap_or_else(|| panic!("no time: {line}"));
            let before = |blow: &Blow| blow.mount == mount && blow.begin < end;
            let at = blows.iter().rposition(before);
            let at = at.filter(|at| end < blows[*at].end + TOLD_MAX.as_nanos() as u64);
            let at = at.unwrap_or_else(|| panic!("mount {mount} was in nobody's way:\n{said}"));
            let outage = outages.entry(at).or_insert(Outage {
                mount: mount as u32,
                begin: blows[at].begin,
                end,
                cause: Cause::Evicted,
            });
            outage.end = outage.end.max(end);
        }
    }
    outages.into_values().collect()
}

fn fault(outage: &Outage) -> Fault {
    let (mount, cause) = (outage.mount, outage.cause);
    Fault {
        begin: outage.begin,
        end: outage.end,
        what: format!("mount {mount}: {cause:?}"),
    }
}

#[test]
fn calls_beside_an_eviction_are_those_of_one_file_system_but_for_what_was_not_sent() {
    Plan::of(Cause::Evicted, 2, 0, 10).run();
}

#[test]
fn calls_beside_the_death_of_a_mount_are_those_of_one_file_system_but_for_what_was_not_sent() {
    Plan::of(Cause::Died, 2, 0, 8).run();
}

/// Half an hour of each kind.
const SOAK: u64 = 1800;
/// So many run beside.
const BUSY: u64 = 6;

#[test]
#[ignore = "soak: half an hour"]
fn soak_calls_beside_evictions() {
    Plan::of(Cause::Evicted, 6, BUSY, SOAK).run();
}

#[test]
#[ignore = "soak: half an hour"]
fn soak_calls_beside_deaths_of_mounts() {
    Plan::of(Cause::Died, 6, BUSY, SOAK).run();
}
