//! Size and times as of now, writers' unwritten bytes included, without disturbing anybody's cache.

use base::FsError;
use dlm::Glimpsed;
use layout::ObjectId;
use wire::ost::{ObjectAttr, Reply};

use crate::failure::Outcome;
use crate::locks;
use crate::oss::{Job, Need, Oss, Step};

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
        let attr = answers.iter().filter_map(seen).fold(here, merged);
        Step::answer(Reply::Glimpsed { attr })
    }
}

/// What a writer said, if it said anything that makes sense.
fn seen(answer: &Glimpsed) -> Option<ObjectAttr> {
    wire::decode::<Option<ObjectAttr>>(&answer.value)
        .ok()
        .flatten()
}

/// The object with bytes that are here and bytes that are not.
fn merged(a: ObjectAttr, b: ObjectAttr) -> ObjectAttr {
    ObjectAttr {
        size: a.size.max(b.size),
        blocks: a.blocks.max(b.blocks),
        mtime: a.mtime.later(b.mtime),
    }
}
