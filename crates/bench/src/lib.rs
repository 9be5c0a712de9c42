//! The tools of `glint bench`: an emulated link, source trees, workloads, file systems to compare with,
//! tables. A file system is measured through [`workload::System`]. Invariant: each namespace, device, mount,
//! process and file has an owner that removes it when dropped, also after a signal ([`StopFlag`]).

pub mod aging;
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
    Bitmap, Bound, Column, Document, Figures, Line, Report, Sample, Section, Statahead, Verdict,
};
pub use scratch::remove_left_behind;
pub use tree::SourceTree;
pub use workload::{
    Cold, FlatConfig, Setting, Step, StreamConfig, System, Tunable, WalkConfig, flat, stream,
    upcalls, walk,
};
