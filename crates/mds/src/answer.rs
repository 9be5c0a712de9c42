//! Running an operation, storing what it did together with its answer, and answering in time.

use std::ops::ControlFlow;

use base::{ClientId, Fid, FsError, LockHandle, Transno};
use dlm::{Bits, Glimpsed, Mode, OpId, Want};
use storage::{Batch, KeyRange};
use wire::mdt::{Access, Lease, OpenHandle, Reply, Request, WriteTicket};
use wire::update::{Change, Told};
use wire::{Cover, Node};

use crate::core::Mds;
use crate::cover::{Coverer, overlay};
use crate::event::{Call, Output};
use crate::keys::{self, ClientUuid, Table};
use crate::mutation::{Mutation, apply};
use crate::namespace::covering_dir;
use crate::ops::context::{Ctx, Needs, resource};
use crate::ops::open::reopen;
use crate::ops::update::made_by;
use crate::ops::with_op;
use crate::records::{State, StoredReply};
use crate::recovery::time_of;
use crate::request::{Answer, Parked, Stage, who};
use crate::sharing::{changed, is_for_more_than_named, shown};
use crate::store::Failure;
use crate::txn::Txn;

/// An operation that has run, before anything is stored.
struct Ran {
    result: Result<Reply, FsError>,
    mutations: Vec<Mutation>,
    state: State,
    transno: Transno,
    durable_first: bool,
    /// The directory whose lease can cover the file that was asked about by its id.
    home: Option<base::Fid>,
}

/// What is asked of who holds a file for itself, on behalf of who looks at it.
#[derive(Clone, Copy)]
enum Ask {
    /// What it is like.
    Glimpse,
    /// The lock, since it says nothing. It may not have heard yet that it has it, and will write to
    /// the file without another word, or has given it back.
    Back,
}

/// Who was asked holds nothing, as far as it knows.
fn says_nothing(glimpses: &[Glimpsed]) -> bool {
    let nothing = |glimpse: &Glimpsed| {
        let said = wire::decode::<Option<wire::mdt::Glimpsed>>(&glimpse.value);
        !matches!(said, Ok(Some(_)))
    };
    !glimpses.is_empty() && glimpses.iter().all(nothing)
}

impl Mds {
    /// Runs an operation that has all it needs, and answers.
    pub(crate) fn run(
        &mut self,
        op: Option<OpId>,
        parked: Parked,
        glimpses: Vec<Glimpsed>,
        out: &mut Vec<Output>,
    ) {
        let call = parked.call;
        let mut ran = match self.run_op(&parked) {
            Ok(ran) => ran,
            Err(failure) => return self.fail(call, failure, out),
        };
        let ask = match parked.stage {
            Stage::Glimpse => says_nothing(&glimpses).then_some(Ask::Back),
            Stage::Entering | Stage::Own => Some(Ask::Glimpse),
        };
        if let Some(ask) = ask
            && let Some(needs) = self.must_ask_holder(ask, call, &parked.request, &ran.result)
        {
            let parked = Parked {
                needs,
                stage: Stage::Glimpse,
                ..parked
            };
            return self.park(parked, out);
        }
        if let Err(failure) = self.respect_write_leases(call.client, &parked.request, &mut ran) {
            return self.fail(call, failure, out);
        }
        let repeated = parked.replay.is_some();
        let mut wait_for = self.shows_undurable(&parked, &ran.result);
        if let Ok(reply) = &mut ran.result {
            let is_held_back = wait_for > self.committed || ran.durable_first;
            if !repeated
                && let Err(failure) = self.give_locks(op, &parked, ran.home, is_held_back, reply)
            {
                return self.fail(call, failure, out);
            }
            self.take_over_glimpses(reply, &glimpses);
        }
        let transno = match self.store_change(call, &parked.request, &mut ran) {
            Ok(transno) => transno,
            Err(failure) => return self.fail(call, failure, out),
        };
        // Of a replay nobody waits for the answer.
        if ran.durable_first && !repeated {
            wait_for = wait_for.max(transno);
        }
        if repeated && let Err(error) = &ran.result {
            let (client, request) = (call.client, &parked.request);
            tracing::warn!(%client, %error, ?request, "what a crash took cannot be done again");
        }
        self.give_up_lock(call, &parked.request, ran.result.is_ok(), out);
        let Call { client, tag, .. } = call;
        self.answer(
            Answer {
                client,
                tag,
                result: ran.result,
                transno,
            },
            wait_for,
            out,
        );
    }

