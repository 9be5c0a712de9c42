//! The modes and owners that threads were told, and which questions the kernel may therefore answer by older
//! ones (docs/locks.md, section 10, "Modes and owners"). Pure.

use std::collections::{HashMap, VecDeque};

use base::Fid;
use client::executor::Sender;
use wire::Attr;

/// What is over and remembered, at most. Requests from before what is beyond are in doubt, whatever they ask
/// about: they are looked at once more.
const OVER_MAX: usize = 4096;

/// What a check of permissions goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rights {
    mode: u16,
    uid: u32,
    gid: u32,
}

impl Rights {
    pub fn of(attr: &Attr) -> Rights {
        Rights {
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
        }
    }
}

/// How long the rights in an answer stay true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// Until a withdrawal, which waits for the thread.
    Covered,
    /// Perhaps they are no longer true.
    Uncovered,
}

/// Rights that a thread was told.
struct Told {
    thread: u32,
    rights: Rights,
    hold: Hold,
    /// The thread had digested them before this request was asked; none: perhaps it has not yet.
    over: Option<u64>,
}

impl Told {
    fn is_before(&self, number: u64) -> bool {
        self.over.is_some_and(|over| over <= number)
    }
}

/// What is known of one file.
#[derive(Default)]
struct File {
    told: Vec<Told>,
    /// Withdrawals that the kernel has yet to hear of, and requests that wait for that.
    coming: usize,
    waiting: Vec<Sender<()>>,
    /// Withdrawals that the kernel has heard of, where older requests may still be in its queue.
    unsettled: usize,
    /// Requests before this one may have been asked before a withdrawal.
    withdrawn: u64,
}

impl File {
    fn is_needless(&self) -> bool {
        let nothing = self.coming + self.unsettled == 0 && self.withdrawn == 0;
        nothing && self.told.is_empty()
    }
}

/// Requests are known by their numbers, which grow as the kernel queues them.
#[derive(Default)]
pub(super) struct ToldRights {
    files: HashMap<Fid, File>,
    /// The files of which each thread was told and has perhaps not digested it.
    threads: HashMap<u32, Vec<Fid>>,
    /// What is over since which request, the oldest first.
    over: VecDeque<(Fid, u64)>,
    /// What was over by this request is forgotten.
    forgotten: u64,
    /// The last request that was looked at.
    seen: u64,
}

impl ToldRights {
    /// `thread` is about to be told `rights` of `fid`.
    pub fn tell(&mut self, thread: u32, fid: Fid, (rights, hold): (Rights, Hold)) {
        self.threads.entry(thread).or_default().push(fid);
        self.files.entry(fid).or_default().told.push(Told {
            thread,
            rights,
            hold,
            over: None,
        });
    }

    /// `thread` asks this request: it has digested what it was told.
    pub fn asks(&mut self, thread: u32, number: u64) {
        self.seen = self.seen.max(number);
        for fid in self.threads.remove(&thread).unwrap_or_default() {
            self.end(fid, thread, number);
        }
    }

    /// `thread` has digested what it was told of `fid`. All requests from before have been looked at.
    pub fn digested(&mut self, thread: u32, fid: Fid) {
        self.end(fid, thread, self.seen + 1);
    }

    /// `thread` has ended, long before.
    pub fn ended(&mut self, thread: u32) {
        self.asks(thread, self.seen);
    }

    fn end(&mut self, fid: Fid, thread: u32, number: u64) {
        let Some(file) = self.files.get_mut(&fid) else {
            return;
        };
        let mut has_ended = false;
        for told in &mut file.told {
            if told.thread == thread && told.over.is_none() {
                told.over = Some(number);
                has_ended |= told.hold == Hold::Uncovered;
            }
        }
        // Who withdraws what was covered has waited.
        file.told
            .retain(|told| told.over.is_none() || told.hold == Hold::Uncovered);
        if has_ended {
            return self.is_over(fid, number);
        }
        if file.is_needless() {
            self.files.remove(&fid);
        }
    }

