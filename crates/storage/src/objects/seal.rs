//! The sums of a part of an object, as `docs/disk.md` ("OST records", `ost_seals`) fixes them.

use std::ops::Range;

use base::{ByteRange, Damage};

use super::store::ObjectId;
use crate::kv::KeyRange;

/// Bytes that one sum covers; the last of an object covers what there is.
pub(super) const BLOCK: u64 = 4096;
/// Bytes of an object whose sums are in one row.
pub(super) const SEGMENT: u64 = 4 << 20;

/// In place of the number of a segment: the row that says where the object ends.
pub(super) const END: u64 = u64::MAX - 1;

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 6;
/// Where the flag stands.
const OPEN_AT: usize = 1;

/// What is known of one segment of an object; or of its end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Seal {
    /// Bytes of it may be changing: nothing is said of them.
    pub open: bool,
    /// Bytes of the segment that the sums cover, from its start. At the end: bytes of the object.
    pub len: u64,
    /// CRC-32C of each block. At the end: none.
    pub sums: Vec<u32>,
}

impl Seal {
    /// The bytes of block `block` that its sum covers, of the segment.
    pub fn extent(&self, block: usize) -> Option<Range<u64>> {
        extent_of(block, self.len)
    }

    /// As stored for `segment`.
    pub fn encode(&self, segment: u64) -> Vec<u8> {
        let mut bytes = vec![VERSION, u8::from(self.open)];
        if segment == END {
            bytes.extend(self.len.to_le_bytes());
            return bytes;
        }
        bytes.extend((self.len as u32).to_le_bytes());
        bytes.extend(self.sums.iter().flat_map(|sum| sum.to_le_bytes()));
        bytes
    }

    /// The seal of `segment` in `bytes`.
    pub fn decode(segment: u64, bytes: &[u8]) -> Result<Seal, Damage> {
        let wrong = |reason: &str| Damage {
            record: "seal".to_owned(),
            reason: reason.to_owned(),
        };
        let header = bytes.first_chunk::<HEADER_BYTES>();
        let [version, open, len @ ..] = *header.ok_or_else(|| wrong("too short"))?;
        let rest = &bytes[HEADER_BYTES..];
        if version != VERSION {
            return Err(wrong(&format!("version {version}, not {VERSION}")));
        }
        let open = match open {
            0 | 1 => open == 1,
            _ => return Err(wrong("a flag is 0 or 1")),
        };
        let len = u64::from(u32::from_le_bytes(len));
        if segment == END {
            let high: [u8; 4] = rest.try_into().map_err(|_| wrong("an end has 10 bytes"))?;
            let len = u64::from(u32::from_le_bytes(high)) << 32 | len;
            let sums = Vec::new();
            return Ok(Seal { open, len, sums });
        }
        let (sums, rest) = rest.as_chunks::<4>();
        if !rest.is_empty() || sums.len() as u64 != len.div_ceil(BLOCK) || len > SEGMENT {
            return Err(wrong("as many sums as it has blocks"));
        }
        let sums = sums.iter().map(|sum| u32::from_le_bytes(*sum)).collect();
        Ok(Seal { open, len, sums })
    }

    /// A stored seal is open. What is no seal is found by who decodes it.
    pub fn is_open(bytes: &[u8]) -> bool {
        bytes.get(OPEN_AT) == Some(&1)
    }
}

/// Block `block` of `len` bytes: which bytes those are. None: it is beyond them.
pub(super) fn extent_of(block: usize, len: u64) -> Option<Range<u64>> {
    let start = block as u64 * BLOCK;
    (start < len).then(|| start..len.min(start + BLOCK))
}

/// The segments that hold a byte of `range`.
pub(super) fn segments(range: ByteRange) -> Range<u64> {
    match range.is_empty() {
        true => 0..0,
        false => range.start / SEGMENT..range.end.div_ceil(SEGMENT),
    }
}

/// The part of `range` in segment `segment`, from that one's start. The end has no part in any.
pub(super) fn part_in(segment: u64, range: ByteRange) -> Range<u64> {
    let base = segment.saturating_mul(SEGMENT);
    let clip = |at: u64| at.saturating_sub(base).min(SEGMENT);
    clip(range.start)..clip(range.end)
}

