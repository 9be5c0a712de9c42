//! A peer's session with its target: what the peer, its connector and the readers of its lanes share.

use ::threads::JoinHandle;
use ::threads::{Condvar, Mutex};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use base::{BootEpoch, Clock, Disrupted, Tick, Transno};
use wire::frame::{Frame, FrameKind, Payload, SessionId};
use wire::handshake::{Lane, Refusal, RefusalReason};

use super::config::PeerConfig;
use crate::address::Address;
use crate::attendance::Attendance;
use crate::batch::{Batch, Message};
use crate::connection::Connection;
use crate::counters::Counters;
use crate::oneshot::CallResult;
use crate::pool::Pool;
use crate::replier::Violation;
use crate::requester::{Call, CallRecord, Urgency};
use crate::session::{CallbackId, Event, Session};
use crate::threads::{self, lock, wait_until};
use crate::transport::Transport;
use crate::waiting::Waiting;

/// What the owner of a [`super::Peer`] must react to. Called on the peer's threads: must not block.
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
pub(super) type Token = Box<dyn FnOnce(CallResult) + Send>;

/// What a peer, its connector and its readers share.
pub(super) struct Inner {
    pub config: PeerConfig,
    pub handler: Arc<dyn ClientHandler>,
    pub clock: Arc<dyn Clock>,
    pub counters: Arc<Counters>,
    /// What is not sent yet. The slots bound it.
    pub queues: Arc<Pool<Connection>>,
    pub state: Mutex<State>,
    /// Something happened that the connector, or the thread that closes, waits for.
    pub news: Condvar,
    /// Held while frames are taken from the session and written, per lane: keeps their order.
    pub order: [Mutex<()>; Lane::COUNT],
    /// Of the control lane.
    pub attendance: Arc<Attendance>,
    /// In microseconds, since the control lane stands; zero: not known.
    pub round_trip: AtomicU64,
}

/// What changes while a target is reached.
pub(super) struct State {
    pub session: Session<Token>,
    /// Where the target may be; tried in turn.
    pub addresses: Vec<Address>,
    /// They are others than before: the first of them is next.
    pub moved: bool,
    pub lanes: [Option<Arc<Connection>>; Lane::COUNT],
    pub standing: PeerState,
    /// Why calls wait, where something answers in the target's place.
    pub obstacle: Option<String>,
    /// Since when the target has known this client without giving it up.
    pub begun: Option<Tick>,
    pub waiting: Waiting,
    /// Calls of a session that the server has ended, to fail once the handler knows.
    pub condemned: Option<Vec<Token>>,
    /// Calls that were not taken, to fail on the connector's stack.
    pub shed: Vec<(Token, Disrupted)>,
    /// A connection in its handshake.
    pub greeting: Option<Arc<dyn Transport>>,
    pub readers: Vec<JoinHandle<()>>,
    /// No call is taken and no connection made any more.
    pub closing: bool,
    /// The goodbye is said: the connector may end.
    pub closed: bool,
    pub news: bool,
}

/// How long a close waits for the server to see the goodbye.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

impl Inner {
    /// Takes a call, or gives it back with the reason why not.
    pub(super) fn submit(
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
    pub(super) fn shed(&self, token: Token, disrupted: Disrupted) {
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

    pub(super) fn idlest_bulk_lane(&self) -> Lane {
        let state = lock(&self.state);
        let bulk = Lane::ALL.into_iter().skip(1);
        let connected = bulk.filter(|lane| state.lanes[lane.index()].is_some());
        let idlest = connected.min_by_key(|lane| state.session.load(*lane));
        idlest.unwrap_or(Lane::Bulk)
    }

    pub(super) fn pump_all(&self) {
        Lane::ALL.into_iter().for_each(|lane| self.pump(lane));
    }

    /// Writes what may go out over `lane` now.
    pub(super) fn pump(&self, lane: Lane) {
        let _order = lock(&self.order[lane.index()]);
        self.pump_in_order(lane);
    }

    /// The same for a caller that holds the lane's order.
    pub(super) fn pump_in_order(&self, lane: Lane) {
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

    pub(super) fn on_frame(
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
    pub(super) fn on_evicted(&self) {
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
    pub(super) fn on_lane_lost(&self, lane: Lane, connection: &Arc<Connection>) {
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

    pub(super) fn tell(&self, state: &mut State) {
        state.news = true;
        self.news.notify_all();
    }

    pub(super) fn close(&self) {
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

/// Answers all of these calls alike.
pub(super) fn fail(tokens: Vec<Token>, disrupted: Disrupted) {
    tokens.into_iter().for_each(|token| token(Err(disrupted)));
}

/// What a call says that fails because of `refusal`.
pub(super) fn disrupted_by(refusal: &Refusal) -> Disrupted {
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
