//! A target as a state machine, what goes into it and comes out of it, and what operators ask of it while it
//! is served.

use std::time::{Duration, Instant};

use base::{BootEpoch, ClientId, Tick, Timestamp, Transno, Xid};
use wire::handshake::ClientUuid;

use crate::batch::{Batch, Message, ReplyBatch, ReplyMessage};
use crate::scheduler::{Nature, RuleError, RuleReport, Vocabulary};
use crate::server::{Departure, PeerInfo};
use crate::window::Report;

/// How many requests of a session are begun before another has its turn, and for how long.
const TURN_REQUESTS_MAX: usize = 64;
const TURN_MAX: Duration = Duration::from_millis(1);

/// What time it is, by both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// For durations.
    pub now: Tick,
    /// For files.
    pub wall: Timestamp,
}

/// How much of a frame a machine may do at once: others wait for their turns.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    requests_max: usize,
    until: Option<Instant>,
}

impl Part {
    /// The whole frame.
    pub const ALL: Part = Part {
        requests_max: usize::MAX,
        until: None,
    };

    pub(super) fn of_a_turn() -> Part {
        Part {
            requests_max: TURN_REQUESTS_MAX,
            until: Some(::threads::now() + TURN_MAX),
        }
    }

    /// It is enough, with so many requests done.
    pub fn is_over(&self, done: usize) -> bool {
        let is_late = || self.until.is_some_and(|until| ::threads::now() >= until);
        done >= self.requests_max || done > 0 && is_late()
    }
}

/// A part of a frame of requests that came.
#[derive(Debug)]
pub struct Arrival<'b> {
    /// Whose.
    pub client: ClientId,
    /// Its slot: a resend comes in the same one.
    pub slot: u16,
    /// Its number.
    pub xid: Xid,
    /// The tag of its first request; each of the others has the next one.
    pub first_tag: u64,
    /// The requests, and their data.
    pub batch: &'b Batch,
    /// Of a replay: what each request was answered in an earlier boot of the target.
    pub answered: Option<&'b [ReplyMessage]>,
    /// How many of the requests were begun before.
    pub from: usize,
    /// How many of the others are to be begun now.
    pub part: Part,
    /// What the others may take of the frame.
    pub room: &'b mut Room,
}

/// Bytes of a frame that its requests share.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// What the answers may take; at first [`Machine::ANSWER_BYTES_MAX`].
    pub answers: usize,
    /// Data that no request has taken yet.
    pub data: usize,
}

/// One thing that a machine wants done.
pub enum Effect<A, C> {
    /// A request is answered.
    Answer {
        /// Which.
        tag: u64,
        /// With what.
        answer: A,
        /// The change it made; zero: none.
        transno: Transno,
    },
    /// Ask a client something; the answer comes back with `id`.
    CallBack {
        /// Whom.
        client: ClientId,
        /// The question's name.
        id: u64,
        /// The question.
        message: Message,
    },
    /// A client has not answered in time: its session ends, and then [`Machine::end_session`] is called.
    Evict {
        /// Whom.
        client: ClientId,
    },
    /// The target serves no longer.
    Stop {
        /// Why, for the log.
        reason: String,
    },
    /// What the rim around this one does.
    Chore(C),
}

