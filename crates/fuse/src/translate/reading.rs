//! Answers to READ on their way to the kernel, and who waits for them. A caller may close and replace a file
//! whose bytes it has, before the kernel and the thread that brought them have let go of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Then = Box<dyn FnOnce() + Send>;

/// The answers of one mount.
#[derive(Clone, Default)]
pub struct Reading(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Answers begun so far: each has the number that this was with it.
    begun: u64,
    /// Those that are on their way.
    on_their_way: Vec<u64>,
    /// What is to be done when those up to a number are handed over.
    waiting: Vec<(u64, Then)>,
}

/// An answer on its way, as long as it lives: longer than what it holds of the file.
pub(super) struct Answering {
    reading: Reading,
    number: u64,
}

impl Reading {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer goes to the kernel.
    pub(super) fn begin(&self) -> Answering {
        let mut state = self.lock();
        state.begun += 1;
        let number = state.begun;
        state.on_their_way.push(number);
        Answering {
            reading: self.clone(),
            number,
        }
    }

    /// Calls `then` when all answers that are on their way now are handed over: at once, or on the thread of
    /// the last.
    pub(super) fn after(&self, then: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        if state.on_their_way.is_empty() {
            drop(state);
            return then();
        }
        let last = state.begun;
        state.waiting.push((last, Box::new(then)));
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let due: Vec<(u64, Then)> = {
            let mut state = self.reading.lock();
            state.on_their_way.retain(|number| *number != self.number);
            let first = state.on_their_way.iter().min().copied();
            let is_due = |waiting: &mut (u64, Then)| first.is_none_or(|first| waiting.0 < first);
            state.waiting.extract_if(.., is_due).collect()
        };
        due.into_iter().for_each(|(_, then)| then());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn waiting(reading: &Reading) -> impl Fn() -> bool + use<> {
        let done = Arc::new(AtomicBool::new(false));
        let tell = done.clone();
        reading.after(move || tell.store(true, Ordering::Relaxed));
        move || done.load(Ordering::Relaxed)
    }

    #[test]
    fn with_no_answer_on_its_way_nobody_waits() {
        let reading = Reading::default();
        assert!(waiting(&reading)());
        drop(reading.begin());
        assert!(waiting(&reading)());
    }

    #[test]
    fn answers_on_their_way_are_waited_for_and_later_ones_are_not() {
        let reading = Reading::default();
        let (first, second) = (reading.begin(), reading.begin());
        let done = waiting(&reading);
        let _later = reading.begin();
        drop(second);
        assert!(!done());
        drop(first);
        assert!(done());
    }
}
