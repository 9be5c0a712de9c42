//! A client's session with a target: requests out, callbacks in. Pure: time and frames are
//! arguments, frames and answers are results.

use std::sync::Arc;

use base::limits::{CALLBACK_SLOTS_MAX, REPLAY_BYTES_MAX, SLOTS_MAX, UNSENT_CALLS_MAX};
use base::{BootEpoch, ClientId, Tick, Transno, Xid};
use wire::frame::{CALLBACK_XID_BIT, Frame, FrameKind, Header, Payload, SessionId, Sub};
use wire::handshake::{Lane, Welcome};

use crate::batch::{Message, ReplyBatch};
use crate::replay::{Replay, Undurable};
use crate::replier::{Replier, Room, Stored, Verdict, Violation};
use crate::requester::{Answered, Call, CallRecord, Requester, Settled, Urgency};

/// What a frame that came amounts to.
#[derive(Debug)]
pub enum Event<T> {
    /// A request is answered.
    Replied(T, ReplyBatch),
    /// Something was done again that the target had lost: more may be sent.
    Replayed {
        /// It was refused, and so nothing of it was done.
        refused: bool,
    },
    /// The server wants something: answer with [`Session::answer_callback`].
    Callback(CallbackId, Message),
    /// Send this back over the lane it came from.
    Send(Frame),
    /// The server has ended the session.
    Evicted,
    /// Nothing more to do.
    Nothing,
}

/// A callback under way. Names its session, as an answer may come after that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallbackId {
    session: SessionId,
    slot: u16,
    xid: Xid,
}

/// How a welcome relates to what was before.
#[derive(Debug)]
pub enum Begun<T> {
    /// The first session with this target, or the first after an eviction that was told of.
    First,
    /// The same session goes on.
    Resumed,
    /// The server has restarted: requests under way keep slot and xid and are sent again.
    NewEpoch {
        /// The boot that ended.
        old: BootEpoch,
        /// The boot that began.
        new: BootEpoch,
    },
    /// The server dropped the old session: what was done and is not durable is lost, and these
    /// requests are given up.
    Evicted(Vec<T>),
}

/// Whether a session keeps what it has had done, to tell a target again that was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keeping {
    /// It does not: the layer above does, or there is nothing to be lost.
    #[default]
    Nothing,
    /// It does.
    Changes,
}

/// A client's session; `T` is what the caller wants back with each answer.
#[derive(Debug)]
pub struct Session<T> {
    id: SessionId,
    client: ClientId,
    epoch: BootEpoch,
    last_committed: Transno,
    requests: Requester<T>,
    callbacks: Replier,
    keeping: Keeping,
    replay: Replay,
    /// A connection is new, and the server waits to hear that all was sent again.
    ready_due: bool,
    takeover: Takeover,
    /// Of a process that goes on for another. The first request behind word that it is settled,
    /// until it is known that the target has heard that.
    settled_at: Option<Xid>,
    /// The target is to be told something first: how often there was something, and whether that is
    /// told.
    holds: u64,
    pending_updates: bool,
    /// The target's boot in which a process before this one had the session.
    inherited: Option<BootEpoch>,
}

/// What this process has yet to put in order of what one before it left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takeover {
    /// Nothing.
    Settled,
    /// What the server keeps for it. One that restarts keeps nothing, and waits for us.
    InOrder,
    /// What was shown to others under its locks: no server may hear that we are ready.
    Begun,
}

/// What one process leaves to the next of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Legacy {
    /// The session.
    pub session: SessionId,
    /// The target's boot in it.
    pub epoch: BootEpoch,
    /// Greater than any number of a request sent in it.
    pub first_xid: u64,
    /// The newest durable change that the target told of.
    pub committed: Transno,
}

impl<T> Default for Session<T> {
    fn default() -> Session<T> {
        Session::new(Keeping::Nothing)
    }
}

impl<T> Session<T> {
    /// A session that has not begun.
    pub fn new(keeping: Keeping) -> Session<T> {
        Session {
            id: SessionId::NONE,
            client: ClientId(0),
            epoch: BootEpoch(0),
            last_committed: Transno(0),
            requests: Requester::new(1, SLOTS_MAX, UNSENT_CALLS_MAX),
            callbacks: Replier::new(CALLBACK_SLOTS_MAX),
            keeping,
            replay: Replay::default(),
            ready_due: false,
            takeover: Takeover::Settled,
            settled_at: None,
            holds: 0,
            pending_updates: false,
            inherited: None,
        }
    }

