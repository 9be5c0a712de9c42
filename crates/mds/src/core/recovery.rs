//! What a crash has taken is done again, and who does not come is given up.

use std::ops::ControlFlow;

use base::{BootEpoch, ClientId, Fid, FsError, Tick, Timestamp, Transno};
use rpc::Departure;
use rpc::window::GIVEN_UP_FOR;
use storage::{KeyRange, StorageError};
use wire::mdt::{OpenHandle, Reply, Request, SetAttr};
use wire::update::Change;

use super::Mds;
use crate::event::{Call, Output};
use crate::keys::{self, ClientUuid, Table};
use crate::leaks::MayLack;
use crate::mutation::Mutation;
use crate::records::{BootBegun, KnownClient};
use crate::recovery::{Effect, Event, Recovery};
use crate::request::{PARKED_MAX, Parked, reply};
use crate::store::Failure;

impl Mds {
    /// Who is waited for since the restart.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Of that boot of the target, the newest change that is durable.
    pub fn survived(&self, boot_epoch: BootEpoch) -> Result<Transno, StorageError> {
        let (mut found, after) = (
            None,
            KeyRange::from(keys::boot_epoch(BootEpoch(boot_epoch.0 + 1)).to_vec()),
        );
        let next = self.store.scan(Table::Boots, &after, |_, next: BootBegun| {
            found = Some(next.committed);
            Ok(ControlFlow::Break(()))
        });
        match next {
            Ok(()) | Err(Failure::Refused(_)) => Ok(found.unwrap_or(self.committed)),
            Err(Failure::Broken(cause)) => Err(cause),
        }
    }

    /// The target gave up on this client, and it has not begun anew since.
    pub fn gave_up(&self, client: &ClientUuid) -> Result<bool, StorageError> {
        let known = self.known_client(client)?;
        Ok(known.is_some_and(|known| known.given_up.is_some()))
    }

    /// What is written down of this client.
    pub(crate) fn known_client(
        &self,
        client: &ClientUuid,
    ) -> Result<Option<KnownClient>, StorageError> {
        match self.store.get(Table::Clients, client) {
            Ok(known) => Ok(known),
            Err(Failure::Broken(cause)) => Err(cause),
            Err(Failure::Refused(_)) => Ok(None),
        }
    }

    /// It is, and that is not durable yet.
    pub fn is_giving_up(&self, client: &ClientUuid) -> bool {
        self.recovery.is_giving_up(client, self.committed)
    }

    /// This client lives and dies with the target's process: nobody ever waits for it.
    pub(crate) fn never_await(&mut self, client: ClientId) {
        if let Some(session) = self.clients.get_mut(&client) {
            session.known_since = Some(Transno(0));
        }
    }

    /// Serves a client, and so grants locks, only when it is durable that the client is to be waited for.
    /// After a crash it would else believe its cache while others change the files.
    pub(crate) fn wait_to_be_known(
        &mut self,
        call: Call,
        request: Request,
        out: &mut Vec<Output>,
    ) -> Option<Request> {
        if self.halted {
            return Some(request);
        }
        let since = match self.make_known(call.client) {
            Ok(since) => since,
            Err(failure) => {
                self.fail(call, failure, out);
                return None;
            }
        };
        if since <= self.committed {
            return Some(request);
        }
        if self.newcomers.len() >= PARKED_MAX {
            reply(out, call, Err(FsError::TryAgain));
            return None;
        }
        self.hurry(since);
        self.newcomers.push_back((since, call, request));
        None
    }

    /// With which change it is written down that this client is to be waited for.
    fn make_known(&mut self, client: ClientId) -> Result<Transno, Failure> {
        let session = self.clients.get(&client).ok_or(FsError::Stale)?;
        if let Some(since) = session.known_since {
            return Ok(since);
        }
        let uuid = session.uuid;
        self.upkeep(|txn, _| {
            txn.change(Mutation::PutClient(uuid, KnownClient { given_up: None }));
            Ok(())
        })?;
        let since = self.state.transno;
        if let Some(session) = self.clients.get_mut(&client) {
            session.known_since = Some(since);
        }
        Ok(since)
    }

    /// Those that have become known are served, in the order in which they asked.
    pub(crate) fn serve_newcomers(&mut self, out: &mut Vec<Output>) {
        let (now, wall) = (self.now, self.wall);
        while let Some((_, call, request)) = self
            .newcomers
            .pop_front_if(|(since, ..)| *since <= self.committed)
        {
            self.handle(now, wall, call, request, out);
        }
    }

