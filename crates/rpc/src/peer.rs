//! A client's end: one target, reached through a session that survives its connections.

mod clocks;
mod connector;

pub use clocks::Clocks;

use ::threads::JoinHandle;
use ::threads::{Condvar, Mutex, panicking};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{BootEpoch, ClientId, Clock, Disrupted, TargetName, Tick, Transno, Xid};
use wire::frame::{Frame, FrameKind, Payload, SessionId};
use wire::handshake::{ClientSecret, Credential, Key, Lane, Refusal, RefusalReason};

use crate::address::Address;
use crate::attendance::Attendance;
use crate::batch::{Batch, Message};
use crate::connection::Connection;
use crate::counters::Counters;
use crate::oneshot::{self, CallFuture, CallResult};
use crate::pool::Pool;
use crate::replay::Undurable;
use crate::replier::Violation;
use crate::requester::{Call, CallRecord, Urgency};
use crate::session::{CallbackId, Event, Keeping, Legacy, Session};
use crate::threads::{self, lock, wait_until};
use crate::transport::Transport;
use crate::waiting::Waiting;

/// What a call does when the target is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Waits until it is back.
    Hard,
    /// Fails with `Disrupted::Timeout` when the answer takes longer.
    Soft {
        /// From the call on.
        timeout: Duration,
    },
    /// As soft, for who has nothing to lose and asks a person: a refusal ends it, proven or not.
    Trial {
        /// From the call on; none: as long as it takes.
        timeout: Option<Duration>,
    },
}

impl Policy {
    pub(crate) fn is_trial(self) -> bool {
        matches!(self, Policy::Trial { .. })
    }

    fn timeout(self) -> Option<Duration> {
        match self {
            Policy::Hard => None,
            Policy::Soft { timeout } => Some(timeout),
            Policy::Trial { timeout } => timeout,
        }
    }
}

/// Whom to reach, and how.
#[derive(Debug, Clone)]
pub struct PeerConfig {
    /// The target.
    pub target: TargetName,
    /// Where it may be at first; tried in turn. See [`Peer::set_addresses`].
    pub addresses: Vec<Address>,
    /// What the mount alone knows, by which it is known.
    pub secret: ClientSecret,
    /// Which incarnation of that mount.
    pub incarnation: u64,
    /// The key that both ends prove, where the kernel does not vouch for them.
    pub key: Option<Key>,
    /// Whose key that is.
    pub credential: Credential,
    /// Speak to addresses beyond loopback although connections are not encrypted.
    pub insecure: bool,
    /// What a call does when the target is away.
    pub policy: Policy,
    /// Connections: 1, or 2 with one for bulk data, or up to [`Lane::COUNT`] with more for bulk data
    /// where the target is far away.
    pub lanes: u8,
    /// Whether what was done is kept until it is durable.
    pub keeping: Keeping,
    /// The session of a process whose place this one takes.
    pub legacy: Option<Legacy>,
    /// The servers of whose clocks a person was told: one for all peers of a process.
    pub clocks: Clocks,
}

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

/// What the owner of a [`Peer`] must react to. Called on the peer's threads: must not block.
pub trait ClientHandler: Send + Sync {
    /// The server wants something. Answer through `responder`, now or later. Callbacks and
    /// answers to calls come in the order in which the server sent them.
    fn callback(&self, message: Message, responder: CallbackResponder);
    /// The target has restarted: every lock and cache it granted is void. Called before anything
    /// is sent to the new boot; then calls under way are sent again with slot and xid unchanged.
    fn epoch_changed(&self, old: BootEpoch, new: BootEpoch);
    /// The target has dropped us: every lock is void. Called before calls under way fail with
    /// `Disrupted::Evicted`, and before a new session begins.
    fn evicted(&self);
    /// The first session with the target begins, or the first after an eviction. `has_restarted`: the
    /// target has restarted since the session that was evicted, too.
    fn begun(&self, epoch: BootEpoch, has_restarted: bool) {
        _ = (epoch, has_restarted);
    }
    /// A connection stands, in this session and boot of the target. Before anything is sent over it.
    fn connected(&self, session: SessionId, epoch: BootEpoch) {
        _ = (session, epoch);
    }
    /// Changes up to this one are durable. Grows.
    fn last_committed(&self, transno: Transno);
}

/// How things stand with a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerState {
    /// Calls reach it.
    Connected,
    /// Calls wait for it since then.
    WaitingSince(Tick),
    /// It refuses us: calls fail, and it is asked again now and then.
    Refused(Refusal),
    /// Closed by us.
    Closed,
}

/// Takes the answer to one call, on the peer's thread.
type Token = Box<dyn FnOnce(CallResult) + Send>;

/// A target as a client sees it.
pub struct Peer {
    inner: Arc<Inner>,
    connector: Mutex<Option<JoinHandle<()>>>,
}

