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
/// Names looked up in one attempt, at most. Beyond, as with paths of more than a hundred directories, a call
/// may fail with `ESTALE`.
const NAMES: u16 = 512;
/// The same where the kernel does not say which call a thread is in: names of later calls count then.
const NAMES_OF_UNKNOWN: u16 = 16;
/// Questions about a directory so found in one call.
const OF_DIRECTORY: u8 = 3;

/// What one call asks about a file that it has found, each once at most and in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Question {
    /// Its attributes: whether it may be used, or nothing else.
    Attributes,
    /// To have it open, perhaps cut off.
    Open,
    /// Whether it has capabilities, which the kernel asks by itself before a change that takes them.
    Capability,
    /// That they go, which the kernel asks by itself, too.
    NoCapability,
    /// A change of attributes: of size, what was opened; or that alone.
    Change,
    /// Anything else, which is the last. Behind attributes only.
    Use,
}

/// What a name was found to lead to.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoundName {
    pub fid: Fid,
    pub kind: FileKind,
}

/// What an answer with a name's file is an answer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answering {
    /// The call looks a name up, and goes on.
    Lookup,
    /// The call has changed a name, and is over.
    Change,
}

/// What a name led to, and the questions about that which belong to the call.
#[derive(Debug)]
enum Found {
    /// A directory: so many more.
    Directory(Fid, u8),
    /// A symlink: the path goes on behind it. Those that may come after this one.
    Symlink(Fid, Option<Question>),
    /// Anything else.
    File(Fid, Option<Question>),
}

impl Found {
    fn fid(&self) -> Fid {
        match self {
            Found::Directory(fid, _) | Found::Symlink(fid, _) | Found::File(fid, _) => *fid,
        }
    }

    /// No name is looked up after this question by the same call.
    fn is_last(&self) -> bool {
        matches!(self, Found::File(_, Some(question)) if *question != Question::Attributes)
    }

    /// It is asked this about it. False: by another call.
    fn take(&mut self, question: Question) -> bool {
        match self {
            Found::Directory(_, left) => {
                let belongs = *left > 0;
                *left -= u8::from(belongs);
                belongs
            }
            Found::Symlink(_, last) | Found::File(_, last) => {
                let belongs = match (*last, question) {
                    (None | Some(Question::Attributes), Question::Use) => true,
                    (Some(_), Question::Use) => false,
                    (last, question) => last.is_none_or(|last| last < question),
                };
                if belongs {
                    *last = Some(question);
                }
                belongs
            }
        }
    }
}

/// The call that a thread is in, with its arguments and its place on the stack.
pub(super) type Call = Box<str>;

/// A thread's second attempt.
#[derive(Debug)]
struct Attempt {
    /// Its call; none: the kernel does not say.
    call: Option<Call>,
    /// What its names led to.
    found: Vec<Found>,
    /// How many more names belong to it.
    names: u16,
}

impl Attempt {
    fn of(call: Option<Call>) -> Attempt {
        let names = match call {
            Some(_) => NAMES,
            None => NAMES_OF_UNKNOWN,
        };
        let found = Vec::new();
        Attempt { call, found, names }
    }

    /// A thread that is in this call now may be in this attempt.
    fn may_be_in(&self, call: Option<&Call>) -> bool {
        let known = self.call.as_ref().zip(call);
        known.is_none_or(|(own, now)| own == now)
    }

    fn has_found_directory(&self, dir: Fid) -> bool {
        let is_it = |found: &Found| matches!(found, Found::Directory(fid, _) if *fid == dir);
        self.found.iter().any(is_it)
    }
}

/// Threads in their second attempt.
#[derive(Debug)]
pub(super) struct Retries {
    threads: Mutex<HashMap<u32, Attempt>>,
    /// Read without the lock: mostly there are none.
    count: AtomicUsize,
    /// Says which call a thread is in. Two calls are told apart unless one is the other once more.
    call_of: fn(u32) -> Option<Call>,
}

