//! Where targets are: asked of the MGS at the beginning, and again while one of them does not answer,
//! for it may have moved.

use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use base::{Clock, TargetKind, TargetName};
use rpc::{Address, Batch, Peer, PeerState, Policy};
use threads::{Builder, Condvar, JoinHandle, Mutex};
use wire::{mgs, opcode};

use super::config::{MountConfig, MountError, reachable};
use super::targets::{Acquaintance, NoCallbacks};
use crate::journal::configuration::Configuration;
use crate::recovery::takeover::TakeoverState;
use crate::session::client::Shared;

/// How often it is looked whether all targets answer.
const LOOK: Duration = Duration::from_secs(1);
/// Looks without any frame of a target that was asked something, until it is asked whether it lives: an
/// answer may wait for another client.
const QUIET_LOOKS: u32 = 3;
/// Looks until it counts as silent.
const SILENT_LOOKS: u32 = 5;
/// How long the MGS may take to answer before it is asked again.
const ANSWER: Duration = Duration::from_secs(1);

/// Asks the MGS what the file system consists of. Waits for it as long as `config` is patient; not at all
/// where the process before was told, since programs wait for this one.
pub fn fetch_config(
    config: &MountConfig,
    clock: Arc<dyn Clock>,
) -> Result<mgs::Config, MountError> {
    let told = config.takeover.as_deref().map(TakeoverState::configuration);
    // Who goes on with a mount has what is lost if it does not; who begins one is told at once.
    let goes_on = config
        .takeover
        .as_deref()
        .is_some_and(|left| left.incarnation() > 1);
    let policy = match goes_on {
        true => Policy::Soft { timeout: ANSWER },
        false => Policy::Trial {
            timeout: Some(ANSWER),
        },
    };
    let (began, peer) = (threads::now(), mgs_peer(config, policy, clock)?);
    let found = loop {
        if let ControlFlow::Break(found) = ask(&peer) {
            break found;
        }
        match told.and_then(Configuration::last) {
            Some(last) => break Ok(last),
            None if (config.patience)(threads::now() - began) => {}
            None => break Err(MountError::Mgs(no_answer(config, &peer))),
        }
    };
    peer.close();
    if let (Some(told), Ok(found)) = (told, &found) {
        told.remember(found);
    }
    found
}

fn mgs_peer(
    config: &MountConfig,
    policy: Policy,
    clock: Arc<dyn Clock>,
) -> Result<Peer, MountError> {
    let mut peer = config.peer(TargetName::MGS, config.addresses.clone(), 1);
    peer.policy = policy;
    Peer::new(peer, Arc::new(NoCallbacks), clock).map_err(MountError::Threads)
}

/// Why the MGS has not answered.
fn no_answer(config: &MountConfig, peer: &Peer) -> String {
    let tried: Vec<String> = config.addresses.iter().map(Address::to_string).collect();
    let tried = tried.join(",");
    match peer.obstacle() {
        Some(said) => format!("a peer at {tried} says: {said}"),
        None => {
            format!("no server has it at {tried}; check the address, or start glint serve there")
        }
    }
}

/// Asks once. `Continue`: no answer yet.
fn ask(peer: &Peer) -> ControlFlow<Result<mgs::Config, MountError>> {
    let request = wire::encode(&mgs::Request::GetConfig);
    let answer = peer.call(Batch::of(opcode::MGS, request)).wait();
    let failed = |cause: String| ControlFlow::Break(Err(MountError::Mgs(cause)));
    let answer = match answer {
        Ok(answer) => answer,
        Err(base::Disrupted::Timeout | base::Disrupted::NewEpoch) => {
            return ControlFlow::Continue(());
        }
        Err(cause) => {
            return match peer.state() {
                rpc::PeerState::Refused(why) => {
                    ControlFlow::Break(Err(MountError::Refused(why.to_string())))
                }
                _ => failed(cause.to_string()),
            };
        }
    };
    let Some(reply) = answer.replies.first() else {
        return failed("an empty answer".to_owned());
    };
    match wire::decode::<mgs::Reply>(&reply.body) {
        Ok(mgs::Reply::Config(found)) => ControlFlow::Break(Ok(found)),
        Ok(mgs::Reply::Refused { reason }) => failed(reason),
        Err(cause) => failed(cause.to_string()),
    }
}