struct Inner {
    config: PeerConfig,
    handler: Arc<dyn ClientHandler>,
    clock: Arc<dyn Clock>,
    counters: Arc<Counters>,
    /// What is not sent yet. The slots bound it.
    queues: Arc<Pool<Connection>>,
    state: Mutex<State>,
    /// Something happened that the connector, or the thread that closes, waits for.
    news: Condvar,
    /// Held while frames are taken from the session and written, per lane: keeps their order.
    order: [Mutex<()>; Lane::COUNT],
    /// Of the control lane.
    attendance: Arc<Attendance>,
    /// In microseconds, since the control lane stands; zero: not known.
    round_trip: AtomicU64,
}

struct State {
    session: Session<Token>,
    /// Where the target may be; tried in turn.
    addresses: Vec<Address>,
    /// They are others than before: the first of them is next.
    moved: bool,
    lanes: [Option<Arc<Connection>>; Lane::COUNT],
    standing: PeerState,
    /// Why calls wait, where something answers in the target's place.
    obstacle: Option<String>,
    /// Since when the target has known this client without giving it up.
    begun: Option<Tick>,
    waiting: Waiting,
    /// Calls of a session that the server has ended, to fail once the handler knows.
    condemned: Option<Vec<Token>>,
    /// Calls that were not taken, to fail on the connector's stack.
    shed: Vec<(Token, Disrupted)>,
    /// A connection in its handshake.
    greeting: Option<Arc<dyn Transport>>,
    readers: Vec<JoinHandle<()>>,
    /// No call is taken and no connection made any more.
    closing: bool,
    /// The goodbye is said: the connector may end.
    closed: bool,
    news: bool,
}

/// How long a close waits for the server to see the goodbye.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

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
    /// A process that fails while it takes over leaves the session, and all that was asked, to the
    /// next one, as one that is killed does.
    fn drop(&mut self) {
        match self.inner.config.incarnation > 1 && panicking() {
            true => std::mem::forget(self.inner.clone()),
            false => self.close(),
        }
    }
}

impl Inner {
    /// Takes a call, or gives it back with the reason why not.
    fn submit(
        &self,
        batch: Batch,
        lane: Lane,
        urgency: Urgency,
        (token, call_record): (Token, Option<Box<dyn CallRecord>>),
    ) -> Result<(), (Token, Disrupted)> {
        let lane = match self.config.lanes {
            0 | 1 => Lane::Control,
            _ => lock(&self.state).session.lane(lane),
        };
        let payload = Arc::new(Payload::from(batch));
        if let Err(error) = payload.check() {
            tracing::error!(target = %self.config.target, %error, "a batch can't be sent");
            return Err((token, Disrupted::Refused));
        }
        let timeout = self.config.policy.timeout();
        let deadline = timeout.map(|timeout| self.clock.tick().after(timeout));
        let call = Call {
            payload,
            lane,
            urgency,
            deadline,
            token,
            call_record,
        };
        self.enqueue(call)?;
        self.pump(lane);
        Ok(())
    }

    /// Fails a call that was not taken, on the connector's stack: the caller may hold a lock that
    /// the answer's taker wants.
    fn shed(&self, token: Token, disrupted: Disrupted) {
        let mut state = lock(&self.state);
        if state.closed {
            drop(state);
            return token(Err(disrupted));
        }
        state.shed.push((token, disrupted));
        self.tell(&mut state);
    }

    fn enqueue(&self, call: Call<Token>) -> Result<(), (Token, Disrupted)> {
        let mut state = lock(&self.state);
        if state.closing {
            return Err((call.token, Disrupted::Closed));
        }
        if let PeerState::Refused(refusal) = &state.standing {
            let disrupted = disrupted_by(refusal);
            return Err((call.token, disrupted));
        }
        state
            .session
            .submit(call)
            .map_err(|token| (token, Disrupted::Timeout))
    }

    fn idlest_bulk_lane(&self) -> Lane {
        let state = lock(&self.state);
        let bulk = Lane::ALL.into_iter().skip(1);
        let connected = bulk.filter(|lane| state.lanes[lane.index()].is_some());
        let idlest = connected.min_by_key(|lane| state.session.load(*lane));
        idlest.unwrap_or(Lane::Bulk)
    }

    fn pump_all(&self) {
        Lane::ALL.into_iter().for_each(|lane| self.pump(lane));
    }

    /// Writes what may go out over `lane` now.
    fn pump(&self, lane: Lane) {
        let _order = lock(&self.order[lane.index()]);
        self.pump_in_order(lane);
    }

    /// The same for a caller that holds the lane's order.
    fn pump_in_order(&self, lane: Lane) {
        loop {
            let mut state = lock(&self.state);
            let Some(connection) = state.lanes[lane.index()].clone() else {
                return;
            };
            let Some(frame) = state.session.poll_send(lane) else {
                return;
            };
            drop(state);
            connection.send(&frame);
        }
    }

