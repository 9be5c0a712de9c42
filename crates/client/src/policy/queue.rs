//! Files in the order in which something becomes due for them. Nobody goes through all of them to find the
//! few for which it is.

use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;

use base::Fid;

/// Each file with a key; those with the least are due first.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    order: BTreeSet<(K, Fid)>,
    keys: HashMap<Fid, K>,
}

impl<K> Default for Queue<K> {
    fn default() -> Queue<K> {
        Queue {
            order: BTreeSet::new(),
            keys: HashMap::new(),
        }
    }
}

impl<K: Ord + Copy> Queue<K> {
    /// The file's key is this from now on. None: it leaves.
    pub fn set(&mut self, fid: Fid, key: Option<K>) {
        if self.keys.get(&fid).copied() == key {
            return;
        }
        if let Some(before) = self.keys.remove(&fid) {
            self.order.remove(&(before, fid));
        }
        if let Some(key) = key {
            self.keys.insert(fid, key);
            self.order.insert((key, fid));
        }
    }

    pub fn contains(&self, fid: Fid) -> bool {
        self.keys.contains_key(&fid)
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// All of them, in no order that matters.
    pub fn fids(&self) -> impl Iterator<Item = Fid> {
        self.order.iter().map(|(_, fid)| *fid)
    }

    /// The least key.
    pub fn first(&self) -> Option<K> {
        self.order.first().map(|(key, _)| *key)
    }

    /// The least key that is greater than all of this one's files can have.
    pub fn next_after(&self, key: K) -> Option<K> {
        let last = (key, Fid(u64::MAX));
        let mut beyond = self.order.range(last..);
        beyond.find(|entry| **entry > last).map(|(key, _)| *key)
    }

    /// Those with keys within `keys`, the least first.
    pub fn within(&self, keys: RangeInclusive<K>) -> impl Iterator<Item = Fid> {
        let (first, last) = keys.into_inner();
        let entries = self.order.range((first, Fid(0))..=(last, Fid(u64::MAX)));
        entries.map(|(_, fid)| *fid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_by_their_keys_and_each_once() {
        let mut queue = Queue::default();
        for (fid, key) in [(1, 7), (2, 3), (3, 9), (1, 2)] {
            queue.set(Fid(fid), Some(key));
        }
        assert_eq!(queue.within(0..=8).collect::<Vec<_>>(), [Fid(1), Fid(2)]);
        assert_eq!((queue.len(), queue.first()), (3, Some(2)));
        assert_eq!(queue.next_after(3), Some(9));
        queue.set(Fid(1), None);
        queue.set(Fid(2), None);
        assert_eq!(queue.fids().collect::<Vec<_>>(), [Fid(3)]);
        assert!(queue.contains(Fid(3)) && !queue.contains(Fid(1)));
    }
}
