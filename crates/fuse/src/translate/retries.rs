//! Second attempts. Where a question by path is answered `ESTALE`, the kernel asks for every name of
//! the path again, and then its question, just once. What a name was found to lead to in that second
//! attempt is right, whatever becomes of the name meanwhile: the call is still under way.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use base::{Fid, Name};
use client::{AttemptBody, AttemptJournal, AttemptRecord};
use wire::FileKind;

use super::caller;

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
    /// One more name for it, as `Use`.
    Link,
}

impl Question {
    const ALL: [Question; 7] = [
        Question::Attributes,
        Question::Open,
        Question::Capability,
        Question::NoCapability,
        Question::Change,
        Question::Use,
        Question::Link,
    ];
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
    /// Where a name led that nothing was asked about yet.
    fn new(name: FoundName) -> Found {
        match name.kind {
            FileKind::Directory => Found::Directory(name.fid, OF_DIRECTORY),
            FileKind::Symlink => Found::Symlink(name.fid, None),
            _ => Found::File(name.fid, None),
        }
    }

    fn kind(&self) -> FileKind {
        match self {
            Found::Directory(..) => FileKind::Directory,
            Found::Symlink(..) => FileKind::Symlink,
            Found::File(..) => FileKind::Regular,
        }
    }

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
                    (None | Some(Question::Attributes), Question::Use | Question::Link) => true,
                    (Some(_), Question::Use | Question::Link) => false,
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
    /// The questions that were answered `ESTALE` in the first attempt, and about which file: an error of some
    /// does not end a call.
    led_astray: Vec<(Fid, Question)>,
    /// Where each of its names led, by directory and name. The next process does not know them.
    leads: Vec<(Fid, Name, Fid)>,
    /// The name that was answered `ESTALE` in the first attempt.
    refused: Option<(Fid, Name)>,
    /// One of its names led nowhere.
    has_missed: bool,
    /// How many more names belong to it.
    names: u16,
    /// The request that was answered `ESTALE`, as the kernel sent it first.
    request: Option<u64>,
    record: Option<AttemptRecord>,
    /// The process before knew of it.
    is_inherited: bool,
}

impl Attempt {
    fn of(call: Option<Call>) -> Attempt {
        let names = match call {
            Some(_) => NAMES,
            None => NAMES_OF_UNKNOWN,
        };
        Attempt {
            call,
            found: Vec::new(),
            led_astray: Vec::new(),
            leads: Vec::new(),
            refused: None,
            has_missed: false,
            names,
            request: None,
            record: None,
            is_inherited: false,
        }
    }

    /// As the process before knew it. What it was asked about last may be asked again.
    fn inherited(body: AttemptBody, record: AttemptRecord) -> Attempt {
        let found = body.found.into_iter();
        let question = |code: u8| Question::ALL.get(usize::from(code)).copied();
        let led_astray = body.led_astray.into_iter();
        Attempt {
            found: found
                .map(|(fid, kind)| Found::new(FoundName { fid, kind }))
                .collect(),
            led_astray: led_astray
                .filter_map(|(fid, code)| Some((fid, question(code)?)))
                .collect(),
            has_missed: body.has_missed,
            request: body.request,
            record: Some(record),
            is_inherited: true,
            ..Attempt::of(body.call)
        }
    }

