//! The thread that drains the overlay: when to flush is decided here, how in `store`.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use threads::MutexGuard;
use threads::{Builder, JoinHandle};

use super::options::Commit;
use super::store::{Progress, Shared};
use crate::error::{Result, StorageError};

/// How soon a quicker pace is followed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Starts the thread, if there is to be one.
pub(super) fn start(shared: &Arc<Shared>) -> Result<Option<JoinHandle<()>>> {
    if shared.commit_mode() != Commit::Thread {
        return Ok(None);
    }
    let name = shared.name();
    let thread = Builder::new().name(format!("commit {name}"));
    let for_thread = shared.clone();
    let started = thread.spawn(move || run(&for_thread));
    started
        .map(Some)
        .map_err(|e| StorageError::from_io(name, "start its committer thread", &e))
}

fn run(shared: &Shared) {
    // A failed flush has stopped the store: there is nothing more to do.
    while wait_for_work(shared) && shared.flush_once().is_ok() {}
}

/// Returns when a flush is due; `false` when the store is let go of.
fn wait_for_work(shared: &Shared) -> bool {
    let mut progress = shared.progress();
    loop {
        if progress.stop {
            return false;
        }
        let is_wanted = progress.wanted > shared.durable().0;
        if is_wanted || shared.is_filling_up(shared.overlay_bytes()) {
            break;
        }
        match progress
            .dirty_since
            .map(|since| since + shared.pace().interval())
        {
            Some(due) if due <= threads::now() => break,
            due => progress = wait_until(shared, progress, due),
        }
    }
    // Before the flush freezes what it takes: a batch that comes later sets it anew.
    progress.dirty_since = None;
    true
}

fn wait_until<'a>(
    shared: &'a Shared,
    progress: MutexGuard<'a, Progress>,
    due: Option<Instant>,
) -> MutexGuard<'a, Progress> {
    let Some(due) = due else {
        let woken = shared.wake.wait(progress);
        return woken.unwrap_or_else(PoisonError::into_inner);
    };
    // The pace may be changed meanwhile.
    let left = due
        .saturating_duration_since(threads::now())
        .min(LOOK_INTERVAL);
    let woken = shared.wake.wait_timeout(progress, left);
    woken.unwrap_or_else(PoisonError::into_inner).0
}
