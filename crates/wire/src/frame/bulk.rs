//! The bulk region of a frame: raw file data, in the pieces that it lies in.

use bytes::{Bytes, BytesMut};

/// Bytes that follow each other on the wire and may lie apart in memory: what is sent need not be
/// copied together first.
#[derive(Debug, Clone, Default)]
pub struct Bulk {
    /// None of them empty.
    pieces: Vec<Bytes>,
    len: usize,
}

impl Bulk {
    /// Adds `piece` at the end.
    pub fn push(&mut self, piece: Bytes) {
        self.len += piece.len();
        if !piece.is_empty() {
            self.pieces.push(piece);
        }
    }

    /// Adds all of `other` at the end.
    pub fn append(&mut self, other: Bulk) {
        self.len += other.len;
        self.pieces.extend(other.pieces);
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.len
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pieces in order.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// All in one piece, which a single one is already: as everything is that came over a network.
    pub fn joined(&self) -> Bytes {
        match &self.pieces[..] {
            [] => Bytes::new(),
            [one] => one.clone(),
            several => {
                let mut all = BytesMut::with_capacity(self.len);
                several
                    .iter()
                    .for_each(|piece| all.extend_from_slice(piece));
                all.freeze()
            }
        }
    }

    pub(super) fn checksum(&self) -> u32 {
        let append = |crc, piece: &Bytes| crc32c::crc32c_append(crc, piece);
        self.pieces.iter().fold(0, append)
    }
}

impl From<Bytes> for Bulk {
    fn from(piece: Bytes) -> Bulk {
        let mut bulk = Bulk::default();
        bulk.push(piece);
        bulk
    }
}

impl From<Vec<u8>> for Bulk {
    fn from(piece: Vec<u8>) -> Bulk {
        Bytes::from(piece).into()
    }
}

/// However they are cut.
impl PartialEq for Bulk {
    fn eq(&self, other: &Bulk) -> bool {
        self.len == other.len && self.joined() == other.joined()
    }
}

impl Eq for Bulk {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_one() {
        let mut bulk = Bulk::default();
        assert!(bulk.is_empty() && bulk.joined().is_empty());
        for piece in [&b"one"[..], b"", b"two"] {
            bulk.push(Bytes::from_static(piece));
        }
        bulk.append(Bulk::from(b"three".to_vec()));
        assert_eq!((bulk.len(), bulk.pieces().len()), (11, 3));
        assert_eq!(bulk.joined(), &b"onetwothree"[..]);
        let whole = Bulk::from(b"onetwothree".to_vec());
        assert_eq!(bulk.checksum(), whole.checksum());
        assert_eq!(bulk, whole);
        assert_ne!(bulk, Bulk::from(b"onetwothrow".to_vec()));
    }

    #[test]
    fn one_piece_is_not_copied() {
        let piece = Bytes::from(vec![7; 100]);
        assert_eq!(Bulk::from(piece.clone()).joined().as_ptr(), piece.as_ptr());
    }
}