    /// Makes what is known of it known to the next process.
    fn record(&mut self, thread: u32, journal: &AttemptJournal) {
        let found = self.found.iter();
        let led_astray = self.led_astray.iter();
        // The record before goes when this one is there.
        self.record = journal.put(&AttemptBody {
            thread,
            request: self.request,
            call: self.call.clone(),
            found: found.map(|found| (found.fid(), found.kind())).collect(),
            has_missed: self.has_missed,
            led_astray: led_astray
                .map(|(fid, question)| (*fid, *question as u8))
                .collect(),
        });
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

    fn has_looked_up(&self) -> bool {
        self.has_missed || !self.found.is_empty()
    }

    /// Its path begins at the file: a descriptor. It may still be in its first attempt; a second one asks a
    /// question again. One that is to link a file has looked up the new name.
    fn begins_at_file(&self, fid: Fid, question: Question) -> bool {
        if self.call.as_deref().is_some_and(caller::is_link) {
            let is_file = |found: &Found| matches!(found, Found::File(..));
            return self.has_looked_up() && !self.found.iter().any(is_file);
        }
        let is_directory = |found: &Found| matches!(found, Found::Directory(..));
        self.call.is_some()
            && !self.has_missed
            && self.found.iter().all(is_directory)
            && self.led_astray.contains(&(fid, question))
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
    /// Set when this process serves.
    journal: OnceLock<AttemptJournal>,
}

impl Retries {
    pub fn new(call_of: fn(u32) -> Option<Call>) -> Retries {
        Retries {
            threads: Mutex::default(),
            count: AtomicUsize::new(0),
            call_of,
            journal: OnceLock::new(),
        }
    }

    /// Goes on with the attempts that the process before knew of, of one thread the last.
    pub fn inherit(&self, journal: AttemptJournal, attempts: Vec<(AttemptBody, AttemptRecord)>) {
        // Set once: a process serves one client.
        let _ = self.journal.set(journal);
        self.change(|threads| {
            threads.extend(attempts.into_iter().map(|(body, record)| {
                let thread = body.thread;
                (thread, Attempt::inherited(body, record))
            }));
        });
    }

    fn record(&self, thread: u32, attempt: &mut Attempt) {
        if let Some(journal) = self.journal.get() {
            attempt.record(thread, journal);
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

    /// `thread` is answered that it is to look again; none: the kernel itself has told it so.
    pub fn told(&self, thread: u32, request: Option<u64>) {
        let mut attempt = Attempt {
            request,
            ..Attempt::of((self.call_of)(thread))
        };
        self.record(thread, &mut attempt);
        self.change(|threads| {
            if threads.len() >= THREADS_MAX {
                threads.clear();
            }
            threads.insert(thread, attempt);
        });
    }

    /// The kernel sends the request of `thread` again: it has not heard the answer that the process before
    /// was about to give.
    pub fn not_heard(&self, thread: u32, request: u64) {
        let is_its = |attempt: &mut Attempt| attempt.request == Some(request);
        if self.attempt(thread, is_its) == Some(true) {
            self.ended(thread);
        }
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

    /// `thread` is answered that it is to look again, for what it has asked about `fid`.
    pub fn told_of(&self, thread: u32, request: u64, asked: (Fid, Question)) {
        let is_first = |attempt: &mut Attempt| attempt.call.is_some() && !attempt.has_looked_up();
        if !self.attempt(thread, is_first).unwrap_or(false) {
            self.told(thread, Some(request));
        }
        self.attempt(thread, |attempt| {
            attempt.request = Some(request);
            attempt.led_astray.push(asked);
            self.record(thread, attempt);
        });
    }

    /// `thread` has looked a name up in its second attempt.
    pub fn has_looked_up(&self, thread: u32) -> bool {
        let has_looked_up = |attempt: &mut Attempt| attempt.has_looked_up();
        self.attempt(thread, has_looked_up).unwrap_or(false)
    }

    /// `thread` asks this about the file `fid`, where its path begins: no name leads there.
    pub fn begins_at_file(&self, thread: u32, fid: Fid, question: Question) -> bool {
        let begins = |attempt: &mut Attempt| {
            let begins = attempt.begins_at_file(fid, question);
            if begins {
                attempt.found.push(Found::File(fid, Some(question)));
                self.record(thread, attempt);
            }
            begins
        };
        self.attempt(thread, begins).unwrap_or(false)
    }

    /// `thread` is answered that it is to look again, for `name` in `dir`.
    pub fn told_at(&self, thread: u32, request: u64, (dir, name): (Fid, &Name)) {
        self.told(thread, Some(request));
        self.attempt(thread, |attempt| {
            attempt.refused = Some((dir, name.clone()));
        });
    }

    /// `thread` asks for the name for which it was told to look again, and for nothing else since.
    pub fn asks_again(&self, thread: u32, (dir, name): (Fid, &Name)) -> bool {
        let asks_again = |attempt: &mut Attempt| {
            let refused = attempt.refused.as_ref();
            !attempt.has_looked_up() && refused.is_some_and(|at| at.0 == dir && at.1 == *name)
        };
        self.attempt(thread, asks_again).unwrap_or(false)
    }

    /// The name `name` in `dir` leads to `fid`, or nowhere, in the second attempt of `thread`.
    pub fn leads(&self, thread: u32, (dir, name): (Fid, &Name), fid: Option<Fid>) {
        self.attempt(thread, |attempt| {
            attempt
                .leads
                .retain(|lead| lead.0 != dir || lead.1 != *name);
            let lead = fid.map(|fid| (dir, name.clone(), fid));
            attempt.leads.extend(lead);
        });
    }

    /// Where `name` has led in the second attempt of `thread`, by directory. None: the process before has
    /// looked it up.
    pub fn led(&self, thread: u32, name: &[u8]) -> Option<Vec<(Fid, Fid)>> {
        let led = |attempt: &mut Attempt| {
            let leads = attempt.leads.iter();
            let named = leads.filter(|lead| lead.1.as_bytes() == name);
            (!attempt.is_inherited).then(|| named.map(|lead| (lead.0, lead.2)).collect())
        };
        self.attempt(thread, led).unwrap_or(Some(Vec::new()))
    }

    /// Another name than `name` in `dir` has led to `fid` in the second attempt of `thread`.
    pub fn has_led_elsewhere(&self, thread: u32, (dir, name): (Fid, &Name), fid: Fid) -> bool {
        let is_other =
            |lead: &(Fid, Name, Fid)| lead.2 == fid && (lead.0 != dir || lead.1 != *name);
        let has_led = |attempt: &mut Attempt| attempt.leads.iter().any(is_other);
        self.attempt(thread, has_led).unwrap_or(false)
    }

    /// A name that `thread` asked for leads there, or nowhere.
    pub fn looked_up(&self, thread: u32, found: Option<FoundName>) {
        let is_over = self.attempt(thread, |attempt| {
            attempt.names -= 1;
            let is_over = attempt.names == 0 || attempt.found.iter().any(Found::is_last);
            attempt.has_missed |= found.is_none();
            attempt.found.extend(found.map(Found::new));
            self.record(thread, attempt);
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
#[path = "retries_tests.rs"]
mod tests;
