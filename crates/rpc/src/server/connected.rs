//! A client's session at its target.

use ::threads::Mutex;
use std::sync::Arc;
use std::time::Duration;

use base::{ClientId, Disrupted, Tick, Transno, Xid};
use wire::frame::{Frame, FrameKind, SessionId};
use wire::handshake::{ClientUuid, Credential, Lane};

use super::target::{Departure, Target};
use crate::batch::{Message, ReplyBatch, ReplyMessage};
use crate::connection::Connection;
use crate::pool::{Member, Share};
use crate::replier::{Room, Stored, Violation};
use crate::server_session::{Event, RequestId, ServerSession};
use crate::threads::lock;

/// Takes the client's answer to a callback, on a thread of the server: must not block.
pub type OnReply = Box<dyn FnOnce(Result<Message, Disrupted>) + Send>;

/// Who a client is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerInfo {
    /// The mount's name.
    pub uuid: ClientUuid,
    /// Which incarnation of that mount.
    pub incarnation: u64,
    /// Where it came from when its session began.
    pub address: String,
    /// Who it runs as, where the kernel says so.
    pub uid: Option<u32>,
    /// What it has proven, and so what it may ask for.
    pub credential: Credential,
    /// An earlier boot of the target gave it up, and told it: it has nothing of that boot any more.
    /// That need not have been durable.
    pub was_given_up: bool,
}

impl PeerInfo {
    /// It speaks for targets, and has proven it.
    pub fn is_server(&self) -> bool {
        self.credential == Credential::Server
    }

    /// It is in the server's own process, and goes with it.
    pub fn dies_with_this_process(&self) -> bool {
        self.address.starts_with("mem:")
    }
}

/// A client's session; outlives its connections.
pub struct Connected {
    target: Arc<Target>,
    client: ClientId,
    info: PeerInfo,
    state: Mutex<State>,
    /// Held while callbacks are taken from the session and written: keeps their order.
    order: Mutex<()>,
}

struct State {
    session: ServerSession<OnReply>,
    /// What it keeps of answers, of all that the sessions of this server keep.
    kept: Share<Connected>,
    lanes: [Option<Arc<Connection>>; Lane::COUNT],
    /// Since when the control lane is gone.
    gone_since: Option<Tick>,
    /// Which of the server's connections it was last claimed over, as they were accepted.
    claimed: u64,
    /// The client knows of the session: it has spoken in it.
    is_known: bool,
    ended: bool,
}

impl Connected {
    pub(super) fn new(
        target: Arc<Target>,
        id: SessionId,
        info: PeerInfo,
        now: Tick,
    ) -> Arc<Connected> {
        let session = ServerSession::new(id, target.boot_epoch);
        Arc::new_cyclic(|myself| Connected {
            client: ClientId(u64::from(id.0)),
            info,
            state: Mutex::new(State {
                session,
                kept: target.kept.join(myself.clone()),
                lanes: Default::default(),
                gone_since: Some(now),
                claimed: 0,
                is_known: false,
                ended: false,
            }),
            order: Mutex::default(),
            target,
        })
    }

    /// The client.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// Who it is.
    pub fn peer(&self) -> &PeerInfo {
        &self.info
    }

    /// Answers kept for requests that are sent again: how many, and their bytes.
    pub fn kept(&self) -> (usize, usize) {
        lock(&self.state).session.kept()
    }

    /// Calls the client back. `on_reply` gets its answer, however often the connection breaks, or
    /// `Disrupted::Evicted` when the session ends first (`Closed` when the server does). Never
    /// called on the caller's stack while the server runs.
    pub fn callback(&self, message: Message, on_reply: OnReply) {
        let mut state = lock(&self.state);
        if state.ended {
            drop(state);
            return self.fail_later(vec![on_reply], Disrupted::Evicted);
        }
        let refused = state.session.call_back(message, on_reply);
        drop(state);
        match refused {
            Ok(()) => self.pump(),
            Err(on_reply) => self.fail_later(vec![on_reply], Disrupted::Timeout),
        }
    }

    fn fail_later(&self, callbacks: Vec<OnReply>, why: Disrupted) {
        if !callbacks.is_empty() {
            let fail = move |on_reply: OnReply| on_reply(Err(why));
            let job = move || callbacks.into_iter().for_each(fail);
            self.target.deferred.push(job);
        }
    }

    /// Ends the session: the client is told if it can be, and drops everything. The service's `expired` is
    /// not called: the caller cleans up.
    pub fn evict(&self) {
        let mut state = lock(&self.state);
        if state.ended {
            return;
        }
        let committed = self.target.last_committed.get();
        let evicted = state.session.bare(FrameKind::Evicted, committed);
        let control = state.lanes[0].clone();
        drop(state);
        if let Some(control) = control {
            control.send(&evicted);
        }
        self.end(Disrupted::Evicted);
    }

