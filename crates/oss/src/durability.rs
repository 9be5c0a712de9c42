//! Which modifications are durable, and when the next sync must start. Pure: time comes in, a sync is asked
//! for by a ticket and reported back by it. Syncs are grouped: while one runs, everybody who comes waits for
//! the next one together, unless nothing was modified since the running one began.

use std::sync::Arc;

use base::{Tick, Transno};
use storage::Pace;

/// Names one sync of the target. Grows by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SyncTicket(pub u64);

#[derive(Debug)]
struct Running<W> {
    ticket: SyncTicket,
    /// Every modification up to here is part of it.
    covers: Transno,
    waiters: Vec<W>,
}

/// The modifications of a target and those who wait for them. `W` is who is told.
#[derive(Debug)]
pub struct Durability<W> {
    last: Transno,
    committed: Transno,
    /// When the oldest modification that no sync covers was made.
    dirty_since: Option<Tick>,
    /// Bytes that no sync covers.
    dirty_bytes: u64,
    pace: Arc<Pace>,
    running: Option<Running<W>>,
    /// They wait for the sync after the running one.
    queue: Vec<W>,
    /// The next sync is due although nobody waits.
    hurried: bool,
    tickets: u64,
}

impl<W> Durability<W> {
    /// A target whose modifications up to `committed` are durable, and that numbers new ones from
    /// after `last`.
    pub fn new(committed: Transno, last: Transno, pace: Arc<Pace>) -> Durability<W> {
        Durability {
            last: last.max(committed),
            committed,
            dirty_since: None,
            dirty_bytes: 0,
            pace,
            running: None,
            queue: Vec::new(),
            hurried: false,
            tickets: 0,
        }
    }

    /// The newest modification.
    pub fn last(&self) -> Transno {
        self.last
    }

    /// Nothing was modified that is not durable, and nobody waits.
    pub fn is_settled(&self) -> bool {
        self.dirty_since.is_none() && self.running.is_none() && self.queue.is_empty()
    }

    /// Everything up to here survives a crash.
    pub fn committed(&self) -> Transno {
        self.committed
    }

    /// Numbers a modification made now, of so many bytes.
    pub fn modified(&mut self, now: Tick, bytes: u64) -> Transno {
        self.last.0 += 1;
        self.dirty_bytes = self.dirty_bytes.saturating_add(bytes);
        self.dirty_since.get_or_insert(now);
        self.last
    }

    /// Everything modified so far must be durable before `waiter` is told. Hands it back where
    /// that is so already.
    pub fn wait(&mut self, waiter: W) -> Option<W> {
        match (&mut self.running, self.dirty_since) {
            (Some(running), None) => running.waiters.push(waiter),
            (None, None) => return Some(waiter),
            (_, Some(_)) => self.queue.push(waiter),
        }
        None
    }

    /// Nobody waits for it, but a sync is due as soon as it can start.
    pub fn hurry(&mut self) {
        self.hurried = true;
    }

    /// The sync to start now, if one is due and none runs, and the bytes that it is about.
    pub fn start_due(&mut self, now: Tick) -> Option<(SyncTicket, u64)> {
        let since = self.dirty_since?;
        let waited = now.since(since) >= self.pace.interval();
        let full = self.dirty_bytes >= self.pace.bytes();
        let due = self.hurried || !self.queue.is_empty() || waited || full;
        if self.running.is_some() || !due {
            return None;
        }
        self.dirty_since = None;
        self.hurried = false;
        self.tickets += 1;
        let (ticket, waiters) = (SyncTicket(self.tickets), std::mem::take(&mut self.queue));
        self.running = Some(Running {
            ticket,
            covers: self.last,
            waiters,
        });
        Some((ticket, std::mem::take(&mut self.dirty_bytes)))
    }

    /// The sync is done: those who waited for it. An unknown ticket is ignored.
    pub fn synced(&mut self, ticket: SyncTicket) -> Vec<W> {
        match self.running.take_if(|running| running.ticket == ticket) {
            Some(running) => {
                self.committed = running.covers;
                running.waiters
            }
            None => Vec::new(),
        }
    }

