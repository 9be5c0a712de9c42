//! Frames that a client keeps until their changes are durable, to repeat them at a target that has lost them
//! (docs/recovery.md, section 4). Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{BootEpoch, Transno, Xid};
use wire::frame::Payload;

use crate::requester::ReplayRecord;

/// A frame of requests that had an effect.
#[derive(Debug)]
struct Kept {
    slot: u16,
    xid: Xid,
    request: Arc<Payload>,
    answer: Arc<Payload>,
    /// The boot in which it was done last, and the number it has there.
    done: (BootEpoch, Transno),
    under_way: bool,
    /// Who remembers it for the process that may take this one's place.
    replay_record: Option<Box<dyn ReplayRecord>>,
}

/// What a process before this one kept.
#[derive(Debug)]
pub struct Undurable {
    /// The slot it was in, and the number it had.
    pub place: (u16, Xid),
    /// The boot in which it was done first, and its number there.
    pub first: (BootEpoch, Transno),
    /// The same of the last time.
    pub done: (BootEpoch, Transno),
    /// What was asked.
    pub request: Arc<Payload>,
    /// What was answered the first time.
    pub answer: Arc<Payload>,
    /// Who remembers it.
    pub replay_record: Box<dyn ReplayRecord>,
}

impl Kept {
    fn bytes(&self) -> usize {
        self.request.frame_bytes() + self.answer.frame_bytes()
    }
}

/// The requests of one session that a crash of its target would undo, in the order of their effects. Those
/// that were repeated in the present boot of the target come before those that were not yet.
#[derive(Debug, Default)]
pub struct Replay {
    /// By the boot they were done in first, and their number there.
    kept: BTreeMap<(BootEpoch, Transno), Kept>,
    epoch: BootEpoch,
    bytes: usize,
    /// Of those kept, how many the present boot has not done.
    missing: usize,
}

/// A request to be done again.
#[derive(Debug)]
pub struct Again {
    /// The slot it was in.
    pub slot: u16,
    /// The number it had.
    pub xid: Xid,
    /// See [`Payload::replay`].
    pub payload: Arc<Payload>,
}

impl Replay {
    /// A request was answered, and has changed the target.
    pub fn keep(
        &mut self,
        (slot, xid): (u16, Xid),
        transno: Transno,
        (request, answer): (Arc<Payload>, Arc<Payload>),
        replay_record: Option<Box<dyn ReplayRecord>>,
    ) {
        let done = (self.epoch, transno);
        let kept = Kept {
            slot,
            xid,
            request,
            answer,
            done,
            under_way: false,
            replay_record,
        };
        self.bytes += kept.bytes();
        self.kept.insert(done, kept);
    }

    /// Goes on keeping what a process before this one kept, in the boot that it knew last. What that
    /// had not done again yet is done again by this one.
    pub fn adopt(&mut self, undurable: Undurable) {
        let (slot, xid) = undurable.place;
        let kept = Kept {
            slot,
            xid,
            request: undurable.request,
            answer: undurable.answer,
            done: undurable.done,
            under_way: false,
            replay_record: Some(undurable.replay_record),
        };
        self.bytes += kept.bytes();
        self.missing += usize::from(kept.done.0 != self.epoch);
        self.kept.insert(undurable.first, kept);
    }

    /// What the target has made durable in its present boot, up to `transno`, is kept no longer.
    pub fn committed(&mut self, transno: Transno) {
        while let Some(first) = self.kept.first_entry() {
            let (epoch, made) = first.get().done;
            if epoch != self.epoch || made > transno {
                break;
            }
            self.bytes -= first.remove().bytes();
        }
    }

    /// The target restarts. `survived` is durable of the boot that this client knew.
    pub fn new_boot(&mut self, epoch: BootEpoch, survived: Transno) {
        self.committed(survived);
        self.epoch = epoch;
        self.missing = self.kept.len();
        self.connection_lost();
    }

    /// What was under way may not have arrived.
    pub fn connection_lost(&mut self) {
        for kept in self.kept.values_mut() {
            kept.under_way = false;
        }
    }

    /// Some of what is kept has yet to be done again: nothing else is to be sent.
    pub fn is_under_way(&self) -> bool {
        self.missing > 0
    }

    /// The next to send. A slot is used for one at a time, as it was the first time; so nothing
    /// comes while the slot of the next is in use.
    pub fn poll_send(&mut self) -> Option<Again> {
        if self.missing == 0 {
            return None;
        }
        let (epoch, mut busy) = (self.epoch, Vec::new());
        for kept in self.kept.values_mut().filter(|kept| kept.done.0 != epoch) {
            if kept.under_way {
                busy.push(kept.slot);
                continue;
            }
            if busy.contains(&kept.slot) {
                return None;
            }
            kept.under_way = true;
            return Some(Again {
                slot: kept.slot,
                xid: kept.xid,
                payload: Arc::new(Payload::replay(&kept.request, &kept.answer)),
            });
        }
        None
    }

