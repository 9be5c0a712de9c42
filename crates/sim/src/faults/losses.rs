//! Clients that are gone, or stand still for so long that they are given up.

use std::time::Duration;

use super::{AFTERMATH, Injector};
use crate::cluster::{MDT, SERVERS, TIMEOUT, client_node};
use crate::excuses::Excuse;
use crate::scheduler::Node;

/// A change is durable so long after it was made, where its server lives.
const DURABLE: Duration = Duration::from_secs(2);

impl Injector<'_> {
    /// From now on calls of `client` may fail.
    pub(super) fn given_up(&mut self, client: u32) {
        self.excuses.failures.push(Excuse {
            client: Some(client),
            file: None,
            from: self.scheduler.time(),
            until: Duration::MAX,
        });
    }

    /// `client` stands still for so long that it is given up.
    pub(super) fn stand_still(&mut self, client: u32, time: Duration) {
        self.scheduler.freeze(client_node(client), time);
        let from = self.scheduler.time();
        self.excuses.stale.push(Excuse {
            client: Some(client),
            file: None,
            from,
            until: from + time + AFTERMATH,
        });
    }

    pub(super) fn evict(&mut self) -> String {
        let client = self.client();
        let time = TIMEOUT * 2 + self.millis(10_000);
        self.given_up(client);
        self.stand_still(client, time);
        threads::sleep(time + TIMEOUT);
        format!("client {client} stood still for {time:?}")
    }

    /// What it had made durable, or was told to be done, is safe: no server recovers meanwhile.
    pub(super) fn crash(&mut self) -> Result<String, String> {
        let (client, pause) = (self.client(), self.millis(30_000));
        self.given_up(client);
        self.cluster.crash(client);
        threads::sleep(pause);
        self.cluster.mount_again(client)?;
        threads::sleep(TIMEOUT * 2);
        Ok(format!(
            "client {client} crashes, and is back after {pause:?}"
        ))
    }

    /// A client crashes or stands still, and before long the MDT's power fails, and in half of all cases
    /// that of an OST or of all at the same moment: what that client did and was not durable goes, though
    /// it was told that it was done. Nobody else has seen it. Of bytes that is what was under way: a
    /// program that goes on has made them durable.
    pub(super) fn absent(&mut self) -> Result<String, String> {
        let (client, is_crash) = (self.client(), self.below(2) == 0);
        let away = TIMEOUT * 3 + self.millis(10_000);
        let servers = self.servers_with_mdt();
        let begun = self.scheduler.time();
        self.given_up(client);
        match is_crash {
            true => self.cluster.crash(client),
            false => self.stand_still(client, away),
        }
        let cut = self.millis(1500);
        threads::sleep(cut);
        self.excuses.undone.push(Excuse {
            client: Some(client),
            file: None,
            from: begun.saturating_sub(DURABLE),
            until: self.scheduler.time(),
        });
        let back = self.lose_power(&servers)?;
        threads::sleep(away);
        if is_crash {
            self.cluster.mount_again(client)?;
        }
        threads::sleep(TIMEOUT);
        let how = if is_crash { "crashes" } else { "stands still" };
        Ok(format!(
            "client {client} {how} for {away:?}, {cut:?} later the power of {back}"
        ))
    }

    /// The MDT, in half of all cases with an OST or with all.
    fn servers_with_mdt(&mut self) -> Vec<Node> {
        match self.below(4) {
            0 | 1 => vec![MDT],
            2 => vec![MDT, self.ost()],
            _ => SERVERS.to_vec(),
        }
    }
}
