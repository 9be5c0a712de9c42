//! The files that have something to send, to settle, to close or to report, in the order in which that is
//! due.

use std::collections::BTreeSet;

use base::{Fid, TargetIndex, Tick, Transno};

use super::queue::Queue;
use crate::cache::file::FileState;

/// An OST; none is known yet of a file whose attributes are on their way.
type Ost = Option<TargetIndex>;

/// Frames with file data on their way at once; beyond, the rest waits for their answers.
pub(crate) const FRAMES_MAX: u32 = 4;

/// All files with anything of that. A frame or a tick looks at the files that it is about, and at no others.
#[derive(Debug, Default)]
pub(crate) struct WriteBack {
    /// Bytes to send. None of a file's is older than its key says.
    dirty: Queue<(Ost, Tick)>,
    /// Bytes on their way. The same.
    sending: Queue<(Ost, Tick)>,
    /// Changes that an OST has, but not durably, and the first of them, or one before it.
    uncommitted: Queue<(Ost, Transno)>,
    closing: Closing,
    /// Attributes changed under the MDT's EX lock, perhaps told since, and when the first of them was.
    changed: Queue<Tick>,
    /// Frames of old bytes on their way.
    frames: u32,
}

/// Files whose last writer closed them: the MDT is told when all is durable.
#[derive(Debug, Default)]
struct Closing {
    /// Nothing of them is on its way to be durable: to be looked at.
    settled: BTreeSet<Fid>,
    /// Something is.
    unsettled: BTreeSet<Fid>,
}

impl WriteBack {
    /// The file has changed, or what its OST said of it.
    pub fn note(&mut self, fid: Fid, ost: Ost, file: &FileState) {
        let since = |since: Option<Tick>| since.map(|since| (ost, since));
        self.dirty.set(fid, since(file.pages.dirty_since()));
        self.sending.set(fid, since(file.pages.sending_since()));
        if self.uncommitted.contains(fid) {
            self.uncommitted
                .set(fid, Some((ost, file.durability.first_unsettled())));
        }
        if file.is_settled() && self.closing.unsettled.remove(&fid) {
            self.closing.settled.insert(fid);
        }
    }

    /// Its OST has answered a change of it, or has all that it was asked for durably.
    pub fn is_uncommitted(&mut self, (fid, ost): (Fid, Ost), first: Option<Transno>) {
        self.uncommitted.set(fid, first.map(|first| (ost, first)));
    }

    /// Its attributes were changed under the MDT's EX lock.
    pub fn is_changed(&mut self, fid: Fid, now: Tick) {
        if !self.changed.contains(fid) {
            self.changed.set(fid, Some(now));
        }
    }

    /// Those that were until `then`, since this was asked last.
    pub fn take_changed(&mut self, then: Tick) -> Vec<Fid> {
        let taken = Vec::from_iter(self.changed.within(Tick(0)..=then));
        taken.iter().for_each(|fid| self.changed.set(*fid, None));
        taken
    }

    /// Nobody writes it any more.
    pub fn closes(&mut self, fid: Fid) {
        self.closing.unsettled.remove(&fid);
        self.closing.settled.insert(fid);
    }

    /// It is being closed, or somebody writes it again.
    pub fn closes_no_more(&mut self, fid: Fid) {
        self.closing.unsettled.remove(&fid);
        self.closing.settled.remove(&fid);
    }

    /// It was looked at, and waits for its OST.
    pub fn closes_later(&mut self, fid: Fid) {
        if self.closing.settled.remove(&fid) {
            self.closing.unsettled.insert(fid);
        }
    }

    /// Files to close that wait for no OST.
    pub fn closable(&self) -> impl Iterator<Item = Fid> {
        self.closing.settled.iter().copied()
    }

    /// All files to close.
    pub fn closing(&self) -> Vec<Fid> {
        let all = self.closing.settled.union(&self.closing.unsettled);
        all.copied().collect()
    }

    /// One more frame may be on its way.
    pub fn may_send(&self) -> bool {
        self.frames < FRAMES_MAX
    }

    /// A frame sets out.
    pub fn begin_frame(&mut self) {
        self.frames += 1;
    }

    /// A frame is answered.
    pub fn end_frame(&mut self) {
        self.frames -= 1;
    }

    /// No frame is on its way.
    pub fn sends_nothing(&self) -> bool {
        self.frames == 0
    }

    /// The OSTs for which there are bytes to send; and none, where it is not known.
    pub fn osts(&self) -> Vec<Ost> {
        let next = |(ost, _): &(Ost, Tick)| self.dirty.next_after((*ost, Tick(u64::MAX)));
        let firsts = std::iter::successors(self.dirty.first(), next);
        firsts.map(|(ost, _)| ost).collect()
    }

    /// Files with bytes to send to `ost` that may be as old as `then`, the oldest first.
    pub fn dirty_since(&self, ost: Ost, then: Tick) -> impl Iterator<Item = Fid> {
        self.dirty.within((ost, Tick(0))..=(ost, then))
    }

    /// The same, also of bytes on their way.
    pub fn unwritten_since(&self, ost: Ost, then: Tick) -> impl Iterator<Item = Fid> {
        let sending = self.sending.within((ost, Tick(0))..=(ost, then));
        self.dirty_since(ost, then).chain(sending)
    }

