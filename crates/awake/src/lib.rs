//! Waiting awake for what comes at once, and CPUs that stay awake meanwhile.
//!
//! A small request that is answered from memory costs less than waking the thread that answers it
//! and the thread that asked. [`Wakefulness`] tells when the next one is expected at once;
//! [`keep_cpus`] keeps the CPUs of a virtual machine from giving themselves up between them
//! (docs/adr/0005-one-reader-on-watch.md).

mod cpus;
mod wakefulness;

pub use cpus::keep_cpus;
pub use wakefulness::Wakefulness;
