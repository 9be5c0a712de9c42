//! The metadata server as one state machine: requests, acknowledgements and time go in, answers and questions
//! come out. It has no threads, sockets or clock; a request that must wait is kept as data.

mod busy;
mod callback;
mod entry;
mod osts;
mod reclaim;
mod recovery;
mod walks;

use crate::request::{Answer, PARKED_MAX, Parked, Session, Stage, reply, who};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use base::{BootEpoch, ClientId, FsError, LockHandle, TargetIndex, Tick, Timestamp, Transno};
use dlm::{IdMap, OpId};
use storage::{Kv, StorageError, Ticket};
use wire::mdt::{Reply, Request};

use crate::effect::Effect;
use crate::event::{Call, Halted, Output};
use crate::keys::{self, ClientUuid, Table};
use crate::locks::Locks;
use crate::opens::Opens;
use crate::ops::context::{Ctx, Needs, Rules};
use crate::ops::with_op;
use crate::records::{State, StoredReply};
use crate::recovery::Recovery;
use crate::room::Room;
use crate::sharing::Sharing;
use crate::store::{Failure, Store};
use crate::txn::Txn;
use wire::hash::NameHasher;

/// How often an operation looks its names up again because they changed while it waited. Beyond:
/// refused, `TryAgain`.
const RESTARTS_MAX: u32 = 64;

/// A metadata target. A request of a frame starts when the one before it has run. A change is stored with its
/// answer in one batch, and batches in the order of the transnos.
#[derive(Debug)]
pub struct Mds {
    pub(crate) store: Store,
    pub(crate) hasher: NameHasher,
    pub(crate) state: State,
    pub(crate) rules: Rules,
    pub(crate) locks: Locks,
    pub(crate) opens: Opens,
    pub(crate) sharing: Sharing,
    pub(crate) clients: IdMap<ClientId, Session>,
    pub(crate) parked: IdMap<OpId, Parked>,
    /// Opens that others are asked for.
    pub(crate) busy: crate::busy::BusyOpens,
    /// Slots whose frames begin with a create that waits for the first OST. Bounded by the slots of the
    /// clients that ask.
    pub(crate) awaiting_ost: BTreeSet<(ClientId, u16)>,
    pub(crate) next_op: u64,
    pub(crate) callbacks: crate::callback::Callbacks,
    /// Of clients whose process was replaced, the uses of files that the one before had.
    pub(crate) left_behind: IdMap<ClientId, Vec<wire::mdt::OpenHandle>>,
    /// Answers that wait until this change is durable.
    pub(crate) unanswered: BTreeMap<Transno, Vec<Answer>>,
    /// Batches that are not durable, with the change each holds.
    pub(crate) tickets: VecDeque<(Ticket, Transno)>,
    /// Requests of clients of which it is not durable that they are to be waited for, with the change
    /// that says so.
    pub(crate) newcomers: VecDeque<(Transno, Call, Request)>,
    pub(crate) committed: Transno,
    /// The end of a client that had a write lease. Until it is durable nothing is answered.
    pub(crate) lease_ended: Transno,
    pub(crate) recovery: Recovery,
    pub(crate) reclaimed: crate::reclaimed::ReclaimedLeases,
    pub(crate) destroys: crate::destroy::DestroyLog,
    pub(crate) leaks: crate::leaks::LeakSearches,
    pub(crate) watermarks: crate::watermarks::PeerWatermarks,
    pub(crate) room: Room,
    pub(crate) walks: crate::walks::Walks,
    pub(crate) halted: bool,
    pub(crate) now: Tick,
    pub(crate) wall: Timestamp,
}

/// Others may wait for it: it waits for nobody, nor behind what its frame has before it, which may wait
/// for those.
fn gives_way(request: &Request) -> bool {
    match request {
        Request::Close { under, .. } => under.0 != 0,
        Request::Open { intent, .. } => intent.is_reopen(),
        Request::Cancel { .. } | Request::Convert { .. } | Request::Update { .. } => true,
        Request::ReclaimLease { .. } => true,
        _ => false,
    }
}

impl Mds {
    /// Opens the target in `kv`, which [`crate::format::format`] made and which was opened with
    /// [`crate::store::tables`]. Takes the same time however much is in it.
    pub fn open(kv: Arc<Kv>, rules: Rules, now: Tick) -> Result<Mds, StorageError> {
        Mds::open_with(kv, rules, now, NameHasher::new)
    }

