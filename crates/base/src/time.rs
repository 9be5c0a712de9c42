//! File times.

use serde::{Deserialize, Serialize};

/// A point in time as POSIX stores it, to the nanosecond. A mount keeps five for each of millions of
/// files: hence 12 bytes, not 16.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[repr(Rust, packed(4))]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC; negative before.
    pub secs: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nanos: u32,
}

impl Timestamp {
    /// The first moment after it.
    pub fn next(self) -> Timestamp {
        match self.nanos {
            999_999_999.. => Timestamp {
                secs: self.secs.saturating_add(1),
                nanos: 0,
            },
            nanos => Timestamp {
                nanos: nanos + 1,
                ..self
            },
        }
    }

    /// The later of the two.
    pub fn later(self, other: Timestamp) -> Timestamp {
        self.max(other)
    }
}
