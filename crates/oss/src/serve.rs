//! An OST on a network: requests are decoded and handed to the core, its answers are encoded. Syncs, removals
//! and reads of bytes that are not in memory run on threads of their own.

mod foreseen;
mod packed;
mod reads;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use threads::{Builder, JoinHandle};
use threads::{Condvar, Mutex};

use base::limits::BULK_BYTES_MAX;
use base::{ClientId, Clock, FsError, Tick, Transno};
use layout::ObjectId;
use rpc::scheduler::{Nature, Vocabulary};
use rpc::serving::{Arrival, Effect, Machine, Moment, Recovering, Scheduling, Serving};
use rpc::window::Report;
use rpc::{Batch, ClientUuid, Departure, LastCommitted, Message, PeerInfo, ReplyBatch, Service};
use storage::StorageError;
use wire::opcode;
use wire::ost::{CallbackReply, Request};

use crate::durability::SyncTicket;
use crate::oss::Oss;
use crate::outbox::{Answer, Outbox, Output};
use crate::step::Call;
use crate::syncer::Syncer;
use crate::work::{ListWork, SyncWork};
use reads::{Reads, WantedRead, lock};

/// Threads that read: while some wait for the disk, others send.
const READERS: usize = 4;
/// How far removals stand back behind everything else.
const REMOVAL_NICE: i32 = 10;
/// The wait between two looks for what was written and then left alone.
const SETTLING_PAUSE: Duration = Duration::from_secs(5);
/// Objects removed between two looks at the core.
const REMOVALS_AT_ONCE: usize = 256;

/// A served target. [`OstServer::stop`] makes everything durable.
pub struct OstServer {
    serving: Arc<Serving<Oss>>,
    chores: Arc<Chores>,
    syncer: Syncer,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What the core hears beside requests.
pub enum Event {
    /// A sync has ended.
    Synced(SyncTicket, Result<(), StorageError>),
    /// The bytes of these objects were removed, or not.
    Removed(Vec<ObjectId>, Result<(), StorageError>),
    /// The store below failed to read.
    Failed(StorageError),
}

/// What takes its time.
pub enum Chore {
    /// Makes modifications durable.
    Sync(SyncTicket, SyncWork),
    /// Removes the bytes of objects.
    Remove(Vec<ObjectId>),
    /// Reads.
    Read(WantedRead),
    /// Looks for objects that have no record.
    List(u64, ListWork),
}

/// Chores that wait for their threads.
#[derive(Default)]
struct Chores {
    queue: Mutex<Queue>,
    /// There is a chore, or the end has come.
    wake: Condvar,
    reads: Reads,
}

#[derive(Default)]
struct Queue {
    sync: Option<(SyncTicket, SyncWork)>,
    /// Objects to remove, oldest first. Bounded by the core.
    removals: VecDeque<ObjectId>,
    /// Lists, by their requests. Bounded by the slots of those who ask.
    lists: VecDeque<(u64, ListWork)>,
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
        let chores = Arc::<Chores>::default();
        let to_do = chores.clone();
        let take = move |_: &Arc<Serving<Oss>>, chore| to_do.add(chore);
        let ahead = syncer.clone();
        let foresee = move |batch: &_| foreseen::prepare(batch, &ahead);
        let (take, foresee) = (Box::new(take), Box::new(foresee));
        let serving = Serving::start(oss, "ost-tick", last_committed, clock, take, foresee)?;
        let server = OstServer {
            serving,
            chores,
            syncer: syncer.clone(),
            threads: Mutex::default(),
        };
        for number in 0..READERS {
            let reader = syncer.clone();
            server.spawn(&format!("ost-read-{number}"), move |chores, serving| {
                run_reads(chores, serving, &reader);
            })?;
        }
        let (syncs, settling, lists) = (syncer.clone(), syncer.clone(), syncer.clone());
        let removals = syncer;
        server.spawn("ost-sync", move |chores, serving| {
            run_syncs(chores, serving, &syncs);
        })?;
        // At full priority: it works only where nobody else does, and holds then what others may wait for.
        server.spawn("ost-settle", move |chores, serving| {
            run_settling(chores, serving, &settling);
        })?;
        server.spawn("ost-list", move |chores, serving| {
            give_way();
            run_lists(chores, serving, &lists);
        })?;
        server.spawn("ost-remove", move |chores, serving| {
            give_way();
            run_removals(chores, serving, &removals);
        })?;
        Ok(server)
    }