    /// It was done again, as change `transno` of the present boot; zero: it changed nothing.
    /// False: that is not the answer to a replay.
    pub fn answered(&mut self, slot: u16, xid: Xid, transno: Transno) -> bool {
        let epoch = self.epoch;
        let asked = |kept: &Kept| kept.under_way && kept.slot == slot && kept.xid == xid;
        let found = self.kept.iter().find(|(_, kept)| asked(kept));
        let Some(key) = found.map(|(key, _)| *key) else {
            return false;
        };
        self.missing -= 1;
        if transno == Transno(0) {
            self.bytes -= self.kept.remove(&key).map_or(0, |kept| kept.bytes());
        } else if let Some(kept) = self.kept.get_mut(&key) {
            (kept.done, kept.under_way) = ((epoch, transno), false);
            if let Some(replay_record) = &kept.replay_record {
                replay_record.done_again(kept.done);
            }
        }
        true
    }

    /// The target has given up on this client: nothing is told again. How many are lost.
    pub fn lose(&mut self) -> usize {
        let lost = self.kept.len();
        (self.bytes, self.missing) = (0, 0);
        self.kept.clear();
        lost
    }

    /// Frames kept.
    pub fn count(&self) -> usize {
        self.kept.len()
    }

    /// Bytes they take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(replay: &mut Replay, slot: u16, xid: u64, transno: u64) {
        let payload = Arc::new(Payload::default());
        let frames = (payload.clone(), payload);
        replay.keep((slot, Xid(xid)), Transno(transno), frames, None);
    }

    /// Xids that come until an answer is needed.
    fn sent(replay: &mut Replay) -> Vec<u64> {
        std::iter::from_fn(|| replay.poll_send())
            .map(|again| again.xid.0)
            .collect()
    }

    fn begun() -> Replay {
        let mut replay = Replay::default();
        replay.new_boot(BootEpoch(1), Transno(0));
        replay
    }

    #[test]
    fn what_is_durable_is_kept_no_longer() {
        let mut replay = begun();
        (1..=5).for_each(|number| keep(&mut replay, 0, number, 10 + number));
        replay.committed(Transno(12));
        assert_eq!(replay.count(), 3);
        replay.new_boot(BootEpoch(2), Transno(13));
        assert_eq!(replay.count(), 2);
        replay.committed(Transno(100));
        assert_eq!(replay.count(), 2, "numbers of another life");
    }

    #[test]
    fn the_order_of_effects_is_kept_and_a_slot_used_once() {
        let mut replay = begun();
        for (slot, xid, transno) in [(0, 1, 11), (1, 3, 14), (0, 2, 12), (2, 4, 13)] {
            keep(&mut replay, slot, xid, transno);
        }
        replay.new_boot(BootEpoch(2), Transno(0));
        assert_eq!(sent(&mut replay), [1], "slot 0 is in use");
        assert!(!replay.answered(0, Xid(2), Transno(5)) && replay.is_under_way());
        assert!(replay.answered(0, Xid(1), Transno(5)));
        assert_eq!(sent(&mut replay), [2, 4, 3]);
        for (slot, xid, transno) in [(1, 3, 8), (0, 2, 6), (2, 4, 0)] {
            assert!(replay.is_under_way());
            assert!(replay.answered(slot, Xid(xid), Transno(transno)));
        }
        assert!(!replay.is_under_way());
        assert_eq!(replay.count(), 3, "one changed nothing");
        replay.committed(Transno(6));
        assert_eq!(replay.count(), 1);
    }

    #[test]
    fn a_crash_in_the_middle_begins_where_the_last_boot_ended() {
        let mut replay = begun();
        (1..=4).for_each(|number| keep(&mut replay, number, number.into(), 10 + u64::from(number)));
        replay.new_boot(BootEpoch(2), Transno(10));
        assert_eq!(sent(&mut replay), [1, 2, 3, 4]);
        assert!(replay.answered(1, Xid(1), Transno(20)));
        assert!(replay.answered(2, Xid(2), Transno(21)));
        replay.connection_lost();
        assert_eq!(sent(&mut replay), [3, 4], "again, over the next connection");
        replay.new_boot(BootEpoch(3), Transno(20));
        assert_eq!(sent(&mut replay), [2, 3, 4]);
        assert!(replay.bytes() > 0);
        assert_eq!(replay.lose(), 3);
        assert_eq!((replay.bytes(), replay.is_under_way()), (0, false));
    }
}
