//! Supervised clients: a process that is killed leaves what it remembered to the next one.

use std::sync::Arc;

use base::SeededRng;
use client::{Mounted, TakeoverState};
use handover::{Death, Region};

use super::Cluster;
use super::nodes::{NodeClock, seat_node, secret_of};
use super::worker::{MEMORY_BYTES, SEATS, Worker};
use crate::programs::Desk;
use crate::scheduler::{Node, Scheduler};

impl Cluster {
    /// Formats, starts and mounts everything, each mount supervised.
    pub fn start_supervised(
        scheduler: &Arc<Scheduler>,
        clients: u32,
        numbers: &mut SeededRng,
    ) -> Result<Cluster, String> {
        let mut cluster = Cluster::unmounted(scheduler, (clients, SEATS), numbers)?;
        for number in 0..clients {
            let memory = Region::create(MEMORY_BYTES).map_err(|error| error.to_string())?;
            cluster.clocks.push(NodeClock::new(cluster.start));
            cluster.workers.push(Worker::new(memory));
            let mounted = cluster.begin_worker(number)?;
            cluster.serve(number, &mounted);
            cluster.mounts.push(mounted);
        }
        scheduler.move_to(Node::default());
        Ok(cluster)
    }

    /// Where the programs of a client find the process that serves them.
    pub fn desk(&self, number: u32) -> Arc<Desk> {
        self.workers[number as usize].desk.clone()
    }

    /// The process of a client is killed. Of what it had sent a part arrives.
    pub fn kill_worker(&mut self, number: u32, numbers: &mut SeededRng) {
        let worker = &self.workers[number as usize];
        self.network.kill(seat_node(number, worker.seat), numbers);
        worker.death.come();
        worker.desk.leave();
    }

    /// Another goes on.
    pub fn replace_worker(&mut self, number: u32) -> Result<(), String> {
        let at = number as usize;
        let before = self.workers[at].seat;
        self.workers[at].seat = (before + 1) % SEATS;
        let mounted = self.begin_worker(number)?;
        mounted.client().take_over();
        self.serve(number, &mounted);
        let mut dead = std::mem::replace(&mut self.mounts[at], mounted);
        self.scheduler.move_to(seat_node(number, before));
        let ended = threads::spawn(move || dead.abandon());
        self.workers[at].remains[before as usize] = Some(ended);
        self.scheduler.move_to(Node::default());
        Ok(())
    }

    /// Starts a client's process at its seat, where none is any more.
    fn begin_worker(&mut self, number: u32) -> Result<Mounted, String> {
        let worker = &mut self.workers[number as usize];
        if let Some(before) = worker.remains[worker.seat as usize].take() {
            // What panicked has said so.
            let _ = before.join();
        }
        worker.death = Death::after(u64::MAX);
        let region = Region::mapped_until(&worker.memory, &worker.death);
        let region = region.map_err(|error| error.to_string())?;
        let secret = secret_of(number, 0);
        let takeover = TakeoverState::open(region, secret).ok_or("the memory cannot be used")?;
        let (node, clock) = (
            seat_node(number, worker.seat),
            &self.clocks[number as usize],
        );
        self.network.power(node, false);
        self.join(node, secret, clock.clone(), Some(Arc::new(takeover)))
    }

    fn serve(&self, number: u32, mounted: &Mounted) {
        let worker = &self.workers[number as usize];
        worker
            .desk
            .take(mounted.client().clone(), worker.death.clone());
    }
}
