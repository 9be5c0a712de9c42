//! Answers that were written, and perhaps not yet digested by the threads that asked. The kernel
//! links a name, or believes it for longer, only when its thread runs again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use base::Fid;

use super::caller;

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
}

impl Open {
    /// It may make an inode of `fid`.
    fn makes(&self, fid: Fid, dir: Fid) -> bool {
        self.child == fid || (self.dir == dir && self.child == Fid::NONE)
    }
}

#[derive(Debug, Default)]
pub(super) struct Answers {
    open: HashMap<u32, Open>,
    /// Somebody was told something of whom nobody knows when he has digested it.
    unwatched: bool,
}

/// The answers, to be held while one is checked and written.
#[derive(Debug, Default, Clone)]
pub(super) struct SharedAnswers(Arc<Mutex<Answers>>);

impl SharedAnswers {
    pub fn lock(&self) -> MutexGuard<'_, Answers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who may still come to believe that a name in `dir` leads to `child`, having been told so. Only
    /// questions about a name that the kernel has already are digested without the directory's lock.
    pub fn late(&self, dir: Fid, child: Fid) -> Vec<Late> {
        let told = Open { dir, child };
        self.those(|open| *open == told)
    }

    /// Whose answer may be about to make an inode of `fid`.
    pub fn making(&self, fid: Fid, dir: Fid) -> Vec<Late> {
        self.those(|open| open.makes(fid, dir))
    }

    fn those(&self, told: impl Fn(&Open) -> bool) -> Vec<Late> {
        let answers = self.lock();
        let late = answers.open.iter().filter(|(_, open)| told(open));
        let late = late.map(|(thread, open)| Late {
            answers: self.clone(),
            thread: *thread,
            told: *open,
            ran: caller::ran(*thread),
        });
        late.collect()
    }
}

impl Answers {
    /// `thread` is about to get an answer about `child` (or all children) of `dir`. False: nobody
    /// will know when it has digested that.
    pub fn note(&mut self, thread: u32, dir: Fid, child: Fid) -> bool {
        if self.open.len() >= OPEN_MAX {
            self.open
                .retain(|thread, _| caller::state(*thread).is_some());
        }
        // A thread of another namespace of processes has no number here.
        if thread == 0 || self.open.len() >= OPEN_MAX {
            self.unwatched = true;
            return false;
        }
        self.open.insert(thread, Open { dir, child });
        true
    }

    /// `thread` asks again: it has digested what it was told.
    pub fn asks(&mut self, thread: u32) {
        self.open.remove(&thread);
    }

    /// An answer may be about to make an inode of `fid`.
    pub fn may_appear(&self, fid: Fid, dir: Fid) -> bool {
        self.unwatched || self.open.values().any(|open| open.makes(fid, dir))
    }
}

/// A thread that was told where a name leads.
#[derive(Debug)]
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
        answers.lock().asks(me);
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
