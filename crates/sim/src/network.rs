//! The network between nodes: a link for each pair, slow, cut and partitioned as faults say.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::{Rng, SeededRng};
use rpc::{Address, MemPort, Way};

use crate::scheduler::Node;

/// How long a connect to where nothing answers takes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The state of a link.
struct Weather {
    numbers: SeededRng,
    /// One way, at the least.
    delay: Duration,
    /// What may come on top.
    jitter: Duration,
    /// Until then nothing arrives: to the server, from it.
    held: [Option<Instant>; 2],
    /// Of the next frame this bit arrives flipped: to the server, from it.
    flips: [Option<u64>; 2],
    /// The machine at this end is off: the client's, the server's.
    off: [bool; 2],
}

/// One link.
struct Link {
    weather: Mutex<Weather>,
}

impl Link {
    fn weather(&self) -> MutexGuard<'_, Weather> {
        self.weather.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Way for Link {
    fn connect(&self) -> io::Result<()> {
        let (pause, refused) = {
            let mut weather = self.weather();
            let now = threads::now();
            let is_held = weather.held.iter().flatten().any(|until| *until > now);
            match (weather.is_off(), is_held) {
                (_, true) => (CONNECT_TIMEOUT, Some(ErrorKind::TimedOut)),
                (true, false) => (weather.delay, Some(ErrorKind::ConnectionRefused)),
                (false, false) => (2 * weather.transit(), None),
            }
        };
        threads::sleep(pause);
        // The power may have failed meanwhile.
        let failed = self
            .weather()
            .is_off()
            .then_some(ErrorKind::ConnectionRefused);
        refused.or(failed).map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn arrival(&self, to_server: bool, bytes: usize) -> Instant {
        let mut weather = self.weather();
        // About a gigabyte a second.
        let transit = weather.transit() + Duration::from_nanos(bytes as u64);
        let arrives = threads::now() + transit;
        let held = weather.held[usize::from(!to_server)];
        held.map_or(arrives, |until| until.max(arrives))
    }

    fn flipped(&self, to_server: bool) -> Option<u64> {
        self.weather().flips[usize::from(!to_server)].take()
    }
}

impl Weather {
    fn is_off(&self) -> bool {
        self.off.contains(&true)
    }

    fn transit(&mut self) -> Duration {
        let more = self.numbers.below(self.jitter.as_nanos() as u64 + 1);
        self.delay + Duration::from_nanos(more)
    }
}

/// All links.
#[derive(Default)]
pub struct Network {
    links: BTreeMap<(Node, Node), (Arc<Link>, Arc<MemPort>)>,
}

impl Network {
    /// A link from `client` to `server`.
    pub fn connect(&mut self, client: Node, server: Node, numbers: SeededRng) {
        let mut numbers = numbers;
        let delay = Duration::from_micros(20 + numbers.below(2000));
        let link = Arc::new(Link {
            weather: Mutex::new(Weather {
                delay,
                jitter: delay / 2,
                numbers,
                held: [None; 2],
                flips: [None; 2],
                off: [false, true],
            }),
        });
        let port = MemPort::over(format!("{}-{}", client.0, server.0), link.clone());
        self.links.insert((client, server), (link, port));
    }

    /// How `client` reaches `server`.
    pub fn address(&self, client: Node, server: Node) -> Option<Address> {
        let (_, port) = self.links.get(&(client, server))?;
        Some(Address::Mem(port.clone()))
    }

    /// Everything that `server` listens on.
    pub fn listens(&self, server: Node) -> Vec<Address> {
        let links = self.links.iter().filter(|((_, to), _)| *to == server);
        links
            .map(|(_, (_, port))| Address::Mem(port.clone()))
            .collect()
    }

    /// The links of `node`.
    pub fn of(&self, node: Node) -> Vec<(Node, Node)> {
        let pairs = self.links.keys();
        pairs
            .filter(|(a, b)| *a == node || *b == node)
            .copied()
            .collect()
    }

    /// Ends the connections of a link; of what is under way a part arrives.
    pub fn cut(&self, pair: (Node, Node), numbers: &mut SeededRng) {
        if let Some((_, port)) = self.links.get(&pair) {
            port.cut(|under_way| numbers.below(under_way as u64 + 1) as usize);
        }
    }

    /// The process at `node` is killed: of what it had sent and not received, a part arrives.
    pub fn kill(&self, node: Node, numbers: &mut SeededRng) {
        let links = self.links.iter();
        let own = links.filter(|((client, _), _)| *client == node);
        own.clone()
            .for_each(|(_, (link, _))| link.weather().off[0] = true);
        for (pair, _) in own {
            self.cut(*pair, numbers);
        }
    }

    /// The power of `node` fails, or is there again: nothing leaves or reaches it meanwhile.
    pub fn power(&self, node: Node, is_off: bool) {
        for ((client, server), (link, port)) in &self.links {
            for (end, off) in [*client, *server].iter().zip(&mut link.weather().off) {
                if *end == node {
                    *off = is_off;
                }
            }
            if is_off && [*client, *server].contains(&node) {
                port.cut(|_| 0);
            }
        }
    }

    /// For `time` nothing arrives: at the server, at the client.
    pub fn partition(&self, pair: (Node, Node), ways: [bool; 2], time: Duration) {
        if let Some((link, _)) = self.links.get(&pair) {
            let until = threads::now() + time;
            for (held, is_cut) in link.weather().held.iter_mut().zip(ways) {
                if is_cut {
                    *held = Some(until);
                }
            }
        }
    }

    /// Of the next frame to the server, or from it, this bit arrives flipped.
    pub fn flip(&self, pair: (Node, Node), to_server: bool, bit: u64) {
        if let Some((link, _)) = self.links.get(&pair) {
            link.weather().flips[usize::from(!to_server)] = Some(bit);
        }
    }

    /// From now on a link takes this long, and as much again by chance.
    pub fn slow(&self, pair: (Node, Node), delay: Duration) {
        if let Some((link, _)) = self.links.get(&pair) {
            let mut weather = link.weather();
            (weather.delay, weather.jitter) = (delay, delay);
        }
    }
}
