//! Room for records where the disk below them is full: a file in the target's directory that is there for the
//! space it takes. When a write of records finds no space, the file is given up and the write made again,
//! below the engine. It comes back when there is space.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use nix::fcntl::{FallocateFlags, fallocate};

use crate::anchor::Anchor;
use crate::disk::Disk;
use crate::error::{Result, StorageError};
use crate::regular;
use crate::space::SpaceStat;

/// Times a write that found no space is made again. With [`PAUSE`]: for a minute.
const ATTEMPTS_MAX: u32 = 600;
/// Between two of them, once nothing is left to give up.
const PAUSE: Duration = Duration::from_millis(100);

/// The space of the disk that records are on, and a part of it set aside for them.
pub trait Room: fmt::Debug + Send + Sync {
    /// The space there is.
    fn space(&self) -> Result<SpaceStat>;
    /// A write of records found no space, `attempt` times before: makes some, or waits for some.
    /// Whether the write is to be made again.
    fn make(&self, attempt: u32) -> bool;
    /// Sets space aside again where it was given up and there is enough.
    fn restock(&self);
}

/// A disk whose writes fall back on a [`Room`].
pub(crate) struct RoomyDisk<D> {
    disk: D,
    room: Arc<dyn Room>,
}

impl<D> RoomyDisk<D> {
    pub(crate) fn new(disk: D, room: Arc<dyn Room>) -> RoomyDisk<D> {
        RoomyDisk { disk, room }
    }

    /// Does `change`, and again as long as the room says so.
    fn insist(&self, change: impl Fn() -> Result<()>) -> Result<()> {
        let mut attempt = 0;
        loop {
            match change() {
                Err(StorageError::NoSpace { .. }) if self.room.make(attempt) => attempt += 1,
                done => return done,
            }
        }
    }
}

/// Called what the disk below is called, which is what reports of damage say.
impl<D: fmt::Debug> fmt::Debug for RoomyDisk<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.disk.fmt(f)
    }
}

impl<D: Disk> Disk for RoomyDisk<D> {
    fn len(&self) -> Result<u64> {
        self.disk.len()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.disk.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.insist(|| self.disk.write(offset, data))
    }

    /// Not made again where it fails: the system tells of a lost write once.
    fn sync(&self) -> Result<()> {
        self.disk.sync()?;
        self.room.restock();
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.insist(|| self.disk.set_len(len))
    }

    fn close(&self) -> Result<()> {
        self.disk.close()
    }
}

/// The file that sets space aside, in the directory of a target.
#[derive(Debug)]
pub(crate) struct ReserveFile {
    dir: Anchor,
    name: &'static str,
    bytes_max: u64,
    /// It has its space. Held through changes of the file.
    held: Mutex<bool>,
}

impl ReserveFile {
    /// The file `name` in `dir`, made where it is missing and the disk has space; of `bytes_max` bytes at
    /// most.
    pub(crate) fn open(dir: Anchor, name: &'static str, bytes_max: u64) -> ReserveFile {
        let held = fs::metadata(dir.reach(name)).is_ok_and(|metadata| metadata.len() > 0);
        let reserve = ReserveFile {
            dir,
            name,
            bytes_max,
            held: Mutex::new(held),
        };
        reserve.restock();
        reserve
    }

    /// The flag is true or false whatever happened in between.
    fn held(&self) -> MutexGuard<'_, bool> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For people.
    fn path(&self) -> PathBuf {
        self.dir.path().join(self.name)
    }

    /// For this process.
    fn reach(&self) -> PathBuf {
        self.dir.reach(self.name)
    }

    /// Gives up the space; false where there was none.
    fn release(&self) -> bool {
        let mut held = self.held();
        if !std::mem::replace(&mut *held, false) {
            return false;
        }
        tracing::warn!(reserve = %self.path().display(), "the disk is full: its reserve is used up");
        fs::remove_file(self.reach()).is_ok()
    }

    /// Makes the file, with `bytes` of its own.
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = regular::open(&self.reach(), &mut options)?;
        let len = i64::try_from(bytes).map_err(io::Error::other)?;
        fallocate(&file, FallocateFlags::empty(), 0, len)?;
        file.sync_all()
    }
}

impl Room for ReserveFile {
    fn space(&self) -> Result<SpaceStat> {
        let found = nix::sys::statvfs::fstatvfs(self.dir.dir());
        let at = self.dir.path().display();
        let found = found.map_err(|e| StorageError::from_io(at, "stat it", &e.into()))?;
        Ok(SpaceStat::of(&found))
    }

    fn make(&self, attempt: u32) -> bool {
        if attempt >= ATTEMPTS_MAX {
            return false;
        }
        if !self.release() {
            if attempt % 100 == 1 {
                tracing::error!(target = %self.dir.path().display(), "waiting for space on its disk");
            }
            sleep(PAUSE);
        }
        true
    }

    fn restock(&self) {
        let mut held = self.held();
        if *held {
            return;
        }
        let Ok(space) = self.space() else {
            return;
        };
        let bytes = (space.total / 16).min(self.bytes_max);
        // Not at the price of what is kept free anyhow: both would come and go in turn.
        if bytes == 0 || space.available < space.floor() + 2 * bytes {
            return;
        }
        match self.allocate(bytes) {
            Ok(()) => *held = true,
            Err(error) => {
                tracing::warn!(reserve = %self.path().display(), %error, "no space can be set aside");
                let _ = fs::remove_file(self.reach());
            }
        }
    }
}