/// A target as a state machine: no threads, no sockets, no clock.
pub trait Machine: Send + Sized + 'static {
    /// What comes out of every call, in order.
    type Output;
    /// The answer to one request.
    type Answer: Send;
    /// What it hears beside requests and answers.
    type Event: Send;
    /// What takes its time, and is done outside.
    type Chore;

    /// What rules about its requests may speak of.
    const VOCABULARY: Vocabulary;
    /// Answers outlive a boot. So a client may repeat a request of an earlier boot, and it is not done twice.
    const KEEPS_ANSWERS: bool;

    /// Bytes that the answers to a frame may take.
    const ANSWER_BYTES_MAX: usize;

    /// What a scheduler must know of a request.
    fn nature(message: &Message) -> Nature;
    /// Bytes of these requests that the machine keeps until they are answered, at most.
    fn kept_bytes(batch: &Batch) -> usize;
    /// Bytes of memory that an answer takes.
    fn answer_bytes(answer: &Self::Answer) -> usize;
    /// What an answer costs beyond the token that its request has paid.
    fn extra_cost(answer: &Self::Answer) -> u64;
    /// Others wait for the client to give back what any of its requests may take part in.
    fn is_awaited(&self, client: ClientId) -> bool;
    /// After how long a client is evicted that does not give back what others wait for.
    fn callback_deadline(&self) -> Duration;
    /// Every change up to here is durable.
    fn committed(&self) -> Transno;
    /// A client's session begins, or does so once more, for another process, before anything came in
    /// it. Where what is known of the client cannot be read the target stops, for this reason.
    fn connected(&mut self, client: ClientId, peer: &PeerInfo) -> Result<(), String>;
    /// Requests came. Each is answered by an [`Effect::Answer`], now or later. How many were begun, at least
    /// one: those behind them come again after other sessions had their turns.
    fn requests(
        &mut self,
        moment: Moment,
        arrival: Arrival<'_>,
        out: &mut Vec<Self::Output>,
    ) -> usize;
    /// Another process has taken the place of a client's: nothing that was asked before is waited for.
    /// What the client holds stays until it is ready.
    fn succeeded(&mut self, moment: Moment, client: ClientId, out: &mut Vec<Self::Output>) {
        _ = (moment, client, out);
    }
    /// A client has sent again all that it knows to be lost or unanswered.
    fn ready(&mut self, moment: Moment, client: ClientId, out: &mut Vec<Self::Output>) {
        _ = (moment, client, out);
    }
    /// Whom it waits for since its restart.
    fn recovery(&self, now: Tick) -> Report;
    /// It waits for them no longer.
    fn give_up_waiting(&mut self, moment: Moment, out: &mut Vec<Self::Output>);
    /// Of that boot of the target, the newest change that is durable.
    fn survived(&self, epoch: BootEpoch) -> Transno {
        _ = epoch;
        self.committed()
    }
    /// The target gave up on this mount, in this boot or an earlier one. Where that cannot be read the
    /// target stops, for this reason.
    fn gave_up(&self, client: ClientUuid) -> Result<bool, String> {
        _ = client;
        Ok(false)
    }
    /// It did, and that is not durable yet.
    fn is_giving_up(&self, client: ClientUuid) -> bool {
        _ = client;
        false
    }
    /// A client has answered the callback `id`.
    fn answered(
        &mut self,
        moment: Moment,
        client: ClientId,
        id: u64,
        answer: &Message,
        out: &mut Vec<Self::Output>,
    );
    /// Something else happened.
    fn hear(&mut self, moment: Moment, event: Self::Event, out: &mut Vec<Self::Output>);
    /// A client's session has ended.
    fn end_session(
        &mut self,
        moment: Moment,
        who: (ClientId, Departure),
        out: &mut Vec<Self::Output>,
    );
    /// Time has passed.
    fn tick(&mut self, moment: Moment, out: &mut Vec<Self::Output>);
    /// What an output asks for.
    fn effect(output: Self::Output) -> Effect<Self::Answer, Self::Chore>;
    /// The reply to a frame, its answers being in the order of its requests. The transno is filled
    /// in by the caller.
    fn pack(answers: Vec<Self::Answer>) -> ReplyBatch;
}

/// Whom a target waits for after a restart, and whom an operator gives up, while it serves.
pub trait Recovering: Send + Sync {
    /// How things stand.
    fn report(&self) -> Report;
    /// Waits no longer: who is missing is given up.
    fn end(&self);
    /// Why it no longer serves, if it does not.
    fn stopped(&self) -> Option<String>;
    /// Answers kept for requests that are sent again: how many, and their bytes.
    fn kept(&self) -> (usize, usize);
    /// Evicts a client, as if it had not done in time what others wait for. False: it is not here.
    fn evict(&self, client: ClientUuid) -> bool;
}

/// The rules by which requests to a target wait, set and seen while it serves.
pub trait Scheduling: Send + Sync {
    /// Carries out `start …`, `change …` or `stop …`: see [`crate::scheduler`].
    fn command(&self, text: &str) -> Result<(), RuleError>;
    /// Each rule, in the order they are looked at, and what became of the requests it is about.
    fn report(&self) -> Vec<RuleReport>;
    /// The clients that rules may name.
    fn clients(&self) -> Vec<(ClientId, PeerInfo)>;
}