    /// What the operation says of files, or registers, does not contradict the write leases of others.
    fn respect_write_leases(
        &mut self,
        client: ClientId,
        request: &Request,
        ran: &mut Ran,
    ) -> Result<(), Failure> {
        match (request, &mut ran.result) {
            (Request::Open { fid, intent, .. }, Ok(_)) if intent.is_reopen() => {
                self.leave_to_user(client, *fid)
            }
            (_, Ok(Reply::Page(page))) => self.leave_out_closed(client, page),
            _ => Ok(()),
        }
    }

    /// Up to where the target must be durable before this may be answered; zero: it need not be.
    fn shows_undurable(&self, parked: &Parked, result: &Result<Reply, FsError>) -> Transno {
        let client = parked.call.client;
        let request = &parked.request;
        let shown = match result {
            _ if self.sharing.is_all_of(client) || parked.replay.is_some() => Transno(0),
            Err(refused) if is_for_more_than_named(request, *refused) => {
                self.sharing.wait_for_all(client)
            }
            Ok(Reply::UpdateRefused { .. }) => self.sharing.wait_for_all(client),
            _ => {
                let sights = shown(self.hasher, request, result);
                self.sharing.wait_for(client, &sights)
            }
        };
        // Also here: an answer that is held back takes no locks along.
        shown.max(self.lease_ended)
    }

    /// A request that cannot be done. That, too, shows what others have changed.
    pub(crate) fn refuse(&mut self, parked: &Parked, error: FsError, out: &mut Vec<Output>) {
        let Call { client, tag, .. } = parked.call;
        let result = Err(error);
        let wait_for = self.shows_undurable(parked, &result);
        let answer = Answer {
            client,
            tag,
            result,
            transno: Transno(0),
        };
        self.answer(answer, wait_for, out);
    }

    fn run_op(&mut self, parked: &Parked) -> Result<Ran, Failure> {
        let full = self.is_full()?;
        let replay = parked.replay.as_deref();
        let wall = replay.and_then(time_of).unwrap_or(self.wall);
        let may_be_done = self.may_be_done(parked.call.client);
        let mut txn = Txn::new(&self.store, self.hasher, self.state, wall);
        txn.is_again = replay.is_some();
        let transno = txn.transno;
        let mut ctx = Ctx {
            txn: &mut txn,
            opens: &mut self.opens,
            who: who(&self.clients, parked.call.client),
            rules: &self.rules,
            full,
            removing: self.destroys.is_removing(self.now),
            grace: self.recovery.is_grace(),
            durable_first: false,
            may_be_done,
            replay,
        };
        let result = match self.locks.refused(&parked.request, &ctx) {
            Some(refused) => Ok(refused),
            None => with_op(&parked.request, |op| op.run(&mut ctx))
                .unwrap_or_else(|| Err(FsError::Invalid.into())),
        };
        let durable_first = ctx.durable_first;
        let result = match result {
            Ok(reply) => Ok(reply),
            Err(Failure::Refused(error)) => Err(error),
            Err(broken) => return Err(broken),
        };
        let home = match by_id(&parked.request) {
            Some(fid) if result.is_ok() => txn.place(fid)?.and_then(covering_dir),
            _ => None,
        };
        let (mutations, state) = match result {
            Err(_) | Ok(Reply::UpdateRefused { .. }) => (Vec::new(), self.state),
            Ok(_) => txn.finish(),
        };
        Ok(Ran {
            result,
            mutations,
            state,
            transno,
            durable_first,
            home,
        })
    }

