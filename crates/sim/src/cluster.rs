//! The cluster: servers on disks whose power may fail, clients, and the links between them.

mod machine;
mod mgs;
mod nodes;
mod objects;
mod rest;
mod rot;
mod syncs;
mod worker;
mod workers;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Clock, Rng, SeededRng, TargetName};
use client::kernel::NoKernel;
use client::{MountConfig, Mounted, TakeoverState};
use rpc::{ClientSecret, Policy};

use crate::network::Network;
use crate::programs::Seat;
use crate::scheduler::{Node, Scheduler};
pub use machine::Machine;
use mgs::Management;
pub use nodes::{MDT, MGS, NodeClock, OSTS, SERVERS, TIMEOUT, client_node};
use nodes::{seat_node, secret_of};
use worker::Worker;

/// A cluster that runs.
pub struct Cluster {
    scheduler: Arc<Scheduler>,
    start: Instant,
    /// Its links.
    pub network: Arc<Network>,
    /// The metadata server's machine.
    pub mdt: Machine,
    /// The object servers' machines, by index.
    pub osts: Vec<Machine>,
    /// Mounts, by number.
    pub mounts: Vec<Mounted>,
    /// Where their programs find them.
    pub seats: Vec<Arc<Seat>>,
    /// Clocks of the clients, by number.
    pub clocks: Vec<Arc<NodeClock>>,
    mgs: Management,
    /// The processes of supervised clients, by number.
    workers: Vec<Worker>,
    begun: BTreeSet<(u32, Duration)>,
}

impl Cluster {
    /// Formats, starts and mounts everything.
    pub fn start(
        scheduler: &Arc<Scheduler>,
        clients: u32,
        numbers: &mut SeededRng,
    ) -> Result<Cluster, String> {
        let mut cluster = Cluster::unmounted(scheduler, (clients, 1), numbers)?;
        for number in 0..clients {
            let clock = NodeClock::new(cluster.start);
            let mounted = cluster.mount(number, clock.clone(), 0)?;
            cluster.seats.push(Seat::of(mounted.client().clone()));
            cluster.mounts.push(mounted);
            cluster.clocks.push(clock);
        }
        scheduler.move_to(Node::default());
        Ok(cluster)
    }

    /// Formats and starts everything; each client has links for so many processes.
    fn unmounted(
        scheduler: &Arc<Scheduler>,
        (clients, processes): (u32, u32),
        numbers: &mut SeededRng,
    ) -> Result<Cluster, String> {
        let start = threads::now();
        let mut network = Network::default();
        for (number, seat) in (0..clients).flat_map(|n| (0..processes).map(move |seat| (n, seat))) {
            for server in [MGS, MDT].into_iter().chain(OSTS) {
                let seed = numbers.next_u64();
                network.connect(seat_node(number, seat), server, SeededRng::new(seed));
            }
        }
        for ost in OSTS {
            network.connect(MDT, ost, SeededRng::new(numbers.next_u64()));
        }
        let network = Arc::new(network);
        let clock = || NodeClock::new(start);
        let mut format = |(name, node)| Machine::format(name, node, clock(), numbers);
        let mdt = format((TargetName::mdt(0), MDT))?;
        let osts = machine::osts().map(format).collect::<Result<_, _>>()?;
        let mut cluster = Cluster {
            scheduler: scheduler.clone(),
            network: network.clone(),
            mdt,
            osts,
            mounts: Vec::new(),
            seats: Vec::new(),
            clocks: Vec::new(),
            mgs: Management::new(NodeClock::new(start)),
            workers: Vec::new(),
            start,
            begun: BTreeSet::new(),
        };
        cluster.power_on(MGS)?;
        for node in OSTS {
            cluster.power_on(node)?;
        }
        cluster.power_on(MDT)?;
        Ok(cluster)
    }

    /// Joins the file system, after so many crashes.
    fn mount(&self, number: u32, clock: Arc<NodeClock>, crashes: u64) -> Result<Mounted, String> {
        self.join(client_node(number), secret_of(number, crashes), clock, None)
    }