    /// The session of a process that is gone, to be gone on with.
    pub fn succeed(keeping: Keeping, legacy: Legacy) -> Session<T> {
        let mut session = Session::new(keeping);
        session.id = legacy.session;
        session.client = ClientId(u64::from(legacy.session.0));
        session.epoch = legacy.epoch;
        session.last_committed = legacy.committed;
        session.requests = Requester::new(legacy.first_xid, SLOTS_MAX, UNSENT_CALLS_MAX);
        session.replay.new_boot(legacy.epoch, Transno(0));
        session.takeover = Takeover::Begun;
        session.inherited = Some(legacy.epoch);
        session
    }

    /// A request that the process before had sent and that is not known to be answered. Before the
    /// first [`Session::lane_up`].
    pub fn restore(
        &mut self,
        place: (u16, Xid),
        payload: Arc<Payload>,
        owner: (T, Box<dyn CallRecord>),
    ) {
        self.requests.restore(place, payload, owner);
    }

    /// What the process before had done and was not durable. Before the first [`Session::lane_up`].
    pub fn adopt(&mut self, undurable: Undurable) {
        self.replay.adopt(undurable);
    }

    /// Nothing is shown any more under locks of the process before: a server that has lost those with
    /// its boot need not wait for [`Session::settled`].
    pub fn withdrawn(&mut self) {
        if self.takeover == Takeover::Begun {
            self.takeover = Takeover::InOrder;
        }
    }

    /// What this process has taken over is in order: the server may hear so, and drops what else it
    /// kept of the one before.
    pub fn settled(&mut self) {
        if self.takeover != Takeover::Settled {
            self.settled_at = Some(self.requests.next_xid());
        }
        self.takeover = Takeover::Settled;
    }

    /// The lane over which a request goes that would best go over `lane`. A lock that is asked for must
    /// not overtake word that this process is settled, at which the target drops all that it has: so
    /// everything goes behind that until an answer shows that it was heard.
    pub fn lane(&self, lane: Lane) -> Lane {
        match self.settled_at {
            Some(_) => Lane::Control,
            None => lane,
        }
    }

    /// A boot of the target that begins is to be told something before it hears that this client is
    /// ready. Urgent requests, which it answers at once. Others wait, which it would not answer
    /// before. Where what was asked of earlier boots takes all slots, these are told when the
    /// others are answered. Returns what [`Session::release_ready`] wants.
    pub fn hold_ready(&mut self) -> u64 {
        self.pending_updates = true;
        self.holds += 1;
        self.holds
    }

    /// It is told, unless there was something again since.
    pub fn release_ready(&mut self, hold: u64) {
        if hold == self.holds {
            self.pending_updates = false;
        }
    }

    fn holds_ready(&self) -> bool {
        self.pending_updates && !self.requests.is_full_of_the_past()
    }

    fn may_be_ready(&self) -> bool {
        if self.holds_ready() {
            return false;
        }
        match self.takeover {
            Takeover::Settled => true,
            Takeover::InOrder => self.has_restarted(),
            Takeover::Begun => false,
        }
    }

    /// The target's boot is another than the one in which a process before this one had the session.
    pub fn has_restarted(&self) -> bool {
        self.inherited
            .is_some_and(|boot_epoch| boot_epoch != self.epoch)
    }

    /// The session to resume; none before the first welcome and after an eviction.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// What the target calls this client.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// The target's boot at the last welcome.
    pub fn epoch(&self) -> BootEpoch {
        self.epoch
    }

    /// The newest durable change that the target told of.
    pub fn last_committed(&self) -> Transno {
        self.last_committed
    }

    /// Requests waiting for an answer or for their turn.
    pub fn outstanding(&self) -> usize {
        self.requests.outstanding()
    }

    /// Requests wait for a slot or a connection.
    pub fn has_unsent(&self) -> bool {
        self.requests.has_unsent()
    }

    /// What it keeps until it is durable: frames and their bytes.
    pub fn kept(&self) -> (usize, usize) {
        (self.replay.count(), self.replay.bytes())
    }

