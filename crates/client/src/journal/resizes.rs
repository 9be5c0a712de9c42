//! Changes of a file's size and space, in order, until they are durable at the OST. The next process does
//! them again before it sends bytes of the file, and answers the kernel's repeated request without doing the
//! change once more.

use std::sync::Arc;

use base::limits::FILE_BYTES_MAX;
use base::{Fid, Timestamp};
use handover::{Found, Records};
use serde::{Deserialize, Serialize};
use wire::mdt::WriteTicket;

use super::record::{Marked, Noted, RESIZE, decode, encode};
use crate::executor;
use wire::shape::Shape;

/// In the mark: it need not be done again.
const DURABLE: u64 = 1;
/// In the mark: the kernel has its answer.
const ANSWERED: u64 = 2;
/// In the mark: it was not done.
const REFUSED: u64 = 4;

/// Body of a [`RESIZE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Resize {
    pub fid: Fid,
    pub shape: Shape,
    /// The right to do so.
    pub ticket: WriteTicket,
    pub mtime: Timestamp,
    /// Its place among all writes and resizes.
    pub order: u64,
}

/// What stands before it: the kernel's request that it is for; zero: unknown.
type Origin = u64;

/// What has the next process do it again, until this is dropped.
#[derive(Debug)]
pub(crate) struct RememberedResize(Noted);

/// One that was found.
pub(crate) struct FoundResize {
    pub resize: Resize,
    /// Not durable: it is to be done again.
    pub undurable: Option<RememberedResize>,
    /// The kernel's request that it was for, if that is not answered, and what is kept until it is.
    pub unanswered: Option<(Origin, Noted)>,
}

fn is_sound(shape: Shape) -> bool {
    match shape {
        Shape::Size(size) => size <= FILE_BYTES_MAX,
        Shape::Range(range, _) => range.start < range.end,
    }
}

/// It is about to be done for the present task's origin. None: there is no room to remember it.
fn put(records: &Records, resize: &Resize, mark: u64) -> Option<Arc<Marked>> {
    let origin = executor::origin();
    let number = origin.as_ref().map_or(0, |origin| origin.number());
    let mark = mark | if number == 0 { ANSWERED } else { 0 };
    let record = records.put(RESIZE, mark, &[&encode(&(number, *resize))])?;
    let marked = Marked::new(record);
    if let Some(origin) = origin {
        origin.keep(Box::new(Noted::on_drop(&marked, ANSWERED)));
    }
    Some(marked)
}

/// Records a resize before it begins. `is_sent`: it goes to the OST; else the next process needs it for the
/// kernel's answer only. None: there is no room.
pub(crate) fn remember(
    records: &Records,
    resize: &Resize,
    is_sent: bool,
) -> Option<Option<RememberedResize>> {
    let mark = if is_sent { 0 } else { DURABLE };
    let marked = put(records, resize, mark)?;
    let remembered = RememberedResize(Noted::on_drop(&marked, DURABLE));
    Some(is_sent.then_some(remembered))
}

impl RememberedResize {
    /// It was not done: a caller that asks again must get it done.
    pub fn refused(&self) {
        self.0.change(|mark| mark | REFUSED);
    }
}

/// Reads a record. None: it is not one, or over.
pub(crate) fn found(found: Found) -> Option<FoundResize> {
    let (origin, resize): (Origin, Resize) = decode(&found.bytes)?;
    if !is_sound(resize.shape) || found.mark & REFUSED != 0 {
        return None;
    }
    let marked = Marked::new(found.record);
    let lacks = |bit| (found.mark & bit == 0).then(|| Noted::on_drop(&marked, bit));
    Some(FoundResize {
        resize,
        undurable: lacks(DURABLE).map(RememberedResize),
        unanswered: lacks(ANSWERED).map(|noted| (origin, noted)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::Origin;
    use base::ByteRange;
    use handover::Region;
    use wire::ost::AllocateMode;

    const FID: Fid = Fid(77);

    fn resize(shape: Shape, order: u64) -> Resize {
        Resize {
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
        let mut all: Vec<FoundResize> = records.into_iter().filter_map(found).collect();
        all.sort_by_key(|found| found.resize.order);
        let again = all.iter().filter(|found| found.undurable.is_some());
        let again = again.map(|found| found.resize.shape).collect();
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
        let one = Shape::Size(5);
        let begin = |origin: &Arc<Origin>| {
            let put = || put(&records, &resize(one, 1), 0).unwrap();
            RememberedResize(Noted::on_drop(&Origin::run(origin, put), DURABLE))
        };
        let origin = Origin::new(99);
        let remembered = begin(&origin);
        assert_eq!(left(&memory), (vec![one], vec![99]));
        drop(remembered);
        assert_eq!(left(&memory), (vec![], vec![99]));
        drop(origin);
        assert_eq!((left(&memory), records.bytes()), ((vec![], vec![]), 0));
        let origin = Origin::new(100);
        let remembered = begin(&origin);
        drop(origin);
        assert_eq!(left(&memory), (vec![one], vec![]));
        drop(remembered);
        assert_eq!((left(&memory), records.bytes()), ((vec![], vec![]), 0));
        let origin = Origin::new(102);
        begin(&origin).refused();
        assert_eq!(left(&memory), (vec![], vec![]), "it is to be asked for");
        drop(origin);
        let origin = Origin::new(101);
        Origin::run(&origin, || drop(put(&records, &resize(one, 3), DURABLE)));
        assert_eq!(left(&memory), (vec![], vec![101]));
        drop(origin);
        assert_eq!(records.bytes(), 0);
    }

    #[test]
    fn what_is_no_resize_is_left_out() {
        let memory = Region::create(8 << 20).unwrap();
        let (records, _) = Records::open(Region::map(&memory).unwrap()).unwrap();
        let mut bad: Vec<Vec<u8>> = vec![vec![], vec![255; 60]];
        let inverted = ByteRange { start: 9, end: 4 };
        for shape in [
            Shape::Size(u64::MAX),
            Shape::Range(inverted, AllocateMode::Zero),
        ] {
            bad.push(encode(&(7_u64, resize(shape, 0))));
        }
        let whole = encode(&(7_u64, resize(Shape::Size(1), 0)));
        bad.extend((0..whole.len()).map(|len| whole[..len].to_vec()));
        let kept: Vec<_> = bad
            .iter()
            .map(|body| records.put(RESIZE, 0, &[body]))
            .collect();
        assert_eq!(left(&memory), (vec![], vec![]));
        drop(kept);
    }
}