impl Retries {
    pub fn new(call_of: fn(u32) -> Option<Call>) -> Retries {
        Retries {
            threads: Mutex::default(),
            count: AtomicUsize::new(0),
            call_of,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Attempt>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn none(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn change<R>(&self, change: impl FnOnce(&mut HashMap<u32, Attempt>) -> R) -> R {
        let mut threads = self.lock();
        let result = change(&mut threads);
        self.count.store(threads.len(), Ordering::Release);
        result
    }

    /// What `change` makes of the second attempt of `thread`, if it is in one. An attempt of an earlier call
    /// is over.
    fn attempt<R>(&self, thread: u32, change: impl FnOnce(&mut Attempt) -> R) -> Option<R> {
        if self.none() || !self.lock().contains_key(&thread) {
            return None;
        }
        let call = (self.call_of)(thread);
        self.change(|threads| {
            let attempt = threads.get_mut(&thread)?;
            if !attempt.may_be_in(call.as_ref()) {
                threads.remove(&thread);
                return None;
            }
            Some(change(attempt))
        })
    }

    /// `thread` is answered that it is to look again.
    pub fn told(&self, thread: u32) {
        let attempt = Attempt::of((self.call_of)(thread));
        self.change(|threads| {
            if threads.len() >= THREADS_MAX {
                threads.clear();
            }
            threads.insert(thread, attempt);
        });
    }

    /// `thread` is in its second attempt.
    pub fn is_second(&self, thread: u32) -> bool {
        self.attempt(thread, |_| ()).is_some()
    }

    /// `thread` has come to the directory `dir` in its second attempt. It has looked a name up again, or its
    /// path begins there.
    pub fn has_come_to_directory(&self, thread: u32, dir: Fid) -> bool {
        let has_come = |attempt: &mut Attempt| match attempt.call {
            Some(_) => true,
            None => attempt.has_found_directory(dir),
        };
        self.attempt(thread, has_come).unwrap_or(false)
    }

    /// `thread` asks about the directory `dir`, where its path begins: each other directory was looked up
    /// again in its second attempt.
    pub fn begins_at(&self, thread: u32, dir: Fid) -> bool {
        let begins =
            |attempt: &mut Attempt| attempt.call.is_some() && !attempt.has_found_directory(dir);
        self.attempt(thread, begins).unwrap_or(false)
    }

    /// A name that `thread` asked for leads there, or nowhere.
    pub fn looked_up(&self, thread: u32, found: Option<FoundName>) {
        let is_over = self.attempt(thread, |attempt| {
            attempt.names -= 1;
            let is_over = attempt.names == 0 || attempt.found.iter().any(Found::is_last);
            attempt.found.extend(found.map(|name| match name.kind {
                FileKind::Directory => Found::Directory(name.fid, OF_DIRECTORY),
                FileKind::Symlink => Found::Symlink(name.fid, None),
                _ => Found::File(name.fid, None),
            }));
            is_over
        });
        if is_over == Some(true) {
            self.ended(thread);
        }
    }

    /// The call of `thread` has done what it came for, or cannot.
    pub fn ended(&self, thread: u32) {
        if !self.none() {
            self.change(|threads| drop(threads.remove(&thread)));
        }
    }

    /// `thread` asks this about `fid`, and has found it by name in its second attempt.
    pub fn has_found(&self, thread: u32, fid: Fid, question: Question) -> bool {
        let asks = |attempt: &mut Attempt| {
            let asked = attempt.found.iter_mut().rfind(|found| found.fid() == fid);
            asked.is_some_and(|asked| asked.take(question))
        };
        self.attempt(thread, asks).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const A: Fid = Fid(7);
    const B: Fid = Fid(8);

    fn name(fid: Fid, kind: FileKind) -> FoundName {
        FoundName { fid, kind }
    }

    /// Threads of whose calls the kernel says nothing.
    fn unknown() -> Retries {
        Retries::new(|_| None)
    }

    thread_local! {
        static CALL: Cell<&'static str> = const { Cell::new("link") };
    }

    /// All threads are in the call that `CALL` names.
    fn known() -> Retries {
        Retries::new(|_| Some(CALL.get().into()))
    }

    #[test]
    fn only_a_second_attempt_is_believed_and_only_for_its_questions() {
        let retries = unknown();
        let (attributes, found) = (Question::Attributes, Some(name(A, FileKind::Directory)));
        retries.looked_up(1, found);
        assert!(!retries.has_found(1, A, attributes), "a first attempt");
        retries.told(1);
        assert!(!retries.has_found(1, A, attributes), "not looked up again");
        retries.looked_up(1, found);
        retries.looked_up(1, None);
        assert!(!retries.has_found(1, B, attributes) && !retries.has_found(2, A, attributes));
        assert!(retries.has_come_to_directory(1, A) && !retries.has_come_to_directory(1, B));
        assert!((0..OF_DIRECTORY).all(|_| retries.has_found(1, A, attributes)));
        assert!(!retries.has_found(1, A, attributes), "the next call");
    }

    /// How many of these questions about a file, one after the other, are those of the call that found
    /// it.
    fn of_one_call(questions: &[Question]) -> usize {
        let retries = unknown();
        retries.told(1);
        retries.looked_up(1, Some(name(A, FileKind::Regular)));
        let belongs = |question: &&Question| retries.has_found(1, A, **question);
        questions.iter().take_while(belongs).count()
    }

    #[test]
    fn the_next_call_about_a_file_is_told_from_the_second_attempt() {
        use Question::{Attributes, Capability, Change, NoCapability, Open, Use};
        assert_eq!(of_one_call(&[Attributes, Open, Change]), 3, "O_TRUNC");
        assert_eq!(of_one_call(&[Attributes, Use]), 2, "getxattr");
        assert_eq!(of_one_call(&[Attributes, Change]), 2, "chmod");
        assert_eq!(of_one_call(&[Capability, Change]), 2, "chown");
        assert_eq!(
            of_one_call(&[Capability, NoCapability, Change]),
            3,
            "chown of what has a capability"
        );
        assert_eq!(
            of_one_call(&[Attributes, Open, Capability, Change]),
            4,
            "O_TRUNC of what has a capability"
        );
        assert_eq!(of_one_call(&[Capability, Capability]), 1);
        assert_eq!(of_one_call(&[Attributes, Attributes]), 1, "stat, twice");
        assert_eq!(of_one_call(&[Use, Attributes]), 1);
        assert_eq!(of_one_call(&[Open, Use]), 1);
        assert_eq!(of_one_call(&[Change, Change]), 1);
    }

    /// A call of `link` in its second attempt, and then a look at the new name, which another mount has
    /// removed.
    #[test]
    fn a_call_after_the_second_attempt_is_not_believed() {
        let file = Some(name(A, FileKind::Regular));
        let after = |questions: &[Question], goes_on: &dyn Fn(&Retries)| {
            let retries = unknown();
            retries.told(1);
            retries.looked_up(1, file);
            for question in questions {
                assert!(retries.has_found(1, A, *question), "{question:?}");
            }
            goes_on(&retries);
            retries.has_found(1, A, Question::Attributes)
        };
        let looks_up = |retries: &Retries| retries.looked_up(1, file);
        assert!(!after(&[Question::Use], &|retries| retries.ended(1)));
        for last in [
            Question::Open,
            Question::Capability,
            Question::Use,
            Question::Change,
        ] {
            assert!(!after(&[last], &looks_up), "{last:?}");
        }
        // `link` asks for the attributes of its file, and looks the new directory up then.
        let retries = unknown();
        retries.told(1);
        retries.looked_up(1, file);
        assert!(retries.has_found(1, A, Question::Attributes));
        retries.looked_up(1, Some(name(B, FileKind::Directory)));
        assert!(retries.has_found(1, A, Question::Use));
    }

    #[test]
    fn an_attempt_is_over_when_its_thread_is_in_another_call() {
        let retries = known();
        let file = Some(name(A, FileKind::Regular));
        let looks_up = || {
            CALL.set("link");
            retries.told(1);
            retries.looked_up(1, file);
        };
        looks_up();
        assert!(retries.has_found(1, A, Question::Attributes));
        CALL.set("stat");
        assert!(!retries.has_found(1, A, Question::Use) && retries.none());
        looks_up();
        CALL.set("stat");
        assert!(!retries.is_second(1) && retries.none());
    }

    #[test]
    fn a_path_begins_at_a_directory_that_is_not_looked_up_in_the_second_attempt() {
        let (known, unknown) = (known(), unknown());
        for retries in [&known, &unknown] {
            assert!(!retries.begins_at(1, A), "a first attempt");
            retries.told(1);
            retries.looked_up(1, Some(name(B, FileKind::Directory)));
        }
        assert!(known.begins_at(1, A) && !known.begins_at(1, B) && !unknown.begins_at(1, A));
        assert!(known.has_come_to_directory(1, A) && !unknown.has_come_to_directory(1, A));
    }

    #[test]
    fn a_path_may_be_long() {
        let retries = known();
        retries.told(1);
        (0..250).for_each(|fid| retries.looked_up(1, Some(name(Fid(fid), FileKind::Directory))));
        retries.looked_up(1, Some(name(A, FileKind::Regular)));
        (0..250).for_each(|fid| retries.looked_up(1, Some(name(Fid(fid), FileKind::Directory))));
        assert!(retries.has_found(1, A, Question::Use));
    }

    #[test]
    fn a_path_goes_on_behind_a_symlink() {
        let retries = unknown();
        retries.told(1);
        retries.looked_up(1, Some(name(A, FileKind::Symlink)));
        assert!(retries.has_found(1, A, Question::Use));
        retries.looked_up(1, Some(name(B, FileKind::Regular)));
        assert!(retries.has_found(1, B, Question::Open));
    }

    #[test]
    fn an_attempt_ends_with_its_names() {
        let retries = unknown();
        retries.told(1);
        (0..NAMES_OF_UNKNOWN).for_each(|_| retries.looked_up(1, None));
        assert!(!retries.is_second(1) && retries.none());
        let retries = known();
        retries.told(1);
        (0..NAMES).for_each(|_| retries.looked_up(1, None));
        assert!(retries.none());
    }
}
