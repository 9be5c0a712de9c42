//! The management service: which targets there are, and where. Small enough to live here.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use base::{ClientId, TargetKind, Xid};
use rpc::{
    Address, Batch, Connected, Departure, ReplyBatch, ReplyMessage, Responder, Service, Unwelcome,
};
use storage::{Kv, TableId};
use wire::mgs::{Config, Reply, Request, TargetInfo};

/// The MGS's one table: one record, the configuration.
pub const TABLE: TableId = TableId(1);
const KEY: &[u8] = b"config";

/// Keeps the configuration and tells it.
pub struct Mgs {
    kv: Kv,
    config: Mutex<Config>,
}

impl Mgs {
    /// Reads the configuration, or begins one for the file system.
    pub fn open(kv: Kv, fsname: &str, uuid: [u8; 16]) -> Result<Arc<Mgs>, String> {
        let stored = kv.get(TABLE, KEY).map_err(|error| error.to_string())?;
        let config = match stored {
            Some(bytes) => wire::decode(&bytes).map_err(|error| format!("MGS: {error}"))?,
            None => Config {
                fsname: fsname.to_owned(),
                uuid,
                generation: 0,
                targets: Vec::new(),
            },
        };
        Ok(Arc::new(Mgs {
            kv,
            config: Mutex::new(config),
        }))
    }

    /// Notes where targets are, durably: all of them or none; a target that comes back elsewhere has
    /// moved.
    pub fn register(&self, targets: Vec<TargetInfo>) -> Result<Config, String> {
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = config.clone();
        for target in targets {
            match next
                .targets
                .iter_mut()
                .find(|known| known.name == target.name)
            {
                Some(known) if known.uuid != target.uuid => {
                    let known = known.clone();
                    return Err(is_another(&known, &next.targets));
                }
                Some(known) => *known = target,
                None => next.targets.push(target),
            }
        }
        next.targets.sort_by_key(|target| target.name);
        if next.targets != config.targets {
            next.generation += 1;
            let mut batch = storage::Batch::new();
            batch.put(TABLE, KEY, wire::encode(&next));
            let stored = self
                .kv
                .commit(batch)
                .and_then(|ticket| self.kv.wait_durable(ticket));
            stored.map_err(|error| error.to_string())?;
            tell_of_moves(&config.targets, &next.targets);
            *config = next;
        }
        Ok(config.clone())
    }

    /// Answers who came from `peer`.
    fn answer(&self, peer: &str, body: &[u8]) -> ReplyMessage {
        let config = match wire::decode::<Request>(body) {
            Ok(Request::GetConfig) => self.register(Vec::new()),
            Ok(Request::Register { targets }) => {
                let targets = targets.into_iter();
                self.register(targets.map(|target| seen_from(peer, target)).collect())
            }
            Err(error) => {
                tracing::warn!("MGS: {error}");
                return ReplyMessage {
                    status: wire::status_of(Err(base::FsError::Invalid)),
                    body: Vec::new(),
                };
            }
        };
        let reply = config.map_or_else(
            |reason| {
                tracing::warn!("MGS: {peer}: {reason}");
                Reply::Refused { reason }
            },
            Reply::Config,
        );
        ReplyMessage {
            status: 0,
            body: wire::encode(&reply),
        }
    }
}

fn tell_of_moves(before: &[TargetInfo], now: &[TargetInfo]) {
    for target in now.iter().filter(|target| !before.contains(target)) {
        let (name, at) = (target.name, target.addresses.join(","));
        tracing::info!("MGS: {name} is at {at} now");
    }
}

