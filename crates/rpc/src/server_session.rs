//! A target's side of one client's session: requests in, callbacks out. Pure.

use std::sync::Arc;

use base::limits::{CALLBACK_SLOTS_MAX, SLOTS_MAX, UNSENT_CALLS_MAX};
use base::{BootEpoch, Transno, Xid};
use wire::frame::{CALLBACK_XID_BIT, Frame, FrameKind, Header, Payload, SessionId};
use wire::handshake::Lane;

use crate::batch::{Batch, Message, ReplyMessage};
use crate::replier::{Replier, Room, Stored, Verdict, Violation};
use crate::requester::{Call, Requester, Urgency};

/// What a frame that came amounts to.
#[derive(Debug)]
pub enum Event<T> {
    /// Run this, then give its answer to [`ServerSession::reply`].
    Request(RequestId, Batch),
    /// A callback is answered.
    CallbackReplied(T, Message),
    /// Send this back over the lane it came from.
    Send(Frame),
    /// The client has sent again all that was unanswered: callbacks may flow.
    Ready,
    /// The client is done for good.
    Goodbye,
    /// Nothing more to do.
    Nothing,
}

/// A request under way.
#[derive(Debug, Clone)]
pub struct RequestId {
    /// The place it occupies.
    pub slot: u16,
    /// Its number.
    pub xid: Xid,
    /// It was sent before, perhaps to an earlier boot of this server: it may have had its effect.
    pub resent: bool,
    /// The requests' opcodes, which the answers carry too.
    pub opcodes: Box<[u16]>,
    /// Of a replay: what each request was answered in an earlier boot of this server.
    pub answered: Option<Vec<ReplyMessage>>,
}

/// A target's side of a session; `T` is what a caller wants back with each callback's answer.
#[derive(Debug)]
pub struct ServerSession<T> {
    id: SessionId,
    epoch: BootEpoch,
    slots: u16,
    requests: Replier,
    callbacks: Requester<T>,
    /// The newest change any reply spoke of.
    replied: Transno,
    /// The newest durable change the client was told of.
    told: Transno,
}

impl<T> ServerSession<T> {
    /// A new session that grants `SLOTS_MAX` slots.
    pub fn new(id: SessionId, epoch: BootEpoch) -> ServerSession<T> {
        let callbacks = Requester::new(CALLBACK_XID_BIT | 1, CALLBACK_SLOTS_MAX, UNSENT_CALLS_MAX);
        ServerSession {
            id,
            epoch,
            slots: SLOTS_MAX,
            requests: Replier::new(SLOTS_MAX),
            callbacks,
            replied: Transno(0),
            told: Transno(0),
        }
    }

    /// The session's number.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Answers kept for requests that are sent again: how many, and their bytes.
    pub fn kept(&self) -> (usize, usize) {
        self.requests.kept()
    }

    /// Slots granted.
    pub fn slots(&self) -> u16 {
        self.slots
    }

    /// Grants `slots` from the next reply on, to throttle a client or let it go.
    pub fn grant(&mut self, slots: u16) {
        self.slots = slots.clamp(1, SLOTS_MAX);
    }

    fn header(&mut self, kind: FrameKind, last_committed: Transno) -> Header {
        self.told = self.told.max(last_committed);
        Header {
            session: self.id,
            epoch: self.epoch.0 as u32,
            last_committed: self.told,
            ..Header::new(kind)
        }
    }

    /// A frame of `kind` that carries nothing but `last_committed`.
    pub fn bare(&mut self, kind: FrameKind, last_committed: Transno) -> Frame {
        Frame::bare(self.header(kind, last_committed))
    }

    /// Takes a frame that came.
    pub fn handle(&mut self, frame: Frame, last_committed: Transno) -> Result<Event<T>, Violation> {
        let header = frame.header;
        if header.session != self.id {
            return Err(Violation("a frame of another session"));
        }
        if header.epoch != self.epoch.0 as u32 {
            return Err(Violation("a frame for another life of the server"));
        }
        match header.kind {
            FrameKind::Request => self.on_request(header, frame.payload, last_committed),
            FrameKind::CallbackReply => Ok(self.on_callback_reply(header, frame.payload)),
            FrameKind::Ping => Ok(Event::Send(self.bare(FrameKind::Pong, last_committed))),
            FrameKind::Ready => Ok(Event::Ready),
            FrameKind::Goodbye => Ok(Event::Goodbye),
            FrameKind::Pong => Ok(Event::Nothing),
            _ => Err(Violation("a frame that only servers send")),
        }
    }