    fn spawn(
        &self,
        name: &str,
        run: impl FnOnce(&Chores, &Serving<Oss>) + Send + 'static,
    ) -> io::Result<()> {
        let (chores, serving) = (self.chores.clone(), self.serving.clone());
        let thread = Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&chores, &serving))?;
        lock(&self.threads).push(thread);
        Ok(())
    }

    /// What to hand to [`rpc::ServedTarget`].
    pub fn service(&self) -> Arc<dyn Service> {
        self.serving.service()
    }

    /// The rules by which its requests wait.
    pub fn scheduling(&self) -> Arc<dyn Scheduling> {
        self.serving.clone()
    }

    /// Whom it waits for after a restart.
    pub fn recovering(&self) -> Arc<dyn Recovering> {
        self.serving.clone()
    }

    /// Looks at the core. For tests and the simulator.
    pub fn look<T>(&self, look: impl FnOnce(&Oss) -> T) -> T {
        self.serving.look(look)
    }

    /// Why the target no longer serves, if it does not.
    pub fn stopped(&self) -> Option<String> {
        self.serving.stopped()
    }

    /// Ends the threads after a last sync of everything. Call it when no request comes any more.
    pub fn stop(&self) {
        // Of one that could not start there is no thread that would sync.
        if !lock(&self.threads).is_empty() {
            self.serving
                .with(|oss, moment, out| oss.sync_now(moment.now, out));
            lock(&self.chores.queue).ending = true;
            self.chores.wake.notify_all();
            self.chores.reads.end();
            for thread in lock(&self.threads).drain(..) {
                if thread.join().is_err() {
                    tracing::error!("a thread of the target panicked");
                }
            }
            if self.stopped().is_none()
                && let Err(error) = self.syncer.settle_all()
            {
                tracing::warn!(%error, "sums of bytes are not complete: they will be later");
            }
        }
        self.serving.stop();
    }
}

impl Drop for OstServer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Chores {
    fn add(&self, chore: Chore) {
        let mut queue = lock(&self.queue);
        match chore {
            Chore::Read(read) => return self.reads.add(read),
            Chore::Sync(ticket, work) => queue.sync = Some((ticket, work)),
            Chore::Remove(objects) => queue.removals.extend(objects),
            Chore::List(tag, work) => queue.lists.push_back((tag, work)),
        }
        self.wake.notify_all();
    }

    /// Waits for a chore that `take` finds. None: the end has come, and there is no more.
    fn next<T>(&self, take: impl Fn(&mut Queue) -> Option<T>) -> Option<T> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(chore) = take(&mut queue) {
                return Some(chore);
            }
            if queue.ending {
                return None;
            }
            queue = self
                .wake
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for so long. False: the end has come.
    fn rest(&self, pause: Duration) -> bool {
        let queue = lock(&self.queue);
        let rested = self
            .wake
            .wait_timeout_while(queue, pause, |queue| !queue.ending);
        let (queue, _) = rested.unwrap_or_else(PoisonError::into_inner);
        !queue.ending
    }
}

/// Lowers this thread's priority: nothing waits for it, while programs that remove files wait for much
/// else. It is no worse than before where that is refused. Simulated threads share the priority of one
/// thread of the machine.
fn give_way() {
    if !threads::is_simulated() {
        let _ = rustix::process::nice(REMOVAL_NICE);
    }
}

fn run_syncs(chores: &Chores, serving: &Serving<Oss>, syncer: &Syncer) {
    while let Some((ticket, work)) = chores.next(|queue| queue.sync.take()) {
        let result = syncer.run(&work);
        // Not by way of the inbox: what follows from it is queued before the next look for chores.
        let event = Event::Synced(ticket, result);
        serving.with(|oss, moment, out| oss.hear(moment, event, out));
    }
}

fn run_settling(chores: &Chores, serving: &Serving<Oss>, syncer: &Syncer) {
    while chores.rest(SETTLING_PAUSE) {
        if let Err(error) = syncer.settle() {
            serving.hear(Event::Failed(error));
        }
    }
}

