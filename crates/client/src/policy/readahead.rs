//! What to read before it is asked for: one state per open file, no clock and no I/O.

use base::ByteRange;

/// The first window of a file read in order, in bytes.
pub const WINDOW_BYTES_MIN: u64 = 128 << 10;
/// The largest window, in bytes: as many requests on their way at once as keep a fast disk and a
/// long line busy. Only who has read as much in order gets it.
pub const WINDOW_BYTES_MAX: u64 = 32 << 20;
/// Bytes of one request. Large enough for its cost not to matter, small enough for one to be read
/// from the disk while another is on the wire and a third is handed to the kernel.
pub const REQUEST_BYTES: u64 = 1 << 20;
/// Files up to this size, in bytes, are read whole at the first touch.
pub const WHOLE_FILE_BYTES_MAX: u64 = 64 << 10;
/// How far, in bytes, a read may be from the expected place and still count as in order. The kernel splits
/// and reorders a sequential reader's requests.
const SLACK_BYTES: u64 = 128 << 10;

/// The read-ahead of one open file. Reads in order double the window, others halve it.
#[derive(Debug, Clone, Default)]
pub struct ReadAhead {
    /// Where the next read of a sequential reader starts.
    expected: u64,
    /// Up to where the bytes from `expected` on were asked for already.
    ahead: u64,
    /// Bytes to be ahead by; zero: this reader jumps about.
    window: u64,
    /// Reads in order, one after the other.
    in_order: u32,
    /// The whole (small) file was asked for.
    whole: bool,
    /// How often [`ReadAhead::is_ahead`] was asked since the last read in order.
    quiet: u8,
}

/// Looks by [`ReadAhead::is_ahead`] after which a reader that does not read on counts no more. What
/// was read ahead for it is the first to go.
const QUIET_MAX: u8 = 100;

impl ReadAhead {
    /// The state of a file just opened.
    pub fn new() -> ReadAhead {
        ReadAhead::default()
    }

    /// How far ahead of the reader this reads, in bytes.
    #[cfg(test)]
    pub fn window(&self) -> u64 {
        self.window
    }

    /// The range to fetch ahead, at most `max` bytes, when a program reads `len` bytes at `offset` of a file
    /// of `size` bytes. It does not include the bytes read; for a small file it is the whole file, once.
    pub fn next(&mut self, offset: u64, len: u64, size: u64, max: u64) -> Option<ByteRange> {
        let end = offset.saturating_add(len).min(size);
        if offset >= end {
            return None;
        }
        if size <= WHOLE_FILE_BYTES_MAX {
            return (!std::mem::replace(&mut self.whole, true)).then(|| ByteRange::new(0, size));
        }
        self.adapt(offset, end);
        self.fetch(end, size, max)
    }

    /// Whether something was asked for that is not read yet, by a reader that reads on. To be asked
    /// at a steady pace.
    pub fn is_ahead(&mut self) -> bool {
        self.quiet = self.quiet.saturating_add(1);
        self.quiet <= QUIET_MAX && self.ahead > self.expected
    }

    /// Forgets what was asked for: the cached bytes are gone.
    pub fn reset(&mut self) {
        *self = ReadAhead::new();
    }

    /// Learns from a read of `[offset, end)`.
    fn adapt(&mut self, offset: u64, end: u64) {
        if offset.abs_diff(self.expected) <= SLACK_BYTES {
            self.quiet = 0;
            self.in_order = self.in_order.saturating_add(1);
            self.expected = self.expected.max(end);
            // A read at the very start, or the second in a row, begins a sequential run.
            if self.window == 0 && (offset == 0 || self.in_order >= 2) {
                self.window = WINDOW_BYTES_MIN;
            }
            return;
        }
        self.in_order = 0;
        self.window /= 2;
        if self.window < WINDOW_BYTES_MIN {
            self.window = 0;
        }
        self.expected = end;
        self.ahead = end;
    }

