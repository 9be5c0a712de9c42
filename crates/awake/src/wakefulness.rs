//! When a thread stays awake for the next request. On a virtual machine being woken costs more than a small
//! request. Pure (docs/adr/0005-one-reader-on-watch.md).

use std::time::Duration;

/// How long to stay awake: about the price of falling asleep and being woken.
const PATIENCE: Duration = Duration::from_micros(100);
/// Arrivals within [`PATIENCE`] of the last, before the next is expected to be one.
const SURE: u8 = 4;
/// What is remembered of such arrivals at most.
const MEMORY: u8 = 16;
/// A CPU that is away for longer than this does another program's work. Callers and servers mostly need less
/// for a small request.
const AWAY: Duration = Duration::from_millis(1);
/// Arrivals for which a thread sleeps that has lost its CPU: after the first time, and at most. They double
/// each time.
const SLEEPS_FIRST: u16 = 16;
const SLEEPS_MAX: u16 = 1024;

/// What is known of how things come.
#[derive(Debug)]
pub struct Wakefulness {
    in_time: u8,
    /// Arrivals for which the thread sleeps, whatever they are.
    sleeps: u16,
    /// As many there will be when the CPU is lost for the next time.
    sleeps_next: u16,
}

impl Default for Wakefulness {
    fn default() -> Wakefulness {
        Wakefulness {
            in_time: 0,
            sleeps: 0,
            sleeps_next: SLEEPS_FIRST,
        }
    }
}

impl Wakefulness {
    /// How long to stay awake for the next arrival.
    pub fn patience(&self) -> Duration {
        match self.in_time >= SURE && self.sleeps == 0 {
            true => PATIENCE,
            false => Duration::ZERO,
        }
    }

    /// Something came, so long after the one before was done with.
    pub fn came_after(&mut self, gap: Duration) {
        if self.sleeps == 0 && gap <= PATIENCE {
            self.sleeps_next = (self.sleeps_next - 1).max(SLEEPS_FIRST);
        }
        self.sleeps = self.sleeps.saturating_sub(1);
        self.in_time = match gap <= PATIENCE {
            true => (self.in_time + 1).min(MEMORY),
            false => self.in_time / 2,
        };
    }

    /// A thread that stayed awake gave its CPU to the threads that want it, and got it back after `time`.
    /// Where others compute, it would wait behind them; a thread that is woken comes before them.
    pub fn gave_cpu_for(&mut self, time: Duration) {
        if time > AWAY {
            self.sleeps = self.sleeps_next;
            self.sleeps_next = (self.sleeps_next * 2).min(SLEEPS_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_micros(20);
    const LATE: Duration = Duration::from_millis(3);

    #[test]
    fn awake_only_for_what_comes_at_once() {
        let mut wakefulness = Wakefulness::default();
        for _ in 0..SURE {
            assert_eq!(wakefulness.patience(), Duration::ZERO);
            wakefulness.came_after(SOON);
        }
        assert_eq!(wakefulness.patience(), PATIENCE);
        (0..1000).for_each(|_| wakefulness.came_after(SOON));
        let mut wasted = 0;
        while wakefulness.patience() > Duration::ZERO {
            wakefulness.came_after(LATE);
            wasted += 1;
        }
        assert!(wasted <= 3, "{wasted} times awake for nothing");
    }

    /// Arrivals, all of them soon, of which a thread sleeps through `asleep` until it is awake again.
    fn asleep(wakefulness: &mut Wakefulness) -> usize {
        let mut asleep = 0;
        while wakefulness.patience().is_zero() {
            wakefulness.came_after(SOON);
            asleep += 1;
        }
        asleep
    }

    #[test]
    fn where_others_compute_it_sleeps_ever_longer() {
        let mut wakefulness = Wakefulness::default();
        asleep(&mut wakefulness);
        let mut lost = 0;
        let mut lose_cpu = |wakefulness: &mut Wakefulness| {
            wakefulness.gave_cpu_for(LATE);
            wakefulness.came_after(LATE);
            lost += 1;
            asleep(wakefulness)
        };
        let sleeps: Vec<_> = (0..9).map(|_| lose_cpu(&mut wakefulness)).collect();
        assert!(sleeps.is_sorted(), "{sleeps:?}");
        assert_eq!(sleeps.last(), Some(&usize::from(SLEEPS_MAX - 1)));
    }

    #[test]
    fn where_others_compute_no_more_it_is_awake_as_before() {
        let mut wakefulness = Wakefulness::default();
        (0..20).for_each(|_| wakefulness.gave_cpu_for(LATE));
        assert!(asleep(&mut wakefulness) <= usize::from(SLEEPS_MAX));
        for _ in 0..SLEEPS_MAX {
            wakefulness.gave_cpu_for(SOON);
            wakefulness.came_after(SOON);
            assert_eq!(wakefulness.patience(), PATIENCE);
        }
        wakefulness.gave_cpu_for(LATE);
        assert_eq!(asleep(&mut wakefulness), usize::from(SLEEPS_FIRST));
    }
}
