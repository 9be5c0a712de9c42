//! A serving process: every target of its directories behind one listener.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::{Clock, TargetIndex, TargetKind, TargetName, Transno};
use rpc::serving::{Recovering, Scheduling};
use rpc::window::RECOVERY_WINDOW;
use rpc::{Address, Key, LastCommitted, MemPort, ServedTarget, Server, ServerConfig, Service};
use storage::{KvOptions, Target, TargetDir};
use wire::mgs::{Config, TargetInfo};

use crate::control::of_targets::ServedTargets;
use crate::mgs::{self, Mgs};
use crate::port_holder::why_not_started;
use crate::registration::{self, Registration};

/// Finds the way to an address as the configuration spells it.
pub type Reach = Arc<dyn Fn(&str) -> Option<Address> + Send + Sync>;

/// What to serve, and where.
pub struct ServeConfig {
    /// Directories with targets.
    pub dirs: Vec<PathBuf>,
    /// Addresses to listen on.
    pub listen: Vec<Address>,
    /// Beyond loopback although nothing is encrypted.
    pub insecure: bool,
    /// Where the MGS is, if it is not among the targets.
    pub mgs: Vec<Address>,
    /// How long a client may take to give a lock back, and two thirds of how long it may be gone.
    /// Beyond: it is evicted.
    pub timeout: Duration,
}

/// Targets being served.
pub struct Serving {
    server: Option<Server>,
    mdts: Vec<mds::serve::MdtServer>,
    osts: Vec<oss::serve::OstServer>,
    addresses: Vec<Address>,
    port: Arc<MemPort>,
    config: Config,
    schedulings: Vec<(TargetName, Arc<dyn Scheduling>)>,
    recovering: Vec<(TargetName, Arc<dyn Recovering>)>,
}

/// One target, opened and not yet served.
struct Opened {
    info: TargetInfo,
    served: ServedTarget,
}

struct Opening {
    timeout: Duration,
    targets: Vec<Opened>,
    mgs: Option<Arc<Mgs>>,
    mdts: Vec<mds::serve::MdtServer>,
    osts: Vec<oss::serve::OstServer>,
    schedulings: Vec<(TargetName, Arc<dyn Scheduling>)>,
    recovering: Vec<(TargetName, Arc<dyn Recovering>)>,
}

