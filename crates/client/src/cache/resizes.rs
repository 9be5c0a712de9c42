//! Resizes of a file (truncate, fallocate, punch) that its OST may still lose.

use base::{FsError, Transno};
use wire::mdt::WriteTicket;

use crate::journal::resizes::RememberedResize;
use wire::shape::Shape;

/// With so many, the next one has them made durable first.
const RESIZES_MAX: usize = 64;

/// One of them, named among those of its file.
#[derive(Debug)]
pub(crate) struct Resize {
    pub id: u64,
    pub shape: Shape,
    /// The right to do so.
    pub ticket: WriteTicket,
    /// The OST's number for it, once it is done.
    at: Option<Transno>,
    /// The same for the next process.
    remembered: Option<RememberedResize>,
}

/// Those of a file that may not be durable, of which the OST may have none, some or all.
#[derive(Debug, Default)]
pub(crate) struct Resizes {
    list: Vec<Resize>,
    /// The OST has restarted since: nothing else of the file is sent before these are again.
    lost: bool,
    /// Somebody is at that.
    redoing: bool,
    begun: u64,
    /// Up to this one they could not be done again.
    failed: Option<(u64, FsError)>,
    cut: Cut,
}

/// Whether the file is to end where the first byte had no space at the OST.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Cut {
    #[default]
    No,
    /// At this byte, once nothing of the file is on its way.
    Due(u64),
    /// The OST is asked for it.
    UnderWay,
}

impl Resizes {
    /// Nothing may be lost.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && !self.is_cut()
    }

    /// The OST is asked for one: it is as before, or as it will be.
    pub fn is_under_way(&self) -> bool {
        !self.lost && self.list.iter().any(|resize| resize.at.is_none())
    }

    /// No more before these are durable.
    pub fn is_full(&self) -> bool {
        self.list.len() >= RESIZES_MAX
    }

    /// They have to be done, or done again, before anything else is.
    pub fn is_lost(&self) -> bool {
        self.lost || self.is_cut()
    }

    /// The file is to end at `end`, where it is to end nowhere before.
    pub fn ends(&mut self, end: u64) {
        self.cut = match self.cut {
            Cut::Due(before) => Cut::Due(before.min(end)),
            Cut::No | Cut::UnderWay => Cut::Due(end),
        };
    }

    /// The file is being cut off where there was no space, or about to be.
    pub fn is_cut(&self) -> bool {
        self.cut != Cut::No
    }

    /// Where the file is to be cut off, if nobody is at that.
    pub fn cut_due(&self) -> Option<u64> {
        match self.cut {
            Cut::Due(end) => Some(end),
            Cut::No | Cut::UnderWay => None,
        }
    }

    /// Somebody cuts the file off.
    pub fn begin_cut(&mut self) {
        self.cut = Cut::UnderWay;
    }

    /// The file is cut off, or will not be.
    pub fn end_cut(&mut self) {
        self.cut = Cut::No;
    }

    /// One that the OST is about to be asked for.
    pub fn begin(
        &mut self,
        shape: Shape,
        ticket: WriteTicket,
        remembered: Option<RememberedResize>,
    ) -> u64 {
        self.begun += 1;
        self.list.push(Resize {
            id: self.begun,
            shape,
            ticket,
            at: None,
            remembered,
        });
        self.begun
    }

    /// One that the process before began, and of which the OST may have nothing.
    pub fn inherit(&mut self, shape: Shape, ticket: WriteTicket, remembered: RememberedResize) {
        self.begin(shape, ticket, Some(remembered));
        self.lost = true;
    }

    /// The OST has done it, in the boot that it was begun in.
    pub fn done(&mut self, id: u64, transno: Transno) {
        let Some(place) = self.list.iter().position(|resize| resize.id == id) else {
            return;
        };
        self.list[place].at = Some(transno);
        let last = self.list[place].shape;
        let mut earlier = 0..place;
        // One that is under way comes after: what had no space was cut off meanwhile.
        self.list.retain(|resize| {
            earlier.next().is_none() || resize.at.is_none() || !last.undoes(resize.shape)
        });
        self.lost &= self.next_lost().is_some();
    }

    /// The OST has refused it.
    pub fn refused(&mut self, id: u64) {
        for resize in self.list.extract_if(.., |resize| resize.id == id) {
            resize.remembered.inspect(RememberedResize::refused);
        }
    }

    /// The OST has restarted.
    pub fn lose(&mut self) {
        self.lost = !self.list.is_empty();
        for resize in &mut self.list {
            resize.at = None;
        }
    }

    /// Somebody wants to do them again; false: another does.
    pub fn begin_redoing(&mut self) -> bool {
        !std::mem::replace(&mut self.redoing, true)
    }

    /// Who was at it has done what could be done.
    pub fn end_redoing(&mut self) {
        self.redoing = false;
    }

    /// The first that is to be done again.
    pub fn next_lost(&self) -> Option<&Resize> {
        let mut waiting = self.list.iter().filter(|resize| resize.at.is_none());
        waiting.next().filter(|_| self.lost)
    }

    /// All that are kept, in their order.
    #[cfg(test)]
    pub fn shapes(&self) -> Vec<Shape> {
        self.list.iter().map(|resize| resize.shape).collect()
    }

    /// They cannot be done again, or are nobody's concern any more. Returns whether there were any.
    pub fn give_up(&mut self, error: FsError) -> bool {
        (self.lost, self.cut) = (false, Cut::No);
        let had_any = !std::mem::take(&mut self.list).is_empty();
        if had_any {
            self.failed = Some((self.begun, error));
        }
        had_any
    }

    /// What came of one that was lost; nothing yet: it will be done again.
    pub fn outcome(&self, id: u64) -> Option<Result<(), FsError>> {
        if self.lost {
            return None;
        }
        Some(match self.failed {
            Some((last, error)) if id <= last => Err(error),
            _ => Ok(()),
        })
    }

    /// The OST's number for the first that it may lose.
    pub fn first_uncommitted(&self) -> Option<Transno> {
        self.list.iter().filter_map(|resize| resize.at).min()
    }

    /// Everything up to `last_committed` is durable.
    pub fn committed(&mut self, last_committed: Transno) {
        let is_durable = |at: Transno| at <= last_committed;
        self.list
            .retain(|resize| !resize.at.is_some_and(is_durable));
    }

    /// Everything that the OST has done is durable.
    pub fn settled(&mut self) {
        self.list.retain(|resize| resize.at.is_none());
    }
}

