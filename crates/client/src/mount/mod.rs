//! Joining a file system: the MGS tells who is where, then each target is reached.

mod addresses;
mod backlog;
pub(crate) mod config;
mod targets;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;
use threads::JoinHandle;
use threads::{Condvar, Mutex};

use base::{Clock, Fid, FsError, TargetIndex, Tick};
use rpc::{Peer, Policy};
use wire::mgs;

use crate::cache::holder::Holder;
use crate::executor::{block_on, spawn};
use crate::journal::call_records::Redone;
use crate::journal::sessions::{Sessions, TargetBody};
use crate::mount::addresses::{Following, fetch_config};
use crate::recovery::takeover::TakeoverState;
use crate::recovery::void::Void;
use crate::session::client::{Client, Shared};
use crate::session::cluster::Cluster;
use crate::session::gathering::Gathered;
use crate::session::kernel::KernelCache;
use crate::session::locks::Locks;
use crate::session::params::Params;
use crate::session::sequence::FidMint;
use crate::session::state::State;
use crate::session::stats::Stats;
use crate::work::write_errors::Unwritten;
use config::{MountConfig, MountError};
use targets::{Acquaintance, Slot, wanted};

/// How often ages are looked at.
const TICK: Duration = Duration::from_millis(100);
/// How soon a soft mount asks again for the root of a file system whose MDT is away.
const ASKED_AGAIN: Duration = Duration::from_millis(50);

/// A joined file system and the thread that ages its caches.
pub struct Mounted {
    client: Client,
    config: mgs::Config,
    stop: Arc<(Mutex<bool>, Condvar)>,
    timer: Option<JoinHandle<()>>,
    following: Option<Following>,
    ended: AtomicBool,
}

