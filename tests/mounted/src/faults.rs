//! Faults of a cluster while programs work on it: kills, cuts, frozen processes, a full disk, for up to a
//! second or two each.

use std::fs::{File, remove_file};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use base::{Rng, SeededRng};
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::signal::Signal;

use crate::cluster::Cluster;
use crate::network::cut_loopback;

/// The first piece of a disk that is taken; smaller ones follow.
const PIECE: i64 = 2 << 30;
/// How long until freed space is given out again.
const SPACE_IS_SEEN: Duration = Duration::from_secs(2);

/// One kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// Servers are killed and started again.
    KillServers,
    /// Servers stand still for a moment.
    FreezeServers,
    /// The process that serves a mount stands still for a moment.
    FreezeMount,
    /// It is killed; where the next process has just begun, that dies as well.
    KillMount,
    /// That, and servers in the same moment.
    KillMountAndServers,
    /// Mounts are cut off, or servers from each other.
    Cut,
    /// Servers are killed behind a cut: what they sent comes to nobody.
    KillServersBehindCut,
    /// The servers' disk is full for a moment.
    FillDisk,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [FaultKind; 8] = [
        FaultKind::KillServers,
        FaultKind::FreezeServers,
        FaultKind::FreezeMount,
        FaultKind::KillMount,
        FaultKind::KillMountAndServers,
        FaultKind::Cut,
        FaultKind::KillServersBehindCut,
        FaultKind::FillDisk,
    ];
}

/// A cluster of supervised mounts with links, in trouble.
pub struct FaultInjection {
    cluster: Cluster,
    rng: SeededRng,
    /// Where the servers' disk is, if it can be filled, and how often it was, or is no longer, full.
    disk: Option<(PathBuf, Arc<AtomicU64>)>,
    /// Kinds that have not come yet.
    to_come: Vec<FaultKind>,
}

impl FaultInjection {
    /// None yet.
    pub fn new(cluster: Cluster, rng: SeededRng) -> FaultInjection {
        FaultInjection {
            cluster,
            rng,
            disk: None,
            to_come: FaultKind::ALL.to_vec(),
        }
    }

    /// The same with a disk to be filled; `changes` is odd while it is full.
    pub fn with_disk(self, disk: &Path, changes: &Arc<AtomicU64>) -> FaultInjection {
        let disk = Some((disk.to_owned(), changes.clone()));
        FaultInjection { disk, ..self }
    }