    /// Somebody holds the file for itself and knows better: what must be asked first.
    fn must_ask_holder(
        &mut self,
        ask: Ask,
        call: Call,
        request: &Request,
        result: &Result<Reply, FsError>,
    ) -> Option<Needs> {
        let node = match (request, result) {
            (Request::GetAttr { .. }, Ok(Reply::Node(node))) => node,
            (
                Request::Lookup { .. },
                Ok(Reply::Lookup {
                    node: Some(node), ..
                }),
            ) => node,
            _ => return None,
        };
        if !self.locks.is_others(node.fid, call.client) {
            return None;
        }
        let (bits, of) = (Bits::PERM | Bits::UPDATE, resource(node.fid));
        let wants = vec![match ask {
            Ask::Glimpse => Want::Glimpse { resource: of, bits },
            Ask::Back => Want::bits(of, Mode::PR, bits),
        }];
        Some(Needs {
            wants,
            notes: Vec::new(),
        })
    }

    fn take_over_glimpses(&self, reply: &mut Reply, glimpses: &[Glimpsed]) {
        let node = match reply {
            Reply::Node(node)
            | Reply::Lookup {
                node: Some(node), ..
            } => node,
            _ => return,
        };
        let of_node = glimpses
            .iter()
            .filter(|glimpse| glimpse.resource == resource(node.fid));
        for glimpse in of_node {
            if let Ok(Some(held)) = wire::decode::<Option<wire::mdt::Glimpsed>>(&glimpse.value) {
                overlay(&mut node.attr, held.attr);
                node.cover = Cover::None;
            }
        }
    }

    /// Adds the locks that go along with an answer. Of a replay nobody reads the answer: it takes none.
    fn give_locks(
        &mut self,
        op: Option<OpId>,
        parked: &Parked,
        home: Option<base::Fid>,
        is_held_back: bool,
        reply: &mut Reply,
    ) -> Result<(), Failure> {
        let call = parked.call;
        match &parked.request {
            // Its client counts on these from the moment at which it sent the request.
            Request::Update { changes, .. } => self.lease_made(call.client, changes, reply),
            // A page takes its locks along, for without them each of its files is asked for: its reader
            // leaves out what is withdrawn meanwhile. Of another answer that is held back the locks could be
            // revoked before it is out.
            Request::ReadDir { .. } => self.cover(op, call, &parked.request, home, reply),
            _ if is_held_back => {
                if let Some(op) = op {
                    self.locks.announce(op);
                }
            }
            Request::TakeLease { dir } => self.answer_lease(op, call.client, *dir, reply)?,
            request => self.cover(op, call, request, home, reply),
        }
        Ok(())
    }

    pub(crate) fn cover(
        &mut self,
        op: Option<OpId>,
        call: Call,
        request: &Request,
        home: Option<base::Fid>,
        reply: &mut Reply,
    ) {
        let mut coverer = Coverer {
            locks: &mut self.locks,
            opens: &self.opens,
            hasher: self.hasher,
            client: call.client,
            op,
            home,
            grace: self.recovery.is_grace(),
            unserved: self.recovery.is_open(),
            giving_up: match request {
                Request::Close { under, .. } => *under,
                _ => LockHandle::default(),
            },
        };
        coverer.cover(request, reply);
    }

    /// Stores the change and the answer in one batch; zero if there is nothing to store.
    fn store_change(
        &mut self,
        call: Call,
        request: &Request,
        ran: &mut Ran,
    ) -> Result<Transno, Failure> {
        let Ok(reply) = &ran.result else {
            return Ok(Transno(0));
        };
        if !request.is_modification() || self.did_nothing(request, ran) {
            return Ok(Transno(0));
        }
        let body = wire::encode(reply);
        let mut mutations = std::mem::take(&mut ran.mutations);
        let sights = changed(&mutations);
        self.recall(call)?;
        self.remember(call, ran.transno, body, &mut mutations);
        self.commit(mutations, ran.state)?;
        self.sharing.note(call.client, ran.transno, sights);
        Ok(ran.transno)
    }

    /// What changes nothing has no place among the changes. Done again in its place after a crash,
    /// where others have yet to do again what came before it, it might do something. What begins or
    /// ends a use of a file is remembered for a request that comes twice.
    fn did_nothing(&self, request: &Request, ran: &Ran) -> bool {
        let of_uses = matches!(request, Request::Open { .. } | Request::Close { .. });
        ran.mutations.is_empty() && ran.state == self.state && !of_uses
    }

