//! Threads that send queued notices, in order per lane, and a watch on those that take long.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use base::{Clock, SystemClock};
use tracing::error;

use super::lanes::{Lane, LaneTable, LateNotice, QueueFull};
use super::notifier::{Notice, NoticeOutcome, Notifier, NotifyError};
use crate::kernel::flusher::become_io_flusher;

/// Who sends a notice: the kernel's [`Notifier`], or a fake.
pub trait NoticePort: Send + Sync {
    /// Sends it and waits until the kernel has done it.
    fn send(&self, notice: &Notice) -> Result<NoticeOutcome, NotifyError>;
}

impl NoticePort for Notifier {
    fn send(&self, notice: &Notice) -> Result<NoticeOutcome, NotifyError> {
        Notifier::send(self, notice)
    }
}

/// Bounds of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotifyQueueConfig {
    /// Threads at most. They are started as blocked ones leave none free.
    pub threads_max: usize,
    /// Notices not yet done at most; beyond, more are refused.
    pub capacity: usize,
    /// After how long, counted from its submission, a notice is reported as late.
    pub deadline: Duration,
}

impl Default for NotifyQueueConfig {
    fn default() -> NotifyQueueConfig {
        NotifyQueueConfig {
            threads_max: 16,
            capacity: 1 << 16,
            deadline: Duration::from_secs(1),
        }
    }
}

/// How the threads are called, before a number, that wait until the kernel has forgotten. They do
/// nothing else, which a supervisor relies on: see docs/adr/0011-supervisor.md.
pub const SENDER: &str = "fuse-notify";

/// How long ready work waits for a sender before another one is started.
const STALL: Duration = Duration::from_millis(2);

type Completion = Box<dyn FnOnce(Result<NoticeOutcome, NotifyError>) + Send>;
type LateHook = Box<dyn Fn(&LateNotice) + Send + Sync>;

struct Job {
    notice: Notice,
    done: Completion,
}

struct State {
    table: LaneTable<Job>,
    threads: Vec<JoinHandle<()>>,
    /// Senders without work.
    idle: usize,
    /// Jobs taken so far.
    taken: u64,
    /// The watch looks again soon whether ready work is taken.
    stall_watched: bool,
    closed: bool,
}

struct Shared {
    state: Mutex<State>,
    /// Work is ready, or the queue closes.
    work: Condvar,
    /// The earliest deadline may have changed, or the queue closes.
    watch: Condvar,
    port: Arc<dyn NoticePort>,
    clock: SystemClock,
    config: NotifyQueueConfig,
    on_late: LateHook,
}

/// Sends notices from threads of its own.
///
/// Dropping it fails what has not been sent with [`NotifyError::Gone`] and waits for what is
/// being sent. That may be held up by a process inside the mount, so unmount first.
pub struct NotifyQueue {
    shared: Arc<Shared>,
}

impl fmt::Debug for NotifyQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotifyQueue")
            .field("pending", &self.len())
            .finish_non_exhaustive()
    }
}

impl NotifyQueue {
    /// Starts one sender and the watch. The watch's thread calls `on_late` once for each notice that misses
    /// its deadline; the callback must not wait for that notice.
    pub fn start(
        port: Arc<dyn NoticePort>,
        config: NotifyQueueConfig,
        on_late: impl Fn(&LateNotice) + Send + Sync + 'static,
    ) -> io::Result<NotifyQueue> {
        let state = State {
            table: LaneTable::new(config.capacity),
            threads: Vec::new(),
            idle: 0,
            taken: 0,
            stall_watched: false,
            closed: false,
        };
        let queue = NotifyQueue {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                work: Condvar::new(),
                watch: Condvar::new(),
                port,
                clock: SystemClock::default(),
                config,
                on_late: Box::new(on_late),
            }),
        };
        let mut state = queue.shared.lock();
        state
            .threads
            .push(spawn("fuse-watch".into(), queue.shared.clone(), |s| {
                s.watch()
            })?);
        queue.shared.start_sender(&mut state)?;
        drop(state);
        Ok(queue)
    }

    /// Queues a notice behind those of its lane. `done` is called from a sender's thread, before
    /// the lane's next notice is sent.
    pub fn submit(
        &self,
        lane: Lane,
        notice: Notice,
        done: impl FnOnce(Result<NoticeOutcome, NotifyError>) + Send + 'static,
    ) -> Result<u64, QueueFull> {
        let shared = &self.shared;
        let mut state = shared.lock();
        let first = state.table.next_deadline(shared.config.deadline).is_none();
        let job = Job {
            notice,
            done: Box::new(done),
        };
        let ticket = state.table.submit(shared.clock.tick(), lane, job)?;
        if first {
            shared.watch.notify_one();
        }
        shared.wake_sender(&state);
        Ok(ticket)
    }

    /// Notices not yet done.
    pub fn len(&self) -> usize {
        self.shared.lock().table.len()
    }

    /// Nothing waits and nothing is being sent.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for NotifyQueue {
    fn drop(&mut self) {
        let (jobs, threads) = {
            let mut state = self.shared.lock();
            state.closed = true;
            (state.table.drain(), std::mem::take(&mut state.threads))
        };
        self.shared.work.notify_all();
        self.shared.watch.notify_all();
        for job in jobs {
            (job.done)(Err(NotifyError::Gone));
        }
        for thread in threads {
            // A completion may hold the last handle of the queue: a thread cannot wait for itself.
            if thread.thread().id() != thread::current().id() && thread.join().is_err() {
                error!("a thread of the notify queue panicked");
            }
        }
    }
}

