//! Requests that wait for a server, and what interrupts do to them. A killed caller gets its
//! answer at once. Any other signal may be of no concern, so the call goes on for a second before the caller
//! gets EINTR; what it does later is undone or harmless.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::caller;
use crate::kernel::{Errno, Heard, Replier};

/// How long a call goes on after a signal that does not kill.
const GRACE: Duration = Duration::from_secs(1);

/// The promise to answer, until somebody keeps it.
pub(super) type Promise = Arc<Mutex<Option<Replier>>>;

#[derive(Default)]
struct State {
    waiting: HashMap<u64, (u32, Promise)>,
    /// When to answer EINTR.
    due: BTreeMap<(Instant, u64), ()>,
    closed: bool,
}

/// All requests that wait.
pub(super) struct Parked {
    shared: Arc<(Mutex<State>, Condvar)>,
    watch: Mutex<Option<JoinHandle<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the promise, if nobody has kept it.
pub(super) fn take(promise: &Promise) -> Option<Replier> {
    lock(promise).take()
}

impl Parked {
    pub fn start() -> std::io::Result<Parked> {
        let shared: Arc<(Mutex<State>, Condvar)> = Arc::default();
        let work = shared.clone();
        let thread = std::thread::Builder::new().name("fuse-interrupt".to_owned());
        let watch = thread.spawn(move || watch(&work))?;
        Ok(Parked {
            shared,
            watch: Mutex::new(Some(watch)),
        })
    }

    /// The request `unique` of `thread` was begun and is not answered yet, unless it is.
    pub fn add(&self, unique: u64, thread: u32, promise: &Promise) {
        let mut state = lock(&self.shared.0);
        if lock(promise).is_some() {
            state.waiting.insert(unique, (thread, promise.clone()));
        }
    }

    /// The request is answered.
    pub fn remove(&self, unique: u64) {
        lock(&self.shared.0).waiting.remove(&unique);
    }

    /// The request `unique` was added before it was begun, and begins now. None: an interrupt has
    /// answered it.
    pub fn begin(&self, unique: u64) -> Option<Replier> {
        let held = lock(&self.shared.0).waiting.remove(&unique)?;
        take(&held.1)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        lock(&self.shared.0).waiting.len()
    }

    /// The caller has a signal.
    pub fn interrupt(&self, unique: u64) -> Heard {
        let mut state = lock(&self.shared.0);
        let Some((thread, promise)) = state.waiting.get(&unique).cloned() else {
            return Heard::Unknown;
        };
        if caller::is_dying(thread) {
            state.waiting.remove(&unique);
            drop(state);
            answer(&promise);
            return Heard::Noted;
        }
        state.due.insert((Instant::now() + GRACE, unique), ());
        self.shared.1.notify_all();
        Heard::Noted
    }

    /// Answers everything that still waits, and ends.
    pub fn close(&self) {
        let left: Vec<Promise> = {
            let mut state = lock(&self.shared.0);
            state.closed = true;
            state
                .waiting
                .drain()
                .map(|(_, (_, promise))| promise)
                .collect()
        };
        self.shared.1.notify_all();
        left.iter().for_each(answer);
        if let Some(watch) = lock(&self.watch).take() {
            // A watch that panicked has said so already.
            let _ = watch.join();
        }
    }
}

fn answer(promise: &Promise) {
    if let Some(replier) = take(promise) {
        replier.error(Errno::EINTR);
    }
}

fn watch(shared: &(Mutex<State>, Condvar)) {
    let mut state = lock(&shared.0);
    while !state.closed {
        let now = Instant::now();
        let next = state.due.keys().next().copied();
        state = match next {
            Some((at, unique)) if at <= now => {
                state.due.remove(&(at, unique));
                let found = state.waiting.remove(&unique);
                drop(state);
                if let Some((_, promise)) = found {
                    answer(&promise);
                }
                lock(&shared.0)
            }
            Some((at, _)) => {
                let waited = shared.1.wait_timeout(state, at - now);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => shared.1.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
    }
}