#[cfg(test)]
mod tests {
    use base::ByteRange;
    use wire::ost::AllocateMode;

    use super::*;

    const TICKET: WriteTicket = WriteTicket {
        layout_generation: 0,
        open_epoch: 0,
    };

    fn hole(start: u64, end: u64) -> Shape {
        Shape::Range(ByteRange::new(start, end), AllocateMode::PunchHole)
    }

    /// Each begun and done, with the numbers from `first` on.
    fn done(shapes: &[Shape], first: u64) -> Resizes {
        let mut resizes = Resizes::default();
        for (shape, transno) in shapes.iter().zip(first..) {
            let id = resizes.begin(*shape, TICKET, None);
            resizes.done(id, Transno(transno));
        }
        resizes
    }

    #[test]
    fn what_was_done_is_kept_until_it_is_durable() {
        let mut resizes = done(&[Shape::Size(5), hole(0, 2)], 7);
        let last = resizes.begin(Shape::Size(9), TICKET, None);
        resizes.committed(Transno(7));
        assert_eq!(resizes.shapes(), [hole(0, 2), Shape::Size(9)]);
        resizes.committed(Transno(100));
        assert_eq!(resizes.shapes(), [Shape::Size(9)], "it is on its way");
        resizes.done(last, Transno(101));
        resizes.committed(Transno(101));
        assert!(resizes.is_empty());
    }

    #[test]
    fn what_a_shorter_size_undoes_is_not_kept() {
        let grown = Shape::Range(ByteRange::new(10, 90), AllocateMode::Extend);
        let kept = done(&[Shape::Size(50), hole(5, 20), grown, Shape::Size(9)], 1);
        assert_eq!(kept.shapes(), [hole(5, 20), Shape::Size(9)]);
        let longer = done(&[Shape::Size(2), Shape::Size(9)], 1);
        assert_eq!(longer.shapes(), [Shape::Size(2), Shape::Size(9)]);
    }

    #[test]
    fn what_is_lost_is_done_again_in_its_order() {
        let mut resizes = done(&[Shape::Size(2), hole(0, 1)], 7);
        assert!(!resizes.is_under_way());
        let under_way = resizes.begin(Shape::Size(5), TICKET, None);
        assert!(resizes.is_under_way());
        resizes.lose();
        assert_eq!(resizes.outcome(under_way), None);
        resizes.committed(Transno(100));
        let mut again = Vec::new();
        while let Some(next) = resizes.next_lost() {
            again.push(next.shape);
            let id = next.id;
            resizes.done(id, Transno(again.len() as u64));
        }
        assert_eq!(again, [Shape::Size(2), hole(0, 1), Shape::Size(5)]);
        assert!(!resizes.is_lost() && !resizes.is_empty());
        assert_eq!(resizes.outcome(under_way), Some(Ok(())));
        resizes.settled();
        assert!(resizes.is_empty());
    }

    #[test]
    fn what_cannot_be_done_again_fails_for_who_waits() {
        let mut resizes = Resizes::default();
        let first = resizes.begin(hole(0, 1), TICKET, None);
        resizes.lose();
        resizes.give_up(FsError::NoSpace);
        let second = resizes.begin(hole(0, 1), TICKET, None);
        assert_eq!(resizes.outcome(first), Some(Err(FsError::NoSpace)));
        assert_eq!(resizes.outcome(second), Some(Ok(())));
        resizes.refused(second);
        assert!(resizes.is_empty() && !resizes.is_full());
    }
}