    /// What an earlier boot made durable of the frame stays, and is not done again, when more of it
    /// is done in this one. Its requests need not have run in their order.
    fn recall(&mut self, call: Call) -> Result<(), Failure> {
        let Some(session) = self.clients.get_mut(&call.client) else {
            return Ok(());
        };
        if session.slots.contains_key(&call.slot) {
            return Ok(());
        }
        let (mut highest, slot) = (None, keys::replies(&session.uuid, call.slot));
        let of_slot = KeyRange::prefix(&slot);
        self.store
            .scan(Table::Replies, &of_slot, |key, stored: StoredReply| {
                if stored.xid == call.xid {
                    highest = keys::parse_reply_index(key);
                }
                Ok(ControlFlow::Continue(()))
            })?;
        if let Some(highest) = highest {
            session.slots.insert(call.slot, (call.xid, highest));
        }
        Ok(())
    }

    /// Adds the record of an answer, in the place of those of the slot's frame before.
    fn remember(
        &mut self,
        call: Call,
        transno: Transno,
        body: Vec<u8>,
        mutations: &mut Vec<Mutation>,
    ) {
        let Some(session) = self.clients.get_mut(&call.client) else {
            return;
        };
        let uuid: ClientUuid = session.uuid;
        let (xid, highest) = session
            .slots
            .get(&call.slot)
            .copied()
            .unwrap_or((call.xid, u16::MAX));
        let known = session.slots.contains_key(&call.slot);
        if (xid != call.xid || !known) && highest > call.index {
            mutations.push(Mutation::RemoveReplies(
                uuid,
                call.slot,
                call.index + 1,
                highest,
            ));
        }
        let last = if xid == call.xid && known {
            highest.max(call.index)
        } else {
            call.index
        };
        session.slots.insert(call.slot, (call.xid, last));
        let stored = StoredReply {
            xid: call.xid,
            transno,
            boot: self.opens.boot(),
            body,
        };
        mutations.push(Mutation::PutReply(uuid, call.slot, call.index, stored));
    }

    /// Stores changes under the next transno.
    pub(crate) fn commit(
        &mut self,
        mut mutations: Vec<Mutation>,
        mut state: State,
    ) -> Result<Transno, Failure> {
        state.transno = Transno(self.state.transno.0 + 1);
        self.destroys.note(&mutations, self.now);
        self.leaks.note(&mutations);
        mutations.push(Mutation::PutState(state));
        let mut batch = Batch::new();
        apply(mutations, &mut batch);
        let ticket = self.store.commit(batch)?;
        self.state = state;
        match self.rules.undurable {
            true => self.committed = state.transno,
            false => self.tickets.push_back((ticket, state.transno)),
        }
        Ok(state.transno)
    }

    /// Answers, at once or when `wait_for` is durable.
    pub(crate) fn answer(&mut self, answer: Answer, wait_for: Transno, out: &mut Vec<Output>) {
        let wait_for = wait_for.max(self.lease_ended);
        if matches!(answer.result, Err(FsError::NoSpace)) && self.room.refuse() {
            tracing::warn!(
                "{}: no space left for names and attributes, new ones are refused with ENOSPC; \
                 remove files, or free some of the disk that it is on",
                self.store.kv().name()
            );
        }
        if wait_for <= self.committed {
            return out.push(answer.into_output());
        }
        self.hurry(wait_for);
        self.unanswered.entry(wait_for).or_default().push(answer);
    }

    /// Somebody waits until this change is durable.
    pub(crate) fn hurry(&self, change: Transno) {
        let mut newest = self.tickets.iter().rev();
        if let Some((ticket, _)) = newest.find(|(_, transno)| *transno <= change) {
            self.store.kv().sync_soon(*ticket);
        }
    }

