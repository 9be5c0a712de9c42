//! What of one file's bytes is being fetched, and what came ahead of its reader.

use base::ByteRange;

use crate::cache::ahead::Ahead;

/// The fetches of one file.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    /// Ranges on their way.
    ranges: Vec<ByteRange>,
    /// What was fetched ahead of the reader.
    ahead: Ahead,
}

impl Fetches {
    /// Bytes of `range` are on their way.
    pub fn overlap(&self, range: ByteRange) -> bool {
        self.ranges.iter().any(|busy| busy.overlaps(range))
    }

    /// These ranges are asked for.
    pub fn begin(&mut self, ranges: &[ByteRange]) {
        self.ranges.extend(ranges);
    }

    /// These ranges are here, or could not be had.
    pub fn end(&mut self, ranges: &[ByteRange]) {
        self.ranges.retain(|busy| !ranges.contains(busy));
    }

    /// What statahead has to do with the bytes.
    pub fn ahead(&self) -> Ahead {
        self.ahead
    }

    /// What statahead has to do with the bytes now.
    pub fn set_ahead(&mut self, ahead: Ahead) {
        self.ahead = ahead;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_on_their_way_until_they_are_here() {
        let (mut fetches, [first, second]) = (
            Fetches::default(),
            [ByteRange::new(0, 10), ByteRange::new(20, 30)],
        );
        fetches.begin(&[first, second]);
        assert!(fetches.overlap(ByteRange::new(5, 15)));
        assert!(!fetches.overlap(ByteRange::new(10, 20)));
        fetches.end(&[first]);
        assert!(!fetches.overlap(first) && fetches.overlap(second));
    }
}
