//! Who waits for the kernel's next request, and how: one reader at a time, and awake for a moment
//! where the next request is expected at once.
//!
//! The kernel wakes readers that wait in turn, each on whatever CPU is idle, and whoever asks pays
//! for the interrupt: on a virtual machine more than for all the rest of a small request. With one
//! reader alone on watch, a request that comes while it is busy or still awake wakes nobody. The
//! others sleep outside of the kernel's queue until there is more than one can do.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a reader stays awake for the next request: about the price of falling asleep and being
/// woken where a CPU that has nothing to do gives itself up, as those of virtual machines do.
const PATIENCE: Duration = Duration::from_micros(100);
/// Requests that came within [`PATIENCE`] of the last, before the next is expected to.
const SURE: u8 = 4;
/// What is remembered of such requests at most.
const MEMORY: u8 = 16;

/// The right to wait for the next request, and what is known of how they come.
#[derive(Debug, Default)]
pub(super) struct Watch {
    in_time: u8,
}

impl Watch {
    /// How long to stay awake for the next request.
    pub fn patience(&self) -> Duration {
        match self.in_time >= SURE {
            true => PATIENCE,
            false => Duration::ZERO,
        }
    }

    /// A request came, so long after the one before was done with.
    pub fn came_after(&mut self, gap: Duration) {
        self.in_time = match gap <= PATIENCE {
            true => (self.in_time + 1).min(MEMORY),
            false => self.in_time / 2,
        };
    }
}

/// Where the one [`Watch`] of a session lies while no reader has it.
#[derive(Debug)]
pub(super) struct WatchPost {
    watch: Mutex<Option<Watch>>,
    free: Condvar,
}

impl Default for WatchPost {
    fn default() -> WatchPost {
        WatchPost {
            watch: Mutex::new(Some(Watch::default())),
            free: Condvar::new(),
        }
    }
}

impl WatchPost {
    /// Waits until nobody is on watch, and takes it.
    pub fn take(&self) -> Watch {
        let mut held = self.lock();
        loop {
            if let Some(watch) = held.take() {
                return watch;
            }
            held = self.free.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Leaves the watch to another reader.
    pub fn leave(&self, watch: Watch) {
        *self.lock() = Some(watch);
        self.free.notify_one();
    }

    /// The value changes in one step.
    fn lock(&self) -> MutexGuard<'_, Option<Watch>> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_stays_awake_only_for_requests_that_come_at_once() {
        let (soon, late) = (Duration::from_micros(20), Duration::from_millis(1));
        let mut watch = Watch::default();
        for _ in 0..SURE {
            assert_eq!(watch.patience(), Duration::ZERO);
            watch.came_after(soon);
        }
        assert_eq!(watch.patience(), PATIENCE);
        (0..1000).for_each(|_| watch.came_after(soon));
        let mut wasted = 0;
        while watch.patience() > Duration::ZERO {
            watch.came_after(late);
            wasted += 1;
        }
        assert!(wasted <= 3, "{wasted} times awake for nothing");
    }

    #[test]
    fn one_is_on_watch_at_a_time() {
        let post = WatchPost::default();
        let on_watch = Mutex::new(());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let watch = post.take();
                        drop(on_watch.try_lock().expect("another is on watch"));
                        post.leave(watch);
                    }
                });
            }
        });
    }
}
