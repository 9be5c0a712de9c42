//! The file system's calls, POSIX-shaped, on FIDs. FUSE, tools and tests all use these.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use threads::{Mutex, MutexGuard};

use base::{Clock, Fid, FsError, LockHandle, Name, TargetIndex, Transno};
use handover::Records;
use rpc::Urgency;
use wire::frame::Bulk;
use wire::mdt::{self, Caller};
use wire::ost::ObjectAttr;
use wire::{Attr, Cover, ost};

use crate::cache::stamps::Mark;
use crate::executor::{PutOff, oneshot};
use crate::journal::attempts::{AttemptBody, AttemptJournal, AttemptRecord};
use crate::journal::call_records::Redone;
use crate::journal::nodes::FurtherNode;
use crate::journal::tunables::Tunables;
use crate::session::cluster::{Cluster, OstAnswer, decode_ost};
use crate::session::gathering::Gathered;
use crate::session::kernel::{Forget, KernelCache};
use crate::session::params::Params;
use crate::session::sequence::FidMint;
use crate::session::state::State;
use crate::session::stats::{Kept, Snapshot, Stats};
use crate::session::taken_over::TakenOver;

/// A mounted file system. Cheap to clone.
#[derive(Clone)]
pub struct Client(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    /// Itself, for work that is started when the state is let go.
    pub me: Weak<Shared>,
    pub cluster: Cluster,
    pub gathered: Gathered,
    pub state: Mutex<State>,
    pub stamp: Arc<AtomicU64>,
    pub stats: Stats,
    pub params: Params,
    /// Those that were set while mounted, for the next process.
    pub tunables: Option<Tunables>,
    pub clock: Arc<dyn Clock>,
    pub kernel: Arc<dyn KernelCache>,
    pub fids: FidMint,
    /// Where what the next process needs is remembered.
    pub records: Option<Records>,
    /// Files made here so far, by which OSTs take turns.
    pub births: AtomicU64,
    /// Changes that the process before had asked for.
    pub redone: Redone,
    /// What it left, until that is taken over.
    pub taken_over: Mutex<Option<TakenOver>>,
}

/// A file, as a name was found to lead to it.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The file.
    pub fid: Fid,
    /// Its attributes, size included.
    pub attr: Attr,
    /// A lock covers the attributes.
    pub attr_valid: bool,
    /// A lock covers the name.
    pub name_valid: bool,
    /// When this was put together; see [`Client::stamp`].
    pub stamp: u64,
}

/// A file's attributes.
#[derive(Debug, Clone)]
pub struct Stat {
    /// All of them, size included.
    pub attr: Attr,
    /// A lock covers them.
    pub valid: bool,
    /// When this was put together; see [`Client::stamp`].
    pub stamp: u64,
}

/// The state under its lock. When it is let go, the giving back of locks that was found due
/// begins, and tasks woken meanwhile run.
pub(crate) struct StateGuard<'a> {
    // `None` only while it is dropped.
    guard: Option<MutexGuard<'a, State>>,
    shared: &'a Shared,
    // Last: fields drop in order.
    _put_off: PutOff,
}

impl Deref for StateGuard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.guard.as_ref().expect("held until dropped")
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.guard.as_mut().expect("held until dropped")
    }
}

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        let revocations = self.locks.take_revocations();
        self.guard = None;
        if let (false, Some(shared)) = (revocations.is_empty(), self.shared.me.upgrade()) {
            let client = Client(shared);
            revocations
                .into_iter()
                .for_each(|revocation| client.start_revocation(revocation));
        }
    }
}

/// How often a request is sent again that the MDT could not finish for others' changes.
const TRIES: u32 = 64;