    fn on_frame(
        self: &Arc<Self>,
        connection: &Connection,
        frame: Frame,
    ) -> Result<ControlFlow<()>, Violation> {
        let mut state = lock(&self.state);
        let before = state.session.last_committed();
        let event = state.session.handle(frame)?;
        let committed = state.session.last_committed();
        let waiting = state.session.has_unsent();
        drop(state);
        if committed > before {
            self.handler.last_committed(committed);
            if waiting {
                // What is kept no longer has made room.
                self.pump_all();
            }
        }
        match event {
            Event::Replied(token, reply) => {
                token(Ok(reply));
                if waiting {
                    self.pump_all();
                }
            }
            Event::Replayed { refused } => {
                if refused {
                    tracing::error!(
                        target = %self.config.target,
                        "a change that was answered before the restart is refused now, and lost"
                    );
                }
                self.pump_all();
            }
            Event::Callback(id, message) => {
                let responder = CallbackResponder {
                    inner: self.clone(),
                    id,
                };
                self.handler.callback(message, responder);
            }
            Event::Send(frame) => connection.send(&frame),
            Event::Evicted => {
                self.on_evicted();
                return Ok(ControlFlow::Break(()));
            }
            Event::Nothing => {}
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The connector tells the handler before it makes a new session.
    fn on_evicted(&self) {
        let mut state = lock(&self.state);
        let tokens = state.session.evicted();
        state.condemned.get_or_insert_default().extend(tokens);
        let lanes = state.lanes.clone();
        drop(state);
        lanes
            .iter()
            .flatten()
            .for_each(|connection| connection.close());
    }

    /// A lane's reader has ended.
    fn on_lane_lost(&self, lane: Lane, connection: &Arc<Connection>) {
        let mut state = lock(&self.state);
        let current = &mut state.lanes[lane.index()];
        if !current
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, connection))
        {
            return;
        }
        *current = None;
        state.session.lane_down(lane);
        if lane == Lane::Control && !state.closing {
            let now = self.clock.tick();
            state.standing = PeerState::WaitingSince(now);
            state.waiting = Waiting::new(now);
        }
        self.tell(&mut state);
    }

    fn tell(&self, state: &mut State) {
        state.news = true;
        self.news.notify_all();
    }

    fn close(&self) {
        let mut state = lock(&self.state);
        if state.closing {
            return;
        }
        state.closing = true;
        state.standing = PeerState::Closed;
        if let Some(greeting) = &state.greeting {
            greeting.shutdown();
        }
        let goodbye = state.session.bare(FrameKind::Goodbye);
        let control = state.lanes[0].clone();
        drop(state);
        if let Some(control) = control {
            control.send(&goodbye);
            self.wait_for_goodbye();
        }
        let mut state = lock(&self.state);
        let mut tokens = state.session.abandon();
        tokens.extend(state.condemned.take().into_iter().flatten());
        let shed = std::mem::take(&mut state.shed);
        state.closed = true;
        self.tell(&mut state);
        drop(state);
        shed.into_iter()
            .for_each(|(token, disrupted)| token(Err(disrupted)));
        fail(tokens, Disrupted::Closed);
    }

    /// The server closes the connection once it has seen the goodbye.
    fn wait_for_goodbye(&self) {
        if threads::on_ours() {
            return;
        }
        let deadline = ::threads::now() + GOODBYE_TIMEOUT;
        let mut state = lock(&self.state);
        while state.lanes[0].is_some() && ::threads::now() < deadline {
            state = wait_until(&self.news, state, Some(deadline));
        }
    }
}

fn fail(tokens: Vec<Token>, disrupted: Disrupted) {
    tokens.into_iter().for_each(|token| token(Err(disrupted)));
}

/// What a call says that fails because of `refusal`.
fn disrupted_by(refusal: &Refusal) -> Disrupted {
    match refusal.reason {
        RefusalReason::NotServed => Disrupted::WrongTarget,
        _ => Disrupted::Refused,
    }
}

/// Answers one callback. Dropped without an answer, it answers with an empty message.
pub struct CallbackResponder {
    inner: Arc<Inner>,
    id: CallbackId,
}

impl CallbackResponder {
    /// Sends the answer; over a later connection if this one is gone.
    pub fn reply(self, message: Message) {
        self.send(message);
        // The drop that follows finds the callback answered and does nothing.
    }

    fn send(&self, message: Message) {
        let mut state = lock(&self.inner.state);
        let frame = state.session.answer_callback(self.id, message);
        let control = state.lanes[0].clone();
        drop(state);
        if let (Some(frame), Some(control)) = (frame, control) {
            control.send(&frame);
        }
    }
}

impl Drop for CallbackResponder {
    fn drop(&mut self) {
        self.send(Message::default());
    }
}
