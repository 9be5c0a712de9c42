//! Servers that are gone, or slow, for a while.

use std::time::Duration;

use super::{Injector, Kind};
use crate::cluster::{MGS, SERVERS, client_node};
use crate::scheduler::Node;

/// The longest that a server is away.
const AWAY_MAX_MS: u64 = 3000;

impl Injector<'_> {
    /// A server is ended in good order, and comes back.
    pub(super) fn restart(&mut self) -> Result<String, String> {
        let (node, pause) = (self.server(), self.millis(AWAY_MAX_MS));
        self.cluster.stop(node);
        threads::sleep(pause);
        self.cluster.power_on(node)?;
        Ok(format!(
            "{:?} of {node:?}, back after {pause:?}",
            Kind::Restart
        ))
    }

    /// A server's power fails, and is back.
    pub(super) fn power_cut(&mut self) -> Result<String, String> {
        let node = self.server();
        let back = self.lose_power(&[node])?;
        Ok(format!("the power of {back}"))
    }

    /// The power of all servers fails at one moment.
    pub(super) fn blackout(&mut self) -> Result<String, String> {
        let back = self.lose_power(&SERVERS)?;
        Ok(format!("the power of {back}, at one moment"))
    }

    /// A server stands still. It hears nobody meanwhile, and finds that all were silent.
    pub(super) fn stall(&mut self) -> String {
        let (node, time) = (self.server(), self.millis(5000));
        self.scheduler.freeze(node, time);
        self.lasts(time);
        for client in 0..self.clients {
            self.cut_off(client_node(client), time);
        }
        format!("{node:?} stands still for {time:?}")
    }

    pub(super) fn slow_disk(&mut self) -> String {
        let (node, time, longest) = (self.server(), self.millis(10_000), self.millis(500));
        let machine = self.cluster.machine(node);
        machine.slow_down(time, longest, &mut self.numbers);
        self.lasts(time);
        format!("for {time:?} the disks of {node:?} take up to {longest:?} more for each sync")
    }

    /// The management service is away while clients miss a server, and ask where it is.
    pub(super) fn no_management(&mut self) -> Result<String, String> {
        let missed = self.server();
        let (how, away) = match self.below(3) {
            0 => {
                let time = self.millis(2 * AWAY_MAX_MS);
                for pair in self.cluster.network.of(MGS) {
                    self.cluster.network.partition(pair, [true, true], time);
                }
                self.lasts(time);
                (format!("is cut off for {time:?}"), vec![missed])
            }
            1 => {
                self.cluster.stop(MGS);
                ("is ended".to_owned(), vec![missed, MGS])
            }
            _ => ("goes".to_owned(), vec![missed, MGS]),
        };
        let back = self.lose_power(&away)?;
        Ok(format!("the MGS {how}, and the power of {back}"))
    }

    /// The power of `nodes` fails at one moment, and each is back after a time of its own. Says who was
    /// away for how long.
    pub(super) fn lose_power(&mut self, nodes: &[Node]) -> Result<String, String> {
        self.cluster.power_off(nodes, &mut self.numbers)?;
        self.come_back(nodes)
    }

    /// Each of `nodes` has power again after a time of its own. Says who was away for how long.
    pub(super) fn come_back(&mut self, nodes: &[Node]) -> Result<String, String> {
        let mut back = Vec::new();
        for node in nodes {
            back.push((self.millis(AWAY_MAX_MS), *node));
        }
        back.sort();
        let mut waited = Duration::ZERO;
        for (pause, node) in &back {
            threads::sleep(*pause - waited);
            waited = *pause;
            self.cluster.power_on(*node)?;
        }
        let told = back
            .iter()
            .map(|(pause, node)| format!("{node:?} fails for {pause:?}"));
        Ok(told.collect::<Vec<_>>().join(", of "))
    }
}
