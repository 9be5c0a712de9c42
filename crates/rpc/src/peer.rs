//! A client's end: one target, reached through a session that survives its connections.

mod clocks;
mod config;
mod connector;
mod inner;

pub use clocks::Clocks;
pub use config::{PeerConfig, Policy};
pub use inner::{CallbackResponder, ClientHandler, PeerState};
use inner::{Inner, State, Token};

use ::threads::JoinHandle;
use ::threads::{Condvar, Mutex, panicking};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{BootEpoch, ClientId, Clock, TargetName, Tick, Transno, Xid};
use wire::frame::{FrameKind, Payload, SessionId};
use wire::handshake::Lane;

use crate::address::Address;
use crate::batch::Batch;
use crate::counters::Counters;
use crate::oneshot::{self, CallFuture, CallResult};
use crate::pool::Pool;
use crate::replay::Undurable;
use crate::requester::{CallRecord, Urgency};
use crate::session::Session;
use crate::threads::{self, lock};
use crate::waiting::Waiting;

/// A request that a process before this one had sent: its place, its bytes, and who takes the
/// answer, on the peer's thread.
pub struct Unanswered {
    /// The slot and the number.
    pub place: (u16, Xid),
    /// What it carries.
    pub batch: Batch,
    /// Who remembers it.
    pub call_record: Box<dyn CallRecord>,
    /// Gets the answer.
    pub then: Box<dyn FnOnce(CallResult) + Send>,
}

/// What a process before this one left of its dealings with a target.
#[derive(Default)]
pub struct Left {
    /// To be sent again first.
    pub unanswered: Vec<Unanswered>,
    /// To be done again by a target that has lost it.
    pub undurable: Vec<Undurable>,
}

/// A target as a client sees it.
pub struct Peer {
    inner: Arc<Inner>,
    connector: Mutex<Option<JoinHandle<()>>>,
}

impl Peer {
    /// Starts to reach the target; calls may be made at once and wait for it.
    pub fn new(
        config: PeerConfig,
        handler: Arc<dyn ClientHandler>,
        clock: Arc<dyn Clock>,
    ) -> std::io::Result<Peer> {
        Peer::going_on(config, handler, clock, Left::default())
    }

    /// The same for a process that goes on with what one before it left. Where it cannot, nothing of
    /// that is dropped: another process may.
    pub fn going_on(
        config: PeerConfig,
        handler: Arc<dyn ClientHandler>,
        clock: Arc<dyn Clock>,
        left: Left,
    ) -> std::io::Result<Peer> {
        let (now, keeping) = (clock.tick(), config.keeping);
        let addresses = config.addresses.clone();
        let mut session = match config.legacy {
            Some(legacy) => Session::succeed(keeping, legacy),
            None => Session::new(keeping),
        };
        for Unanswered {
            place,
            batch,
            call_record,
            then,
        } in left.unanswered
        {
            session.restore(place, Arc::new(Payload::from(batch)), (then, call_record));
        }
        left.undurable
            .into_iter()
            .for_each(|undurable| session.adopt(undurable));
        let name = format!("rpc-{}", config.target);
        let inner = Arc::new(Inner {
            config,
            handler,
            clock,
            counters: Arc::default(),
            queues: Pool::new(usize::MAX),
            state: Mutex::new(State {
                session,
                addresses,
                moved: false,
                lanes: Default::default(),
                standing: PeerState::WaitingSince(now),
                obstacle: None,
                begun: None,
                waiting: Waiting::new(now),
                condemned: None,
                shed: Vec::new(),
                greeting: None,
                readers: Vec::new(),
                closing: false,
                closed: false,
                news: false,
            }),
            news: Condvar::new(),
            order: Default::default(),
            attendance: Arc::default(),
            round_trip: AtomicU64::new(0),
        });
        let connector = connector::Connector::new(inner.clone());
        let connector = threads::spawn(name, move || connector.run())
            .inspect_err(|_| std::mem::forget(inner.clone()))?;
        Ok(Peer {
            inner,
            connector: Mutex::new(Some(connector)),
        })
    }