/// Why a target with the number of a `known` one is refused that is not that one, and what to do. An
/// empty one in its place would show its files as empty, so that it never takes it by itself.
fn is_another(known: &TargetInfo, all: &[TargetInfo]) -> String {
    let (name, at) = (known.name, known.addresses.join(","));
    let found = format!(
        "{name} of this file system is another target than the one in the directory named here, and \
         was last served at {at}"
    );
    if name.kind != TargetKind::Ost {
        return format!(
            "{found}; serve that one, or a copy of it; if it was erased, all files are lost with it: \
             make the file system anew, with glint format --erase for each of its targets, the MGS \
             and the OSTs too"
        );
    }
    let osts = all
        .iter()
        .filter(|target| target.name.kind == TargetKind::Ost);
    let free = osts.map(|ost| ost.name.index.0 + 1).max().unwrap_or(0);
    let was = name.index.0;
    format!(
        "{found}; if that one is still there, or a copy of it, serve that; an empty one can't take its \
         place, as its files would read as empty: to add the one here beside it give it a number that \
         was never used (glint format DIR --erase ost{was} --role ost{free} --join DIR2, DIR2 being a \
         directory of the file system); what files had on an OST{was} that was erased is lost, and \
         calls on them wait for it"
    )
}

/// The target with addresses that others can use: it listens on all addresses of the machine that it
/// registered from. Where that is this machine, others know it by the MGS's own address.
fn seen_from(peer: &str, target: TargetInfo) -> TargetInfo {
    let socket = peer.parse::<SocketAddr>().ok();
    let Some(socket) = socket.filter(|socket| !socket.ip().is_loopback()) else {
        return target;
    };
    let peer = Address::Tcp(socket.to_string());
    let seen = |text: String| {
        let address = text.parse::<Address>().ok();
        let wildcard = address.filter(Address::is_wildcard);
        let found = wildcard.and_then(|address| address.at_host_of(&peer));
        found.map_or(text, |address| address.to_string())
    };
    TargetInfo {
        addresses: target.addresses.into_iter().map(seen).collect(),
        ..target
    }
}

impl Service for Mgs {
    fn connected(&self, _session: Arc<Connected>) -> Result<(), Unwelcome> {
        Ok(())
    }

    fn request(
        &self,
        session: &Arc<Connected>,
        _xid: Xid,
        _resent: bool,
        batch: Batch,
        responder: Responder,
    ) {
        let replies = batch
            .messages
            .iter()
            .map(|message| self.answer(&session.peer().address, &message.body))
            .collect();
        responder.reply(ReplyBatch {
            replies,
            ..ReplyBatch::default()
        });
    }

    fn disconnected(&self, _client: ClientId) {}

    fn succeeded(&self, _session: Arc<Connected>) {}

    fn expired(&self, _client: ClientId, _how: Departure) {}
}

#[cfg(test)]
mod tests {
    use base::{TargetIndex, TargetName};
    use storage::{FaultyDisk, KvOptions, MemDisk, Survivors};

    use super::*;

    #[test]
    fn all_addresses_of_another_machine_are_the_one_it_came_from() {
        let target = TargetInfo {
            name: TargetName {
                kind: TargetKind::Ost,
                index: TargetIndex(0),
            },
            uuid: [0; 16],
            addresses: vec!["0.0.0.0:7".into(), "10.0.0.9:7".into(), "unix:/s".into()],
        };
        let seen = |peer| seen_from(peer, target.clone()).addresses;
        assert_eq!(
            seen("10.0.0.2:40000"),
            ["10.0.0.2:7", "10.0.0.9:7", "unix:/s"]
        );
        for here in ["127.0.0.1:40000", "[::1]:40000", "mem:1", "unix:/s (pid 3)"] {
            assert_eq!(seen(here), target.addresses);
        }
    }

    fn ost(index: u16, uuid: u8, address: &str) -> TargetInfo {
        TargetInfo {
            name: TargetName {
                kind: TargetKind::Ost,
                index: TargetIndex(index),
            },
            uuid: [uuid; 16],
            addresses: vec![address.to_owned()],
        }
    }

