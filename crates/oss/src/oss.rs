//! The core: what comes in, what waits, what goes out.

mod events;
mod recovery;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{ClientId, FsError, LockHandle, Tick, Timestamp, Transno};
use dlm::{Input, Limits};
use layout::ObjectId;
use rpc::window::Window;
use storage::{Kv, ObjectStore, Pace, StorageError};
use wire::handshake::ClientUuid;
use wire::ost::{CallbackReply, Reply};

use crate::clients::Clients;
use crate::durability::{Durability, SyncTicket};
use crate::failure::{Failure, Outcome};
use crate::locks::Locks;
use crate::objects::Objects;
use crate::outbox::{Answer, Outbox, Output};
use crate::peer_watermark::PeerWatermark;
use crate::records::History;
use crate::recovery::{Boot, Recovery};
use crate::step::{Call, Caller, Job, Need, Step};
use crate::work::SyncWork;

#[derive(Debug)]
struct Parked {
    caller: Caller,
    job: Job,
}

/// One object storage target. Bytes are read and written only under a lock that covers them, the caller's or
/// the target's own. A crash takes nothing that `committed` covers.
pub struct Oss {
    pub(crate) objects: Objects,
    pub(crate) locks: Locks,
    pub(crate) durability: Durability<Caller>,
    /// Waiting requests, by the name the lock table has for them.
    parked: BTreeMap<u64, Parked>,
    waits: u64,
    /// Callbacks on their way whose answers the lock table waits for.
    glimpses: BTreeMap<(ClientId, u64), LockHandle>,
    callbacks: u64,
    /// The highest number that modifications of this boot may have.
    reserved: Transno,
    last_ageing: Tick,
    pub(crate) clients: Clients,
    pub(crate) watermark: PeerWatermark,
    /// Those that speak for targets.
    pub(crate) servers: BTreeSet<ClientId>,
    /// Those with a session, from other processes.
    pub(crate) clients_here: BTreeMap<ClientId, ClientUuid>,
    pub(crate) recovery: Recovery,
    /// Bytes being read outside, of each client that reads.
    pub(crate) reading: BTreeMap<ClientId, usize>,
    /// Clients whose process was replaced, and the locks of the one before.
    pub(crate) left_behind: BTreeMap<ClientId, Vec<LockHandle>>,
    stopped: bool,
}

impl Oss {
    /// The target whose bytes are in `store` and whose records are in `kv`, opened with
    /// [`crate::records::TABLES`].
    pub fn open(
        store: Arc<dyn ObjectStore>,
        kv: Arc<Kv>,
        limits: Limits,
        boot: Boot,
        pace: Arc<Pace>,
    ) -> Result<Oss, StorageError> {
        let (clients, watermark) = (Clients::new(kv.clone()), PeerWatermark::new(kv.clone()));
        let (objects, before, history) = Objects::open(store, kv)?;
        let window = Window::new(clients.awaited(boot.wall)?, boot.now.after(boot.window));
        window.announce("ost.*.recovery_status", boot.window);
        Ok(Oss {
            reserved: history.reserved,
            objects,
            locks: Locks::new(limits, boot.epoch),
            durability: Durability::new(before.committed, before.reserved, pace),
            parked: BTreeMap::new(),
            waits: 0,
            glimpses: BTreeMap::new(),
            callbacks: 0,
            last_ageing: Tick::default(),
            clients,
            watermark,
            servers: BTreeSet::new(),
            clients_here: BTreeMap::new(),
            recovery: Recovery::new(boot.epoch, window),
            reading: BTreeMap::new(),
            left_behind: BTreeMap::new(),
            stopped: false,
        })
    }

    /// Every modification up to here survives a crash.
    pub fn committed(&self) -> Transno {
        self.durability.committed()
    }

    /// Requests that wait for locks or answers.
    pub fn parked_count(&self) -> usize {
        self.parked.len()
    }

