//! The management service: which targets there are, and where. Small enough to live here.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::limits::{ADDRESS_BYTES_MAX, TARGET_ADDRESSES_MAX, TARGETS_MAX};
use base::{ClientId, TargetKind, TargetName, Xid};
use rpc::{
    Address, Batch, Connected, Departure, PeerInfo, ReplyBatch, ReplyMessage, Responder, Service,
    Unwelcome,
};
use storage::{Kv, TableId};
use wire::mgs::{Config, Reply, Request, TargetInfo};

/// The MGS's one table: one record, the configuration.
pub const TABLE: TableId = TableId(1);
const KEY: &[u8] = b"config";
/// The targets that were removed: their numbers are not given to others, whose files would be empty.
const REMOVED: &[u8] = b"removed";
/// A target that registered within this time is being served: its server says so every ten seconds.
const SERVED_FOR: Duration = Duration::from_secs(30);

/// Keeps the configuration and tells it.
pub struct Mgs {
    kv: Kv,
    state: Mutex<State>,
}

struct State {
    config: Config,
    removed: Vec<(TargetName, [u8; 16])>,
    /// When a target registered last, in this life of the MGS.
    heard: HashMap<TargetName, Instant>,
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
        let removed = kv.get(TABLE, REMOVED).map_err(|error| error.to_string())?;
        let removed = removed.map(|bytes| wire::decode(&bytes)).transpose();
        let removed = removed.map_err(|error| format!("MGS: {error}"))?;
        Ok(Arc::new(Mgs {
            kv,
            state: Mutex::new(State {
                config,
                removed: removed.unwrap_or_default(),
                heard: HashMap::new(),
            }),
        }))
    }

    /// Notes where targets are, durably: all of them or none; a target that comes back elsewhere has
    /// moved.
    pub fn register(&self, targets: Vec<TargetInfo>) -> Result<Config, String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = state.config.clone();
        let names: Vec<TargetName> = targets.iter().map(|target| target.name).collect();
        for target in targets {
            let (name, uuid) = (target.name, target.uuid);
            let mut removed = state.removed.iter();
            if removed.any(|(known, was)| *known == name && *was != uuid) {
                return Err(format!(
                    "{name} of this file system was another target, and was removed; an empty one can't \
                     take its place, as its files would read as empty: give this one a number that was \
                     never used"
                ));
            }
            let count = next.targets.len();
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
                None if count >= TARGETS_MAX => {
                    return Err(format!(
                        "{TARGETS_MAX} targets are known, and no more may be"
                    ));
                }
                None => next.targets.push(target),
            }
        }
        next.targets.sort_by_key(|target| target.name);
        if next.targets != state.config.targets {
            next.generation += 1;
            let mut batch = storage::Batch::new();
            batch.put(TABLE, KEY, wire::encode(&next));
            self.store(batch)?;
            tell_of_moves(&state.config.targets, &next.targets);
            state.config = next;
        }
        let now = Instant::now();
        state
            .heard
            .extend(names.into_iter().map(|name| (name, now)));
        Ok(state.config.clone())
    }

    /// Forgets a target that nobody serves, durably. Its number stays its own.
    pub fn remove(&self, name: TargetName) -> Result<Config, String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = state.config.clone();
        let at = next.targets.iter().position(|target| target.name == name);
        let at = at.ok_or_else(|| format!("{name} is no target of this file system"))?;
        if name == TargetName::MGS {
            return Err("the MGS can't remove itself".to_owned());
        }
        let heard = state.heard.get(&name);
        if heard.is_some_and(|heard| heard.elapsed() < SERVED_FOR) {
            let addresses = next.targets[at].addresses.join(",");
            return Err(format!(
                "{name} is being served at {addresses}; stop it, wait {} s, and remove it then",
                SERVED_FOR.as_secs()
            ));
        }
        let gone = next.targets.remove(at);
        next.generation += 1;
        let mut removed = state.removed.clone();
        removed.retain(|known| *known != (name, gone.uuid));
        removed.push((name, gone.uuid));
        let mut batch = storage::Batch::new();
        batch.put(TABLE, KEY, wire::encode(&next));
        batch.put(TABLE, REMOVED, wire::encode(&removed));
        self.store(batch)?;
        tracing::info!("MGS: {name} is removed");
        (state.config, state.removed) = (next, removed);
        Ok(state.config.clone())
    }

    fn store(&self, batch: storage::Batch) -> Result<(), String> {
        let stored = self.kv.commit(batch);
        let durable = stored.and_then(|ticket| self.kv.wait_durable(ticket));
        durable.map_err(|error| error.to_string())
    }

    /// Answers a peer.
    fn answer(&self, peer: &PeerInfo, body: &[u8]) -> ReplyMessage {
        let config = match wire::decode::<Request>(body) {
            Ok(Request::GetConfig) => self.register(Vec::new()),
            Ok(Request::Register { .. } | Request::Remove { .. }) if !peer.is_server() => Err(
                "targets are registered and removed by who has the key of the servers, \
                     DIR/server-key, and this peer has not proven that one"
                    .to_owned(),
            ),
            Ok(Request::Register { targets }) => check(&targets).and_then(|()| {
                let targets = targets.into_iter();
                let seen = targets.map(|target| seen_from(&peer.address, target));
                self.register(seen.collect())
            }),
            Ok(Request::Remove { target }) => self.remove(target),
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
                tracing::warn!("MGS: {}: {reason}", peer.address);
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

/// What is registered is told to every mount: addresses are addresses, and no more of them than a mount
/// would try.
fn check(targets: &[TargetInfo]) -> Result<(), String> {
    for target in targets {
        let name = target.name;
        if target.addresses.is_empty() || target.addresses.len() > TARGET_ADDRESSES_MAX {
            return Err(format!(
                "{name} has {} addresses; it must have 1 to {TARGET_ADDRESSES_MAX}",
                target.addresses.len()
            ));
        }
        for address in &target.addresses {
            if address.len() > ADDRESS_BYTES_MAX {
                let bytes = address.len();
                return Err(format!(
                    "an address of {name} has {bytes} bytes, more than {ADDRESS_BYTES_MAX}"
                ));
            }
            let parsed = address.parse::<Address>();
            parsed.map_err(|error| format!("{name}: {error}"))?;
        }
    }
    Ok(())
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
    let used: Vec<u16> = osts.map(|ost| ost.name.index.0).collect();
    // Not one in between: it may have been another's once.
    let after = used
        .iter()
        .max()
        .map_or(Some(0), |last| last.checked_add(1));
    let free = after.unwrap_or_else(|| (0..u16::MAX).find(|one| !used.contains(one)).unwrap_or(0));
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
            .map(|message| self.answer(session.peer(), &message.body))
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
    use base::TargetIndex;
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
    fn a_target_that_is_gone_is_removed_and_its_number_stays_its_own() {
        let kv = Kv::scratch(&[(TABLE, "config")]).expect("a store");
        let mgs = Mgs::open(kv, "glint", [0; 16]).expect("an MGS");
        let known = mgs.register(vec![ost(0, 1, "a"), ost(1, 2, "a")]);
        known.expect("they are new");
        let served = mgs.remove(ost(1, 2, "a").name).expect_err("it is served");
        assert!(served.contains("OST1 is being served at a"), "{served}");
        mgs.state.lock().expect("unhurt").heard.clear();
        let left = mgs.remove(ost(1, 2, "a").name).expect("nobody serves it");
        assert_eq!(left.targets, [ost(0, 1, "a")]);
        mgs.remove(ost(1, 2, "a").name).expect_err("it is gone");
        let other = mgs.register(vec![ost(1, 3, "a")]).expect_err("empty");
        assert!(other.contains("would read as empty"), "{other}");
        let back = mgs.register(vec![ost(1, 2, "b")]).expect("it is itself");
        assert_eq!(back.targets.len(), 2);
    }

    #[test]
    fn what_is_no_address_is_not_registered() {
        let with = |addresses: &[&str]| TargetInfo {
            addresses: addresses.iter().map(|text| (*text).to_owned()).collect(),
            ..ost(0, 1, "a")
        };
        let long = format!("{}:7", "h".repeat(ADDRESS_BYTES_MAX));
        for wrong in [
            &[][..],
            &["10.0.0.1:7"; TARGET_ADDRESSES_MAX + 1],
            &["10.0.0.1:7", "a b"],
            &["10.0.0.1:70000"],
            &["h\n:7"],
            &[""],
            &[&long],
        ] {
            check(&[with(wrong)]).expect_err("it is none");
        }
        assert_eq!(
            check(&[with(&["10.0.0.1:7", "unix:/s", "[::1]:7"])]),
            Ok(())
        );
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