    #[test]
    fn a_registration_that_is_refused_moves_no_target() {
        let kv = Kv::scratch(&[(TABLE, "config")]).expect("a store");
        let mgs = Mgs::open(kv, "glint", [0; 16]).expect("an MGS");
        let known = mgs.register(vec![ost(0, 1, "a"), ost(1, 2, "a")]);
        let known = known.expect("they are new");
        let impostor = vec![ost(0, 1, "b"), ost(2, 4, "b"), ost(1, 3, "b")];
        mgs.register(impostor).expect_err("OST1 is another");
        assert_eq!(mgs.register(Vec::new()), Ok(known));
    }

    #[test]
    fn what_did_not_become_durable_is_not_told() {
        let disk = FaultyDisk::new(MemDisk::new());
        Kv::create(disk.clone()).expect("a store");
        let options = KvOptions::new("MGS").manual();
        let kv = Kv::open(disk.clone(), &[(TABLE, "config")], options).expect("it opens");
        let mgs = Mgs::open(kv, "glint", [0; 16]).expect("an MGS");
        let known = mgs.register(vec![ost(0, 1, "a")]).expect("it is new");
        disk.cut_after(disk.changes());
        let moved = vec![ost(0, 1, "b")];
        mgs.register(moved).expect_err("there is no power");
        assert_eq!(mgs.register(Vec::new()), Ok(known));
    }
    /// Where an OST was, one place after another, and a second one that came in between.
    fn registrations() -> Vec<Vec<TargetInfo>> {
        vec![
            vec![ost(0, 1, "a")],
            vec![ost(0, 1, "b"), ost(1, 2, "b")],
            vec![ost(0, 1, "a")],
            vec![ost(1, 2, "c"), ost(2, 3, "c")],
        ]
    }

    /// An MGS on `disk`, registering until something fails. What it told last.
    fn register_all(disk: &FaultyDisk) -> Option<Config> {
        let options = KvOptions::new("MGS").manual();
        let kv = Kv::open(disk.clone(), &[(TABLE, "config")], options).ok()?;
        let mgs = Mgs::open(kv, "glint", [0; 16]).expect("an MGS");
        let mut told = mgs.register(Vec::new()).ok()?;
        for targets in registrations() {
            match mgs.register(targets) {
                Ok(config) => told = config,
                Err(_) => return Some(told),
            }
        }
        Some(told)
    }

    #[test]
    fn a_power_cut_at_any_write_leaves_what_was_told_or_what_was_being_noted() {
        let fresh = || {
            let disk = MemDisk::new();
            Kv::create(disk.clone()).expect("a store");
            disk
        };
        let whole = FaultyDisk::new(fresh());
        let last = register_all(&whole).expect("nothing fails");
        assert_eq!((last.generation, last.targets.len()), (4, 3));
        for cut in 0..whole.changes() {
            for survivors in [
                Survivors::Nothing,
                Survivors::Last,
                Survivors::Torn { torn_bytes: 512 },
                Survivors::Random { seed: cut },
            ] {
                let platter = fresh();
                let disk = FaultyDisk::new(platter.clone());
                disk.cut_after(cut);
                let told = register_all(&disk).map_or(0, |config| config.generation);
                disk.power_cut(survivors).expect("a disk in memory");
                let again = FaultyDisk::new(platter);
                let options = KvOptions::new("MGS").manual();
                let kv = Kv::open(again.clone(), &[(TABLE, "config")], options);
                let mgs = Mgs::open(kv.expect("it opens"), "glint", [0; 16]).expect("an MGS");
                let found = mgs.register(Vec::new()).expect("nothing is new");
                let generation = found.generation;
                assert!(
                    generation == told || generation == told + 1,
                    "{told} was told and {generation} is there: cut after {cut}, {survivors:?}"
                );
                drop(mgs);
                let ends = register_all(&again).expect("nothing fails any more");
                assert_eq!(ends.targets, last.targets);
            }
        }
    }
}
