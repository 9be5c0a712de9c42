//! A target's state machine on a network. A thin rim that hands it requests, answers to callbacks,
//! events and time, one at a time, and does what comes out in that order, before anybody else's
//! turn.
//!
//! The machine is never entered from what it says: answers and events that come while it is held,
//! perhaps by the very thread that they come on, wait in an inbox, which its holder empties.

mod arrived;
mod frames;
mod line;
mod machine;
mod schedule;
mod turns;
mod unanswered;

use ::threads::JoinHandle;
use ::threads::{Condvar, Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::limits::HELD_SHARE;
use base::{BootEpoch, ClientId, Clock, Disrupted, Transno, Xid};
use wire::handshake::ClientUuid;

use crate::batch::{Batch, Message, ReplyBatch};
use crate::scheduler::Scheduler;
use crate::server::{Connected, Departure, LastCommitted, Responder, Service, Unwelcome};
use crate::threads::{self, lock, wait_until};
use crate::window::Report;
use arrived::{Arrived, Frame, Timer};
use frames::Frames;
use line::Line;
pub use machine::{Arrival, Effect, Machine, Moment, Part, Recovering, Room, Scheduling};

/// How often the machine is told what time it is.
const TICK: Duration = Duration::from_millis(100);

/// How long at most one stands back for others who keep coming.
const STAND_BACK_MAX: Duration = Duration::from_millis(2);

/// How often it is looked whether something is durable for which a handshake waits.
const DURABLE_TURN: Duration = Duration::from_millis(5);

/// Does a machine's chores; called while the machine is held: must not block.
pub type DoChore<M> = Box<dyn Fn(&Arc<Serving<M>>, <M as Machine>::Chore) + Send + Sync>;

/// Called with a frame of requests before the machine has it, while nothing is held. May take its
/// time, for which the requests that come over the same connection wait.
pub type Foresee = Box<dyn Fn(&Batch) + Send + Sync>;

/// A machine that is served. [`Serving::stop`] ends its thread.
pub struct Serving<M: Machine> {
    state: Mutex<State<M>>,
    /// Who waits for the machine.
    waiting: AtomicUsize,
    /// Held while the machine is waited for: a thread that had it just now is not first again.
    entrance: Mutex<()>,
    line: Line<Frame>,
    /// The target serves no longer: requests are not even brought.
    is_stopped: Arc<AtomicBool>,
    inbox: Mutex<VecDeque<News<M::Event>>>,
    do_chore: DoChore<M>,
    foresee: Foresee,
    last_committed: Arc<LastCommitted>,
    clock: Arc<dyn Clock>,
    timer: Mutex<Timer>,
    wake: Condvar,
    ticker: Mutex<Option<JoinHandle<()>>>,
    /// For answers that may come when all is over.
    myself: Weak<Serving<M>>,
}

struct State<M: Machine> {
    machine: M,
    sessions: HashMap<ClientId, Arc<Connected>>,
    frames: Frames<M::Answer>,
    scheduler: Scheduler<Arrived>,
    /// Clients with frames in the scheduler that were called back just now.
    called_back: Vec<ClientId>,
    stopped: Option<String>,
    is_stopped: Arc<AtomicBool>,
}

impl<M: Machine> State<M> {
    /// It has not gone, nor has another process taken its place.
    fn is_here(&self, session: &Arc<Connected>) -> bool {
        let known = self.sessions.get(&session.client());
        known.is_some_and(|known| Arc::ptr_eq(known, session))
    }

    fn stop(&mut self, reason: String) {
        tracing::error!(reason, "the target stops");
        self.stopped = Some(reason);
        self.is_stopped.store(true, Ordering::Release);
        // Clients wait for its next boot; the process has other targets, and may go on for long.
        self.sessions.values().for_each(|session| session.cut());
    }

    /// What a target that stops says to whom it hears from would not be durable.
    fn still_serves(&self) -> Result<(), Unwelcome> {
        match &self.stopped {
            Some(reason) => Err(Unwelcome::BrokenOff(reason.clone())),
            None => Ok(()),
        }
    }

    /// What the machine has read, or the end.
    fn or_stop<T>(&mut self, read: Result<T, String>) -> Result<T, Unwelcome> {
        read.map_err(|reason| {
            self.stop(reason.clone());
            Unwelcome::BrokenOff(reason)
        })
    }
}

/// What came while the machine was held.
enum News<E> {
    Answered(ClientId, u64, Message),
    Event(E),
}

impl<M: Machine> Serving<M> {
    /// Starts the thread called `ticker` that tells the machine the time. `last_committed` is the
    /// one that the target is served with.
    pub fn start(
        machine: M,
        ticker: &str,
        last_committed: Arc<LastCommitted>,
        clock: Arc<dyn Clock>,
        do_chore: DoChore<M>,
        foresee: Foresee,
    ) -> io::Result<Arc<Serving<M>>> {
        last_committed.set(machine.committed());
        let hold_max = machine.callback_deadline() / HELD_SHARE;
        let is_stopped = Arc::<AtomicBool>::default();
        let serving = Arc::new_cyclic(|myself| Serving {
            state: Mutex::new(State {
                machine,
                sessions: HashMap::new(),
                frames: Frames::default(),
                scheduler: Scheduler::new(hold_max),
                called_back: Vec::new(),
                stopped: None,
                is_stopped: is_stopped.clone(),
            }),
            waiting: AtomicUsize::new(0),
            entrance: Mutex::default(),
            line: Line::default(),
            is_stopped,
            inbox: Mutex::default(),
            do_chore,
            foresee,
            last_committed,
            clock,
            timer: Mutex::default(),
            wake: Condvar::new(),
            ticker: Mutex::default(),
            myself: myself.clone(),
        });
        let ticking = serving.clone();
        let thread = threads::spawn(ticker, move || ticking.run_ticks())?;
        *lock(&serving.ticker) = Some(thread);
        Ok(serving)
    }

    /// What to hand to [`crate::ServedTarget`].
    pub fn service(&self) -> Arc<dyn Service> {
        Arc::new(Served(self.strong()))
    }

    /// Why the target no longer serves, if it does not.
    pub fn stopped(&self) -> Option<String> {
        self.enter().stopped.clone()
    }

    /// Ends the thread, and lets go of the clients: their sessions know the service, which is this.
    pub fn stop(&self) {
        lock(&self.timer).ending = true;
        self.wake.notify_all();
        if let Some(thread) = lock(&self.ticker).take() {
            threads::join(thread);
        }
        let mut state = self.enter();
        let gone = (
            std::mem::take(&mut state.sessions),
            std::mem::take(&mut state.frames),
        );
        drop(state);
        drop(gone);
    }

    /// An event comes; the thread that holds the machine takes it in when done.
    pub fn hear(&self, event: M::Event) {
        self.take_in(News::Event(event));
    }

    /// Runs `act` on the machine and does what comes out.
    pub fn with(&self, act: impl FnOnce(&mut M, Moment, &mut Vec<M::Output>)) {
        self.with_state(|state, moment, out| act(&mut state.machine, moment, out));
    }

    /// Looks at the machine.
    pub fn look<T>(&self, look: impl FnOnce(&M) -> T) -> T {
        look(&self.enter().machine)
    }

    /// Answers a request that the machine has left to be answered from outside, and that changed nothing. The
    /// machine hears of it by `tell`. It is not locked while the answer is sent, since sending much takes
    /// time; nothing may depend on the order of this answer and others.
    pub fn answer(&self, tag: u64, answer: M::Answer, tell: impl FnOnce(&mut M)) {
        let mut state = self.enter();
        tell(&mut state.machine);
        let bytes = M::answer_bytes(&answer);
        let frame = state.frames.answer(tag, (answer, bytes), Transno(0));
        if let Some(frame) = &frame {
            self.charge(&mut state, frame);
        }
        drop(state);
        self.empty_inbox();
        if let Some(frame) = frame {
            frame.send::<M>();
        }
    }

    /// The session lives whose request the machine has left to be answered from outside.
    pub fn is_awaited(&self, tag: u64) -> bool {
        self.enter().frames.is_awaited(tag)
    }

    fn strong(&self) -> Arc<Serving<M>> {
        self.myself
            .upgrade()
            .expect("the caller of a method of it has it, and it is made in an Arc only")
    }

    fn moment(&self) -> Moment {
        Moment {
            now: self.clock.tick(),
            wall: self.clock.now(),
        }
    }

    /// Lets those go first who wait for the machine now, for a moment: for work that nobody waits
    /// for as urgently.
    pub fn stand_back(&self) {
        let began = ::threads::now();
        while self.waiting.load(Ordering::Acquire) > 0
            && ::threads::now().duration_since(began) < STAND_BACK_MAX
        {
            ::threads::yield_now();
        }
    }

    /// The machine, in about the order in which threads want it.
    fn enter(&self) -> MutexGuard<'_, State<M>> {
        let _entrance = lock(&self.entrance);
        lock(&self.state)
    }

    fn with_state(&self, act: impl FnOnce(&mut State<M>, Moment, &mut Vec<M::Output>)) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let mut state = self.enter();
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        let mut out = Vec::new();
        act(&mut state, self.moment(), &mut out);
        self.emit(&mut state, out);
        drop(state);
        self.empty_inbox();
    }

    fn take_in(&self, news: News<M::Event>) {
        lock(&self.inbox).push_back(news);
        self.empty_inbox();
    }

    /// Takes in what came meanwhile. The thread that finds the machine held leaves it to its
    /// holder, who comes here next.
    fn empty_inbox(&self) {
        while !lock(&self.inbox).is_empty() {
            let Ok(mut state) = self.state.try_lock() else {
                return;
            };
            let (news, mut out) = (std::mem::take(&mut *lock(&self.inbox)), Vec::new());
            let (moment, machine) = (self.moment(), &mut state.machine);
            for news in news {
                match news {
                    News::Answered(client, id, answer) => {
                        machine.answered(moment, client, id, &answer, &mut out);
                    }
                    News::Event(event) => machine.hear(moment, event, &mut out),
                }
            }
            self.emit(&mut state, out);
        }
    }

    fn emit(&self, state: &mut State<M>, mut out: Vec<M::Output>) {
        // What is durable is known before the replies that say so leave.
        self.last_committed.set(state.machine.committed());
        while !out.is_empty() {
            let mut more = Vec::new();
            for output in out {
                self.apply(state, M::effect(output), &mut more);
            }
            self.release_called_back(state, &mut more);
            out = more;
        }
        self.set_timer(state);
    }

    fn apply(
        &self,
        state: &mut State<M>,
        effect: Effect<M::Answer, M::Chore>,
        more: &mut Vec<M::Output>,
    ) {
        match effect {
            Effect::Answer {
                tag,
                answer,
                transno,
            } => {
                let bytes = M::answer_bytes(&answer);
                if let Some(frame) = state.frames.answer(tag, (answer, bytes), transno) {
                    self.charge(state, &frame);
                    frame.send::<M>();
                }
            }
            Effect::CallBack {
                client,
                id,
                message,
            } => {
                if state.scheduler.holds_of(client) {
                    state.called_back.push(client);
                }
                self.call_back(state, client, id, message);
            }
            // Whom it evicts now would not be durable.
            Effect::Evict { .. } if state.stopped.is_some() => {}
            Effect::Evict { client } => {
                tracing::warn!(%client, "evicted: it did not do in time what others wait for");
                if let Some(session) = state.sessions.remove(&client) {
                    session.evict();
                }
                self.end_client(state, (client, Departure::GivenUp), more);
            }
            Effect::Stop { reason } => state.stop(reason),
            Effect::Chore(chore) => (self.do_chore)(&self.strong(), chore),
        }
    }

    fn call_back(&self, state: &State<M>, client: ClientId, id: u64, message: Message) {
        // Without a session its locks are about to go, and the answer with them.
        let Some(session) = state.sessions.get(&client) else {
            return;
        };
        let serving = self.myself.clone();
        let on_reply = move |answer: Result<Message, Disrupted>| {
            // No answer: the client's end is told by other ways.
            if let (Some(serving), Ok(answer)) = (serving.upgrade(), answer) {
                serving.take_in(News::Answered(client, id, answer));
            }
        };
        session.callback(message, Box::new(on_reply));
    }

    fn end_client(
        &self,
        state: &mut State<M>,
        (client, how): (ClientId, Departure),
        out: &mut Vec<M::Output>,
    ) {
        state.frames.forget(client);
        for arrived in state.scheduler.forget(self.clock.tick(), client) {
            arrived.responder.reply(ReplyBatch::default());
        }
        state.machine.end_session(self.moment(), (client, how), out);
    }

    fn run_ticks(&self) {
        let mut next_tick = ::threads::now() + TICK;
        let mut timer = lock(&self.timer);
        while !timer.ending {
            let now = ::threads::now();
            let until = timer.due.map_or(next_tick, |due| due.min(next_tick));
            if now < until {
                timer = wait_until(&self.wake, timer, Some(until));
                continue;
            }
            timer.due = None;
            drop(timer);
            self.with_state(|state, moment, out| {
                // Nothing that a target which stops decides would be durable.
                if state.stopped.is_some() {
                    return;
                }
                if now >= next_tick {
                    state.machine.tick(moment, out);
                }
                state.run_due(moment, out);
            });
            if now >= next_tick {
                next_tick = ::threads::now() + TICK;
            }
            timer = lock(&self.timer);
        }
    }

    /// Brings a frame to the machine, and returns when all of its requests were begun.
    fn bring(&self, client: ClientId, frame: Frame) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        self.line.bring(client, frame, |frame| self.turn(frame));
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }

    /// Gives a session its turn, with a part of a frame: what is left of that.
    fn turn(&self, frame: Frame) -> Option<Frame> {
        let mut rest = None;
        self.with_state(|state, moment, out| rest = state.run_part(moment, frame, out));
        rest
    }
}