impl Shared {
    pub fn lock(&self) -> StateGuard<'_> {
        let put_off = PutOff::begin();
        let guard = self
            .state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        StateGuard {
            guard: Some(guard),
            shared: self,
            _put_off: put_off,
        }
    }

    /// One request to the MDT; again where what it found was changed under it too often.
    pub async fn mdt(&self, request: mdt::Request) -> Result<mdt::Reply, FsError> {
        let is_anything_unreported = !self.lock().births.is_empty();
        if is_anything_unreported && let Some(shared) = self.me.upgrade() {
            Client(shared).report_births_first(&request.fids()).await;
        }
        if self.records.is_some()
            && let Some(outcome) = self.redone.take(&request).await
        {
            // Locks and uses in it are of the process before, and gone; or nobody else knows of them.
            self.lock().void_answers();
            let handles = outcome.as_ref().map(granted_in).unwrap_or_default();
            if !handles.is_empty() {
                let cancel = vec![mdt::Request::Cancel { handles }];
                let sent = self.cluster.mdt_batch(&self.stats, cancel, Urgency::Urgent);
                sent.await?;
            }
            return outcome;
        }
        for _ in 0..TRIES {
            match self.cluster.mdt(&self.stats, &request).await {
                Err(FsError::TryAgain) => {}
                answer => return answer,
            }
        }
        Err(FsError::Busy)
    }

    /// Tells the MDT of a change that others wait to hear of, past all requests that wait.
    pub async fn report_to_mdt(&self, change: mdt::Request) -> Result<(), FsError> {
        let asked = self.lock().cache.mark(Fid::NONE);
        let reply = self.mdt_urgent(change).await?;
        self.keep_grant(&reply, asked);
        Ok(())
    }

    /// One request that others may wait for, past all that wait themselves.
    pub async fn mdt_urgent(&self, request: mdt::Request) -> Result<mdt::Reply, FsError> {
        for _ in 0..TRIES {
            let (stats, request) = (&self.stats, vec![request.clone()]);
            let asked = self.cluster.mdt_batch(stats, request, Urgency::Urgent);
            match asked.await?.pop().unwrap_or(Err(FsError::Io)) {
                Err(FsError::TryAgain) => {}
                answer => return answer,
            }
        }
        Err(FsError::Busy)
    }

    /// One request without data to an OST.
    pub async fn ost(
        &self,
        target: TargetIndex,
        request: ost::Request,
    ) -> Result<OstAnswer, FsError> {
        let (stats, urgency) = (&self.stats, Urgency::Ordinary);
        self.cluster.ost(stats, target, request, urgency).await
    }

    /// The same for one that others may wait for.
    pub async fn ost_urgent(
        &self,
        target: TargetIndex,
        request: ost::Request,
    ) -> Result<OstAnswer, FsError> {
        let (stats, urgency) = (&self.stats, Urgency::Urgent);
        self.cluster.ost(stats, target, request, urgency).await
    }

    /// One request without data that changes an object: how it is now, and the change's number.
    pub async fn change_object(
        &self,
        target: TargetIndex,
        request: ost::Request,
        urgency: Urgency,
    ) -> Result<(ObjectAttr, Transno), FsError> {
        let asked = self.cluster.ost(&self.stats, target, request, urgency);
        let answer = asked.await?;
        match answer.reply {
            ost::Reply::Written { attr, .. } => Ok((attr, answer.transno)),
            other => Err(unexpected(&other)),
        }
    }

    /// A FID no file ever had, and a moment in `dir` at which it was not taken yet. An MDT that has given
    /// this client up since that moment may refuse the FID.
    pub async fn mint(&self, dir: Fid) -> Result<(Mark, Fid), FsError> {
        loop {
            let mark = self.lock().cache.mark(dir);
            if let Some(fid) = self.fids.take() {
                return Ok((mark, fid));
            }
            let reply = self.mdt(mdt::Request::AllocSequences).await?;
            let mdt::Reply::Sequences { range, name_key } = reply else {
                return Err(unexpected(&reply));
            };
            if !range.is_grantable() {
                return Err(unexpected(&reply));
            }
            let state = self.lock();
            // What was granted before an eviction is burnt.
            if state.servers.is_of_this_boot(mark) {
                self.fids.supply(range, name_key);
            }
        }
    }

    /// Keeps the lock that came with an answer whose attributes are not wanted: the MDT counts on its
    /// being given back.
    pub fn keep_grant(&self, reply: &mdt::Reply, asked: Mark) {
        if let mdt::Reply::Node(node) | mdt::Reply::Opened { node, .. } = reply
            && let Cover::Own(grant) = &node.cover
        {
            self.lock().take_asked(grant, asked);
        }
    }

    /// Waits until the kernel has forgotten.
    pub async fn forget(&self, what: Forget) {
        let (done, is_done) = oneshot();
        self.kernel.forget(what, done);
        is_done.await;
    }
}

