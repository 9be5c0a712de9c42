//! Frames that wait for tokens before the machine hears of them.

use std::time::Duration;

use base::{ClientId, Tick};

use super::arrived::{Arrived, Begun, Frame};
use super::frames::Complete;
use super::machine::{Arrival, Machine, Moment, Part, Room, Scheduling};
use super::{Serving, State};
use crate::batch::{Batch, ReplyBatch};
use crate::scheduler::{self, Cleared, Nature, Offer, RuleError, RuleReport};
use crate::server::PeerInfo;
use crate::threads::lock;

/// The thread that lets frames go is not woken more often than that. No token is lost by it.
const GRANULE: Duration = Duration::from_micros(100);

/// What a request takes while it waits, beside its bytes.
const REQUEST_BYTES: usize = 256;

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

    /// Hands a frame to the machine, in one piece.
    pub(super) fn run(
        &mut self,
        moment: Moment,
        cleared: Cleared<Arrived>,
        out: &mut Vec<M::Output>,
    ) {
        if let Some(begun) = self.begin(cleared) {
            self.go_on(moment, begun, Part::ALL, out);
        }
    }

    /// Hands a part of a frame to the machine: what is left.
    pub(super) fn run_part(
        &mut self,
        moment: Moment,
        frame: Frame,
        out: &mut Vec<M::Output>,
    ) -> Option<Frame> {
        let begun = match frame {
            Frame::Begun(begun) => Some(begun).filter(|begun| self.is_here(&begun.session))?,
            Frame::Arrived(Arrived {
                responder, batch, ..
            }) if batch.messages.is_empty() || !self.is_here(responder.session()) => {
                // It went while its request was on the way; nothing may come into being for it.
                responder.reply(ReplyBatch::default());
                return None;
            }
            Frame::Arrived(arrived) if self.stopped.is_some() => {
                arrived.responder.leave();
                return None;
            }
            Frame::Arrived(arrived) => {
                let arrived = awaited::<M>(arrived)?;
                let cleared = self.schedule(moment.now, arrived)?;
                self.begin(cleared)?
            }
        };
        let rest = self.go_on(moment, begun, Part::of_a_turn(), out);
        rest.map(Frame::Begun)
    }

    /// From now on the frame is under way, if it may be.
    fn begin(&mut self, cleared: Cleared<Arrived>) -> Option<Begun> {
        let Cleared { frame, classes } = cleared;
        let Arrived {
            mut responder,
            batch,
            resent,
        } = frame;
        let answered = responder.take_answered();
        let session = responder.session().clone();
        let (slot, xid) = (responder.slot(), responder.xid());
        let bytes = M::kept_bytes(&batch) + REQUEST_BYTES * batch.messages.len();
        // A frame that an earlier boot may have run would run twice if it came as a new one.
        let again = M::KEEPS_ANSWERS && (resent || answered.is_some());
        if !again && !self.frames.has_room(session.client(), bytes) && may_wait::<M>(&batch) {
            responder.reply(ReplyBatch::default());
            return None;
        }
        let count = batch.messages.len();
        let first_tag = self.frames.begin(responder, count, classes, bytes);
        let room = Room {
            answers: M::ANSWER_BYTES_MAX,
            data: batch.bulk.len(),
        };
        Some(Begun {
            session,
            slot,
            xid,
            first_tag,
            batch,
            answered,
            done: 0,
            room,
        })
    }

    /// Hands the next part of a frame to the machine: what is left.
    fn go_on(
        &mut self,
        moment: Moment,
        mut begun: Begun,
        part: Part,
        out: &mut Vec<M::Output>,
    ) -> Option<Begun> {
        let arrival = Arrival {
            client: begun.session.client(),
            slot: begun.slot,
            xid: begun.xid,
            first_tag: begun.first_tag,
            batch: &begun.batch,
            answered: begun.answered.as_deref(),
            from: begun.done,
            part,
            room: &mut begun.room,
        };
        begun.done += self.machine.requests(moment, arrival, out);
        (begun.done < begun.batch.messages.len()).then_some(begun)
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

/// A frame whose client has gone while it waited for its turn is not begun, unless others may wait for it.
fn awaited<M: Machine>(arrived: Arrived) -> Option<Arrived> {
    if !may_wait::<M>(&arrived.batch) {
        return Some(arrived);
    }
    let Arrived {
        responder,
        batch,
        resent,
    } = arrived;
    let responder = responder.withdraw().err()?;
    Some(Arrived {
        responder,
        batch,
        resent,
    })
}

/// Nobody waits for these requests but their client.
fn may_wait<M: Machine>(batch: &Batch) -> bool {
    let mut messages = batch.messages.iter();
    messages.any(|message| !M::nature(message).urgent)
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
        self.enter().scheduler.report()
    }

    fn clients(&self) -> Vec<(ClientId, PeerInfo)> {
        let state = self.enter();
        let known = state.sessions.iter();
        let mut clients: Vec<_> = known
            .map(|(client, session)| (*client, session.peer().clone()))
            .collect();
        clients.sort_by_key(|(client, _)| *client);
        clients
    }
}