impl<M: Machine> Recovering for Serving<M> {
    fn report(&self) -> Report {
        self.enter().machine.recovery(self.clock.tick())
    }

    fn end(&self) {
        self.with(|machine, moment, out| machine.give_up_waiting(moment, out));
    }

    fn stopped(&self) -> Option<String> {
        Serving::stopped(self)
    }

    fn kept(&self) -> (usize, usize) {
        let state = self.enter();
        let kept = state.sessions.values().map(|session| session.kept());
        kept.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    fn evict(&self, client: ClientUuid) -> bool {
        let mut was_here = false;
        self.with_state(|state, _, out| {
            let found = state.sessions.iter();
            let mut found = found.filter(|(_, session)| session.peer().uuid == client);
            let Some(id) = found.next().map(|(id, _)| *id) else {
                return;
            };
            was_here = true;
            tracing::warn!(client = %id, uuid = %client, "evicted by hand");
            if let Some(session) = state.sessions.remove(&id) {
                session.evict();
            }
            self.end_client(state, (id, Departure::GivenUp), out);
        });
        was_here
    }
}

/// What the server of connections calls.
struct Served<M: Machine>(Arc<Serving<M>>);

impl<M: Machine> Service for Served<M> {
    fn connected(&self, session: Arc<Connected>) -> Result<(), Unwelcome> {
        let mut state = self.0.enter();
        state.still_serves()?;
        let connected = state.machine.connected(session.client(), session.peer());
        state.or_stop(connected)?;
        state.sessions.insert(session.client(), session);
        Ok(())
    }

