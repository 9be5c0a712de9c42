//! Targets, and what each of them says to the client.

use std::sync::{Arc, OnceLock, Weak};
use threads::Mutex;

use base::{BootEpoch, Clock, TargetKind, TargetName, Transno};
use rpc::{Address, CallbackResponder, ClientHandler, Message, Peer};
use wire::frame::SessionId;
use wire::handshake::Lane;
use wire::mgs;

use super::config::{MountConfig, MountError, reachable};
use crate::cache::holder::Holder;
use crate::journal::sessions::{Sessions, TargetBody};
use crate::recovery::takeover::TakeoverState;
use crate::recovery::void::Void;
use crate::session::client::{Client, Shared};

pub(super) type Slot = Arc<OnceLock<Weak<Shared>>>;

/// Takes one target's messages to the client.
struct Handler {
    holder: Holder,
    target: TargetName,
    client: Slot,
    /// Where the next process finds the session.
    sessions: Option<Sessions>,
    /// Targets that had given up the process before, when there was nobody yet to tell.
    gave_up: Arc<Mutex<Vec<Holder>>>,
}

impl Handler {
    fn client(&self) -> Option<Client> {
        Some(Client(self.client.get()?.upgrade()?))
    }
}

impl ClientHandler for Handler {
    fn callback(&self, message: Message, responder: CallbackResponder) {
        let Some(client) = self.client() else { return };
        match self.holder {
            Holder::Mdt => client.on_mdt_callback(&message, responder),
            Holder::Ost(target) => client.on_ost_callback(target, &message, responder),
        }
    }

    fn epoch_changed(&self, old: BootEpoch, new: BootEpoch) {
        tracing::warn!(
            "{:?} restarted (epoch {old} to {new}): caches dropped",
            self.holder
        );
        if let Some(client) = self.client() {
            client.void_all(self.holder, Void::Restarted(new));
            client.join(self.holder, new);
        }
    }

    fn connected(&self, session: SessionId, epoch: BootEpoch) {
        // With one that follows an eviction the next process would not hear of that: it is remembered
        // when this process has lost what went with it.
        let gave_up = self.gave_up.lock().unwrap_or_else(|p| p.into_inner());
        if let Some(sessions) = &self.sessions
            && !gave_up.contains(&self.holder)
        {
            sessions.remember(TargetBody {
                target: self.target,
                session,
                epoch,
            });
        }
        drop(gave_up);
        if let Some(client) = self.client() {
            client.connected(self.holder, epoch);
        }
    }

    fn begun(&self, epoch: BootEpoch, has_restarted: bool) {
        if let Some(client) = self.client() {
            // What it had not made durable is lost beside what went with the locks.
            if has_restarted && matches!(self.holder, Holder::Ost(_)) {
                client.void_all(self.holder, Void::Restarted(epoch));
            }
            client.join(self.holder, epoch);
        }
    }

    fn evicted(&self) {
        tracing::error!(
            "{:?} evicted this mount: unwritten data of open files is lost",
            self.holder
        );
        let mut gave_up = self.gave_up.lock().unwrap_or_else(|p| p.into_inner());
        match self.client() {
            Some(client) => {
                drop(gave_up);
                client.void_all(self.holder, Void::Evicted);
            }
            None => gave_up.push(self.holder),
        }
    }

    fn last_committed(&self, transno: Transno) {
        if let Some(sessions) = &self.sessions {
            sessions.committed(self.target, transno);
        }
        if let (Some(client), Holder::Ost(target)) = (self.client(), self.holder) {
            client.ost_committed(target, transno);
        }
    }
}

/// The MGS calls nobody back.
pub(crate) struct NoCallbacks;

impl ClientHandler for NoCallbacks {
    fn callback(&self, _message: Message, _responder: CallbackResponder) {}
    fn epoch_changed(&self, _old: BootEpoch, _new: BootEpoch) {}
    fn evicted(&self) {}
    fn last_committed(&self, _transno: Transno) {}
}

/// A target to be connected to.
pub(super) struct Wanted {
    pub holder: Holder,
    pub target: TargetName,
    pub addresses: Vec<Address>,
}

/// Those of a whole file system.
pub(super) fn wanted(config: &MountConfig, found: &mgs::Config) -> Result<Vec<Wanted>, MountError> {
    let mut wanted = Vec::new();
    for target in &found.targets {
        let holder = match target.name.kind {
            TargetKind::Mgs => continue,
            TargetKind::Mdt => Holder::Mdt,
            TargetKind::Ost => Holder::Ost(target.name.index),
        };
        wanted.push(Wanted {
            holder,
            target: target.name,
            addresses: reachable(config, target)?,
        });
    }
    let has = |kind| wanted.iter().any(|wanted| wanted.target.kind == kind);
    match (has(TargetKind::Mdt), has(TargetKind::Ost)) {
        (false, _) => Err(MountError::Incomplete("MDT")),
        (_, false) => Err(MountError::Incomplete("OST")),
        (true, true) => Ok(wanted),
    }
}

/// What it takes to meet a target.
pub(crate) struct Acquaintance {
    pub config: MountConfig,
    pub clock: Arc<dyn Clock>,
    pub slot: Slot,
    pub gave_up: Arc<Mutex<Vec<Holder>>>,
}

impl Acquaintance {
    pub fn new(config: &MountConfig, clock: Arc<dyn Clock>) -> Acquaintance {
        Acquaintance {
            config: config.clone(),
            clock,
            slot: Arc::default(),
            gave_up: Arc::default(),
        }
    }

    /// A connection to the target, with what the process before left to be asked of it.
    pub fn make(&self, wanted: Wanted, left: rpc::Left) -> std::io::Result<Peer> {
        let Wanted {
            holder,
            target,
            addresses,
        } = wanted;
        let takeover = self.config.takeover.as_deref();
        let lanes = match holder {
            Holder::Mdt => 2,
            Holder::Ost(_) => Lane::COUNT as u8,
        };
        let handler = Arc::new(Handler {
            holder,
            target,
            client: self.slot.clone(),
            sessions: takeover.map(|left| left.sessions().clone()),
            gave_up: self.gave_up.clone(),
        });
        let mut config = self.config.peer(target, addresses, lanes);
        let legacies = takeover.map(TakeoverState::legacies).unwrap_or_default();
        let legacy = legacies.into_iter().find(|(name, _)| *name == target);
        config.legacy = legacy.map(|(_, legacy)| legacy);
        Peer::going_on(config, handler, self.clock.clone(), left)
    }

    /// Meets an OST that was added to the file system since the mount began. False: it is not to be
    /// had now.
    pub fn meet(&self, client: &Shared, ost: &mgs::TargetInfo) -> bool {
        let index = ost.name.index;
        let Ok(addresses) = reachable(&self.config, ost) else {
            return false;
        };
        let holder = Holder::Ost(index);
        client.lock().locks.add_ost(index);
        let wanted = Wanted {
            holder,
            target: ost.name,
            addresses,
        };
        match self.make(wanted, rpc::Left::default()) {
            Ok(peer) => {
                tracing::info!("{} was added to the file system", ost.name);
                client.cluster.meet(index, peer);
                true
            }
            Err(error) => {
                tracing::error!("{} cannot be reached: {error}", ost.name);
                false
            }
        }
    }
}
