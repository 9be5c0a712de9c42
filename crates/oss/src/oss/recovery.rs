//! The first moments of a later boot, in the core: who is waited for, and what waits.

use base::limits::HELD_BYTES_MAX;
use base::{BootEpoch, ClientId, FsError, Tick, Timestamp};
use rpc::Departure;
use rpc::window::Report;
use storage::StorageError;
use wire::handshake::ClientUuid;
use wire::ost::{Reply, Request};

use crate::failure::{Failure, Outcome};
use crate::oss::Oss;
use crate::outbox::{Outbox, Output};
use crate::records::KnownClient;
use crate::recovery::Waiting;
use crate::step::{Call, Caller, Step};

impl Oss {
    /// A client's session begins. Nobody waits for who lives and dies with this process.
    pub fn connected(&mut self, client: ClientId, uuid: ClientUuid, dies_with_us: bool) {
        if !dies_with_us {
            self.clients_here.insert(client, uuid);
        }
    }

    /// Refuses a request that only servers may send to a client without the servers' credential.
    pub(crate) fn permitted(&self, client: ClientId, request: Request) -> Result<Request, FsError> {
        match request.is_for_servers() && !self.servers.contains(&client) {
            true => Err(FsError::NotPermitted),
            false => Ok(request),
        }
    }

    /// The target gave up on this client, and it has not joined since.
    pub fn gave_up(&self, client: ClientUuid) -> Result<bool, StorageError> {
        let known = self.clients.get(client)?;
        Ok(known.is_some_and(|known| known.given_up.is_some()))
    }

    /// Whom it waits for since the restart.
    pub fn recovery(&self, now: Tick) -> Report {
        self.recovery.window.report(now)
    }

    /// Waits no longer: who has not come back has lost what was not durable.
    pub fn give_up_waiting(&mut self, now: Tick, wall: Timestamp, out: &mut Outbox) {
        self.end_recovery(now, wall, out);
        self.finish(now, out);
    }

    /// A client's session has ended: its locks and waiting requests go too.
    pub fn end_session(
        &mut self,
        now: Tick,
        wall: Timestamp,
        (client, how): (ClientId, Departure),
        out: &mut Outbox,
    ) {
        self.forget_client(now, client);
        self.servers.remove(&client);
        if let Some(uuid) = self.clients_here.remove(&client) {
            if let Err(error) = self.note_departure(now, wall, uuid, how) {
                self.note_failure(&Failure::Storage(error), out);
            }
            self.is_back(now, wall, uuid, out);
        }
        self.finish(now, out);
    }

    fn note_departure(
        &mut self,
        now: Tick,
        wall: Timestamp,
        uuid: ClientUuid,
        how: Departure,
    ) -> Result<(), StorageError> {
        if self.clients.get(uuid)?.is_none() {
            return Ok(());
        }
        match how {
            Departure::Goodbye => self.clients.remove(uuid)?,
            Departure::GivenUp => {
                let given_up = Some(wall.secs);
                self.clients.put(uuid, KnownClient { given_up })?;
            }
        }
        // Or a crash that comes soon would have others wait for who is gone.
        self.modified(now, 0);
        self.durability.hurry();
        Ok(())
    }

    /// A client has written what the target lost, and may have more from now on.
    pub(crate) fn join(
        &mut self,
        now: Tick,
        wall: Timestamp,
        (client, boot_epoch): (ClientId, BootEpoch),
        out: &mut Outbox,
    ) -> Outcome<Step> {
        let Some(uuid) = self.clients_here.get(&client).copied() else {
            return Step::answer(Reply::Done);
        };
        if boot_epoch != self.recovery.boot_epoch {
            return Step::answer(Reply::Done);
        }
        self.is_back(now, wall, uuid, out);
        let known = KnownClient { given_up: None };
        if self.clients.get(uuid)? == Some(known) {
            return Step::answer(Reply::Done);
        }
        self.clients.put(uuid, known)?;
        self.modified(now, 0);
        Ok(Step::Sync)
    }

