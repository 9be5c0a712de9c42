//! The target on a network: a thin rim that decodes requests, hands them to the core one at a
//! time, and sends what comes out in that order.

mod batches;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use base::{ClientId, Clock, Disrupted, FsError, TargetIndex, Transno, Xid};
use layout::ObjectId;
use rpc::{Batch, Connected, LastCommitted, Message, Peer, Refusal, Responder, Service, Urgency};
use storage::{Kv, StorageError, Ticket};
use wire::mdt::{Callback, CallbackReply, Request};
use wire::{opcode, ost};

use crate::core::Mds;
use crate::event::{Call, Output};
use crate::ops::Rules;

use batches::Batches;

/// How often the core is told what time it is.
const TICK: Duration = Duration::from_millis(100);

/// A served target. [`MdtServer::stop`] makes everything durable.
pub struct MdtServer {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What the core hears beside requests.
enum Event {
    Answered(ClientId, u64, CallbackReply),
    Durable(Ticket),
    StoreFailed(StorageError),
    Destroyed(TargetIndex, Vec<ObjectId>),
    DestroyFailed(TargetIndex),
}

struct Inner {
    state: Mutex<State>,
    /// Events that came while the state was held, perhaps by the very thread they came on.
    inbox: Mutex<VecDeque<Event>>,
    /// The end has come.
    ending: Mutex<bool>,
    wake: Condvar,
    kv: Arc<Kv>,
    last_committed: Arc<LastCommitted>,
    clock: Arc<dyn Clock>,
    /// For answers that may come when all is over.
    myself: Weak<Inner>,
}

struct State {
    mds: Mds,
    sessions: HashMap<ClientId, Arc<Connected>>,
    batches: Batches,
    osts: HashMap<TargetIndex, Peer>,
    stopped: Option<String>,
}

impl MdtServer {
    /// Opens the target in `kv` and starts the threads around it. `last_committed` is the one that
    /// the target is served with.
    pub fn start(
        kv: Arc<Kv>,
        last_committed: Arc<LastCommitted>,
        clock: Arc<dyn Clock>,
    ) -> Result<MdtServer, StorageError> {
        let mds = Mds::open(kv.clone(), Rules::default(), clock.tick())?;
        last_committed.set(mds.last_committed());
        let inner = Arc::new_cyclic(|myself: &Weak<Inner>| Inner {
            state: Mutex::new(State {
                mds,
                sessions: HashMap::new(),
                batches: Batches::default(),
                osts: HashMap::new(),
                stopped: None,
            }),
            inbox: Mutex::default(),
            ending: Mutex::default(),
            wake: Condvar::new(),
            kv: kv.clone(),
            last_committed,
            clock,
            myself: myself.clone(),
        });
        let told = Arc::downgrade(&inner);
        kv.on_durable(move |durable| {
            let Some(inner) = told.upgrade() else { return };
            inner.hear(match durable {
                Ok(ticket) => Event::Durable(*ticket),
                Err(cause) => Event::StoreFailed(cause.clone()),
            });
        });
        let server = MdtServer {
            inner: inner.clone(),
            threads: Mutex::default(),
        };
        let ticking = Builder::new()
            .name("mdt-tick".to_owned())
            .spawn(move || inner.run_ticks());
        match ticking {
            Ok(thread) => lock(&server.threads).push(thread),
            Err(error) => return Err(no_thread(&error)),
        }
        Ok(server)
    }

    /// What to hand to [`rpc::ServedTarget`].
    pub fn service(&self) -> Arc<dyn Service> {
        Arc::new(MdtService(self.inner.clone()))
    }

    /// The OSTs of the file system, and how to reach each.
    pub fn set_osts(&self, osts: Vec<TargetIndex>, peers: Vec<(TargetIndex, Peer)>) {
        let mut state = lock(&self.inner.state);
        state.mds.set_osts(osts);
        state.osts = peers.into_iter().collect();
    }

    /// Why the target no longer serves, if it does not.
    pub fn stopped(&self) -> Option<String> {
        lock(&self.inner.state).stopped.clone()
    }

    /// Ends the threads and makes everything durable. Call it when no request comes any more.
    pub fn stop(&self) {
        *lock(&self.inner.ending) = true;
        self.inner.wake.notify_all();
        for thread in lock(&self.threads).drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the target panicked");
            }
        }
        let peers = std::mem::take(&mut lock(&self.inner.state).osts);
        peers.values().for_each(Peer::close);
        if let Err(error) = self.inner.kv.flush_once() {
            tracing::error!(%error, "the last changes could not be made durable");
        }
    }
}

impl Drop for MdtServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn no_thread(error: &io::Error) -> StorageError {
    StorageError::refused("MDT", format!("a thread could not be started: {error}"))
}

impl Inner {
    /// Runs `act` on the core and does what comes out, before anybody else's turn.
    fn with_state(&self, act: impl FnOnce(&Inner, &mut State, &mut Vec<Output>)) {
        let mut state = lock(&self.state);
        let mut out = Vec::new();
        act(self, &mut state, &mut out);
        self.emit(&mut state, out);
        drop(state);
        self.empty_inbox();
    }

    /// An event comes; whoever holds the state takes it in when done.
    fn hear(&self, event: Event) {
        lock(&self.inbox).push_back(event);
        self.empty_inbox();
    }

    fn empty_inbox(&self) {
        while !lock(&self.inbox).is_empty() {
            let Ok(mut state) = self.state.try_lock() else {
                return;
            };
            let (events, mut out) = (std::mem::take(&mut *lock(&self.inbox)), Vec::new());
            for event in events {
                self.take_event(&mut state, event, &mut out);
            }
            self.emit(&mut state, out);
        }
    }

