//! Changes of files that the MDT knows, and of which it has not heard (ADR 19): names that went, attributes.
//! Each has a record, from before its caller hears of it until the MDT has it. The next process reports them,
//! and answers a repeated request for which a name went.

use std::collections::HashMap;
use std::sync::Arc;

use base::{Fid, Name, Timestamp};
use handover::{Found, Records};
use serde::{Deserialize, Serialize};
use wire::update::AttrUpdate;

use super::births::{DoneFor, done_for};
use super::record::{self, EDIT, Marked, Noted, decode, encode};
use crate::executor;

/// In the mark: the kernel has the answer to the request that it was made for.
const ANSWERED: u64 = 1 << 63;
/// In the mark: the MDT has it, or it is lost.
const REPORTED: u64 = 1 << 62;

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum EditBody {
    /// The only name of a file went.
    Removal {
        dir: Fid,
        name: Name,
        fid: Fid,
        /// Its place in the list.
        cookie: u64,
        ctime: Timestamp,
    },
    /// Attributes, as far as they changed.
    Amendment {
        /// The directory whose write lease covers this.
        lease: Fid,
        fid: Fid,
        attr: AttrUpdate,
    },
}

/// Body of an [`EDIT`].
#[derive(Debug, Serialize, Deserialize)]
struct Body {
    edit: EditBody,
    /// Its place among all that was made and changed.
    order: u64,
    /// The kernel's request that it was made for; zero: none that must not be repeated.
    origin: u64,
}

/// All records of such changes.
#[derive(Default)]
pub(crate) struct RecordedEdits {
    by_number: HashMap<u64, Vec<Arc<Marked>>>,
    removed_for: DoneFor,
}

/// A change that the process before has left.
#[derive(Debug)]
pub(crate) struct FoundEdit {
    pub edit: EditBody,
    pub order: u64,
    record: Arc<Marked>,
}

impl FoundEdit {
    /// The file whose name went.
    pub fn removed(&self) -> Option<Fid> {
        match self.edit {
            EditBody::Removal { fid, .. } => Some(fid),
            EditBody::Amendment { .. } => None,
        }
    }
}

impl RecordedEdits {
    /// The change of that number is this one from now on. False: there is no room, and the MDT is to be
    /// asked.
    pub fn put(&mut self, records: &Records, number: u64, edit: EditBody, order: u64) -> bool {
        let is_removal = matches!(edit, EditBody::Removal { .. });
        let caller = executor::origin().filter(|_| is_removal);
        let body = Body {
            edit,
            order,
            origin: caller.as_ref().map_or(0, |origin| origin.number()),
        };
        let mark = if body.origin == 0 { ANSWERED } else { 0 };
        let Some(record) = record::put(records, EDIT, mark, &encode(&body)) else {
            return false;
        };
        let marked = Marked::new(record);
        if let Some(origin) = caller {
            origin.keep(Box::new(Noted::on_drop(&marked, ANSWERED)));
        }
        // The new one is there before the old one goes.
        self.by_number.insert(number, vec![marked]);
        true
    }

    /// The MDT has the change, or it is lost, or another one has made it needless.
    pub fn end(&mut self, number: u64) {
        for marked in self.by_number.remove(&number).into_iter().flatten() {
            marked.change(|mark| mark | REPORTED);
        }
    }

    /// All are lost.
    pub fn end_all(&mut self) {
        let all: Vec<u64> = self.by_number.keys().copied().collect();
        all.into_iter().for_each(|number| self.end(number));
    }

    /// Records of the process before were found: what is to be reported, in its order.
    pub fn adopt(&mut self, found: impl IntoIterator<Item = Found>) -> Vec<FoundEdit> {
        let mut left = Vec::new();
        for found in found {
            let Some(Body {
                edit,
                order,
                origin,
            }) = decode::<Body>(&found.bytes)
            else {
                continue;
            };
            let (mark, record) = (found.mark, Marked::new(found.record));
            if let EditBody::Removal { fid, .. } = edit
                && mark & ANSWERED == 0
            {
                let noted = Noted::on_drop(&record, ANSWERED);
                self.removed_for.insert(origin, (fid, noted));
            }
            if mark & REPORTED == 0 {
                left.push(FoundEdit {
                    edit,
                    order,
                    record,
                });
            }
        }
        left.sort_by_key(|found| found.order);
        left
    }

    /// A change that was found has that number now. Of two of one file the later one has all of the earlier.
    pub fn keep(&mut self, number: u64, found: FoundEdit) {
        self.by_number.entry(number).or_default().push(found.record);
    }

    /// The file whose name the process before had removed for the present task's origin. Says so once.
    pub fn was_removed(&mut self) -> Option<Fid> {
        done_for(&mut self.removed_for)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use handover::Region;

    use super::*;
    use crate::executor::Origin;

    fn removal(fid: u64) -> EditBody {
        EditBody::Removal {
            dir: Fid(1),
            name: Name::new(b"f").expect("good"),
            fid: Fid(fid),
            cookie: 7,
            ctime: Timestamp::default(),
        }
    }

    fn amendment(mode: u16) -> EditBody {
        EditBody::Amendment {
            lease: Fid(1),
            fid: Fid(9),
            attr: AttrUpdate {
                mode: Some(mode),
                ..AttrUpdate::default()
            },
        }
    }

    fn open(memory: &OwnedFd) -> (Records, Vec<Found>) {
        Records::open(Region::map(memory).unwrap()).unwrap()
    }

    #[test]
    fn what_was_not_reported_is_found_in_its_order_and_as_it_was_last() {
        let memory = Region::create(8 << 20).unwrap();
        let (records, _) = open(&memory);
        let mut edits = RecordedEdits::default();
        assert!(edits.put(&records, 1, amendment(0o600), 1));
        assert!(edits.put(&records, 2, removal(8), 2));
        assert!(edits.put(&records, 3, removal(7), 3));
        assert!(edits.put(&records, 1, amendment(0o640), 4));
        edits.end(2);
        std::mem::forget(edits);
        let mut edits = RecordedEdits::default();
        let left = edits.adopt(open(&memory).1);
        let found: Vec<&EditBody> = left.iter().map(|found| &found.edit).collect();
        assert_eq!(found, [&removal(7), &amendment(0o640)]);
        left.into_iter().for_each(|found| edits.keep(5, found));
        edits.end_all();
        assert_eq!(open(&memory).1.len(), 0);
    }

    #[test]
    fn a_request_that_removed_a_name_is_known_as_done_until_it_is_answered() {
        let memory = Region::create(8 << 20).unwrap();
        let (records, _) = open(&memory);
        let mut edits = RecordedEdits::default();
        let origins = [Origin::new(70), Origin::new(72)];
        for (number, origin) in (1..).zip(&origins) {
            let put = || edits.put(&records, number, removal(number), number);
            assert!(Origin::run(origin, put));
        }
        edits.end(2);
        std::mem::forget((edits, origins));
        let mut edits = RecordedEdits::default();
        let left = edits.adopt(open(&memory).1);
        assert_eq!(left.len(), 1, "of the other one the MDT knows");
        left.into_iter().for_each(|found| edits.keep(1, found));
        for (fid, number) in [(1, 70), (2, 72)] {
            let again = Origin::new(number);
            Origin::run(&again, || assert_eq!(edits.was_removed(), Some(Fid(fid))));
        }
        edits.end(1);
        assert_eq!(open(&memory).1.len(), 0, "both are answered");
    }
}