    /// Grants the client this many slots from the next reply on.
    pub fn grant_slots(&self, slots: u16) {
        lock(&self.state).session.grant(slots);
    }

    /// The client has no control connection now.
    pub fn is_gone(&self) -> bool {
        lock(&self.state).gone_since.is_some()
    }

    pub(super) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    pub(super) fn id(&self) -> SessionId {
        lock(&self.state).session.id()
    }

    pub(super) fn slots(&self) -> u16 {
        lock(&self.state).session.slots()
    }

    /// Nothing has come from the client that shows that its welcome arrived.
    pub(super) fn is_unknown(&self) -> bool {
        !lock(&self.state).is_known
    }

    /// The client has named it.
    pub(super) fn becomes_known(&self) {
        lock(&self.state).is_known = true;
    }

    /// The client came over this connection.
    pub(super) fn claim(&self, accepted: u64) {
        lock(&self.state).claimed = accepted;
    }

    /// The connection that it came over last.
    pub(super) fn claimed(&self) -> u64 {
        lock(&self.state).claimed
    }

    pub(super) fn has_ended(&self) -> bool {
        lock(&self.state).ended
    }

    pub(super) fn is_gone_for(&self, grace: Duration, now: Tick) -> bool {
        let since = lock(&self.state).gone_since;
        since.is_some_and(|since| now.since(since) >= grace)
    }

    /// The client is about to be back: its time of grace begins anew.
    pub(super) fn coming_back(&self, now: Tick) {
        if let Some(since) = &mut lock(&self.state).gone_since {
            *since = now;
        }
    }

    /// Ends the session and tells the service.
    pub(super) fn expire(&self, how: Departure) {
        if self.end(Disrupted::Evicted) {
            self.target.service.expired(self.client, how);
        }
    }

    /// Cuts its connections. The session stays.
    pub(crate) fn cut(&self) {
        let connections = self.connections();
        connections.iter().for_each(|connection| connection.close());
    }

    pub(super) fn connections(&self) -> Vec<Arc<Connection>> {
        lock(&self.state).lanes.iter().flatten().cloned().collect()
    }

    pub(super) fn bare(&self, kind: FrameKind) -> Frame {
        let committed = self.target.last_committed.get();
        lock(&self.state).session.bare(kind, committed)
    }

    /// `connection` is the lane from now on; one that was before is cut. False: too late.
    pub(super) fn attach(&self, lane: Lane, connection: &Arc<Connection>) -> bool {
        let mut state = lock(&self.state);
        if state.ended {
            return false;
        }
        let old = state.lanes[lane.index()].replace(connection.clone());
        if lane == Lane::Control {
            state.gone_since = None;
            state.session.lost();
        }
        drop(state);
        if let Some(old) = old {
            old.close();
        }
        true
    }

    /// `connection` has ended. True: with it the client is away.
    pub(super) fn detach(&self, lane: Lane, connection: &Arc<Connection>, now: Tick) -> bool {
        let mut state = lock(&self.state);
        let current = &mut state.lanes[lane.index()];
        if !current
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, connection))
        {
            return false;
        }
        *current = None;
        if lane != Lane::Control {
            return false;
        }
        state.session.lost();
        state.gone_since = Some(now);
        !state.ended
    }

    /// Takes a frame. None: the session has ended.
    pub(super) fn handle(&self, frame: Frame) -> Result<Option<Event<OnReply>>, Violation> {
        let committed = self.target.last_committed.get();
        let mut state = lock(&self.state);
        state.is_known = true;
        if state.ended {
            return Ok(None);
        }
        let event = state.session.handle(frame, committed);
        state.account();
        event.map(Some)
    }

    /// The client is ready for callbacks; those unanswered go first.
    pub(super) fn ready(&self) {
        lock(&self.state).session.ready();
        self.pump();
    }

    fn pump(&self) {
        let _order = lock(&self.order);
        loop {
            let committed = self.target.last_committed.get();
            let mut state = lock(&self.state);
            let Some(control) = state.lanes[0].clone() else {
                return;
            };
            let Some(frame) = state.session.poll_send(committed) else {
                return;
            };
            drop(state);
            control.send(&frame);
        }
    }

    /// Tells an idle client what has become durable.
    pub(super) fn push_committed(&self) {
        let committed = self.target.last_committed.get();
        let mut state = lock(&self.state);
        let Some(control) = state.lanes[0].clone() else {
            return;
        };
        let frame = state.session.poll_committed(committed);
        drop(state);
        if let Some(frame) = frame {
            control.send(&frame);
        }
    }

    fn reply(&self, lane: Lane, request: &RequestId, stored: Stored) {
        let committed = self.target.last_committed.get();
        let mut state = lock(&self.state);
        if state.ended {
            return;
        }
        let room = match state.kept.pool().has_room() {
            true => Room::ForAll,
            false => Room::ForChanges,
        };
        let frame = state.session.reply(request, stored, room, committed);
        state.account();
        let connection = state.lanes[lane.index()].clone();
        drop(state);
        if let (Some(frame), Some(connection)) = (frame, connection) {
            connection.send(&frame);
        }
    }

    /// Forgets a request that was not begun, if the client is cut off. Under one lock: once the client is
    /// back, it may have sent the request again, and waits for this run of it.
    fn withdraw(&self, lane: Lane, request: &RequestId) -> bool {
        let mut state = lock(&self.state);
        let is_cut_off = state.is_cut_off(lane);
        if is_cut_off {
            state.session.withdraw(request);
        }
        is_cut_off
    }

    /// Ends the session. False: it had ended before.
    pub(super) fn end(&self, why: Disrupted) -> bool {
        self.end_if(why, |_| true)
    }

    /// Ends the session if the client knows of none: whatever it says in it from now on is not heard.
    pub(super) fn end_unknown(&self) -> bool {
        self.end_if(Disrupted::Evicted, |state| !state.is_known)
    }

    fn end_if(&self, why: Disrupted, may_end: impl FnOnce(&State) -> bool) -> bool {
        let mut state = lock(&self.state);
        if state.ended || !may_end(&state) {
            return false;
        }
        state.ended = true;
        let callbacks = state.session.end();
        state.account();
        let lanes = state.lanes.clone();
        drop(state);
        lock(&self.target.sessions).remove(self);
        lanes
            .iter()
            .flatten()
            .for_each(|connection| connection.close());
        self.fail_later(callbacks, why);
        true
    }
}