    /// Takes a request. Its reply comes now or in a later call.
    pub fn handle(&mut self, now: Tick, wall: Timestamp, call: Call<'_>, out: &mut Outbox) {
        let caller = Caller {
            client: call.client,
            tag: call.tag,
        };
        let step = match self.stopped {
            true => Err(Failure::Refused(FsError::Io)),
            false => match self.wait_for_recovery(call) {
                Ok(None) => return,
                Ok(Some(call)) => self.start(now, wall, call, out),
                Err(refused) => Err(refused.into()),
            },
        };
        self.proceed(now, caller, step, out);
        self.finish(now, out);
    }

    /// Takes a client's answer to the callback `id`.
    pub fn callback_reply(
        &mut self,
        now: Tick,
        client: ClientId,
        id: u64,
        reply: CallbackReply,
        out: &mut Outbox,
    ) {
        if let Some(handle) = self.glimpses.remove(&(client, id)) {
            let value = wire::encode(&reply);
            self.locks.tell(
                now,
                Input::GlimpseReply {
                    client,
                    handle,
                    value,
                },
            );
        }
        self.finish(now, out);
    }

    /// The sync named `ticket` is done.
    pub fn synced(&mut self, now: Tick, ticket: SyncTicket, out: &mut Outbox) {
        for caller in self.durability.synced(ticket) {
            reply(out, caller, Ok(Reply::Done.into()), Transno(0));
        }
        if let Err(failure) = self.objects.after_sync() {
            self.note_failure(&failure, out);
        }
        self.finish(now, out);
    }

    /// A sync failed: nobody knows what is durable, so the target stops.
    pub fn sync_failed(&mut self, error: &StorageError, out: &mut Outbox) {
        self.stop(format!("cannot make writes durable: {error}"), out);
    }

    /// The bytes of these objects, or some, were removed as [`Output::RemoveWanted`] asked; or that
    /// failed, and the next start tries again.
    pub fn removed(
        &mut self,
        now: Tick,
        objects: &[ObjectId],
        result: Result<(), StorageError>,
        out: &mut Outbox,
    ) {
        match result {
            Ok(()) => {
                self.objects.removed(objects);
                // So that a sync makes it final before long.
                self.modified(now, 0);
            }
            Err(error) => self.note_failure(&Failure::Storage(error), out),
        }
        self.finish(now, out);
    }

    /// The store below did not do what it was to do outside.
    pub fn failed(&mut self, error: StorageError, out: &mut Outbox) {
        self.note_failure(&Failure::Storage(error), out);
    }

    /// The target is about to end: starts a sync of all that is not durable, once the running one
    /// is done.
    pub fn sync_now(&mut self, now: Tick, out: &mut Outbox) {
        self.durability.hurry();
        self.finish(now, out);
    }

    /// Time has passed. Call at least ten times a second.
    pub fn tick(&mut self, now: Tick, wall: Timestamp, out: &mut Outbox) {
        self.locks.tell(now, Input::Tick);
        self.look_at_the_window(now, wall, out);
        if let Err(failure) = self.objects.look_at_room() {
            self.note_failure(&failure, out);
        }
        if !self.stopped && now.since(self.last_ageing).as_secs() >= 1 {
            self.last_ageing = now;
            if let Err(failure) = self.objects.age_tombstones(wall) {
                self.note_failure(&failure, out);
            }
        }
        self.finish(now, out);
    }

    /// Answers a request or parks it.
    fn proceed(&mut self, now: Tick, caller: Caller, step: Outcome<Step>, out: &mut Outbox) {
        match step {
            Ok(Step::Done(answer, transno)) => reply(out, caller, Ok(answer), transno),
            Ok(Step::Sync) => {
                if let Some(caller) = self.durability.wait(caller) {
                    reply(out, caller, Ok(Reply::Done.into()), Transno(0));
                }
            }
            Ok(Step::Park(job, need)) => self.park(now, caller, job, need),
            Ok(Step::Read(work)) => {
                let Caller { client, tag } = caller;
                out.push(Output::ReadWanted { client, tag, work });
            }
            Ok(Step::List(work)) => {
                let tag = caller.tag;
                out.push(Output::ListWanted { tag, work });
            }
            Err(failure) => {
                reply(out, caller, Err(failure.told()), Transno(0));
                self.note_failure(&failure, out);
            }
        }
    }

