//! Growth that others must hear of: a client that has an object open to read watches it, in CR. A
//! client that makes it longer announces that, unless it has the object in EX.

use base::{ClientId, FsError, LockHandle, Tick};
use dlm::{Input, Keep, Mode};
use layout::ObjectId;
use wire::ost::Reply;

use crate::failure::Outcome;
use crate::locks::{self, Wish};
use crate::oss::Oss;
use crate::step::{Job, Need, Step};

/// What a client watches, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watch {
    pub object: ObjectId,
    pub writes: bool,
    pub again: bool,
}

impl Oss {
    /// More than CR where that can be had at once: who opens an object will want that next.
    pub(crate) fn watch(&mut self, now: Tick, client: ClientId, watch: Watch) -> Outcome<Step> {
        let Watch {
            object,
            writes,
            again,
        } = watch;
        let mode = if writes { Mode::PW } else { Mode::PR };
        let wish = Wish::all(object, mode)?;
        let watch = Wish::all(object, Mode::CR)?;
        let at_once = match again {
            true => self.locks.try_grant(now, client, watch),
            false => self.locks.try_best(now, client, wish),
        };
        match at_once {
            Some(grant) => {
                let (grant, attr) = (locks::told(&grant), self.objects.attr(object)?);
                Step::answer(Reply::Locked { grant, attr })
            }
            // It is asked together with many others, which are not to wait.
            None if again => Err(FsError::TryAgain.into()),
            None => Ok(Step::Park(Job::Enqueue, Need::Grant(watch))),
        }
    }

    /// The watchers have heard of it.
    pub(crate) fn announced(
        &mut self,
        now: Tick,
        client: ClientId,
        object: ObjectId,
    ) -> Outcome<Step> {
        let alone = Wish::all(object, Mode::EX)?;
        let grant = self.locks.try_grant(now, client, alone);
        let (grant, attr) = (grant.as_ref().map(locks::told), self.objects.attr(object)?);
        Step::answer(Reply::Announced { grant, attr })
    }

    /// A client keeps less of a lock.
    pub(crate) fn convert(
        &mut self,
        now: Tick,
        client: ClientId,
        (handle, mode): (LockHandle, u8),
    ) -> Outcome<Step> {
        let keep = Keep::Mode(Mode::from_index(mode).ok_or(FsError::Invalid)?);
        let converted = Input::Convert {
            client,
            handle,
            keep,
        };
        self.locks.tell(now, converted);
        Step::answer(Reply::Done)
    }
}

/// Waits until all who watch the object have heard how long it is.
pub(crate) fn announce(object: ObjectId, size: u64) -> Outcome<Step> {
    let of = locks::resource_of(object)?;
    Ok(Step::Park(
        Job::Announce { object, size },
        Need::Watchers(of),
    ))
}
