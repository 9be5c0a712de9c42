//! Runs of different seeds share nothing, so each processor may have one.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Calls `work` with each of `items`, on all processors beside each other. The next item is taken when a
/// processor is free for it. A panic of `work` is a panic of the caller.
pub fn on_every_one<T, I>(items: I, work: impl Fn(T) + Sync)
where
    T: Send,
    I: IntoIterator<Item = T>,
    I::IntoIter: Send,
{
    let items = Mutex::new(items.into_iter());
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    let (next, work) = (&next, &work);
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(move || {
                while let Some(item) = next() {
                    work(item);
                }
            });
        }
    });
}
