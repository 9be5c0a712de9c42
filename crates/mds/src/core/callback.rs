//! Questions to clients are asked, and what becomes of the answers.

use base::{ClientId, Fid, Tick, Timestamp};
use dlm::Output as Locked;
use rpc::Departure;
use wire::mdt::{Callback, CallbackReply};

use super::Mds;
use crate::callback::{About, Question, SHRINK_BY};
use crate::event::Output;
use crate::keys::Table;
use crate::leaks::{self, MayLack};
use crate::mutation::Mutation;
use crate::namespace::end_orphan;
use crate::ops::context::Note;
use crate::records::{KnownClient, SequenceOwner};
use crate::recovery::Event;
use crate::request::{Stage, reply};
use crate::store::Failure;

impl Mds {
    /// Does what the lock table says. `notes` explain the withdrawals among it.
    pub(crate) fn follow(&mut self, locked: Vec<Locked>, notes: &[Note], out: &mut Vec<Output>) {
        for output in locked {
            match output {
                // Bytes are watched at OSTs.
                Locked::Tell { .. } => {}
                Locked::Ready { op, glimpses, .. } => self.ready(op, glimpses, out),
                Locked::OpRefused { op } | Locked::Aborted { op } => self.drop_op(op, out),
                Locked::EvictionDue { client } => out.push(Output::Evict { client }),
                Locked::Misuse { client, reason } => {
                    tracing::warn!("client {client} misuses a lock: {reason}");
                }
                // An MDT enqueues nothing for clients: all their locks come with answers.
                Locked::Granted { .. } | Locked::Refused { .. } => {}
                Locked::Blocking { .. }
                | Locked::Withdraw { .. }
                | Locked::Glimpse { .. }
                | Locked::ShrinkYourLocks { .. } => self.ask(output, notes, out),
            }
        }
    }

    fn ask(&mut self, question: Locked, notes: &[Note], out: &mut Vec<Output>) {
        let Some((question, callback)) = phrase(question, notes) else {
            return;
        };
        self.callbacks.last += 1;
        let id = self.callbacks.last;
        self.callbacks.open.insert(id, question);
        out.push(Output::Callback {
            client: question.client,
            id,
            callback,
        });
    }

    /// Asks a client about a use of a file; the question's name.
    pub(crate) fn ask_about_use(
        &mut self,
        client: ClientId,
        callback: Callback,
        out: &mut Vec<Output>,
    ) -> u64 {
        self.callbacks.last += 1;
        let (id, about) = (self.callbacks.last, About::Use);
        self.callbacks.open.insert(id, Question { client, about });
        out.push(Output::Callback {
            client,
            id,
            callback,
        });
        id
    }

    /// A client's process is gone, and with it what it was asked, but for uses of files: the next process
    /// says which go on.
    fn drop_questions(&mut self, client: ClientId) {
        let open = &mut self.callbacks.open;
        open.retain(|_, asked| asked.client != client || asked.about.is_use());
    }

    /// What a client was asked about uses of files, which is answered by their end.
    fn take_questions_about_uses(&mut self, client: ClientId) -> Vec<u64> {
        let is_answered =
            |_: &u64, asked: &mut Question| asked.client == client && asked.about.is_use();
        let answered = self.callbacks.open.extract_if(is_answered);
        let mut answered: Vec<u64> = answered.map(|(id, _)| id).collect();
        answered.sort_unstable();
        answered
    }

