//! Size and times as of now, writers' unwritten bytes included, without disturbing anybody's cache.

use base::FsError;
use dlm::Glimpsed;
use layout::ObjectId;
use wire::ost::{CallbackReply, ObjectAttr, Reply};

use crate::failure::Outcome;
use crate::locks;
use crate::oss::Oss;
use crate::step::{Job, Need, Step};

/// Asks every other client that writes the object; a guess asks nobody.
pub(crate) fn glimpse(object: ObjectId, speculative: bool) -> Outcome<Step> {
    let of = locks::resource_of(object)?;
    Ok(Step::Park(
        Job::Glimpse { object },
        Need::Values { of, speculative },
    ))
}

impl Oss {
    /// The writers have answered, or let go of their locks.
    pub(crate) fn glimpsed(
        &self,
        object: ObjectId,
        answers: &[Glimpsed],
        busy: bool,
    ) -> Outcome<Step> {
        if busy {
            return Err(FsError::TryAgain.into());
        }
        let here = self.objects.attr(object)?;
        let attr = answers.iter().filter_map(said).fold(here, merged);
        Step::answer(Reply::Glimpsed { attr })
    }
}

/// What a writer said, if it makes sense.
fn said(answer: &Glimpsed) -> Option<CallbackReply> {
    wire::decode(&answer.value).ok()
}

/// The object with bytes that are here, and what a writer says of it.
fn merged(here: ObjectAttr, said: CallbackReply) -> ObjectAttr {
    match said {
        CallbackReply::Done | CallbackReply::Glimpse(None) => here,
        CallbackReply::Glimpse(Some(there)) => ObjectAttr {
            size: here.size.max(there.size),
            blocks: here.blocks.max(there.blocks),
            mtime: here.mtime.later(there.mtime),
        },
        // Nobody else writes.
        CallbackReply::Resizing(there) => ObjectAttr {
            mtime: here.mtime.later(there.mtime),
            ..there
        },
    }
}
