//! Joining a file system: the MGS tells who is where, then each target is reached.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::time::Duration;
use threads::JoinHandle;
use threads::{Condvar, Mutex};

use base::{BootEpoch, Clock, Fid, TargetIndex, TargetKind, TargetName, Transno};
use rpc::{
    Address, CallbackResponder, ClientHandler, ClientSecret, Clocks, Keeping, Key, Message, Peer,
    PeerConfig, Policy,
};
use wire::frame::SessionId;
use wire::handshake::Lane;
use wire::mgs;

use crate::cache::State;
use crate::client::{Client, Shared};
use crate::cluster::Cluster;
use crate::executor::{block_on, spawn};
use crate::io::losses::Unwritten;
use crate::kernel::KernelCache;
use crate::locks::{Holder, Locks};
use crate::params::Params;
use crate::places::{Following, fetch_config, reachable};
use crate::recovery::Void;
use crate::remembered::{Heritage, Redone, Sessions, TargetBody};
use crate::sequence::FidMint;
use crate::stats::Stats;

/// How often ages are looked at.
const TICK: Duration = Duration::from_millis(100);

/// Finds the way to an address as the configuration spells it.
pub type Reach = Arc<dyn Fn(&str) -> Option<Address> + Send + Sync>;

/// Which file system to join, and how.
#[derive(Clone)]
pub struct MountConfig {
    /// Where the MGS may be; tried in turn.
    pub addresses: Vec<Address>,
    /// Turns an address of the configuration into one to connect to.
    pub reach: Reach,
    /// What this mount and its next process alone know, by which servers know it.
    pub secret: ClientSecret,
    /// The file system's key, needed over TCP.
    pub key: Option<Key>,
    /// Speak beyond loopback although nothing is encrypted.
    pub insecure: bool,
    /// What a call does while a server is away.
    pub policy: Policy,
    /// Asked about once a second while the MGS does not answer at the beginning, with the time waited
    /// so far: whether to wait on.
    pub patience: Patience,
    /// The memory in which what the next process needs is remembered, and what the one before left.
    pub heritage: Option<Arc<Heritage>>,
    /// The servers of whose clocks a person was told.
    pub clocks: Clocks,
}

/// Whether to wait on.
pub type Patience = Arc<dyn Fn(Duration) -> bool + Send + Sync>;

/// Why a file system can't be joined.
#[derive(Debug)]
pub enum MountError {
    /// The MGS could not be asked.
    Mgs(String),
    /// The MGS refuses us.
    Refused(String),
    /// The configuration names no MDT, or no OST.
    Incomplete(&'static str),
    /// A target's address can't be used from here.
    Address(TargetName, String),
    /// A thread could not be started.
    Threads(std::io::Error),
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MountError::Mgs(cause) => write!(f, "the management service did not answer: {cause}"),
            MountError::Refused(why) => write!(f, "the management service refuses: {why}"),
            MountError::Incomplete(what) => write!(
                f,
                "the file system has no {what} yet; start 'glint serve' on a directory that holds one"
            ),
            MountError::Address(target, address) => {
                write!(
                    f,
                    "{target} is said to be at {address}, which is no address"
                )
            }
            MountError::Threads(cause) => write!(f, "a thread could not be started: {cause}"),
        }
    }
}

impl std::error::Error for MountError {}

/// A joined file system and the thread that ages its caches.
pub struct Mounted {
    client: Client,
    config: mgs::Config,
    stop: Arc<(Mutex<bool>, Condvar)>,
    timer: Option<JoinHandle<()>>,
    following: Option<Following>,
    ended: AtomicBool,
}

