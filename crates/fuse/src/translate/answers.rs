//! Answers that were written, and perhaps not yet digested by the threads that asked. The kernel
//! links a name, or believes it for longer, only when its thread runs again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use base::Fid;

use super::caller;
use super::told_rights::{Hold, Rights, ToldRights};

/// Answers remembered, at most.
const OPEN_MAX: usize = 4096;
/// For so long a thread has run when it has digested what it was told before, by far.
const DIGESTION: Duration = Duration::from_millis(1);
/// How often is looked whether it has.
const LOOK: Duration = Duration::from_millis(1);

/// What a thread was told last, if it has not asked again since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Open {
    dir: Fid,
    /// NONE: a page of the directory, with any of its children.
    child: Fid,
    /// Tells it from all other answers.
    serial: u64,
}

impl Open {
    /// It may make an inode of `fid`.
    fn makes(&self, fid: Fid, dir: Fid) -> bool {
        self.child == fid || (self.dir == dir && self.child == Fid::NONE)
    }
}

#[derive(Default)]
pub(super) struct Answers {
    open: HashMap<u32, Open>,
    pub rights: ToldRights,
    serial: u64,
    /// Somebody was told something of whom nobody knows when he has digested it.
    unwatched: bool,
}

/// The answers, to be held while one is checked and written.
#[derive(Default, Clone)]
pub(super) struct SharedAnswers(Arc<Mutex<Answers>>);

impl SharedAnswers {
    pub fn lock(&self) -> MutexGuard<'_, Answers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who may still come to believe that a name in `dir` leads to `child`, having been told so. Only
    /// questions about a name that the kernel has already are digested without the directory's lock.
    pub fn late(&self, dir: Fid, child: Fid) -> Vec<Late> {
        self.those(|open| (open.dir, open.child) == (dir, child))
    }

    /// Whose answer may be about to make an inode of `fid`.
    pub fn making(&self, fid: Fid, dir: Fid) -> Vec<Late> {
        self.those(|open| open.makes(fid, dir))
    }

    fn those(&self, told: impl Fn(&Open) -> bool) -> Vec<Late> {
        let answers = self.lock();
        let late = answers.open.iter().filter(|(_, open)| told(open));
        let late = late.map(|(thread, open)| self.late_one(*thread, *open));
        late.collect()
    }

    fn late_one(&self, thread: u32, told: Open) -> Late {
        Late {
            answers: self.clone(),
            thread,
            told,
            ran: caller::ran(thread),
        }
    }

    /// These threads have digested what they were told of `fid`, where their answers are no later ones.
    pub fn digested(&self, fid: Fid, threads: &[Late]) {
        for late in threads.iter().filter(|late| late.is_over()) {
            let mut answers = self.lock();
            if answers.open.get(&late.thread) == Some(&late.told) {
                answers.rights.digested(late.thread, fid);
            }
        }
    }

    /// Which of these threads may not have digested their last answers.
    pub fn of_threads(&self, threads: Vec<u32>) -> Vec<Late> {
        let told = |thread: u32| Some((thread, self.lock().open.get(&thread).copied()?));
        let told: Vec<_> = threads.into_iter().filter_map(told).collect();
        let late = told.into_iter();
        late.map(|(thread, told)| self.late_one(thread, told))
            .collect()
    }
}

impl Answers {
    /// `thread` is about to get an answer about `child` (or all children) of `dir`. False: nobody
    /// will know when it has digested that.
    pub fn note(&mut self, thread: u32, dir: Fid, child: Fid) -> bool {
        if self.open.len() >= OPEN_MAX {
            self.forget_ended();
        }
        // A thread of another namespace of processes has no number here.
        if thread == 0 || self.open.len() >= OPEN_MAX {
            self.unwatched = true;
            return false;
        }
        self.insert(thread, dir, child);
        true
    }

    /// `thread` is about to be told these rights of `fid`, in an answer about names where that was noted.
    pub fn tell(&mut self, thread: u32, fid: Fid, rights: (Rights, Hold)) {
        let has_room = thread != 0 && self.open.len() < OPEN_MAX;
        if !self.open.contains_key(&thread) && has_room {
            self.insert(thread, Fid::NONE, fid);
        }
        if self.open.contains_key(&thread) {
            self.rights.tell(thread, fid, rights);
        }
    }

