//! Keeps replies with names and attributes in order with their withdrawals.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use base::{ByteRange, Fid};
use client::executor::{Sender, oneshot};
use client::kernel::{Forget, ForgetName, KernelCache};
use tracing::{debug, error, trace};

use super::answers::{Answers, Late, SharedAnswers};
use super::appending::Appending;
use super::nodes::Nodes;
use super::reading::Reading;
use super::told_rights::{Hold, Rights};
use crate::kernel::notify::{LateNotice, NoticePort, NotifyQueueConfig};
use crate::kernel::{Lane, Notice, NoticeOutcome, Notifier, NotifyError, NotifyQueue, Pages};

/// How long is waited for a lock of the kernel that a call may hold which waits for us.
const PATIENCE: Duration = Duration::from_millis(20);
/// Waiters kept before those that were told are looked for.
const WAITERS_KEPT: usize = 1024;
/// Files in one notice that the kernel may drop.
const PRUNE_MAX: usize = 512;
/// How long a withdrawal waits at most for threads that were told what it withdraws, and have no processor.
const DIGESTION_MAX: Duration = Duration::from_secs(10);
/// A name no file has: asking the kernel to forget it waits for the directory's lock.
const BARRIER: &[u8] = b"/";

/// Who waits for notices that wait for a directory's lock in the kernel, one for each node of the
/// directory. Told when one is late; dropped when all are done.
#[derive(Clone)]
struct Waiting(Arc<Mutex<(Option<Sender<()>>, usize)>>);

impl Waiting {
    fn for_all(sender: Sender<()>, notices: usize) -> Waiting {
        Waiting(Arc::new(Mutex::new((Some(sender), notices))))
    }

    fn is_over(&self) -> bool {
        lock(&self.0).0.is_none()
    }

    fn late(&self) {
        let sender = lock(&self.0).0.take();
        if let Some(sender) = sender {
            sender.send(());
        }
    }

    /// One of the notices is done.
    fn done(&self) {
        let mut waiting = lock(&self.0);
        waiting.1 -= 1;
        let over = (waiting.1 == 0).then(|| waiting.0.take());
        drop(waiting);
        drop(over);
    }
}

/// The same, until a notice is late.
struct Waiter {
    waiting: Waiting,
    /// Who may have the lock without waiting for anything but a processor: then late is no reason.
    digesting: Vec<Late>,
}

/// The order of replies and withdrawals of one mount.
///
/// A reply is checked and written while the gate is held. A withdrawal passes the gate before it tells the
/// kernel. So a reply made before a withdrawal has timeouts of zero, or is written before the kernel is told
/// to forget.
///
/// One case is left: a reply that was written, and that the asking thread has not processed yet, for an inode
/// that the kernel does not have. Such replies are remembered until the thread asks again. The withdrawal
/// then waits at the directory's lock, which that thread holds until it has processed the reply.
///
/// A reply about a name that the kernel has already is processed without that lock. A file name is dropped
/// for good. A directory name is only expired, which such a reply would undo, so it is expired once more
/// afterwards.
#[derive(Default)]
pub struct Gate {
    pub(super) nodes: Nodes,
    pub(super) reading: Reading,
    pub(super) appending: Appending,
    answers: SharedAnswers,
    /// Withdrawals that the kernel has heard of.
    heard: Mutex<Heard>,
    rim: Mutex<Option<Rim>>,
}

/// Withdrawals until the mount has looked at all requests from before.
#[derive(Default)]
struct Heard {
    files: Vec<Fid>,
    /// Earlier ones are waited for.
    is_waiting: bool,
}

#[derive(Clone)]
struct Rim {
    gate: Weak<Gate>,
    queue: Arc<NotifyQueue>,
    notifier: Notifier,
    /// By ticket.
    waiters: Arc<Mutex<HashMap<u64, Waiter>>>,
}

/// Held while an answer is checked and written.
pub(super) struct Passage<'a>(MutexGuard<'a, Answers>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Passage<'_> {
    /// `thread` is about to get an answer about `child` (or all children) of `dir`. False: nobody
    /// will know when it has digested that.
    pub fn note(&mut self, thread: u32, dir: Fid, child: Fid) -> bool {
        self.0.note(thread, dir, child)
    }

    /// `thread` is about to be told these rights of `fid`.
    pub fn tell(&mut self, thread: u32, fid: Fid, rights: (Rights, Hold)) {
        self.0.tell(thread, fid, rights);
    }

    /// The kernel may drop what a request of this thread and number is told of `fid`.
    pub fn are_in_doubt(&self, fid: Fid, asked: (u32, u64), rights: Rights) -> bool {
        self.0.rights.are_in_doubt(fid, asked, rights)
    }
}

