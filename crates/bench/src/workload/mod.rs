//! Workloads: real programs on a file system, timed and counted.
//!
//! The measuring process opens and lists files below the measured directory itself only in
//! [`flat()`], so a file system must be served by another process.

pub mod flat;
mod measured;
pub mod stream;
pub mod upcall;
pub mod walk;

use std::path::{Path, PathBuf};
use std::process::Command;

pub use flat::{FlatConfig, flat};
pub use stream::{StreamConfig, stream};
pub use upcall::upcalls;
pub use walk::{Step, WalkConfig, walk};

use crate::error::Result;

/// What [`System::make_cold`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cold {
    /// Nothing is cached at the client any more.
    Done,
    /// It cannot be done, for this reason; cold steps are not run.
    Impossible(String),
}

/// A file system to be measured.
pub trait System {
    /// Its name in the report.
    fn name(&self) -> &str;

    /// An existing directory of it to work in.
    fn root(&self) -> &Path;

    /// Empties the client's caches: unmounts and mounts again.
    fn make_cold(&mut self) -> Result<Cold>;

    /// A command that returns when everything written below [`root`](Self::root) is durable.
    fn sync_command(&self) -> Command {
        let mut command = Command::new("sync");
        command.arg("--file-system").arg(self.root());
        command
    }

    /// Requests that the client has sent so far, if it counts them.
    fn rpcs_sent(&mut self) -> Option<u64> {
        None
    }

    /// Bytes of memory that the process of the client has now, if it has a process.
    fn client_memory(&mut self) -> Option<u64> {
        None
    }

    /// A local directory with the same files as [`root`](Self::root), if there is one: when unpacking
    /// a tree takes too long, the rest is put there, so that the other steps have the whole tree.
    fn back_door(&self) -> Option<PathBuf> {
        None
    }

    /// Whether all its files go with it, so that a workload need not remove its own at the end.
    fn is_throwaway(&self) -> bool {
        false
    }
}