    fn request(
        &self,
        _session: &Arc<Connected>,
        _xid: Xid,
        resent: bool,
        batch: Batch,
        responder: Responder,
    ) {
        if self.0.is_stopped.load(Ordering::Acquire) {
            return responder.leave();
        }
        (self.0.foresee)(&batch);
        let client = responder.session().client();
        let arrived = Arrived {
            responder,
            batch,
            resent,
        };
        self.0.bring(client, Frame::Arrived(arrived));
    }

    fn disconnected(&self, client: ClientId) {
        tracing::debug!(%client, "disconnected; its locks stay");
    }

    fn succeeded(&self, session: Arc<Connected>) {
        let client = session.client();
        self.0.with_state(|state, moment, out| {
            if !state.sessions.contains_key(&client) {
                // It was evicted meanwhile: the process hears of it when it comes again.
                return session.evict();
            }
            state.sessions.insert(client, session);
            state.frames.forget(client);
            for arrived in state.scheduler.forget(moment.now, client) {
                arrived.responder.reply(ReplyBatch::default());
            }
            state.machine.succeeded(moment, client, out);
        });
    }

    fn ready(&self, session: &Arc<Connected>) {
        self.0.with_state(|state, moment, out| {
            if state.is_here(session) {
                state.machine.ready(moment, session.client(), out);
            }
        });
    }

