//! The target on a network: a thin rim that decodes requests, hands them to the core one at a
//! time, and sends what comes out in that order.
//!
//! The sub-requests of a frame start in their order, none waiting for the one before to be
//! answered; the frame is answered when all are. A client that needs one to be done before the
//! next starts sends two frames.

mod batches;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use base::limits::BULK_BYTES_MAX;
use base::{ClientId, Clock, Disrupted, FsError, Transno, Xid};
use layout::ObjectId;
use rpc::{Batch, Connected, LastCommitted, Message, Refusal, Responder, Service};
use wire::opcode;
use wire::ost::{Callback, CallbackReply, Request};

use crate::durability::SyncTicket;
use crate::oss::{Call, Oss};
use crate::outbox::{Outbox, Output};
use crate::syncer::{SyncWork, Syncer};

use batches::Batches;

/// Objects removed between two looks at the core.
const REMOVALS_AT_ONCE: usize = 256;
/// How often the core is told what time it is.
const TICK: Duration = Duration::from_millis(100);

/// A served target. [`OstServer::stop`] makes everything durable.
pub struct OstServer {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Inner {
    state: Mutex<State>,
    /// Answers to callbacks that came while the state was held, perhaps by the very thread that
    /// they came on.
    inbox: Mutex<VecDeque<(ClientId, u64, CallbackReply)>>,
    chores: Mutex<Chores>,
    /// There is a chore, or the end has come.
    wake: Condvar,
    syncer: Syncer,
    last_committed: Arc<LastCommitted>,
    clock: Arc<dyn Clock>,
    /// For answers to callbacks, which may come when all is over.
    myself: Weak<Inner>,
}

struct State {
    oss: Oss,
    sessions: HashMap<ClientId, Arc<Connected>>,
    batches: Batches,
    stopped: Option<String>,
}

/// What takes its time, for threads of its own.
#[derive(Default)]
struct Chores {
    sync: Option<(SyncTicket, SyncWork)>,
    /// Objects to remove, oldest first. Bounded by the core.
    removals: VecDeque<ObjectId>,
    ending: bool,
}

impl OstServer {
    /// Starts the threads around `oss`, whose modifications `syncer` makes durable.
    /// `last_committed` is the one that the target is served with.
    pub fn start(
        oss: Oss,
        syncer: Syncer,
        last_committed: Arc<LastCommitted>,
        clock: Arc<dyn Clock>,
    ) -> io::Result<OstServer> {
        last_committed.set(oss.committed());
        let inner = Arc::new_cyclic(|myself| Inner {
            myself: myself.clone(),
            state: Mutex::new(State {
                oss,
                sessions: HashMap::new(),
                batches: Batches::default(),
                stopped: None,
            }),
            inbox: Mutex::default(),
            chores: Mutex::default(),
            wake: Condvar::new(),
            syncer,
            last_committed,
            clock,
        });
        let server = OstServer {
            inner,
            threads: Mutex::default(),
        };
        server.spawn("ost-sync", Inner::run_syncs)?;
        server.spawn("ost-remove", Inner::run_removals)?;
        server.spawn("ost-tick", Inner::run_ticks)?;
        Ok(server)
    }

    fn spawn(&self, name: &str, run: fn(&Inner)) -> io::Result<()> {
        let inner = self.inner.clone();
        let thread = Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&inner))?;
        lock(&self.threads).push(thread);
        Ok(())
    }

    /// What to hand to [`rpc::ServedTarget`].
    pub fn service(&self) -> Arc<dyn Service> {
        Arc::new(OstService(self.inner.clone()))
    }

    /// Why the target no longer serves, if it does not.
    pub fn stopped(&self) -> Option<String> {
        lock(&self.inner.state).stopped.clone()
    }

    /// Ends the threads after a last sync of everything. Call it when no request comes any more.
    pub fn stop(&self) {
        if lock(&self.threads).is_empty() {
            return;
        }
        self.inner.with_state(|inner, state, out| {
            state.oss.sync_now(inner.clock.tick(), out);
        });
        lock(&self.inner.chores).ending = true;
        self.inner.wake.notify_all();
        for thread in lock(&self.threads).drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the target panicked");
            }
        }
    }
}