    fn insert(&mut self, thread: u32, dir: Fid, child: Fid) {
        self.serial += 1;
        let serial = self.serial;
        self.open.insert(thread, Open { dir, child, serial });
    }

    /// Threads that have ended have digested all.
    fn forget_ended(&mut self) {
        let threads = self.open.keys().copied();
        let ended: Vec<u32> = threads
            .filter(|thread| caller::state(*thread).is_none())
            .collect();
        for thread in ended {
            self.open.remove(&thread);
            self.rights.ended(thread);
        }
    }

    /// `thread` asks this request: it has digested what it was told.
    pub fn asks(&mut self, thread: u32, number: u64) {
        self.open.remove(&thread);
        self.rights.asks(thread, number);
    }

    /// An answer may be about to make an inode of `fid`.
    pub fn may_appear(&self, fid: Fid, dir: Fid) -> bool {
        self.unwatched || self.open.values().any(|open| open.makes(fid, dir))
    }
}

/// A thread that was told where a name leads.
pub(super) struct Late {
    answers: SharedAnswers,
    thread: u32,
    told: Open,
    /// For how long it had run when it was looked for.
    ran: Option<Duration>,
}

impl Late {
    /// It has digested that, or waits for something else first.
    pub fn is_over(&self) -> bool {
        self.has_digested(Instant::now())
    }

    /// Waits until it has digested that. It needs nothing for it but a processor.
    pub fn digested(self) {
        let began = Instant::now();
        while !self.has_digested(began) {
            thread::sleep(LOOK);
        }
    }

    /// The same, for so long at most.
    pub fn digested_within(&self, patience: Duration) {
        let began = Instant::now();
        while !self.has_digested(began) && began.elapsed() < patience {
            thread::sleep(LOOK);
        }
    }

    fn has_digested(&self, began: Instant) -> bool {
        let has_asked = self.answers.lock().open.get(&self.thread) != Some(&self.told);
        // Woken by the answer, it sleeps again only behind it.
        if has_asked || caller::state(self.thread) != Some('R') {
            return true;
        }
        match (self.ran, caller::ran(self.thread)) {
            (Some(before), Some(now)) => now >= before + DIGESTION,
            // A kernel that does not count that: it has had a second.
            _ => began.elapsed() >= Duration::from_secs(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const DIR: Fid = Fid(7);
    const CHILD: Fid = Fid(8);

    fn told(thread: u32) -> SharedAnswers {
        let answers = SharedAnswers::default();
        assert!(answers.lock().note(thread, DIR, CHILD));
        answers
    }

    #[test]
    fn who_asks_again_has_digested() {
        let me = nix::unistd::gettid().as_raw() as u32;
        let answers = told(me);
        assert!(answers.late(DIR, Fid(9)).is_empty());
        let late = answers.late(DIR, CHILD);
        assert!(
            !late[0].has_digested(Instant::now()),
            "it has not run since"
        );
        let making = |fid, dir| answers.making(fid, dir).len();
        assert_eq!((making(CHILD, Fid(9)), making(Fid(9), DIR)), (1, 0));
        answers.lock().asks(me, 1);
        assert!(late[0].is_over() && answers.late(DIR, CHILD).is_empty());
    }

    #[test]
    fn who_sleeps_or_has_run_or_ended_has_digested() {
        let (tell, who) = channel();
        let (end, ended) = channel::<()>();
        let other = thread::spawn(move || {
            tell.send(nix::unistd::gettid().as_raw() as u32).unwrap();
            let _ = ended.recv();
        });
        let thread = who.recv().unwrap();
        let answers = told(thread);
        answers
            .late(DIR, CHILD)
            .into_iter()
            .for_each(Late::digested);
        drop(end);
        other.join().unwrap();
        answers
            .late(DIR, CHILD)
            .into_iter()
            .for_each(Late::digested);
        let me = nix::unistd::gettid().as_raw() as u32;
        let late = told(me).late(DIR, CHILD);
        let began = Instant::now();
        // It needs a processor, which others may have for as long as they like.
        while !late[0].has_digested(began) {}
    }

    #[test]
    fn who_cannot_be_watched_counts_always() {
        let answers = SharedAnswers::default();
        assert!(!answers.lock().may_appear(CHILD, DIR));
        assert!(!answers.lock().note(0, DIR, CHILD));
        assert!(answers.lock().may_appear(Fid(9), Fid(10)));
    }
}