    /// Like [`Mds::open`], with another name hash: tests make names collide.
    pub fn open_with(
        kv: Arc<Kv>,
        rules: Rules,
        now: Tick,
        hasher: impl FnOnce(u64) -> NameHasher,
    ) -> Result<Mds, StorageError> {
        let store = Store::new(kv);
        let state = crate::format::start(&store)?;
        let boot_epoch = rules
            .boot_epoch
            .unwrap_or(BootEpoch(u64::from(state.boots)));
        let recovery =
            crate::recovery::begin(&store, boot_epoch, &state, now, rules.recovery_window)
                .map_err(crate::format::cause)?;
        let leaks =
            crate::leaks::LeakSearches::open(&store, &rules.osts).map_err(crate::format::cause)?;
        let watermarks =
            crate::watermarks::PeerWatermarks::open(&store, &rules.osts, state.transno)
                .map_err(crate::format::cause)?;
        let limits = dlm::Limits {
            callback_deadline: rules.patience(),
            ..dlm::Limits::default()
        };
        Ok(Mds {
            hasher: hasher(state.hash_key),
            destroys: crate::destroy::DestroyLog::new(&rules.osts),
            leaks,
            watermarks,
            rules,
            locks: Locks::new(limits, boot_epoch),
            opens: Opens::new(state.boots),
            sharing: Sharing::default(),
            clients: IdMap::default(),
            parked: IdMap::default(),
            busy: crate::busy::BusyOpens::default(),
            awaiting_ost: BTreeSet::new(),
            next_op: 0,
            callbacks: crate::callback::Callbacks::default(),
            left_behind: IdMap::default(),
            unanswered: BTreeMap::new(),
            tickets: VecDeque::new(),
            newcomers: VecDeque::new(),
            committed: state.transno,
            lease_ended: Transno(0),
            reclaimed: match recovery.is_open() {
                true => crate::reclaimed::ReclaimedLeases::expected(),
                false => crate::reclaimed::ReclaimedLeases::default(),
            },
            recovery,
            room: Room::default(),
            walks: crate::walks::Walks::default(),
            halted: false,
            now,
            wall: Timestamp::default(),
            store,
            state,
        })
    }

    /// A client's session begins, or goes on over another connection. `uuid` is its own id, which
    /// outlives sessions.
    pub fn connect(&mut self, client: ClientId, uuid: ClientUuid) -> Result<(), StorageError> {
        if self
            .clients
            .get(&client)
            .is_some_and(|session| session.uuid == uuid)
        {
            return Ok(());
        }
        let known = self.known_client(&uuid)?;
        let is_known = known.is_some_and(|known| known.given_up.is_none());
        let session = Session {
            uuid,
            slots: IdMap::default(),
            frames: IdMap::default(),
            known_since: is_known.then_some(Transno(0)),
            begins_anew: false,
        };
        self.clients.insert(client, session);
        Ok(())
    }

    /// Every change up to this one is durable.
    pub fn last_committed(&self) -> Transno {
        self.committed
    }

    /// The last change made.
    pub fn last_transno(&self) -> Transno {
        self.state.transno
    }

    /// The store below.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The locks, for counters.
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Open files, for counters.
    pub fn opens(&self) -> &Opens {
        &self.opens
    }

    /// The OSTs that new files go to.
    pub fn osts(&self) -> &[TargetIndex] {
        &self.rules.osts
    }

    /// The OSTs new files go to, from now on.
    pub fn set_osts(
        &mut self,
        now: Tick,
        wall: Timestamp,
        osts: Vec<TargetIndex>,
        out: &mut Vec<Output>,
    ) {
        self.set_time(now, wall);
        self.destroys.add_osts(&osts);
        self.leaks.add_osts(&osts);
        self.watermarks.add_osts(&osts);
        self.watermarks.hurry();
        self.rules.osts = osts;
        self.end_waits_for_ost(out);
    }

    /// Takes a request; its answer comes in `out` now or later.
    pub fn handle(
        &mut self,
        now: Tick,
        wall: Timestamp,
        call: Call,
        request: Request,
        out: &mut Vec<Output>,
    ) {
        self.set_time(now, wall);
        if !self.clients.contains_key(&call.client) {
            return reply(out, call, Err(FsError::Stale));
        }
        if let Some(request) = self.wait_for_recovery(call, request, out) {
            self.admit(call, request, out);
        }
    }