type Slot = Arc<OnceLock<Weak<Shared>>>;

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

    fn begun(&self, epoch: BootEpoch, lives_anew: bool) {
        if let Some(client) = self.client() {
            // What it had not made durable is lost beside what went with the locks.
            if lives_anew && matches!(self.holder, Holder::Ost(_)) {
                client.void_all(self.holder, Void::Restarted(epoch));
            }
            client.join(self.holder, epoch);
        }
    }

    fn evicted(&self) {
        tracing::error!(
            "{:?} evicted this mount: caches dropped, unwritten data of open files is lost",
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

impl MountConfig {
    pub(crate) fn peer(
        &self,
        target: TargetName,
        addresses: Vec<Address>,
        lanes: u8,
    ) -> PeerConfig {
        PeerConfig {
            target,
            addresses,
            secret: self.secret,
            incarnation: self.heritage.as_deref().map_or(1, Heritage::incarnation),
            key: self.key.clone(),
            credential: rpc::Credential::Client,
            insecure: self.insecure,
            policy: self.policy,
            lanes,
            // What was written is kept with the pages it is in.
            keeping: match target.kind {
                TargetKind::Mdt => Keeping::Changes,
                TargetKind::Mgs | TargetKind::Ost => Keeping::Nothing,
            },
            legacy: None,
            clocks: self.clocks.clone(),
        }
    }
}

/// A target to be connected to.
struct Wanted {
    holder: Holder,
    target: TargetName,
    addresses: Vec<Address>,
}

/// Those of a whole file system.
fn wanted(config: &MountConfig, found: &mgs::Config) -> Result<Vec<Wanted>, MountError> {
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

/// What the process before left is in this one's hands. It says no goodbye, and drops nothing of that:
/// it ends, and all is left to the next.
fn cannot_go_on(heritage: Option<&Heritage>, error: MountError) -> MountError {
    if heritage.is_some_and(|left| left.incarnation() > 1) {
        tracing::error!("cannot go on with the mount: {error}");
        std::process::exit(1);
    }
    error
}

/// What it takes to meet a target.
pub(crate) struct Acquaintance {
    pub config: MountConfig,
    pub clock: Arc<dyn Clock>,
    slot: Slot,
    gave_up: Arc<Mutex<Vec<Holder>>>,
}

impl Acquaintance {
    fn new(config: &MountConfig, clock: Arc<dyn Clock>) -> Acquaintance {
        Acquaintance {
            config: config.clone(),
            clock,
            slot: Arc::default(),
            gave_up: Arc::default(),
        }
    }

    /// A connection to the target, with what the process before left to be asked of it.
    fn make(&self, wanted: Wanted, left: rpc::Left) -> std::io::Result<Peer> {
        let Wanted {
            holder,
            target,
            addresses,
        } = wanted;
        let heritage = self.config.heritage.as_deref();
        let lanes = match holder {
            Holder::Mdt => 2,
            Holder::Ost(_) => Lane::COUNT as u8,
        };
        let handler = Arc::new(Handler {
            holder,
            target,
            client: self.slot.clone(),
            sessions: heritage.map(|left| left.sessions().clone()),
            gave_up: self.gave_up.clone(),
        });
        let mut config = self.config.peer(target, addresses, lanes);
        let legacies = heritage.map(Heritage::legacies).unwrap_or_default();
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

impl Mounted {
    /// Joins the file system.
    pub fn join(
        config: &MountConfig,
        kernel: Arc<dyn KernelCache>,
        clock: Arc<dyn Clock>,
    ) -> Result<Mounted, MountError> {
        let found = fetch_config(config, clock.clone())?;
        let wanted = wanted(config, &found)?;
        let acquaintance = Acquaintance::new(config, clock.clone());
        let (heritage, redone) = (config.heritage.as_deref(), Redone::default());
        let mut asked = heritage.map(|left| left.asked(&redone)).unwrap_or_default();
        let requests = asked.unanswered.len();
        let mut mdt = None;
        let mut osts = Vec::new();
        for wanted in wanted {
            let holder = wanted.holder;
            let left = match holder {
                Holder::Mdt => std::mem::take(&mut asked),
                Holder::Ost(_) => rpc::Left::default(),
            };
            let peer = acquaintance
                .make(wanted, left)
                .map_err(|cause| cannot_go_on(heritage, MountError::Threads(cause)))?;
            match holder {
                Holder::Mdt => mdt = Some(peer),
                Holder::Ost(index) => osts.push((index, peer)),
            }
        }
        let mdt = mdt.ok_or(MountError::Incomplete("MDT"))?;
        let remembered = (heritage, redone, requests);
        let records = heritage.map(|left| left.records().clone());
        let cluster = Cluster::new(mdt, osts, records);
        let client = build(cluster, kernel, clock, remembered);
        let Acquaintance { slot, gave_up, .. } = &acquaintance;
        introduce(&client, heritage.map(Heritage::sessions), slot, gave_up);
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let timer = start_timer(&client, stop.clone());
        let following = Following::start(acquaintance, Arc::downgrade(&client.0))
            .map_err(|error| cannot_go_on(heritage, error))?;
        let ended = AtomicBool::new(false);
        Ok(Mounted {
            client,
            config: found,
            stop,
            timer,
            following: Some(following),
            ended,
        })
    }

    /// The calls.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// What the MGS told.
    pub fn config(&self) -> &mgs::Config {
        &self.config
    }

    /// Fetches the root's attributes, which whoever comes asks for first: what a server far away needs
    /// until it is reached belongs to mounting. One that is away is waited for no longer than that.
    /// False: it has not answered yet.
    pub fn meet_root(&self, patience: Duration) -> bool {
        let met = Arc::new((Mutex::new(false), Condvar::new()));
        let (client, told) = (self.client.clone(), met.clone());
        spawn(async move {
            // Whoever asks is told what is wrong.
            let _ = client.getattr(Fid::ROOT).await;
            *told.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
            told.1.notify_all();
        });
        let is_met = met.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is away is met later.
        let waited = met.1.wait_timeout_while(is_met, patience, |met| !*met);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sends everything unsent, closes, and leaves. Nothing is lost but what the error tells.
    pub fn leave(&mut self) -> Result<(), Unwritten> {
        if self.ended.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let client = self.client.clone();
        let left = block_on(async move {
            let synced = client.sync_and_close().await;
            client.tell_losses(synced).await
        });
        if let Err(unwritten) = &left {
            tracing::error!("at the end of the mount: {unwritten}");
        }
        self.end();
        left
    }

    /// Leaves at once: what is unsent is lost.
    pub fn abandon(&mut self) {
        if !self.ended.swap(true, Ordering::SeqCst) {
            self.end();
        }
    }

    fn end(&mut self) {
        *self.stop.0.lock().unwrap_or_else(|p| p.into_inner()) = true;
        self.stop.1.notify_all();
        self.following = None;
        if let Some(timer) = self.timer.take() {
            // A timer that panicked has said so already.
            let _ = timer.join();
        }
        self.client.0.cluster.peers().for_each(Peer::close);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// Handlers find the client from now on; it hears what they heard before.
fn introduce(
    client: &Client,
    sessions: Option<&Sessions>,
    slot: &Slot,
    gave_up: &Mutex<Vec<Holder>>,
) {
    let given_up = {
        let mut gave_up = gave_up.lock().unwrap_or_else(|p| p.into_inner());
        // The slot is filled once, here.
        let _ = slot.set(Arc::downgrade(&client.0));
        std::mem::take(&mut *gave_up)
    };
    for holder in given_up {
        // What the process before had not sent may clash with what others did since.
        client.void_all(holder, Void::Evicted);
    }
    // Sessions that began before had nobody to tell.
    let cluster = &client.0.cluster;
    let osts = cluster.osts();
    let osts = osts.map(|(index, peer)| (Holder::Ost(*index), peer));
    for (holder, peer) in std::iter::once((Holder::Mdt, &cluster.mdt)).chain(osts) {
        if let Some((session, epoch)) = peer.session() {
            if let Some(sessions) = sessions {
                let target = peer.target();
                sessions.remember(TargetBody {
                    target,
                    session,
                    epoch,
                });
                sessions.committed(target, peer.last_committed());
            }
            client.connected(holder, epoch);
        }
        if let Holder::Ost(target) = holder {
            client.ost_committed(target, peer.last_committed());
        }
    }
    client.join_all();
}

fn build(
    cluster: Cluster,
    kernel: Arc<dyn KernelCache>,
    clock: Arc<dyn Clock>,
    (heritage, redone, requests): (Option<&Heritage>, Redone, usize),
) -> Client {
    let targets: Vec<TargetIndex> = cluster.osts().map(|(index, _)| *index).collect();
    let stamp = Arc::new(AtomicU64::new(0));
    let mut state = State::new(Locks::new(targets), stamp.clone());
    let records = heritage.map(|left| left.records().clone());
    let mut takings = None;
    if let Some(left) = heritage {
        state.remember_in(left.records().clone());
        let found = left.restore(&mut state).with_requests(requests);
        takings = (left.incarnation() > 1).then_some(found);
        state.unsettled = takings.is_some();
        state.untold.inherited = takings.is_some();
    }
    if state.inode(Fid::ROOT).lookups == 0 {
        state.inode(Fid::ROOT).lookups = 1;
        state.note_lookups(Fid::ROOT);
    }
    let shared = Arc::new_cyclic(|me: &Weak<Shared>| Shared {
        me: me.clone(),
        cluster,
        state: Mutex::new(state),
        stamp,
        stats: Stats::default(),
        params: Params::default(),
        clock,
        kernel,
        fids: FidMint::default(),
        records,
        redone,
        takings: Mutex::new(takings),
    });
    Client(shared)
}

fn start_timer(client: &Client, stop: Arc<(Mutex<bool>, Condvar)>) -> Option<JoinHandle<()>> {
    let shared = Arc::downgrade(&client.0);
    let work = move || {
        loop {
            let stopped = stop.0.lock().unwrap_or_else(|p| p.into_inner());
            let waited = stop.1.wait_timeout(stopped, TICK);
            if *waited.unwrap_or_else(|p| p.into_inner()).0 {
                return;
            }
            let Some(shared) = shared.upgrade() else {
                return;
            };
            Client(shared).tick();
        }
    };
    threads::Builder::new()
        .name("client-timer".to_owned())
        .spawn(work)
        .ok()
}

impl Client {
    /// Time has passed: ages locks, sends what is old, closes what is durable.
    pub fn tick(&self) {
        let now = self.0.clock.tick();
        let late = self.lock().ending_uses.late(now);
        drop(late);
        {
            let mut state = self.lock();
            state.locks.tick(now);
            let bytes = self.0.params.cache_bytes_max();
            state.handles.share_readahead(bytes / 2);
            if !state.unsettled {
                state.written_before.grow_old(now);
            }
        }
        self.shrink_cache();
        crate::io::pages::give_back_some();
        self.flush_aged();
        self.close_ready();
        self.release_pinned();
        self.send_releases();
    }

    /// Everything done is durable and every file that is not open is closed at the MDT.
    pub(crate) async fn sync_and_close(&self) -> Result<(), base::FsError> {
        self.sync().await?;
        {
            let mut state = self.lock();
            let closing: Vec<Fid> = state.closing.iter().copied().collect();
            for fid in closing {
                state.file(fid).committed = true;
            }
        }
        loop {
            self.close_all().await;
            let Some(wait) = self.close_under_way() else {
                return self.fsyncdir().await;
            };
            wait.await;
        }
    }
}