/// What the process before left is in this one's hands. It says no goodbye, and drops nothing of that:
/// it ends, and all is left to the next.
fn cannot_go_on(takeover: Option<&TakeoverState>, error: MountError) -> MountError {
    if takeover.is_some_and(|left| left.incarnation() > 1) {
        tracing::error!("cannot go on with the mount: {error}");
        std::process::exit(1);
    }
    error
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
        let (takeover, redone) = (config.takeover.as_deref(), Redone::default());
        let mut asked = takeover.map(|left| left.asked(&redone)).unwrap_or_default();
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
                .map_err(|cause| cannot_go_on(takeover, MountError::Threads(cause)))?;
            match holder {
                Holder::Mdt => mdt = Some(peer),
                Holder::Ost(index) => osts.push((index, peer)),
            }
        }
        let mdt = mdt.ok_or(MountError::Incomplete("MDT"))?;
        let remembered = (takeover, redone, requests);
        let records = takeover.map(|left| left.records().clone());
        let cluster = Cluster::new(mdt, osts, records);
        let client = build(cluster, kernel, clock, remembered);
        let Acquaintance { slot, gave_up, .. } = &acquaintance;
        introduce(
            &client,
            takeover.map(TakeoverState::sessions),
            slot,
            gave_up,
        );
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let timer = start_timer(&client, stop.clone());
        let following = Following::start(acquaintance, Arc::downgrade(&client.0))
            .map_err(|error| cannot_go_on(takeover, error))?;
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

    /// Fetches the root's attributes, for which the first caller will ask: so the time until a server far
    /// away is reached belongs to mounting. One that is away is waited for no longer than that. False: it has
    /// not answered yet.
    pub fn meet_root(&self, patience: Duration, policy: Policy) -> bool {
        let until = threads::now() + patience;
        loop {
            let left = until.saturating_duration_since(threads::now());
            match (self.ask_for_root(left), policy) {
                (None, _) => return false,
                // Its calls fail while the server is away: that is no answer.
                (Some(Err(_)), Policy::Soft { .. }) => {}
                // A later call reports an error.
                (Some(_), _) => return true,
            }
            let left = until.saturating_duration_since(threads::now());
            if left.is_zero() {
                return false;
            }
            threads::sleep(ASKED_AGAIN.min(left));
        }
    }

    /// How the root's attributes came. None: they have not within this time.
    fn ask_for_root(&self, patience: Duration) -> Option<Result<(), FsError>> {
        let met = Arc::new((Mutex::new(None), Condvar::new()));
        let (client, signal) = (self.client.clone(), met.clone());
        spawn(async move {
            let answer = client.getattr(Fid::ROOT).await.map(drop);
            *signal.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
            signal.1.notify_all();
        });
        let is_met = met.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is away is met later.
        let waited = met
            .1
            .wait_timeout_while(is_met, patience, |met| met.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    }

    /// Sends everything unsent, closes, and leaves. Nothing is lost but what the error tells.
    pub fn leave(&mut self) -> Result<(), Unwritten> {
        if self.ended.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let client = self.client.clone();
        // With the mount goes what the kernel still had to say of closed files.
        client.release_all();
        let left = block_on(async move {
            let synced = client.sync_and_close().await;
            client.report_write_errors(synced).await
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
    (takeover, redone, requests): (Option<&TakeoverState>, Redone, usize),
) -> Client {
    let targets: Vec<TargetIndex> = cluster.osts().map(|(index, _)| *index).collect();
    let stamp = Arc::new(AtomicU64::new(0));
    let mut state = State::new(Locks::new(targets), stamp.clone());
    let records = takeover.map(|left| left.records().clone());
    let mut taken_over = None;
    if let Some(left) = takeover {
        state.journal.begin(left.records().clone());
        let found = left.restore(&mut state).with_requests(requests);
        taken_over = (left.incarnation() > 1).then_some(found);
        if taken_over.is_some() {
            state.locks.begin_takeover();
            state.policies.pending_updates.inherits();
        }
    }
    if !state.cache.inode(Fid::ROOT).is_in_kernel() {
        state.refer(Fid::ROOT);
    }
    let shared = Arc::new_cyclic(|me: &Weak<Shared>| Shared {
        me: me.clone(),
        cluster,
        gathered: Gathered::default(),
        state: Mutex::new(state),
        stamp,
        stats: Stats::default(),
        params: Params::default(),
        tunables: takeover.map(TakeoverState::tunables),
        clock,
        kernel,
        fids: FidMint::default(),
        records,
        births: AtomicU64::new(0),
        redone,
        taken_over: Mutex::new(taken_over),
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
        let late = self.lock().handles.late_ends(now);
        drop(late);
        {
            let mut state = self.lock();
            state.locks.tick(now);
            state.servers.tick();
            let bytes = self.0.params.cache_bytes_max();
            state.handles.share_readahead(bytes / 2);
            if state.locks.is_settled() {
                state.journal.grow_old(now);
            }
        }
        self.end_broken_appends(now);
        self.shrink_cache();
        crate::cache::pages::give_back_some();
        self.report_aged_births();
        self.flush_aged();
        self.report_aged();
        self.close_ready();
        self.release_pinned();
        self.end_uncovered_executions();
        self.send_releases();
    }

    /// Gives up the appends of which nothing more has come and whose calls do not go on.
    fn end_broken_appends(&self, now: Tick) {
        let late = self.lock().long_appends.late(now);
        if late.is_empty() {
            return;
        }
        // It asks the system, so without the lock.
        let going_on: Vec<Fid> = late
            .iter()
            .copied()
            .filter(|fid| self.0.kernel.is_appending(*fid))
            .collect();
        self.lock().end_broken_appends(&late, &going_on, now);
    }

    /// Everything done is durable and every file that is not open is closed at the MDT.
    pub(crate) async fn sync_and_close(&self) -> Result<(), base::FsError> {
        self.sync().await?;
        {
            let mut state = self.lock();
            for fid in state.policies.writeback.closing() {
                state.cache.file(fid).durability.commit();
                state.note(fid);
            }
        }
        loop {
            self.close_all().await;
            let Some(wait) = self.close_under_way() else {
                return self.sync_names().await;
            };
            wait.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use base::Fid;
    use wire::mdt::{Access, Request};

    use crate::calls::open::READING;
    use crate::executor::block_on;
    use crate::rig::servers::{Heard, Servers};
    use crate::session::file_handle::OpenWish;

    #[test]
    fn a_file_is_closed_at_the_end_although_the_kernel_has_not_said_so() {
        let servers = Servers::start();
        let mut mounted = servers.mount(None);
        let client = mounted.client().clone();
        let opened = block_on(async move {
            let access = Access {
                write: true,
                ..READING
            };
            let append = false;
            client.open(Fid(7), OpenWish { access, append }).await
        });
        opened.expect("it is answered");
        assert!(mounted.leave().is_ok());
        let is_close = |heard: &Heard| matches!(heard, Heard::Mdt(Request::Close { .. }, _));
        assert_eq!(servers.heard().into_iter().filter(is_close).count(), 1);
    }
}
