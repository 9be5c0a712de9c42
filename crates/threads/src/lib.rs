//! The seam between the rims and the machine: locks, waits, threads, sleep and time, as in `std`. On a thread
//! of a [`Simulation`] the same calls go there: one of its threads runs at a time, and its time passes only
//! while all of them wait (docs/adr/0012-simulated-cluster.md).

mod channel;
mod condvar;
pub mod local;
mod mutex;
mod rwlock;
mod simulation;
mod thread;

/// A thread is asked about itself: a simulation has no say in it.
pub use std::thread::panicking;

pub use channel::{Receiver, Sender, channel};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use local::{LocalKey, Locals};
pub use mutex::{Mutex, MutexGuard};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use simulation::{Simulation, Woken, enter, is_simulated};
pub use thread::{
    Builder, JoinHandle, Thread, ThreadId, current, now, park, sleep, spawn, yield_now,
};
