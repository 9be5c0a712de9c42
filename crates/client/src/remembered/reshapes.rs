//! What was done to a file's size and to where it has space, in order, until it is durable at the OST.
//!
//! The next process does it again before it sends any byte of the file, unless it is durable; and
//! answers the kernel's request that it was for, which is asked again, without doing it once more:
//! others may have changed the file since.

use std::sync::{Arc, Mutex};

use base::limits::FILE_BYTES_MAX;
use base::{ByteRange, Fid, Timestamp};
use handover::{Found, Records};
use serde::{Deserialize, Serialize};
use wire::mdt::WriteTicket;
use wire::ost::AllocateMode;

use super::{Marked, Noted, RESHAPE, decode, encode};
use crate::cache::State;
use crate::executor;

/// In the mark: it need not be done again.
const DURABLE: u64 = 1;
/// In the mark: the kernel has its answer.
const ANSWERED: u64 = 2;

/// What is done to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Shape {
    /// It is so long.
    Size(u64),
    /// Space of a range is reserved, freed or zeroed.
    Space(ByteRange, AllocateMode),
}

/// Body of a [`RESHAPE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reshape {
    pub fid: Fid,
    pub shape: Shape,
    /// The right to do so.
    pub ticket: WriteTicket,
    pub mtime: Timestamp,
    /// Its place among all writes and reshapes.
    pub order: u64,
}

/// What stands before it: the kernel's request that it is for; zero: unknown.
type Origin = u64;

/// One that is to be done again until this is dropped.
#[derive(Debug)]
struct Kept {
    shape: Shape,
    _undurable: Noted,
}

/// Those of one file, in order.
#[derive(Debug, Default)]
pub(crate) struct RememberedReshapes(Vec<Kept>);

/// One that was found.
pub(crate) struct FoundReshape {
    pub reshape: Reshape,
    /// Not durable: it is to be done again.
    pub undurable: Option<UndurableReshape>,
    /// The kernel's request that it was for, if that is not answered, and what is kept until it is.
    pub unanswered: Option<(Origin, Noted)>,
}

/// What keeps it to be done again.
pub(crate) struct UndurableReshape(Noted);

impl Shape {
    /// What it leaves no byte of.
    pub fn takes(self) -> ByteRange {
        match self {
            Shape::Size(size) => ByteRange::from(size),
            Shape::Space(_, AllocateMode::Extend | AllocateMode::KeepSize) => ByteRange::new(0, 0),
            Shape::Space(range, _) => range,
        }
    }

    fn is_sound(self) -> bool {
        match self {
            Shape::Size(size) => size <= FILE_BYTES_MAX,
            Shape::Space(range, _) => range.start < range.end,
        }
    }
}

/// It is about to be done for the present task's origin. None: there is no room to remember it.
fn put(records: &Records, reshape: &Reshape, mark: u64) -> Option<Arc<Marked>> {
    let origin = executor::origin();
    let number = origin.as_ref().map_or(0, |origin| origin.number());
    let mark = mark | if number == 0 { ANSWERED } else { 0 };
    let record = records.put(RESHAPE, mark, &[&encode(&(number, *reshape))])?;
    let marked = Arc::new(Marked {
        record,
        changes: Mutex::new(()),
    });
    if let Some(origin) = origin {
        origin.keep(Box::new(Noted::on_drop(&marked, ANSWERED)));
    }
    Some(marked)
}

impl State {
    /// Remembers what is about to be done to a file, before anything of it is. `is_sent`: its OST has
    /// to be told. False: there is no room to, it must be durable before anybody hears of it.
    pub fn remember_reshape(
        &mut self,
        fid: Fid,
        (shape, is_sent): (Shape, bool),
        ticket: WriteTicket,
        mtime: Timestamp,
    ) -> bool {
        let Some(records) = self.records.clone() else {
            return true;
        };
        let order = self.write_order;
        self.write_order += 1;
        let reshape = Reshape {
            fid,
            shape,
            ticket,
            mtime,
            order,
        };
        match is_sent {
            true => self.file(fid).remembered_reshapes.add(&records, &reshape),
            // Of no use to the next process but for the kernel's answer.
            false => put(&records, &reshape, DURABLE).is_some(),
        }
    }

    /// The process before had done it for the same request of the kernel, or this one has done it
    /// again: it is not done once more.
    pub fn was_reshaped(&mut self) -> bool {
        let Some(origin) = executor::origin() else {
            return false;
        };
        let noted = self.reshaped_for.remove(&origin.number());
        let was = noted.is_some();
        if let Some(noted) = noted {
            origin.keep(Box::new(noted));
        }
        was
    }
}

impl RememberedReshapes {
    /// It is about to be done. False: there was no room for it.
    pub fn add(&mut self, records: &Records, reshape: &Reshape) -> bool {
        let Some(marked) = put(records, reshape, 0) else {
            return false;
        };
        self.keep(reshape.shape, Noted::on_drop(&marked, DURABLE));
        true
    }

    /// Takes over one that was found, later ones after earlier ones.
    pub fn adopt(&mut self, shape: Shape, undurable: UndurableReshape) {
        self.keep(shape, undurable.0);
    }

    /// Of sizes after each other the lowest and the last are what counts.
    fn keep(&mut self, shape: Shape, undurable: Noted) {
        self.0.push(Kept {
            shape,
            _undurable: undurable,
        });
        while let Some(index) = needless(&self.0) {
            self.0.remove(index);
        }
    }

