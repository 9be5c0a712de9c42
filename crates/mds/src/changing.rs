//! Entries of a directory that change while a page of it is read. The page's lease covers the others.
//! docs/locks.md, "Why no old state can be cached", is the normative text.

use dlm::{Bits, IdMap};

/// Bits of a lease that do not cover an entry now, by the entry's key.
#[derive(Debug, Default)]
pub struct Changing(IdMap<u64, Bits>);

impl Changing {
    /// The sum of `changes`, keys and bits; `None`: they are of more keys than `max`.
    pub fn collect(changes: impl Iterator<Item = (u64, Bits)>, max: usize) -> Option<Changing> {
        let mut all = IdMap::<u64, Bits>::default();
        for (key, bits) in changes {
            *all.entry(key).or_default() |= bits;
            if all.len() > max {
                return None;
            }
        }
        Some(Changing(all))
    }

    /// Nothing is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bits that do not cover the entry `key`.
    pub fn of(&self, key: u64) -> Bits {
        self.0.get(&key).copied().unwrap_or_default()
    }

    /// Names come or go: the list as a whole is not covered.
    pub fn has_list(&self) -> bool {
        self.0.values().any(|bits| bits.overlaps(Bits::LIST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_one_key_add_up_and_keys_are_bounded() {
        let changes = [(1, Bits::CHILD), (2, Bits::CHILD), (1, Bits::NAMES)];
        let changing = Changing::collect(changes.into_iter(), 2).expect("two keys");
        assert_eq!(changing.of(1), Bits::CHILD | Bits::NAMES);
        assert_eq!((changing.of(2), changing.of(3)), (Bits::CHILD, Bits::NONE));
        assert!(!changing.is_empty() && !changing.has_list());
        assert!(Changing::collect(changes.into_iter(), 1).is_none());
    }
}
