//! Where a simulation runs: its threads take turns, so a second processor only makes each turn begin
//! later. Runs of different seeds share nothing, so each processor may have one.

#![allow(unsafe_code)]

use std::sync::{Mutex, PoisonError};
use std::thread;

/// Threads that the caller starts stay on the processor where the caller is now, and a thread that
/// wakes another goes on until it waits. Otherwise each turn begins twice. A refusal costs time,
/// nothing else.
pub fn stay_on_one() {
    // SAFETY: the call has no arguments and touches no memory.
    if let Ok(here) = usize::try_from(unsafe { libc::sched_getcpu() }) {
        stay_on(here);
    }
}

/// Calls `work` with each of `items`, on all processors beside each other; what one call starts stays
/// on one processor. The next item is taken when a processor is free for it. A panic of `work` is a
/// panic of the caller.
pub fn on_every_one<T, I>(items: I, work: impl Fn(T) + Sync)
where
    T: Send,
    I: IntoIterator<Item = T>,
    I::IntoIter: Send,
{
    let items = Mutex::new(items.into_iter());
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    let (next, work) = (&next, &work);
    thread::scope(|scope| {
        for processor in allowed() {
            scope.spawn(move || {
                stay_on(processor);
                while let Some(item) = next() {
                    work(item);
                }
            });
        }
    });
}

/// The processors that this thread may run on.
fn allowed() -> Vec<usize> {
    // SAFETY: `set` is plain memory for which zeros are a value; its size is given.
    let (set, failed) = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let failed = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        (set, failed)
    };
    assert_eq!(failed, 0, "the processors of this thread are not known");
    let all = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: `set` is as large as the C library says.
    all.filter(|processor| unsafe { libc::CPU_ISSET(*processor, &set) })
        .collect()
}

fn stay_on(processor: usize) {
    // SAFETY: `set` and `no_priority` are plain memory for which zeros are a value; the size of the one
    // is given.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        let no_priority: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &no_priority);
    }
}
