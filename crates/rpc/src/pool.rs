//! Memory that all clients of a server together make it keep. If that is too much, those let go that cause
//! most of it.

use ::threads::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crate::threads::lock;

/// Keeps bytes that are accounted for in a pool.
pub(crate) trait Member {
    /// How much there is to be said for its letting go. Zero: it keeps nothing.
    fn weight(&self) -> u128;
    /// Gives back what it keeps.
    fn let_go(&self);
}

/// The members of a server, and the bytes that they keep.
pub(crate) struct Pool<M> {
    bytes: AtomicUsize,
    bytes_max: usize,
    members: Mutex<Members<M>>,
}

struct Members<M> {
    last: u64,
    all: HashMap<u64, Weak<M>>,
}

/// What one member keeps. Dropped with it.
pub(crate) struct Share<M> {
    pool: Arc<Pool<M>>,
    number: u64,
    bytes: usize,
}

impl<M> Pool<M> {
    /// A pool of so many bytes.
    pub(crate) fn new(bytes_max: usize) -> Arc<Pool<M>> {
        Arc::new(Pool {
            bytes: AtomicUsize::new(0),
            bytes_max,
            members: Mutex::new(Members {
                last: 0,
                all: HashMap::new(),
            }),
        })
    }

    /// One more member, which keeps nothing yet.
    pub(crate) fn join(self: &Arc<Self>, member: Weak<M>) -> Share<M> {
        let mut members = lock(&self.members);
        members.last += 1;
        let number = members.last;
        members.all.insert(number, member);
        Share {
            pool: self.clone(),
            number,
            bytes: 0,
        }
    }

    /// The bytes that all members keep.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// More than half of it is free: there is room for what need not be kept.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes() <= self.bytes_max / 2
    }

    /// Members keep more than they may together.
    fn is_exceeded(&self) -> bool {
        self.bytes() > self.bytes_max
    }
}

impl<M: Member> Pool<M> {
    /// While members keep too much, that of greatest weight lets go. Takes their locks: the caller holds
    /// none.
    pub(crate) fn relieve(&self) {
        while self.is_exceeded() {
            let members: Vec<_> = lock(&self.members).all.values().cloned().collect();
            let members = members.iter().filter_map(Weak::upgrade);
            let weighed = members.map(|member| (member.weight(), member));
            match weighed.max_by_key(|(weight, _)| *weight) {
                Some((weight, heaviest)) if weight > 0 => heaviest.let_go(),
                _ => return,
            }
        }
    }
}

impl<M> Share<M> {
    /// The member keeps this many bytes now.
    pub(crate) fn set(&mut self, bytes: usize) {
        let all = &self.pool.bytes;
        all.fetch_add(bytes, Ordering::Relaxed);
        all.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
    }

    /// Whose share it is of.
    pub(crate) fn pool(&self) -> &Arc<Pool<M>> {
        &self.pool
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<M> Drop for Share<M> {
    fn drop(&mut self) {
        self.set(0);
        lock(&self.pool.members).all.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Keeper(Mutex<Option<Share<Keeper>>>);

    impl Keeper {
        fn of(pool: &Arc<Pool<Keeper>>, bytes: usize) -> Arc<Keeper> {
            Arc::new_cyclic(|keeper| {
                let mut share = pool.join(keeper.clone());
                share.set(bytes);
                Keeper(Mutex::new(Some(share)))
            })
        }
    }

    impl Member for Keeper {
        fn weight(&self) -> u128 {
            lock(&self.0)
                .as_ref()
                .map_or(0, |share| share.bytes as u128)
        }

        fn let_go(&self) {
            drop(lock(&self.0).take());
        }
    }

    #[test]
    fn the_heaviest_let_go_until_it_is_enough() {
        let pool = Pool::new(10);
        let keepers = [3, 7, 1, 6].map(|bytes| Keeper::of(&pool, bytes));
        assert_eq!(pool.bytes(), 17);
        pool.relieve();
        let kept = keepers.each_ref().map(|keeper| keeper.weight());
        assert_eq!((kept, pool.bytes()), ([3, 0, 1, 6], 10));
        drop(keepers);
        assert_eq!((pool.bytes(), lock(&pool.members).all.len()), (0, 0));
    }

    #[test]
    fn when_nobody_keeps_anything_any_more_that_is_all() {
        let pool = Pool::<Keeper>::new(10);
        let _keeper = Keeper::of(&pool, 0);
        pool.bytes.store(11, Ordering::Relaxed);
        pool.relieve();
        assert!(pool.is_exceeded() && !pool.has_room());
    }
}
