//! What `glint bench` measures with: an emulated link, source trees, workloads of real programs, the
//! file systems to compare with, and the table that shows it all.
//!
//! Knows nothing of Glint's client: a file system is measured through [`workload::System`].
//!
//! Invariant: whatever is created here (namespaces, devices, mounts, processes, files) is owned by a
//! value that removes it when dropped. A caller that catches signals sets the [`StopFlag`], lets the
//! running call return [`BenchError::Interrupted`], and drops its values.

pub mod caches;
pub mod error;
pub mod interrupt;
mod leftovers;
pub mod link;
pub mod local;
mod loop_device;
mod mount_point;
pub mod peer;
mod pidfd;
pub mod process;
pub mod progress;
pub mod report;
mod scratch;
pub mod tree;
pub mod workload;

pub use error::{BenchError, Result};
pub use interrupt::StopFlag;
pub use link::{Link, LinkConfig, LinkSettings, Namespace};
pub use progress::{Event, Progress};
pub use report::{
    Bound, Column, Document, Figures, Line, Report, Sample, Section, Statahead, Verdict,
};
pub use scratch::remove_left_behind;
pub use tree::SourceTree;
pub use workload::{
    Cold, FlatConfig, Setting, Step, StreamConfig, System, Tunable, WalkConfig, flat, stream,
    upcalls, walk,
};
