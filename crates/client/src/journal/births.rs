//! Files that were made here and that the MDT does not know (ADR 19). Each has a record, from before its
//! maker hears of it until the MDT has it. The next process reports them, and answers a repeated request for
//! which one was made or removed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use base::{Fid, Name, Timestamp};
use handover::{Found, Record, Records};
use serde::{Deserialize, Serialize};
use wire::Attr;

use super::record::{self, BIRTH, DIRECTORY_TIME, Marked, Noted, decode, encode};
use crate::executor;

/// In the mark: the kernel has the answer to the request that made it.
const ANSWERED: u64 = 1 << 63;
/// In the mark: the MDT has it, or it is lost.
const REPORTED: u64 = 1 << 62;
/// The rest of the mark: the kernel's request that removed it.
const REMOVED_BY: u64 = REPORTED - 1;

const NANOS_IN_A_SECOND: u64 = 1_000_000_000;

/// Body of a [`BIRTH`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BirthBody {
    pub fid: Fid,
    pub dir: Fid,
    pub name: Name,
    /// As it was then. What was changed since has records of its own.
    pub attr: Attr,
    /// Where the list of its directory has it.
    pub cookie: u64,
    /// Of a symlink.
    pub target: Vec<u8>,
    /// Which of two is the later one, and which file was made first.
    pub order: u64,
    /// The kernel's request that it was made for; zero: none that can be repeated.
    pub origin: u64,
}

/// The kernel's requests for which the process before had made or removed a file.
pub(super) type DoneFor = HashMap<u64, (Fid, Noted)>;

/// All records of such files.
#[derive(Default)]
pub(crate) struct RecordedBirths {
    by_fid: HashMap<Fid, Arc<Marked>>,
    made_for: DoneFor,
    removed_for: DoneFor,
    /// Directories that have lost some.
    dates: HashMap<Fid, Record>,
}

/// What the process before has left.
#[derive(Debug, Default)]
pub(crate) struct FoundBirths {
    /// To be reported, in the order in which they were made.
    pub unreported: Vec<BirthBody>,
    /// Gone without a word to anybody.
    pub removed: HashSet<Fid>,
}

impl RecordedBirths {
    /// A file is made for the present task's origin, or is another now. False: there is no room, and the MDT
    /// must know of it first.
    pub fn put(&mut self, records: &Records, body: &BirthBody) -> bool {
        let mark = if body.origin == 0 { ANSWERED } else { 0 };
        let Some(record) = record::put(records, BIRTH, mark, &encode(body)) else {
            return false;
        };
        let marked = Marked::new(record);
        if let Some(origin) = executor::origin().filter(|_| body.origin != 0) {
            origin.keep(Box::new(Noted::on_drop(&marked, ANSWERED)));
        }
        // The new one is there before the old one goes.
        self.by_fid.insert(body.fid, marked);
        true
    }

    /// The MDT has the file, or it is lost.
    pub fn end(&mut self, fid: Fid) {
        if let Some(marked) = self.by_fid.remove(&fid) {
            marked.change(|mark| mark | REPORTED);
        }
    }

    /// The file is removed for the present task's origin.
    pub fn removed(&mut self, fid: Fid) {
        let Some(marked) = self.by_fid.remove(&fid) else {
            return;
        };
        match executor::origin() {
            Some(origin) => {
                marked.change(|mark| mark | origin.number() & REMOVED_BY);
                origin.keep(Box::new(Noted::on_drop(&marked, 0)));
            }
            None => marked.change(|mark| mark | REPORTED),
        }
    }

    /// Names of the directory changed at that time, and there is no file left in it to say so.
    pub fn date(&mut self, records: &Records, dir: Fid, at: Timestamp) {
        let mark = nanoseconds(at);
        match self.dates.get(&dir) {
            Some(record) => record.set_mark(record.mark().max(mark)),
            None => {
                let record = record::put(records, DIRECTORY_TIME, mark, &encode(&dir));
                self.dates.extend(record.map(|record| (dir, record)));
            }
        }
    }

    /// The MDT knows that.
    pub fn end_date(&mut self, dir: Fid) {
        self.dates.remove(&dir);
    }

