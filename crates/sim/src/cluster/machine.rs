//! A server's machine: its disks, and the boot of the server that runs on them.

use std::sync::Arc;
use std::time::Duration;

use base::{BootEpoch, Clock, Fid, Rng, SeededRng, TargetIndex, TargetKind, TargetName, Transno};
use mds::keys::Table;
use mds::serve::MdtServer;
use oss::fsck::Finding;
use oss::serve::OstServer;
use rpc::{
    CallbackResponder, ClientHandler, ClientSecret, Connected, Keeping, LastCommitted, Message,
    Peer, PeerConfig, Policy, ServedTarget, Server, ServerConfig, Service,
};
use storage::{
    FaultyDisk, KeyRange, Kv, KvOptions, MemDisk, ObjectId, ObjectStore, Pace, StorageError,
    Survivors, TableId,
};

use super::nodes::{MDT, NodeClock, OSTS, TIMEOUT};
use super::objects::{Kept, Reached};
use super::rot::{Rot, Rotten};
use super::syncs::Syncs;
use crate::network::Network;
use crate::programs::READ_BYTES;
use crate::scheduler::Node;

/// The OSTs, and which node serves each.
pub(super) fn osts() -> impl Iterator<Item = (TargetName, Node)> {
    let names = (0..).map(|index| TargetName {
        kind: TargetKind::Ost,
        index: TargetIndex(index),
    });
    names.zip(OSTS)
}

/// All that clients are told of.
pub(super) fn targets() -> impl Iterator<Item = (TargetName, Node)> {
    std::iter::once((TargetName::mdt(0), MDT)).chain(osts())
}

/// Which node serves the target that the configuration calls `text`.
pub(super) fn node_of(text: &str) -> Option<Node> {
    let found = targets().find(|(name, _)| name.to_string() == text);
    found.map(|(_, node)| node)
}

/// A machine; on or off.
pub struct Machine {
    name: TargetName,
    node: Node,
    /// Its clocks.
    pub clock: Arc<NodeClock>,
    disk: MemDisk,
    rot: Rot,
    objects: Kept,
    syncs: Syncs,
    /// How often it was started.
    pub boots: u64,
    boot: Option<Boot>,
}

struct Boot {
    disk: FaultyDisk,
    objects: Reached,
    server: Server,
    target: Served,
}

/// What had the power of a machine cut. Nothing that its threads still do reaches a disk or a link,
/// so they can be ended in order.
pub(super) struct Dead {
    _target: Served,
    server: Server,
}

impl Drop for Dead {
    fn drop(&mut self) {
        self.server.stop();
    }
}

enum Served {
    Mdt(MdtServer),
    Ost(OstServer),
}

/// The metadata server has no locks on objects to be called back.
struct NoCallbacks;

impl ClientHandler for NoCallbacks {
    fn callback(&self, _message: Message, _responder: CallbackResponder) {}
    fn epoch_changed(&self, _old: BootEpoch, _new: BootEpoch) {}
    fn evicted(&self) {}
    fn last_committed(&self, _transno: Transno) {}
}

fn words(error: &StorageError) -> String {
    error.to_string()
}

impl Machine {
    pub(super) fn format(
        name: TargetName,
        node: Node,
        clock: Arc<NodeClock>,
        numbers: &mut SeededRng,
    ) -> Result<Machine, String> {
        let disk = MemDisk::new();
        Kv::create(disk.clone()).map_err(|error| words(&error))?;
        // Every run tries both kinds.
        let objects = match name.kind == TargetKind::Ost && name.index.0 % 2 == 1 {
            true => Kept::on_extents().map_err(|error| words(&error))?,
            false => Kept::in_memory(),
        };
        let machine = Machine {
            name,
            node,
            clock,
            disk,
            rot: Rot::default(),
            objects,
            syncs: Syncs::default(),
            boots: 0,
            boot: None,
        };
        if name.kind == TargetKind::Mdt {
            let kv = machine.at_rest()?;
            let formatted = mds::format(&kv, numbers.next_u64(), machine.clock.now());
            formatted.map_err(|error| words(&error))?;
            kv.close().map_err(|error| words(&error))?;
        }
        Ok(machine)
    }

