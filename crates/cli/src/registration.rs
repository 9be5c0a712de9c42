//! Telling the MGS where targets are, and reaching the targets it names, wherever they move.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::{BootEpoch, Clock, TargetIndex, TargetKind, TargetName, Transno};
use mds::serve::MdtServer;
use rpc::{
    Address, Batch, CallbackResponder, ClientHandler, Clocks, Credential, Key, MemPort, Message,
    Peer, PeerConfig, PeerState, Policy,
};
use storage::Fence;
use wire::mgs::{Config, Reply, Request, TargetInfo};
use wire::opcode;

use crate::mgs::Mgs;

/// How long the MGS may take to answer while everything is served.
const ANSWER: Duration = Duration::from_secs(5);
/// How often it is asked where targets are, while all are reached and while one is not.
const ASKED_EVERY: Duration = Duration::from_secs(3);
const ASKED_FOR_A_MISSING_ONE: Duration = Duration::from_secs(1);

/// How this process reaches the MGS.
#[derive(Clone)]
pub struct Registration {
    /// The MGS, if it is served here.
    pub mgs: Option<Arc<Mgs>>,
    /// Where it is otherwise.
    pub addresses: Vec<Address>,
    /// How others are spoken to.
    pub way: Way,
    /// Where this process listens for itself, and the targets it serves: these are reached without
    /// a socket, whether or not others can reach them.
    pub here: (Arc<MemPort>, Vec<TargetName>),
}

/// How a process speaks to targets, for other targets or a person.
#[derive(Clone)]
pub struct Way {
    /// What is proven.
    pub key: Key,
    /// Whose key that is.
    pub credential: Credential,
    /// Beyond loopback although nothing is encrypted.
    pub insecure: bool,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The servers of whose clocks a person was told.
    pub clocks: Clocks,
}

/// The target with the addresses it is served at, and those it is served at other times.
pub fn at(info: TargetInfo, addresses: &[Address], also: &[Address]) -> TargetInfo {
    let mut spelt: Vec<String> = addresses.iter().map(Address::to_string).collect();
    for other in also.iter().map(Address::to_string) {
        if !spelt.contains(&other) {
            spelt.push(other);
        }
    }
    TargetInfo {
        addresses: spelt,
        ..info
    }
}

/// Servers call nobody back here.
struct NoCallbacks;

impl ClientHandler for NoCallbacks {
    fn callback(&self, _message: Message, _responder: CallbackResponder) {}
    fn epoch_changed(&self, _old: BootEpoch, _new: BootEpoch) {}
    fn evicted(&self) {}
    fn last_committed(&self, _transno: Transno) {}
}

impl Registration {
    /// Tells the MGS; what it knows then. Waits for it.
    pub fn register(&self, targets: Vec<TargetInfo>) -> Result<Config, String> {
        if let Some(mgs) = &self.mgs {
            return mgs.register(targets);
        }
        if self.addresses.is_empty() {
            return Err("no MGS among the targets; say where it is with --mgs ADDR".to_owned());
        }
        // Nothing is served yet: a person is told what is wrong.
        let policy = Policy::Trial { timeout: None };
        let peer = self
            .way
            .peer(TargetName::MGS, self.addresses.clone(), policy)?;
        let answer = ask(&peer, &Request::Register { targets });
        peer.close();
        answer
    }

    /// A connection to each OST, for an MDT that removes objects.
    pub fn peers(&self, config: &Config) -> Result<Vec<(TargetIndex, Peer)>, String> {
        let osts = self.osts(config).into_iter();
        osts.map(|(index, addresses)| Ok((index, self.ost(index, addresses)?)))
            .collect()
    }

    fn ost(&self, index: TargetIndex, addresses: Vec<Address>) -> Result<Peer, String> {
        let name = TargetName {
            kind: TargetKind::Ost,
            index,
        };
        self.way.peer(name, addresses, Policy::Hard)
    }

    fn osts(&self, config: &Config) -> Vec<(TargetIndex, Vec<Address>)> {
        let targets = config.targets.iter();
        let osts = targets.filter(|target| target.name.kind == TargetKind::Ost);
        osts.map(|target| (target.name.index, self.addresses_of(target)))
            .collect()
    }

    fn addresses_of(&self, target: &TargetInfo) -> Vec<Address> {
        let (port, ours) = &self.here;
        if ours.contains(&target.name) {
            return vec![Address::Mem(port.clone())];
        }
        let parsed = target.addresses.iter().map(|text| text.parse());
        parsed.filter_map(Result::ok).collect()
    }
}

impl Way {
    /// A target that is spoken to.
    pub fn peer(
        &self,
        target: TargetName,
        addresses: Vec<Address>,
        policy: Policy,
    ) -> Result<Peer, String> {
        let secret = rpc::new_client_secret().map_err(|error| error.to_string())?;
        let config = PeerConfig {
            target,
            addresses,
            secret,
            incarnation: 1,
            key: Some(self.key.clone()),
            credential: self.credential,
            insecure: self.insecure,
            policy,
            lanes: 1,
            keeping: rpc::Keeping::Nothing,
            legacy: None,
            clocks: self.clocks.clone(),
        };
        let clock = self.clock.clone();
        Peer::new(config, Arc::new(NoCallbacks), clock).map_err(|error| error.to_string())
    }
}