    fn is_over(&mut self, fid: Fid, number: u64) {
        self.over.push_back((fid, number));
        if self.over.len() <= OVER_MAX {
            return;
        }
        let Some((fid, number)) = self.over.pop_front() else {
            return;
        };
        self.forgotten = self.forgotten.max(number);
        if let Some(file) = self.files.get_mut(&fid) {
            file.told.retain(|told| !told.is_before(number));
            if file.withdrawn <= number {
                file.withdrawn = 0;
            }
            if file.is_needless() {
                self.files.remove(&fid);
            }
        }
    }

    /// The kernel may drop these rights of `fid` in the answer to this request of `thread`. It would go by
    /// those that it was told before the call began.
    pub fn are_in_doubt(&self, fid: Fid, (thread, number): (u32, u64), rights: Rights) -> bool {
        let is_late = |told: &Told| told.differs(thread, rights) && !told.is_before(number);
        let is_in_doubt = |file: &File| {
            file.coming + file.unsettled > 0
                || number < file.withdrawn
                || file.told.iter().any(is_late)
        };
        number < self.forgotten || self.files.get(&fid).is_some_and(is_in_doubt)
    }

    /// Threads other than `thread` that have perhaps not digested other rights of `fid` that nothing covers.
    pub fn late(&self, fid: Fid, (thread, rights): (u32, Rights)) -> Vec<u32> {
        self.undigested(fid, |told| told.differs(thread, rights))
    }

    /// Threads that have perhaps not digested what they were told of `fid`.
    pub fn all_late(&self, fid: Fid) -> Vec<u32> {
        self.undigested(fid, |_| true)
    }

    fn undigested(&self, fid: Fid, of: impl Fn(&Told) -> bool) -> Vec<u32> {
        let told = self.files.get(&fid).map_or(&[][..], |file| &file.told);
        let late = told.iter().filter(|told| told.over.is_none() && of(told));
        late.map(|told| told.thread).collect()
    }

    /// The kernel is about to be told that it shall ask about `fid` anew.
    pub fn begin_withdrawal(&mut self, fid: Fid) {
        self.files.entry(fid).or_default().coming += 1;
    }

    /// `then` is told when the kernel has heard of the withdrawals of `fid` that are coming.
    pub fn wait(&mut self, fid: Fid, then: Sender<()>) {
        match self.files.get_mut(&fid) {
            Some(file) if file.coming > 0 => file.waiting.push(then),
            _ => then.send(()),
        }
    }

    /// The kernel has heard of one, or has nothing of the file. Requests that wait for that.
    pub fn withdraw(&mut self, fid: Fid, is_in_kernel: bool) -> Vec<Sender<()>> {
        let file = self.files.entry(fid).or_default();
        file.coming -= 1;
        file.unsettled += usize::from(is_in_kernel);
        // Nothing covers what could not be waited for.
        let told = file.told.iter_mut();
        told.filter(|told| told.over.is_none())
            .for_each(|told| told.hold = Hold::Uncovered);
        if file.coming > 0 {
            return Vec::new();
        }
        let waiting = std::mem::take(&mut file.waiting);
        if file.is_needless() {
            self.files.remove(&fid);
        }
        waiting
    }

    /// All requests from before a withdrawal of each of these files have been looked at.
    pub fn settle(&mut self, files: &[Fid]) {
        let number = self.seen + 1;
        for fid in files {
            let file = self.files.entry(*fid).or_default();
            file.unsettled -= 1;
            file.withdrawn = number;
            self.is_over(*fid, number);
        }
    }
}

impl Told {
    fn differs(&self, thread: u32, rights: Rights) -> bool {
        self.thread != thread && self.hold == Hold::Uncovered && self.rights != rights
    }
}

#[cfg(test)]
mod tests {
    use client::executor::oneshot;

    use super::*;

