//! The entries that a lease covers, as its holder knows them (docs/locks.md, section 6).

use crate::bits::Bits;
use crate::ids::IdMap;

/// The holder's view of one lease. Callbacks, replies and bulk pages overtake each other. So an entry may be
/// used only if it was read at or after its last known change, and has not been withdrawn since.
#[derive(Debug, Default)]
pub(super) struct LeaseView {
    /// State read before this version is not covered, whatever the entry.
    floor: u64,
    /// By key and bit position: the bits of one entry are withdrawn and readmitted on their own.
    parts: IdMap<(u64, usize), Part>,
}

/// What is remembered of one bit of an entry.
#[derive(Debug, Default)]
struct Part {
    withdrawn: bool,
    /// State of it read before this version is old.
    since: u64,
}

impl Part {
    fn admits(&self, version: u64) -> bool {
        !self.withdrawn && version >= self.since
    }
}

impl LeaseView {
    /// The view that a grant brings.
    pub fn new(version: u64, withdrawn: &[(u64, Bits)]) -> LeaseView {
        let born = |(key, bits): &(u64, Bits)| {
            let key = *key;
            let withdrawn = true;
            let since = version;
            bits.positions()
                .map(move |bit| ((key, bit), Part { withdrawn, since }))
        };
        LeaseView {
            floor: version,
            parts: withdrawn.iter().flat_map(born).collect(),
        }
    }

    /// The server withdrew the entry.
    pub fn withdraw(&mut self, key: u64, bits: Bits, version: u64, max: usize) {
        for bit in bits.positions() {
            let part = self.parts.entry((key, bit)).or_default();
            // Else the word that it was readmitted since came first.
            if version >= part.since {
                part.withdrawn = true;
                part.since = version;
            }
        }
        self.shed(max);
    }

    /// A reply brought current state, and the server's word that it is covered again.
    pub fn readmit(&mut self, key: Option<u64>, bits: Bits, version: u64, max: usize) {
        let readmit = |part: &mut Part| {
            if part.since <= version {
                part.withdrawn = false;
                part.since = version;
            }
        };
        match key {
            Some(key) => {
                let bits = bits.positions();
                bits.for_each(|bit| readmit(self.parts.entry((key, bit)).or_default()));
            }
            None => {
                let meant = |(_, bit): &(u64, usize)| bits.overlaps(Bits(1 << bit));
                let parts = self.parts.iter_mut().filter(|(place, _)| meant(place));
                parts.for_each(|(_, part)| readmit(part));
            }
        }
        self.shed(max);
    }

    /// State read at `version` may be used: of the entry `key`, or of the whole where `None`.
    pub fn admits(&self, key: Option<u64>, bits: Bits, version: u64) -> bool {
        let parts = |key: u64| {
            bits.positions()
                .filter_map(move |bit| self.parts.get(&(key, bit)))
        };
        version >= self.floor
            && match key {
                Some(key) => parts(key).all(|part| part.admits(version)),
                None => {
                    let meant = |bit: usize| bits.overlaps(Bits(1 << bit));
                    self.parts
                        .iter()
                        .all(|((_, bit), part)| !meant(*bit) || part.admits(version))
                }
            }
    }

    /// The entry is covered as far as withdrawals go, whenever its state was read.
    pub fn covers(&self, key: u64, bits: Bits) -> bool {
        let withdrawn = |bit| {
            self.parts
                .get(&(key, bit))
                .is_some_and(|part| part.withdrawn)
        };
        !bits.positions().any(withdrawn)
    }

    /// Forgets parts that are covered again when there are too many; pages read before the last
    /// of those changes are then refused as a whole.
    fn shed(&mut self, max: usize) {
        if self.parts.len() <= max {
            return;
        }
        let mut floor = self.floor;
        self.parts.retain(|_, part| {
            if !part.withdrawn {
                floor = floor.max(part.since);
            }
            part.withdrawn
        });
        self.floor = floor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 4;

    #[test]
    fn a_page_read_before_the_change_is_refused_even_after_readmission() {
        let mut view = LeaseView::new(10, &[]);
        assert!(view.admits(Some(7), Bits::CHILD, 10) && !view.admits(Some(7), Bits::CHILD, 9));
        view.withdraw(7, Bits::CHILD, 11, MAX);
        assert!(
            !view.admits(Some(7), Bits::CHILD, 12),
            "withdrawn until readmitted"
        );
        assert!(view.admits(Some(8), Bits::CHILD, 10) && view.admits(Some(7), Bits::NAMES, 11));
        view.readmit(Some(7), Bits::CHILD, 13, MAX);
        assert!(view.admits(Some(7), Bits::CHILD, 13) && !view.admits(Some(7), Bits::CHILD, 12));
    }

    #[test]
    fn an_overtaken_readmission_does_not_undo_a_later_withdrawal() {
        let mut view = LeaseView::new(10, &[]);
        view.withdraw(7, Bits::CHILD, 15, MAX);
        view.readmit(Some(7), Bits::CHILD, 13, MAX);
        assert!(!view.covers(7, Bits::CHILD));
        let mut view = LeaseView::new(10, &[]);
        view.readmit(Some(7), Bits::CHILD, 13, MAX);
        view.withdraw(7, Bits::CHILD, 11, MAX);
        assert!(
            view.covers(7, Bits::CHILD),
            "the withdrawal was answered by the readmission"
        );
    }

    #[test]
    fn a_readmission_of_one_bit_does_not_answer_a_withdrawal_of_another() {
        let mut view = LeaseView::new(10, &[]);
        view.readmit(Some(7), Bits::CHILD, 13, MAX);
        view.withdraw(7, Bits::NAMES | Bits::LIST, 12, MAX);
        assert!(view.covers(7, Bits::CHILD) && !view.covers(7, Bits::NAMES));
        assert!(!view.admits(None, Bits::LIST, 20));
    }

    #[test]
    fn the_whole_is_admitted_only_without_a_touched_part() {
        let mut view = LeaseView::new(10, &[(3, Bits::LIST)]);
        assert!(!view.admits(None, Bits::LIST, 10) && view.admits(None, Bits::CHILD, 10));
        view.readmit(None, Bits::LIST, 12, MAX);
        assert!(view.admits(None, Bits::LIST, 12) && !view.admits(None, Bits::LIST, 11));
    }

    #[test]
    fn what_is_forgotten_raises_the_floor() {
        let mut view = LeaseView::new(10, &[]);
        view.withdraw(99, Bits::CHILD, 11, MAX);
        (0..4).for_each(|key| view.readmit(Some(key), Bits::CHILD, 20 + key, MAX));
        assert!(!view.admits(Some(50), Bits::CHILD, 22) && view.admits(Some(50), Bits::CHILD, 23));
        assert!(
            !view.covers(99, Bits::CHILD),
            "what is withdrawn is never forgotten"
        );
    }
}