    /// A process at `node` joins the file system.
    fn join(
        &self,
        node: Node,
        secret: ClientSecret,
        clock: Arc<NodeClock>,
        takeover: Option<Arc<TakeoverState>>,
    ) -> Result<Mounted, String> {
        self.scheduler.move_to(node);
        let network = self.network.clone();
        let reach = move |text: &str| network.address(node, machine::node_of(text)?);
        let mgs = self.network.address(node, MGS);
        let config = MountConfig {
            addresses: mgs.into_iter().collect(),
            reach: Arc::new(reach),
            secret,
            key: None,
            insecure: false,
            policy: Policy::Hard,
            patience: Arc::new(|_| true),
            takeover,
            clocks: rpc::Clocks::default(),
        };
        let mounted = Mounted::join(&config, Arc::new(NoKernel), clock);
        mounted.map_err(|error| error.to_string())
    }

    /// A client is gone with all that it had not sent: nothing of it reaches a server any more.
    pub fn fell(&mut self, number: u32) {
        self.network.power(client_node(number), true);
        self.seats[number as usize].leave();
    }

    /// The threads of one that is gone are ended, in order.
    pub fn clear_away(&mut self, number: u32) {
        self.scheduler.move_to(client_node(number));
        self.mounts[number as usize].abandon();
        self.scheduler.move_to(Node::default());
    }

    /// Its machine is there again.
    pub fn mount_again(&mut self, number: u32) -> Result<(), String> {
        let at = number as usize;
        self.network.power(client_node(number), false);
        let crashes = self.seats[at].crashes();
        let mounted = self.mount(number, self.clocks[at].clone(), crashes);
        self.scheduler.move_to(Node::default());
        let mounted = mounted?;
        self.seats[at].take(mounted.client().clone());
        self.mounts[at] = mounted;
        Ok(())
    }

    /// Notes when each client has begun anew with each server for the last time; all that is known of that.
    pub fn note_begun(&mut self) -> &BTreeSet<(u32, Duration)> {
        let now = self.scheduler.time();
        for (number, (mount, clock)) in (0..).zip(self.mounts.iter().zip(&self.clocks)) {
            let tick = clock.tick();
            let began = mount.client().begun().into_iter().flatten();
            let began = began.map(|begun| now.saturating_sub(tick.since(begun)));
            self.begun.extend(began.map(|at| (number, at)));
        }
        &self.begun
    }

    /// The machine of a server.
    pub fn machine(&mut self, node: Node) -> &mut Machine {
        match OSTS.iter().position(|ost| *ost == node) {
            Some(index) => &mut self.osts[index],
            None => &mut self.mdt,
        }
    }

    /// Starts a server on what its disks hold.
    pub fn power_on(&mut self, node: Node) -> Result<(), String> {
        let network = self.network.clone();
        network.power(node, false);
        self.scheduler.move_to(node);
        let started = match node {
            MGS => self.mgs.start(network.listens(MGS)),
            _ => self.machine(node).start(&network),
        };
        self.scheduler.move_to(Node::default());
        started
    }

    /// Cuts the power of servers, of all at one moment: of what each did not sync, what chance leaves
    /// is there afterwards.
    pub fn power_off(&mut self, nodes: &[Node], numbers: &mut SeededRng) -> Result<(), String> {
        for node in nodes {
            self.network.power(*node, true);
        }
        let mut left = Vec::new();
        for node in nodes {
            let dead = match *node {
                MGS => None,
                node => self.machine(node).power_off(numbers)?,
            };
            left.push((*node, dead));
        }
        for (node, dead) in left {
            self.scheduler.move_to(node);
            match node {
                MGS => self.mgs.stop(),
                _ => drop(dead),
            }
            self.scheduler.move_to(Node::default());
        }
        Ok(())
    }

    /// Ends a server in good order.
    pub fn stop(&mut self, node: Node) {
        self.scheduler.move_to(node);
        match node {
            MGS => self.mgs.stop(),
            _ => self.machine(node).stop(),
        }
        self.scheduler.move_to(Node::default());
        self.network.power(node, true);
    }

    /// Unmounts everything in good order, and ends the servers.
    pub fn end(&mut self) {
        for (number, mount) in (0..).zip(&mut self.mounts) {
            self.scheduler.move_to(client_node(number));
            // What is lost was told to its programs, which say whether that may be.
            let _ = mount.leave();
        }
        self.scheduler.move_to(Node::default());
        self.mounts.clear();
        self.stop(MDT);
        for ost in OSTS {
            self.stop(ost);
        }
        self.stop(MGS);
    }

    /// What the checks of all targets find when all is at rest and ended.
    pub fn damage(&self) -> Vec<String> {
        machine::examine(&self.mdt, &self.osts)
    }
}
