//! The counter shared by all calls of a trial, changes and looks alike.

use std::sync::atomic::{AtomicU64, Ordering};

use model::listing::Span;

/// Never twice the same tick, and later ones to a caller that asks later.
#[derive(Debug, Default)]
pub struct Clock(AtomicU64);

impl Clock {
    /// The next tick, from 1.
    pub fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// What `call` gave, and from when to when it ran.
    pub fn time<T>(&self, call: impl FnOnce() -> T) -> (Span, T) {
        let begin = self.tick();
        let result = call();
        let end = self.tick();
        (Span { begin, end }, result)
    }
}
