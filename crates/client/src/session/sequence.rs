//! FIDs minted here, from sequences the MDT has granted to this client.

use threads::Mutex;

use base::{Fid, SequenceRange};
use wire::hash::NameHasher;

#[derive(Debug, Default)]
struct Supply {
    /// The next FID's sequence and object, and how many sequences follow that one.
    next: Option<(u64, u32, u64)>,
    /// How the MDT hashes names; it says so with the first sequences.
    hasher: Option<NameHasher>,
}

/// Hands out FIDs.
#[derive(Debug, Default)]
pub(crate) struct FidMint(Mutex<Supply>);

impl FidMint {
    /// A FID no file ever had. None: the MDT has to be asked for more.
    pub fn take(&self) -> Option<Fid> {
        let mut supply = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let (sequence, object, left) = supply.next?;
        supply.next = match (object < Fid::OBJECT_MAX, left) {
            (true, _) => Some((sequence, object + 1, left)),
            (false, 0) => None,
            (false, _) => Some((sequence + 1, 0, left - 1)),
        };
        Some(Fid::new(sequence, object))
    }

    /// The MDT has granted these, which are such as are granted.
    pub fn supply(&self, range: SequenceRange, name_key: u64) {
        let mut supply = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        supply.next = (range.count > 0).then(|| (range.first, 0, range.count - 1));
        supply.hasher = Some(NameHasher::new(name_key));
    }

    /// How the MDT hashes names, once it has granted anything.
    pub fn hasher(&self) -> Option<NameHasher> {
        let supply = self.0.lock();
        supply
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .hasher
    }

    /// The server has forgotten what it granted, or burnt it.
    pub fn clear(&self) {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .next = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_gives_each_of_its_fids_once() {
        let mint = FidMint::default();
        assert_eq!(mint.take(), None);
        mint.supply(
            SequenceRange {
                first: 0x400,
                count: 2,
            },
            7,
        );
        assert_eq!(mint.take(), Some(Fid::new(0x400, 0)));
        mint.0.lock().expect("no panic").next = Some((0x400, Fid::OBJECT_MAX, 1));
        assert_eq!(mint.take(), Some(Fid::new(0x400, Fid::OBJECT_MAX)));
        assert_eq!(mint.take(), Some(Fid::new(0x401, 0)));
        mint.0.lock().expect("no panic").next = Some((0x401, Fid::OBJECT_MAX, 0));
        assert!(mint.take().is_some() && mint.take().is_none());
    }
}