impl Drop for OstServer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Inner {
    /// Runs `act` on the core and does what comes out, before anybody else's turn.
    fn with_state(&self, act: impl FnOnce(&Inner, &mut State, &mut Outbox)) {
        let mut state = lock(&self.state);
        let mut out = Outbox::new();
        act(self, &mut state, &mut out);
        self.emit(&mut state, out);
        drop(state);
        self.empty_inbox();
    }

    /// Takes in the answers that came meanwhile. Whoever finds the state held leaves them to its
    /// holder, who comes here next.
    fn empty_inbox(&self) {
        while !lock(&self.inbox).is_empty() {
            let Ok(mut state) = self.state.try_lock() else {
                return;
            };
            let (answers, mut out) = (std::mem::take(&mut *lock(&self.inbox)), Outbox::new());
            for (client, id, reply) in answers {
                state
                    .oss
                    .callback_reply(self.clock.tick(), client, id, reply, &mut out);
            }
            self.emit(&mut state, out);
        }
    }

    fn emit(&self, state: &mut State, out: Outbox) {
        // What is durable is known before the replies that say so leave.
        self.last_committed.set(state.oss.committed());
        for output in out {
            match output {
                Output::Reply {
                    tag,
                    result,
                    transno,
                    ..
                } => {
                    state.batches.answer(tag, result, transno);
                }
                Output::Callback {
                    client,
                    id,
                    callback,
                } => {
                    self.call_back(state, client, id, &callback);
                }
                Output::Evict { client } => {
                    tracing::warn!(%client, "evicted: a callback was not answered in time");
                    state.batches.forget(client);
                    if let Some(session) = state.sessions.remove(&client) {
                        session.evict();
                    }
                }
                Output::SyncWanted { ticket, work } => {
                    lock(&self.chores).sync = Some((ticket, work));
                    self.wake.notify_all();
                }
                Output::RemoveWanted { objects } => {
                    lock(&self.chores).removals.extend(objects);
                    self.wake.notify_all();
                }
                Output::Stop { reason } => {
                    tracing::error!(reason, "the target stops");
                    state.stopped = Some(reason);
                }
            }
        }
    }

    fn call_back(&self, state: &State, client: ClientId, id: u64, callback: &Callback) {
        // Without a session its locks are about to go, and the answer with them.
        let Some(session) = state.sessions.get(&client) else {
            return;
        };
        let message = Message {
            opcode: opcode::OST_CALLBACK,
            body: wire::encode(callback),
        };
        let inner = self.myself.clone();
        let on_reply = move |answer: Result<Message, Disrupted>| {
            // No answer: the client's end is told by other ways.
            if let (Some(inner), Ok(message)) = (inner.upgrade(), answer) {
                inner.take_answer(client, id, &message);
            }
        };
        session.callback(message, Box::new(on_reply));
    }

    fn take_answer(&self, client: ClientId, id: u64, message: &Message) {
        let reply = wire::decode(&message.body).unwrap_or_else(|error| {
            tracing::warn!(%client, %error, "an answer to a callback makes no sense");
            CallbackReply::Done
        });
        lock(&self.inbox).push_back((client, id, reply));
        self.empty_inbox();
    }

