//! Second attempts. Where a question by path is answered `ESTALE`, the kernel asks for every name of
//! the path again, and then its question, just once. What a name was found to lead to in that second
//! attempt is right, whatever becomes of the name meanwhile: the call is still under way.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base::Fid;

/// Threads remembered at most; beyond, some call may have to be made again by its user.
const THREADS_MAX: usize = 4096;
/// Names looked up in one attempt, at most.
const NAMES: u8 = 16;
/// Questions about a file so found in one call: whether it may be used, the use, and a truncation.
const QUESTIONS: u8 = 3;

/// A thread's second attempt.
#[derive(Debug)]
struct Attempt {
    /// What its names led to, and how many more questions about that belong to it.
    found: Vec<(Fid, u8)>,
    /// How many more names belong to it.
    names: u8,
}

/// Threads in their second attempt.
#[derive(Debug, Default)]
pub(super) struct Retries {
    threads: Mutex<HashMap<u32, Attempt>>,
    /// Read without the lock: mostly there are none.
    count: AtomicUsize,
}

impl Retries {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Attempt>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn none(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<u32, Attempt>)) {
        let mut threads = self.lock();
        change(&mut threads);
        self.count.store(threads.len(), Ordering::Release);
    }

    /// `thread` is answered that it is to look again.
    pub fn told(&self, thread: u32) {
        self.change(|threads| {
            if threads.len() >= THREADS_MAX {
                threads.clear();
            }
            let attempt = Attempt {
                found: Vec::new(),
                names: NAMES,
            };
            threads.insert(thread, attempt);
        });
    }

    /// `thread` is in its second attempt.
    pub fn is_second(&self, thread: u32) -> bool {
        !self.none() && self.lock().contains_key(&thread)
    }

    /// A name that `thread` asked for leads to `fid`, or nowhere.
    pub fn looked_up(&self, thread: u32, fid: Option<Fid>) {
        if self.none() {
            return;
        }
        self.change(|threads| {
            let Some(attempt) = threads.get_mut(&thread) else {
                return;
            };
            attempt.found.extend(fid.map(|fid| (fid, QUESTIONS)));
            attempt.names -= 1;
            if attempt.names == 0 {
                threads.remove(&thread);
            }
        });
    }

    /// `thread` asks about `fid`, and has found it by name in its second attempt.
    pub fn has_found(&self, thread: u32, fid: Fid) -> bool {
        if self.none() {
            return false;
        }
        let mut found = false;
        self.change(|threads| {
            let Some(attempt) = threads.get_mut(&thread) else {
                return;
            };
            let left = attempt.found.iter_mut().rfind(|(other, _)| *other == fid);
            if let Some((_, left @ 1..)) = left {
                *left -= 1;
                found = true;
            }
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Fid = Fid(7);
    const B: Fid = Fid(8);

    #[test]
    fn only_a_second_attempt_is_believed_and_only_for_its_questions() {
        let retries = Retries::default();
        retries.looked_up(1, Some(A));
        assert!(!retries.has_found(1, A), "a first attempt");
        retries.told(1);
        assert!(!retries.has_found(1, A), "not looked up again");
        retries.looked_up(1, Some(A));
        retries.looked_up(1, None);
        assert!(!retries.has_found(1, B) && !retries.has_found(2, A));
        assert!((0..QUESTIONS).all(|_| retries.has_found(1, A)));
        assert!(!retries.has_found(1, A), "the next call");
    }

    #[test]
    fn an_attempt_ends_with_its_names() {
        let retries = Retries::default();
        retries.told(1);
        (0..NAMES).for_each(|_| retries.looked_up(1, None));
        assert!(!retries.is_second(1) && retries.none());
    }
}