    /// The request must wait for the end of the window, and does.
    pub(crate) fn wait_for_recovery(
        &mut self,
        call: Call,
        request: Request,
        out: &mut Vec<Output>,
    ) -> Option<Request> {
        let is_served = !self.recovery.is_open()
            || self.is_of_the_past(call, &request)
            || self.is_under_reclaimed(call, &request);
        if is_served {
            return Some(request);
        }
        if let Err(refused) = self.recovery.wait(call, request) {
            reply(out, call, Err(refused));
        }
        None
    }

    /// The request reports the state of an earlier boot: files that a client had open, changed under a lock,
    /// or gives back. One that names a lock or use of that boot is refused, and then reported in another way,
    /// all before the client is ready. No request that comes before may keep the slots.
    pub(crate) fn is_of_the_past(&self, call: Call, request: &Request) -> bool {
        match request {
            Request::Open { intent, .. } => intent.is_reopen(),
            Request::SetAttr { under, .. } => under.0 != 0,
            Request::Cancel { .. } | Request::Join { .. } | Request::ReclaimLease { .. } => true,
            Request::Close {
                fid,
                handle,
                change,
                ..
            } => self.is_over(call.client, *handle, *fid) || *change == SetAttr::default(),
            // Its client claims no lease for closes alone, and is not ready before they are answered.
            Request::Update { changes, .. } => changes.iter().all(|change| match change {
                Change::Size { fid, handle, .. } => {
                    *handle != OpenHandle::default() && self.is_over(call.client, *handle, *fid)
                }
                _ => false,
            }),
            _ => false,
        }
    }

    /// The target knows of no such use of the file, at least not in this boot.
    fn is_over(&self, client: ClientId, handle: OpenHandle, fid: Fid) -> bool {
        self.opens.get(handle, client, fid).is_err()
    }

    /// A client does again what it was answered with `answer` in an earlier boot.
    pub fn replay(
        &mut self,
        now: Tick,
        wall: Timestamp,
        call: Call,
        (request, answer): (Request, Reply),
        out: &mut Vec<Output>,
    ) {
        self.set_time(now, wall);
        let mut answers = Vec::new();
        if !self.halted {
            self.do_again(call, (request, answer), &mut answers);
        }
        // A target that stops has refused nothing: the client is to keep it for the next boot.
        let is_answer =
            |output: &Output| matches!(output, Output::Reply { tag, .. } if *tag == call.tag);
        answers.retain(|output| !(self.halted && is_answer(output)));
        out.append(&mut answers);
    }

    fn do_again(&mut self, call: Call, (request, answer): (Request, Reply), out: &mut Vec<Output>) {
        if !self.clients.contains_key(&call.client) {
            return reply(out, call, Err(FsError::Io));
        }
        match self.stored_reply(call) {
            Err(failure) => return self.fail(call, failure, out),
            Ok(Some(stored)) => {
                let Call { client, tag, .. } = call;
                return out.push(Output::Reply {
                    client,
                    tag,
                    result: Ok(answer),
                    transno: stored.transno,
                });
            }
            Ok(None) => {}
        }
        if matches!(request, Request::Open { .. }) {
            // The client that has it open still says so by itself.
            return reply(out, call, Ok(answer));
        }
        self.recovery.count_replay();
        let parked = Parked {
            replay: Some(Box::new(answer)),
            ..Parked::new(call, request)
        };
        self.attempt(parked, out);
    }

    /// An earlier boot gave this client up, and told it: it has nothing to do again.
    pub(crate) fn begins_anew(&mut self, client: ClientId) {
        if let Some(session) = self.clients.get_mut(&client) {
            session.begins_anew = true;
        }
    }

    /// A client has said all that it knows to be lost.
    pub fn ready_again(
        &mut self,
        now: Tick,
        wall: Timestamp,
        client: ClientId,
        out: &mut Vec<Output>,
    ) {
        self.set_time(now, wall);
        let Some(session) = self.clients.get_mut(&client) else {
            return;
        };
        let uuid = session.uuid;
        let awaited = self.recovery.awaits(uuid);
        // That it was given up was not durable.
        let again = std::mem::take(&mut session.begins_anew) && awaited;
        let given_up = match again {
            true => {
                session.known_since = None;
                self.give_up(uuid)
            }
            false => Ok(()),
        };
        let heard = given_up.and_then(|()| self.has_heard(uuid));
        if let Err(Failure::Broken(cause)) = heard {
            return self.halt(cause, out);
        }
        self.step_recovery(Event::Back(uuid), out);
    }