    /// Clients of an earlier boot are waited for.
    pub(crate) fn is_recovering(&self) -> bool {
        self.recovery.window.is_open()
    }

    /// The request must wait for the end of the window, and does, or is refused.
    pub(crate) fn wait_for_recovery<'a>(
        &mut self,
        call: Call<'a>,
    ) -> Result<Option<Call<'a>>, FsError> {
        if !self.recovery.window.is_open() || runs_at_once(&call.request) {
            return Ok(Some(call));
        }
        let bytes = self.recovery.bytes + call.bulk.len();
        if is_guess(&call.request) || bytes > HELD_BYTES_MAX {
            return Err(FsError::TryAgain);
        }
        let waiting = Waiting {
            caller: Caller {
                client: call.client,
                tag: call.tag,
            },
            bulk: match call.request {
                Request::Append { .. } => call.bulk.to_vec(),
                _ => Vec::new(),
            },
            request: call.request,
        };
        let held = waiting.bulk.len();
        let waits = self.recovery.window.wait(waiting);
        waits.map_err(|_| FsError::TryAgain)?;
        self.recovery.bytes += held;
        Ok(None)
    }

    /// The longest that the target waits is over, if it is.
    pub(crate) fn look_at_the_window(&mut self, now: Tick, wall: Timestamp, out: &mut Outbox) {
        let until = self.recovery.window.until();
        if until.is_some_and(|until| until <= now) {
            self.end_recovery(now, wall, out);
        }
    }

    fn is_back(&mut self, now: Tick, wall: Timestamp, uuid: ClientUuid, out: &mut Outbox) {
        if self.recovery.window.is_back(uuid) {
            self.end_recovery(now, wall, out);
        }
    }

    fn end_recovery(&mut self, now: Tick, wall: Timestamp, out: &mut Outbox) {
        let Some((missing, waiting)) = self.recovery.window.end() else {
            return;
        };
        self.recovery.bytes = 0;
        for uuid in missing {
            if let Err(error) = self.note_departure(now, wall, uuid, Departure::GivenUp) {
                self.note_failure(&Failure::Storage(error), out);
            }
            // It may be here, and not done.
            let here = self.clients_here.iter().find(|(_, known)| **known == uuid);
            out.extend(here.map(|(client, _)| Output::Evict { client: *client }));
        }
        tracing::info!("recovery is over");
        for Waiting {
            caller,
            request,
            bulk,
        } in waiting
        {
            let call = Call {
                client: caller.client,
                tag: caller.tag,
                request,
                bulk: &bulk,
            };
            self.handle(now, wall, call, out);
        }
    }
}

/// It takes part in recovery, or shows nothing of what files hold.
fn runs_at_once(request: &Request) -> bool {
    match request {
        // Nobody has a lock yet: it reads what nobody else can change, or is told to get one; or it
        // changes once more what was changed under one that is lost.
        Request::Read { .. }
        | Request::Write { .. }
        | Request::Truncate { .. }
        | Request::Allocate { .. } => true,
        Request::Sync
        | Request::Destroy { .. }
        | Request::Cancel { .. }
        | Request::Convert { .. }
        | Request::StatFs
        | Request::Watermark { .. }
        | Request::Join { .. } => true,
        // Others wait until the client that asks is settled, and in a window there is nothing to inherit.
        Request::Inherit { .. } => true,
        // Where it was so before, nobody can have come to have the object to himself.
        Request::Watch { again, .. } => *again,
        Request::Enqueue { .. }
        | Request::Announce { .. }
        | Request::Append { .. }
        | Request::Glimpse { .. }
        | Request::Seek { .. }
        | Request::Map { .. } => false,
        // What comes back in the window is to be among them.
        Request::List { .. } => false,
    }
}

/// Nobody waits for its answer: it is a guess ahead of need.
fn is_guess(request: &Request) -> bool {
    matches!(
        request,
        Request::Glimpse {
            speculative: true,
            ..
        }
    )
}
