//! Ranges of bytes inside a file or object.

use std::fmt;

use serde::{Deserialize, Serialize};

/// `[start, end)` in bytes. `end == u64::MAX` means "to the end of file and beyond".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ByteRange {
    /// The first byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl ByteRange {
    /// The whole file, whatever its size becomes.
    pub const ALL: ByteRange = ByteRange {
        start: 0,
        end: u64::MAX,
    };

    /// `[start, end)`. Panics when `end < start`: callers validate foreign numbers first.
    pub fn new(start: u64, end: u64) -> ByteRange {
        assert!(start <= end, "byte range ends before it starts");
        ByteRange { start, end }
    }

    /// `len` bytes from `offset`, or `None` where that overflows.
    pub fn at(offset: u64, len: u64) -> Option<ByteRange> {
        Some(ByteRange {
            start: offset,
            end: offset.checked_add(len)?,
        })
    }

    /// From `start` to the end of file and beyond.
    pub fn from(start: u64) -> ByteRange {
        ByteRange {
            start,
            end: u64::MAX,
        }
    }

    /// Length in bytes.
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    /// Holds no byte.
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// Shares at least one byte with `other`.
    pub fn overlaps(self, other: ByteRange) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Holds every byte of `other`.
    pub fn contains(self, other: ByteRange) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// The bytes in both, if any.
    pub fn intersection(self, other: ByteRange) -> Option<ByteRange> {
        let (start, end) = (self.start.max(other.start), self.end.min(other.end));
        (start < end).then_some(ByteRange { start, end })
    }

    /// Grown outwards to multiples of `unit` bytes.
    pub fn aligned_out(self, unit: u64) -> ByteRange {
        let start = self.start - self.start % unit;
        let end = self.end.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
        ByteRange { start, end }
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end {
            u64::MAX => write!(f, "[{}, EOF)", self.start),
            end => write!(f, "[{}, {end})", self.start),
        }
    }
}

impl fmt::Debug for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_is_exclusive_at_the_end() {
        let (a, b) = (ByteRange::new(0, 10), ByteRange::new(10, 20));
        assert!(!a.overlaps(b) && a.intersection(b).is_none());
        assert_eq!(
            a.intersection(ByteRange::from(5)),
            Some(ByteRange::new(5, 10))
        );
        assert!(ByteRange::ALL.contains(b) && !b.contains(ByteRange::ALL));
    }

    #[test]
    fn aligns_outwards_without_overflow() {
        assert_eq!(ByteRange::new(1, 5).aligned_out(4), ByteRange::new(0, 8));
        assert_eq!(ByteRange::from(5).aligned_out(4096), ByteRange::ALL);
        assert_eq!(ByteRange::at(u64::MAX, 2), None);
    }
}