    /// A request that does not wait for the end of the window.
    pub(crate) fn admit(&mut self, call: Call, request: Request, out: &mut Vec<Output>) {
        let full = self.parked.len() >= PARKED_MAX;
        let Some(request) = self.wait_to_be_known(call, request, out) else {
            return;
        };
        let Some(session) = self.clients.get_mut(&call.client) else {
            return reply(out, call, Err(FsError::Stale));
        };
        if let Some(behind) = session.frames.get_mut(&call.slot)
            && !gives_way(&request)
        {
            if full || behind.len() >= base::limits::FRAME_REQUESTS_MAX {
                return reply(out, call, Err(FsError::TryAgain));
            }
            behind.push_back((call, request));
            return;
        }
        if full {
            return reply(out, call, Err(FsError::TryAgain));
        }
        self.start(call, request, out);
    }

    pub(crate) fn set_time(&mut self, now: Tick, wall: Timestamp) {
        self.now = now;
        self.wall = wall;
        self.locks.set_now(now);
    }

    /// Starts a request that nothing of its frame is ahead of.
    pub(crate) fn start(&mut self, call: Call, request: Request, out: &mut Vec<Output>) {
        if self.halted {
            return self.reply_halted(call, &request, out);
        }
        let done = match &request {
            Request::Cancel { handles } => {
                let locked = self.locks.cancel(call.client, handles.clone());
                self.follow(locked, &[], out);
                Ok(())
            }
            Request::Convert { handle, mode, bits } => {
                self.convert(call.client, *handle, *mode, *bits, out)
            }
            Request::Sync => return self.sync(call, out),
            Request::Join { boot_epoch } => {
                self.join(call.client, *boot_epoch);
                Ok(())
            }
            Request::ReclaimLease { dir } => return self.reclaim_lease(call, *dir, out),
            Request::Walk { .. } => return self.start_walk(call, &request, out),
            _ => return self.start_op(call, request, out),
        };
        reply(out, call, done.map(|()| Reply::Done));
    }

    fn start_op(&mut self, call: Call, request: Request, out: &mut Vec<Output>) {
        if request.is_modification() {
            match self.stored_reply(call) {
                Ok(None) => {}
                Ok(Some(stored)) => return self.answer_again(call, &request, stored, out),
                Err(failure) => return self.fail(call, failure, out),
            }
        }
        self.attempt(Parked::new(call, request), out);
    }

    /// What an earlier sending of the same request was answered.
    pub(crate) fn stored_reply(&self, call: Call) -> Result<Option<StoredReply>, Failure> {
        let Some(session) = self.clients.get(&call.client) else {
            return Ok(None);
        };
        // In this boot of the target the slots say which frames were answered at all.
        if let Some((xid, highest)) = session.slots.get(&call.slot)
            && (*xid != call.xid || *highest < call.index)
        {
            return Ok(None);
        }
        let key = keys::reply(&session.uuid, call.slot, call.index);
        let stored: Option<StoredReply> = self.store.get(Table::Replies, &key)?;
        Ok(stored.filter(|stored| stored.xid == call.xid))
    }

    /// Finds out what a request needs, and begins to wait for that, or runs it.
    pub(crate) fn attempt(&mut self, mut parked: Parked, out: &mut Vec<Output>) {
        if !self.holds_what_it_says(&parked) {
            return self.fail(parked.call, FsError::Stale.into(), out);
        }
        // Before anything may be refused: what is stored of a closed directory may be old.
        match self.closed_directories(&parked) {
            Ok(closed) if closed.is_empty() => {}
            Ok(closed) => return self.enter(parked, &closed, out),
            Err(failure) => return self.fail(parked.call, failure, out),
        }
        match self.needs(&parked) {
            Err(Failure::Refused(FsError::TextBusy)) => self.ask_users(parked, out),
            Err(Failure::Refused(error)) => self.refuse(&parked, error, out),
            Err(failure) => self.fail(parked.call, failure, out),
            Ok(_) if self.lacks_an_ost(&parked) => self.wait_for_ost(parked),
            Ok(needs) if needs.wants.is_empty() => self.run(None, parked, Vec::new(), out),
            Ok(needs) => {
                parked.needs = needs;
                self.park(parked, out);
            }
        }
    }