    /// Waits for a chore that `take` finds. None: the end has come, and there is no more.
    fn next_chore<T>(&self, take: impl Fn(&mut Chores) -> Option<T>) -> Option<T> {
        let mut chores = lock(&self.chores);
        loop {
            if let Some(chore) = take(&mut chores) {
                return Some(chore);
            }
            if chores.ending {
                return None;
            }
            chores = self
                .wake
                .wait(chores)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn run_syncs(&self) {
        while let Some((ticket, work)) = self.next_chore(|chores| chores.sync.take()) {
            let result = self.syncer.run(&work);
            self.with_state(|inner, state, out| match result {
                Ok(()) => state.oss.synced(inner.clock.tick(), ticket, out),
                Err(error) => state.oss.sync_failed(&error, out),
            });
        }
    }

    fn run_removals(&self) {
        let some = |chores: &mut Chores| -> Option<Vec<ObjectId>> {
            // What is left at the end is done at the next start.
            let count = if chores.ending {
                0
            } else {
                chores.removals.len().min(REMOVALS_AT_ONCE)
            };
            (count > 0).then(|| chores.removals.drain(..count).collect())
        };
        while let Some(objects) = self.next_chore(some) {
            let result = self.syncer.remove(&objects);
            self.with_state(|inner, state, out| {
                state.oss.removed(inner.clock.tick(), &objects, result, out);
            });
        }
    }

    fn run_ticks(&self) {
        let mut chores = lock(&self.chores);
        while !chores.ending {
            let waited = self.wake.wait_timeout(chores, TICK);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            self.with_state(|inner, state, out| {
                state.oss.tick(inner.clock.tick(), inner.clock.now(), out);
            });
            chores = lock(&self.chores);
        }
    }

    fn run_batch(&self, client: ClientId, batch: &Batch, responder: Responder) {
        self.with_state(|inner, state, out| {
            if !state.sessions.contains_key(&client) {
                // It went while its request was on the way; nothing may come into being for it.
                return responder.reply(rpc::ReplyBatch::default());
            }
            let (now, wall) = (inner.clock.tick(), inner.clock.now());
            let tags = state.batches.begin(responder, batch.messages.len());
            let mut room = BULK_BYTES_MAX;
            for (tag, message) in tags.zip(&batch.messages) {
                let before = out.len();
                match request_in(message, room) {
                    Ok(request) => {
                        let call = Call {
                            client,
                            tag,
                            request,
                            bulk: &batch.bulk,
                        };
                        state.oss.handle(now, wall, call, out);
                    }
                    Err(error) => {
                        let transno = Transno(0);
                        out.push(Output::Reply {
                            client,
                            tag,
                            result: Err(error),
                            transno,
                        });
                    }
                }
                room = room.saturating_sub(out[before..].iter().map(data_bytes).sum());
            }
        });
    }
}

/// What rpc calls.
struct OstService(Arc<Inner>);

impl Service for OstService {
    fn connected(&self, session: Arc<Connected>) -> Result<(), Refusal> {
        lock(&self.0.state)
            .sessions
            .insert(session.client(), session);
        Ok(())
    }

    fn request(
        &self,
        session: &Arc<Connected>,
        _xid: Xid,
        _resent: bool,
        batch: Batch,
        responder: Responder,
    ) {
        self.0.run_batch(session.client(), &batch, responder);
    }

    fn disconnected(&self, client: ClientId) {
        tracing::debug!(%client, "disconnected; its locks stay");
    }

    fn expired(&self, client: ClientId) {
        self.0.with_state(|inner, state, out| {
            state.sessions.remove(&client);
            state.batches.forget(client);
            state.oss.evict(inner.clock.tick(), client, out);
        });
    }
}

/// The request in a sub-message. A read is not even begun where the frame's other reads have used
/// up its `room`, in bytes: the client asks again.
fn request_in(message: &Message, room: usize) -> Result<Request, FsError> {
    if message.opcode != opcode::OST {
        return Err(FsError::NotSupported);
    }
    let request = wire::decode(&message.body).map_err(|error| {
        tracing::warn!(%error, "a request makes no sense");
        FsError::Invalid
    })?;
    match request {
        Request::Read { .. } if room == 0 => Err(FsError::TryAgain),
        request => Ok(request),
    }
}

/// Bytes of file data that an output holds.
fn data_bytes(output: &Output) -> usize {
    match output {
        Output::Reply {
            result: Ok(answer), ..
        } => answer.data.len(),
        _ => 0,
    }
}

/// The state is changed only by code that does not panic half-way on any input.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
