//! What a simulation does for its threads, and how a thread knows that it belongs to one.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// Somebody woke it.
    Called,
    /// Its time had come.
    InTime,
}

/// A scheduler of threads of which one runs at a time. Keys are addresses: they say only who
/// wakes whom, and must decide nothing else.
pub trait Simulation: Send + Sync {
    /// Its time.
    fn now(&self) -> Instant;
    /// Another thread may go on here.
    fn point(&self);
    /// Blocks this thread until somebody wakes `key`, or until then.
    fn wait(&self, key: usize, until: Option<Instant>) -> Woken;
    /// Lets those who wait for `key` go on: the first of them, or all.
    fn wake(&self, key: usize, all: bool);
    /// Starts a thread of the simulation, and says its number.
    fn spawn(self: Arc<Self>, name: Option<String>, body: Body) -> io::Result<u64>;
    /// The number of this thread.
    fn current(&self) -> u64;
}

/// What a thread does, the simulation's own part included.
pub(crate) type Body = Box<dyn FnOnce() + Send>;

thread_local! {
    // Two, so that the question that every lock asks needs no destructor and no reference count.
    pub(crate) static IS_SIMULATED: Cell<bool> = const { Cell::new(false) };
    pub(crate) static SIMULATION: RefCell<Option<Arc<dyn Simulation>>> = const { RefCell::new(None) };
}

/// Whether this thread belongs to a simulation.
#[inline]
pub fn is_simulated() -> bool {
    IS_SIMULATED.get()
}

/// The simulation that this thread belongs to.
#[cold]
pub(crate) fn simulation() -> Option<Arc<dyn Simulation>> {
    SIMULATION.with_borrow(Clone::clone)
}

/// The same, where it is asked for at all.
#[inline]
pub(crate) fn simulated() -> Option<Arc<dyn Simulation>> {
    match is_simulated() {
        true => simulation(),
        false => None,
    }
}

/// Runs `body` as part of `simulation`, which must already count this thread among its own.
pub fn enter<R>(simulation: Arc<dyn Simulation>, body: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            IS_SIMULATED.set(false);
            SIMULATION.set(None);
        }
    }
    SIMULATION.set(Some(simulation));
    IS_SIMULATED.set(true);
    let _leave = Leave;
    body()
}

/// The address of `of`, as a key.
pub(crate) fn key<T: ?Sized>(of: &T) -> usize {
    std::ptr::from_ref(of).cast::<()>() as usize
}