    /// They are durable, or nobody's any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// How many are to be done again.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// The place of a size that those after it make up for, at the end of the list.
fn needless(kept: &[Kept]) -> Option<usize> {
    let sizes = kept.iter().rev().map_while(|kept| match kept.shape {
        Shape::Size(size) => Some(size),
        Shape::Space(..) => None,
    });
    let last: Vec<u64> = sizes.take(3).collect();
    match last[..] {
        [last, before, ..] if before >= last => Some(kept.len() - 2),
        [_, between, first] if first < between => Some(kept.len() - 2),
        _ => None,
    }
}

/// Reads a record. None: it is not one, or over.
pub(crate) fn found(found: Found) -> Option<FoundReshape> {
    let (origin, reshape): (Origin, Reshape) = decode(&found.bytes)?;
    if !reshape.shape.is_sound() {
        return None;
    }
    let marked = Arc::new(Marked {
        record: found.record,
        changes: Mutex::new(()),
    });
    let lacks = |bit| (found.mark & bit == 0).then(|| Noted::on_drop(&marked, bit));
    Some(FoundReshape {
        reshape,
        undurable: lacks(DURABLE).map(UndurableReshape),
        unanswered: lacks(ANSWERED).map(|noted| (origin, noted)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::Origin;
    use handover::Region;

    const FID: Fid = Fid(77);

    fn reshape(shape: Shape, order: u64) -> Reshape {
        Reshape {
            fid: FID,
            shape,
            ticket: WriteTicket::default(),
            mtime: Timestamp::default(),
            order,
        }
    }

    /// What another process would find: shapes to be done again, and requests to be answered.
    fn left(memory: &std::os::fd::OwnedFd) -> (Vec<Shape>, Vec<u64>) {
        let (_, records) = Records::open(Region::map(memory).unwrap()).unwrap();
        let mut all: Vec<FoundReshape> = records.into_iter().filter_map(found).collect();
        all.sort_by_key(|found| found.reshape.order);
        let again = all.iter().filter(|found| found.undurable.is_some());
        let again = again.map(|found| found.reshape.shape).collect();
        let asked = all.iter().filter_map(|found| found.unanswered.as_ref());
        let asked = asked.map(|(origin, _)| *origin).collect();
        // Left as a killed process would leave them.
        std::mem::forget(all);
        (again, asked)
    }

    #[test]
    fn it_stays_until_it_is_durable_and_answered() {
        let memory = Region::create(8 << 20).unwrap();
        let (records, _) = Records::open(Region::map(&memory).unwrap()).unwrap();
        let mut reshapes = RememberedReshapes::default();
        let one = Shape::Size(5);
        let origin = Origin::new(99);
        Origin::run(&origin, || reshapes.add(&records, &reshape(one, 1)));
        assert_eq!(left(&memory), (vec![one], vec![99]));
        reshapes.clear();
        assert_eq!(left(&memory), (vec![], vec![99]));
        drop(origin);
        assert_eq!((left(&memory), records.bytes()), ((vec![], vec![]), 0));
        let origin = Origin::new(100);
        Origin::run(&origin, || reshapes.add(&records, &reshape(one, 2)));
        drop(origin);
        assert_eq!(left(&memory), (vec![one], vec![]));
        reshapes.clear();
        assert_eq!((left(&memory), records.bytes()), ((vec![], vec![]), 0));
        let origin = Origin::new(101);
        Origin::run(&origin, || drop(put(&records, &reshape(one, 3), DURABLE)));
        assert_eq!(left(&memory), (vec![], vec![101]));
        drop(origin);
        assert_eq!(records.bytes(), 0);
    }

    /// Doing what is left leads to the same file as doing all of it.
    #[test]
    fn as_many_sizes_as_you_like_are_two() {
        use Shape::{Size, Space};
        let memory = Region::create(8 << 20).unwrap();
        let (records, _) = Records::open(Region::map(&memory).unwrap()).unwrap();
        let hole = Space(ByteRange::new(1, 4), AllocateMode::PunchHole);
        let cases: [(&[Shape], &[Shape]); 6] = [
            (&[Size(5), Size(2), Size(9)], &[Size(2), Size(9)]),
            (&[Size(2), Size(5), Size(9), Size(7)], &[Size(2), Size(7)]),
            (&[Size(5), Size(5)], &[Size(5)]),
            (&[Size(9), Size(7), Size(0)], &[Size(0)]),
            (&[Size(2), hole, Size(1)], &[Size(2), hole, Size(1)]),
            (
                &[hole, Size(3), Size(9), hole],
                &[hole, Size(3), Size(9), hole],
            ),
        ];
        for (done, kept) in cases {
            let mut reshapes = RememberedReshapes::default();
            for (order, shape) in (0..).zip(done) {
                assert!(reshapes.add(&records, &reshape(*shape, order)));
            }
            assert_eq!(left(&memory).0, kept, "{done:?}");
        }
    }

    #[test]
    fn what_is_no_reshape_is_left_out() {
        let memory = Region::create(8 << 20).unwrap();
        let (records, _) = Records::open(Region::map(&memory).unwrap()).unwrap();
        let mut bad: Vec<Vec<u8>> = vec![vec![], vec![255; 60]];
        let inverted = ByteRange { start: 9, end: 4 };
        for shape in [
            Shape::Size(u64::MAX),
            Shape::Space(inverted, AllocateMode::Zero),
        ] {
            bad.push(encode(&(7_u64, reshape(shape, 0))));
        }
        let whole = encode(&(7_u64, reshape(Shape::Size(1), 0)));
        bad.extend((0..whole.len()).map(|len| whole[..len].to_vec()));
        let kept: Vec<_> = bad
            .iter()
            .map(|body| records.put(RESHAPE, 0, &[body]))
            .collect();
        assert_eq!(left(&memory), (vec![], vec![]));
        drop(kept);
    }
}
