//! How many bytes of a file go in one write: fewer where its OST has no space for more.

use base::limits::BULK_BYTES_MAX;

/// A smaller write is not tried. An OST could take it for one into space that the object has already: it
/// counts the blocks of an object, among which the local file system has some of its own.
pub const BYTES_MIN: u64 = 64 << 10;

/// The most that goes in one write, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteSize(u64);

impl Default for WriteSize {
    fn default() -> WriteSize {
        WriteSize(BULK_BYTES_MAX as u64)
    }
}

impl WriteSize {
    /// The most that goes in one write, in bytes; at least [`BYTES_MIN`].
    pub fn bytes(self) -> u64 {
        self.0
    }

    /// There was no space for a write of `len` bytes. False: nor is there for a part of it.
    pub fn refused(&mut self, len: u64) -> bool {
        let half = (len / 2).next_multiple_of(BYTES_MIN);
        self.0 = self.0.min(half).max(BYTES_MIN);
        len > BYTES_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_become_smaller_until_there_is_space_for_nothing() {
        let mut size = WriteSize::default();
        let mut refused = 0;
        while size.refused(size.bytes()) {
            refused += 1;
        }
        assert_eq!((size.bytes(), refused), (BYTES_MIN, 6));
        assert!(!size.refused(1));
        assert!(WriteSize::default().refused(BYTES_MIN + 1));
    }
}