fn run_removals(chores: &Chores, serving: &Serving<Oss>, syncer: &Syncer) {
    let some = |queue: &mut Queue| -> Option<Vec<ObjectId>> {
        // What is left at the end is done at the next start.
        let count = match queue.ending {
            true => 0,
            false => queue.removals.len().min(REMOVALS_AT_ONCE),
        };
        (count > 0).then(|| queue.removals.drain(..count).collect())
    };
    while let Some(objects) = chores.next(some) {
        let result = syncer.remove(&objects);
        let event = Event::Removed(objects, result);
        serving.with(|oss, moment, out| oss.hear(moment, event, out));
    }
}

fn run_lists(chores: &Chores, serving: &Serving<Oss>, syncer: &Syncer) {
    while let Some((tag, work)) = chores.next(|queue| queue.lists.pop_front()) {
        let result = syncer.list(work);
        let failed = result.as_ref().err().cloned();
        let answer = result.map_err(|error| FsError::from(&error));
        serving.answer(tag, answer, |_| ());
        if let Some(error) = failed {
            serving.hear(Event::Failed(error));
        }
    }
}

fn run_reads(chores: &Chores, serving: &Serving<Oss>, reader: &Syncer) {
    while let Some(WantedRead { client, tag, work }) = chores.reads.next() {
        if !serving.is_awaited(tag) {
            // Its session has ended, and what was known of its reads went with it.
            continue;
        }
        let result = reader.read(&work);
        let failed = result.as_ref().err().cloned();
        let answer = result.map_err(|error| FsError::from(&error));
        serving.answer(tag, answer, |oss| oss.read_done(client, &work));
        if let Some(error) = failed {
            serving.hear(Event::Failed(error));
        }
    }
}

impl Machine for Oss {
    type Output = Output;
    type Answer = Result<Answer, FsError>;
    type Event = Event;
    type Chore = Chore;

    const VOCABULARY: Vocabulary = Vocabulary {
        operations: Request::NAMES,
        uids: false,
    };
    const ANSWER_BYTES_MAX: usize = BULK_BYTES_MAX;
    const KEEPS_ANSWERS: bool = false;

    fn nature(message: &Message) -> Nature {
        match wire::decode::<Request>(&message.body) {
            Ok(request) if message.opcode == opcode::OST => Nature {
                operation: request.name(),
                uid: None,
                urgent: request.is_urgent(),
            },
            _ => Nature::NONSENSE,
        }
    }

    /// Only bytes that are to be appended are kept; others are written, or refused, at once.
    fn kept_bytes(batch: &Batch) -> usize {
        let is_append =
            |message: &Message| matches!(wire::decode(&message.body), Ok(Request::Append { .. }));
        match !batch.bulk.is_empty() && batch.messages.iter().any(is_append) {
            true => batch.bulk.len(),
            false => 0,
        }
    }

    fn answer_bytes(answer: &Result<Answer, FsError>) -> usize {
        answer.as_ref().map_or(0, |answer| answer.data.len())
    }

    /// A request is one, however many bytes it moves.
    fn extra_cost(_: &Result<Answer, FsError>) -> u64 {
        0
    }

    /// Who gives a lock back writes first what it covers, and his reads under it end first.
    fn is_awaited(&self, client: ClientId) -> bool {
        self.locks.is_called_back(client)
    }

    fn callback_deadline(&self) -> Duration {
        self.locks.callback_deadline()
    }

    fn committed(&self) -> Transno {
        Oss::committed(self)
    }

    fn connected(&mut self, client: ClientId, peer: &PeerInfo) -> Result<(), String> {
        Oss::connected(self, client, peer.uuid, peer.dies_with_this_process());
        if peer.is_server() {
            self.servers.insert(client);
        }
        Ok(())
    }

    fn succeeded(&mut self, moment: Moment, client: ClientId, out: &mut Outbox) {
        Oss::succeeded(self, moment.now, client, out);
    }

    fn ready(&mut self, moment: Moment, client: ClientId, out: &mut Outbox) {
        self.drop_left_behind(moment.now, client, out);
    }

    fn gave_up(&self, client: ClientUuid) -> Result<bool, String> {
        Oss::gave_up(self, client)
            .map_err(|error| format!("what is known of a client cannot be read: {error}"))
    }

    fn recovery(&self, now: Tick) -> Report {
        Oss::recovery(self, now)
    }