    /// Sends `batch`. Written by the calling thread when it can go at once; calls over one lane
    /// reach the server in the order they were made. Dropping the future does not take it back.
    pub fn call(&self, batch: Batch) -> CallFuture {
        self.future(batch, Lane::Control, Urgency::Ordinary)
    }

    /// The same for a request that `` remembers, of this urgency.
    pub fn call_remembered(
        &self,
        batch: Batch,
        urgency: Urgency,
        call_record: Box<dyn CallRecord>,
    ) -> CallFuture {
        self.future_with(batch, Lane::Control, urgency, Some(call_record))
    }

    /// The target has begun a boot since a process before this one had the session.
    pub fn has_restarted(&self) -> bool {
        lock(&self.inner.state).session.has_restarted()
    }

    /// See [`Session::withdrawn`].
    pub fn withdrawn(&self) {
        lock(&self.inner.state).session.withdrawn();
        self.inner.pump(Lane::Control);
    }

    /// See [`Session::settled`].
    pub fn settled(&self) {
        lock(&self.inner.state).session.settled();
        self.inner.pump(Lane::Control);
    }

    /// See [`Session::hold_ready`].
    pub fn hold_ready(&self) -> u64 {
        lock(&self.inner.state).session.hold_ready()
    }

    /// See [`Session::release_ready`].
    pub fn release_ready(&self, hold: u64) {
        lock(&self.inner.state).session.release_ready(hold);
        self.inner.pump(Lane::Control);
    }

    /// The same for what others wait for: see [`Urgency::Urgent`].
    pub fn call_urgent(&self, batch: Batch) -> CallFuture {
        self.future(batch, Lane::Control, Urgency::Urgent)
    }

    /// The same over the bulk lane. It must not wait for a lock at the server.
    pub fn call_bulk(&self, batch: Batch) -> CallFuture {
        self.future(batch, Lane::Bulk, Urgency::Urgent)
    }

    /// The same over the bulk lane that has least to do: in no order with other calls.
    pub fn call_any_bulk(&self, batch: Batch) -> CallFuture {
        let lane = self.inner.idlest_bulk_lane();
        self.future(batch, lane, Urgency::Urgent)
    }

    /// Like [`Peer::call`], but hands the answer to `then` on the peer's reader thread, in order
    /// with callbacks. What must be known before the next callback is known. Never called on the
    /// caller's stack, except once the peer is closed.
    pub fn call_then(
        &self,
        batch: Batch,
        urgency: Urgency,
        then: impl FnOnce(CallResult) + Send + 'static,
    ) {
        let submitted = self
            .inner
            .submit(batch, Lane::Control, urgency, (Box::new(then), None));
        if let Err((token, disrupted)) = submitted {
            self.inner.shed(token, disrupted);
        }
    }

    fn future(&self, batch: Batch, lane: Lane, urgency: Urgency) -> CallFuture {
        self.future_with(batch, lane, urgency, None)
    }

    fn future_with(
        &self,
        batch: Batch,
        lane: Lane,
        urgency: Urgency,
        call_record: Option<Box<dyn CallRecord>>,
    ) -> CallFuture {
        let (answerer, future) = oneshot::call();
        let token: Token = Box::new(|result| answerer.answer(result));
        // Filling the future here is safe: it only wakes the thread that waits for it.
        if let Err((token, disrupted)) =
            self.inner
                .submit(batch, lane, urgency, (token, call_record))
        {
            token(Err(disrupted));
        }
        future
    }

    /// The target.
    pub fn target(&self) -> TargetName {
        self.inner.config.target
    }

    /// How things stand.
    pub fn state(&self) -> PeerState {
        lock(&self.inner.state).standing.clone()
    }

    /// What is said in the target's place while calls wait for it: words of who may be anybody.
    pub fn obstacle(&self) -> Option<String> {
        lock(&self.inner.state).obstacle.clone()
    }

    /// What the target calls this client; zero before the first connection.
    pub fn client(&self) -> ClientId {
        lock(&self.inner.state).session.client()
    }