/// What the MGS knows when it has done what is asked.
pub fn ask(peer: &Peer, request: &Request) -> Result<Config, String> {
    let answer = peer
        .call(Batch::of(opcode::MGS, wire::encode(request)))
        .wait();
    let answer = answer.map_err(|cause| match peer.state() {
        PeerState::Refused(refusal) => format!("the MGS refuses us: {refusal}"),
        _ => format!("the MGS did not answer: {cause}"),
    })?;
    let reply = answer
        .replies
        .first()
        .ok_or("the MGS gave an empty answer")?;
    wire::status_from(reply.status).map_err(|_| "the MGS did not understand".to_owned())?;
    match wire::decode(&reply.body).map_err(|error| error.to_string())? {
        Reply::Config(config) => Ok(config),
        Reply::Refused { reason } => Err(reason),
    }
}

/// Keeps the MGS and the MDTs of this process up to date about who is where, until it is dropped.
pub struct Following {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

/// What is kept up to date.
pub struct Followed {
    /// How the MGS is reached.
    pub registration: Registration,
    /// The targets of this process, as registered.
    pub told: Vec<TargetInfo>,
    /// What this process must hold to say that it serves them.
    pub fences: Vec<Arc<Fence>>,
    /// Those of this process.
    pub mdts: Vec<Arc<MdtServer>>,
}

impl Following {
    /// Begins.
    pub fn start(followed: Followed) -> Result<Following, String> {
        let stop = Arc::<(Mutex<bool>, Condvar)>::default();
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("addresses".to_owned());
        let thread = thread.spawn(move || followed.run(&stopped));
        Ok(Following {
            stop,
            thread: Some(
                thread.map_err(|error| format!("a thread could not be started: {error}"))?,
            ),
        })
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that follows targets panicked");
        }
    }
}

impl Followed {
    /// Registers the targets and lets the MDTs reach the OSTs; what the MGS knows then.
    pub fn begin(&self) -> Result<Config, String> {
        let found = self.registration.register(self.told.clone())?;
        for mdt in &self.mdts {
            let peers = self.registration.peers(&found)?;
            mdt.set_osts(peers.iter().map(|(index, _)| *index).collect(), peers);
        }
        Ok(found)
    }

    fn run(&self, stop: &(Mutex<bool>, Condvar)) {
        let mut asked = Instant::now();
        let mut peer = None;
        loop {
            let stopped = stop.0.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = stop.1.wait_timeout(stopped, ASKED_FOR_A_MISSING_ONE);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                break;
            }
            let misses = self.mdts.iter().any(|mdt| mdt.misses_osts());
            if !misses && asked.elapsed() < ASKED_EVERY {
                continue;
            }
            asked = Instant::now();
            match self.config(&mut peer) {
                Ok(config) => {
                    for mdt in &self.mdts {
                        let reach = |index, addresses| self.reach(index, addresses);
                        mdt.osts_are_at(self.registration.osts(&config), reach);
                    }
                }
                Err(error) => tracing::debug!("where targets are is not known anew: {error}"),
            }
        }
        if let Some(peer) = peer {
            peer.close();
        }
    }

    /// A connection to an OST that has registered meanwhile.
    fn reach(&self, index: TargetIndex, addresses: Vec<Address>) -> Option<Peer> {
        let peer = self.registration.ost(index, addresses);
        peer.inspect_err(|error| tracing::error!("OST{} cannot be reached: {error}", index.0))
            .ok()
    }

    /// Registers the targets here again, and returns the MGS's configuration. An MGS that was restored may
    /// have forgotten them, or know an older place. It compares by itself: only the MGS sees the address of a
    /// server that listens on all.
    fn config(&self, peer: &mut Option<Peer>) -> Result<Config, String> {
        let targets = self.told_now();
        if let Some(mgs) = &self.registration.mgs {
            return mgs.register(targets);
        }
        let policy = Policy::Soft { timeout: ANSWER };
        let addresses = self.registration.addresses.clone();
        let peer = match peer {
            Some(peer) => peer,
            none => none.insert(
                self.registration
                    .way
                    .peer(TargetName::MGS, addresses, policy)?,
            ),
        };
        let config = ask(peer, &Request::Register { targets })?;
        peer.set_addresses(self.mgs_is_at(&config));
        Ok(config)
    }

    /// What to register: nothing while it is uncertain whether the targets are still served here.
    fn told_now(&self) -> Vec<TargetInfo> {
        match self.fences.iter().all(|fence| fence.is_held()) {
            true => self.told.clone(),
            false => Vec::new(),
        }
    }

    /// Where the MGS may be: where this process was told, and where the MGS itself says.
    fn mgs_is_at(&self, config: &Config) -> Vec<Address> {
        let mut mgs_at = self.registration.addresses.clone();
        let mut targets = config.targets.iter();
        let mgs = targets.find(|one| one.name == TargetName::MGS);
        for address in mgs
            .map(|mgs| self.registration.addresses_of(mgs))
            .unwrap_or_default()
        {
            let is_new = !mgs_at
                .iter()
                .any(|known| known.to_string() == address.to_string());
            if is_new && !address.is_wildcard() {
                mgs_at.push(address);
            }
        }
        mgs_at
    }
}
