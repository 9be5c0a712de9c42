//! The first moments of a target's later life: clients write again what it lost, and what they had not sent
//! when their locks went. Nobody reads or gets a lock before they have; a write without a lock is refused
//! where another client has one (docs/recovery.md).

use std::time::Duration;

use base::limits::HELD_BYTES_MAX;
use base::{BootEpoch, ClientId, FsError, Tick, Timestamp};
use rpc::Departure;
use rpc::window::{Report, Window};
use storage::StorageError;
use wire::handshake::ClientUuid;
use wire::ost::{Reply, Request};

use crate::failure::{Failure, Outcome};
use crate::oss::{Call, Caller, Oss, Step};
use crate::outbox::{Outbox, Output};
use crate::records::KnownClient;

/// A life of the target that begins.
#[derive(Debug, Clone, Copy)]
pub struct Life {
    /// Its number.
    pub epoch: BootEpoch,
    /// When it begins.
    pub now: Tick,
    /// The same by the wall.
    pub wall: Timestamp,
    /// How long clients of the life before are waited for.
    pub window: Duration,
}

/// A request for when the window is over.
#[derive(Debug)]
pub(crate) struct Waiting {
    caller: Caller,
    request: Request,
    bulk: Vec<u8>,
}

/// Whom the target waits for since it lives.
#[derive(Debug)]
pub(crate) struct Recovery {
    pub life: BootEpoch,
    pub window: Window<Waiting>,
    /// Bytes of requests that wait.
    bytes: usize,
}

impl Recovery {
    pub fn new(life: BootEpoch, window: Window<Waiting>) -> Recovery {
        Recovery {
            life,
            window,
            bytes: 0,
        }
    }

    /// Who is gone waits for nothing.
    pub fn forget(&mut self, client: ClientId) {
        let bytes = &mut self.bytes;
        self.window.retain(|waiting| {
            let stays = waiting.caller.client != client;
            if !stays {
                *bytes -= waiting.bulk.len();
            }
            stays
        });
    }
}

impl Oss {
    /// A client's session begins. Nobody waits for who lives and dies with this process.
    pub fn connected(&mut self, client: ClientId, uuid: ClientUuid, dies_with_us: bool) {
        if !dies_with_us {
            self.clients_here.insert(client, uuid);
        }
    }

    /// What only servers may ask is refused to the client that has not proven to be one.
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
        (client, life): (ClientId, BootEpoch),
        out: &mut Outbox,
    ) -> Outcome<Step> {
        let Some(uuid) = self.clients_here.get(&client).copied() else {
            return Step::answer(Reply::Done);
        };
        if life != self.recovery.life {
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

    /// Clients of an earlier life are waited for.
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
        | Request::Witness { .. }
        | Request::Join { .. } => true,
        // Where it was so before, nobody can have come to have the object to himself.
        Request::Watch { again, .. } => *again,
        Request::Enqueue { .. }
        | Request::Announce { .. }
        | Request::Append { .. }
        | Request::Glimpse { .. }
        | Request::Seek { .. } => false,
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