impl Gate {
    /// Takes notices from now on.
    pub fn open(self: &Arc<Gate>, notifier: &Notifier) -> std::io::Result<()> {
        let gate = Arc::downgrade(self);
        let late = move |late: &LateNotice| {
            if let Some(gate) = gate.upgrade() {
                gate.too_late(late);
            }
        };
        let config = NotifyQueueConfig {
            deadline: PATIENCE,
            ..NotifyQueueConfig::default()
        };
        let port: Arc<dyn NoticePort> = Arc::new(notifier.clone());
        let queue = Arc::new(NotifyQueue::start(port, config, late)?);
        *lock(&self.rim) = Some(Rim {
            gate: Arc::downgrade(self),
            queue,
            notifier: notifier.clone(),
            waiters: Arc::default(),
        });
        Ok(())
    }

    /// Takes no more; waits for what is being told. Unmount first.
    pub fn close(&self) {
        let rim = lock(&self.rim).take();
        drop(rim);
    }

    pub(super) fn pass(&self) -> Passage<'_> {
        Passage(self.answers.lock())
    }

    /// `thread` asks this request: it has digested what it was told.
    pub(super) fn asks(&self, thread: u32, number: u64) {
        self.answers.lock().asks(thread, number);
    }

    /// All who were told of `fid`, by a name or by a page of `dir`, have digested that.
    pub(super) fn is_digested(&self, fid: Fid, dir: Fid) -> bool {
        self.answers.making(fid, dir).iter().all(Late::is_over)
    }

    fn rim(&self) -> Option<Rim> {
        lock(&self.rim).clone()
    }

    fn submit(
        &self,
        lane: Lane,
        notice: Notice,
        then: impl FnOnce(Result<NoticeOutcome, NotifyError>) + Send + 'static,
    ) -> Option<u64> {
        let Rim { queue, .. } = self.rim()?;
        // Refused only beyond the queue's bound; `then` is dropped, which tells the thread that
        // waits.
        queue.submit(lane, notice, then).ok()
    }

    fn forget_attributes(&self, fid: Fid, dir: Fid, done: Sender<()>) {
        let late = {
            let mut answers = self.answers.lock();
            answers.rights.begin_withdrawal(fid);
            answers.rights.all_late(fid)
        };
        let mut late = self.answers.of_threads(late);
        late.retain(|late| !late.is_over());
        let gate = self.rim().map(|rim| rim.gate);
        let Some(gate) = gate.filter(|_| !late.is_empty()) else {
            return self.withdraw_attributes(fid, dir, done);
        };
        let about = Some((fid, dir, done));
        let withdrawal = Withdrawal { gate, about };
        // A thread that has not digested them would check permissions by older ones.
        spawn_digesting(move || {
            digested_soon(&late);
            drop(withdrawal);
        });
    }

    fn withdraw_attributes(&self, fid: Fid, dir: Fid, done: Sender<()>) {
        let Some(Rim { notifier, .. }) = self.rim() else {
            let waiting = self.answers.lock().rights.withdraw(fid, false);
            drop(waiting);
            return done.send(());
        };
        // Takes no lock in the kernel, so it needs no thread of its own.
        let nodes = self.nodes.of(fid);
        let told = nodes
            .iter()
            .map(|node| notifier.inval_inode(*node, Pages::Keep));
        let told: Vec<_> = told.collect();
        let absent = told.contains(&Ok(NoticeOutcome::NotCached));
        let is_in_kernel = told.contains(&Ok(NoticeOutcome::Done));
        let waiting = self.answers.lock().rights.withdraw(fid, is_in_kernel);
        waiting.into_iter().for_each(|waiting| waiting.send(()));
        if is_in_kernel {
            self.heard(&notifier, fid);
        }
        if !absent || dir == Fid::NONE || !self.answers.lock().may_appear(fid, dir) {
            return done.send(());
        }
        let parents = self.nodes.of(dir);
        let waiting = Waiting::for_all(done, parents.len());
        for parent in parents {
            let digesting = self.answers.making(fid, dir);
            let barrier = Notice::ExpireEntry {
                parent,
                name: BARRIER.into(),
            };
            // Whatever came of the barrier, the answer is digested or the mount is gone.
            let (notifier, nodes) = (notifier.clone(), nodes.clone());
            let digested = move || {
                for node in nodes {
                    let _ = notifier.inval_inode(node, Pages::Keep);
                }
            };
            self.submit_waiting(parent, barrier, (waiting.clone(), digesting), digested);
        }
    }

    /// The kernel has heard of a withdrawal. Requests from before are waited for, for many files at once.
    fn heard(&self, notifier: &Notifier, fid: Fid) {
        let mut heard = lock(&self.heard);
        heard.files.push(fid);
        if !std::mem::replace(&mut heard.is_waiting, true) {
            drop(heard);
            self.settle(notifier);
        }
    }

    fn settle(&self, notifier: &Notifier) {
        let files = {
            let mut heard = lock(&self.heard);
            heard.is_waiting = !heard.files.is_empty();
            std::mem::take(&mut heard.files)
        };
        let gate = self.rim().map(|rim| rim.gate);
        let Some(gate) = gate.filter(|_| !files.is_empty()) else {
            return;
        };
        let again = notifier.clone();
        notifier.after_requests(move || {
            if let Some(gate) = gate.upgrade() {
                gate.answers.lock().rights.settle(&files);
                gate.settle(&again);
            }
        });
    }

    /// Waits until nothing is on its way to the kernel for which it would drop these rights of `fid`. Then
    /// the thread may ask anew.
    pub(super) async fn nothing_is_late(&self, fid: Fid, asked: (u32, Rights)) {
        let (heard, is_heard) = oneshot();
        let threads = {
            let mut answers = self.answers.lock();
            answers.rights.wait(fid, heard);
            answers.rights.late(fid, asked)
        };
        let late = self.answers.of_threads(threads);
        is_heard.await;
        let Some(Rim { notifier, .. }) = self.rim() else {
            return;
        };
        let (answers, are_over) = (self.answers.clone(), late.iter().all(Late::is_over));
        let (sure, is_sure) = oneshot();
        let digest = move || {
            digested_soon(&late);
            // Those that never ask again are a doubt for nobody from here on.
            notifier.after_requests(move || answers.digested(fid, &late));
            sure.send(());
        };
        match are_over {
            true => digest(),
            false => spawn_digesting(digest),
        }
        is_sure.await;
    }

    /// A notice that waits for the lock of the directory of node `parent`. `then` runs when it is done.
    fn submit_waiting(
        &self,
        parent: u64,
        notice: Notice,
        (waiting, digesting): (Waiting, Vec<Late>),
        then: impl FnOnce() + Send + 'static,
    ) {
        let Some(Rim { queue, waiters, .. }) = self.rim() else {
            return waiting.done();
        };
        let told = waiting.clone();
        let done = move |_| {
            then();
            told.done();
        };
        // Nobody is found to be late before it is known who waits.
        let mut waiters = lock(&waiters);
        let Ok(ticket) = queue.submit(name_lane(parent), notice, done) else {
            waiting.done();
            return debug!("too many notices: names in node {parent} may be asked for once more");
        };
        if waiters.len() >= WAITERS_KEPT {
            waiters.retain(|_, waiter| !waiter.waiting.is_over());
        }
        let waiter = Waiter { waiting, digesting };
        waiters.insert(ticket, waiter);
    }

    fn forget_pages(&self, fid: Fid, range: ByteRange, done: Sender<()>) {
        // Dropped with the last of them, which tells the thread that waits.
        let done = Arc::new(done);
        for nodeid in self.nodes.of(fid) {
            let notice = Notice::InvalInode {
                nodeid,
                pages: Pages::Drop(range),
            };
            let done = done.clone();
            self.submit(page_lane(nodeid), notice, move |_| drop(done));
        }
    }

    /// A call of the kernel holds the directory's lock, and may be waiting for us. Or it wants a
    /// processor to digest an answer: that is waited for.
    fn too_late(&self, late: &LateNotice) {
        let waiter = {
            let Some(rim) = self.rim() else { return };
            lock(&rim.waiters).remove(&late.ticket)
        };
        let Some(Waiter { waiting, digesting }) = waiter else {
            return;
        };
        if digesting.iter().all(Late::is_over) {
            return waiting.late();
        }
        let digest = move || {
            digesting.into_iter().for_each(Late::digested);
            waiting.late();
        };
        // Without a thread who waits is told when the notice is done.
        spawn_digesting(digest);
    }
}