    /// Queues a request. At the bound it is shed: the token comes back.
    pub fn submit(&mut self, call: Call<T>) -> Result<(), T> {
        self.requests.submit(call)
    }

    /// The server answered the control lane's hello. Requests flow after [`Session::lane_up`].
    pub fn begin(&mut self, welcome: &Welcome) -> Begun<T> {
        let (had, old) = (self.id, self.epoch);
        self.last_committed = self.last_committed.max(welcome.last_committed);
        self.requests.grant(welcome.slots);
        if welcome.resumed && welcome.session == had {
            self.replay.committed(self.last_committed);
            return Begun::Resumed;
        }
        self.id = welcome.session;
        self.client = welcome.client;
        self.epoch = welcome.boot_epoch;
        self.callbacks = Replier::new(CALLBACK_SLOTS_MAX);
        let has_restarted = old != BootEpoch(0) && old != welcome.boot_epoch;
        // Without a session it was told already.
        let evicted = had != SessionId::NONE && (welcome.evicted || !has_restarted);
        if evicted {
            self.replay.lose();
        }
        self.replay.new_boot(welcome.boot_epoch, welcome.survived);
        self.requests.new_boot();
        if evicted {
            Begun::Evicted(self.requests.reset())
        } else if has_restarted {
            let new = welcome.boot_epoch;
            Begun::NewEpoch { old, new }
        } else {
            Begun::First
        }
    }

    /// The server said that the session is over: forgets it and gives up every request.
    pub fn evicted(&mut self) -> Vec<T> {
        self.id = SessionId::NONE;
        self.replay.lose();
        self.requests.reset()
    }

    /// `lane` has a new connection; what is not answered goes out again first.
    pub fn lane_up(&mut self, lane: Lane) {
        self.requests.lane_up(lane);
        if lane == Lane::Control {
            self.replay.connection_lost();
            self.ready_due = true;
        }
    }

    /// Requests that are to go, or went, over `lane` and are not answered.
    pub fn load(&self, lane: Lane) -> usize {
        self.requests.load(lane)
    }

    /// `lane` lost its connection.
    pub fn lane_down(&mut self, lane: Lane) {
        self.requests.lane_down(lane);
    }

    /// The next frame for `lane`: first what the target has lost, then what is unanswered, then
    /// word of that, then what is new.
    pub fn poll_send(&mut self, lane: Lane) -> Option<Frame> {
        if self.replay.is_under_way() {
            return self.poll_replay(lane);
        }
        let resent = !self.requests.has_resends(lane);
        if lane == Lane::Control && self.ready_due && self.may_be_ready() && resent {
            self.ready_due = false;
            return Some(self.bare(FrameKind::Ready));
        }
        // More of them would only be more to keep.
        let may_keep_more = self.replay.bytes() < REPLAY_BYTES_MAX;
        let least = match may_keep_more && !self.holds_ready() {
            true => Urgency::Ordinary,
            false => Urgency::Urgent,
        };
        let outgoing = self.requests.poll_send(lane, least)?;
        let header = Header {
            slot: outgoing.slot,
            xid: outgoing.xid,
            resent: outgoing.resent,
            ..self.header(FrameKind::Request)
        };
        Some(Frame {
            header,
            payload: outgoing.payload,
        })
    }

    fn poll_replay(&mut self, lane: Lane) -> Option<Frame> {
        if lane != Lane::Control {
            return None;
        }
        let again = self.replay.poll_send()?;
        let header = Header {
            slot: again.slot,
            xid: again.xid,
            replay: true,
            ..self.header(FrameKind::Request)
        };
        Some(Frame {
            header,
            payload: again.payload,
        })
    }

    /// A frame of `kind` that carries nothing.
    pub fn bare(&self, kind: FrameKind) -> Frame {
        Frame::bare(self.header(kind))
    }

    fn header(&self, kind: FrameKind) -> Header {
        Header {
            session: self.id,
            epoch: self.epoch.0 as u32,
            last_committed: self.last_committed,
            ..Header::new(kind)
        }
    }

