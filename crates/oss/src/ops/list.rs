//! Which objects are here: an MDT looks for those of files that it lost.
//!
//! Most have a record. Of those that were new in a crash only the bytes may be here, and these are
//! looked for outside the core, once for a whole list: with its first page.

use base::Fid;
use layout::ObjectId;
use wire::ost::Reply;

use crate::failure::Outcome;
use crate::objects::Objects;
use crate::oss::Step;
use crate::syncer::ListWork;

/// Objects in one page.
const OBJECTS_MAX: usize = 1024;

/// See [`wire::ost::Request::List`].
pub fn list(objects: &Objects, from: ObjectId) -> Outcome<Step> {
    let mut found = objects.of_sequence(from, OBJECTS_MAX + 1)?;
    let next = (found.len() > OBJECTS_MAX).then(|| found.pop()).flatten();
    let sequence = from.fid.sequence();
    let first = ObjectId {
        fid: Fid::new(sequence, 0),
        stripe: 0,
    };
    let objects = found;
    match from == first {
        true => Ok(Step::List(ListWork {
            sequence,
            objects,
            next,
        })),
        false => Step::answer(Reply::Objects { objects, next }),
    }
}