    fn take_event(&self, state: &mut State, event: Event, out: &mut Vec<Output>) {
        let (now, wall) = (self.clock.tick(), self.clock.now());
        match event {
            Event::Answered(client, id, reply) => {
                state.mds.callback_reply(now, wall, client, id, reply, out);
            }
            Event::Durable(ticket) => state.mds.durable(now, wall, ticket, out),
            Event::StoreFailed(cause) => state.mds.store_failed(cause, out),
            Event::Destroyed(ost, objects) => state.mds.destroyed(now, wall, ost, &objects, out),
            Event::DestroyFailed(ost) => state.mds.destroy_failed(now, ost),
        }
    }

    fn emit(&self, state: &mut State, out: Vec<Output>) {
        // What is durable is known before the replies that say so leave.
        self.last_committed.set(state.mds.last_committed());
        let mut more = Vec::new();
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
                    if let Some(session) = state.sessions.remove(&client) {
                        session.evict();
                    }
                    self.end_client(state, client, &mut more);
                }
                Output::Destroy { ost, objects } => self.destroy(state, ost, objects),
                Output::Halt(halted) => {
                    let reason = halted.0.to_string();
                    tracing::error!(reason, "the target stops");
                    state.stopped = Some(reason);
                }
            }
        }
        if !more.is_empty() {
            self.emit(state, more);
        }
    }

    fn end_client(&self, state: &mut State, client: ClientId, out: &mut Vec<Output>) {
        state.batches.forget(client);
        let (now, wall) = (self.clock.tick(), self.clock.now());
        state.mds.evict(now, wall, client, out);
    }

    fn call_back(&self, state: &State, client: ClientId, id: u64, callback: &Callback) {
        // Without a session its locks are about to go, and the answer with them.
        let Some(session) = state.sessions.get(&client) else {
            return;
        };
        let body = wire::encode(callback);
        let inner = self.myself.clone();
        let on_reply = move |answer: Result<Message, Disrupted>| {
            // No answer: the client's end is told by other ways.
            if let (Some(inner), Ok(message)) = (inner.upgrade(), answer) {
                let reply = wire::decode(&message.body).unwrap_or(CallbackReply::Done);
                inner.hear(Event::Answered(client, id, reply));
            }
        };
        session.callback(
            Message {
                opcode: opcode::MDT_CALLBACK,
                body,
            },
            Box::new(on_reply),
        );
    }

    fn destroy(&self, state: &State, ost: TargetIndex, objects: Vec<(ObjectId, u64)>) {
        let Some(peer) = state.osts.get(&ost) else {
            return lock(&self.inbox).push_back(Event::DestroyFailed(ost));
        };
        let body = wire::encode(&ost::Request::Destroy {
            objects: objects.clone(),
        });
        let inner = self.myself.clone();
        peer.call_then(
            Batch::of(opcode::OST, body),
            Urgency::Ordinary,
            move |answer: rpc::CallResult| {
                let Some(inner) = inner.upgrade() else { return };
                let done = answer
                    .ok()
                    .and_then(|answer| answer.replies.first().map(|reply| reply.status))
                    .is_some_and(|status| status == 0);
                let objects = objects.into_iter().map(|(object, _)| object).collect();
                inner.hear(match done {
                    true => Event::Destroyed(ost, objects),
                    false => Event::DestroyFailed(ost),
                });
            },
        );
    }

    fn run_ticks(&self) {
        let mut ending = lock(&self.ending);
        while !*ending {
            let waited = self.wake.wait_timeout(ending, TICK);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            self.with_state(|inner, state, out| {
                state.mds.tick(inner.clock.tick(), inner.clock.now(), out);
            });
            ending = lock(&self.ending);
        }
    }

    fn run_batch(&self, client: ClientId, batch: &Batch, responder: Responder) {
        self.with_state(|inner, state, out| {
            if !state.sessions.contains_key(&client) {
                // It went while its request was on the way; nothing may come into being for it.
                return responder.reply(rpc::ReplyBatch::default());
            }
            let (now, wall) = (inner.clock.tick(), inner.clock.now());
            let (slot, xid) = (responder.slot(), responder.xid());
            let tags = state.batches.begin(responder, batch.messages.len());
            for (index, (tag, message)) in tags.zip(&batch.messages).enumerate() {
                let call = Call {
                    client,
                    tag,
                    slot,
                    xid,
                    index: index as u16,
                };
                match request_in(message) {
                    Ok(request) => state.mds.handle(now, wall, call, request, out),
                    Err(error) => {
                        let (result, transno) = (Err(error), Transno(0));
                        out.push(Output::Reply {
                            client,
                            tag,
                            result,
                            transno,
                        });
                    }
                }
            }
        });
    }
}

/// What rpc calls.
struct MdtService(Arc<Inner>);

impl Service for MdtService {
    fn connected(&self, session: Arc<Connected>) -> Result<(), Refusal> {
        let mut state = lock(&self.0.state);
        state.mds.connect(session.client(), session.peer().uuid.0);
        state.sessions.insert(session.client(), session);
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
            inner.end_client(state, client, out);
        });
    }
}

fn request_in(message: &Message) -> Result<Request, FsError> {
    if message.opcode != opcode::MDT {
        return Err(FsError::NotSupported);
    }
    wire::decode(&message.body).map_err(|error| {
        tracing::warn!(%error, "a request makes no sense");
        FsError::Invalid
    })
}

/// The state is changed only by code that does not panic half-way on any input.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