    /// Answers when everything so far is durable.
    pub(crate) fn sync(&mut self, call: Call, out: &mut Vec<Output>) {
        let Call { client, tag, .. } = call;
        let (result, transno) = (Ok(Reply::Done), Transno(0));
        self.answer(
            Answer {
                client,
                tag,
                result,
                transno,
            },
            self.state.transno,
            out,
        );
    }

    /// A close gives the lock up under which the file was changed.
    fn give_up_lock(&mut self, call: Call, request: &Request, done: bool, out: &mut Vec<Output>) {
        if let Request::Close { under, .. } = request
            && under.0 != 0
            && done
        {
            let locked = self.locks.cancel(call.client, vec![*under]);
            self.follow(locked, &[], out);
        }
    }

    /// A request that was answered before is answered the same, and not run. Locks and open files
    /// in an answer of an earlier boot are void: files are opened anew, locks are left out.
    pub(crate) fn answer_again(
        &mut self,
        call: Call,
        request: &Request,
        stored: StoredReply,
        out: &mut Vec<Output>,
    ) {
        let transno = stored.transno;
        let Ok(mut answer) = wire::decode::<Reply>(&stored.body) else {
            let damage = storage::StorageError::damaged("MDT", "reply", "it is not a reply");
            return self.fail(call, Failure::Broken(damage), out);
        };
        // Who takes the place of a process that had not heard it waits as that did.
        let sights = shown(self.hasher, request, &Ok(answer.clone()));
        let mut wait_for = self.sharing.wait_for(call.client, &sights);
        if stored.boot != self.opens.boot() {
            strip_locks(&mut answer);
            match self.open_anew(call, request, transno, &mut answer) {
                Ok(wait) => wait_for = wait_for.max(wait),
                Err(failure) => return self.fail(call, failure, out),
            }
            // Nobody was served since: its client has still to itself what came with the answer.
            if let (Request::Update { changes, .. }, true) = (request, self.reclaimed.is_open()) {
                self.lease_made(call.client, changes, &mut answer);
            }
        }
        let Call { client, tag, .. } = call;
        self.answer(
            Answer {
                client,
                tag,
                result: Ok(answer),
                transno,
            },
            wait_for,
            out,
        );
    }

    fn open_anew(
        &mut self,
        call: Call,
        request: &Request,
        transno: Transno,
        answer: &mut Reply,
    ) -> Result<Transno, Failure> {
        let uses = uses_in(request, answer);
        if uses.is_empty() {
            return Ok(Transno(0));
        }
        let mut txn = Txn::new(&self.store, self.hasher, self.state, self.wall);
        let mut ctx = Ctx {
            txn: &mut txn,
            opens: &mut self.opens,
            who: who(&self.clients, call.client),
            rules: &self.rules,
            full: false,
            removing: self.destroys.is_removing(self.now),
            grace: self.recovery.is_grace(),
            durable_first: false,
            may_be_done: false,
            replay: None,
        };
        for of_file in uses {
            (*of_file.handle, *of_file.ticket) = reopen(&mut ctx, of_file.fid, of_file.access)?;
        }
        let durable_first = ctx.durable_first;
        let (mut mutations, state) = txn.finish();
        // In the place of the old answer; those of the frame's other requests stay.
        let body = wire::encode(answer);
        let stored = StoredReply {
            xid: call.xid,
            transno,
            boot: self.opens.boot(),
            body,
        };
        let uuid = who(&self.clients, call.client).uuid;
        mutations.push(Mutation::PutReply(uuid, call.slot, call.index, stored));
        let stored = self.commit(mutations, state)?;
        Ok(if durable_first { stored } else { Transno(0) })
    }