    /// Files of which something is durable once all up to `committed` is.
    pub fn settled_by(&self, ost: TargetIndex, committed: Transno) -> Vec<Fid> {
        let of = |ost| {
            self.uncommitted
                .within((ost, Transno(0))..=(ost, committed))
        };
        of(Some(ost)).chain(of(None)).collect()
    }

    /// Files with bytes to send or on their way, or that an OST has and may lose.
    pub fn undurable(&self) -> BTreeSet<Fid> {
        let unsent = self.dirty.fids().chain(self.sending.fids());
        unsent.chain(self.uncommitted.fids()).collect()
    }

    /// There are none.
    pub fn is_all_durable(&self) -> bool {
        self.dirty.is_empty() && self.sending.is_empty() && self.uncommitted.is_empty()
    }

    /// Files that an OST may yet lose something of.
    pub fn uncommitted(&self) -> impl Iterator<Item = Fid> {
        self.uncommitted.fids()
    }

    /// How many.
    pub fn uncommitted_count(&self) -> usize {
        self.uncommitted.len()
    }

    /// The file is one of them.
    pub fn may_lose(&self, fid: Fid) -> bool {
        self.uncommitted.contains(fid)
    }
}

#[cfg(test)]
mod tests {
    use base::ByteRange;

    use super::*;

    const FILE: Fid = Fid(7);
    const OTHER: Fid = Fid(8);
    const HOME: Ost = Some(TargetIndex(0));
    const AWAY: Ost = Some(TargetIndex(3));

    /// A file with a byte written at `since`.
    fn dirty(since: Tick) -> FileState {
        let mut file = FileState::default();
        file.pages.write(0, b"x", since);
        file
    }

    fn dirty_fids(writeback: &WriteBack, ost: Ost, then: Tick) -> Vec<Fid> {
        writeback.dirty_since(ost, then).collect()
    }

    #[test]
    fn files_are_to_be_sent_by_ost_and_age_until_they_are_on_their_way() {
        let mut writeback = WriteBack::default();
        let (old, new) = (Tick(0), Tick(1 << 40));
        let mut file = dirty(old);
        writeback.note(FILE, HOME, &file);
        writeback.note(OTHER, AWAY, &dirty(new));
        assert_eq!(writeback.osts(), [HOME, AWAY]);
        assert_eq!(dirty_fids(&writeback, HOME, old), [FILE]);
        assert_eq!(dirty_fids(&writeback, AWAY, old), []);
        assert_eq!(dirty_fids(&writeback, AWAY, new), [OTHER]);
        file.pages.take_dirty(ByteRange::ALL, 1, 1);
        writeback.note(FILE, HOME, &file);
        assert_eq!(dirty_fids(&writeback, HOME, new), []);
        let unwritten: Vec<Fid> = writeback.unwritten_since(HOME, new).collect();
        assert_eq!(unwritten, [FILE]);
        assert!(!writeback.is_all_durable());
    }

    #[test]
    fn what_an_ost_may_lose_is_settled_by_its_number() {
        let mut writeback = WriteBack::default();
        writeback.is_uncommitted((FILE, HOME), Some(Transno(5)));
        writeback.is_uncommitted((OTHER, AWAY), Some(Transno(3)));
        assert_eq!(writeback.settled_by(TargetIndex(0), Transno(4)), []);
        assert_eq!(writeback.settled_by(TargetIndex(0), Transno(5)), [FILE]);
        assert!(writeback.may_lose(FILE) && writeback.uncommitted_count() == 2);
        writeback.is_uncommitted((FILE, HOME), None);
        writeback.is_uncommitted((OTHER, AWAY), None);
        assert!(writeback.is_all_durable());
    }

    #[test]
    fn a_file_is_closed_when_nothing_of_it_waits_for_its_ost() {
        let mut writeback = WriteBack::default();
        writeback.closes(FILE);
        writeback.closes_later(FILE);
        assert_eq!(writeback.closable().count(), 0);
        writeback.note(FILE, HOME, &dirty(Tick(0)));
        assert_eq!(writeback.closable().count(), 0);
        writeback.note(FILE, HOME, &FileState::default());
        assert!(writeback.closable().eq([FILE]));
        writeback.closes_no_more(FILE);
        assert_eq!(writeback.closing(), []);
    }

    #[test]
    fn frames_are_bounded_and_changes_are_taken_once() {
        let mut writeback = WriteBack::default();
        (0..FRAMES_MAX).for_each(|_| writeback.begin_frame());
        assert!(!writeback.may_send() && !writeback.sends_nothing());
        (0..FRAMES_MAX).for_each(|_| writeback.end_frame());
        assert!(writeback.may_send() && writeback.sends_nothing());
        writeback.is_changed(FILE, Tick(5));
        writeback.is_changed(FILE, Tick(7));
        assert_eq!(writeback.take_changed(Tick(4)), []);
        assert_eq!(writeback.take_changed(Tick(5)), [FILE]);
        assert_eq!(writeback.take_changed(Tick(u64::MAX)), []);
    }
}