    fn tables(&self) -> Vec<(TableId, &'static str)> {
        match self.name.kind {
            TargetKind::Mdt => mds::tables(),
            _ => oss::records::TABLES.to_vec(),
        }
    }

    /// The records, while nothing serves them.
    fn at_rest(&self) -> Result<Kv, String> {
        let options = KvOptions::new(self.name.to_string()).manual();
        Kv::open(self.disk.clone(), &self.tables(), options).map_err(|error| words(&error))
    }

    /// Its target.
    pub fn name(&self) -> TargetName {
        self.name
    }

    /// It has the metadata.
    pub fn is_mdt(&self) -> bool {
        self.name.kind == TargetKind::Mdt
    }

    /// What it alone knows in this boot, where it is a client.
    pub(super) fn secret(&self) -> ClientSecret {
        let mut secret = [255; 16];
        secret[..8].copy_from_slice(&self.boots.to_le_bytes());
        ClientSecret(secret)
    }

    /// Looks at what runs on it.
    pub(super) fn look<T>(
        &self,
        mdt: impl FnOnce(&mds::Mds) -> T,
        ost: impl FnOnce(&oss::Oss) -> T,
    ) -> Option<T> {
        Some(match &self.boot.as_ref()?.target {
            Served::Mdt(server) => server.look(mdt),
            Served::Ost(server) => server.look(ost),
        })
    }

    /// The sessions with it.
    pub(super) fn connected(&self) -> Vec<Arc<Connected>> {
        let boot = self.boot.as_ref();
        boot.map_or_else(Vec::new, |boot| boot.server.sessions(self.name))
    }

    /// Whether a server runs on it.
    pub fn is_on(&self) -> bool {
        self.boot.is_some()
    }

    /// Why its server no longer serves, if it does not.
    pub fn stopped(&self) -> Option<String> {
        match &self.boot.as_ref()?.target {
            Served::Mdt(server) => server.stopped(),
            Served::Ost(server) => server.stopped(),
        }
    }

    pub(super) fn start(&mut self, network: &Arc<Network>) -> Result<(), String> {
        self.boots += 1;
        let disk = FaultyDisk::new(self.disk.clone());
        let objects = self.objects.reach(&self.syncs);
        let options = KvOptions::new(self.name.to_string());
        let rotten = Rotten {
            name: format!("disk of {}", self.name),
            disk: disk.clone(),
            rot: self.rot.clone(),
            syncs: self.syncs.clone(),
        };
        let kv = Kv::open(rotten, &self.tables(), options).map_err(|error| words(&error))?;
        let (target, last_committed) = match self.name.kind {
            TargetKind::Mdt => self.start_mdt(Arc::new(kv), network)?,
            _ => self.start_ost(Arc::new(kv), &objects)?,
        };
        let service: Arc<dyn Service> = match &target {
            Served::Mdt(server) => server.service(),
            Served::Ost(server) => server.service(),
        };
        let served = ServedTarget {
            name: self.name,
            key: None,
            server_key: None,
            boot_epoch: BootEpoch(self.boots),
            last_committed,
            service,
        };
        let config = ServerConfig {
            grace: TIMEOUT * 3 / 2,
            clock: self.clock.clone(),
            ..ServerConfig::new(network.listens(self.node))
        };
        let server = Server::start(config, vec![served]).map_err(|error| error.to_string())?;
        self.boot = Some(Boot {
            disk,
            objects,
            server,
            target,
        });
        Ok(())
    }

    fn start_mdt(
        &self,
        kv: Arc<Kv>,
        network: &Network,
    ) -> Result<(Served, Arc<LastCommitted>), String> {
        let indexes: Vec<TargetIndex> = osts().map(|(name, _)| name.index).collect();
        let rules = mds::Rules {
            osts: indexes.clone(),
            callback_deadline: TIMEOUT,
            boot_epoch: Some(BootEpoch(self.boots)),
            recovery_window: TIMEOUT,
            ..mds::Rules::default()
        };
        let committed = LastCommitted::new(Transno(0));
        let server = MdtServer::start(kv, rules, committed.clone(), self.clock.clone());
        let server = server.map_err(|error| words(&error))?;
        let peer = |(target, node)| {
            let config = PeerConfig {
                target,
                addresses: network.address(MDT, node).into_iter().collect(),
                secret: self.secret(),
                incarnation: 1,
                key: None,
                credential: rpc::Credential::Server,
                insecure: false,
                policy: Policy::Hard,
                lanes: 1,
                keeping: Keeping::Nothing,
                legacy: None,
                clocks: rpc::Clocks::default(),
            };
            let peer = Peer::new(config, Arc::new(NoCallbacks), self.clock.clone());
            Ok((target.index, peer.map_err(|error| error.to_string())?))
        };
        let peers = osts().map(peer).collect::<Result<_, String>>()?;
        server.set_osts(indexes, peers);
        Ok((Served::Mdt(server), committed))
    }

