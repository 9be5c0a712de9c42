//! Second attempts. Where a question by path is answered `ESTALE`, the kernel asks for every name of
//! the path again, and then its question, just once. What a name was found to lead to in that second
//! attempt is right, whatever becomes of the name meanwhile: the call is still under way.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base::Fid;
use wire::FileKind;

/// Threads remembered at most; beyond, some call may have to be made again by its user.
const THREADS_MAX: usize = 4096;
/// Names looked up in one attempt, at most.
const NAMES: u8 = 16;
/// Questions about a directory so found in one call.
const OF_DIRECTORY: u8 = 3;

/// What one call asks about a file that it has found, each once at most and in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Question {
    /// Its attributes: whether it may be used, or nothing else.
    Attributes,
    /// To have it open, perhaps cut off.
    Open,
    /// Anything else, which is the last.
    Use,
    /// A change of attributes: of size, what was opened; or that alone.
    Change,
}

/// What a name led to, and the questions about that which belong to the call.
#[derive(Debug)]
enum Found {
    /// A directory: so many more.
    Directory(Fid, u8),
    /// Anything else: those that may come after this one.
    File(Fid, Option<Question>),
}

impl Found {
    fn fid(&self) -> Fid {
        match self {
            Found::Directory(fid, _) | Found::File(fid, _) => *fid,
        }
    }

    /// It is asked this about it. False: by another call.
    fn take(&mut self, question: Question) -> bool {
        match self {
            Found::Directory(_, left) => {
                let belongs = *left > 0;
                *left -= u8::from(belongs);
                belongs
            }
            Found::File(_, last) => {
                let belongs = match last {
                    None => true,
                    Some(Question::Attributes) => question != Question::Attributes,
                    Some(Question::Open) => question == Question::Change,
                    Some(Question::Use | Question::Change) => false,
                };
                if belongs {
                    *last = Some(question);
                }
                belongs
            }
        }
    }
}

/// A thread's second attempt.
#[derive(Debug)]
struct Attempt {
    /// What its names led to.
    found: Vec<Found>,
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

    /// `thread` has found the directory `dir` by name in its second attempt.
    pub fn has_found_directory(&self, thread: u32, dir: Fid) -> bool {
        if self.none() {
            return false;
        }
        let is_it = |found: &Found| matches!(found, Found::Directory(fid, _) if *fid == dir);
        let threads = self.lock();
        let attempt = threads.get(&thread);
        attempt.is_some_and(|attempt| attempt.found.iter().any(is_it))
    }

    /// A name that `thread` asked for leads to this file of that kind, or nowhere.
    pub fn looked_up(&self, thread: u32, found: Option<(Fid, FileKind)>) {
        if self.none() {
            return;
        }
        self.change(|threads| {
            let Some(attempt) = threads.get_mut(&thread) else {
                return;
            };
            attempt.found.extend(found.map(|(fid, kind)| match kind {
                FileKind::Directory => Found::Directory(fid, OF_DIRECTORY),
                _ => Found::File(fid, None),
            }));
            attempt.names -= 1;
            if attempt.names == 0 {
                threads.remove(&thread);
            }
        });
    }

    /// `thread` asks this about `fid`, and has found it by name in its second attempt.
    pub fn has_found(&self, thread: u32, fid: Fid, question: Question) -> bool {
        if self.none() {
            return false;
        }
        let mut found = false;
        self.change(|threads| {
            let Some(attempt) = threads.get_mut(&thread) else {
                return;
            };
            let asked = attempt.found.iter_mut().rfind(|found| found.fid() == fid);
            found = asked.is_some_and(|asked| asked.take(question));
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
        let (attributes, found) = (Question::Attributes, Some((A, FileKind::Directory)));
        retries.looked_up(1, found);
        assert!(!retries.has_found(1, A, attributes), "a first attempt");
        retries.told(1);
        assert!(!retries.has_found(1, A, attributes), "not looked up again");
        retries.looked_up(1, found);
        retries.looked_up(1, None);
        assert!(!retries.has_found(1, B, attributes) && !retries.has_found(2, A, attributes));
        assert!(retries.has_found_directory(1, A) && !retries.has_found_directory(1, B));
        assert!((0..OF_DIRECTORY).all(|_| retries.has_found(1, A, attributes)));
        assert!(!retries.has_found(1, A, attributes), "the next call");
    }

    /// How many of these questions about a file, one after the other, are those of the call that found
    /// it.
    fn of_one_call(questions: &[Question]) -> usize {
        let retries = Retries::default();
        retries.told(1);
        retries.looked_up(1, Some((A, FileKind::Regular)));
        let belongs = |question: &&Question| retries.has_found(1, A, **question);
        questions.iter().take_while(belongs).count()
    }

    #[test]
    fn the_next_call_about_a_file_is_told_from_the_second_attempt() {
        use Question::{Attributes, Change, Open, Use};
        assert_eq!(of_one_call(&[Attributes, Open, Change]), 3, "O_TRUNC");
        assert_eq!(of_one_call(&[Attributes, Use]), 2, "getxattr");
        assert_eq!(of_one_call(&[Attributes, Change]), 2, "chmod");
        assert_eq!(of_one_call(&[Attributes, Attributes]), 1, "stat, twice");
        assert_eq!(of_one_call(&[Use, Attributes]), 1);
        assert_eq!(of_one_call(&[Open, Use]), 1);
        assert_eq!(of_one_call(&[Change, Change]), 1);
    }

    #[test]
    fn an_attempt_ends_with_its_names() {
        let retries = Retries::default();
        retries.told(1);
        (0..NAMES).for_each(|_| retries.looked_up(1, None));
        assert!(!retries.is_second(1) && retries.none());
    }
}
