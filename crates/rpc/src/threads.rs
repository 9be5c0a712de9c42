//! Threads with a name and an owner, and locks that outlive a panic elsewhere.

use ::threads::JoinHandle;
use ::threads::{Condvar, Mutex, MutexGuard};
use std::cell::Cell;
use std::io;
use std::sync::PoisonError;
use std::time::Instant;

/// Locks `mutex`. A thread that panicked while holding it left data that is still consistent:
/// every critical section here makes its changes in one go.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a change.
pub(crate) fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a change, at most until `deadline`.
pub(crate) fn wait_until<'a, T>(
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    deadline: Option<Instant>,
) -> MutexGuard<'a, T> {
    let Some(deadline) = deadline else {
        return wait(changed, guard);
    };
    let left = deadline.saturating_duration_since(::threads::now());
    let waited = changed.wait_timeout(guard, left);
    waited.unwrap_or_else(PoisonError::into_inner).0
}

::threads::local! {
    static OURS: Cell<bool> = const { Cell::new(false) };
}

/// Starts a thread of this crate.
pub(crate) fn spawn(
    name: impl Into<String>,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    ::threads::Builder::new().name(name.into()).spawn(move || {
        OURS.set(true);
        run();
    })
}

/// Does what a thread of this crate would do.
pub(crate) fn as_ours<R>(run: impl FnOnce() -> R) -> R {
    let before = OURS.replace(true);
    let result = run();
    OURS.set(before);
    result
}

/// The caller runs on one of this crate's threads: it must not wait for another of them.
pub(crate) fn on_ours() -> bool {
    OURS.get()
}

/// Waits for a thread to end. Its panic, if any, was reported when it happened.
pub(crate) fn join(thread: JoinHandle<()>) {
    if thread.thread().id() != ::threads::current().id() {
        let _ = thread.join();
    }
}