impl State {
    /// The client has no connection over which what it asked on `lane` can be answered.
    fn is_cut_off(&self, lane: Lane) -> bool {
        let connection = &self.lanes[lane.index()];
        connection
            .as_ref()
            .is_none_or(|connection| connection.is_closed())
    }

    fn account(&mut self) {
        let (_, bytes) = self.session.kept();
        self.kept.set(bytes);
    }
}

impl Member for Connected {
    fn weight(&self) -> u128 {
        lock(&self.state).kept.bytes() as u128
    }

    /// What it keeps reports changes, which are never done twice: only its end forgets them.
    fn let_go(&self) {
        let (client, (_, bytes)) = (self.client, self.kept());
        tracing::warn!(
            %client,
            peer = self.info.address,
            bytes,
            "evicted: the answers kept for all clients are too many, and most are its own"
        );
        let _admission = lock(&self.target.admission);
        self.expire(Departure::GivenUp);
    }
}

/// Answers one request. Dropped without an answer, it answers with no replies at all, unless it is left
/// to others by [`Responder::leave`].
pub struct Responder {
    session: Arc<Connected>,
    lane: Lane,
    request: RequestId,
    answered: bool,
}

impl Responder {
    pub(super) fn new(session: Arc<Connected>, lane: Lane, request: RequestId) -> Responder {
        Responder {
            session,
            lane,
            request,
            answered: false,
        }
    }

    /// The request's number.
    pub fn xid(&self) -> Xid {
        self.request.xid
    }

    /// The slot it occupies: a resend, to whatever boot of the server, comes in the same one.
    pub fn slot(&self) -> u16 {
        self.request.slot
    }

    /// Of a replay. What each of the requests was answered in an earlier boot of this server, by
    /// which the same is to be done again. To be asked once.
    pub fn take_answered(&mut self) -> Option<Vec<ReplyMessage>> {
        self.request.answered.take()
    }

    /// Whose request it is.
    pub fn session(&self) -> &Arc<Connected> {
        &self.session
    }

    /// Sends the answer, now or later, from any thread; kept for a resend.
    pub fn reply(mut self, reply: ReplyBatch) {
        self.answered = true;
        self.send(reply);
    }

    /// Forgets a request that was not begun, if nobody waits for its answer. The client sends it again when
    /// it is back. Otherwise the responder comes back.
    pub(crate) fn withdraw(mut self) -> Result<(), Responder> {
        match self.session.withdraw(self.lane, &self.request) {
            true => {
                self.answered = true;
                Ok(())
            }
            false => Err(self),
        }
    }

    /// Leaves the request to the target's next boot, which the client asks again: nothing is sent.
    pub fn leave(mut self) {
        self.answered = true;
    }

    fn send(&self, reply: ReplyBatch) {
        let transno = reply.transno;
        let mut payload = reply.into_payload(&self.request.opcodes);
        if let Err(error) = payload.check() {
            let (xid, client) = (self.request.xid, self.session.client);
            tracing::error!(%xid, %client, %error, "a reply can't be sent");
            payload = Default::default();
        }
        let stored = Stored {
            payload: Arc::new(payload),
            transno,
        };
        self.session.reply(self.lane, &self.request, stored);
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.answered {
            let (xid, client) = (self.request.xid, self.session.client);
            tracing::error!(%xid, %client, "a request was dropped without an answer");
            self.send(ReplyBatch {
                transno: Transno(0),
                ..ReplyBatch::default()
            });
        }
    }
}
