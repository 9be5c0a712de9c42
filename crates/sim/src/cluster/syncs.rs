//! How much longer than usual the disks of a machine take to make something durable.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::{Rng, SeededRng};

/// The time that syncs take. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Syncs(Arc<Mutex<Option<Slow>>>);

#[derive(Debug)]
struct Slow {
    until: Instant,
    longest: Duration,
    numbers: SeededRng,
}

impl Syncs {
    /// For `time` each takes up to `longest` more.
    pub fn slow_down(&self, time: Duration, longest: Duration, numbers: SeededRng) {
        let until = threads::now() + time;
        let slow = Slow {
            until,
            longest,
            numbers,
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(slow);
    }

    /// What comes on top of one that begins now.
    pub fn wait(&self) {
        let more = {
            let mut slow = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match slow.as_mut().filter(|slow| slow.until > threads::now()) {
                Some(slow) => slow.numbers.below(slow.longest.as_nanos() as u64 + 1),
                None => return,
            }
        };
        threads::sleep(Duration::from_nanos(more));
    }
}
