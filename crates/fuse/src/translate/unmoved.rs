//! Directories that threads were told of and that the kernel may not have been able to move to where they are:
//! then it has answered `ESTALE` by itself, and asks for every name of the path again, just once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base::{Fid, Name};

/// Threads remembered at most; beyond, some call may have to be made again by its user.
const THREADS_MAX: usize = 4096;
/// Directories of one call: a rename has two paths.
const OF_CALL_MAX: usize = 4;

/// What threads were told last.
#[derive(Debug, Default)]
pub(super) struct Unmoved {
    threads: Mutex<HashMap<u32, Vec<(Fid, Name)>>>,
    /// Read without the lock: mostly there are none.
    count: AtomicUsize,
}

impl Unmoved {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Vec<(Fid, Name)>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `thread` is told of a directory at this place.
    pub fn told(&self, thread: u32, dir: Fid, name: &Name) {
        let mut threads = self.lock();
        if threads.len() >= THREADS_MAX {
            threads.clear();
        }
        let places = threads.entry(thread).or_default();
        if places.len() >= OF_CALL_MAX {
            places.remove(0);
        }
        places.push((dir, name.clone()));
        self.count.store(threads.len(), Ordering::Release);
    }

    /// `thread` asks for this place again, of which it was told such a directory.
    pub fn is_again(&self, thread: u32, dir: Fid, name: &Name) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut threads = self.lock();
        let Some(places) = threads.get_mut(&thread) else {
            return false;
        };
        let before = places.len();
        places.retain(|place| place.0 != dir || place.1 != *name);
        let found = places.len() < before;
        if places.is_empty() {
            threads.remove(&thread);
        }
        self.count.store(threads.len(), Ordering::Release);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_asks_again_for_what_it_was_told_once() {
        let name = Name::new(b"name").expect("a good name");
        let unmoved = Unmoved::default();
        assert!(!unmoved.is_again(1, Fid(7), &name));
        unmoved.told(1, Fid(7), &name);
        assert!(!unmoved.is_again(2, Fid(7), &name) && !unmoved.is_again(1, Fid(8), &name));
        assert!(unmoved.is_again(1, Fid(7), &name));
        assert!(!unmoved.is_again(1, Fid(7), &name), "once");
        (0..20).for_each(|dir| unmoved.told(1, Fid(dir), &name));
        assert!(!unmoved.is_again(1, Fid(0), &name) && unmoved.is_again(1, Fid(19), &name));
    }
}