    /// The cluster, in no more trouble.
    pub fn end(self) -> Cluster {
        self.cluster
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Waits for up to a second.
    pub fn pass_a_moment(&mut self) {
        sleep(Duration::from_millis(self.rng.below(1000)));
    }

    /// One of them: first each kind once, in any order. What it was.
    pub fn inject_any(&mut self) -> String {
        let kind = match self.to_come.len() {
            0 => FaultKind::ALL[self.rng.below(FaultKind::ALL.len() as u64) as usize],
            left => {
                let one = self.rng.below(left as u64) as usize;
                self.to_come.swap_remove(one)
            }
        };
        self.inject(kind)
    }

    /// One of this kind. What it was.
    pub fn inject(&mut self, kind: FaultKind) -> String {
        match kind {
            FaultKind::KillServers => self.kill_servers(),
            FaultKind::FreezeServers => self.freeze_servers(),
            FaultKind::FreezeMount => self.freeze_mount(),
            FaultKind::KillMount => self.kill_mount(),
            FaultKind::KillMountAndServers => self.kill_mount_and_servers(),
            FaultKind::Cut => self.cut(),
            FaultKind::KillServersBehindCut => self.kill_servers_behind_a_cut(),
            FaultKind::FillDisk => self.fill(),
        }
    }

    /// Takes all space of the servers' disk, for a moment.
    fn fill(&mut self) -> String {
        let (disk, changes) = self.disk.as_ref().expect("a disk that can be filled");
        changes.fetch_add(1, Ordering::SeqCst);
        let path = disk.join("ballast");
        let ballast = File::create(&path).expect("a file has room");
        let (mut piece, mut at) = (PIECE, 0);
        while piece >= 4096 {
            match fallocate(&ballast, FallocateFlags::empty(), at, piece) {
                Ok(()) => at += piece,
                Err(_) => piece /= 2,
            }
        }
        sleep(Duration::from_millis(self.rng.below(700)));
        remove_file(path).expect("a file can be removed");
        drop(ballast);
        // The servers look again before long.
        sleep(SPACE_IS_SEEN);
        changes.fetch_add(1, Ordering::SeqCst);
        "a full disk".to_owned()
    }

    /// One of the servers, or all of them.
    fn some_servers(&mut self) -> Vec<usize> {
        let count = self.cluster.server_count();
        match self.rng.below(count as u64 + 1) as usize {
            one if one < count => vec![one],
            _ => (0..count).collect(),
        }
    }

    fn a_mount(&mut self) -> usize {
        self.rng.below(self.cluster.mount_count() as u64) as usize
    }

    fn kill_servers(&mut self) -> String {
        let servers = self.some_servers();
        self.kill(&servers);
        self.restart(&servers);
        format!("killed servers {servers:?}")
    }

    fn kill(&mut self, servers: &[usize]) {
        servers
            .iter()
            .for_each(|one| self.cluster.server(*one).kill());
    }

    /// Who is not the MGS waits for it.
    fn restart(&mut self, servers: &[usize]) {
        servers
            .iter()
            .for_each(|one| self.cluster.server(*one).begin());
        servers
            .iter()
            .for_each(|one| self.cluster.server(*one).wait_until_ready());
    }

    fn freeze_servers(&mut self) -> String {
        let servers = self.some_servers();
        servers
            .iter()
            .for_each(|one| self.cluster.server(*one).freeze());
        self.pass_a_moment();
        servers
            .iter()
            .for_each(|one| self.cluster.server(*one).thaw());
        format!("frozen servers {servers:?}")
    }

    fn freeze_mount(&mut self) -> String {
        let mount = self.a_mount();
        self.cluster.signal_worker(mount, Signal::SIGSTOP);
        self.pass_a_moment();
        self.cluster.signal_worker(mount, Signal::SIGCONT);
        format!("frozen mount {mount}")
    }

    fn kill_mount(&mut self) -> String {
        let mount = self.a_mount();
        self.cluster.kill_worker(mount);
        format!("killed mount {mount}")
    }

    fn kill_mount_and_servers(&mut self) -> String {
        let (mount, servers) = (self.a_mount(), self.some_servers());
        let mount_first = self.rng.below(2) == 0;
        if mount_first {
            self.cluster.kill_worker(mount);
        }
        self.kill(&servers);
        if !mount_first {
            self.cluster.kill_worker(mount);
        }
        self.restart(&servers);
        format!("killed mount {mount} and servers {servers:?}")
    }

    /// Cuts a mount off, or all of them, or servers off from each other, and mends that.
    fn cut(&mut self) -> String {
        let all = self.cluster.mount_count();
        let is_apart = self.cluster.server_count() > 1;
        let choices = all as u64 + 1 + u64::from(is_apart);
        let mounts = match self.rng.below(choices) as usize {
            one if one < all => vec![one],
            one if one == all => (0..all).collect(),
            _ => Vec::new(),
        };
        let servers = is_apart && (mounts.is_empty() || self.rng.below(4) == 0);
        mounts.iter().for_each(|one| self.cluster.cut_off(*one));
        cut_loopback(servers);
        self.pass_a_moment();
        self.pass_a_moment();
        cut_loopback(false);
        mounts.iter().for_each(|one| self.cluster.mend(*one));
        format!("cut links of mounts {mounts:?}, between servers: {servers}")
    }

    /// Both at once: who was sent what comes to nobody.
    fn kill_servers_behind_a_cut(&mut self) -> String {
        let servers = self.some_servers();
        let mounts = 0..self.cluster.mount_count();
        mounts.clone().for_each(|one| self.cluster.cut_off(one));
        cut_loopback(true);
        self.kill(&servers);
        cut_loopback(false);
        mounts.for_each(|one| self.cluster.mend(one));
        self.restart(&servers);
        format!("killed servers {servers:?} behind a cut")
    }
}
