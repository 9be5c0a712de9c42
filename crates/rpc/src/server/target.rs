//! A target that is served: what it does with its clients, and its sessions.

use ::threads::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{BootEpoch, ClientId, TargetName, Transno, Xid};
use wire::handshake::{ClientUuid, Key, Refusal};

use super::connected::{Connected, Responder};
use super::deferred::Deferred;
use super::registry::Registry;
use crate::batch::Batch;
use crate::counters::Counters;
use crate::greet::{GreetError, Keys};
use crate::pool::Pool;

/// What a target does with its clients. Called on the server's threads, which others may wait for: a
/// request on that of its connection, which is the client's own.
///
/// The calls about one client's coming and going come one at a time; a request that already runs
/// when its client goes may still finish, and its reply goes nowhere.
pub trait Service: Send + Sync {
    /// A new client, or once more one of which nothing has come, now from another process. It may be
    /// refused.
    fn connected(&self, session: Arc<Connected>) -> Result<(), Unwelcome>;
    /// A batch to run; `resent`: it may have had its effect in an earlier boot of the server.
    /// The order of one lane's requests is the order of the client's calls.
    fn request(
        &self,
        session: &Arc<Connected>,
        xid: Xid,
        resent: bool,
        batch: Batch,
        responder: Responder,
    );
    /// The client's connection is lost. Its session may be resumed.
    fn disconnected(&self, client: ClientId);
    /// A client that was disconnected is back, its session unharmed.
    fn resumed(&self, client: ClientId) {
        _ = client;
    }
    /// Another process goes on with a client's session, and knows nothing of what the one before had
    /// asked: nobody waits for that any more. What the client holds it holds, until it is `ready`.
    fn succeeded(&self, session: Arc<Connected>);
    /// The client has sent again all that it knows to be lost or unanswered.
    fn ready(&self, session: &Arc<Connected>) {
        _ = session;
    }
    /// Of that boot of the target, the newest change that is durable.
    fn survived(&self, epoch: BootEpoch) -> Transno {
        _ = epoch;
        Transno(0)
    }
    /// The target gave up on this mount, in this boot or an earlier one.
    fn gave_up(&self, client: ClientUuid) -> Result<bool, Unwelcome> {
        _ = client;
        Ok(false)
    }
    /// It did, and that is not durable yet. The client must not be told, for a boot after a crash
    /// would know nothing of it, and wait for what the client has dropped.
    fn is_giving_up(&self, client: ClientUuid) -> bool {
        _ = client;
        false
    }
    /// Waits until it is durable whom it gave up, if it ever will be.
    fn wait_to_give_up(&self, client: ClientUuid) -> Result<(), Unwelcome> {
        _ = client;
        Ok(())
    }
    /// Another server was told of changes that the target does not have: it must serve no longer.
    fn lost_changes(&self, reason: &str) {
        _ = reason;
    }
    /// The client's session has ended.
    fn expired(&self, client: ClientId, how: Departure);
}

/// Why a client is not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unwelcome {
    /// It is told, and does not come again soon.
    Refused(Refusal),
    /// The target stops: it says nothing, for a welcome would be taken for the end of a session that
    /// lives on in what is durable. The client comes again, and finds the target's next boot.
    BrokenOff(String),
}

impl From<Refusal> for Unwelcome {
    fn from(refusal: Refusal) -> Unwelcome {
        Unwelcome::Refused(refusal)
    }
}

impl From<Unwelcome> for GreetError {
    fn from(unwelcome: Unwelcome) -> GreetError {
        match unwelcome {
            Unwelcome::Refused(refusal) => GreetError::Refused(refusal),
            Unwelcome::BrokenOff(reason) => GreetError::Broken(reason),
        }
    }
}

/// How a client's session came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// The client said that it leaves nothing behind.
    Goodbye,
    /// The target gave up on it: it was away for too long, did not answer, or was replaced. It may
    /// come back, and must be told.
    GivenUp,
}

/// A target's newest durable change, shared by the target and its server.
#[derive(Debug, Default)]
pub struct LastCommitted(AtomicU64);

impl LastCommitted {
    /// What is durable when the target opens.
    pub fn new(transno: Transno) -> Arc<LastCommitted> {
        Arc::new(LastCommitted(AtomicU64::new(transno.0)))
    }

    /// More has become durable. Told to clients in every later frame, and to idle ones soon.
    pub fn set(&self, transno: Transno) {
        self.0.fetch_max(transno.0, Ordering::AcqRel);
    }

    /// The newest durable change.
    pub fn get(&self) -> Transno {
        Transno(self.0.load(Ordering::Acquire))
    }
}

/// A target to serve.
pub struct ServedTarget {
    /// Its name.
    pub name: TargetName,
    /// What clients must prove for whom the kernel does not vouch. None: none of them is let in.
    pub key: Option<Key>,
    /// What must be proven by who speaks for targets.
    pub server_key: Option<Key>,
    /// This boot of it. Not zero.
    pub boot_epoch: BootEpoch,
    /// Its newest durable change.
    pub last_committed: Arc<LastCommitted>,
    /// What it does with requests.
    pub service: Arc<dyn Service>,
}

/// A target with its sessions.
pub(super) struct Target {
    pub name: TargetName,
    pub keys: Keys,
    pub boot_epoch: BootEpoch,
    pub last_committed: Arc<LastCommitted>,
    pub service: Arc<dyn Service>,
    pub counters: Arc<Counters>,
    pub sessions: Mutex<Registry>,
    /// Held while a client comes or goes, the service's calls about it included.
    pub admission: Mutex<()>,
    pub deferred: Arc<Deferred>,
    /// What all sessions of the server keep.
    pub kept: Arc<Pool<Connected>>,
}

impl Target {
    pub(super) fn new(
        served: ServedTarget,
        deferred: Arc<Deferred>,
        kept: Arc<Pool<Connected>>,
    ) -> Arc<Target> {
        Arc::new(Target {
            name: served.name,
            keys: Keys {
                client: served.key,
                server: served.server_key,
            },
            boot_epoch: served.boot_epoch,
            last_committed: served.last_committed,
            service: served.service,
            counters: Arc::default(),
            sessions: Mutex::default(),
            admission: Mutex::default(),
            deferred,
            kept,
        })
    }
}