    /// The target's boot at the last connection; zero before the first.
    pub fn epoch(&self) -> BootEpoch {
        lock(&self.inner.state).session.epoch()
    }

    /// How long a message and its answer are on their way, about; zero before the first connection.
    pub fn round_trip(&self) -> Duration {
        Duration::from_micros(self.inner.round_trip.load(Ordering::Relaxed))
    }

    /// The session with the target and its boot. None: there is none.
    pub fn session(&self) -> Option<(SessionId, BootEpoch)> {
        let state = lock(&self.inner.state);
        let id = state.session.id();
        (id != SessionId::NONE).then(|| (id, state.session.epoch()))
    }

    /// Since when the target has known this client without giving it up, as far as that was heard. None:
    /// it does not.
    pub fn begun(&self) -> Option<Tick> {
        let state = lock(&self.inner.state);
        state
            .begun
            .filter(|_| state.session.id() != SessionId::NONE)
    }

    /// The newest durable change that the target told of.
    pub fn last_committed(&self) -> Transno {
        lock(&self.inner.state).session.last_committed()
    }

    /// What is kept until it is durable: frames and their bytes.
    pub fn kept(&self) -> (usize, usize) {
        lock(&self.inner.state).session.kept()
    }

    /// Calls without an answer yet.
    pub fn outstanding(&self) -> usize {
        lock(&self.inner.state).session.outstanding()
    }

    /// Connections that stand.
    pub fn connections(&self) -> usize {
        lock(&self.inner.state).lanes.iter().flatten().count()
    }

    /// What was sent and received.
    pub fn counters(&self) -> &Counters {
        &self.inner.counters
    }

    /// From here to [`Peer::end_attending`] the caller, a thread that is awake anyway, calls
    /// [`Peer::attend`] again and again. Nobody else receives what comes over the control lane.
    pub fn begin_attending(&self) {
        self.inner.attendance.begin();
    }

    /// Receives and handles what has come over the control lane, without waiting. True: that was
    /// something.
    pub fn attend(&self) -> bool {
        self.inner.attendance.receive(self.outstanding() > 0)
    }

    /// The peer's own thread receives again.
    pub fn end_attending(&self) {
        self.inner.attendance.end();
    }

    /// Ends the session, fails every call with `Disrupted::Closed`, and waits for every thread;
    /// on one of this crate's own threads it does not wait.
    pub fn close(&self) {
        self.inner.close();
        if !threads::on_ours()
            && let Some(connector) = lock(&self.connector).take()
        {
            threads::join(connector);
        }
    }

    /// From now on the target may be at these; tried in turn, the first of them first. A connection
    /// that stands is kept. True: they are others than before.
    pub fn set_addresses(&self, addresses: Vec<Address>) -> bool {
        let spelt = |addresses: &[Address]| -> Vec<String> {
            addresses.iter().map(Address::to_string).collect()
        };
        let mut state = lock(&self.inner.state);
        if spelt(&state.addresses) == spelt(&addresses) {
            return false;
        }
        (state.addresses, state.moved) = (addresses, true);
        self.inner.tell(&mut state);
        true
    }

    /// Makes the target say that it lives, where it does: what it says counts as received.
    pub fn ask_for_sign_of_life(&self) {
        let state = lock(&self.inner.state);
        let ping = state.session.bare(FrameKind::Ping);
        let control = state.lanes[0].clone();
        drop(state);
        if let Some(control) = control {
            control.send(&ping);
        }
    }

    /// Cuts the connections as a broken network would; they are made again.
    pub fn disconnect(&self) {
        let lanes = lock(&self.inner.state).lanes.clone();
        lanes
            .iter()
            .flatten()
            .for_each(|connection| connection.close());
    }
}

impl Drop for Peer {
    /// A process that fails while it takes over leaves the session and all its requests to the next one, like
    /// a killed process.
    fn drop(&mut self) {
        match self.inner.config.incarnation > 1 && panicking() {
            true => std::mem::forget(self.inner.clone()),
            false => self.close(),
        }
    }
}