/// The key of a segment: FID (8), stripe (4), segment (8), so that those of an object follow each other.
pub(super) fn key(id: ObjectId, segment: u64) -> [u8; 20] {
    let mut key = [0; 20];
    key[..8].copy_from_slice(&id.fid.0.to_be_bytes());
    key[8..12].copy_from_slice(&id.stripe.to_be_bytes());
    key[12..].copy_from_slice(&segment.to_be_bytes());
    key
}

/// The inverse of [`key`].
pub(super) fn place_of_key(key: &[u8]) -> Result<(ObjectId, u64), Damage> {
    let split = || {
        let (fid, rest) = key.split_first_chunk::<8>()?;
        let (stripe, rest) = rest.split_first_chunk::<4>()?;
        let segment: &[u8; 8] = rest.try_into().ok()?;
        let (fid, stripe) = (u64::from_be_bytes(*fid), u32::from_be_bytes(*stripe));
        let id = ObjectId::new(base::Fid(fid), stripe);
        Some((id, u64::from_be_bytes(*segment)))
    };
    split().ok_or_else(|| Damage {
        record: "key of a seal".to_owned(),
        reason: "it has 20 bytes".to_owned(),
    })
}

/// The keys of these segments of an object.
pub(super) fn keys(id: ObjectId, segments: Range<u64>) -> KeyRange {
    KeyRange::new(key(id, segments.start), key(id, segments.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_bytes_are_fixed() {
        let id = ObjectId::new(base::Fid(0x0102), 3);
        let bytes = [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4];
        assert_eq!(key(id, 4), bytes);
        assert_eq!(place_of_key(&bytes), Ok((id, 4)));
        let seal = Seal {
            open: false,
            len: 4097,
            sums: vec![1, 0x0203],
        };
        let stored = [1, 0, 1, 16, 0, 0, 1, 0, 0, 0, 3, 2, 0, 0];
        assert_eq!(seal.encode(4), stored);
        assert_eq!(Seal::decode(4, &stored), Ok(seal.clone()));
        assert_eq!(seal.extent(0), Some(0..4096));
        assert_eq!(seal.extent(1), Some(4096..4097));
        assert_eq!(seal.extent(2), None);
        let open = Seal {
            open: true,
            ..Seal::default()
        };
        assert_eq!(open.encode(4), [1, 1, 0, 0, 0, 0]);
        assert!(Seal::is_open(&open.encode(4)) && !Seal::is_open(&stored));
        let end = Seal {
            len: 0x0908_0706_0504_0302,
            ..Seal::default()
        };
        let stored = [1, 0, 2, 3, 4, 5, 6, 7, 8, 9];
        assert_eq!(
            (end.encode(END), Seal::decode(END, &stored)),
            (stored.to_vec(), Ok(end))
        );
        assert_eq!(key(id, END)[12..], [255, 255, 255, 255, 255, 255, 255, 254]);
        assert!(part_in(END, ByteRange::from(0)).is_empty());
    }

    #[test]
    fn what_was_not_written_by_us_is_damage() {
        let seal = Seal {
            open: false,
            len: 5,
            sums: vec![1],
        };
        let good = seal.encode(0);
        for (at, byte) in [(0, 2), (1, 2), (2, 0), (3, 0x20), (5, 0x80)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(Seal::decode(0, &bad).is_err(), "{at}");
        }
        assert!(Seal::decode(0, &good[..9]).is_err() && Seal::decode(0, &[]).is_err());
        assert!(Seal::decode(END, &[1, 0, 1, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(place_of_key(&[0; 19]).is_err() && place_of_key(&[0; 21]).is_err());
    }

    #[test]
    fn segments_and_their_parts() {
        let range = ByteRange::new(SEGMENT - 1, 2 * SEGMENT + 1);
        assert_eq!(segments(range), 0..3);
        assert_eq!(part_in(0, range), SEGMENT - 1..SEGMENT);
        assert_eq!(part_in(1, range), 0..SEGMENT);
        assert_eq!(part_in(2, range), 0..1);
        assert_eq!(segments(ByteRange::new(7, 7)), 0..0);
    }
}
