//! A serving process: every target of its directories behind one listener.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::{Clock, TargetKind, TargetName, Transno};
use rpc::window::RECOVERY_WINDOW;
use rpc::{
    Address, Credential, Key, LastCommitted, MemPort, ServedTarget, Server, ServerConfig, Service,
};
use storage::extents::{ExtentObjects, Options};
use storage::{
    COMMIT_MS, Fence, KeyKind, Kv, KvOptions, ObjectStore, Pace, Process, SealedObjects,
    StorageError, Target, TargetDir, TargetError, TargetKey,
};
use wire::mgs::{Config, TargetInfo};

use crate::control::of_targets::{Controls, ServedTargets};
use crate::descriptors::{Descriptors, Shares};
use crate::directories;
use crate::memory;
use crate::mgs::{self, Mgs};
use crate::port_holder::why_not_started;
use crate::registration::{self, Followed, Following, Registration, Way};
use crate::unopened::{NotOpened, Unopened};

/// Finds the way to an address as the configuration spells it.
pub type Reach = Arc<dyn Fn(&str) -> Option<Address> + Send + Sync>;

/// What is done when another process has taken a target.
pub type WhenFenced = Arc<dyn Fn(&StorageError) + Send + Sync>;

/// What to serve, and where.
pub struct ServeConfig {
    /// Directories with targets.
    pub dirs: Vec<PathBuf>,
    /// Addresses to listen on.
    pub listen: Vec<Address>,
    /// Beyond loopback although nothing is encrypted.
    pub insecure: bool,
    /// Changes of names are said to be durable before they are: for measurements.
    pub undurable: bool,
    /// Addresses at which these targets are served at other times, by this machine or another.
    pub also: Vec<Address>,
    /// Where the MGS is, if it is not among the targets.
    pub mgs: Vec<Address>,
    /// Acts as on the machine of this name: see [`Process::apart`].
    pub machine: Option<String>,
    /// What to do, at once, when another process has taken a target: it must not return to serve it.
    pub when_fenced: WhenFenced,
    /// How long a client may take to give a lock back, and two thirds of how long it may be gone.
    /// Beyond: it is evicted.
    pub timeout: Duration,
    /// A mount in this process is gone on with by the next, with what these targets lose.
    pub mount_outlives: bool,
    /// This process mounts as well.
    pub mounts: bool,
    /// Open files that it may have.
    pub descriptors: Descriptors,
}

/// The way from this process to its targets.
fn port_of_this_process(mount_outlives: bool) -> Arc<MemPort> {
    match mount_outlives {
        true => MemPort::for_supervised("here"),
        false => MemPort::new("here"),
    }
}

/// Where others come to, and how many.
fn server_config(
    config: &ServeConfig,
    port: &Arc<MemPort>,
    shares: Shares,
    clock: Arc<dyn Clock>,
) -> ServerConfig {
    let mut listen = config.listen.clone();
    listen.push(Address::Mem(port.clone()));
    ServerConfig {
        insecure: config.insecure,
        grace: config.timeout * 3 / 2,
        connections_max: shares.connections,
        replies_bytes_max: memory::replies_bytes_max(),
        clock,
        ..ServerConfig::new(listen)
    }
}

/// Targets being served.
pub struct Serving {
    following: Option<Following>,
    fences: Vec<Arc<Fence>>,
    server: Option<Server>,
    mdts: Vec<Arc<mds::serve::MdtServer>>,
    osts: Vec<oss::serve::OstServer>,
    addresses: Vec<Address>,
    port: Arc<MemPort>,
    config: Config,
    controls: Vec<Controls>,
    has_mgs: bool,
    /// Of which of those that have stopped a person was told.
    told: BTreeSet<TargetName>,
}

/// One target, opened and not yet served.
struct Opened {
    info: TargetInfo,
    served: ServedTarget,
}

/// What is proven to the targets of a directory.
struct Keys {
    client: Key,
    server: Key,
}

/// The key that servers prove to each other. Where no directory has one, as those made before there was
/// one, it is made with the MGS.
fn known_server_key(opened: &mut [(&Path, TargetDir)]) -> Result<TargetKey, String> {
    if let Some(known) = opened.iter().find_map(|(_, dir)| dir.server_key()) {
        return Ok(known.clone());
    }
    let (path, _) = opened.first().ok_or("no directory to serve")?;
    let path = KeyKind::Server.path_in(path);
    let has_mgs = |dir: &TargetDir| {
        let mut targets = dir.targets().iter();
        targets.any(|target| target.superblock().target == TargetName::MGS)
    };
    let made = match opened.iter_mut().find(|(_, dir)| has_mgs(dir)) {
        Some((_, dir)) => dir.add_server_key(None),
        None => Err(TargetError::ServerKeyMissing { path }),
    };
    made.map_err(|error| error.to_string())
}

