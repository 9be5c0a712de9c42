//! Mounting and unmounting: by the system call as root, else through the setuid helper fusermount3. Nothing
//! here opens or stats anything inside a mount of ours, as a dead or slow one would hold the thread up;
//! mountinfo says what is mounted where.

mod direct;
mod elsewhere;
mod error;
mod fusermount;
mod inside;
mod options;
mod state;
mod table;
mod users;

use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tracing::{debug, warn};

use super::device::Device;

pub use elsewhere::{Elsewhere, elsewhere};
pub use error::MountError;
pub use inside::{is_same_or_below, resolve};
pub use options::{MountOptions, Unmount};
pub use state::{MountState, state};
pub use table::{DeviceNumber, MountEntry, at, mounts};
pub use users::{MountUser, UsedBy, users};

/// How long a mount may be in use by nobody who is to be found, before it is said to be in use.
const LEAVING: Duration = Duration::from_secs(1);
/// The wait between two tries meanwhile.
const AGAIN: Duration = Duration::from_millis(20);
/// What the kernel calls our file systems.
const KIND: &str = "fuse.glint";

/// A mount made by this process. Dropping it takes it off, lazily, if it is still there.
#[derive(Debug)]
pub struct Mount {
    point: PathBuf,
    number: Option<DeviceNumber>,
    /// It is off for good. The kernel gives its number again: what has that later, at this place, may be
    /// another.
    gone: AtomicBool,
}

/// Mounts on `point`, an existing directory. The device goes to [`super::Session::start`], and
/// until that answers every use of the mount waits.
pub fn mount(point: &Path, options: &MountOptions) -> Result<(Mount, Device), MountError> {
    let point = check_point(point)?;
    let device = if nix::unistd::geteuid().is_root() {
        match direct::mount(&point, options) {
            // Root of a container, without the right to mount.
            Err(MountError::NotPermitted { .. }) => fusermount::mount(&point, options)?,
            other => other?,
        }
    } else {
        fusermount::mount(&point, options)?
    };
    let number = number_of(&point);
    debug!(point = %point.display(), ?number, "mounted");
    Ok((Mount::new(point, number), device))
}

/// The same as root, on a `device` that is open already, and stays so with any other process that
/// has it.
pub fn mount_on(
    point: &Path,
    options: &MountOptions,
    device: &Device,
) -> Result<Mount, MountError> {
    let point = check_point(point)?;
    direct::mount_on(&point, options, device)?;
    let number = number_of(&point);
    debug!(point = %point.display(), ?number, "mounted");
    Ok(Mount::new(point, number))
}

/// Changes what the mount on `point` allows to what `options` say: read-only, setuid, devices, exec and
/// access times. The other options say nothing here. Root only.
pub fn remount(point: &Path, options: &MountOptions) -> Result<(), MountError> {
    let point = resolve(point)?;
    match number_of(&point) {
        Some(_) => direct::remount(&point, options),
        None => Err(MountError::NotMounted(point)),
    }
}

/// Takes off whatever FUSE file system is mounted on `point`, alive or dead. How that was done.
pub fn unmount(point: &Path, how: Unmount) -> Result<Unmount, MountError> {
    let point = resolve(point)?;
    let number = number_of(&point).ok_or_else(|| MountError::NotMounted(point.clone()))?;
    take_off(&point, number, how)
}

impl Mount {
    /// The mount on `point`, which another process made and this one goes on serving.
    pub fn adopt(point: &Path) -> Result<Mount, MountError> {
        let point = resolve(point)?;
        let number = number_of(&point);
        Ok(Mount::new(point, number))
    }

    fn new(point: PathBuf, number: Option<DeviceNumber>) -> Mount {
        Mount {
            point,
            number,
            gone: AtomicBool::new(false),
        }
    }

