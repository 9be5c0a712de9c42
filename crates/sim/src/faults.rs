//! What goes wrong, and when.

use std::fmt;
use std::time::Duration;

use base::{Rng, SeededRng};

use crate::cluster::{Cluster, MDT, OSTS, TIMEOUT, client_node};
use crate::scheduler::{Node, Scheduler};

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The connections of a link end; a part of what was under way arrives.
    Cut,
    /// For a while nothing arrives in one direction of a link.
    OneWay,
    /// For a while nothing arrives in either.
    Partition,
    /// A link is slow from now on.
    Slow,
    /// A client stands still, shorter than anybody is waited for.
    Pause,
    /// A client stands still for so long that others do not wait for it: it is given up.
    Eviction,
    /// A client loses all that it has in memory; later its machine mounts anew.
    Crash,
    /// A wall clock jumps.
    ClockJump,
    /// A server is ended in good order, and started again.
    Restart,
    /// A server's power fails.
    PowerCut,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 10] = [
        Kind::Cut,
        Kind::OneWay,
        Kind::Partition,
        Kind::Slow,
        Kind::Pause,
        Kind::Eviction,
        Kind::Crash,
        Kind::ClockJump,
        Kind::Restart,
        Kind::PowerCut,
    ];

    /// After it a client has lost what it had not made durable.
    pub fn loses_client(self) -> bool {
        matches!(self, Kind::Eviction | Kind::Crash)
    }
}

/// A fault that happened.
#[derive(Debug, Clone)]
pub struct Fault {
    /// When.
    pub at: Duration,
    /// Its kind.
    pub kind: Kind,
    /// To whom, and how.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>10} ---------- {}", self.at.as_micros(), self.what)
    }
}

/// Lets faults happen.
pub struct Injector<'a> {
    /// To what.
    pub cluster: &'a mut Cluster,
    /// On whose time.
    pub scheduler: &'a Scheduler,
    /// By which dice.
    pub numbers: SeededRng,
    /// How many clients there are.
    pub clients: u32,
    /// Which clients may have been given up, and since when.
    pub given_up: Vec<(u32, Duration)>,
}

impl Injector<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        self.numbers.below(bound)
    }

    fn link(&mut self) -> (Node, Node) {
        let server = self.server();
        match self.below(8) {
            0 => (MDT, self.ost()),
            _ => (
                client_node(self.numbers.below(u64::from(self.clients)) as u32),
                server,
            ),
        }
    }

    /// The MDT in half of all cases.
    fn server(&mut self) -> Node {
        match self.below(2) {
            0 => MDT,
            _ => self.ost(),
        }
    }

    fn ost(&mut self) -> Node {
        OSTS[self.below(OSTS.len() as u64) as usize]
    }

    fn millis(&mut self, most: u64) -> Duration {
        Duration::from_millis(1 + self.below(most))
    }

    /// Lets a fault of `kind` happen, to whomever it meets.
    pub fn inject(&mut self, kind: Kind) -> Result<Fault, String> {
        let at = self.scheduler.time();
        let what = match kind {
            Kind::Cut => {
                let link = self.link();
                self.cluster.network.cut(link, &mut self.numbers);
                format!("the link {link:?} is cut")
            }
            Kind::OneWay | Kind::Partition => self.partition(kind),
            Kind::Slow => {
                let (link, delay) = (self.link(), self.millis(60));
                self.cluster.network.slow(link, delay);
                format!("the link {link:?} takes {delay:?} from now on")
            }
            Kind::Pause => {
                let (client, time) = (
                    self.below(u64::from(self.clients)) as u32,
                    self.millis(4000),
                );
                self.scheduler.freeze(client_node(client), time);
                format!("client {client} stands still for {time:?}")
            }
            Kind::Eviction => self.evict(),
            Kind::Crash => self.crash()?,
            Kind::ClockJump => self.jump(),
            Kind::Restart | Kind::PowerCut => self.restart(kind)?,
        };
        Ok(Fault { at, kind, what })
    }

    fn partition(&mut self, kind: Kind) -> String {
        let (link, time) = (self.link(), self.millis(5000));
        let ways = match kind {
            Kind::OneWay if self.below(2) == 0 => [true, false],
            Kind::OneWay => [false, true],
            _ => [true, true],
        };
        self.cluster.network.partition(link, ways, time);
        format!("for {time:?} nothing arrives over {link:?}, {ways:?}")
    }

    /// A client that is away while a server waits for those who were there before its restart takes
    /// what it did and is not durable with it, as it may: not here, or nothing could be said of names.
    /// So nothing else happens meanwhile.
    fn evict(&mut self) -> String {
        threads::sleep(TIMEOUT + Duration::from_secs(2));
        let client = self.below(u64::from(self.clients)) as u32;
        let time = TIMEOUT * 2 + self.millis(10_000);
        let begun = self.scheduler.time();
        self.scheduler.freeze(client_node(client), time);
        self.given_up.push((client, begun));
        threads::sleep(time + TIMEOUT);
        format!("client {client} stood still for {time:?}")
    }

    /// What it had made durable, or was told to be done, is safe: as for one that is given up, no
    /// server recovers meanwhile.
    fn crash(&mut self) -> Result<String, String> {
        threads::sleep(TIMEOUT + Duration::from_secs(2));
        let client = self.below(u64::from(self.clients)) as u32;
        let (begun, pause) = (self.scheduler.time(), self.millis(30_000));
        self.given_up.push((client, begun));
        self.cluster.crash(client);
        threads::sleep(pause);
        self.cluster.mount_again(client)?;
        threads::sleep(TIMEOUT * 2);
        Ok(format!(
            "client {client} crashes at {begun:?}, and is back after {pause:?}"
        ))
    }

    fn jump(&mut self) -> String {
        let seconds = self.below(7200) as i64 - 3600;
        let cluster = &self.cluster;
        let servers = std::iter::once(&cluster.mdt).chain(&cluster.osts);
        let servers = servers.map(|machine| machine.clock.clone());
        let clocks: Vec<_> = servers.chain(cluster.clocks.iter().cloned()).collect();
        let whose = self.below(clocks.len() as u64) as usize;
        clocks[whose].jump(seconds);
        format!("clock {whose} jumps by {seconds} s")
    }

    fn restart(&mut self, kind: Kind) -> Result<String, String> {
        let node = self.server();
        let pause = self.millis(3000);
        match kind {
            Kind::PowerCut => self.cluster.power_off(node, &mut self.numbers)?,
            _ => self.cluster.stop(node),
        }
        threads::sleep(pause);
        self.cluster.power_on(node)?;
        Ok(format!("{kind:?} of {node:?}, back after {pause:?}"))
    }
}
