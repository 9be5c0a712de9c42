//! Frames that wait for tokens before the machine hears of them.

use std::time::{Duration, Instant};

use base::{ClientId, Tick};

use super::{Arrival, Complete, Machine, Moment, Serving, State};
use crate::batch::Batch;
use crate::scheduler::{self, Cleared, Nature, Offer, RuleError, RuleReport};
use crate::server::{PeerInfo, Responder};
use crate::threads::lock;

/// The thread that lets frames go is not woken more often than that. No token is lost by it.
const GRANULE: Duration = Duration::from_micros(100);

/// What a request takes while it waits, beside its bytes.
const REQUEST_BYTES: usize = 256;

/// The rules by which requests to a target wait, set and seen while it serves.
pub trait Scheduling: Send + Sync {
    /// Carries out `start …`, `change …` or `stop …`: see [`crate::scheduler`].
    fn command(&self, text: &str) -> Result<(), RuleError>;
    /// Each rule, in the order they are looked at, and what became of the requests it is about.
    fn report(&self) -> Vec<RuleReport>;
    /// The clients that rules may name.
    fn clients(&self) -> Vec<(ClientId, PeerInfo)>;
}

/// A frame of requests that came.
pub(super) struct Arrived {
    pub responder: Responder,
    pub batch: Batch,
}

/// What the thread that tells the time waits for beside its own ticks.
#[derive(Debug, Default)]
pub(super) struct Timer {
    pub ending: bool,
    /// A frame may go then.
    pub due: Option<Instant>,
}

impl<M: Machine> State<M> {
    /// A frame came: it goes at once, or is kept.
    pub(super) fn schedule(&mut self, now: Tick, arrived: Arrived) -> Option<Cleared<Arrived>> {
        if !self.scheduler.has_rules() {
            return Some(Cleared {
                frame: arrived,
                classes: Vec::new(),
            });
        }
        let (session, batch) = (arrived.responder.session().clone(), &arrived.batch);
        let natures: Vec<Nature> = batch.messages.iter().map(M::nature).collect();
        let bodies: usize = batch
            .messages
            .iter()
            .map(|message| message.body.len())
            .sum();
        let offer = Offer {
            client: session.client(),
            peer: session.peer(),
            natures: &natures,
            bytes: bodies + batch.bulk.len() + REQUEST_BYTES * natures.len(),
            awaited: self.machine.is_awaited(session.client()),
            frame: arrived,
        };
        self.scheduler.offer(now, offer)
    }

    /// Hands a frame to the machine.
    pub(super) fn run(
        &mut self,
        moment: Moment,
        cleared: Cleared<Arrived>,
        out: &mut Vec<M::Output>,
    ) {
        let Cleared { frame, classes } = cleared;
        let Arrived {
            mut responder,
            batch,
        } = frame;
        let answered = responder.take_answered();
        let client = responder.session().client();
        let (slot, xid) = (responder.slot(), responder.xid());
        let first_tag = self.frames.begin(responder, batch.messages.len(), classes);
        let arrival = Arrival {
            client,
            slot,
            xid,
            first_tag,
            batch: &batch,
            answered: answered.as_deref(),
        };
        self.machine.requests(moment, arrival, out);
    }

    /// Runs the frames whose turn has come.
    pub(super) fn run_due(&mut self, moment: Moment, out: &mut Vec<M::Output>) {
        if self.scheduler.has_rules() {
            let mut due = Vec::new();
            self.scheduler.poll(moment.now, &mut due);
            for cleared in due {
                self.run(moment, cleared, out);
            }
        }
    }
}

impl<M: Machine> Serving<M> {
    /// A client that was called back and must give something back is not held any more.
    pub(super) fn release_called_back(&self, state: &mut State<M>, out: &mut Vec<M::Output>) {
        while let Some(client) = state.called_back.pop() {
            if !state.machine.is_awaited(client) {
                continue;
            }
            let (moment, mut released) = (self.moment(), Vec::new());
            state.scheduler.release(moment.now, client, &mut released);
            for cleared in released {
                state.run(moment, cleared, out);
            }
        }
    }

    /// Charges long answers to whom their requests were charged.
    pub(super) fn charge(&self, state: &mut State<M>, frame: &Complete<M::Answer>) {
        for (class, answer) in frame.classes.iter().zip(&frame.answers) {
            let extra = M::extra_cost(answer);
            if let (Some(class), 1..) = (class, extra) {
                state.scheduler.owe(self.clock.tick(), *class, extra);
            }
        }
    }

    /// Has the thread that tells the time wake when the next frame may go.
    pub(super) fn set_timer(&self, state: &State<M>) {
        let Some(due) = state.scheduler.next_due() else {
            return;
        };
        let left = due.since(self.clock.tick()).max(GRANULE);
        let due = ::threads::now() + left;
        let mut timer = lock(&self.timer);
        if timer.due.is_none_or(|before| due < before) {
            timer.due = Some(due);
            self.wake.notify_all();
        }
    }
}

impl<M: Machine> Scheduling for Serving<M> {
    fn command(&self, text: &str) -> Result<(), RuleError> {
        let command = scheduler::parse(text, &M::VOCABULARY)?;
        let mut done = Ok(());
        self.with_state(|state, moment, out| {
            let mut freed = Vec::new();
            done = state.scheduler.command(moment.now, command, &mut freed);
            for cleared in freed {
                state.run(moment, cleared, out);
            }
        });
        done
    }

    fn report(&self) -> Vec<RuleReport> {
        lock(&self.state).scheduler.report()
    }

    fn clients(&self) -> Vec<(ClientId, PeerInfo)> {
        let state = lock(&self.state);
        let known = state.sessions.iter();
        let mut clients: Vec<_> = known
            .map(|(client, session)| (*client, session.peer().clone()))
            .collect();
        clients.sort_by_key(|(client, _)| *client);
        clients
    }
}
