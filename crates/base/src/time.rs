//! File times.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A point in time as POSIX stores it, to the nanosecond. A mount keeps five for each of millions of
/// files: hence 12 bytes, not 16.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(try_from = "Parts")]
#[repr(Rust, packed(4))]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC; negative before.
    pub secs: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nanos: u32,
}

/// A time as it comes from elsewhere, not checked yet.
#[derive(Deserialize)]
struct Parts {
    secs: i64,
    nanos: u32,
}

/// A second has 1,000,000,000 nanoseconds, and a time has more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyNanos;

impl fmt::Display for TooManyNanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a second has 1,000,000,000 nanoseconds")
    }
}

impl std::error::Error for TooManyNanos {}

/// What every decoder does, of messages and of records.
impl TryFrom<Parts> for Timestamp {
    type Error = TooManyNanos;

    fn try_from(Parts { secs, nanos }: Parts) -> Result<Timestamp, TooManyNanos> {
        Timestamp { secs, nanos }.checked()
    }
}

impl Timestamp {
    /// It, if it is a time: the one check for those who read one and those who store one.
    pub fn checked(self) -> Result<Timestamp, TooManyNanos> {
        match self.nanos {
            0..=999_999_999 => Ok(self),
            _ => Err(TooManyNanos),
        }
    }

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