fn spawn(
    name: String,
    shared: Arc<Shared>,
    run: impl FnOnce(&Arc<Shared>) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(move || {
        become_io_flusher();
        run(&shared);
    })
}

impl Shared {
    /// The state stays sound at every point where a holder could panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_sender(self: &Arc<Shared>, state: &mut State) -> io::Result<()> {
        let name = format!("{SENDER}-{}", state.threads.len());
        state
            .threads
            .push(spawn(name, self.clone(), |shared| shared.send_all())?);
        Ok(())
    }

    /// Sees to it that ready work finds a thread. An idle one, or one that comes free, or, where
    /// all stay blocked in the kernel, a new one that the watch starts.
    fn wake_sender(&self, state: &State) {
        if !state.table.has_ready() {
            return;
        }
        if state.idle > 0 {
            self.work.notify_one();
        } else if !state.stall_watched {
            self.watch.notify_one();
        }
    }

    fn send_all(&self) {
        let mut state = self.lock();
        while !state.closed {
            let Some((ticket, job)) = state.table.take() else {
                state.idle += 1;
                state = self
                    .work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                continue;
            };
            state.taken += 1;
            self.wake_sender(&state);
            drop(state);
            self.run(job);
            state = self.lock();
            state.table.finish(ticket);
        }
    }

    fn run(&self, job: Job) {
        let Job { notice, done } = job;
        let outcome = self.port.send(&notice);
        if catch_unwind(AssertUnwindSafe(|| done(outcome))).is_err() {
            error!(?notice, "the completion of a notice panicked");
        }
    }

    /// Reports late notices, and starts a sender where none takes ready work for [`STALL`].
    fn watch(self: &Arc<Shared>) {
        let mut state = self.lock();
        let mut taken = None;
        while !state.closed {
            let late = state.table.overdue(self.clock.tick(), self.config.deadline);
            if !late.is_empty() {
                drop(state);
                late.iter().for_each(|job| (self.on_late)(job));
                state = self.lock();
                continue;
            }
            let starved = state.table.has_ready() && state.idle == 0;
            if starved && taken == Some(state.taken) {
                self.start_another_sender(&mut state);
            }
            state.stall_watched = starved;
            taken = starved.then_some(state.taken);
            state = self.wait_for_watch(state);
            state.stall_watched = false;
        }
    }

    fn start_another_sender(self: &Arc<Shared>, state: &mut State) {
        // The watch is one of the threads.
        if state.threads.len() <= self.config.threads_max
            && let Err(error) = self.start_sender(state)
        {
            error!(%error, "no thread for a notice; it waits for one of the others");
        }
    }

    fn wait_for_watch<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let stall = state.stall_watched.then_some(STALL);
        let deadline = state.table.next_deadline(self.config.deadline);
        let deadline = deadline.map(|at| at.since(self.clock.tick()));
        match [stall, deadline].into_iter().flatten().min() {
            None => self
                .watch
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner),
            Some(wait) => {
                let woken = self.watch.wait_timeout(state, wait);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