    fn survived(&self, epoch: BootEpoch) -> Transno {
        self.0.enter().machine.survived(epoch)
    }

    fn gave_up(&self, client: ClientUuid) -> Result<bool, Unwelcome> {
        let mut state = self.0.enter();
        let gave_up = state.machine.gave_up(client);
        state.or_stop(gave_up)
    }

    fn is_giving_up(&self, client: ClientUuid) -> bool {
        self.0.enter().machine.is_giving_up(client)
    }

    fn wait_to_give_up(&self, client: ClientUuid) -> Result<(), Unwelcome> {
        loop {
            if lock(&self.0.timer).ending {
                return Err(Unwelcome::BrokenOff("the target ends".into()));
            }
            let state = self.0.enter();
            state.still_serves()?;
            if !state.machine.is_giving_up(client) {
                return Ok(());
            }
            drop(state);
            ::threads::sleep(DURABLE_TURN);
        }
    }

    fn lost_changes(&self, reason: &str) {
        self.0.enter().stop(reason.to_owned());
    }

    fn expired(&self, client: ClientId, how: Departure) {
        self.0.with_state(|state, _, out| {
            state.sessions.remove(&client);
            if state.stopped.is_some() {
                // It cannot come back to this boot, and is waited for by the next.
                return;
            }
            self.0.end_client(state, (client, how), out);
        });
    }
}