/// The locks that come with an answer to a change.
fn granted_in(reply: &mdt::Reply) -> Vec<LockHandle> {
    let nodes = match reply {
        mdt::Reply::Node(node)
        | mdt::Reply::Opened { node, .. }
        | mdt::Reply::Created { node, .. }
        | mdt::Reply::Linked { node, .. }
        | mdt::Reply::Unlinked { node, .. } => [Some(node), None, None],
        mdt::Reply::Renamed {
            node,
            replaced,
            whiteout,
            ..
        } => [Some(node), replaced.as_ref(), whiteout.as_ref()],
        _ => [None, None, None],
    };
    let granted = nodes
        .into_iter()
        .flatten()
        .filter_map(|node| match &node.cover {
            Cover::Own(grant) => Some(grant.handle),
            _ => None,
        });
    granted.collect()
}

/// A server answered something else than what it was asked.
pub(crate) fn unexpected(reply: &impl std::fmt::Debug) -> FsError {
    tracing::error!("a server gave an answer of the wrong kind: {reply:?}");
    FsError::Io
}

/// The same for each of them.
fn all<A>(error: FsError, count: usize) -> Vec<Result<A, FsError>> {
    (0..count).map(|_| Err(error)).collect()
}

impl Client {
    /// One request to the MDT that others may wait for, in one frame with those that are asked in the
    /// same moment.
    pub(crate) async fn mdt_together(&self, request: mdt::Request) -> Result<mdt::Reply, FsError> {
        for _ in 0..TRIES {
            let client = self.clone();
            let send = move |requests: Vec<mdt::Request>| {
                let client = client.clone();
                async move {
                    let (shared, count) = (&client.0, requests.len());
                    let (cluster, urgency) = (&shared.cluster, Urgency::Urgent);
                    let asked = cluster.mdt_batch(&shared.stats, requests, urgency).await;
                    asked.unwrap_or_else(|error| all(error, count))
                }
            };
            let asked = self.0.gathered.mdt.ask(request.clone(), send);
            match asked.await.unwrap_or(Err(FsError::Io)) {
                Err(FsError::TryAgain) => {}
                answer => return answer,
            }
        }
        Err(FsError::Busy)
    }

    /// The same of an OST, without data.
    pub(crate) async fn ost_together(
        &self,
        target: TargetIndex,
        request: ost::Request,
    ) -> Result<ost::Reply, FsError> {
        let client = self.clone();
        let send = move |requests: Vec<ost::Request>| {
            let client = client.clone();
            async move {
                let (shared, count, nothing) = (&client.0, requests.len(), Bulk::default());
                let (cluster, urgency) = (&shared.cluster, Urgency::Urgent);
                let asked = cluster.ost_batch(&shared.stats, target, &requests, nothing, urgency);
                match asked.await {
                    Ok(answer) => (0..count).map(|index| decode_ost(&answer, index)).collect(),
                    Err(error) => all(error, count),
                }
            }
        };
        let asked = self.0.gathered.of_ost(target).ask(request, send);
        asked.await.unwrap_or(Err(FsError::Io))
    }