    /// Changes nobody asked for: the server's own upkeep.
    pub(crate) fn upkeep<R>(
        &mut self,
        change: impl FnOnce(&mut Txn<'_>, &crate::opens::Opens) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let mut txn = Txn::new(&self.store, self.hasher, self.state, self.wall);
        let done = change(&mut txn, &self.opens)?;
        if !txn.is_clean() {
            let (mutations, state) = txn.finish();
            self.commit(mutations, state)?;
        }
        Ok(done)
    }

    /// A client gives a part of a lock back.
    pub(crate) fn convert(
        &mut self,
        client: base::ClientId,
        handle: base::LockHandle,
        mode: u8,
        bits: u32,
        out: &mut Vec<Output>,
    ) -> Result<(), FsError> {
        let mode = Mode::from_index(mode).ok_or(FsError::Invalid)?;
        if bits == 0 || mode == Mode::NL {
            let locked = self.locks.convert(client, handle, dlm::Keep::Nothing);
            self.follow(locked, &[], out);
            return Ok(());
        }
        for keep in [dlm::Keep::Bits(Bits(bits)), dlm::Keep::Mode(mode)] {
            let Some(lock) = self.locks.table().holds(client, handle) else {
                return Ok(());
            };
            let changes = match keep {
                dlm::Keep::Bits(bits) => lock.cover.bits() != bits,
                _ => lock.mode != mode,
            };
            if changes {
                let locked = self.locks.convert(client, handle, keep);
                self.follow(locked, &[], out);
            }
        }
        Ok(())
    }
}

/// A use of a file that an answer brought.
struct Use<'a> {
    fid: Fid,
    access: Access,
    handle: &'a mut OpenHandle,
    ticket: &'a mut WriteTicket,
}

/// The uses that were registered with an answer.
fn uses_in<'a>(request: &Request, answer: &'a mut Reply) -> Vec<Use<'a>> {
    let access = match request {
        Request::Create {
            open: Some(access), ..
        }
        | Request::CreateNameless { open: access, .. }
        | Request::Open { access, .. } => *access,
        Request::Update { changes, .. } => return uses_of_set(changes, answer),
        _ => return Vec::new(),
    };
    match answer {
        Reply::Created {
            node,
            handle,
            ticket,
            ..
        }
        | Reply::Opened {
            node,
            handle,
            ticket,
        } => vec![Use {
            fid: node.fid,
            access,
            handle,
            ticket,
        }],
        _ => Vec::new(),
    }
}

/// The same of a set of changes.
fn uses_of_set<'a>(changes: &[Change], answer: &'a mut Reply) -> Vec<Use<'a>> {
    let Reply::Updated { notes, .. } = answer else {
        return Vec::new();
    };
    let uses = notes.iter_mut().filter_map(|note| {
        let made = made_by(changes.get(usize::from(note.change))?)?;
        match &mut note.told {
            Told::Opened { handle, ticket, .. } => Some(Use {
                fid: made.file.fid,
                access: made.open?,
                handle,
                ticket,
            }),
            _ => None,
        }
    });
    uses.collect()
}

/// The file a request names by its id, where a lease may cover the answer.
fn by_id(request: &Request) -> Option<base::Fid> {
    match request {
        Request::GetAttr { fid, .. }
        | Request::SetAttr { fid, .. }
        | Request::Open { fid, .. }
        | Request::Close { fid, .. }
        | Request::SetXattr { fid, .. }
        | Request::RemoveXattr { fid, .. } => Some(*fid),
        _ => None,
    }
}

/// Takes everything out of an answer that was only good in the boot it was made in.
fn strip_locks(reply: &mut Reply) {
    let bare = |node: &mut Node| node.cover = Cover::None;
    match reply {
        Reply::Node(node) | Reply::Opened { node, .. } => bare(node),
        Reply::Lookup { lease, node } => {
            *lease = Lease::None;
            node.iter_mut().for_each(bare);
        }
        Reply::Created { node, dir, .. }
        | Reply::Linked { node, dir, .. }
        | Reply::Unlinked { node, dir } => {
            bare(node);
            dir.version = 0;
        }
        Reply::Renamed {
            source_dir,
            target_dir,
            node,
            replaced,
            whiteout,
            ..
        } => {
            bare(node);
            replaced.iter_mut().chain(whiteout).for_each(bare);
            source_dir.version = 0;
            target_dir.version = 0;
        }
        Reply::Updated { version, notes, .. } => {
            *version = 0;
            notes.retain(|note| !matches!(note.told, Told::Leased(_)));
            for note in notes {
                if let Told::Opened { lock, .. } = &mut note.told {
                    *lock = None;
                }
            }
        }
        _ => {}
    }
}
