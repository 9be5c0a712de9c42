//! The server, its clients and the channels between them, moved on one random step at a time.

use std::time::Duration;

use base::{ClientId, Rng, SeededRng};
use dlm::Want;

use crate::client::Client;
use crate::message::ToClient;
use crate::server::Server;

type Check = Result<(), String>;

const CLIENTS: u64 = 4;
/// Steps that a correct cluster needs at most to come to rest.
const DRAIN_MAX: u32 = 200_000;

/// How often each path was taken.
#[derive(Debug, Default, Clone)]
pub struct Tally {
    pub granted: u64,
    pub granted_at_once: u64,
    pub operations: u64,
    pub blocking: u64,
    pub withdrawn: u64,
    pub readmitted: u64,
    pub glimpsed: u64,
    pub converted: u64,
    pub evicted: u64,
    pub hits: u64,
    pub child_hits: u64,
    pub list_hits: u64,
    pub read: u64,
    pub written: u64,
}

impl Tally {
    fn counts(&self) -> [u64; 14] {
        [
            self.granted,
            self.granted_at_once,
            self.operations,
            self.blocking,
            self.withdrawn,
            self.readmitted,
            self.glimpsed,
            self.converted,
            self.evicted,
            self.hits,
            self.child_hits,
            self.list_hits,
            self.read,
            self.written,
        ]
    }

    pub fn plus(&self, other: &Tally) -> Tally {
        Tally {
            granted: self.granted + other.granted,
            granted_at_once: self.granted_at_once + other.granted_at_once,
            operations: self.operations + other.operations,
            blocking: self.blocking + other.blocking,
            withdrawn: self.withdrawn + other.withdrawn,
            readmitted: self.readmitted + other.readmitted,
            glimpsed: self.glimpsed + other.glimpsed,
            converted: self.converted + other.converted,
            evicted: self.evicted + other.evicted,
            hits: self.hits + other.hits,
            child_hits: self.child_hits + other.child_hits,
            list_hits: self.list_hits + other.list_hits,
            read: self.read + other.read,
            written: self.written + other.written,
        }
    }

    /// No path was left out: a run that takes one never would prove nothing about it.
    pub fn reaches_everything(&self) -> bool {
        self.counts().iter().all(|count| *count >= 20)
    }
}

/// Everything.
pub struct Cluster {
    rng: SeededRng,
    server: Server,
    clients: Vec<Client>,
    steps: u64,
}

impl Cluster {
    pub fn new(seed: u64) -> Cluster {
        Cluster {
            rng: SeededRng::new(seed),
            server: Server::new(),
            clients: (1..=CLIENTS).map(|id| Client::new(ClientId(id))).collect(),
            steps: 0,
        }
    }

    /// One random step, with every check.
    pub fn step(&mut self) -> Check {
        match self.rng.below(1000) {
            0 => self.evict()?,
            1..300 => {
                let place = self.rng.below(CLIENTS) as usize;
                let client = &mut self.clients[place];
                if client.asked.len() < 6 {
                    client.act(&mut self.server, &mut self.rng)?;
                }
            }
            _ => self.move_on()?,
        }
        self.check()
    }

    /// Moves something on that is under way.
    fn move_on(&mut self) -> Check {
        let place = self.rng.below(CLIENTS) as usize;
        let (server, client, rng) = (&mut self.server, &mut self.clients[place], &mut self.rng);
        match rng.below(8) {
            0 => drop(server.run_one(rng)?),
            1 => client.work(server, rng),
            2 => client.release(server.now, rng),
            3 if !client.requests.is_empty() => {
                let request = rng.below(client.requests.len() as u64) as usize;
                let request = client.requests.swap_remove(request);
                server.hear(client.id, request)?;
            }
            4 => {
                if let Some(release) = client.releases.pop_front() {
                    server.hear(client.id, release)?;
                }
            }
            5 => {
                if let Some(callback) = client.callbacks.pop_front() {
                    client.hear(server, callback)?;
                }
            }
            6 if !client.replies.is_empty() => {
                let reply = rng.below(client.replies.len() as u64) as usize;
                let reply = client.replies.swap_remove(reply);
                client.hear(server, reply)?;
            }
            7 => {
                server.now = server.now.after(Duration::from_millis(rng.below(50)));
                server.tick()?;
                self.clients
                    .iter_mut()
                    .for_each(|client| client.tick(self.server.now));
            }
            _ => {}
        }
        self.post();
        Ok(())
    }

    /// Puts what the server said into the channels.
    fn post(&mut self) {
        for (to, message) in self.server.sent.drain(..) {
            let client = &mut self.clients[to.0 as usize - 1];
            match message {
                ToClient::Callback(_) | ToClient::Glimpse(..) => {
                    client.callbacks.push_back(message)
                }
                ToClient::Granted(..) | ToClient::Reply(..) => client.replies.push(message),
            }
        }
    }

    fn evict(&mut self) -> Check {
        let place = self.rng.below(CLIENTS) as usize;
        self.clients[place].reset(&mut self.server);
        self.server.evict(ClientId(place as u64 + 1))?;
        self.post();
        // What was on its way to the old incarnation is lost with it.
        self.clients[place].callbacks.clear();
        self.clients[place].replies.clear();
        Ok(())
    }

    fn check(&mut self) -> Check {
        self.steps += 1;
        for (place, client) in self.clients.iter().enumerate() {
            for pin in &client.pins {
                if let Some(op) = self.server.contradicts(client.id, &pin.used) {
                    return Err(format!("{:?} is used beside {op:?}", pin.used));
                }
                let others = self.clients[place + 1..]
                    .iter()
                    .flat_map(|other| &other.pins);
                let clash = others
                    .map(|other| &other.used)
                    .find(|used| clash(&pin.used, used));
                if let Some(used) = clash {
                    return Err(format!("{:?} and {used:?} are used at once", pin.used));
                }
            }
        }
        if self.steps.is_multiple_of(16) {
            self.server.table.audit()?;
            self.clients
                .iter()
                .try_for_each(|client| client.cache.audit())?;
        }
        Ok(())
    }

    /// Nobody starts anything new: everything must come to an end.
    pub fn drain(mut self) -> Result<Tally, String> {
        for _ in 0..DRAIN_MAX {
            if self.clients.iter().all(Client::is_quiet) && !self.server.run_one(&mut self.rng)? {
                self.server.is_done()?;
                self.server.table.audit()?;
                return Ok(self.server.tally);
            }
            self.post();
            self.move_on()?;
            self.check()?;
        }
        let asked = self.clients.iter().map(|client| (client.id, &client.asked));
        Err(format!("never at rest: {:?}", asked.collect::<Vec<_>>()))
    }
}

fn clash(a: &Want, b: &Want) -> bool {
    match (a, b) {
        (
            Want::Lock {
                resource,
                mode,
                cover,
            },
            Want::Lock {
                resource: on,
                mode: other,
                cover: part,
            },
        ) => resource == on && !mode.compatible(*other) && cover.overlaps(*part),
        _ => false,
    }
}