    /// The next stretch, once half the window is free, or of a large one enough for a request. What
    /// is asked for in one burst comes in one burst, and the disk waits for the next.
    fn fetch(&mut self, end: u64, size: u64, max: u64) -> Option<ByteRange> {
        let window = self.window.min(max);
        if self.in_order == 0 || window < WINDOW_BYTES_MIN {
            return None;
        }
        let start = self.ahead.max(end);
        let stop = self.expected.saturating_add(window).min(size);
        let worthwhile = (window / 2).min(REQUEST_BYTES);
        if start >= stop || start - end > window - worthwhile {
            return None;
        }
        self.ahead = stop;
        self.window = (window * 2).min(WINDOW_BYTES_MAX);
        Some(ByteRange::new(start, stop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Rng, SeededRng};

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_small_file_is_fetched_whole_and_once() {
        let mut state = ReadAhead::new();
        assert_eq!(
            state.next(5000, 100, 60_000, WINDOW_BYTES_MAX),
            Some(ByteRange::new(0, 60_000))
        );
        assert_eq!(state.next(0, 100, 60_000, WINDOW_BYTES_MAX), None);
        assert_eq!(ReadAhead::new().next(0, 4096, 0, WINDOW_BYTES_MAX), None);
        assert_eq!(
            ReadAhead::new().next(70_000, 10, 60_000, WINDOW_BYTES_MAX),
            None
        );
        state.reset();
        assert_eq!(
            state.next(0, 1, 60_000, WINDOW_BYTES_MAX),
            Some(ByteRange::new(0, 60_000))
        );
    }

    #[test]
    fn a_sequential_reader_is_served_each_byte_once_in_few_large_pieces() {
        let (size, step) = (100 * MIB + 77, 128 << 10);
        let mut state = ReadAhead::new();
        let (mut fetched, mut pieces, mut at) = (step, 0, 0);
        while at < size {
            if let Some(range) = state.next(at, step, size, WINDOW_BYTES_MAX) {
                assert_eq!(range.start, fetched, "no gap, no overlap");
                assert!(range.len() <= WINDOW_BYTES_MAX && range.end <= size);
                fetched = range.end;
                pieces += 1;
            }
            at += step;
            assert!(fetched >= at.min(size), "the reader never outruns it");
        }
        assert_eq!(fetched, size);
        assert!(pieces < 110, "{pieces} pieces");
        assert_eq!(state.window(), WINDOW_BYTES_MAX);
    }

    #[test]
    fn requests_swapped_by_the_kernel_stay_sequential() {
        let mut state = ReadAhead::new();
        let step = 64 << 10;
        for pair in 0..100 {
            state.next((2 * pair + 1) * step, step, 1 << 30, WINDOW_BYTES_MAX);
            state.next(2 * pair * step, step, 1 << 30, WINDOW_BYTES_MAX);
        }
        assert_eq!(state.window(), WINDOW_BYTES_MAX);
    }

    #[test]
    fn a_random_reader_fetches_next_to_nothing() {
        let mut rng = SeededRng::new(1);
        let mut state = ReadAhead::new();
        let size = 10 << 30;
        let fetched: u64 = (0..1000)
            .filter_map(|_| state.next(rng.below(size / 4096) * 4096, 4096, size, WINDOW_BYTES_MAX))
            .map(|range| range.len())
            .sum();
        assert!(fetched <= WINDOW_BYTES_MIN, "{fetched}");
        assert_eq!(state.window(), 0);
    }

    #[test]
    fn a_jump_shrinks_the_window_and_order_grows_it_again() {
        let mut state = ReadAhead::new();
        for block in 0..100 {
            state.next(block * MIB, MIB, 10 << 30, WINDOW_BYTES_MAX);
        }
        assert_eq!(state.window(), WINDOW_BYTES_MAX);
        assert_eq!(state.next(5 << 30, MIB, 10 << 30, WINDOW_BYTES_MAX), None);
        assert_eq!(state.window(), WINDOW_BYTES_MAX / 2);
        let range = state
            .next((5 << 30) + MIB, MIB, 10 << 30, WINDOW_BYTES_MAX)
            .expect("in order again");
        assert_eq!(range.start, (5 << 30) + 2 * MIB);
        assert_eq!(state.window(), WINDOW_BYTES_MAX);
    }

    #[test]
    fn any_numbers_are_taken() {
        let mut rng = SeededRng::new(3);
        let mut state = ReadAhead::new();
        for _ in 0..10_000 {
            let shift = rng.below(64);
            let (offset, len, size) = (
                rng.next_u64() >> shift,
                rng.next_u64() >> rng.below(64),
                rng.next_u64() >> shift,
            );
            if let Some(range) = state.next(offset, len, size, WINDOW_BYTES_MAX) {
                assert!(!range.is_empty() && range.end <= size);
                assert!(range.len() <= WINDOW_BYTES_MAX + SLACK_BYTES + len.min(size));
            }
        }
    }

    #[test]
    fn a_bound_holds_the_window_back_and_lets_it_grow_again() {
        let (size, mut state) = (1 << 30, ReadAhead::new());
        let mut at = 0;
        for max in [256 << 10, MIB, 0, 128 << 10, 4 * MIB, 300 << 10] {
            let before = state.ahead;
            for _ in 0..100 {
                state.next(at, 128 << 10, size, max);
                at += 128 << 10;
                assert!(state.ahead <= before.max(at + max), "at most {max} ahead");
            }
            assert!(max < WINDOW_BYTES_MIN || state.ahead >= at, "{max}");
        }
    }

    #[test]
    fn who_stops_reading_is_ahead_for_a_while_only() {
        let mut state = ReadAhead::new();
        assert!(!state.is_ahead());
        state.next(0, MIB, 10 * MIB, WINDOW_BYTES_MAX);
        for _ in 0..QUIET_MAX {
            assert!(state.is_ahead());
        }
        assert!(!state.is_ahead());
        state.next(MIB, MIB, 10 * MIB, WINDOW_BYTES_MAX);
        assert!(state.is_ahead());
        for mib in 2..10 {
            state.next(mib * MIB, MIB, 10 * MIB, WINDOW_BYTES_MAX);
        }
        assert!(!state.is_ahead(), "it has read all");
    }
}