    fn start_ost(
        &self,
        kv: Arc<Kv>,
        objects: &Reached,
    ) -> Result<(Served, Arc<LastCommitted>), String> {
        let boot = oss::Boot {
            epoch: BootEpoch(self.boots),
            now: self.clock.tick(),
            wall: self.clock.now(),
            window: TIMEOUT,
        };
        let limits = dlm::Limits {
            callback_deadline: TIMEOUT,
            ..dlm::Limits::default()
        };
        let store = objects.open(kv.clone(), &self.syncs);
        let store = store.map_err(|error| words(&error))?;
        let oss = oss::Oss::open(store.clone(), kv.clone(), limits, boot, Pace::usual());
        let oss = oss.map_err(|error| words(&error))?;
        let committed = LastCommitted::new(oss.committed());
        let syncer = oss::Syncer::new(store, kv, Pace::usual());
        let server = OstServer::start(oss, syncer, committed.clone(), self.clock.clone());
        let server = server.map_err(|error| error.to_string())?;
        Ok((Served::Ost(server), committed))
    }

    /// Its power fails. What is left of the boot ends when that is dropped, on its node.
    pub(super) fn power_off(&mut self, numbers: &mut SeededRng) -> Result<Option<Dead>, String> {
        let Some(boot) = self.boot.take() else {
            return Ok(None);
        };
        let seed = numbers.next_u64();
        let survivors = match numbers.below(4) {
            0 => Survivors::Nothing,
            1 => Survivors::Last,
            2 => Survivors::Torn {
                torn_bytes: numbers.below(4096) as usize,
            },
            _ => Survivors::Random { seed },
        };
        let cut = boot.disk.power_cut(survivors);
        let cut = boot.objects.power_cut(survivors).and(cut);
        cut.map_err(|error| words(&error))?;
        Ok(Some(Dead {
            _target: boot.target,
            server: boot.server,
        }))
    }

    pub(super) fn stop(&mut self) {
        if let Some(boot) = self.boot.take() {
            boot.server.stop();
            match boot.target {
                Served::Mdt(server) => server.stop(),
                Served::Ost(server) => server.stop(),
            }
        }
    }
}

impl Machine {
    /// One bit of its records is flipped from now on; says where.
    pub fn flip_bit(&mut self, numbers: &mut SeededRng) -> Result<u64, String> {
        let flipped = self.rot.begin(&self.disk, numbers);
        flipped.map_err(|error| words(&error))
    }

    /// For `time` its disks take up to `longest` more to make something durable.
    pub fn slow_down(&self, time: Duration, longest: Duration, numbers: &mut SeededRng) {
        let numbers = SeededRng::new(numbers.next_u64());
        self.syncs.slow_down(time, longest, numbers);
    }

    /// The bit is as it was again.
    pub fn cure(&mut self) {
        self.rot.cure();
        if let Kept::Memory(_, wrong) = &self.objects {
            wrong.cure();
        }
    }

