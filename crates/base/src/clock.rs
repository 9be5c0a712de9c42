//! Time as an argument: cores take a [`Tick`] or [`Timestamp`], rims ask a [`Clock`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::time::Timestamp;

/// Monotonic nanoseconds since an arbitrary start; what cores measure ages and deadlines in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tick(pub u64);

impl Tick {
    /// `self + by`, saturating.
    pub fn after(self, by: Duration) -> Tick {
        Tick(
            self.0
                .saturating_add(by.as_nanos().min(u128::from(u64::MAX)) as u64),
        )
    }

    /// `self - by`; `None` before the start.
    pub fn before(self, by: Duration) -> Option<Tick> {
        let by = u64::try_from(by.as_nanos()).ok()?;
        self.0.checked_sub(by).map(Tick)
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Tick) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The two clocks a rim needs. Cores never hold one.
pub trait Clock: Send + Sync {
    /// Monotonic time.
    fn tick(&self) -> Tick;
    /// Wall time, for file times.
    fn now(&self) -> Timestamp;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock {
            start: Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    fn tick(&self) -> Tick {
        Tick(self.start.elapsed().as_nanos() as u64)
    }

    fn now(&self) -> Timestamp {
        // A wall clock before 1970 has no meaning here: such a machine's files get time zero.
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp {
            secs: since.as_secs() as i64,
            nanos: since.subsec_nanos(),
        }
    }
}

/// A clock that moves only when told to; shared by tests and the simulator.
#[derive(Debug, Default)]
pub struct VirtualClock {
    nanos: AtomicU64,
}

impl VirtualClock {
    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        self.nanos.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Clock for VirtualClock {
    fn tick(&self) -> Tick {
        Tick(self.nanos.load(Ordering::SeqCst))
    }

    fn now(&self) -> Timestamp {
        let nanos = self.nanos.load(Ordering::SeqCst);
        Timestamp {
            secs: (nanos / 1_000_000_000) as i64,
            nanos: (nanos % 1_000_000_000) as u32,
        }
    }
}