    /// Somebody took it off: its session has ended.
    pub fn note_gone(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    /// Where it is, absolute and without symbolic links.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Its device number, st_dev of everything inside.
    pub fn number(&self) -> Option<DeviceNumber> {
        self.number
    }

    /// Whether it is still mounted here.
    pub fn is_mounted(&self) -> bool {
        let is_gone = self.gone.load(Ordering::SeqCst);
        !is_gone && self.number.is_some() && number_of(&self.point) == self.number
    }

    /// Takes it off.
    pub fn unmount(&self, how: Unmount) -> Result<(), MountError> {
        match self.number {
            Some(number) if self.is_mounted() => {
                take_off(&self.point, number, how)?;
                self.note_gone();
                Ok(())
            }
            _ => Err(MountError::NotMounted(self.point.clone())),
        }
    }

    /// Sets how far the kernel reads ahead, which the handshake can only lower. Root only.
    pub fn set_read_ahead(&self, bytes: u32) -> io::Result<()> {
        self.set_backing("read_ahead_kb", bytes / 1024)
    }

    /// Sets how many bytes of writable mappings may be dirty, or on their way here, at once. Root
    /// only.
    pub fn bound_dirty_pages(&self, bytes: u32) -> io::Result<()> {
        self.set_backing("max_bytes", bytes)
    }

    fn set_backing(&self, name: &str, value: u32) -> io::Result<()> {
        let number = self.number.ok_or(io::ErrorKind::NotFound)?;
        let (major, minor) = (number.major, number.minor);
        let path = format!("/sys/class/bdi/{major}:{minor}/{name}");
        std::fs::write(path, value.to_string())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.is_mounted()
            && let Err(error) = self.unmount(Unmount::Lazy)
        {
            warn!(%error, "the mount stays behind");
        }
    }
}

/// How long a probe of something already mounted may take.
const PROBE: Duration = Duration::from_secs(2);

/// Resolves the mount point and refuses what cannot be one, or already is one. A dead mount of our
/// own, which nobody can use, is taken off.
pub fn check_point(point: &Path) -> Result<PathBuf, MountError> {
    let point = resolve(point)?;
    match state(&point, PROBE) {
        Ok(MountState::Dead) => take_off_dead(&point)?,
        Ok(MountState::Silent) => return Err(MountError::Silent(point)),
        Ok(MountState::Alive) => return Err(MountError::AlreadyMounted(point)),
        Ok(MountState::NotFuse) | Err(_) => {}
    }
    match std::fs::metadata(&point) {
        Ok(metadata) if metadata.is_dir() => Ok(point),
        Ok(_) => Err(MountError::NotDirectory(point)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(MountError::NoPoint(point)),
        Err(error) => Err(MountError::Io {
            what: "look at",
            path: point,
            error,
        }),
    }
}

/// Fails all calls on what is mounted on the connection of `device`, which nobody serves any more. It
/// stays mounted, as it does when the last descriptor is closed: nothing is written below it.
pub fn abandon(device: &Device) -> Result<(), MountError> {
    let Some(connection) = device.connection() else {
        return Ok(());
    };
    if direct::abort_connection(connection).is_ok() {
        return Ok(());
    }
    let is_it = |entry: &MountEntry| (entry.number.major, entry.number.minor) == (0, connection);
    let Some(entry) = mounts().unwrap_or_default().into_iter().find(is_it) else {
        return Ok(());
    };
    // What is in use is not taken off by that.
    let _in_use = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(&entry.point);
    direct::abort(&entry.point, entry.number)
}

/// The device number of the FUSE file system on top at `point`.
fn number_of(point: &Path) -> Option<DeviceNumber> {
    let mounts = mounts().ok()?;
    let entry = table::at(&mounts, point)?;
    entry.is_fuse().then_some(entry.number)
}

/// One of another file system is its owner's business.
fn take_off_dead(point: &Path) -> Result<(), MountError> {
    let mounts = mounts().unwrap_or_default();
    let ours = table::at(&mounts, point).filter(|entry| entry.kind == KIND);
    let dead = || MountError::Dead(point.to_owned());
    let number = ours.ok_or_else(dead)?.number;
    take_off(point, number, Unmount::Lazy).map_err(|_| dead())?;
    warn!(point = %point.display(), "took off a dead mount, whose process was killed");
    Ok(())
}

fn take_off(point: &Path, number: DeviceNumber, how: Unmount) -> Result<Unmount, MountError> {
    let how = match how {
        Unmount::Abort => abort(point, number)?,
        how => how,
    };
    let begun = Instant::now();
    loop {
        let done = match direct::unmount(point, how) {
            Err(MountError::NotPermitted { .. }) => fusermount::unmount(point, how),
            other => other,
        };
        match &done {
            // A forced unmount takes off what nobody uses.
            Err(MountError::NotMounted(_)) if how == Unmount::Abort => return Ok(how),
            // Its last user was just leaving, or is not to be seen.
            Err(MountError::Busy { users, .. })
                if users.is_empty() && begun.elapsed() < LEAVING =>
            {
                std::thread::sleep(AGAIN);
            }
            _ => return done.map(|()| how),
        }
    }
}

fn abort(point: &Path, number: DeviceNumber) -> Result<Unmount, MountError> {
    match direct::abort(point, number) {
        Ok(()) => Ok(Unmount::Abort),
        Err(MountError::NotPermitted { .. }) => Ok(Unmount::Lazy),
        Err(error) => Err(error),
    }
}
