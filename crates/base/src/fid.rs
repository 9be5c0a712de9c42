//! File ids (FIDs).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Bits of a FID that number objects inside one sequence.
const OBJECT_BITS: u32 = 24;

/// A file's id for its whole life and beyond: it is never used for another file. 38 bits of sequence, 24 bits
/// of object.
///
/// A FID is also `st_ino` and the FUSE node id, so all its 64 bits count: two files with one `st_ino` corrupt
/// `tar`, `rsync -H` and `cp -a`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fid(pub u64);

impl Fid {
    /// The root directory. One, because FUSE fixes the root's nodeid to one.
    pub const ROOT: Fid = Fid(1);
    /// No file. Zero, as FUSE's "no node".
    pub const NONE: Fid = Fid(0);
    /// The last object number of a sequence.
    pub const OBJECT_MAX: u32 = (1 << OBJECT_BITS) - 1;
    /// The last sequence: two bits above FIDs are free, for numbers that are none beside those that are.
    pub const SEQUENCE_MAX: u64 = (1 << (62 - OBJECT_BITS)) - 1;
    /// The first sequence granted to clients; those below belong to the servers.
    pub const SEQUENCE_FIRST: u64 = 0x400;

    /// The FID of `object` in `sequence`. Panics when either is out of range: both are minted here.
    pub fn new(sequence: u64, object: u32) -> Fid {
        assert!(
            sequence <= Self::SEQUENCE_MAX && object <= Self::OBJECT_MAX,
            "FID out of range"
        );
        Fid(sequence << OBJECT_BITS | u64::from(object))
    }

    /// The sequence: who minted it.
    pub fn sequence(self) -> u64 {
        self.0 >> OBJECT_BITS
    }

    /// The object inside the sequence.
    pub fn object(self) -> u32 {
        (self.0 & u64::from(Self::OBJECT_MAX)) as u32
    }
}

impl fmt::Display for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:#x}:{:#x}]", self.sequence(), self.object())
    }
}

impl fmt::Debug for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a person typed is not a FID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FidParseError(String);

impl fmt::Display for FidParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a FID; expected [0xSEQUENCE:0xOBJECT]",
            self.0
        )
    }
}

impl std::error::Error for FidParseError {}

impl FromStr for Fid {
    type Err = FidParseError;

    fn from_str(text: &str) -> Result<Fid, FidParseError> {
        let err = || FidParseError(text.to_owned());
        let hex = |s: &str| u64::from_str_radix(s.strip_prefix("0x").unwrap_or(s), 16).ok();
        let inner = text.trim_start_matches('[').trim_end_matches(']');
        let (sequence, object) = inner.split_once(':').ok_or_else(err)?;
        let (sequence, object) = (hex(sequence).ok_or_else(err)?, hex(object).ok_or_else(err)?);
        if sequence > Self::SEQUENCE_MAX || object > u64::from(Self::OBJECT_MAX) {
            return Err(err());
        }
        Ok(Fid::new(sequence, object as u32))
    }
}

/// Sequences granted to one client, from which it mints FIDs without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceRange {
    /// The first sequence granted.
    pub first: u64,
    /// How many sequences.
    pub count: u64,
}

impl SequenceRange {
    /// There is one, and all are such as clients are granted.
    pub fn is_grantable(self) -> bool {
        let last = self.first.checked_add(self.count);
        let is_within = last.is_some_and(|end| end <= Fid::SEQUENCE_MAX + 1);
        self.first >= Fid::SEQUENCE_FIRST && self.count > 0 && is_within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_and_unpacks_at_the_edges() {
        for (sequence, object) in [(0, 1), (1, 0), (Fid::SEQUENCE_MAX, Fid::OBJECT_MAX)] {
            let fid = Fid::new(sequence, object);
            assert_eq!((fid.sequence(), fid.object()), (sequence, object));
            assert_eq!(fid.to_string().parse(), Ok(fid));
        }
        assert_eq!(Fid::new(0, 1), Fid::ROOT);
    }

    #[test]
    fn a_grant_has_sequences_that_clients_may_have() {
        let (first, last) = (Fid::SEQUENCE_FIRST, Fid::SEQUENCE_MAX);
        let is_grantable = |(first, count)| SequenceRange { first, count }.is_grantable();
        let sound = [(first, 1), (first, last - first + 1), (last, 1)];
        assert_eq!(sound.map(is_grantable), [true; 3]);
        let not = [(first, 0), (first - 1, 1), (0, 1), (last, 2), (last + 1, 1)];
        assert_eq!(not.map(is_grantable), [false; 5]);
        assert_eq!(
            [(u64::MAX, 1), (first, u64::MAX)].map(is_grantable),
            [false; 2]
        );
    }

    #[test]
    fn refuses_what_is_not_a_fid() {
        for text in [
            "",
            "[]",
            "1",
            "[0x1:0x1000000]",
            "[0x10000000000:0x1]",
            "[x:y]",
        ] {
            assert!(text.parse::<Fid>().is_err(), "{text}");
        }
    }
}
