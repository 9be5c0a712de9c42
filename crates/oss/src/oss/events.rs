//! What the lock table wants done: tell clients, run operations whose locks are there.

use base::{ClientId, FsError, Tick, Transno};
use dlm::{Glimpsed, Grant, Input, OpId, Output as Event, Refusal};
use layout::ObjectId;
use wire::ost::{Callback, Reply};

use super::{Oss, Parked, reply};
use crate::failure::Outcome;
use crate::locks::{self, Wish};
use crate::outbox::{Outbox, Output};
use crate::step::{Job, Need, Step};

/// Locks a client is asked to give back when it holds too many.
const SHRINK_LOCKS: u32 = 1024;

impl Oss {
    /// Does one of them.
    pub(super) fn take_event(&mut self, now: Tick, event: Event, out: &mut Outbox) {
        match event {
            Event::Granted { request, grant, .. } => self.granted(request.0, &grant, out),
            Event::Refused { request, why, .. } => self.give_up(request.0, refusal(why), out),
            Event::Ready { op, glimpses, busy } => self.ready(now, op, &glimpses, busy, out),
            Event::OpRefused { op } => self.give_up(op.0, FsError::TryAgain, out),
            Event::Aborted { op } => {
                self.parked.remove(&op.0);
            }
            Event::Blocking {
                client,
                handle,
                resource,
                mode,
                cover,
            } => {
                let (object, range) = (locks::object_of(resource), locks::range_of(cover));
                self.call_back(
                    client,
                    Callback::Blocking {
                        handle,
                        object,
                        range,
                        mode: mode.index() as u8,
                    },
                    out,
                );
            }
            Event::Glimpse {
                client,
                handle,
                resource,
            } => {
                let object = locks::object_of(resource);
                let id = self.call_back(client, Callback::Glimpse { handle, object }, out);
                self.glimpses.insert((client, id), handle);
            }
            Event::Tell {
                client,
                handle,
                resource,
                ops,
            } => {
                let grown = Callback::Grown {
                    handle,
                    object: locks::object_of(resource),
                    size: self.announced_by(&ops),
                };
                let id = self.call_back(client, grown, out);
                self.glimpses.insert((client, id), handle);
            }
            Event::ShrinkYourLocks { client } => {
                self.call_back(
                    client,
                    Callback::Shrink {
                        locks: SHRINK_LOCKS,
                    },
                    out,
                );
            }
            Event::EvictionDue { client } => {
                self.forget_client(now, client);
                out.push(Output::Evict { client });
            }
            Event::Misuse { client, reason } => {
                tracing::warn!(%client, reason, "a client misuses the lock protocol");
            }
            // Objects have no entries to withdraw.
            Event::Withdraw { .. } => {}
        }
    }

    fn call_back(&mut self, client: ClientId, callback: Callback, out: &mut Outbox) -> u64 {
        self.callbacks += 1;
        out.push(Output::Callback {
            client,
            id: self.callbacks,
            callback,
        });
        self.callbacks
    }

    /// The longest that one of these says an object is.
    fn announced_by(&self, ops: &[OpId]) -> u64 {
        let size = |op: &OpId| match self.parked.get(&op.0)?.job {
            Job::Announce { size, .. } => Some(size),
            _ => None,
        };
        ops.iter().filter_map(size).max().unwrap_or(0)
    }

    /// A lock that may have to be waited for.
    pub(crate) fn enqueue(
        &mut self,
        now: Tick,
        client: ClientId,
        wish: Wish,
        object: ObjectId,
    ) -> Outcome<Step> {
        let Some(grant) = self.locks.try_best(now, client, wish) else {
            return Ok(Step::Park(Job::Enqueue, Need::Grant(wish)));
        };
        let (grant, attr) = (locks::told(&grant), self.objects.attr(object)?);
        Step::answer(Reply::Locked { grant, attr })
    }

    /// A client's lock is there.
    fn granted(&mut self, wait: u64, grant: &Grant, out: &mut Outbox) {
        let Some(Parked { caller, .. }) = self.parked.remove(&wait) else {
            return;
        };
        let grant = locks::told(grant);
        match self.objects.attr(grant.object) {
            Ok(attr) => {
                let answer = Reply::Locked { grant, attr }.into();
                reply(out, caller, Ok(answer), Transno(0));
            }
            Err(failure) => {
                reply(out, caller, Err(failure.told()), Transno(0));
                self.note_failure(&failure, out);
            }
        }
    }

    fn give_up(&mut self, wait: u64, error: FsError, out: &mut Outbox) {
        if let Some(Parked { caller, .. }) = self.parked.remove(&wait) {
            reply(out, caller, Err(error), Transno(0));
        }
    }

    /// An operation has all it waited for: runs it and lets its locks go.
    fn ready(&mut self, now: Tick, op: OpId, glimpses: &[Glimpsed], busy: bool, out: &mut Outbox) {
        let Some(Parked { caller, job }) = self.parked.remove(&op.0) else {
            return self.locks.tell(now, Input::End { op });
        };
        let step = self.run(now, (caller.client, job), glimpses, busy);
        self.locks.tell(now, Input::End { op });
        self.proceed(now, caller, step, out);
    }

    fn run(
        &mut self,
        now: Tick,
        (client, job): (ClientId, Job),
        glimpses: &[Glimpsed],
        busy: bool,
    ) -> Outcome<Step> {
        if self.stopped {
            return Err(FsError::Io.into());
        }
        match job {
            Job::Append(append) => self.append_locked(now, append),
            Job::Resize(resize) => self.resize_locked(now, &resize),
            Job::Seek(seek) => self.seek_locked(&seek),
            Job::Map { object, offset } => self.map_locked(object, offset),
            Job::Glimpse { object } => self.glimpsed(object, glimpses, busy),
            Job::Announce { object, .. } => self.announced(now, client, object),
            // Its lock is the client's: it is granted, never run.
            Job::Enqueue => Err(FsError::Invalid.into()),
        }
    }
}

fn refusal(why: Refusal) -> FsError {
    match why {
        Refusal::Invalid => FsError::Invalid,
        Refusal::WouldBlock
        | Refusal::Contended
        | Refusal::TooManyLocks
        | Refusal::TooManyWaiting => FsError::TryAgain,
    }
}