impl KernelCache for Gate {
    fn forget(&self, what: Forget, done: Sender<()>) {
        // Answers checked before the withdrawal are written before the kernel forgets.
        drop(self.pass());
        trace!(?what, "the kernel shall forget");
        match what {
            Forget::Attributes { fid, dir } => self.forget_attributes(fid, dir, done),
            Forget::Pages { fid, range } => self.forget_pages(fid, range, done),
        }
    }

    fn forget_name(&self, what: ForgetName, late: Sender<()>, done: Sender<()>) {
        drop(self.pass());
        trace!(?what, "the kernel shall forget");
        let ForgetName {
            dir,
            name,
            fid,
            expire,
        } = what;
        let Some(Rim { notifier, .. }) = self.rim() else {
            return;
        };
        let parents = self.nodes.of(dir);
        let waiting = Waiting::for_all(late, parents.len());
        // Dropped with the last of them, which tells the thread that waits.
        let done = Arc::new(done);
        for parent in parents {
            let (name, waiting, done) = (Box::from(name.as_bytes()), waiting.clone(), done.clone());
            let notifier = notifier.clone();
            if !(expire && notifier.granted().expires_entries()) {
                let notice = Notice::InvalEntry { parent, name };
                self.submit_waiting(parent, notice, (waiting, Vec::new()), move || {
                    notifier.after_requests(|| drop(done));
                });
                continue;
            }
            let notice = Notice::ExpireEntry { parent, name };
            let told = self.answers.late(dir, fid);
            let again = notice.clone();
            self.submit_waiting(parent, notice, (waiting, Vec::new()), move || {
                if !told.is_empty() {
                    told.into_iter().for_each(Late::digested);
                    // The mount may be gone, and its names with it.
                    let _ = notifier.send(&again);
                }
                notifier.after_requests(|| drop(done));
            });
        }
    }

