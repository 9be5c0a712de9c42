//! Tells the kernel what to forget.
//!
//! A [`Notifier`] makes one blocking call; a [`NotifyQueue`] has threads that make them.

mod lanes;
mod notifier;
mod queue;

pub use lanes::{Lane, LateNotice, QueueFull};
pub use notifier::{Notice, NoticeOutcome, Notifier, NotifyError, Pages};
pub use queue::{NoticePort, NotifyQueue, NotifyQueueConfig, SENDER};
