//! A file system to be measured, as workloads see it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::error::Result;
use crate::process::ProcessId;
use crate::report::Statahead;

/// What [`System::make_cold`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cold {
    /// Nothing is cached at the client any more.
    Done,
    /// It cannot be done, for this reason; cold steps are not run.
    Impossible(String),
}

/// A file system to be measured. Another process must serve it: workloads open and list files below the
/// measured directory from the measuring process only in [`flat()`](super::flat()).
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

    /// The process of the client, if it has one.
    fn client_process(&mut self) -> Option<ProcessId> {
        None
    }

    /// The process of the servers, if there is one of them.
    fn server_process(&mut self) -> Option<ProcessId> {
        None
    }

    /// What the client has fetched ahead so far, if it counts that.
    fn statahead(&mut self) -> Option<Statahead> {
        None
    }

    /// Its tunables, if it has any.
    fn tunable(&mut self) -> Option<&mut dyn Tunable> {
        None
    }

    /// A local directory with the same files as [`root`](Self::root), if there is one. When
    /// unpacking a tree takes too long, the rest is put there, so that the other steps have the
    /// whole tree.
    fn back_door(&self) -> Option<PathBuf> {
        None
    }

    /// Whether all its files go with it, so that a workload need not remove its own at the end.
    fn is_throwaway(&self) -> bool {
        false
    }
}

/// A tunable's name and value.
pub type Setting = (&'static str, u64);

/// A system whose prefetch and whose way to its server can be changed while it is measured.
pub trait Tunable {
    /// Sets tunables at once, and again after each cold start. Those that were set by an earlier call
    /// and are not named get their defaults back.
    fn tune(&mut self, settings: &[Setting]) -> Result<()>;

    /// The round trip between client and server, at the latest from the next cold start on.
    fn set_round_trip(&mut self, rtt: Duration) -> Result<()>;

    /// Where a second client of the same files is mounted, near the server. It is there until the
    /// next cold start.
    fn beside(&mut self) -> Result<PathBuf>;

    /// Where that many clients of the same files are mounted, as far from the server as this one. It is the
    /// first; the others are there until the next cold start.
    fn mounts(&mut self, count: usize) -> Result<Vec<PathBuf>>;
}