    /// A client has answered the question `id`.
    pub fn callback_reply(
        &mut self,
        now: Tick,
        wall: Timestamp,
        client: ClientId,
        id: u64,
        answer: CallbackReply,
        out: &mut Vec<Output>,
    ) {
        self.set_time(now, wall);
        let known = self
            .callbacks
            .open
            .get(&id)
            .filter(|question| question.client == client);
        let Some(Question { about, .. }) = known.copied() else {
            return;
        };
        // What the process before had open is on record until the next one is ready.
        if about.is_use() && self.left_behind.contains_key(&client) {
            return;
        }
        self.callbacks.open.remove(&id);
        let locked = match about {
            About::Blocking => return,
            About::Use => return self.use_answered(id, out),
            About::Withdrawal { handle, version } => {
                self.locks.acknowledge(client, handle, version)
            }
            About::Glimpse { handle } => {
                let value = match answer {
                    CallbackReply::Glimpse(value) => value,
                    CallbackReply::Done => None,
                };
                self.locks.glimpsed(client, handle, wire::encode(&value))
            }
        };
        self.follow(locked, &[], out);
    }

    /// An operation that will not run.
    fn drop_op(&mut self, op: dlm::OpId, out: &mut Vec<Output>) {
        if let Some(parked) = self.parked.remove(&op) {
            reply(out, parked.call, Err(base::FsError::TryAgain));
            if parked.stage != Stage::Glimpse {
                self.next_of_frame(parked.call.client, parked.call.slot, out);
            }
        }
    }

    /// Another process goes on for a client, and knows of no request of the one before: those that
    /// wait are dropped. Locks and open files stay until that process has told what it goes on with.
    pub fn succeeded(
        &mut self,
        now: Tick,
        wall: Timestamp,
        client: ClientId,
        out: &mut Vec<Output>,
    ) {
        self.set_time(now, wall);
        self.drop_questions(client);
        self.walks.end_client(client);
        self.forget_waiting(client);
        let locked = self.locks.succeed(client);
        self.follow(locked, &[], out);
        if let Some(session) = self.clients.get_mut(&client) {
            session.frames.clear();
        }
        self.left_behind
            .insert(client, self.opens.of_client(client));
    }

    /// The next process of a mount is ready: the uses of the one before go, and all locks, as none of them
    /// was adopted.
    pub(crate) fn drop_left_behind(&mut self, client: ClientId, out: &mut Vec<Output>) {
        let Some(opens) = self.left_behind.remove(&client) else {
            return;
        };
        let locked = self.locks.cancel(client, self.locks.handles(client));
        self.follow(locked, &[], out);
        let closed = opens.into_iter().filter_map(|open| self.opens.remove(open));
        let closed = closed.map(|open| open.fid).collect();
        if let Err(Failure::Broken(cause)) = self.close_all(closed) {
            return self.halt(cause, out);
        }
        for question in self.take_questions_about_uses(client) {
            self.ask_again(question, out);
        }
    }

    /// Ends a client's session, after its goodbye or by eviction. Its locks, open files and stored answers
    /// go, and it can make no files of its sequences any more.
    pub fn end_session(
        &mut self,
        now: Tick,
        wall: Timestamp,
        (client, how): (ClientId, Departure),
        out: &mut Vec<Output>,
    ) {
        self.set_time(now, wall);
        let Some(session) = self.clients.remove(&client) else {
            return;
        };
        let unanswered = self.take_questions_about_uses(client);
        self.drop_questions(client);
        self.walks.end_client(client);
        for answers in self.unanswered.values_mut() {
            answers.retain(|answer| answer.client != client);
        }
        self.forget_waiting(client);
        self.left_behind.remove(&client);
        if self.halted {
            let locked = self.locks.evict(client);
            return self.follow(locked, &[], out);
        }
        let closed = self.opens.remove_client(client);
        let lacks = match self.recovery.awaits(session.uuid) {
            true => MayLack::Files,
            false => MayLack::Nothing,
        };
        let burnt = self
            .forget_client(session.uuid, how, lacks)
            .and_then(|()| self.close_all(closed));
        if let Err(Failure::Broken(cause)) = burnt {
            return self.halt(cause, out);
        }
        // Those that waited for this client go on after its end is stored, and are not answered before that
        // is durable: a restart would let the client claim the directories again.
        if self.locks.has_write_lease(client) {
            self.lease_ended = self.state.transno;
        }
        let locked = self.locks.evict(client);
        self.follow(locked, &[], out);
        if self.halted {
            return;
        }
        self.step_recovery(Event::Back(session.uuid), out);
        for question in unanswered {
            self.use_answered(question, out);
        }
    }