    fn on_request(
        &mut self,
        header: Header,
        payload: Arc<Payload>,
        last_committed: Transno,
    ) -> Result<Event<T>, Violation> {
        if header.xid.0 & CALLBACK_XID_BIT != 0 {
            return Err(Violation("a request with a callback's number"));
        }
        let (slot, xid) = (header.slot, header.xid);
        match self.requests.accept(slot, xid)? {
            Verdict::Execute => {
                let opcodes = payload.subs.iter().map(|sub| sub.opcode).collect();
                let (batch, answered) = match header.replay {
                    false => (payload.into(), None),
                    true => {
                        let replayed = Batch::replayed(payload);
                        let replayed = replayed.ok_or(Violation("a replay without answers"))?;
                        (replayed.0, Some(replayed.1))
                    }
                };
                let id = RequestId {
                    slot,
                    xid,
                    resent: header.resent,
                    opcodes,
                    answered,
                };
                Ok(Event::Request(id, batch))
            }
            Verdict::Replay(stored) => {
                let frame = self.reply_frame(slot, xid, stored, last_committed);
                Ok(Event::Send(frame))
            }
            Verdict::Running | Verdict::Stale => Ok(Event::Nothing),
        }
    }

    fn on_callback_reply(&mut self, header: Header, payload: Arc<Payload>) -> Event<T> {
        let answered = self
            .callbacks
            .answered(header.slot, header.xid)
            .and_then(|settled| settled.token);
        let message = Arc::unwrap_or_clone(payload).subs.into_iter().next();
        match answered {
            Some(token) => {
                Event::CallbackReplied(token, message.map(Message::from).unwrap_or_default())
            }
            None => Event::Nothing,
        }
    }

    /// Keeps the answer of a request, if there is room, and makes its frame. None: it was answered before.
    pub fn reply(
        &mut self,
        request: &RequestId,
        stored: Stored,
        room: Room,
        last_committed: Transno,
    ) -> Option<Frame> {
        let (slot, xid) = (request.slot, request.xid);
        if !self.requests.answer(slot, xid, &stored, room) {
            return None;
        }
        self.replied = self.replied.max(stored.transno);
        Some(self.reply_frame(slot, xid, stored, last_committed))
    }

    /// A request is not run. If the client sends it again, it is new.
    pub fn withdraw(&mut self, request: &RequestId) {
        self.requests.withdraw(request.slot, request.xid);
    }

    fn reply_frame(
        &mut self,
        slot: u16,
        xid: Xid,
        stored: Stored,
        last_committed: Transno,
    ) -> Frame {
        let header = Header {
            slot,
            xid,
            credits: self.slots,
            transno: stored.transno,
            ..self.header(FrameKind::Reply, last_committed)
        };
        Frame {
            header,
            payload: stored.payload,
        }
    }

    /// Queues a callback. At the bound it is shed: the token comes back.
    pub fn call_back(&mut self, message: Message, token: T) -> Result<(), T> {
        self.callbacks.submit(Call {
            payload: Arc::new(message.into()),
            lane: Lane::Control,
            urgency: Urgency::Urgent,
            deadline: None,
            token,
            call_record: None,
        })
    }

    /// The client is ready: callbacks that were not answered go out again first.
    pub fn ready(&mut self) {
        self.callbacks.lane_up(Lane::Control);
    }

    /// The control lane lost its connection.
    pub fn lost(&mut self) {
        self.callbacks.lane_down(Lane::Control);
    }

    /// The next callback frame for the control lane.
    pub fn poll_send(&mut self, last_committed: Transno) -> Option<Frame> {
        let outgoing = self.callbacks.poll_send(Lane::Control, Urgency::Ordinary)?;
        let header = Header {
            slot: outgoing.slot,
            xid: outgoing.xid,
            resent: outgoing.resent,
            ..self.header(FrameKind::Callback, last_committed)
        };
        Some(Frame {
            header,
            payload: outgoing.payload,
        })
    }

    /// A frame that tells an idle client that what it still keeps for a replay is durable now.
    pub fn poll_committed(&mut self, last_committed: Transno) -> Option<Frame> {
        let news = self.told < self.replied && self.told < last_committed;
        news.then(|| self.bare(FrameKind::Committed, last_committed))
    }

    /// The session is over: no answer is kept, and every callback is given up.
    pub fn end(&mut self) -> Vec<T> {
        self.requests = Replier::new(SLOTS_MAX);
        self.callbacks.reset()
    }
}
