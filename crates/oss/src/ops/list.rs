//! Which objects are here: an MDT looks for those of files that it lost.

use layout::ObjectId;
use wire::ost::Reply;

use crate::failure::Outcome;
use crate::objects::Objects;
use crate::oss::Step;

/// Objects in one answer.
const OBJECTS_MAX: usize = 1024;

/// See [`wire::ost::Request::List`].
pub fn list(objects: &Objects, from: ObjectId) -> Outcome<Step> {
    let mut found = objects.of_sequence(from, OBJECTS_MAX + 1)?;
    let next = (found.len() > OBJECTS_MAX).then(|| found.pop()).flatten();
    let objects = found;
    Step::answer(Reply::Objects { objects, next })
}
