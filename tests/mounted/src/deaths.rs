//! Deaths of the process that serves mount 0 for its supervisor, and of its servers with it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use base::{Rng, SeededRng};

use crate::cluster::Cluster;
use crate::pulse::Pulses;
use crate::watchdog::PATIENCE;

/// Said by each process that goes on.
pub const TAKEN_OVER: &str = "took over from a process that ended";
/// How long dying and going on may take, as often as it may be.
const LONG: Duration = Duration::from_secs(300);

/// Who dies.
#[derive(Debug, Clone, Copy)]
pub enum Victims {
    /// The process that serves mount 0.
    Process,
    /// That, and the servers in the same moment.
    All,
}

impl Victims {
    /// They die at `kills` random moments, each after another took over. Nobody on the first two mounts
    /// waits for longer than is promised.
    pub fn die(self, cluster: &mut Cluster, rng: &mut SeededRng, kills: u64) {
        let _watch = cluster.watch(LONG, "dying and going on");
        let pulses = Pulses::begin(cluster);
        let begun = (0..kills).map(|_| match self {
            Victims::Process => {
                sleep(Duration::from_millis(20 + rng.below(700)));
                kill_process(cluster)
            }
            Victims::All => {
                sleep(Duration::from_millis(100 + rng.below(1500)));
                kill_all(cluster, rng.below(2) == 0)
            }
        });
        let begun: Vec<Instant> = begun.collect();
        pulses.end(&begun);
    }
}

/// Kills the process that serves mount 0, and waits until another has taken over; when that had begun.
pub fn kill_process(cluster: &Cluster) -> Instant {
    let lives = taken_over(cluster);
    let before = cluster.worker_pids(0);
    assert!(cluster.kill_worker(0), "no process serves the mount");
    let begun = wait_for_process(cluster, &before);
    wait_for_another(cluster, lives);
    begun
}

/// Kills the servers, too; when all had begun again.
pub fn kill_all(cluster: &mut Cluster, process_first: bool) -> Instant {
    let (lives, before) = (taken_over(cluster), cluster.worker_pids(0));
    if process_first {
        assert!(cluster.kill_worker(0), "no process serves the mount");
        cluster.kill_server();
    } else {
        cluster.kill_server();
        assert!(cluster.kill_worker(0), "no process serves the mount");
    }
    cluster.restart_server();
    let begun = wait_for_process(cluster, &before);
    wait_for_another(cluster, lives);
    begun
}

/// Waits until another than `before` is there; when that was.
fn wait_for_process(cluster: &Cluster, before: &[u32]) -> Instant {
    let began = Instant::now();
    while cluster
        .worker_pids(0)
        .iter()
        .all(|pid| before.contains(pid))
    {
        assert!(began.elapsed() < PATIENCE, "no process goes on");
        sleep(Duration::from_millis(1));
    }
    Instant::now()
}

/// Waits until more than `lives` have gone on.
pub fn wait_for_another(cluster: &Cluster, lives: u64) {
    let began = Instant::now();
    while taken_over(cluster) <= lives {
        let waited = began.elapsed();
        let said = cluster.said(0);
        assert!(waited < 2 * PATIENCE, "nobody went on: {said}");
        sleep(Duration::from_millis(5));
    }
}

/// How many have gone on with mount 0.
pub fn taken_over(cluster: &Cluster) -> u64 {
    cluster.said(0).matches(TAKEN_OVER).count() as u64
}

/// Nothing becomes durable by itself for so long that only what is remembered can bring it back.
pub fn nothing_is_committed(cluster: &Cluster) {
    for target in ["mdt", "ost"] {
        cluster.set_server_param(&format!("{target}.*.commit_ms"), "60000");
    }
}
