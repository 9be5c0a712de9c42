//! Requests between the kernel's queue and their handler's first look at them. The thread that tells the
//! kernel to forget a name must know when the last request by that name is answered. When the notice is done
//! such a request may still lie in the kernel's queue, or with a reader.

use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::device::Received;

/// Requests that the kernel has queued at once, at most. Each waits for the answer to its last, but
/// for a few that are made ahead of need. Where the queue is never seen empty, so many were taken
/// from it since.
const QUEUED_MAX: u64 = 4096;

type Then = Box<dyn FnOnce() + Send>;

/// Who takes requests from the kernel's queue, one at a time, and who waits for them to be looked at.
#[derive(Default)]
pub(super) struct Intake(Mutex<State>);

#[derive(Default)]
struct State {
    /// Requests taken so far: each has the number that this was with it.
    taken: u64,
    /// Those that their handlers have not looked at.
    in_hand: Vec<u64>,
    waiting: Vec<Waiting>,
    closed: bool,
}

/// Something to be done when requests up to `last` are looked at.
struct Waiting {
    last: u64,
    then: Then,
}

/// A request whose handler has not looked at it, as long as it lives.
#[derive(Debug)]
pub(super) struct InHand<'a> {
    intake: &'a Intake,
    number: u64,
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Intake")
    }
}

impl Intake {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a request from the queue by `receive`, if there is one.
    pub fn take(
        &self,
        receive: impl FnOnce() -> io::Result<Received>,
    ) -> io::Result<(Received, Option<InHand<'_>>)> {
        let mut state = self.lock();
        let received = receive()?;
        let mut in_hand = None;
        match received {
            Received::Request(_) => {
                state.taken += 1;
                let number = state.taken;
                state.in_hand.push(number);
                in_hand = Some(InHand {
                    intake: self,
                    number,
                });
            }
            Received::Nothing => state.is_empty(),
            Received::Missed => {}
            Received::Gone => state.closed = true,
        }
        self.run_due(state);
        Ok((received, in_hand))
    }

    /// Calls `then`, at once or on a reader's thread, when all requests in the queue, or with a reader, were
    /// looked at. The function `is_empty` looks at the queue.
    pub fn after_requests(&self, is_empty: impl FnOnce() -> bool, then: Then) {
        let mut state = self.lock();
        let last = state.taken + QUEUED_MAX;
        state.waiting.push(Waiting { last, then });
        if is_empty() {
            state.is_empty();
        }
        self.run_due(state);
    }

    fn run_due(&self, mut state: MutexGuard<'_, State>) {
        if state.waiting.is_empty() {
            return;
        }
        let due = state.due();
        drop(state);
        due.into_iter().for_each(|then| then());
    }
}

impl State {
    /// The queue is seen empty: what was in it is taken.
    fn is_empty(&mut self) {
        let taken = self.taken;
        for waiting in &mut self.waiting {
            waiting.last = waiting.last.min(taken);
        }
    }

    fn due(&mut self) -> Vec<Then> {
        let first_in_hand = self.in_hand.iter().min().copied();
        let looked_at = first_in_hand.map_or(self.taken, |first| first - 1);
        let closed = self.closed;
        let due = self
            .waiting
            .extract_if(.., |waiting| closed || waiting.last <= looked_at);
        due.map(|waiting| waiting.then).collect()
    }
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        let mut state = self.intake.lock();
        let place = state.in_hand.iter().position(|held| *held == self.number);
        if let Some(place) = place {
            state.in_hand.swap_remove(place);
        }
        self.intake.run_due(state);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn request(intake: &Intake) -> InHand<'_> {
        let taken = intake.take(|| Ok(Received::Request(40))).unwrap();
        taken.1.unwrap()
    }

    fn nothing(intake: &Intake) {
        assert!(intake.take(|| Ok(Received::Nothing)).unwrap().1.is_none());
    }

    /// Whether everything is looked at that was asked when this was called.
    fn waiting(intake: &Intake, empty: bool) -> impl Fn() -> bool + use<> {
        let done = Arc::new(AtomicBool::new(false));
        let tell = done.clone();
        let then = Box::new(move || tell.store(true, Ordering::Relaxed));
        intake.after_requests(|| empty, then);
        move || done.load(Ordering::Relaxed)
    }

    #[test]
    fn with_nothing_asked_nobody_waits() {
        let intake = Intake::default();
        assert!(waiting(&intake, true)());
    }

    #[test]
    fn what_is_in_hand_is_waited_for_and_what_comes_later_is_not() {
        let intake = Intake::default();
        let (first, second) = (request(&intake), request(&intake));
        let done = waiting(&intake, true);
        let _later = request(&intake);
        drop(second);
        assert!(!done());
        drop(first);
        assert!(done());
    }

    #[test]
    fn what_is_in_the_queue_is_waited_for() {
        let intake = Intake::default();
        let done = waiting(&intake, false);
        intake.take(|| Ok(Received::Missed)).unwrap();
        let queued = request(&intake);
        assert!(!done());
        nothing(&intake);
        assert!(!done(), "it is in hand");
        drop(queued);
        assert!(done());
    }

    #[test]
    fn a_queue_that_is_never_empty_is_waited_for_no_longer_than_it_can_be_long() {
        let intake = Intake::default();
        let done = waiting(&intake, false);
        for _ in 1..QUEUED_MAX {
            drop(request(&intake));
        }
        assert!(!done());
        drop(request(&intake));
        assert!(done());
    }

    #[test]
    fn nobody_waits_when_the_mount_is_gone() {
        let intake = Intake::default();
        let done = waiting(&intake, false);
        intake.take(|| Ok(Received::Gone)).unwrap();
        assert!(done() && waiting(&intake, false)());
    }
}