    /// Records of such directories of the process before were found.
    pub fn adopt_dates(&mut self, found: Vec<Found>) -> Vec<(Fid, Timestamp)> {
        let dirs = found.into_iter().filter_map(|found| {
            let dir = decode::<Fid>(&found.bytes)?;
            self.dates.insert(dir, found.record);
            Some((dir, timestamp(found.mark)))
        });
        dirs.collect()
    }

    /// Records of the process before were found.
    pub fn adopt(&mut self, found: impl IntoIterator<Item = Found>) -> FoundBirths {
        let mut last: BTreeMap<Fid, (BirthBody, u64, Arc<Marked>)> = BTreeMap::new();
        let mut left = FoundBirths::default();
        for found in found {
            let Some(body) = decode::<BirthBody>(&found.bytes) else {
                continue;
            };
            let (mark, marked) = (found.mark, Marked::new(found.record));
            if mark & ANSWERED == 0 {
                let noted = Noted::on_drop(&marked, ANSWERED);
                self.made_for.insert(body.origin, (body.fid, noted));
            }
            if mark & REMOVED_BY != 0 {
                let noted = Noted::on_drop(&marked, 0);
                self.removed_for
                    .insert(mark & REMOVED_BY, (body.fid, noted));
                left.removed.insert(body.fid);
            }
            match last.get(&body.fid) {
                Some((known, ..)) if known.order > body.order => {}
                _ => drop(last.insert(body.fid, (body, mark, marked))),
            }
        }
        for (fid, (body, mark, marked)) in last {
            if mark & REPORTED == 0 && !left.removed.contains(&fid) {
                self.by_fid.insert(fid, marked);
                left.unreported.push(body);
            }
        }
        left.unreported.sort_by_key(|body| body.order);
        self.end_replaced(&mut left);
        left
    }

    /// Of two files with one name the later one has replaced the other.
    fn end_replaced(&mut self, left: &mut FoundBirths) {
        let mut by_name: HashMap<(Fid, Name), Fid> = HashMap::new();
        for body in &left.unreported {
            let at = (body.dir, body.name.clone());
            if let Some(replaced) = by_name.insert(at, body.fid) {
                self.end(replaced);
                left.removed.insert(replaced);
            }
        }
        let removed = &left.removed;
        left.unreported.retain(|body| !removed.contains(&body.fid));
    }

    /// The file that the process before had made for the present task's origin. Says so once.
    pub fn was_made(&mut self) -> Option<Fid> {
        done_for(&mut self.made_for)
    }

    /// The file that it had removed.
    pub fn was_removed(&mut self) -> Option<Fid> {
        done_for(&mut self.removed_for)
    }
}

/// Since 1970, as far as a mark goes: to the year 2554.
fn nanoseconds(at: Timestamp) -> u64 {
    let secs = u64::try_from(at.secs).unwrap_or_default();
    let nanos = secs.saturating_mul(NANOS_IN_A_SECOND);
    nanos.saturating_add(u64::from(at.nanos))
}

fn timestamp(nanoseconds: u64) -> Timestamp {
    Timestamp {
        secs: (nanoseconds / NANOS_IN_A_SECOND) as i64,
        nanos: (nanoseconds % NANOS_IN_A_SECOND) as u32,
    }
}

/// The file that was made or removed for the present task's origin. Says so once.
pub(super) fn done_for(done: &mut DoneFor) -> Option<Fid> {
    if done.is_empty() {
        return None;
    }
    let origin = executor::origin()?;
    let (fid, noted) = done.remove(&origin.number())?;
    origin.keep(Box::new(noted));
    Some(fid)
}

#[cfg(test)]
mod tests {
    use base::TargetIndex;
    use handover::Region;

    use super::*;
    use crate::executor::Origin;
    use crate::rig::attr_at;

    fn body(fid: u64, order: u64, origin: u64) -> BirthBody {
        BirthBody {
            fid: Fid(fid),
            dir: Fid(1),
            name: Name::try_from(format!("f{fid}").as_str()).expect("good"),
            attr: attr_at(TargetIndex(0)),
            cookie: 7,
            target: Vec::new(),
            order,
            origin,
        }
    }

    /// What the next process finds; the one before has ended without a word.
    fn next(memory: &std::os::fd::OwnedFd) -> (RecordedBirths, FoundBirths) {
        let (_, found) = Records::open(Region::map(memory).unwrap()).unwrap();
        let mut births = RecordedBirths::default();
        let left = births.adopt(found);
        (births, left)
    }

