//! The seam between the rims and the machine: locks, waits, threads, sleep and time.
//!
//! What is here looks and behaves as its namesake in `std`, to which it comes down at the cost of
//! one look at a flag of the thread. On a thread that belongs to a [`Simulation`] the same calls go
//! there instead: of a simulation's threads one runs at a time, it says which, and its time passes
//! only while all of them wait. So code with threads runs under it unchanged, and the same way each
//! time. What a simulation runs takes all of this from here and none of it from `std`
//! (docs/adr/0012-simulated-cluster.md).

mod channel;
mod condvar;
mod mutex;
mod rwlock;
mod simulation;
mod thread;

/// A thread is asked about itself: a simulation has no say in it.
pub use std::thread::panicking;

pub use channel::{Receiver, Sender, channel};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use mutex::{Mutex, MutexGuard};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use simulation::{Simulation, Woken, enter, is_simulated};
pub use thread::{
    Builder, JoinHandle, Thread, ThreadId, current, now, park, sleep, spawn, yield_now,
};