    fn forget_all_names(&self) -> bool {
        self.rim()
            .is_some_and(|rim| rim.notifier.inc_epoch().is_ok())
    }

    fn extend(&self, fid: Fid, end: u64, done: Sender<()>) {
        let nodeid = fid.0;
        self.submit(
            page_lane(nodeid),
            Notice::Extend { nodeid, end },
            move |_| {
                done.send(());
            },
        );
    }

    fn after_closes(&self, done: Sender<()>) {
        if let Some(Rim { notifier, .. }) = self.rim() {
            self.reading
                .after(move || notifier.after_requests(|| drop(done)));
        }
    }

    fn is_appending(&self, fid: Fid) -> bool {
        self.appending.is_under_way(fid)
    }

    fn let_go(&self, files: Vec<Fid>) {
        let Some(Rim {
            queue, notifier, ..
        }) = self.rim()
        else {
            return;
        };
        if !notifier.granted().prunes() {
            return;
        }
        let nodes: Vec<u64> = files.iter().flat_map(|fid| self.nodes.of(*fid)).collect();
        for nodes in nodes.chunks(PRUNE_MAX) {
            let nodeids = nodes.into();
            // What the queue does not take is asked for again.
            let _ = queue.submit(PRUNE_LANE, Notice::Prune { nodeids }, |_| {});
        }
    }
}

/// A withdrawal of attributes that waits. The kernel hears of it when this is dropped.
struct Withdrawal {
    gate: Weak<Gate>,
    /// The file, a directory that it is in, and the waiter.
    about: Option<(Fid, Fid, Sender<()>)>,
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        if let (Some(gate), Some((fid, dir, done))) = (self.gate.upgrade(), self.about.take()) {
            gate.withdraw_attributes(fid, dir, done);
        }
    }
}

/// Waits until these have digested their answers, if they do so soon.
fn digested_soon(late: &[Late]) {
    let until = Instant::now() + DIGESTION_MAX;
    for late in late {
        late.digested_within(until.saturating_duration_since(Instant::now()));
    }
}

/// Waits on a thread of its own for answers to be digested. Without a thread, what `digest` holds is dropped.
fn spawn_digesting(digest: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().name("fuse-late".into());
    if let Err(error) = thread.spawn(digest) {
        error!(%error, "no thread to wait for an answer to be digested");
    }
}

/// Names of one directory go one after the other: they wait for the same lock.
fn name_lane(parent: u64) -> Lane {
    Lane(parent.rotate_left(1))
}

/// One after the other, so that other notices have a sender. No directory has it, and no file.
const PRUNE_LANE: Lane = Lane(u64::MAX);

fn page_lane(node: u64) -> Lane {
    Lane(node.rotate_left(1) | 1)
}