    /// Takes a frame that came. A frame of an earlier session is dropped.
    pub fn handle(&mut self, frame: Frame) -> Result<Event<T>, Violation> {
        let header = frame.header;
        if header.session != self.id || header.epoch != self.epoch.0 as u32 {
            return Ok(Event::Nothing);
        }
        self.last_committed = self.last_committed.max(header.last_committed);
        self.replay.committed(header.last_committed);
        match header.kind {
            FrameKind::Reply => Ok(self.on_reply(header, frame.payload)),
            FrameKind::Callback => self.on_callback(header, frame.payload),
            FrameKind::Ping => Ok(Event::Send(self.bare(FrameKind::Pong))),
            FrameKind::Evicted => Ok(Event::Evicted),
            FrameKind::Pong | FrameKind::Committed => Ok(Event::Nothing),
            _ => Err(Violation("a frame that only clients send")),
        }
    }

    fn on_reply(&mut self, header: Header, payload: Arc<Payload>) -> Event<T> {
        if header.credits != 0 {
            self.requests.grant(header.credits);
        }
        let Header {
            slot, xid, transno, ..
        } = header;
        if self.replay.is_under_way() && self.replay.answered(slot, xid, transno) {
            self.replay.committed(self.last_committed);
            let is_refusal = |sub: &Sub| wire::status_from(sub.status).is_err();
            let refused = transno == Transno(0) && payload.subs.iter().any(is_refusal);
            return Event::Replayed { refused };
        }
        let Some(settled) = self.requests.answered(slot, xid) else {
            return Event::Nothing;
        };
        let Settled {
            request,
            lane,
            token,
            call_record,
        } = settled;
        if lane == Lane::Control {
            self.settled_at.take_if(|first| *first <= xid);
        }
        let kept = self.keeping == Keeping::Changes && transno > self.last_committed;
        let replay_record = call_record.and_then(|call_record| {
            call_record.answered(&Answered {
                place: (slot, xid),
                request: &request,
                answer: &payload,
                done: kept.then_some((self.epoch, transno)),
            })
        });
        if kept {
            let frames = (request, payload.clone());
            self.replay
                .keep((slot, xid), transno, frames, replay_record);
        }
        match token {
            Some(token) => Event::Replied(token, ReplyBatch::from_payload(payload, transno)),
            None => Event::Nothing,
        }
    }

    fn on_callback(
        &mut self,
        header: Header,
        payload: Arc<Payload>,
    ) -> Result<Event<T>, Violation> {
        if header.xid.0 & CALLBACK_XID_BIT == 0 {
            return Err(Violation("a callback with a request's number"));
        }
        let id = CallbackId {
            session: self.id,
            slot: header.slot,
            xid: header.xid,
        };
        match self.callbacks.accept(header.slot, header.xid)? {
            Verdict::Execute => {
                let sub = Arc::unwrap_or_clone(payload).subs.into_iter().next();
                let sub = sub.ok_or(Violation("a callback without a message"))?;
                Ok(Event::Callback(id, sub.into()))
            }
            Verdict::Replay(stored) => Ok(Event::Send(self.callback_reply(id, stored.payload))),
            Verdict::Running | Verdict::Stale => Ok(Event::Nothing),
        }
    }

    /// The answer to a callback, to be sent over the control lane. None: its session has ended.
    pub fn answer_callback(&mut self, id: CallbackId, message: Message) -> Option<Frame> {
        if id.session != self.id {
            return None;
        }
        let stored = Stored {
            payload: Arc::new(message.into()),
            transno: Transno(0),
        };
        let running = self
            .callbacks
            .answer(id.slot, id.xid, &stored, Room::ForAll);
        running.then(|| self.callback_reply(id, stored.payload))
    }

    fn callback_reply(&self, id: CallbackId, payload: Arc<Payload>) -> Frame {
        let header = Header {
            slot: id.slot,
            xid: id.xid,
            ..self.header(FrameKind::CallbackReply)
        };
        Frame { header, payload }
    }

    /// Gives up on requests whose deadline has come.
    pub fn expire(&mut self, now: Tick) -> Vec<T> {
        self.requests.expire(now)
    }

    /// Gives up on every request.
    pub fn abandon(&mut self) -> Vec<T> {
        self.requests.abandon()
    }
}

#[cfg(test)]
mod keeping_tests;
#[cfg(test)]
mod tests;