/// Follows targets that move, until it is dropped.
pub(crate) struct Following {
    shared: Arc<Stopping>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Stopping {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ending: bool,
    /// The MGS, being asked.
    mgs: Option<Arc<Peer>>,
}

impl Following {
    /// Begins, for the mount of `client`.
    pub fn start(
        acquaintance: Acquaintance,
        client: Weak<Shared>,
    ) -> Result<Following, MountError> {
        let shared = Arc::<Stopping>::default();
        let mut follower = Follower {
            shared: shared.clone(),
            acquaintance,
            client,
            looks: Vec::new(),
            waited: 0,
        };
        let thread = Builder::new().name("client-addresses".to_owned());
        let thread = thread.spawn(move || follower.run());
        Ok(Following {
            shared,
            thread: Some(thread.map_err(MountError::Threads)?),
        })
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.ending = true;
        let mgs = state.mgs.take();
        drop(state);
        self.shared.changed.notify_all();
        if let Some(mgs) = mgs {
            mgs.close();
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that follows targets panicked");
        }
    }
}

impl Stopping {
    // Changed in single steps.
    fn lock(&self) -> threads::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends_within(&self, time: Duration) -> bool {
        let state = self.lock();
        let waited = self
            .changed
            .wait_timeout_while(state, time, |state| !state.ending);
        waited.unwrap_or_else(PoisonError::into_inner).0.ending
    }
}

/// What was seen of a target: frames that came from it, and looks since one did.
#[derive(Default, Clone, Copy)]
struct Look {
    frames: u64,
    silent: u32,
}

/// How a target seems.
#[derive(Debug, PartialEq, Eq)]
enum Seems {
    /// There.
    Fine,
    /// Perhaps gone: it may be asked.
    Quiet,
    /// Gone.
    Silent,
}

impl Look {
    /// Once more, at a target that owes an answer or not, and of which so many frames came.
    fn again(&mut self, owes: bool, frames: u64) -> Seems {
        let is_silent = owes && frames == self.frames;
        self.silent = if is_silent { self.silent + 1 } else { 0 };
        self.frames = frames;
        match self.silent {
            0..QUIET_LOOKS => Seems::Fine,
            QUIET_LOOKS..SILENT_LOOKS => Seems::Quiet,
            _ => Seems::Silent,
        }
    }
}

struct Follower {
    shared: Arc<Stopping>,
    acquaintance: Acquaintance,
    client: Weak<Shared>,
    looks: Vec<Look>,
    /// Looks for which an OST has been wanted that was not met.
    waited: u32,
}

impl Follower {
    fn run(&mut self) {
        while !self.shared.ends_within(LOOK) {
            let Some(client) = self.client.upgrade() else {
                return;
            };
            if !self.misses_any(&client) {
                self.done();
                continue;
            }
            match self.ask() {
                Some(ControlFlow::Break(Ok(found))) => {
                    if let Some(takeover) = &self.acquaintance.config.takeover {
                        takeover.configuration().remember(&found);
                    }
                    self.follow(&client, &found);
                    self.meet(&client, &found);
                }
                Some(ControlFlow::Break(Err(error))) => {
                    tracing::debug!("where targets are is not known anew: {error}");
                }
                _ => {}
            }
            self.wait_no_longer(&client);
        }
    }

    /// Meets the OSTs that calls wait for. Who wants one that there is not is told so.
    fn meet(&self, client: &Shared, found: &mgs::Config) {
        for index in client.cluster.wanted() {
            let is_it = |target: &&mgs::TargetInfo| {
                target.name.kind == TargetKind::Ost && target.name.index == index
            };
            let target = found.targets.iter().find(is_it);
            if target.is_none_or(|target| !self.acquaintance.meet(client, target)) {
                tracing::error!("OST{} is not among the targets of the file system", index.0);
                client.cluster.give_up_meeting(index);
            }
        }
    }

