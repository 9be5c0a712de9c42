//! File times.

use serde::{Deserialize, Serialize};

/// A point in time as POSIX stores it, to the nanosecond.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC; negative before.
    pub secs: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nanos: u32,
}

impl Timestamp {
    /// The later of the two.
    pub fn later(self, other: Timestamp) -> Timestamp {
        self.max(other)
    }
}
