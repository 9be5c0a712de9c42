//! When a thread stays awake for the next request. On a virtual machine being woken costs more than a small
//! request. Pure (docs/adr/0005-one-reader-on-watch.md).

use std::time::Duration;

/// How long to stay awake: about the price of falling asleep and being woken.
const PATIENCE: Duration = Duration::from_micros(100);
/// Arrivals within [`PATIENCE`] of the last, before the next is expected to be one.
const SURE: u8 = 4;
/// What is remembered of such arrivals at most.
const MEMORY: u8 = 16;

/// What is known of how things come.
#[derive(Debug, Default)]
pub struct Wakefulness {
    in_time: u8,
}

impl Wakefulness {
    /// How long to stay awake for the next arrival.
    pub fn patience(&self) -> Duration {
        match self.in_time >= SURE {
            true => PATIENCE,
            false => Duration::ZERO,
        }
    }

    /// Something came, so long after the one before was done with.
    pub fn came_after(&mut self, gap: Duration) {
        self.in_time = match gap <= PATIENCE {
            true => (self.in_time + 1).min(MEMORY),
            false => self.in_time / 2,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn awake_only_for_what_comes_at_once() {
        let (soon, late) = (Duration::from_micros(20), Duration::from_millis(1));
        let mut wakefulness = Wakefulness::default();
        for _ in 0..SURE {
            assert_eq!(wakefulness.patience(), Duration::ZERO);
            wakefulness.came_after(soon);
        }
        assert_eq!(wakefulness.patience(), PATIENCE);
        (0..1000).for_each(|_| wakefulness.came_after(soon));
        let mut wasted = 0;
        while wakefulness.patience() > Duration::ZERO {
            wakefulness.came_after(late);
            wasted += 1;
        }
        assert!(wasted <= 3, "{wasted} times awake for nothing");
    }
}