    /// Ends what is stored of a client, but that it was given up.
    pub(crate) fn forget_client(
        &mut self,
        uuid: crate::keys::ClientUuid,
        how: Departure,
        lacks: MayLack,
    ) -> Result<(), Failure> {
        self.has_nothing_to_tell(uuid);
        let mut owned = Vec::new();
        let all = storage::KeyRange::all();
        self.store
            .scan(Table::Sequences, &all, |key, owner: SequenceOwner| {
                if owner.client == uuid {
                    owned.extend(crate::keys::parse_sequence(key));
                }
                Ok(std::ops::ControlFlow::Continue(()))
            })?;
        let known = match how {
            Departure::Goodbye => Mutation::RemoveClient(uuid),
            Departure::GivenUp => {
                let given_up = Some(self.wall);
                Mutation::PutClient(uuid, KnownClient { given_up })
            }
        };
        let ended = self.upkeep(|txn, _| {
            txn.change(Mutation::RemoveClientReplies(uuid));
            txn.change(known);
            for sequence in owned {
                leaks::end_sequence(txn, sequence, uuid, lacks)?;
            }
            Ok(())
        });
        if how == Departure::GivenUp {
            self.recovery
                .note_given_up(uuid, self.state.transno, self.committed);
        }
        // Or a crash that comes soon would have others wait for who is gone.
        if let Some((ticket, _)) = self.tickets.back() {
            self.store.kv().sync_soon(*ticket);
        }
        ended
    }

    /// Files that are not open any more: those without names go.
    fn close_all(&mut self, closed: Vec<Fid>) -> Result<(), Failure> {
        let grace = self.recovery.is_grace();
        self.upkeep(|txn, opens| {
            for fid in closed {
                // Two handles may have been of one file, which the first of them ended.
                let alive = txn.place(fid)?.is_some() && !opens.is_open(fid) && !grace;
                if !alive {
                    continue;
                }
                let file = txn.file(fid)?;
                if file.inode.nlink == 0 {
                    end_orphan(txn, opens, &file);
                }
            }
            Ok(())
        })
    }
}

/// What a client is asked, and what its answer will be about; `None` for what is no question.
fn phrase(question: Locked, notes: &[Note]) -> Option<(Question, Callback)> {
    let (client, about, callback) = match question {
        Locked::Blocking {
            client,
            handle,
            resource,
            cover,
            ..
        } => {
            let (fid, bits) = (Fid(resource.id), cover.bits().0);
            let callback = Callback::Blocking { handle, fid, bits };
            (client, About::Blocking, callback)
        }
        Locked::Withdraw {
            client,
            handle,
            resource,
            key,
            bits,
            version,
        } => {
            let dir = Fid(resource.id);
            let about = About::Withdrawal { handle, version };
            let note = notes.iter().find(|note| note.dir == dir && note.key == key);
            let callback = Callback::Withdraw {
                handle,
                dir,
                bits: bits.0,
                name: note.and_then(|note| note.name.clone()),
                child: note.map_or(Fid::NONE, |note| note.child),
                version,
            };
            (client, about, callback)
        }
        Locked::Glimpse {
            client,
            handle,
            resource,
        } => {
            let fid = Fid(resource.id);
            let callback = Callback::Glimpse { handle, fid };
            (client, About::Glimpse { handle }, callback)
        }
        Locked::ShrinkYourLocks { client } => {
            let callback = Callback::Shrink { locks: SHRINK_BY };
            (client, About::Blocking, callback)
        }
        _ => return None,
    };
    Some((Question { client, about }, callback))
}
