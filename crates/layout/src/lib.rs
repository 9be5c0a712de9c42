//! Striping arithmetic: which bytes of which object hold a range of a file.

mod stripes;

use base::{ByteRange, Fid, TargetIndex};
use serde::{Deserialize, Serialize};

pub use stripes::{NotAPowerOfTwo, StripeBytes, Stripes};

/// An object's id: the file's FID and the stripe's number; nothing else names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectId {
    /// The file.
    pub fid: Fid,
    /// Which of its stripes.
    pub stripe: u32,
}

/// Where a file's bytes are. Stripes take turns: stripe `i` of `n` holds every `n`-th chunk of
/// `stripe_bytes`, starting with the `i`-th, as in Lustre's plain layouts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Layout {
    /// Grows when the layout changes; a write under an older one is refused.
    pub generation: u32,
    /// Bytes of one chunk.
    pub stripe_bytes: StripeBytes,
    /// The OST of each stripe. Empty for files that hold no bytes.
    pub stripes: Stripes,
}

/// A piece of a file range: contiguous in the file and in one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Which stripe.
    pub stripe: u32,
    /// The bytes in the file.
    pub file: ByteRange,
    /// The same bytes in the object.
    pub object: ByteRange,
}

impl Layout {
    /// The layout of directories, symlinks and special files.
    pub fn none() -> Layout {
        Layout {
            generation: 0,
            stripe_bytes: StripeBytes::DEFAULT,
            stripes: Stripes::NONE,
        }
    }

    /// All bytes in one object on `ost`.
    pub fn single(ost: TargetIndex) -> Layout {
        Layout {
            generation: 1,
            stripe_bytes: StripeBytes::DEFAULT,
            stripes: Stripes::new(&[ost]),
        }
    }

    /// The pieces of `range`, in file order. Empty for a layout without stripes.
    /// `range.end` must be finite unless there is a single stripe.
    pub fn pieces(&self, range: ByteRange) -> Vec<Piece> {
        let count = self.stripes.len() as u64;
        if count == 0 || range.is_empty() {
            return Vec::new();
        }
        if count == 1 {
            return vec![Piece {
                stripe: 0,
                file: range,
                object: range,
            }];
        }
        let stripe_bytes = self.stripe_bytes.get();
        let mut pieces = Vec::new();
        let mut start = range.start;
        while start < range.end {
            let chunk = start / stripe_bytes;
            let end = range.end.min((chunk + 1).saturating_mul(stripe_bytes));
            let object_start = chunk / count * stripe_bytes + start % stripe_bytes;
            pieces.push(Piece {
                stripe: (chunk % count) as u32,
                file: ByteRange::new(start, end),
                object: ByteRange::new(object_start, object_start + (end - start)),
            });
            start = end;
        }
        pieces
    }

    /// The file's size, given that `stripe`'s object is `object_bytes` long: the largest file
    /// offset that object can hold, plus one. The file's size is the maximum over its stripes.
    pub fn file_size(&self, stripe: u32, object_bytes: u64) -> u64 {
        let count = self.stripes.len() as u64;
        if count <= 1 || object_bytes == 0 {
            return object_bytes;
        }
        let stripe_bytes = self.stripe_bytes.get();
        let last = object_bytes - 1;
        let chunk = (last / stripe_bytes).saturating_mul(count) + u64::from(stripe);
        let start = chunk.saturating_mul(stripe_bytes);
        start.saturating_add(last % stripe_bytes + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn striped(count: u16, stripe_bytes: u64) -> Layout {
        let stripes: Vec<_> = (0..count).map(TargetIndex).collect();
        Layout {
            generation: 1,
            stripe_bytes: StripeBytes::try_from(stripe_bytes).expect("a power of two"),
            stripes: Stripes::new(&stripes),
        }
    }

    #[test]
    fn one_stripe_is_the_identity_up_to_end_of_file() {
        let pieces = Layout::single(TargetIndex(3)).pieces(ByteRange::from(7));
        assert_eq!(pieces.len(), 1);
        assert_eq!(
            (pieces[0].file, pieces[0].object),
            (ByteRange::from(7), ByteRange::from(7))
        );
        assert!(Layout::none().pieces(ByteRange::ALL).is_empty());
    }

    proptest! {
        #[test]
        fn pieces_tile_the_range_and_give_the_size_back(
            count in 1u16..9, shift in 0u32..8, start in 0u64..5000, len in 1u64..5000,
        ) {
            let layout = striped(count, 1 << shift);
            let range = ByteRange::new(start, start + len);
            let pieces = layout.pieces(range);
            let mut at = start;
            for piece in &pieces {
                prop_assert_eq!(piece.file.start, at);
                prop_assert_eq!(piece.file.len(), piece.object.len());
                at = piece.file.end;
            }
            prop_assert_eq!(at, range.end);
            let size = pieces.iter().map(|p| layout.file_size(p.stripe, p.object.end)).max();
            prop_assert_eq!(size, Some(range.end));
        }
    }
}