    /// One bit of one of `files` is flipped from now on, if it has bytes of them in memory; says of which.
    /// Zeros are left alone: where nothing was written there is nothing on a disk.
    pub fn flip_byte(
        &mut self,
        files: &[Fid],
        numbers: &mut SeededRng,
    ) -> Result<Option<Fid>, String> {
        let Kept::Memory(memory, wrong) = &self.objects else {
            return Ok(None);
        };
        let (mut bytes, mut stored) = (Vec::new(), Vec::new());
        let listed = memory.list(&mut |id| stored.push(id));
        listed.map_err(|error| words(&error))?;
        for id in stored.into_iter().filter(|id| files.contains(&id.fid)) {
            let read = memory.read_shared(id, 0, READ_BYTES as usize);
            let written = read.map_err(|error| words(&error))?;
            let written = (0..).zip(written).filter(|(_, byte)| *byte != 0);
            bytes.extend(written.map(|(at, _)| (id, at)));
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        let (id, at) = bytes[numbers.below(bytes.len() as u64) as usize];
        wrong.begin(id, at, numbers);
        Ok(Some(id.fid))
    }

    /// All objects that it has, while its server runs.
    pub fn stored(&self) -> Result<Vec<ObjectId>, String> {
        let stored = self.boot.as_ref().map(|boot| boot.objects.stored());
        let stored = stored.transpose().map_err(|error| words(&error))?;
        Ok(stored.unwrap_or_default())
    }

    /// Whether a check of the target at rest names the object of which a bit is flipped, if there is
    /// still one, and nothing else.
    pub fn names_wrong_byte(&self) -> Result<(), String> {
        let report = self.check(&mut |_| oss::fsck::Whose::Known)?;
        let rotten = report.findings.iter().filter_map(|finding| match finding {
            Finding::Rotten { object, .. } => Some(object.fid),
            _ => None,
        });
        let wrong = match &self.objects {
            Kept::Memory(_, wrong) => wrong.object().map(|object| object.fid),
            Kept::Extents(_) => None,
        };
        let (found, wrong): (Vec<Fid>, Vec<Fid>) = (rotten.collect(), wrong.into_iter().collect());
        match found == wrong {
            true => Ok(()),
            false => Err(format!(
                "bytes of {wrong:?} are wrong, {found:?} are said to be"
            )),
        }
    }

    /// What a check of an OST at rest finds.
    fn check(
        &self,
        whose: &mut dyn FnMut(layout::ObjectId) -> oss::fsck::Whose,
    ) -> Result<oss::fsck::Report, String> {
        let kv = Arc::new(self.at_rest()?);
        let store = self.objects.at_rest(kv.clone());
        let store = store.map_err(|error| words(&error))?;
        let report = oss::fsck::check(&*store, &kv, whose);
        report.map_err(|error| error.to_string())
    }
}

/// What is wrong with targets at rest.
pub(super) fn examine(mdt: &Machine, osts: &[Machine]) -> Vec<String> {
    let store = match mdt.at_rest() {
        Ok(kv) => mds::store::Store::new(Arc::new(kv)),
        Err(error) => return vec![error],
    };
    let state: mds::records::State = match store.get(Table::State, mds::keys::STATE) {
        Ok(Some(state)) => state,
        other => return vec![format!("MDT: its state record is {other:?}")],
    };
    let mut found = Vec::new();
    match mds::fsck::check(&store, wire::hash::NameHasher::new(state.hash_key)) {
        Ok(issues) => found.extend(issues.iter().map(|issue| format!("MDT: {}", issue.what))),
        Err(error) => found.push(format!("MDT: {error:?}")),
    }
    found.extend(osts.iter().flat_map(|ost| ost.examine(&store)));
    for table in [Table::Orphans, Table::Destroys, Table::Replies] {
        match store.is_empty(table, &KeyRange::all()) {
            Ok(true) => {}
            Ok(false) => found.push(format!("MDT: there are still {}", table.name())),
            Err(error) => found.push(format!("MDT: {error:?}")),
        }
    }
    found
}

impl Machine {
    /// What is wrong with an OST's objects, as the MDT's records know them.
    fn examine(&self, store: &mds::store::Store) -> Vec<String> {
        let name = self.name;
        let mut whose = |object| match mds::fsck::objects::claim(store, name.index, object) {
            Ok(mds::fsck::objects::Claim::Nobodys) => oss::fsck::Whose::Nobodys,
            _ => oss::fsck::Whose::Known,
        };
        match self.check(&mut whose) {
            Ok(report) => {
                let findings = report.findings.iter();
                // Nothing is under way any more: what takes space for nobody does so for ever.
                let is_wrong = |finding: &&Finding| match finding {
                    Finding::Unclaimed { for_good, .. } => *for_good,
                    _ => true,
                };
                let wrong = findings.filter(is_wrong);
                wrong.map(|finding| format!("{name}: {finding}")).collect()
            }
            Err(error) => vec![format!("{name}: {error}")],
        }
    }
}
