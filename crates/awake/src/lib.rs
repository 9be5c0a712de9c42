//! Waiting awake for a request that is expected at once, where waking a thread costs more than the answer.
//! [`Wakefulness`] says when; [`keep_cpus`] keeps the CPUs of a virtual machine awake meanwhile
//! (docs/adr/0005-one-reader-on-watch.md).

mod cpus;
mod wakefulness;

pub use cpus::keep_cpus;
pub use wakefulness::Wakefulness;
