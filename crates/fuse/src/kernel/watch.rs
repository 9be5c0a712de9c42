//! One reader at a time waits for the kernel's next request, awake for a moment where it is expected at once.
//! The others sleep outside the kernel's queue (docs/adr/0005-one-reader-on-watch.md).

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use awake::Wakefulness;

/// The right to wait for the next request, and what is known of how they come.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// How requests come.
    pub wakefulness: Wakefulness,
    /// The thread that has the watch attends to what else comes ([`super::Handler::attend`]).
    pub attending: bool,
    /// Requests in a row that had not to be waited for.
    behind: u8,
}

/// Requests in a row that came while the one before was served, before a second reader is woken.
/// What comes beside a single one is mostly something small, such as a `FORGET`.
const BEHIND: u8 = 2;

impl Watch {
    /// A request came, so long after it was first looked for, and had to be waited for or not.
    pub fn came(&mut self, after: Duration, waited: bool) {
        self.wakefulness.came_after(after);
        self.behind = match waited {
            true => 0,
            false => (self.behind + 1).min(BEHIND),
        };
    }

    /// Whether there is more to do than one reader can.
    pub fn falls_behind(&self) -> bool {
        self.behind == BEHIND
    }
}

/// Where the one [`Watch`] of a session lies while no reader has it.
#[derive(Debug)]
pub(super) struct WatchPost {
    post: Mutex<Post>,
    free: Condvar,
}

#[derive(Debug)]
struct Post {
    watch: Option<Watch>,
    /// Readers that want it.
    waiting: usize,
}

impl Default for WatchPost {
    fn default() -> WatchPost {
        let post = Post {
            watch: Some(Watch::default()),
            waiting: 0,
        };
        WatchPost {
            post: Mutex::new(post),
            free: Condvar::new(),
        }
    }
}

impl WatchPost {
    /// Waits until nobody is on watch, and takes it.
    pub fn take(&self) -> Watch {
        let mut post = self.lock();
        post.waiting += 1;
        loop {
            if let Some(watch) = post.watch.take() {
                post.waiting -= 1;
                return watch;
            }
            post = self.free.wait(post).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Leaves the watch to another reader. `sleep` is called first if none is there to take it.
    pub fn leave(&self, mut watch: Watch, sleep: impl FnOnce()) {
        let mut post = self.lock();
        if post.waiting == 0 && std::mem::take(&mut watch.attending) {
            sleep();
        }
        post.watch = Some(watch);
        drop(post);
        self.free.notify_one();
    }

    /// The value changes in one step.
    fn lock(&self) -> MutexGuard<'_, Post> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_reader_is_woken_where_requests_pile_up() {
        let mut watch = Watch::default();
        let mut falls_behind = |waited| {
            watch.came(Duration::ZERO, waited);
            watch.falls_behind()
        };
        assert!(!falls_behind(false));
        assert!(!falls_behind(true));
        assert!(!falls_behind(false));
        assert!(falls_behind(false) && falls_behind(false));
        assert!(!falls_behind(true));
    }

    #[test]
    fn one_is_on_watch_at_a_time() {
        let post = WatchPost::default();
        let on_watch = Mutex::new(());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let watch = post.take();
                        drop(on_watch.try_lock().expect("another is on watch"));
                        post.leave(watch, || {});
                    }
                });
            }
        });
    }
}