    /// Begins to wait; the locks may be there at once. The rest of the frame waits too, but not
    /// for what only reads.
    pub(crate) fn park(&mut self, parked: Parked, out: &mut Vec<Output>) {
        self.next_op += 1;
        let (op, call, in_order) = (
            OpId(self.next_op),
            parked.call,
            parked.stage != Stage::Glimpse,
        );
        let locked = self.locks.begin(op, call.client, &parked.needs);
        let asks = |output: &dlm::Output| matches!(output, dlm::Output::Withdraw { .. });
        let notes = match locked.iter().any(asks) {
            true => parked.needs.notes.clone(),
            false => Vec::new(),
        };
        self.parked.insert(op, parked);
        self.follow(locked, &notes, out);
        let Some(parked) = self.parked.get_mut(&op) else {
            return;
        };
        parked.waited = true;
        if in_order && let Some(session) = self.clients.get_mut(&call.client) {
            session.frames.entry(call.slot).or_default();
        }
    }

    /// An update that was made earlier under a lock counts only while that lock is held.
    fn holds_what_it_says(&self, parked: &Parked) -> bool {
        let call = parked.call;
        match &parked.request {
            // It did when that was done first.
            _ if parked.replay.is_some() => true,
            Request::SetAttr { under, .. } if *under == LockHandle::ENDED => true,
            Request::SetAttr { fid, under, .. } | Request::Close { fid, under, .. } => {
                under.0 == 0 || self.locks.is_under(call.client, *under, *fid)
            }
            Request::Update { dirs, .. } => self.has_write_leases(call.client, dirs),
            _ => true,
        }
    }

    /// Whether nothing more may come to be.
    pub(crate) fn is_full(&mut self) -> Result<bool, Failure> {
        let files = self.state.files;
        self.room.is_full(self.now, self.store.kv(), files)
    }

    fn needs(&mut self, parked: &Parked) -> Result<Needs, Failure> {
        let (call, request) = (parked.call, &parked.request);
        let full = self.is_full()?;
        let mut txn = Txn::new(&self.store, self.hasher, self.state, self.wall);
        let ctx = Ctx {
            txn: &mut txn,
            opens: &mut self.opens,
            who: who(&self.clients, call.client),
            rules: &self.rules,
            full,
            removing: self.destroys.is_removing(self.now),
            grace: self.recovery.is_grace(),
            durable_first: false,
            may_be_done: false,
            replay: parked.replay.as_deref(),
        };
        with_op(request, |op| op.needs(&ctx)).unwrap_or_else(|| Err(FsError::Invalid.into()))
    }

    /// An operation has its locks: does what it waited for still say what it needs?
    pub(crate) fn ready(&mut self, op: OpId, glimpses: Vec<dlm::Glimpsed>, out: &mut Vec<Output>) {
        let Some(mut parked) = self.parked.remove(&op) else {
            return;
        };
        let call = parked.call;
        if parked.stage == Stage::Entering {
            return self.begin_anew(op, parked, out);
        }
        if parked.stage == Stage::Glimpse {
            self.run(Some(op), parked, glimpses, out);
            return self.end(op, out);
        }
        if !parked.waited {
            self.run(Some(op), parked, glimpses, out);
            self.end(op, out);
            return self.next_of_frame(call.client, call.slot, out);
        }
        if !matches!(self.closed_directories(&parked), Ok(closed) if closed.is_empty()) {
            return self.begin_anew(op, parked, out);
        }
        let needs = std::mem::take(&mut parked.needs);
        let holds = self.holds_what_it_says(&parked);
        match self.needs(&parked) {
            _ if !holds => self.fail(call, FsError::Stale.into(), out),
            Err(Failure::Refused(error)) => self.refuse(&parked, error, out),
            Err(failure) => self.fail(call, failure, out),
            Ok(_) if self.lacks_an_ost(&parked) => self.wait_for_ost(parked),
            Ok(now) if now == needs => self.run(Some(op), parked, glimpses, out),
            Ok(_) if parked.restarts >= RESTARTS_MAX => {
                self.fail(call, FsError::TryAgain.into(), out);
            }
            Ok(now) => {
                self.end(op, out);
                parked.restarts += 1;
                parked.waited = false;
                parked.needs = now;
                self.park(parked, out);
                return;
            }
        }
        self.end(op, out);
        self.next_of_frame(call.client, call.slot, out);
    }

