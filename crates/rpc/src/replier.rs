//! The answering half of a session, in either direction: the slot table, which is the replay cache. Pure.
//!
//! Invariant: each (slot, xid) is handed out for execution once, except that a reply too large to keep is
//! made again, which only requests that changed nothing (transno zero) can suffer.

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
    /// None: too large to keep.
    Done(Xid, Option<Stored>),
}

/// The answering half of a session.
#[derive(Debug)]
pub struct Replier {
    slots: Vec<Slot>,
    slots_max: u16,
}

impl Replier {
    /// A table of `slots_max` slots, made as they are used.
    pub fn new(slots_max: u16) -> Replier {
        Replier {
            slots: Vec::new(),
            slots_max,
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
            *entry = Slot::Running(xid);
        }
        Ok(verdict)
    }

    /// How many answers are kept, and their bytes: at most one for each slot, of a frame at most.
    pub fn kept(&self) -> (usize, usize) {
        let stored = self.slots.iter().filter_map(|slot| match slot {
            Slot::Done(_, stored) => stored.as_ref(),
            Slot::Vacant | Slot::Running(_) => None,
        });
        stored.fold((0, 0), |(answers, bytes), stored| {
            (answers + 1, bytes + stored.payload.frame_bytes())
        })
    }

    /// Keeps the answer to (`slot`, `xid`). False: that request is not running here.
    pub fn answer(&mut self, slot: u16, xid: Xid, reply: &Stored) -> bool {
        let Some(entry) = self.slots.get_mut(usize::from(slot)) else {
            return false;
        };
        let running = match entry {
            Slot::Running(known) => *known == xid,
            Slot::Vacant | Slot::Done(..) => false,
        };
        if !running {
            return false;
        }
        let large = reply.payload.frame_bytes() > STORED_REPLY_BYTES_MAX;
        let kept = reply.transno != Transno(0) || !large;
        *entry = Slot::Done(xid, kept.then(|| reply.clone()));
        true
    }
}
