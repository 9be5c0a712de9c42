//! The answering half of a session, in either direction: the slot table, which is the replay cache. Pure.

use std::fmt;
use std::sync::Arc;

use base::limits::STORED_REPLY_BYTES_MAX;
use base::{Transno, Xid};
use wire::frame::Payload;

/// The peer does what no correct peer does: it is disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation(pub &'static str);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Violation {}

/// What to do with a request that came.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// New: run it.
    Execute,
    /// Ran before: send this again.
    Replay(Stored),
    /// Runs now: its answer will go out when it is there.
    Running,
    /// Older than what the slot has seen: its answer arrived long ago.
    Stale,
}

/// A reply as it is kept for a resend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// What it carried.
    pub payload: Arc<Payload>,
    /// The change it reported.
    pub transno: Transno,
}

#[derive(Debug, Default)]
enum Slot {
    #[default]
    Vacant,
    Running(Xid),
    /// None: not kept.
    Done(Xid, Option<Stored>),
}

impl Slot {
    fn stored(&self) -> Option<&Stored> {
        match self {
            Slot::Done(_, stored) => stored.as_ref(),
            Slot::Vacant | Slot::Running(_) => None,
        }
    }
}

/// The answering half of a session. Each (slot, xid) is handed out for execution once, unless its reply was
/// not kept; only requests that changed nothing (transno zero) have such replies.
#[derive(Debug)]
pub struct Replier {
    slots: Vec<Slot>,
    slots_max: u16,
    kept: (usize, usize),
}

/// Whether there is memory for answers that could be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// There is: one that is small is kept, too.
    ForAll,
    /// There is not.
    ForChanges,
}

impl Replier {
    /// A table of `slots_max` slots, made as they are used.
    pub fn new(slots_max: u16) -> Replier {
        Replier {
            slots: Vec::new(),
            slots_max,
            kept: (0, 0),
        }
    }

    /// Judges the request that came as (`slot`, `xid`).
    pub fn accept(&mut self, slot: u16, xid: Xid) -> Result<Verdict, Violation> {
        if slot >= self.slots_max {
            return Err(Violation("a slot beyond those granted"));
        }
        let index = usize::from(slot);
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, Slot::default);
        }
        let entry = &mut self.slots[index];
        let verdict = match entry {
            Slot::Running(known) | Slot::Done(known, _) if xid < *known => Verdict::Stale,
            Slot::Running(known) if xid == *known => Verdict::Running,
            Slot::Running(_) => return Err(Violation("a slot used twice at once")),
            Slot::Done(known, Some(stored)) if xid == *known => Verdict::Replay(stored.clone()),
            Slot::Vacant | Slot::Done(..) => Verdict::Execute,
        };
        if verdict == Verdict::Execute {
            self.put(index, Slot::Running(xid));
        }
        Ok(verdict)
    }

    /// A request that was to be run is not: it never came.
    pub fn withdraw(&mut self, slot: u16, xid: Xid) {
        let index = usize::from(slot);
        if matches!(self.slots.get(index), Some(Slot::Running(known)) if *known == xid) {
            self.put(index, Slot::Vacant);
        }
    }

    fn put(&mut self, index: usize, slot: Slot) {
        let (answers, bytes) = &mut self.kept;
        if let Some(new) = slot.stored() {
            *answers += 1;
            *bytes += new.payload.frame_bytes();
        }
        let old = std::mem::replace(&mut self.slots[index], slot);
        if let Some(old) = old.stored() {
            *answers -= 1;
            *bytes -= old.payload.frame_bytes();
        }
    }

    /// How many answers are kept, and their bytes: at most one for each slot, of a frame at most.
    pub fn kept(&self) -> (usize, usize) {
        self.kept
    }

    /// Keeps the answer to (`slot`, `xid`), if there is room. False: that request is not running here.
    pub fn answer(&mut self, slot: u16, xid: Xid, reply: &Stored, room: Room) -> bool {
        let index = usize::from(slot);
        if !matches!(self.slots.get(index), Some(Slot::Running(known)) if *known == xid) {
            return false;
        }
        let small = reply.payload.frame_bytes() <= STORED_REPLY_BYTES_MAX;
        let kept = reply.transno != Transno(0) || (small && room == Room::ForAll);
        self.put(index, Slot::Done(xid, kept.then(|| reply.clone())));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_reply_that_changed_nothing_is_made_again() {
        let mut replier = Replier::new(4);
        let large = |transno| Stored {
            payload: Arc::new(Payload {
                subs: Vec::new(),
                bulk: vec![0; base::limits::STORED_REPLY_BYTES_MAX].into(),
            }),
            transno: Transno(transno),
        };
        assert_eq!(replier.accept(0, Xid(1)), Ok(Verdict::Execute));
        assert!(replier.answer(0, Xid(1), &large(0), Room::ForAll));
        assert_eq!(replier.accept(0, Xid(1)), Ok(Verdict::Execute));
        assert!(replier.answer(0, Xid(1), &large(0), Room::ForAll));
        assert_eq!(replier.accept(0, Xid(2)), Ok(Verdict::Execute));
        assert!(replier.answer(0, Xid(2), &large(9), Room::ForAll));
        assert_eq!(replier.accept(0, Xid(2)), Ok(Verdict::Replay(large(9))));
        assert_eq!(replier.accept(0, Xid(1)), Ok(Verdict::Stale));
    }

    #[test]
    fn a_request_that_was_withdrawn_is_new_when_it_comes_again() {
        let mut replier = Replier::new(4);
        assert_eq!(replier.accept(0, Xid(1)), Ok(Verdict::Execute));
        replier.withdraw(0, Xid(2));
        assert_eq!(replier.accept(0, Xid(1)), Ok(Verdict::Running));
        replier.withdraw(0, Xid(1));
        assert_eq!(replier.accept(0, Xid(1)), Ok(Verdict::Execute));
    }

    #[test]
    fn without_room_only_answers_that_report_changes_are_kept() {
        let mut replier = Replier::new(4);
        let stored = |bytes, transno| Stored {
            payload: Arc::new(Payload {
                subs: Vec::new(),
                bulk: vec![0; bytes].into(),
            }),
            transno: Transno(transno),
        };
        let mut answered = |slot, xid, answer: &Stored, room| {
            assert_eq!(replier.accept(slot, Xid(xid)), Ok(Verdict::Execute));
            assert!(replier.answer(slot, Xid(xid), answer, room));
            replier.kept()
        };
        let bytes = |bytes, transno| stored(bytes, transno).payload.frame_bytes();
        assert_eq!(
            answered(0, 1, &stored(10, 0), Room::ForAll),
            (1, bytes(10, 0))
        );
        assert_eq!(answered(0, 2, &stored(10, 0), Room::ForChanges), (0, 0));
        let change = stored(20, 7);
        assert_eq!(answered(1, 3, &change, Room::ForChanges), (1, bytes(20, 7)));
        assert_eq!(replier.accept(1, Xid(3)), Ok(Verdict::Replay(change)));
        assert_eq!(replier.accept(1, Xid(4)), Ok(Verdict::Execute));
        assert_eq!(replier.kept(), (0, 0));
    }
}