    pub(crate) fn lock(&self) -> StateGuard<'_> {
        self.0.lock()
    }

    /// Grows whenever something cached is withdrawn. An answer whose stamp is older must reach
    /// the kernel with timeouts of zero.
    pub fn stamp(&self) -> u64 {
        self.0.stamp.load(Ordering::SeqCst)
    }

    /// Counters now.
    pub fn stats(&self) -> Snapshot {
        let cluster = &self.0.cluster;
        let (unsent_bytes, undurable_bytes) = self.lock().unsettled_bytes();
        let kept = Kept {
            replay: cluster.mdt.kept(),
            unsent_bytes,
            undurable_bytes,
        };
        self.0.stats.snapshot(cluster.rpcs_sent(), kept)
    }

    /// The counters themselves, for those who count outside (the kernel rim).
    pub fn counters(&self) -> &Stats {
        &self.0.stats
    }

    /// Tunables.
    pub fn params(&self) -> &Params {
        &self.0.params
    }

    /// Sets a tunable while mounted. It holds for the next process of this mount, too.
    pub fn set_param(&self, name: &str, value: u64) -> Result<(), String> {
        self.0.params.set(name, value)?;
        if let Some(tunables) = &self.0.tunables {
            tunables.remember(name, value);
        }
        Ok(())
    }

    /// Takes the tunables that were set in a process of this mount before.
    pub fn inherit_params(&self) {
        let inherited = self.0.tunables.as_ref().map(Tunables::values);
        for (name, value) in inherited.into_iter().flatten() {
            if let Err(error) = self.0.params.set(&name, value) {
                tracing::warn!("a tunable of the process before is not taken: {error}");
            }
        }
    }

    /// The caller's thread is awake: until [`Client::sleeps`] it receives the MDT's replies, by
    /// calling [`Client::attend`] again and again.
    pub fn wakes(&self) {
        self.0.cluster.mdt.begin_attending();
    }

    /// Takes a reply of the MDT if one has come. True: that was so.
    pub fn attend(&self) -> bool {
        self.0.cluster.mdt.attend()
    }

    /// The caller's thread falls asleep.
    pub fn sleeps(&self) {
        self.0.cluster.mdt.end_attending();
    }

    /// The kernel holds `count` references less.
    pub fn forget(&self, fid: Fid, count: u64) {
        self.lock().unrefer(fid, count);
    }

    /// The kernel is about to hold one more reference of each.
    pub fn remember(&self, fids: impl IntoIterator<Item = Fid>) {
        let mut state = self.lock();
        fids.into_iter().for_each(|fid| state.refer(fid));
    }

    /// Makes `node` known to a successor as one of `fid`. None: it would not be, for want of memory.
    pub fn further_node(&self, node: u64, fid: Fid) -> Option<FurtherNode> {
        FurtherNode::new(self.0.records.as_ref(), node, fid)
    }

    /// Those that the process before this one had made, the first time.
    pub fn inherited_nodes(&self) -> Vec<FurtherNode> {
        self.lock().journal.take_further_nodes()
    }

    /// Where second attempts of calls are recorded, and those that the process before knew of, the first
    /// time.
    pub fn attempts(&self) -> (AttemptJournal, Vec<(AttemptBody, AttemptRecord)>) {
        self.lock().journal.take_attempts()
    }

    /// Each target, and how things stand with it.
    pub fn targets(&self) -> Vec<(String, String)> {
        let now = self.0.clock.tick();
        let state = |peer: &rpc::Peer| describe(&peer.state(), peer.obstacle(), now);
        self.0
            .cluster
            .peers()
            .map(|peer| (peer.target().to_string(), state(peer)))
            .collect()
    }

    /// A target does not come back as long as this mount lives: calls on it fail from now on.
    pub fn forsake(&self, target: base::TargetName) {
        let mut peers = self.0.cluster.peers();
        if let Some(peer) = peers.find(|peer| peer.target() == target) {
            peer.close();
        }
    }

    /// Gives every idle lock back, with what it covers: as after a fresh mount.
    pub fn drop_caches(&self) {
        self.lock().locks.give_up_idle();
    }

    /// Files known, files open, directories open, locks held.
    pub fn sizes(&self) -> [usize; 4] {
        let state = self.lock();
        let (files, dirs) = state.handles.counts();
        [state.cache.len(), files, dirs, state.locks.len()]
    }
}

/// How things stand with a target, for people.
fn describe(state: &rpc::PeerState, obstacle: Option<String>, now: base::Tick) -> String {
    match state {
        rpc::PeerState::Connected => "connected".to_owned(),
        rpc::PeerState::WaitingSince(since) => {
            let waited = format!("waiting for it, {} s", now.since(*since).as_secs());
            match obstacle {
                Some(said) => format!("{waited}; a peer at its address says: {said}"),
                None => waited,
            }
        }
        rpc::PeerState::Refused(refusal) => format!("refuses this mount: {refusal}"),
        rpc::PeerState::Closed => "left".to_owned(),
    }
}

/// What a new file shall be.
#[derive(Debug, Clone)]
pub struct NewNode {
    /// Its kind.
    pub kind: wire::FileKind,
    /// Permission bits after the umask.
    pub mode: u16,
    /// Device number.
    pub rdev: u32,
    /// A symlink's target.
    pub target: Vec<u8>,
}

/// Where something is to happen, and for whom.
#[derive(Debug, Clone)]
pub struct Place {
    /// The directory.
    pub dir: Fid,
    /// The name in it.
    pub name: Name,
    /// Who asks.
    pub caller: Caller,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_things_stand_with_a_target_is_told_in_words() {
        let refusal = rpc::Refusal::new(rpc::RefusalReason::Key, "another key: copy it");
        let now = base::Tick::default();
        let words = describe(&rpc::PeerState::Refused(refusal), None, now);
        assert_eq!(words, "refuses this mount: another key: copy it");
        let waits = rpc::PeerState::WaitingSince(now);
        let words = describe(&waits, Some("come again".to_owned()), now);
        assert_eq!(
            words,
            "waiting for it, 0 s; a peer at its address says: come again"
        );
    }
}
