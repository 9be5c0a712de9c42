//! What goes wrong, and when.

mod flips;
mod losses;
mod outages;

use std::fmt;
use std::time::Duration;

use base::{Fid, Rng, SeededRng};

use crate::cluster::{Cluster, MDT, OSTS, TIMEOUT, client_node};
use crate::excuses::{Excuse, Excuses};
use crate::programs::Log;
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
    /// The power of all servers fails at one moment.
    Blackout,
    /// A server stands still, shorter than anybody waits for it.
    Stall,
    /// For a while a server's disks take long to make something durable.
    SlowDisk,
    /// The management service is ended, loses its power or is cut off, while a server's power fails and
    /// clients ask where that is.
    NoManagement,
    /// The MDT's power fails while a client is away, perhaps with that of others, and nobody waits for
    /// that client.
    Absence,
    /// The power of all servers and of a client fails just when one of its programs was told that its changes
    /// are durable.
    Outage,
    /// A bit of a frame arrives flipped.
    FrameFlip,
    /// A bit of a server's records is flipped, until the disk is cured.
    DiskFlip,
    /// A bit of a file's bytes is flipped on their OST's disk, until that is cured.
    ByteFlip,
    /// The process of a supervised mount is killed, and another goes on. Of runs of their own (`workers`).
    Worker,
}

impl Kind {
    /// All that happen in the usual runs.
    pub const ALL: [Kind; 19] = [
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
        Kind::Blackout,
        Kind::Stall,
        Kind::SlowDisk,
        Kind::NoManagement,
        Kind::Absence,
        Kind::Outage,
        Kind::FrameFlip,
        Kind::DiskFlip,
        Kind::ByteFlip,
    ];

    /// The one called `text`.
    pub fn of(text: &str) -> Option<Kind> {
        let mut kinds = Kind::ALL.into_iter();
        kinds.find(|kind| format!("{kind:?}") == text)
    }

    /// After it a client has lost what it had not made durable.
    pub fn loses_client(self) -> bool {
        matches!(
            self,
            Kind::Eviction | Kind::Crash | Kind::Absence | Kind::Outage
        )
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
    /// How many clients there are,
    pub clients: u32,
    /// and programs on each.
    pub programs: u32,
    /// The files whose bytes programs read and write.
    pub files: Vec<Fid>,
    /// What lets programs go on,
    pub log: &'a Log,
    /// each by so many calls with each fault.
    pub share: usize,
    /// What they excuse.
    pub excuses: Excuses,
    /// When a client heard nothing of a server, shorter than anybody is waited for.
    pub cut_off: Vec<Excuse>,
    /// When a client stood still for longer.
    pub away: Vec<Excuse>,
    /// When the last of them is over.
    pub over: Duration,
    /// What may not be.
    pub violations: Vec<String>,
}

impl Injector<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        self.numbers.below(bound)
    }

    fn link(&mut self) -> (Node, Node) {
        let server = self.server();
        match self.below(8) {
            0 => (MDT, self.ost()),
            _ => (client_node(self.client()), server),
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
        if kind.loses_client() {
            // No server recovers when it begins, or little could be said of who lost what.
            threads::sleep(TIMEOUT + Duration::from_secs(2));
        }
        self.log.allow(self.share);
        let begun = self.millis(600);
        threads::sleep(begun);
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
                let (client, time) = (self.client(), self.millis(4000));
                self.scheduler.freeze(client_node(client), time);
                self.lasts(time);
                self.cut_off(client_node(client), time);
                format!("client {client} stands still for {time:?}")
            }
            Kind::Eviction => self.evict(),
            Kind::Crash => self.crash()?,
            Kind::ClockJump => self.jump(),
            Kind::Restart => self.restart()?,
            Kind::PowerCut => self.power_cut()?,
            Kind::Blackout => self.blackout()?,
            Kind::Stall => self.stall(),
            Kind::SlowDisk => self.slow_disk(),
            Kind::NoManagement => self.no_management()?,
            Kind::Absence => self.absent()?,
            Kind::Outage => self.outage()?,
            Kind::FrameFlip => self.flip(),
            Kind::DiskFlip => self.rot()?,
            Kind::ByteFlip => self.flip_byte()?,
            Kind::Worker => return Err("no mount of this run is supervised".to_owned()),
        };
        self.lasts(Duration::ZERO);
        Ok(Fault { at, kind, what })
    }

    /// What happens now is over after `time`.
    fn lasts(&mut self, time: Duration) {
        self.over = self.over.max(self.scheduler.time() + time);
    }

    fn partition(&mut self, kind: Kind) -> String {
        let (link, time) = (self.link(), self.millis(5000));
        let ways = match kind {
            Kind::OneWay if self.below(2) == 0 => [true, false],
            Kind::OneWay => [false, true],
            _ => [true, true],
        };
        self.cluster.network.partition(link, ways, time);
        self.lasts(time);
        self.cut_off(link.0, time);
        format!("for {time:?} nothing arrives over {link:?}, {ways:?}")
    }

    fn client(&mut self) -> u32 {
        self.below(u64::from(self.clients)) as u32
    }

    /// For `time` the client at `node` does not reach a server, if it is one.
    fn cut_off(&mut self, node: Node, time: Duration) {
        let now = self.scheduler.time();
        let clients = 0..self.clients;
        let client = clients.into_iter().find(|c| client_node(*c) == node);
        self.cut_off.extend(client.map(|client| Excuse {
            client: Some(client),
            file: None,
            from: now,
            until: now + time,
        }));
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
}