    /// A soft mount waits only so long for the MGS to say where an OST is.
    fn wait_no_longer(&mut self, client: &Shared) {
        let wanted = client.cluster.wanted();
        self.waited = if wanted.is_empty() {
            0
        } else {
            self.waited + 1
        };
        if let Policy::Soft { timeout } = self.acquaintance.config.policy
            && LOOK * self.waited > timeout
        {
            for index in wanted {
                client.cluster.give_up_meeting(index);
            }
        }
    }

    /// A target cannot be reached, or was asked something and is silent.
    fn misses_any(&mut self, client: &Shared) -> bool {
        if !client.cluster.wanted().is_empty() {
            return true;
        }
        let peers: Vec<&Peer> = client.cluster.peers().collect();
        self.looks.resize(peers.len(), Look::default());
        let looks = self.looks.iter_mut().zip(peers);
        looks.fold(false, |misses, (look, peer)| {
            let frames = peer.counters().frames_received();
            let seems = look.again(peer.outstanding() > 0, frames);
            if seems == Seems::Quiet {
                peer.ask_for_sign_of_life();
            }
            misses || peer.state() != PeerState::Connected || seems == Seems::Silent
        })
    }

    fn ask(&self) -> Option<ControlFlow<Result<mgs::Config, MountError>>> {
        let mut state = self.shared.lock();
        if state.ending {
            return None;
        }
        if state.mgs.is_none() {
            state.mgs = mgs_peer(
                &self.acquaintance.config,
                Policy::Soft { timeout: ANSWER },
                self.acquaintance.clock.clone(),
            )
            .ok()
            .map(Arc::new);
        }
        let mgs = state.mgs.clone();
        drop(state);
        mgs.map(|mgs| ask(&mgs))
    }

    /// All targets answer: nothing is asked of the MGS until one does not.
    fn done(&self) {
        let mgs = self.shared.lock().mgs.take();
        if let Some(mgs) = mgs {
            mgs.close();
        }
    }

    fn follow(&mut self, client: &Shared, found: &mgs::Config) {
        let at = |name: TargetName| {
            let target = found.targets.iter().find(|target| target.name == name)?;
            reachable(&self.acquaintance.config, target).ok()
        };
        for peer in client.cluster.peers() {
            let Some(addresses) = at(peer.target()) else {
                continue;
            };
            if peer.set_addresses(addresses) {
                tracing::info!(target = %peer.target(), "it is elsewhere now");
                // The server that is at the old place does not serve it any more; if it is the same
                // one, the session goes on.
                peer.disconnect();
            }
        }
        // The MGS may move as well, to where it said that it might; where it is now it is asked first.
        let mut mgs = at(TargetName::MGS).unwrap_or_default();
        for address in &self.acquaintance.config.addresses {
            if !mgs
                .iter()
                .any(|known| known.to_string() == address.to_string())
            {
                mgs.push(address.clone());
            }
        }
        mgs.truncate(ADDRESSES_MAX);
        self.acquaintance.config.addresses = mgs;
    }
}

/// Addresses at which the MGS is looked for. Beyond: those it was not at last are forgotten.
const ADDRESSES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_lives_is_not_silent_however_long_an_answer_waits() {
        let (mut look, mut frames) = (Look::default(), 7);
        for number in 0..100 {
            let seems = look.again(true, frames);
            assert_ne!(seems, Seems::Silent, "look {number}");
            // It says that it lives.
            frames += u64::from(seems == Seems::Quiet);
        }
        let seen: Vec<Seems> = (0..8).map(|_| look.again(true, frames)).collect();
        assert_eq!(seen[6..], [Seems::Silent, Seems::Silent]);
        assert_eq!(look.again(false, frames), Seems::Fine);
    }
}