    #[test]
    fn what_was_not_reported_is_found_in_its_order_and_as_it_was_last() {
        let memory = Region::create(8 << 20).unwrap();
        let (records, _) = Records::open(Region::map(&memory).unwrap()).unwrap();
        let mut births = RecordedBirths::default();
        for (fid, order) in [(9, 1), (8, 2), (7, 3)] {
            assert!(births.put(&records, &body(fid, order, 0)));
        }
        births.end(Fid(8));
        assert!(births.put(&records, &body(9, 4, 0)));
        std::mem::forget(births);
        let (births, left) = next(&memory);
        assert_eq!(left.unreported, [body(7, 3, 0), body(9, 4, 0)]);
        std::mem::forget(births);
    }

    #[test]
    fn a_file_has_the_name_that_it_got_last_and_nobody_else_has() {
        let memory = Region::create(8 << 20).unwrap();
        let (records, _) = Records::open(Region::map(&memory).unwrap()).unwrap();
        let mut births = RecordedBirths::default();
        let named = |fid, order, origin, name: &str| BirthBody {
            name: Name::try_from(name).expect("good"),
            ..body(fid, order, origin)
        };
        assert!(births.put(&records, &named(8, 1, 0, "old")));
        assert!(births.put(&records, &named(9, 2, 0, "new")));
        let renamed = Origin::new(70);
        Origin::run(&renamed, || {
            assert!(births.put(&records, &named(9, 3, 70, "old")));
        });
        std::mem::forget((births, renamed));
        let (mut births, left) = next(&memory);
        assert_eq!(left.unreported, [named(9, 3, 70, "old")]);
        assert!(left.removed.contains(&Fid(8)));
        let again = Origin::new(70);
        Origin::run(&again, || assert_eq!(births.was_made(), Some(Fid(9))));
        drop(again);
        births.end(Fid(9));
        let (_, found) = Records::open(Region::map(&memory).unwrap()).unwrap();
        assert_eq!(found.len(), 0);
    }

    #[test]
    fn the_next_process_knows_when_a_directory_lost_its_last_new_file() {
        let memory = Region::create(8 << 20).unwrap();
        let (records, _) = Records::open(Region::map(&memory).unwrap()).unwrap();
        let mut births = RecordedBirths::default();
        let at = |secs| Timestamp { secs, nanos: 7 };
        for (dir, secs) in [(1, 2_000_000_000), (2, 5), (1, 3), (1, 2_000_000_001)] {
            births.date(&records, Fid(dir), at(secs));
        }
        births.end_date(Fid(2));
        std::mem::forget(births);
        let (_, found) = Records::open(Region::map(&memory).unwrap()).unwrap();
        let mut births = RecordedBirths::default();
        assert_eq!(births.adopt_dates(found), [(Fid(1), at(2_000_000_001))]);
        births.end_date(Fid(1));
        let (_, found) = Records::open(Region::map(&memory).unwrap()).unwrap();
        assert_eq!(found.len(), 0);
    }

    #[test]
    fn a_request_that_made_or_removed_a_file_is_known_as_done_until_it_is_answered() {
        let memory = Region::create(8 << 20).unwrap();
        let (records, _) = Records::open(Region::map(&memory).unwrap()).unwrap();
        let mut births = RecordedBirths::default();
        let (made, removed) = (Origin::new(70), Origin::new(72));
        Origin::run(&made, || assert!(births.put(&records, &body(9, 1, 70))));
        assert!(births.put(&records, &body(8, 2, 0)));
        Origin::run(&removed, || births.removed(Fid(8)));
        births.end(Fid(9));
        std::mem::forget((births, made, removed));
        let (mut births, left) = next(&memory);
        assert_eq!((left.unreported.len(), left.removed.len()), (0, 1));
        let (made, removed) = (Origin::new(70), Origin::new(72));
        Origin::run(&made, || {
            assert_eq!(births.was_removed(), None);
            assert_eq!(births.was_made(), Some(Fid(9)));
            assert_eq!(births.was_made(), None, "once");
        });
        Origin::run(&removed, || assert_eq!(births.was_removed(), Some(Fid(8))));
        drop((births, made, removed));
        let (_, found) = Records::open(Region::map(&memory).unwrap()).unwrap();
        assert_eq!(found.len(), 0, "both are answered");
    }
}