    fn park(&mut self, now: Tick, caller: Caller, job: Job, need: Need) {
        self.waits += 1;
        let (wait, client) = (self.waits, caller.client);
        self.parked.insert(wait, Parked { caller, job });
        match need {
            Need::Grant(wish) => self.locks.enqueue(now, client, wait, wish),
            Need::Lock(wish) => self.locks.begin(now, client, wait, wish),
            Need::Values { of, speculative } => {
                self.locks.glimpse(now, client, wait, of, speculative);
            }
            Need::Watchers(of) => self.locks.tell_watchers(now, client, wait, of),
        }
    }

    /// Does what the lock table wants done, and starts a sync if one is due.
    pub(crate) fn finish(&mut self, now: Tick, out: &mut Outbox) {
        while let Some(event) = self.locks.next_event() {
            self.take_event(now, event, out);
        }
        if self.stopped {
            return;
        }
        let objects = self.objects.take_condemned();
        if !objects.is_empty() {
            out.push(Output::RemoveWanted { objects });
        }
        let Some((ticket, bytes)) = self.durability.start_due(now) else {
            return;
        };
        match self.objects.before_sync() {
            Ok(touched) => {
                let (committed, reserved) = (self.durability.last(), self.reserved);
                let history = History {
                    committed,
                    reserved,
                };
                let work = SyncWork {
                    history,
                    touched,
                    bytes,
                };
                out.push(Output::SyncWanted { ticket, work });
            }
            Err(failure) => {
                self.stop(
                    format!("cannot make records durable: {}", failure.told()),
                    out,
                );
            }
        }
    }

    /// A modification of so many bytes was made now.
    pub(crate) fn modified(&mut self, now: Tick, bytes: u64) -> Transno {
        self.durability.modified(now, bytes)
    }

    /// Another process goes on for a client, and knows of no request of the one before: those that
    /// wait are dropped. Its locks stay until that process has written what they cover.
    pub fn succeeded(&mut self, now: Tick, client: ClientId, out: &mut Outbox) {
        self.locks.tell(now, Input::Succeed { client });
        self.forget_requests(client);
        self.left_behind.insert(client, self.locks.handles(client));
        self.finish(now, out);
    }

    /// The next process of a mount is ready: the locks of the one before go.
    pub fn drop_left_behind(&mut self, now: Tick, client: ClientId, out: &mut Outbox) {
        if let Some(handles) = self.left_behind.remove(&client) {
            self.locks.tell(now, Input::Cancel { client, handles });
            self.finish(now, out);
        }
    }

    pub(crate) fn forget_client(&mut self, now: Tick, client: ClientId) {
        self.left_behind.remove(&client);
        self.locks.tell(now, Input::Evict { client });
        self.forget_requests(client);
    }

    fn forget_requests(&mut self, client: ClientId) {
        self.parked
            .retain(|_, parked| parked.caller.client != client);
        self.glimpses.retain(|(whose, _), _| *whose != client);
        self.reading.remove(&client);
        self.durability.forget(|caller| caller.client == client);
        self.recovery.forget(client);
    }

    pub(crate) fn note_failure(&mut self, failure: &Failure, out: &mut Outbox) {
        if let Some(reason) = failure.stops() {
            self.stop(reason, out);
        } else if let Failure::Storage(error) = failure {
            tracing::warn!(%error, "an operation failed");
        }
    }

    /// Fails everybody who waits for durability, and every request from here on.
    fn stop(&mut self, reason: String, out: &mut Outbox) {
        if std::mem::replace(&mut self.stopped, true) {
            return;
        }
        for caller in self.durability.give_up() {
            reply(out, caller, Err(FsError::Io), Transno(0));
        }
        out.push(Output::Stop { reason });
    }
}

fn reply(out: &mut Outbox, caller: Caller, result: Result<Answer, FsError>, transno: Transno) {
    let Caller { client, tag } = caller;
    out.push(Output::Reply {
        client,
        tag,
        result,
        transno,
    });
}
