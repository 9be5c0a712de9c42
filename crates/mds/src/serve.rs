//! The target on a network: requests are decoded and handed to the core, what comes out is encoded;
//! OSTs are told what to destroy.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use threads::{Mutex, MutexGuard};

use base::limits::{FRAME_BYTES_MAX, PAGE_BYTES_MAX, WALK_BYTES_MAX, XATTR_TOTAL_BYTES_MAX};
use base::{BootEpoch, ClientId, Clock, FsError, TargetIndex, Tick, Transno};
use layout::ObjectId;
use rpc::scheduler::{Nature, Vocabulary};
use rpc::serving::{Arrival, Effect, Machine, Moment, Recovering, Scheduling, Serving};
use rpc::window::Report;
use rpc::{
    Address, Batch, ClientUuid, Departure, LastCommitted, Message, Peer, PeerInfo, PeerState,
    ReplyBatch, ReplyMessage, Service, Urgency,
};
use storage::{Kv, StorageError, Ticket};
use wire::mdt::{CallbackReply, Reply, Request};
use wire::ost::Watermark;
use wire::{UNCHANGED, opcode, ost};

use crate::core::Mds;
use crate::event::{Call, OstInquiry, Output};
use crate::ops::context::Rules;
use crate::walks::CHUNK_BYTES;
use crate::watermarks::Acknowledged;

/// A served target. [`MdtServer::stop`] makes everything durable.
pub struct MdtServer {
    serving: Arc<Serving<Mds>>,
    osts: Arc<Osts>,
    kv: Arc<Kv>,
}

/// How to reach each OST.
type Osts = Mutex<HashMap<TargetIndex, Peer>>;

/// What the core hears beside requests.
pub enum Event {
    /// The store has made everything up to here durable.
    Durable(Ticket),
    /// The store has failed.
    StoreFailed(StorageError),
    /// An OST has removed these objects.
    Destroyed(TargetIndex, Vec<ObjectId>),
    /// An OST has these objects, from the one on that was asked for.
    Listed {
        /// Which OST.
        ost: TargetIndex,
        /// The first that was asked for.
        from: ObjectId,
        /// What is there.
        objects: Vec<ObjectId>,
        /// From where on there may be more.
        next: Option<ObjectId>,
    },
    /// An OST was told that we had come so far, and has itself come so far.
    WatermarkHeard(TargetIndex, Acknowledged),
    /// An OST could not be reached, or refused.
    OstFailed(TargetIndex, OstInquiry),
    /// An OST was told of this change, as durable, in an earlier boot.
    Behind(TargetIndex, Transno),
}

/// What the core wants done around it.
pub enum Chore {
    /// Tell an OST.
    Destroy(Destroy),
    /// Ask an OST.
    List(List),
    /// Tell an OST, and ask it.
    Watermark(PeerReport),
    /// Let a walk go on.
    GoOn,
}

/// Objects that an OST is to remove, each with the highest open epoch that may still write it.
pub struct Destroy {
    ost: TargetIndex,
    objects: Vec<(ObjectId, u64)>,
    watermark: Watermark,
}

/// Objects of a sequence that an OST is to tell of.
pub struct List {
    ost: TargetIndex,
    from: ObjectId,
    unrecorded: bool,
    watermark: Watermark,
}

/// The watermarks of both sides, to be reported to an OST.
pub struct PeerReport {
    ost: TargetIndex,
    watermark: Watermark,
    seen: Transno,
}

