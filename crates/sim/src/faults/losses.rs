//! Clients that are gone, or stand still for so long that they are given up.

use std::ops::Range;
use std::time::Duration;

use super::Injector;
use crate::cluster::{MDT, SERVERS, TIMEOUT, client_node};
use crate::excuses::{AFTERMATH, Excuse};
use crate::programs::Log;
use crate::scheduler::Node;

/// A change is durable so long after it was made, where its server lives. A commit is due after a
/// second, and takes as long at the most where disks are slow.
const DURABLE: Duration = Duration::from_secs(2);
/// Disks are slow for so long before a client goes,
const SLOW_BEFORE: Duration = Duration::from_secs(1);
/// and take up to so much longer for each sync.
const SLOWER_MAX: Duration = Duration::from_millis(450);
/// So long at most a moment is waited for: disks are slow until then.
const MOMENT_MAX: Duration = Duration::from_millis(1500);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(1);

/// Whether programs' calls, by their numbers, have come to something since then.
type Moment = fn(&Log, &Range<u32>, Duration) -> bool;

impl Injector<'_> {
    /// `client` stands still for `time`, so long that who wants something of it gives it up. It believes
    /// what it had until it hears of that.
    fn stand_still(&mut self, client: u32, time: Duration) {
        self.scheduler.freeze(client_node(client), time);
        let from = self.scheduler.time();
        self.away.push(Excuse {
            client: Some(client),
            file: None,
            from,
            until: from + time,
        });
    }

    /// The machine of `client`, which crashed at `from`, is there again.
    fn is_back(&mut self, client: u32, from: Duration) -> Result<(), String> {
        self.cluster.mount_again(client)?;
        let until = self.scheduler.time() + AFTERMATH;
        self.excuses.failures.push(Excuse {
            client: Some(client),
            file: None,
            from,
            until,
        });
        Ok(())
    }

    pub(super) fn evict(&mut self) -> String {
        let client = self.client();
        let time = TIMEOUT * 2 + self.millis(10_000);
        self.stand_still(client, time);
        threads::sleep(time + TIMEOUT);
        format!("client {client} stood still for {time:?}")
    }

    /// What it had made durable, or was told to be done, is safe: no server recovers meanwhile.
    pub(super) fn crash(&mut self) -> Result<String, String> {
        let (client, pause) = (self.client(), self.millis(30_000));
        let from = self.scheduler.time();
        self.cluster.fell(client);
        self.cluster.clear_away(client);
        threads::sleep(pause);
        self.is_back(client, from)?;
        threads::sleep(TIMEOUT * 2);
        Ok(format!(
            "client {client} crashes, and is back after {pause:?}"
        ))
    }

    /// A client crashes or stands still, and soon the MDT's power fails; in half of all cases an OST's too,
    /// or that of all servers. In a third of all cases the power fails just when the client goes, after the
    /// disks of these servers were slow for a while: so more is not durable.
    pub(super) fn absent(&mut self) -> Result<String, String> {
        let (client, is_crash) = (self.client(), self.below(2) == 0);
        let servers = self.servers_with_mdt();
        let cut = match self.below(3) {
            0 => Duration::ZERO,
            _ => self.millis(1500),
        };
        if cut.is_zero() {
            self.slow_down(&servers);
            threads::sleep(SLOW_BEFORE);
        }
        self.lose(client, is_crash, cut, &servers)
    }

    /// All servers and a client lose their power at one moment, with disks that take long to make
    /// something durable. As soon as a program of that client was told that what it did is, or
    /// another client was shown what it did, which is durable then.
    pub(super) fn outage(&mut self) -> Result<String, String> {
        let (client, which) = (self.client(), self.below(5));
        let (moment, what): (Moment, _) = match which {
            0 | 1 => (Log::has_shown, "as others saw what it did"),
            _ => (Log::has_synced, "as it was told what is durable"),
        };
        let slow = match which {
            2 => &SERVERS[1..],
            3 => &SERVERS[..],
            _ => &SERVERS[..1],
        };
        self.slow_down(slow);
        let pause = self.millis(300);
        threads::sleep(pause);
        let has_come = self.await_moment(client, moment);
        let lost = self.lose(client, true, Duration::ZERO, &SERVERS)?;
        let when = if has_come { what } else { "at any moment" };
        Ok(format!("{lost}, {when}"))
    }

    /// Waits until `moment` has come for a client's programs. False: it has not for long.
    fn await_moment(&self, client: u32, moment: Moment) -> bool {
        let begun = self.scheduler.time();
        let callers = client * self.programs..(client + 1) * self.programs;
        while !moment(self.log, &callers, begun) {
            if self.scheduler.time() - begun > MOMENT_MAX {
                return false;
            }
            threads::sleep(LOOK);
        }
        true
    }

    /// A client crashes or stands still, and after `cut` the power of `servers` fails, the MDT
    /// among them. What that client did and was not durable goes, though it was told that it was
    /// done. Nobody else has seen it. Of bytes that is what was under way: a program that goes on
    /// has made them durable.
    fn lose(
        &mut self,
        client: u32,
        is_crash: bool,
        cut: Duration,
        servers: &[Node],
    ) -> Result<String, String> {
        let away = TIMEOUT * 3 + self.millis(10_000);
        let from = self.scheduler.time();
        match is_crash {
            true => self.cluster.fell(client),
            false => self.stand_still(client, away),
        }
        threads::sleep(cut);
        self.excuses.undone.push(Excuse {
            client: Some(client),
            file: None,
            from: from.saturating_sub(DURABLE),
            until: self.scheduler.time(),
        });
        self.cluster.power_off(servers, &mut self.numbers)?;
        if is_crash {
            self.cluster.clear_away(client);
        }
        let back = self.come_back(servers)?;
        let gone = self.scheduler.time() - from;
        threads::sleep(away.saturating_sub(gone));
        if is_crash {
            self.is_back(client, from)?;
        }
        threads::sleep(TIMEOUT);
        let how = if is_crash { "crashes" } else { "stands still" };
        Ok(format!(
            "client {client} {how} for {away:?}, {cut:?} later the power of {back}"
        ))
    }

    /// The disks of `servers` are slow for a while.
    fn slow_down(&mut self, servers: &[Node]) {
        for node in servers {
            let machine = self.cluster.machine(*node);
            machine.slow_down(SLOW_BEFORE * 2, SLOWER_MAX, &mut self.numbers);
        }
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