impl Serving {
    /// Opens every target and serves it.
    pub fn start(config: &ServeConfig, clock: Arc<dyn Clock>) -> Result<Serving, String> {
        let mut opening = Opening::new(config.timeout);
        let mut key = None;
        for dir in &config.dirs {
            let found = TargetDir::open(dir).map_err(|error| error.to_string())?;
            let dir_key = Key::new(*found.key().as_bytes());
            key.get_or_insert_with(|| dir_key.clone());
            for target in found.into_targets() {
                opening.open(dir, target, &dir_key, &clock)?;
            }
        }
        let key = key.ok_or("no directory to serve")?;
        let port = MemPort::new("here");
        let mut listen = config.listen.clone();
        listen.push(Address::Mem(port.clone()));
        let server_config = ServerConfig {
            insecure: config.insecure,
            grace: config.timeout * 3 / 2,
            clock: clock.clone(),
            ..ServerConfig::new(listen)
        };
        let Opening {
            targets,
            mgs,
            mdts,
            osts,
            schedulings,
            recovering,
            ..
        } = opening;
        let (infos, served): (Vec<_>, Vec<_>) = targets
            .into_iter()
            .map(|target| (target.info, target.served))
            .unzip();
        let server =
            Server::start(server_config, served).map_err(|error| why_not_started(&error))?;
        let addresses = told_to_others(server.local_addresses());
        let registration = Registration {
            mgs: mgs.as_deref(),
            addresses: &config.mgs,
            key: &key,
            insecure: config.insecure,
            here: (&port, infos.iter().map(|info| info.name).collect()),
        };
        let told = infos
            .into_iter()
            .map(|info| registration::at(info, &addresses))
            .collect();
        let found = registration.register(told, clock.clone())?;
        for mdt in &mdts {
            mdt.set_osts(osts_of(&found), registration.peers(&found, clock.clone())?);
        }
        Ok(Serving {
            server: Some(server),
            mdts,
            osts,
            addresses,
            port,
            config: found,
            schedulings,
            recovering,
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
            targets: self.schedulings.clone(),
            recovering: self.recovering.clone(),
        }
    }

    /// Why a target no longer serves, if one does not.
    pub fn stopped(&self) -> Option<String> {
        let mdts = self.mdts.iter().filter_map(mds::serve::MdtServer::stopped);
        mdts.chain(self.osts.iter().filter_map(oss::serve::OstServer::stopped))
            .next()
    }

    /// Makes everything durable and ends. Nothing is lost.
    pub fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
        self.mdts.iter().for_each(mds::serve::MdtServer::stop);
        self.osts.iter().for_each(oss::serve::OstServer::stop);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Opening {
    fn new(timeout: Duration) -> Opening {
        Opening {
            timeout,
            targets: Vec::new(),
            mgs: None,
            mdts: Vec::new(),
            osts: Vec::new(),
            schedulings: Vec::new(),
            recovering: Vec::new(),
        }
    }

    fn rules(&self, life: base::BootEpoch) -> mds::Rules {
        let usual = mds::Rules::default();
        mds::Rules {
            callback_deadline: self.timeout,
            life: Some(life),
            recovery_window: self.timeout.min(usual.recovery_window),
            ..usual
        }
    }

    fn lock_limits(&self) -> dlm::Limits {
        dlm::Limits {
            callback_deadline: self.timeout,
            ..dlm::Limits::default()
        }
    }

    /// Starts an OST, with its newest durable change.
    fn open_ost(
        &self,
        dir: &Path,
        target: &Target,
        clock: &Arc<dyn Clock>,
    ) -> Result<(oss::serve::OstServer, Arc<LastCommitted>), String> {
        let superblock = target.superblock();
        let name = superblock.target;
        let at = |error: storage::StorageError| format!("{name} in {}: {error}", dir.display());
        let tables = oss::records::TABLES;
        let kv = Arc::new(target.kv(&tables, options(name)).map_err(at)?);
        let store = Arc::new(target.objects().map_err(at)?);
        let life = oss::Life {
            epoch: superblock.boot_epoch,
            now: clock.tick(),
            wall: clock.now(),
            window: self.timeout.min(RECOVERY_WINDOW),
        };
        let oss =
            oss::Oss::open(store.clone(), kv.clone(), self.lock_limits(), life).map_err(at)?;
        let committed = LastCommitted::new(oss.committed());
        let syncer = oss::Syncer::new(store, kv);
        let server = oss::serve::OstServer::start(oss, syncer, committed.clone(), clock.clone());
        let server = server.map_err(|error| format!("{name}: {error}"))?;
        Ok((server, committed))
    }

    fn open(
        &mut self,
        dir: &Path,
        target: Target,
        key: &Key,
        clock: &Arc<dyn Clock>,
    ) -> Result<(), String> {
        let superblock = target.superblock().clone();
        let name = superblock.target;
        let at = |error: storage::StorageError| format!("{name} in {}: {error}", dir.display());
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
                let kv = target.kv(&mds::tables(), options(name)).map_err(at)?;
                let rules = self.rules(superblock.boot_epoch);
                let (kv, clock) = (Arc::new(kv), clock.clone());
                let server = mds::serve::MdtServer::start(kv, rules, committed.clone(), clock)
                    .map_err(at)?;
                let service = server.service();
                self.schedulings.push((name, server.scheduling()));
                self.recovering.push((name, server.recovering()));
                self.mdts.push(server);
                service
            }
            TargetKind::Ost => {
                let (server, durable) = self.open_ost(dir, &target, clock)?;
                committed = durable;
                let service = server.service();
                self.schedulings.push((name, server.scheduling()));
                self.recovering.push((name, server.recovering()));
                self.osts.push(server);
                service
            }
        };
        let info = TargetInfo {
            name,
            uuid: superblock.target_uuid.0,
            addresses: Vec::new(),
        };
        let served = ServedTarget {
            name,
            key: Some(key.clone()),
            boot_epoch: superblock.boot_epoch,
            last_committed: committed,
            service: Arc::new(Held {
                service,
                _target: target,
            }),
        };
        self.targets.push(Opened { info, served });
        Ok(())
    }
}

fn osts_of(config: &Config) -> Vec<TargetIndex> {
    let names = config.targets.iter().map(|target| target.name);
    let osts = names.filter(|name| name.kind == TargetKind::Ost);
    osts.map(|name| name.index).collect()
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

/// A service with the lock on its directory.
struct Held {
    service: Arc<dyn Service>,
    _target: Target,
}

impl Service for Held {
    fn connected(&self, session: Arc<rpc::Connected>) -> Result<(), rpc::Refusal> {
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

    fn ready(&self, client: base::ClientId) {
        self.service.ready(client);
    }

    fn survived(&self, epoch: base::BootEpoch) -> base::Transno {
        self.service.survived(epoch)
    }

    fn gave_up(&self, client: rpc::ClientUuid) -> bool {
        self.service.gave_up(client)
    }

    fn expired(&self, client: base::ClientId, how: rpc::Departure) {
        self.service.expired(client, how);
    }
}