    /// A client that was given up was told so, and begins anew.
    fn has_heard(&mut self, uuid: ClientUuid) -> Result<(), Failure> {
        match self.gave_up(&uuid) {
            Ok(false) => Ok(()),
            Ok(true) => self.upkeep(|txn, _| {
                txn.change(Mutation::RemoveClient(uuid));
                Ok(())
            }),
            Err(cause) => Err(Failure::Broken(cause)),
        }
    }

    /// A client was waited for, and does not come. It may have had write leases: nothing is answered before
    /// its end is durable, or a restart would let it claim them.
    fn give_up(&mut self, client: ClientUuid) -> Result<(), Failure> {
        self.forget_client(client, Departure::GivenUp, MayLack::Files)?;
        self.lease_ended = self.state.transno;
        Ok(())
    }

    /// Ends the window now: who has not come back has lost what was not durable.
    pub fn give_up_waiting(&mut self, now: Tick, wall: Timestamp, out: &mut Vec<Output>) {
        self.set_time(now, wall);
        self.step_recovery(Event::Over, out);
    }

    pub(crate) fn step_recovery(&mut self, event: Event, out: &mut Vec<Output>) {
        for effect in self.recovery.step(self.now, event) {
            match effect {
                Effect::GiveUp(client) => self.give_up_missing(client, out),
                Effect::Serve(call, request) => {
                    let (now, wall) = (self.now, self.wall);
                    self.handle(now, wall, call, request, out);
                }
                Effect::EndReclaiming => self.reclaimed.end(),
            }
        }
    }

    /// The client may send a file that this target has made, since the process that was to hear of it is
    /// gone. Nobody else was in its directory meanwhile.
    pub(crate) fn may_be_done(&self, client: ClientId) -> bool {
        let uuid = self.clients.get(&client).map(|session| session.uuid);
        self.left_behind.contains_key(&client)
            || uuid.is_some_and(|uuid| self.recovery.awaits(uuid))
    }

    fn give_up_missing(&mut self, client: ClientUuid, out: &mut Vec<Output>) {
        if self.halted {
            return;
        }
        if let Err(Failure::Broken(cause)) = self.give_up(client) {
            return self.halt(cause, out);
        }
        // It may be here, and not done.
        let here = self.clients.iter().find(|(_, known)| known.uuid == client);
        out.extend(here.map(|(client, _)| Output::Evict { client: *client }));
    }

    /// A client has told all that it had of earlier boots.
    pub(crate) fn join(&mut self, client: ClientId, boot_epoch: BootEpoch) {
        if !self.recovery.is_of_boot(boot_epoch) {
            return;
        }
        if let Some(session) = self.clients.get(&client) {
            self.has_nothing_to_tell(session.uuid);
        }
    }

    /// What it had of earlier boots is told, or lost.
    pub(crate) fn has_nothing_to_tell(&mut self, uuid: ClientUuid) {
        self.recovery.told(self.now, uuid);
    }

    /// Who is gone waits for nothing.
    pub(crate) fn forget_waiting(&mut self, client: ClientId) {
        self.recovery.forget_waiting(client);
        self.newcomers.retain(|(_, call, _)| call.client != client);
        self.busy.forget(client);
        self.awaiting_ost.retain(|(waiting, _)| *waiting != client);
    }

    /// That a client was given up long ago is forgotten.
    pub(crate) fn forget_given_up(&mut self) -> Result<(), Failure> {
        let (mut old, wall) = (Vec::new(), self.wall);
        self.store.scan(
            Table::Clients,
            &KeyRange::all(),
            |key, client: KnownClient| {
                let past = |at: Timestamp| wall.secs - at.secs > GIVEN_UP_FOR.as_secs() as i64;
                if client.given_up.is_some_and(past) {
                    old.extend(keys::parse_client(key));
                }
                Ok(ControlFlow::Continue(()))
            },
        )?;
        if old.is_empty() {
            return Ok(());
        }
        self.upkeep(|txn, _| {
            old.into_iter()
                .for_each(|client| txn.change(Mutation::RemoveClient(client)));
            Ok(())
        })
    }
}
