//! Group commit: how long changes may wait to be made durable together when nobody waits for them,
//! and what making them durable took. Shared by who commits and who asks or changes it meanwhile.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Powers of two of microseconds that are told apart: the last one is half an hour.
const BUCKETS: usize = 32;

/// A bound of the pace that can be set, in its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// The least.
    pub least: u64,
    /// The usual.
    pub usual: u64,
    /// The most.
    pub most: u64,
}

/// How long a change may wait, in milliseconds. A crash of all clients and the server at once takes
/// at most what is younger. The most is what clients keep for replay in memory.
pub const COMMIT_MS: Bound = Bound {
    least: 1,
    usual: 1000,
    most: 60_000,
};

/// How many bytes may wait. A store of records commits at 32 MiB at the latest, which is half of what it
/// holds in memory.
pub const COMMIT_BYTES: Bound = Bound {
    least: 4096,
    usual: 256 << 20,
    most: 1 << 40,
};

/// That is no value for the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfBounds(pub Bound);

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bound { least, most, .. } = self.0;
        write!(f, "from {least} to {most}")
    }
}

impl std::error::Error for OutOfBounds {}

/// When a commit is due.
#[derive(Debug)]
pub struct Pace {
    ms: AtomicU64,
    bytes: AtomicU64,
    taken: Mutex<Taken>,
}

/// What commits took since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// Commits.
    pub commits: u64,
    /// Bytes that they made durable.
    pub bytes: u64,
    /// The longest.
    pub longest: Duration,
    /// How many took less than `2^n` microseconds, and not less than half of that, by `n`.
    counts: [u64; BUCKETS],
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            ms: AtomicU64::new(COMMIT_MS.usual),
            bytes: AtomicU64::new(COMMIT_BYTES.usual),
            taken: Mutex::default(),
        }
    }
}

impl Pace {
    /// The usual pace.
    pub fn usual() -> Arc<Pace> {
        Arc::default()
    }

    /// One with `interval`, not even looked at for its bounds: for tests.
    pub fn every(interval: Duration) -> Arc<Pace> {
        let pace = Pace::default();
        pace.ms
            .store(interval.as_millis() as u64, Ordering::Relaxed);
        Arc::new(pace)
    }

    /// How long a change may wait.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.ms.load(Ordering::Relaxed))
    }

    /// How many bytes may wait.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Sets [`Pace::interval`], in milliseconds, from the next change on.
    pub fn set_ms(&self, ms: u64) -> Result<(), OutOfBounds> {
        set(&self.ms, COMMIT_MS, ms)
    }

    /// Sets [`Pace::bytes`].
    pub fn set_bytes(&self, bytes: u64) -> Result<(), OutOfBounds> {
        set(&self.bytes, COMMIT_BYTES, bytes)
    }

    /// A commit of so many bytes took so long.
    pub fn took(&self, time: Duration, bytes: u64) {
        let mut taken = self.lock();
        taken.commits += 1;
        taken.bytes += bytes;
        taken.longest = taken.longest.max(time);
        taken.counts[bucket(time)] += 1;
    }

    /// What commits took so far.
    pub fn taken(&self) -> Taken {
        self.lock().clone()
    }

    /// Changed in steps that cannot fail.
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// The time that so many percent of commits stayed below, to a factor of two. Zero without any.
    pub fn percentile(&self, percent: u64) -> Duration {
        let wanted = (self.commits * percent).div_ceil(100);
        let mut seen = 0;
        for (number, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return Duration::from_micros(1 << number).min(self.longest);
            }
        }
        Duration::ZERO
    }
}

fn bucket(time: Duration) -> usize {
    let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    (u64::BITS - us.leading_zeros()).min(BUCKETS as u32 - 1) as usize
}

fn set(value: &AtomicU64, bound: Bound, to: u64) -> Result<(), OutOfBounds> {
    match (bound.least..=bound.most).contains(&to) {
        true => {
            value.store(to, Ordering::Relaxed);
            Ok(())
        }
        false => Err(OutOfBounds(bound)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_a_factor_of_two() {
        let pace = Pace::default();
        assert_eq!(pace.taken().percentile(50), Duration::ZERO);
        for _ in 0..98 {
            pace.took(Duration::from_micros(700), 10);
        }
        pace.took(Duration::from_millis(30), 10);
        pace.took(Duration::from_secs(4000), 10);
        let taken = pace.taken();
        assert_eq!((taken.commits, taken.bytes), (100, 1000));
        assert_eq!(taken.percentile(50), Duration::from_micros(1024));
        assert_eq!(taken.percentile(99), Duration::from_micros(32_768));
        assert_eq!(taken.longest, Duration::from_secs(4000));
        let one = Pace::default();
        one.took(Duration::from_micros(700), 1);
        assert_eq!(one.taken().percentile(99), Duration::from_micros(700));
    }

    #[test]
    fn what_makes_no_sense_is_not_set() {
        let pace = Pace::default();
        assert_eq!(pace.set_ms(0), Err(OutOfBounds(COMMIT_MS)));
        assert_eq!(pace.set_bytes(u64::MAX), Err(OutOfBounds(COMMIT_BYTES)));
        assert_eq!(
            (pace.interval(), pace.bytes()),
            (Duration::from_secs(1), 256 << 20)
        );
        assert_eq!((pace.set_ms(20), pace.set_bytes(8192)), (Ok(()), Ok(())));
        assert_eq!(
            (pace.interval(), pace.bytes()),
            (Duration::from_millis(20), 8192)
        );
    }
}