    fn give_up_waiting(&mut self, Moment { now, wall }: Moment, out: &mut Outbox) {
        Oss::give_up_waiting(self, now, wall, out);
    }

    fn requests(&mut self, moment: Moment, arrival: Arrival<'_>, out: &mut Outbox) -> usize {
        let (client, batch) = (arrival.client, arrival.batch);
        let (bulk, mut done) = (batch.bulk.joined(), 0);
        let room = arrival.room;
        let messages = (arrival.first_tag..).zip(&batch.messages);
        for (tag, message) in messages.skip(arrival.from) {
            if arrival.part.is_over(done) {
                break;
            }
            done += 1;
            let before = out.len();
            let request = request_in(message, room.answers);
            let request = request.and_then(|request| once(&mut room.data, request));
            match request.and_then(|request| self.permitted(client, request)) {
                Ok(request) => {
                    let call = Call {
                        client,
                        tag,
                        request,
                        bulk: &bulk,
                    };
                    self.handle(moment.now, moment.wall, call, out);
                }
                Err(error) => out.push(Output::Reply {
                    client,
                    tag,
                    result: Err(error),
                    transno: Transno(0),
                }),
            }
            let answered: usize = out[before..].iter().map(data_bytes).sum();
            room.answers = room.answers.saturating_sub(answered);
        }
        done
    }

    fn answered(
        &mut self,
        moment: Moment,
        client: ClientId,
        id: u64,
        answer: &Message,
        out: &mut Outbox,
    ) {
        let reply = wire::decode(&answer.body).unwrap_or_else(|error| {
            tracing::warn!(%client, %error, "an answer to a callback makes no sense");
            CallbackReply::Done
        });
        self.callback_reply(moment.now, client, id, reply, out);
    }

    fn hear(&mut self, moment: Moment, event: Event, out: &mut Outbox) {
        match event {
            Event::Synced(ticket, Ok(())) => self.synced(moment.now, ticket, out),
            Event::Synced(_, Err(error)) => self.sync_failed(&error, out),
            Event::Removed(objects, result) => self.removed(moment.now, &objects, result, out),
            Event::Failed(error) => self.failed(error, out),
        }
    }

    fn end_session(&mut self, moment: Moment, who: (ClientId, Departure), out: &mut Outbox) {
        Oss::end_session(self, moment.now, moment.wall, who, out);
    }

    fn tick(&mut self, moment: Moment, out: &mut Outbox) {
        Oss::tick(self, moment.now, moment.wall, out);
    }

    fn effect(output: Output) -> Effect<Result<Answer, FsError>, Chore> {
        match output {
            Output::Reply {
                tag,
                result,
                transno,
                ..
            } => Effect::Answer {
                tag,
                answer: result,
                transno,
            },
            Output::Callback {
                client,
                id,
                callback,
            } => Effect::CallBack {
                client,
                id,
                message: Message {
                    opcode: opcode::OST_CALLBACK,
                    body: wire::encode(&callback),
                },
            },
            Output::Evict { client } => Effect::Evict { client },
            Output::SyncWanted { ticket, work } => Effect::Chore(Chore::Sync(ticket, work)),
            Output::RemoveWanted { objects } => Effect::Chore(Chore::Remove(objects)),
            Output::ReadWanted { client, tag, work } => {
                Effect::Chore(Chore::Read(WantedRead { client, tag, work }))
            }
            Output::ListWanted { tag, work } => Effect::Chore(Chore::List(tag, work)),
            Output::Stop { reason } => Effect::Stop { reason },
        }
    }

    fn pack(answers: Vec<Result<Answer, FsError>>) -> ReplyBatch {
        packed::packed(answers)
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

/// The request, if it and those before it carry no more data than their frame.
fn once(unused: &mut usize, request: Request) -> Result<Request, FsError> {
    if let Request::Write { bulk, .. } | Request::Append { bulk, .. } = request {
        let left = unused.checked_sub(bulk.1 as usize);
        *unused = left.ok_or(FsError::Invalid)?;
    }
    Ok(request)
}

/// Bytes of file data that an output holds, or will.
fn data_bytes(output: &Output) -> usize {
    match output {
        Output::Reply {
            result: Ok(answer), ..
        } => answer.data.len(),
        Output::ReadWanted { work, .. } => work.len,
        _ => 0,
    }
}
