//! Whether what is mounted at a directory still answers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::error::MountError;
use super::table;

/// What stands at a mount point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountState {
    /// No FUSE mount.
    NotFuse,
    /// A FUSE mount whose server answers.
    Alive,
    /// A FUSE mount whose server is gone: "Transport endpoint is not connected".
    Dead,
    /// A FUSE mount whose server did not answer in time.
    Silent,
}

/// Looks at what is mounted exactly at `point`, which must be resolved. Asks the server, if there
/// is one, from a thread of its own, and gives up on it after `patience`.
pub fn state(point: &Path, patience: Duration) -> Result<MountState, MountError> {
    let failed = |error| MountError::Io {
        what: "probe",
        path: point.into(),
        error,
    };
    let mounts = table::mounts().map_err(failed)?;
    if !table::at(&mounts, point).is_some_and(table::MountEntry::is_fuse) {
        return Ok(MountState::NotFuse);
    }
    let (answer, answered) = mpsc::channel();
    let path = PathBuf::from(point);
    thread::Builder::new()
        .name("mount-probe".into())
        .spawn(move || answer.send(probe(&path)))
        .map_err(failed)?;
    Ok(answered
        .recv_timeout(patience)
        .unwrap_or(MountState::Silent))
}

/// statfs always goes to the server. Any answer but "not connected", a refusal too, is life.
fn probe(point: &Path) -> MountState {
    let Err(errno) = nix::sys::statfs::statfs(point) else {
        return MountState::Alive;
    };
    match io::Error::from(errno).raw_os_error() {
        Some(libc::ENOTCONN | libc::ECONNABORTED) => MountState::Dead,
        _ => MountState::Alive,
    }
}
