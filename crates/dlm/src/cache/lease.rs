//! Which entries a lease covers, as its holder knows it.
//!
//! Callbacks, replies and bulk pages overtake each other. An entry may be used only if it was read
//! at or after the last change of it that we heard of, and has not been withdrawn since.

use std::collections::HashMap;

use crate::bits::Bits;

/// The holder's view of one lease.
#[derive(Debug, Default)]
pub(super) struct LeaseView {
    /// State read before this version is not covered, whatever the entry.
    floor: u64,
    entries: HashMap<u64, Entry>,
}

/// What is remembered of an entry that was changed.
#[derive(Debug, Default)]
struct Entry {
    /// For which bits it is not covered.
    withdrawn: Bits,
    /// For which bits it ever was not.
    touched: Bits,
    /// State of it read before this version is old.
    since: u64,
}

impl LeaseView {
    /// The view that a grant brings.
    pub fn new(version: u64, withdrawn: &[(u64, Bits)]) -> LeaseView {
        let born = |(key, bits): &(u64, Bits)| {
            let entry = Entry {
                withdrawn: *bits,
                touched: *bits,
                since: version,
            };
            (*key, entry)
        };
        LeaseView {
            floor: version,
            entries: withdrawn.iter().map(born).collect(),
        }
    }

    /// The server withdrew the entry.
    pub fn withdraw(&mut self, key: u64, bits: Bits, version: u64, max: usize) {
        let entry = self.entries.entry(key).or_default();
        if version < entry.since {
            // The word that it was readmitted came first.
            return;
        }
        entry.withdrawn |= bits;
        entry.touched |= bits;
        entry.since = version;
        self.shed(max);
    }

    /// A reply brought current state, and the server's word that it is covered again.
    pub fn readmit(&mut self, key: Option<u64>, bits: Bits, version: u64, max: usize) {
        let readmit = |entry: &mut Entry| {
            if entry.since <= version {
                entry.withdrawn = entry.withdrawn.without(bits);
                entry.since = version;
            }
        };
        match key {
            Some(key) => {
                let entry = self.entries.entry(key).or_default();
                entry.touched |= bits;
                readmit(entry);
            }
            None => self.entries.values_mut().for_each(readmit),
        }
        self.shed(max);
    }

    /// State read at `version` may be used: of the entry `key`, or of the whole where `None`.
    pub fn admits(&self, key: Option<u64>, bits: Bits, version: u64) -> bool {
        let fit = |entry: &Entry| !entry.withdrawn.overlaps(bits) && version >= entry.since;
        version >= self.floor
            && match key {
                Some(key) => self.entries.get(&key).is_none_or(fit),
                None => {
                    let mut touched = self
                        .entries
                        .values()
                        .filter(|entry| entry.touched.overlaps(bits));
                    touched.all(fit)
                }
            }
    }

    /// The entry is covered as far as withdrawals go, whenever its state was read.
    pub fn covers(&self, key: u64, bits: Bits) -> bool {
        let entry = self.entries.get(&key);
        entry.is_none_or(|entry| !entry.withdrawn.overlaps(bits))
    }

    /// Forgets entries that are covered again when there are too many; pages read before the last
    /// of those changes are then refused as a whole.
    fn shed(&mut self, max: usize) {
        if self.entries.len() <= max {
            return;
        }
        let mut floor = self.floor;
        self.entries.retain(|_, entry| {
            let keep = !entry.withdrawn.is_empty();
            if !keep {
                floor = floor.max(entry.since);
            }
            keep
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
