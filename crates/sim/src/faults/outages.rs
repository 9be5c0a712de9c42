//! Servers that are gone for a while.

use std::time::Duration;

use super::{Injector, Kind};
use crate::cluster::SERVERS;
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

    /// The power of `nodes` fails at one moment, and each is back after a time of its own. Says who was
    /// away for how long.
    pub(super) fn lose_power(&mut self, nodes: &[Node]) -> Result<String, String> {
        self.cluster.power_off(nodes, &mut self.numbers)?;
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