    fn end(&mut self, op: OpId, out: &mut Vec<Output>) {
        let locked = self.locks.end(op);
        self.follow(locked, &[], out);
    }

    /// A request of a frame has run: those behind it may start, up to the next that waits.
    pub(crate) fn next_of_frame(&mut self, client: ClientId, slot: u16, out: &mut Vec<Output>) {
        let behind = self.take_frame(client, slot);
        self.run_frame((client, slot), behind, out);
    }

    fn take_frame(&mut self, client: ClientId, slot: u16) -> VecDeque<(Call, Request)> {
        let session = self.clients.get_mut(&client);
        let behind = session.and_then(|session| session.frames.remove(&slot));
        behind.unwrap_or_default()
    }

    /// Starts what is left of a frame, unless a request before it waits.
    fn run_frame(
        &mut self,
        (client, slot): (ClientId, u16),
        mut behind: VecDeque<(Call, Request)>,
        out: &mut Vec<Output>,
    ) {
        loop {
            let Some(session) = self.clients.get_mut(&client) else {
                return;
            };
            if let Some(waiting) = session.frames.get_mut(&slot) {
                waiting.append(&mut behind);
                return;
            }
            let Some((call, request)) = behind.pop_front() else {
                return;
            };
            self.start(call, request, out);
        }
    }

    /// Ends a request that did nothing.
    pub(crate) fn fail(&mut self, call: Call, failure: Failure, out: &mut Vec<Output>) {
        match failure {
            Failure::Refused(error) => reply(out, call, Err(error)),
            Failure::Broken(cause) => {
                reply(out, call, Err(FsError::Io));
                self.halt(cause, out);
            }
        }
    }

    /// Does what a subsystem wants. A target that has stopped changes nothing any more.
    pub(crate) fn carry_out(
        &mut self,
        effects: Result<Vec<Effect>, Failure>,
        out: &mut Vec<Output>,
    ) {
        let done = effects.and_then(|effects| {
            effects.into_iter().try_for_each(|effect| match effect {
                Effect::Say(output) => {
                    out.push(output);
                    Ok(())
                }
                Effect::Halt(Halted(cause)) => Err(Failure::Broken(cause)),
                Effect::Change(changes) if changes.is_empty() || self.halted => Ok(()),
                Effect::Change(changes) => self.commit(changes, self.state).map(drop),
            })
        });
        if let Err(Failure::Broken(cause)) = done {
            self.halt(cause, out);
        }
    }

    /// The target stops: nothing that waits will be done.
    pub(crate) fn halt(&mut self, cause: StorageError, out: &mut Vec<Output>) {
        if std::mem::replace(&mut self.halted, true) {
            return;
        }
        tracing::error!("MDT stops: {cause}");
        let parked: BTreeSet<OpId> = self.parked.keys().copied().collect();
        for op in parked {
            if let Some(parked) = self.parked.remove(&op) {
                self.reply_halted(parked.call, &parked.request, out);
            }
        }
        for parked in self.busy.take() {
            self.reply_halted(parked.call, &parked.request, out);
        }
        let sessions = self.clients.values_mut();
        let behind = sessions.flat_map(|session| session.frames.drain());
        let behind: Vec<_> = behind.flat_map(|(_, behind)| behind).collect();
        for (call, request) in behind {
            self.reply_halted(call, &request, out);
        }
        let newcomers = self.newcomers.drain(..).map(|(_, call, _)| call);
        for call in self.walks.end_all().chain(newcomers) {
            reply(out, call, Err(FsError::Io));
        }
        for answer in std::mem::take(&mut self.unanswered).into_values().flatten() {
            out.push(answer.into_output_as(Err(FsError::Io)));
        }
        out.push(Output::Halt(Halted(cause)));
    }

    /// A target that stops does nothing. What tells of an earlier boot it has not refused: that is told
    /// to the next one.
    pub(crate) fn reply_halted(&self, call: Call, request: &Request, out: &mut Vec<Output>) {
        let is_for_next_boot =
            self.is_of_the_past(call, request) || matches!(request, Request::Update { .. });
        if !is_for_next_boot {
            reply(out, call, Err(FsError::Io));
        }
    }
}
