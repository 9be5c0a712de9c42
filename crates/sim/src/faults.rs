//! What goes wrong, and when.

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
    /// The MDT's power fails while a client is away, and nobody waits for that one.
    Absence,
    /// A bit of a frame arrives flipped.
    FrameFlip,
    /// A bit of a server's records is flipped, until the disk is cured.
    DiskFlip,
    /// A bit of a file's bytes is flipped on their OST's disk, until that is cured.
    ByteFlip,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 14] = [
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
        Kind::Absence,
        Kind::FrameFlip,
        Kind::DiskFlip,
        Kind::ByteFlip,
    ];

    /// After it a client has lost what it had not made durable.
    pub fn loses_client(self) -> bool {
        matches!(self, Kind::Eviction | Kind::Crash | Kind::Absence)
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
    /// The files whose bytes programs read and write.
    pub files: Vec<Fid>,
    /// What lets programs go on,
    pub log: &'a Log,
    /// each by so many calls with each fault.
    pub share: usize,
    /// What they excuse.
    pub excuses: Excuses,
    /// When a client heard nothing of a server.
    pub cut_off: Vec<Excuse>,
    /// What may not be.
    pub violations: Vec<String>,
}

/// A change is durable so long after it was made, where its server lives.
const DURABLE: Duration = Duration::from_secs(2);
/// After a server is as it was before, calls go on, with what they were told meanwhile.
const AFTERMATH: Duration = Duration::from_secs(1);

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
                self.cut_off(client_node(client), time);
                format!("client {client} stands still for {time:?}")
            }
            Kind::Eviction => self.evict(),
            Kind::Crash => self.crash()?,
            Kind::ClockJump => self.jump(),
            Kind::Restart | Kind::PowerCut => self.restart(kind)?,
            Kind::Absence => self.absent()?,
            Kind::FrameFlip => self.flip(),
            Kind::DiskFlip => self.rot()?,
            Kind::ByteFlip => self.flip_byte()?,
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

    /// From now on calls of `client` may fail.
    fn given_up(&mut self, client: u32) {
        self.excuses.failures.push(Excuse {
            client: Some(client),
            file: None,
            from: self.scheduler.time(),
            until: Duration::MAX,
        });
    }

    /// `client` stands still for so long that it is given up.
    fn stand_still(&mut self, client: u32, time: Duration) {
        self.scheduler.freeze(client_node(client), time);
        let from = self.scheduler.time();
        self.excuses.stale.push(Excuse {
            client: Some(client),
            file: None,
            from,
            until: from + time + AFTERMATH,
        });
    }

    fn evict(&mut self) -> String {
        let client = self.client();
        let time = TIMEOUT * 2 + self.millis(10_000);
        self.given_up(client);
        self.stand_still(client, time);
        threads::sleep(time + TIMEOUT);
        format!("client {client} stood still for {time:?}")
    }

    /// What it had made durable, or was told to be done, is safe: no server recovers meanwhile.
    fn crash(&mut self) -> Result<String, String> {
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

    /// A client crashes or stands still, and before long the MDT's power fails: what that client did
    /// and was not durable goes, though it was told that it was done. Nobody else has seen it.
    fn absent(&mut self) -> Result<String, String> {
        let (client, is_crash) = (self.client(), self.below(2) == 0);
        let (away, pause) = (TIMEOUT * 3 + self.millis(10_000), self.millis(3000));
        let begun = self.scheduler.time();
        self.given_up(client);
        match is_crash {
            true => self.cluster.crash(client),
            false => self.stand_still(client, away),
        }
        let cut = self.millis(1500);
        threads::sleep(cut);
        self.cluster.power_off(MDT, &mut self.numbers)?;
        self.excuses.undone.push(Excuse {
            client: Some(client),
            file: None,
            from: begun.saturating_sub(DURABLE),
            until: self.scheduler.time(),
        });
        threads::sleep(pause);
        self.cluster.power_on(MDT)?;
        threads::sleep(away);
        if is_crash {
            self.cluster.mount_again(client)?;
        }
        threads::sleep(TIMEOUT);
        let how = if is_crash { "crashes" } else { "stands still" };
        Ok(format!(
            "client {client} {how} for {away:?}, {cut:?} later the MDT's power fails for {pause:?}"
        ))
    }

    fn flip(&mut self) -> String {
        let link = self.link();
        let (to_server, bit) = (self.below(2) == 0, self.numbers.next_u64());
        self.cluster.network.flip(link, to_server, bit);
        let way = if to_server { "to" } else { "from" };
        format!("a bit of the next frame {way} the server of {link:?} is flipped")
    }

    /// A bit of a server's records is wrong, from while it runs or from while it is off; after a
    /// while the disk is cured. Whatever ends the server meanwhile names the damage.
    fn rot(&mut self) -> Result<String, String> {
        let (node, begun) = (self.server(), self.scheduler.time());
        let (runs_on, pause, time) = (self.below(2) == 0, self.millis(1000), self.millis(4000));
        let mut at = 0;
        if runs_on {
            at = self.cluster.machine(node).flip_bit(&mut self.numbers)?;
            threads::sleep(time);
        }
        let mut found: Vec<String> = self.cluster.machine(node).stopped().into_iter().collect();
        // In good order: of what a power cut has left there may be one copy only.
        self.cluster.stop(node);
        threads::sleep(pause);
        if !runs_on {
            at = self.cluster.machine(node).flip_bit(&mut self.numbers)?;
        }
        found.extend(self.cluster.power_on(node).err());
        threads::sleep(time);
        found.extend(self.cluster.machine(node).stopped());
        self.cluster.power_off(node, &mut self.numbers)?;
        self.cluster.machine(node).cure();
        self.cluster.power_on(node)?;
        let until = self.scheduler.time() + AFTERMATH;
        self.excuses.failures.push(Excuse {
            client: None,
            file: None,
            from: begun,
            until,
        });
        let name = self.cluster.machine(node).name().to_string();
        let is_named = |why: &&String| why.contains("damaged record") && why.contains(&name);
        let unnamed = found.iter().filter(|why| !is_named(why));
        self.violations
            .extend(unnamed.map(|why| format!("a flipped bit of {name} was not named: {why}")));
        let seen = found.first().map_or("nobody read it", String::as_str);
        Ok(format!(
            "for {:?} a bit of byte {at} of {name} is flipped: {seen}",
            until - begun
        ))
    }

    /// A bit of a file is wrong on the disk of an OST that was ended in good order: all that it has is
    /// sealed. It is never read; calls that need it fail, of this file only, until the disk is cured.
    fn flip_byte(&mut self) -> Result<String, String> {
        let (node, begun, pause, time) = (
            self.ost(),
            self.scheduler.time(),
            self.millis(1000),
            self.millis(6000),
        );
        self.cluster.stop(node);
        threads::sleep(pause);
        let files = self.files.clone();
        let flipped = self
            .cluster
            .machine(node)
            .flip_byte(&files, &mut self.numbers)?;
        self.cluster.power_on(node)?;
        threads::sleep(time);
        self.cluster.stop(node);
        let named = self.cluster.machine(node).names_wrong_byte();
        self.violations.extend(named.err());
        self.cluster.machine(node).cure();
        self.cluster.power_on(node)?;
        let (until, name) = (
            self.scheduler.time() + AFTERMATH,
            self.cluster.machine(node).name(),
        );
        let Some(fid) = flipped else {
            return Ok(format!("{name} is ended twice, and has no bytes"));
        };
        let number = files.iter().position(|file| *file == fid);
        self.excuses.failures.push(Excuse {
            client: None,
            file: number.map(|number| number as u8),
            from: begun,
            until,
        });
        Ok(format!(
            "for {time:?} a bit of {fid} is flipped on the disk of {name}"
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
        let node = match kind {
            Kind::PowerCut => self.server(),
            _ => self.server(),
        };
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