impl MdtServer {
    /// Opens the target in `kv` and starts the threads around it. `last_committed` is the one that
    /// the target is served with.
    pub fn start(
        kv: Arc<Kv>,
        rules: Rules,
        last_committed: Arc<LastCommitted>,
        clock: Arc<dyn Clock>,
    ) -> Result<MdtServer, StorageError> {
        let mds = Mds::open(kv.clone(), rules, clock.tick())?;
        let osts = Arc::new(Osts::default());
        let peers = osts.clone();
        let (walks, walking) = threads::channel();
        let chore = move |serving: &Arc<Serving<Mds>>, chore| match chore {
            Chore::Destroy(objects) => destroy(serving, &peers, objects),
            Chore::List(wanted) => list(serving, &peers, wanted),
            Chore::Watermark(wanted) => report(serving, &peers, wanted),
            // The other end is there as long as the target is served.
            Chore::GoOn => drop(walks.send(())),
        };
        let (chore, nothing) = (Box::new(chore), Box::new(|_: &_| {}));
        let serving = Serving::start(mds, "mdt-tick", last_committed, clock, chore, nothing)
            .map_err(|error| no_thread(&error))?;
        start_walker(&serving, walking).map_err(|error| no_thread(&error))?;
        let told = Arc::downgrade(&serving);
        kv.on_durable(move |durable| {
            let Some(serving) = told.upgrade() else {
                return;
            };
            serving.hear(match durable {
                Ok(ticket) => Event::Durable(*ticket),
                Err(cause) => Event::StoreFailed(cause.clone()),
            });
        });
        Ok(MdtServer { serving, osts, kv })
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

    /// The OSTs of the file system, and how to reach each.
    pub fn set_osts(&self, osts: Vec<TargetIndex>, peers: Vec<(TargetIndex, Peer)>) {
        let before = std::mem::replace(&mut *lock(&self.osts), peers.into_iter().collect());
        // Ending them waits for their threads, which may be about to tell of an OST.
        drop(before);
        self.serving
            .with(|mds, Moment { now, wall }, out| mds.set_osts(now, wall, osts, out));
    }

    /// The OSTs of the file system now, and where they are. `reach` connects to one that is new.
    pub fn osts_are_at(
        &self,
        target_addresses: Vec<(TargetIndex, Vec<Address>)>,
        reach: impl Fn(TargetIndex, Vec<Address>) -> Option<Peer>,
    ) {
        let mut osts = lock(&self.osts);
        for (index, addresses) in &target_addresses {
            let known = osts.get(index);
            let moved = known.is_some_and(|peer| peer.set_addresses(addresses.clone()));
            let found = match known {
                Some(_) => None,
                None => reach(*index, addresses.clone()),
            };
            if moved {
                tracing::info!("OST{} is elsewhere now", index.0);
            }
            if let Some(peer) = found {
                tracing::info!("OST{} is new, and gets files from now on", index.0);
                osts.insert(*index, peer);
            }
        }
        // One that cannot be asked to remove objects gets none.
        let reached = target_addresses.iter().map(|(index, _)| *index);
        let reached: Vec<TargetIndex> = reached.filter(|index| osts.contains_key(index)).collect();
        drop(osts);
        self.serving.with(|mds, Moment { now, wall }, out| {
            if mds.osts() != reached {
                mds.set_osts(now, wall, reached, out);
            }
        });
    }

    /// An OST cannot be reached, or there is none.
    pub fn misses_osts(&self) -> bool {
        let osts = lock(&self.osts);
        let is_away = |peer: &Peer| peer.state() != PeerState::Connected;
        osts.is_empty() || osts.values().any(is_away)
    }

    /// Looks at the core. For tests and the simulator.
    pub fn look<T>(&self, look: impl FnOnce(&Mds) -> T) -> T {
        self.serving.look(look)
    }

    /// Why the target no longer serves, if it does not.
    pub fn stopped(&self) -> Option<String> {
        self.serving.stopped()
    }

    /// Ends the threads and makes everything durable. Call it when no request comes any more.
    pub fn stop(&self) {
        self.serving.stop();
        let peers = std::mem::take(&mut *lock(&self.osts));
        peers.values().for_each(Peer::close);
        if let Err(error) = self.kv.flush_once()
            && self.stopped().is_none()
        {
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

/// The map is changed in one step each time.
fn lock(osts: &Osts) -> MutexGuard<'_, HashMap<TargetIndex, Peer>> {
    osts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread that goes on with walks, when nobody else wants the target. It ends with it.
fn start_walker(serving: &Arc<Serving<Mds>>, walking: threads::Receiver<()>) -> io::Result<()> {
    let serving = Arc::downgrade(serving);
    let walk = move || {
        while let (Ok(()), Some(serving)) = (walking.recv(), serving.upgrade()) {
            serving.stand_back();
            serving.with(|mds, Moment { now, wall }, out| mds.go_on(now, wall, out));
        }
    };
    threads::Builder::new()
        .name("mdt-walks".into())
        .spawn(walk)?;
    Ok(())
}

fn destroy(serving: &Arc<Serving<Mds>>, osts: &Osts, destroy: Destroy) {
    let Destroy {
        ost,
        objects,
        watermark,
    } = destroy;
    let request = ost::Request::Destroy {
        objects: objects.clone(),
        watermark,
    };
    let to = (ost, OstInquiry::Destroy);
    ask(serving, osts, to, request, move |reply| match reply {
        ost::Reply::Done => {
            let objects = objects.into_iter().map(|(object, _)| object).collect();
            Some(Event::Destroyed(ost, objects))
        }
        _ => None,
    });
}

fn list(serving: &Arc<Serving<Mds>>, osts: &Osts, list: List) {
    let List {
        ost,
        from,
        unrecorded,
        watermark,
    } = list;
    let request = ost::Request::List {
        from,
        unrecorded,
        watermark,
    };
    let to = (ost, OstInquiry::List);
    ask(serving, osts, to, request, move |reply| match reply {
        ost::Reply::Objects { objects, next } => Some(Event::Listed {
            ost,
            from,
            objects,
            next,
        }),
        _ => None,
    });
}

fn report(serving: &Arc<Serving<Mds>>, osts: &Osts, report: PeerReport) {
    let PeerReport {
        ost,
        watermark,
        seen,
    } = report;
    let request = ost::Request::Watermark { watermark, seen };
    let to = (ost, OstInquiry::Watermark);
    ask(serving, osts, to, request, move |reply| match reply {
        ost::Reply::Watermark { committed } => {
            let ours = watermark.committed;
            Some(Event::WatermarkHeard(ost, Acknowledged { ours, committed }))
        }
        _ => None,
    });
}

/// Asks an OST; `heard` says what its answer is to the core. None: it is no answer to this.
fn ask(
    serving: &Arc<Serving<Mds>>,
    osts: &Osts,
    (ost, inquiry): (TargetIndex, OstInquiry),
    request: ost::Request,
    heard: impl FnOnce(ost::Reply) -> Option<Event> + Send + 'static,
) {
    let event = move |reply: Option<ost::Reply>| match reply {
        Some(ost::Reply::Ahead { committed }) => Event::Behind(ost, committed),
        Some(reply) => heard(reply).unwrap_or(Event::OstFailed(ost, inquiry)),
        None => Event::OstFailed(ost, inquiry),
    };
    let osts = lock(osts);
    let Some(peer) = osts.get(&ost) else {
        drop(osts);
        return serving.hear(event(None));
    };
    let serving = Arc::downgrade(serving);
    let then = move |answer: rpc::CallResult| {
        let Some(serving) = serving.upgrade() else {
            return;
        };
        let replies = answer.map(|answer| answer.replies).unwrap_or_default();
        let reply = replies.first();
        let done = reply.filter(|reply| wire::status_from(reply.status).is_ok());
        let told = done.and_then(|reply| wire::decode(&reply.body).ok());
        serving.hear(event(told));
    };
    let body = wire::encode(&request);
    peer.call_then(Batch::of(opcode::OST, body), Urgency::Ordinary, then);
}

impl Machine for Mds {
    type Output = Output;
    type Answer = ReplyMessage;
    type Event = Event;
    type Chore = Chore;

    const VOCABULARY: Vocabulary = Vocabulary {
        operations: Request::NAMES,
        uids: true,
    };
    const ANSWER_BYTES_MAX: usize = FRAME_BYTES_MAX;
    const KEEPS_ANSWERS: bool = true;

    fn nature(message: &Message) -> Nature {
        match wire::decode::<Request>(&message.body) {
            Ok(request) if message.opcode == opcode::MDT => Nature {
                operation: request.name(),
                uid: request.caller().map(|caller| caller.uid),
                urgent: request.is_urgent(),
            },
            _ => Nature::NONSENSE,
        }
    }

    fn kept_bytes(batch: &Batch) -> usize {
        batch
            .messages
            .iter()
            .map(|message| message.body.len())
            .sum()
    }

    fn answer_bytes(answer: &ReplyMessage) -> usize {
        answer.body.len()
    }

    /// A long answer is as much work as the short ones that would say the same.
    fn extra_cost(answer: &ReplyMessage) -> u64 {
        (answer.body.len().saturating_sub(1) / CHUNK_BYTES) as u64
    }

    /// What gives a lock of the MDT back is urgent by itself.
    fn is_awaited(&self, _: ClientId) -> bool {
        false
    }

    fn callback_deadline(&self) -> Duration {
        self.rules.callback_deadline
    }

    fn committed(&self) -> Transno {
        self.last_committed()
    }

    fn connected(&mut self, client: ClientId, peer: &PeerInfo) -> Result<(), String> {
        self.connect(client, peer.uuid.0).map_err(unreadable)?;
        if peer.was_given_up {
            self.begins_anew(client);
        }
        if peer.dies_with_this_process() {
            self.never_await(client);
        }
        Ok(())
    }

    fn requests(&mut self, moment: Moment, arrival: Arrival<'_>, out: &mut Vec<Output>) -> usize {
        if let Some(answered) = arrival.answered {
            return self.replays(moment, arrival, answered, out);
        }
        let (Moment { now, wall }, mut done) = (moment, 0);
        let messages = arrival.batch.messages.iter();
        for (index, message) in (0_u16..).zip(messages).skip(arrival.from) {
            if arrival.part.is_over(done) {
                break;
            }
            done += 1;
            let call = call_of(&arrival, index);
            match request_in(message).and_then(|request| within(&mut arrival.room.answers, request))
            {
                Ok(request) => self.handle(now, wall, call, request, out),
                Err(error) => crate::request::reply(out, call, Err(error)),
            }
        }
        done
    }

    fn succeeded(&mut self, Moment { now, wall }: Moment, client: ClientId, out: &mut Vec<Output>) {
        Mds::succeeded(self, now, wall, client, out);
    }

    fn ready(&mut self, Moment { now, wall }: Moment, client: ClientId, out: &mut Vec<Output>) {
        self.drop_left_behind(client, out);
        self.ready_again(now, wall, client, out);
    }

    fn recovery(&self, now: Tick) -> Report {
        Mds::recovery(self).report(now)
    }

    fn give_up_waiting(&mut self, Moment { now, wall }: Moment, out: &mut Vec<Output>) {
        Mds::give_up_waiting(self, now, wall, out);
    }

    fn survived(&self, epoch: BootEpoch) -> Transno {
        Mds::survived(self, epoch).unwrap_or_else(|error| {
            tracing::error!(%error, "where the lives of the target began cannot be read");
            Transno(0)
        })
    }

    fn gave_up(&self, client: ClientUuid) -> Result<bool, String> {
        Mds::gave_up(self, &client.0).map_err(unreadable)
    }

    fn is_giving_up(&self, client: ClientUuid) -> bool {
        Mds::is_giving_up(self, &client.0)
    }

    fn answered(
        &mut self,
        Moment { now, wall }: Moment,
        client: ClientId,
        id: u64,
        answer: &Message,
        out: &mut Vec<Output>,
    ) {
        let reply = wire::decode(&answer.body).unwrap_or_else(|error| {
            tracing::warn!(%client, %error, "an answer to a callback makes no sense");
            CallbackReply::Done
        });
        self.callback_reply(now, wall, client, id, reply, out);
    }

    fn hear(&mut self, Moment { now, wall }: Moment, event: Event, out: &mut Vec<Output>) {
        match event {
            Event::Durable(ticket) => self.durable(now, wall, ticket, out),
            Event::StoreFailed(cause) => self.store_failed(cause, out),
            Event::Destroyed(ost, objects) => self.destroyed(now, wall, ost, &objects, out),
            Event::Listed {
                ost,
                from,
                objects,
                next,
            } => self.listed(now, wall, (ost, from), (&objects, next), out),
            Event::WatermarkHeard(ost, told) => self.watermark_heard((now, wall), ost, told, out),
            Event::OstFailed(ost, inquiry) => self.ost_failed(now, ost, inquiry, out),
            Event::Behind(ost, committed) => self.is_behind(now, ost, committed, out),
        }
    }

    fn end_session(
        &mut self,
        Moment { now, wall }: Moment,
        (client, how): (ClientId, Departure),
        out: &mut Vec<Output>,
    ) {
        Mds::end_session(self, now, wall, (client, how), out);
    }

    fn tick(&mut self, Moment { now, wall }: Moment, out: &mut Vec<Output>) {
        Mds::tick(self, now, wall, out);
    }

    fn effect(output: Output) -> Effect<ReplyMessage, Chore> {
        match output {
            Output::Reply {
                tag,
                result,
                transno,
                ..
            } => Effect::Answer {
                tag,
                answer: reply_message(result, transno),
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
                    opcode: opcode::MDT_CALLBACK,
                    body: wire::encode(&callback),
                },
            },
            Output::Evict { client } => Effect::Evict { client },
            Output::Destroy {
                ost,
                objects,
                watermark,
            } => Effect::Chore(Chore::Destroy(Destroy {
                ost,
                objects,
                watermark,
            })),
            Output::List {
                ost,
                from,
                unrecorded,
                watermark,
            } => Effect::Chore(Chore::List(List {
                ost,
                from,
                unrecorded,
                watermark,
            })),
            Output::Watermark {
                ost,
                watermark,
                seen,
            } => Effect::Chore(Chore::Watermark(PeerReport {
                ost,
                watermark,
                seen,
            })),
            Output::GoOn => Effect::Chore(Chore::GoOn),
            Output::Halt(halted) => Effect::Stop {
                reason: halted.0.to_string(),
            },
        }
    }

    fn pack(answers: Vec<ReplyMessage>) -> ReplyBatch {
        ReplyBatch {
            replies: answers,
            ..ReplyBatch::default()
        }
    }
}

impl Mds {
    /// A frame of what was done in an earlier boot.
    fn replays(
        &mut self,
        Moment { now, wall }: Moment,
        arrival: Arrival<'_>,
        answered: &[ReplyMessage],
        out: &mut Vec<Output>,
    ) -> usize {
        let (pairs, mut done) = (arrival.batch.messages.iter().zip(answered), 0);
        for (index, (message, answer)) in (0_u16..).zip(pairs).skip(arrival.from) {
            if arrival.part.is_over(done) {
                break;
            }
            done += 1;
            let call = call_of(&arrival, index);
            let changed = answer.status == 0;
            match (request_in(message), wire::decode(&answer.body)) {
                // What changed nothing, or was refused, is not done again: it might do something by
                // now, where what others did in between has yet to be.
                (Ok(request), _) if !changed || !request.is_modification() => {
                    crate::request::reply(out, call, Ok(Reply::Done));
                }
                (Ok(request), Ok(answer)) => {
                    self.replay(now, wall, call, (request, answer), out);
                }
                (Err(error), _) => crate::request::reply(out, call, Err(error)),
                (Ok(_), Err(_)) => crate::request::reply(out, call, Err(FsError::Invalid)),
            }
        }
        done
    }
}

/// The request of a frame at that place.
fn call_of(arrival: &Arrival<'_>, index: u16) -> Call {
    Call {
        client: arrival.client,
        tag: arrival.first_tag + u64::from(index),
        slot: arrival.slot,
        xid: arrival.xid,
        index,
    }
}

fn unreadable(error: StorageError) -> String {
    format!("what is known of a client cannot be read: {error}")
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

/// The request, if its answer fits the frame beside those of the requests before it. Else the client asks
/// again, alone.
fn within(room: &mut usize, request: Request) -> Result<Request, FsError> {
    *room = room
        .checked_sub(answer_bytes_max(&request))
        .ok_or(FsError::TryAgain)?;
    Ok(request)
}

/// Bytes that the answer may take, of requests that are answered with much.
fn answer_bytes_max(request: &Request) -> usize {
    match request {
        Request::ReadDir { bytes_max, .. } => PAGE_BYTES_MAX.min(*bytes_max as usize),
        // Of pages all but the first are within what was asked for.
        Request::Walk { bytes_max, .. } => {
            PAGE_BYTES_MAX.max(WALK_BYTES_MAX.min(*bytes_max as usize))
        }
        Request::GetXattrs { .. } => XATTR_TOTAL_BYTES_MAX,
        _ => 0,
    }
}

/// The answer to a request that made the change `transno`; zero: it made none.
fn reply_message(result: Result<Reply, FsError>, transno: Transno) -> ReplyMessage {
    match result {
        Ok(reply) => ReplyMessage {
            status: if transno == Transno(0) { UNCHANGED } else { 0 },
            body: wire::encode(&reply),
        },
        Err(error) => ReplyMessage {
            status: wire::status_of(Err(error)),
            body: Vec::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    use base::{Fid, LockHandle};
    use wire::mdt::{Caller, SetAttr};

    use super::*;

    #[test]
    fn an_answer_costs_a_token_for_each_chunk_it_begins() {
        let extra = |bytes| {
            Mds::extra_cost(&ReplyMessage {
                status: 0,
                body: vec![0; bytes],
            })
        };
        assert_eq!((extra(0), extra(1), extra(64 << 10)), (0, 0, 0));
        assert_eq!((extra((64 << 10) + 1), extra(4 << 20)), (1, 63));
    }

    #[test]
    fn requests_of_a_frame_are_done_as_long_as_their_answers_fit_one() {
        let (mut room, fid) = (FRAME_BYTES_MAX, Fid(1));
        let list = Request::GetXattrs { fid };
        let mut one_more = || within(&mut room, list.clone()).is_ok();
        let done = (0..4096).filter(|_| one_more()).count();
        assert_eq!(done, FRAME_BYTES_MAX / XATTR_TOTAL_BYTES_MAX);
        assert_eq!(within(&mut room, list), Err(FsError::TryAgain));
        let small = Request::GetAttr { fid, dir: fid };
        assert!((0..4096).all(|_| within(&mut room, small.clone()).is_ok()));
    }

    #[test]
    fn a_scheduler_knows_what_is_asked_and_by_whom() {
        let request = |under| Request::SetAttr {
            fid: Fid(1),
            dir: Fid(1),
            change: SetAttr::default(),
            caller: Caller { uid: 500, gid: 7 },
            under,
        };
        let message = |opcode, under| Message {
            opcode,
            body: wire::encode(&request(LockHandle(under))),
        };
        let plain = Nature {
            operation: "setattr",
            uid: Some(500),
            urgent: false,
        };
        assert_eq!(Mds::nature(&message(opcode::MDT, 0)), plain);
        assert!(Mds::nature(&message(opcode::MDT, 9)).urgent);
        let strange = Mds::nature(&message(opcode::OST, 0));
        assert_eq!(strange, Nature::NONSENSE, "refused at once");
    }
}