    const FILE: Fid = Fid(7);
    const OLD: Rights = rights(0o644);
    const NEW: Rights = rights(0o600);

    const fn rights(mode: u16) -> Rights {
        let (uid, gid) = (0, 0);
        Rights { mode, uid, gid }
    }

    fn told(hold: Hold) -> ToldRights {
        let mut rights = ToldRights::default();
        rights.asks(1, 10);
        rights.tell(1, FILE, (OLD, hold));
        rights
    }

    #[test]
    fn other_rights_that_nothing_covers_are_a_doubt_until_they_are_digested() {
        let mut rights = told(Hold::Uncovered);
        assert!(rights.are_in_doubt(FILE, (2, 11), NEW));
        assert!(!rights.are_in_doubt(FILE, (2, 11), OLD), "the same");
        assert!(!rights.are_in_doubt(Fid(8), (2, 11), NEW), "another file");
        assert_eq!(rights.late(FILE, (2, NEW)), [1]);
        rights.asks(1, 12);
        assert!(rights.late(FILE, (2, NEW)).is_empty());
        let asked = [11, 13].map(|number| rights.are_in_doubt(FILE, (2, number), NEW));
        assert_eq!(asked, [true, false]);
    }

    #[test]
    fn who_never_asks_again_has_digested_when_it_is_seen_to() {
        let mut rights = told(Hold::Uncovered);
        rights.asks(3, 20);
        rights.digested(1, FILE);
        let asked = [20, 21].map(|number| rights.are_in_doubt(FILE, (2, number), NEW));
        assert_eq!(asked, [true, false]);
    }

    #[test]
    fn covered_rights_are_no_doubt_and_their_withdrawal_waits() {
        let mut rights = told(Hold::Covered);
        assert!(!rights.are_in_doubt(FILE, (2, 11), NEW));
        assert_eq!(rights.all_late(FILE), [1]);
        rights.asks(1, 12);
        assert!(rights.all_late(FILE).is_empty() && rights.files.is_empty());
    }

    #[test]
    fn what_is_not_digested_when_it_is_withdrawn_is_a_doubt() {
        let mut rights = told(Hold::Covered);
        rights.begin_withdrawal(FILE);
        drop(rights.withdraw(FILE, true));
        rights.settle(&[FILE]);
        assert_eq!(rights.late(FILE, (2, NEW)), [1]);
        let asked = [OLD, NEW].map(|told| rights.are_in_doubt(FILE, (2, 20), told));
        assert_eq!(asked, [false, true]);
    }

    #[test]
    fn what_is_asked_before_the_kernel_hears_of_a_withdrawal_is_in_doubt() {
        let mut rights = ToldRights::default();
        rights.begin_withdrawal(FILE);
        let (then, heard) = oneshot();
        rights.wait(FILE, then);
        assert!(rights.are_in_doubt(FILE, (1, 10), OLD));
        let waiting = rights.withdraw(FILE, true);
        assert_eq!(waiting.len(), 1);
        drop((waiting, heard));
        assert!(rights.are_in_doubt(FILE, (1, 10), OLD), "not looked at");
        rights.asks(2, 20);
        rights.settle(&[FILE]);
        let asked = [20, 21].map(|number| rights.are_in_doubt(FILE, (1, number), OLD));
        assert_eq!(asked, [true, false]);
    }

    #[test]
    fn what_is_forgotten_leaves_older_requests_in_doubt() {
        let mut rights = ToldRights::default();
        for number in 0..=OVER_MAX as u64 {
            let fid = Fid(number);
            rights.begin_withdrawal(fid);
            drop(rights.withdraw(fid, true));
            rights.asks(1, number);
            rights.settle(&[fid]);
        }
        assert_eq!(
            (rights.files.len(), rights.over.len()),
            (OVER_MAX, OVER_MAX)
        );
        let asked = [0, 1].map(|number| rights.are_in_doubt(Fid(0), (1, number), OLD));
        assert_eq!(asked, [true, false]);
    }
}