    /// Forgets the waiters that `gone` picks.
    pub fn forget(&mut self, gone: impl Fn(&W) -> bool) {
        self.queue.retain(|waiter| !gone(waiter));
        if let Some(running) = &mut self.running {
            running.waiters.retain(|waiter| !gone(waiter));
        }
    }

    /// Everyone who waits, when no sync will ever end again.
    pub fn give_up(&mut self) -> Vec<W> {
        let mut waiters = self
            .running
            .take()
            .map_or_else(Vec::new, |running| running.waiters);
        waiters.append(&mut self.queue);
        waiters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Tick {
        Tick(millis * 1_000_000)
    }

    fn usual<W>(committed: u64, last: u64) -> Durability<W> {
        Durability::new(Transno(committed), Transno(last), Pace::usual())
    }

    #[test]
    fn many_bytes_or_a_quicker_pace_start_a_sync_sooner() {
        let mut state = usual::<()>(0, 0);
        let pace = state.pace.clone();
        state.modified(at(0), pace.bytes() - 1);
        assert_eq!(state.start_due(at(1)), None);
        state.modified(at(1), 1);
        let (full, bytes) = state.start_due(at(1)).expect("full");
        assert_eq!(bytes, pace.bytes());
        state.synced(full);
        state.modified(at(2), 1);
        pace.set_ms(20).expect("within bounds");
        assert!(state.start_due(at(21)).is_none() && state.start_due(at(22)).is_some());
    }

    #[test]
    fn a_clean_target_makes_nobody_wait() {
        let mut state = usual(5, 5);
        assert_eq!(state.wait('a'), Some('a'));
        assert_eq!(state.start_due(at(10_000)), None);
    }

    #[test]
    fn undurable_for_a_second_starts_a_sync_by_itself() {
        let mut state = usual::<()>(0, 100);
        assert_eq!(state.modified(at(0), 1), Transno(101));
        assert_eq!(state.modified(at(900), 1), Transno(102));
        assert_eq!(state.start_due(at(999)), None);
        let (ticket, bytes) = state.start_due(at(1000)).expect("due");
        assert_eq!(bytes, 2);
        assert_eq!(state.modified(at(1001), 1), Transno(103));
        state.synced(ticket);
        assert_eq!(
            (state.committed(), state.last()),
            (Transno(102), Transno(103))
        );
        assert!(state.start_due(at(1999)).is_none());
        state.hurry();
        let (hurried, _) = state.start_due(at(1999)).expect("hurried");
        state.modified(at(2001), 1);
        state.synced(hurried);
        assert!(state.start_due(at(3000)).is_none() && state.start_due(at(3001)).is_some());
    }

    #[test]
    fn who_comes_during_a_sync_waits_for_the_next_one_together() {
        let mut state = usual(0, 0);
        state.modified(at(0), 1);
        assert_eq!(state.wait('a'), None);
        let (first, _) = state.start_due(at(0)).expect("someone waits");
        assert_eq!(
            state.wait('b'),
            None,
            "nothing new: the running sync covers it"
        );
        state.modified(at(1), 1);
        assert_eq!((state.wait('c'), state.wait('d')), (None, None));
        assert_eq!(state.start_due(at(1)), None, "one at a time");
        assert_eq!(state.synced(SyncTicket(99)), []);
        assert_eq!(state.synced(first), ['a', 'b']);
        let (second, _) = state.start_due(at(2)).expect("two wait");
        state.forget(|waiter| *waiter == 'c');
        assert_eq!(state.synced(second), ['d']);
        assert_eq!(state.committed(), Transno(2));
    }

    #[test]
    fn when_syncs_fail_everyone_is_told() {
        let mut state = usual(0, 0);
        state.modified(at(0), 1);
        state.wait('a');
        state.start_due(at(0));
        state.modified(at(0), 1);
        state.wait('b');
        assert_eq!(state.give_up(), ['a', 'b']);
        assert_eq!(state.committed(), Transno(0));
    }
}