/// The same, which all directories have then.
fn settle_server_key(opened: &mut [(&Path, TargetDir)]) -> Result<Key, String> {
    let key = known_server_key(opened)?;
    for (path, dir) in opened {
        match dir.server_key() {
            Some(found) if *found == key => {}
            Some(_) => {
                return Err(format!(
                    "{} is not the key of the other directories' servers; copy theirs, if they are of one file system",
                    KeyKind::Server.path_in(path).display()
                ));
            }
            None => {
                let added = dir.add_server_key(Some(&key));
                added.map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(Key::new(*key.as_bytes()))
}

struct Opening {
    timeout: Duration,
    undurable: bool,
    shares: Shares,
    targets: Vec<Opened>,
    mgs: Option<Arc<Mgs>>,
    fences: Vec<Arc<Fence>>,
    mdts: Vec<Arc<mds::serve::MdtServer>>,
    osts: Vec<oss::serve::OstServer>,
    controls: Vec<Controls>,
    /// Those that could not be opened, and why.
    damaged: Vec<(TargetName, String)>,
}

impl Serving {
    /// Opens every target and serves it.
    pub fn start(config: &ServeConfig, clock: Arc<dyn Clock>) -> Result<Serving, String> {
        let mut opened = open_all(config)?;
        let shares = shares(config, &opened)?;
        let mut opening = Opening::new(config, shares);
        let server_key = settle_server_key(&mut opened)?;
        opening.open_all(config, opened, &server_key, &clock)?;
        let port = port_of_this_process(config.mount_outlives);
        let server_config = server_config(config, &port, shares, clock.clone());
        let Opening {
            targets,
            mgs,
            fences,
            mdts,
            osts,
            controls,
            ..
        } = opening;
        let (infos, served): (Vec<_>, Vec<_>) = targets
            .into_iter()
            .map(|target| (target.info, target.served))
            .unzip();
        let server =
            Server::start(server_config, served).map_err(|error| why_not_started(&error))?;
        let addresses = told_to_others(server.local_addresses());
        let has_mgs = mgs.is_some();
        let registration = Registration {
            mgs,
            addresses: config.mgs.clone(),
            way: Way {
                key: server_key,
                credential: Credential::Server,
                insecure: config.insecure,
                clock,
                clocks: rpc::Clocks::default(),
            },
            here: (port.clone(), infos.iter().map(|info| info.name).collect()),
        };
        let told = infos.into_iter();
        let told = told.map(|info| registration::at(info, &addresses, &config.also));
        let followed = Followed {
            registration,
            told: told.collect(),
            fences: fences.clone(),
            mdts: mdts.clone(),
        };
        let found = followed.begin()?;
        Ok(Serving {
            following: Some(Following::start(followed)?),
            fences,
            server: Some(server),
            mdts,
            osts,
            addresses,
            port,
            config: found,
            controls,
            has_mgs,
            told: BTreeSet::new(),
        })
    }

    /// Where others reach it; if nobody can, where this process does.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The way from this very process, which needs no socket and no key.
    pub fn here(&self) -> Address {
        Address::Mem(self.port.clone())
    }

    /// How a mount in this process reaches an address of the configuration.
    pub fn reach(&self) -> Reach {
        let (here, ours) = (self.here(), self.addresses.clone());
        Arc::new(move |text| {
            let is_here = ours.iter().any(|address| address.to_string() == text);
            if is_here {
                Some(here.clone())
            } else {
                text.parse().ok()
            }
        })
    }

    /// The file system.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The targets, for questions about them.
    pub fn targets(&self) -> ServedTargets {
        ServedTargets {
            fsname: self.config.fsname.clone(),
            targets: self.controls.clone(),
        }
    }

    /// Why targets no longer serve: those that do not.
    fn stopped(&self) -> Vec<(TargetName, String)> {
        let stopped = |of: &Controls| Some((of.name, of.recovering.stopped()?));
        self.controls.iter().filter_map(stopped).collect()
    }

    /// The targets that have stopped, each on its own; a person is told of those that have since.
    pub fn look_for_stopped(&mut self) -> Vec<TargetName> {
        let stopped = self.stopped();
        for (target, reason) in &stopped {
            if self.told.insert(*target) {
                tracing::error!("{target} has stopped, other targets here serve on: {reason}");
            }
        }
        stopped.into_iter().map(|(target, _)| target).collect()
    }

    /// Whether any target serves on where these have stopped.
    pub fn serves_beside(&self, stopped: &[TargetName]) -> bool {
        self.has_mgs || stopped.len() < self.controls.len()
    }

    /// Why the process that serves them fails, if targets have stopped.
    pub fn outcome(&self) -> Result<(), String> {
        let stopped = self.stopped().into_iter();
        let words: Vec<String> = stopped
            .map(|(target, reason)| format!("{target} has stopped: {reason}"))
            .collect();
        match words.is_empty() {
            true => Ok(()),
            false => Err(words.join("; ")),
        }
    }

    /// Makes everything durable and ends. Nothing is lost.
    pub fn stop(&mut self) {
        self.fences.iter().for_each(|fence| fence.hurry());
        self.following = None;
        if let Some(server) = self.server.take() {
            server.stop();
        }
        self.mdts.iter().for_each(|mdt| mdt.stop());
        self.osts.iter().for_each(oss::serve::OstServer::stop);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop();
        self.controls.clear();
        (self.mdts, self.osts) = (Vec::new(), Vec::new());
        // Nothing is written any more.
        self.fences.iter().for_each(|fence| fence.let_go());
    }
}

impl Opening {
    fn new(config: &ServeConfig, shares: Shares) -> Opening {
        Opening {
            timeout: config.timeout,
            undurable: config.undurable,
            shares,
            targets: Vec::new(),
            mgs: None,
            fences: Vec::new(),
            mdts: Vec::new(),
            osts: Vec::new(),
            controls: Vec::new(),
            damaged: Vec::new(),
        }
    }

    /// Opens the targets of every directory.
    fn open_all(
        &mut self,
        config: &ServeConfig,
        opened: Vec<(&Path, TargetDir)>,
        server_key: &Key,
        clock: &Arc<dyn Clock>,
    ) -> Result<(), String> {
        for (dir, found) in opened {
            let keys = Keys {
                client: Key::new(*found.key().as_bytes()),
                server: server_key.clone(),
            };
            for target in found.into_targets() {
                if let Some(fence) = target.fence() {
                    let act = config.when_fenced.clone();
                    fence.on_loss(move |cause| act(cause));
                    self.fences.push(fence.clone());
                }
                self.open_or_hold(dir, target, &keys, clock)?;
            }
        }
        self.refuse_useless(config.mounts)
    }

    /// Opens a target. A damaged one is held and reported, but serves nobody.
    fn open_or_hold(
        &mut self,
        dir: &Path,
        target: Target,
        keys: &Keys,
        clock: &Arc<dyn Clock>,
    ) -> Result<(), String> {
        let name = target.superblock().target;
        let (service, committed) = match self.open(dir, &target, clock) {
            Ok(opened) => opened,
            Err(NotOpened::Failed(reason)) => return Err(reason),
            Err(NotOpened::Damaged(reason)) => {
                let unopened = Unopened::new(reason.clone());
                self.controls.push(unopened.controls(name));
                self.damaged.push((name, reason));
                let service: Arc<dyn Service> = unopened;
                (service, LastCommitted::new(Transno(0)))
            }
        };
        self.targets
            .push(opened(target, (service, committed), keys));
        Ok(())
    }

    /// Fails where each target is damaged, or one that the others need. Those are the MGS, and for a mount in
    /// this process the MDT.
    fn refuse_useless(&self, mounts: bool) -> Result<(), String> {
        let is_needed = |name: &TargetName| match name.kind {
            TargetKind::Mgs => true,
            TargetKind::Mdt => mounts,
            TargetKind::Ost => false,
        };
        let needed = self.damaged.iter().any(|(name, _)| is_needed(name));
        if !needed && self.damaged.len() < self.targets.len() {
            return Ok(());
        }
        match self
            .damaged
            .iter()
            .map(|(_, reason)| reason.as_str())
            .collect::<Vec<_>>()
        {
            reasons if reasons.is_empty() => Ok(()),
            reasons => Err(reasons.join("; ")),
        }
    }

    fn rules(&self, boot_epoch: base::BootEpoch) -> mds::Rules {
        let usual = mds::Rules::default();
        mds::Rules {
            callback_deadline: self.timeout,
            boot_epoch: Some(boot_epoch),
            recovery_window: self.timeout.min(usual.recovery_window),
            undurable: self.undurable,
            ..usual
        }
    }

    fn lock_limits(&self) -> dlm::Limits {
        dlm::Limits {
            callback_deadline: self.timeout,
            ..dlm::Limits::default()
        }
    }

    /// The bytes of the objects of an OST on extents.
    fn extents(
        &self,
        target: &Target,
        kv: &Arc<Kv>,
    ) -> Result<Option<Arc<ExtentObjects>>, StorageError> {
        if !target.has_extents() {
            return Ok(None);
        }
        let (disk, options) = (Arc::new(target.extents()?), Options::default());
        let store = ExtentObjects::open(disk, kv.clone(), oss::records::EXTENTS, options)?;
        Ok(Some(Arc::new(store)))
    }

    /// The bytes of the objects of an OST in files.
    fn files(&self, target: &Target, kv: &Arc<Kv>) -> Result<Arc<dyn ObjectStore>, StorageError> {
        let files = Arc::new(target.objects_keeping(self.shares.objects)?);
        let seals = oss::records::SEALS;
        Ok(Arc::new(SealedObjects::new(files, kv.clone(), seals)))
    }

    /// Starts an OST, with its newest durable change.
    fn open_ost(
        &mut self,
        dir: &Path,
        target: &Target,
        clock: &Arc<dyn Clock>,
    ) -> Result<(oss::serve::OstServer, Arc<LastCommitted>), NotOpened> {
        let superblock = target.superblock();
        let name = superblock.target;
        let at = |error: StorageError| not_opened(name, dir, &error);
        let tables = oss::records::TABLES;
        let kv = Arc::new(target.kv(&tables, options(name)).map_err(at)?);
        let extents = self.extents(target, &kv).map_err(at)?;
        let store = match &extents {
            Some(extents) => extents.clone(),
            None => self.files(target, &kv).map_err(at)?,
        };
        let boot = oss::Boot {
            epoch: superblock.boot_epoch,
            now: clock.tick(),
            wall: clock.now(),
            window: self.timeout.min(RECOVERY_WINDOW),
        };
        let pace = Pace::usual();
        let limits = self.lock_limits();
        let oss = oss::Oss::open(store.clone(), kv.clone(), limits, boot, pace.clone());
        let oss = oss.map_err(at)?;
        let committed = LastCommitted::new(oss.committed());
        let syncer = oss::Syncer::new(store, kv, pace.clone());
        let server = oss::serve::OstServer::start(oss, syncer, committed.clone(), clock.clone());
        let server = server.map_err(|error| format!("{name}: {error}"))?;
        self.controls.push(Controls {
            name,
            scheduling: server.scheduling(),
            recovering: server.recovering(),
            pace,
            extents,
        });
        Ok((server, committed))
    }

    fn open(
        &mut self,
        dir: &Path,
        target: &Target,
        clock: &Arc<dyn Clock>,
    ) -> Result<(Arc<dyn Service>, Arc<LastCommitted>), NotOpened> {
        let superblock = target.superblock().clone();
        let name = superblock.target;
        let at = |error: StorageError| not_opened(name, dir, &error);
        let committed;
        let service: Arc<dyn Service> = match name.kind {
            TargetKind::Mgs => {
                let tables = [(mgs::TABLE, "config")];
                let kv = target.kv(&tables, options(name)).map_err(at)?;
                let mgs = Mgs::open(kv, superblock.fs_name.as_str(), superblock.fs_uuid.0)?;
                committed = LastCommitted::new(Transno(0));
                self.mgs = Some(mgs.clone());
                mgs
            }
            TargetKind::Mdt => {
                committed = LastCommitted::new(Transno(0));
                let options = options(name);
                let pace = options.pace.clone();
                if self.undurable {
                    pace.set_ms(COMMIT_MS.most)
                        .map_err(|bounds| format!("{name}: {bounds}"))?;
                }
                let kv = target.kv(&mds::tables(), options).map_err(at)?;
                let rules = self.rules(superblock.boot_epoch);
                let (kv, clock) = (Arc::new(kv), clock.clone());
                let server = mds::serve::MdtServer::start(kv, rules, committed.clone(), clock)
                    .map_err(at)?;
                let service = server.service();
                self.controls.push(Controls {
                    name,
                    scheduling: server.scheduling(),
                    recovering: server.recovering(),
                    pace,
                    extents: None,
                });
                self.mdts.push(Arc::new(server));
                service
            }
            TargetKind::Ost => {
                let (server, durable) = self.open_ost(dir, target, clock)?;
                committed = durable;
                let service = server.service();
                self.osts.push(server);
                service
            }
        };
        Ok((service, committed))
    }
}

fn not_opened(name: TargetName, dir: &Path, error: &StorageError) -> NotOpened {
    NotOpened::of(error, format!("{name} in {}: {error}", dir.display()))
}

/// The target, as `service` serves it.
fn opened(
    target: Target,
    (service, last_committed): (Arc<dyn Service>, Arc<LastCommitted>),
    keys: &Keys,
) -> Opened {
    let superblock = target.superblock();
    let (name, boot_epoch) = (superblock.target, superblock.boot_epoch);
    let info = TargetInfo {
        name,
        uuid: superblock.target_uuid.0,
        addresses: Vec::new(),
    };
    let served = ServedTarget {
        name,
        key: Some(keys.client.clone()),
        server_key: Some(keys.server.clone()),
        boot_epoch,
        last_committed,
        service: Arc::new(Held { service, target }),
    };
    Opened { info, served }
}

/// The targets of every directory, held for this process. Side by side: each may have to wait.
fn open_all(config: &ServeConfig) -> Result<Vec<(&Path, TargetDir)>, String> {
    directories::refuse_twice(&config.dirs)?;
    let process = match &config.machine {
        Some(machine) => Process::apart(machine),
        None => Process::this(),
    };
    let process = process.map_err(|error| format!("cannot identify this process: {error}"))?;
    let open = |dir: &Path| TargetDir::open_as(dir, &process).map_err(|error| error.to_string());
    std::thread::scope(|scope| {
        let dirs = config.dirs.iter().map(PathBuf::as_path);
        let opening: Vec<_> = dirs
            .map(|dir| (dir, scope.spawn(move || open(dir))))
            .collect();
        let opened = opening.into_iter().map(|(dir, opened)| {
            let opened = opened.join();
            let opened = opened.unwrap_or_else(|_| Err(format!("{}: panicked", dir.display())));
            Ok((dir, opened?))
        });
        opened.collect()
    })
}

/// Who of this process may have how many files open.
fn shares(config: &ServeConfig, opened: &[(&Path, TargetDir)]) -> Result<Shares, String> {
    let targets = opened.iter().flat_map(|(_, found)| found.targets());
    let kinds: Vec<TargetKind> = targets
        .map(|target| target.superblock().target.kind)
        .collect();
    let osts = kinds.iter().filter(|kind| **kind == TargetKind::Ost);
    let shares = config
        .descriptors
        .shares(kinds.len(), osts.count(), config.mounts)?;
    let Shares {
        objects,
        connections,
    } = shares;
    tracing::info!(connections, objects, "what the limit of open files allows");
    Ok(shares)
}

/// Addresses that mean something outside this process; if there are none, the one inside, so that a
/// mount here knows that the target is here.
fn told_to_others(listening: &[Address]) -> Vec<Address> {
    let outside = |address: &&Address| !matches!(address, Address::Mem(_));
    let others: Vec<Address> = listening.iter().filter(outside).cloned().collect();
    if others.is_empty() {
        listening.to_vec()
    } else {
        others
    }
}

fn options(name: TargetName) -> KvOptions {
    KvOptions::new(name.to_string())
}

/// A service with the hold on its directory.
struct Held {
    service: Arc<dyn Service>,
    target: Target,
}

impl Service for Held {
    fn connected(&self, session: Arc<rpc::Connected>) -> Result<(), rpc::Unwelcome> {
        self.service.connected(session)
    }

    fn request(
        &self,
        session: &Arc<rpc::Connected>,
        xid: base::Xid,
        resent: bool,
        batch: rpc::Batch,
        responder: rpc::Responder,
    ) {
        if self
            .target
            .fence()
            .is_some_and(|fence| fence.check().is_err())
        {
            // Another process serves the target now.
            return responder.leave();
        }
        self.service.request(session, xid, resent, batch, responder);
    }

    fn disconnected(&self, client: base::ClientId) {
        self.service.disconnected(client);
    }

    fn resumed(&self, client: base::ClientId) {
        self.service.resumed(client);
    }

    fn succeeded(&self, session: Arc<rpc::Connected>) {
        self.service.succeeded(session);
    }

    fn ready(&self, session: &Arc<rpc::Connected>) {
        self.service.ready(session);
    }

    fn survived(&self, epoch: base::BootEpoch) -> base::Transno {
        self.service.survived(epoch)
    }

    fn gave_up(&self, client: rpc::ClientUuid) -> Result<bool, rpc::Unwelcome> {
        self.service.gave_up(client)
    }

    fn is_giving_up(&self, client: rpc::ClientUuid) -> bool {
        self.service.is_giving_up(client)
    }

    fn wait_to_give_up(&self, client: rpc::ClientUuid) -> Result<(), rpc::Unwelcome> {
        self.service.wait_to_give_up(client)
    }

    fn lost_changes(&self, reason: &str) {
        self.service.lost_changes(reason);
    }

    fn expired(&self, client: base::ClientId, how: rpc::Departure) {
        self.service.expired(client, how);
    }
}
