//! Our own changes. Nobody calls us back for those, so replies that left the server before them
//! must be recognised here, whatever lock they arrive with.

use std::collections::VecDeque;

use crate::bits::Bits;
use crate::ids::IdMap;
use crate::lock::ResourceId;

/// An inode or directory as a whole, or one entry of a directory.
type Place = (ResourceId, Option<u64>);

/// The latest changes, bounded: what is forgotten makes everything read before it unusable.
#[derive(Debug, Default)]
pub(super) struct OwnChanges {
    known: IdMap<Place, (Bits, u64)>,
    order: VecDeque<(Place, u64)>,
    floor: u64,
}

impl OwnChanges {
    /// The reply to our change of `bits` of `place` carried `version`.
    pub fn note(&mut self, place: Place, bits: Bits, version: u64, max: usize) {
        let (touched, since) = self.known.entry(place).or_default();
        *touched |= bits;
        *since = version.max(*since);
        self.order.push_back((place, version));
        while self.order.len() > max {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((place, version)) = self.order.pop_front() else {
            return;
        };
        if self
            .known
            .get(&place)
            .is_some_and(|(_, since)| *since <= version)
        {
            self.known.remove(&place);
            self.floor = self.floor.max(version);
        }
    }

    /// State of `place` read at `version` is not older than our changes of it.
    pub fn admit(&self, place: Place, bits: Bits, version: u64) -> bool {
        let known = self.known.get(&place);
        let old = known.is_some_and(|(touched, since)| touched.overlaps(bits) && version < *since);
        version >= self.floor && !old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forgotten_raises_the_floor() {
        let place = |key| (ResourceId { space: 0, id: 1 }, Some(key));
        let mut changes = OwnChanges::default();
        changes.note(place(1), Bits::CHILD, 10, 2);
        changes.note(place(1), Bits::CHILD, 12, 2);
        assert!(
            !changes.admit(place(1), Bits::CHILD, 11) && changes.admit(place(2), Bits::CHILD, 1)
        );
        assert!(
            changes.admit(place(1), Bits::NAMES, 1),
            "other bits are not concerned"
        );
        changes.note(place(2), Bits::CHILD, 20, 2);
        assert!(
            changes.admit(place(3), Bits::CHILD, 1),
            "place 1 is still known by its second change"
        );
        changes.note(place(3), Bits::CHILD, 21, 2);
        assert!(
            !changes.admit(place(4), Bits::CHILD, 11) && changes.admit(place(4), Bits::CHILD, 12)
        );
    }
}
