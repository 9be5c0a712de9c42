//! Entries withdrawn from a directory lately. An answer that was asked for before is kept but for those.
//! docs/locks.md, "Versions", is the normative text.

use std::collections::VecDeque;

use base::{Fid, Name};
use dlm::Bits;

/// Entries remembered for each directory. An answer that misses more is used once.
const ENTRIES_MAX: usize = 256;

/// An entry that was withdrawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Withdrawn {
    /// NAMES, CHILD and LIST, as far as they were.
    pub bits: Bits,
    /// Of NAMES.
    pub name: Option<Name>,
    /// Of CHILD; or NONE.
    pub child: Fid,
}

impl Withdrawn {
    /// It says which entry each of its bits is of.
    fn is_told(&self) -> bool {
        let lacks_name = self.bits.overlaps(Bits::NAMES) && self.name.is_none();
        let lacks_child = self.bits.overlaps(Bits::CHILD) && self.child == Fid::NONE;
        !lacks_name && !lacks_child
    }
}

/// The latest withdrawals from one directory, by their stamps.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    /// The oldest first.
    latest: VecDeque<(u64, Withdrawn)>,
    /// The last that was of the whole, or is not remembered.
    whole: u64,
}

impl Entries {
    /// The whole directory is withdrawn.
    pub fn withdraw_all(&mut self, stamp: u64) {
        self.latest.clear();
        self.whole = stamp;
    }

    /// An entry is withdrawn.
    pub fn withdraw(&mut self, stamp: u64, entry: Withdrawn) {
        if !entry.is_told() {
            return self.withdraw_all(stamp);
        }
        if self.latest.len() == ENTRIES_MAX
            && let Some((oldest, _)) = self.latest.pop_front()
        {
            self.whole = oldest;
        }
        self.latest.push_back((stamp, entry));
    }

    /// The stamp of the last withdrawal.
    pub fn last(&self) -> u64 {
        self.latest.back().map_or(self.whole, |(stamp, _)| *stamp)
    }

    /// The stamp of the last withdrawal of the whole.
    pub fn last_whole(&self) -> u64 {
        self.whole
    }

    /// Those later than `stamp`.
    pub fn since(&self, stamp: u64) -> impl Iterator<Item = &Withdrawn> {
        let later = self.latest.iter().rev();
        let later = later.take_while(move |(then, _)| *then > stamp);
        later.map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(number: u64) -> Withdrawn {
        let (bits, name, child) = (Bits::CHILD, None, Fid(number));
        Withdrawn { bits, name, child }
    }

    #[test]
    fn entries_are_told_since_a_moment_and_the_whole_by_its_stamp() {
        let mut entries = Entries::default();
        (1..=3).for_each(|n| entries.withdraw(10 * n, child(n)));
        let since = |entries: &Entries, stamp| entries.since(stamp).map(|e| e.child.0).collect();
        let seen: Vec<u64> = since(&entries, 10);
        assert_eq!((seen, entries.last()), (vec![3, 2], 30));
        entries.withdraw_all(40);
        let seen: Vec<u64> = since(&entries, 0);
        assert_eq!(
            (seen, entries.last(), entries.last_whole()),
            (vec![], 40, 40)
        );
    }

    #[test]
    fn what_is_not_remembered_or_names_no_entry_is_of_the_whole() {
        let mut entries = Entries::default();
        (1..=ENTRIES_MAX as u64 + 2).for_each(|n| entries.withdraw(n, child(n)));
        assert_eq!(entries.last_whole(), 2);
        entries.withdraw(1000, child(Fid::NONE.0));
        assert_eq!((entries.last_whole(), entries.since(0).count()), (1000, 0));
    }
}
