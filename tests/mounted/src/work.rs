//! What a test does beside itself, on mounts whose processes die.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use nix::sched::{CloneFlags, unshare};

/// Works until it is enough; what it says then. Its open files are its own: a process that is started
/// meanwhile inherits none, whose closing would wait for the mount, and the mount perhaps for it.
pub struct Work<T> {
    enough: Arc<AtomicBool>,
    thread: JoinHandle<T>,
}

impl<T: Send + 'static> Work<T> {
    /// Begins `work`, which asks now and then whether it goes on.
    pub fn start(work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static) -> Work<T> {
        let enough = Arc::new(AtomicBool::new(false));
        let flag = enough.clone();
        let thread = thread::spawn(move || {
            unshare(CloneFlags::CLONE_FILES).expect("a thread can have a table of its own");
            work(&|| !flag.load(Ordering::SeqCst))
        });
        Work { enough, thread }
    }

    /// It has said what it says, or failed.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// It is enough from now on.
    pub fn is_enough(&self) {
        self.enough.store(true, Ordering::SeqCst);
    }

    /// Ends it. Panics if it has failed.
    pub fn end(self) -> T {
        self.is_enough();
        match self.thread.join() {
            Ok(said) => said,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
