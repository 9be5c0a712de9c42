//! Which objects are here: an MDT looks for those of files that it lost.

use layout::ObjectId;
use wire::ost::Reply;

use crate::failure::Outcome;
use crate::objects::Objects;
use crate::step::Step;
use crate::work::ListWork;

/// Objects in one answer.
pub(crate) const LISTED_MAX: usize = 256;

/// See [`wire::ost::Request::List`].
pub fn list(objects: &Objects, from: ObjectId, unrecorded: bool) -> Outcome<Step> {
    match unrecorded {
        true => Ok(Step::List(ListWork { from })),
        false => Step::answer(page(objects.of_sequence(from, LISTED_MAX + 1)?)),
    }
}

/// The answer with the first objects of a list, of which there is one more if the list goes on.
pub(crate) fn page(mut objects: Vec<ObjectId>) -> Reply {
    let next = (objects.len() > LISTED_MAX).then(|| objects.pop());
    let next = next.flatten();
    Reply::Objects { objects, next }
}
