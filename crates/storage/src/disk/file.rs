//! A [`Disk`] that is a file or block device, held exclusively.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use base::ByteRange;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::libc;
use nix::unistd::{Whence, lseek};

use super::device::{Backing, Disk};
use crate::error::{Result, StorageError};
use crate::fence::{Fence, kernel};
use crate::objects::page_cache;
use crate::regular;
use crate::space::SpaceStat;
use crate::target::lock::{ENDING_MAX, ExclusiveLock, LOOK, lock_exclusive};

/// A file or block device under an exclusive `flock`, so that two processes never share it. Where
/// it is a target's, written only while the target's fence is held.
pub struct FileDisk {
    path: PathBuf,
    file: File,
    fence: Option<Arc<Fence>>,
    lock: Mutex<Option<ExclusiveLock>>,
}

impl FileDisk {
    /// Opens the existing file at `path`; fails with [`StorageError::InUse`] if another holds it.
    pub fn open(path: impl Into<PathBuf>) -> Result<FileDisk> {
        FileDisk::open_with(path.into(), OpenOptions::new().read(true).write(true), true)
    }

    /// Opens the existing file at `path` to look at, though another process may hold it. Nothing can be
    /// written.
    pub fn open_to_look_at(path: impl Into<PathBuf>) -> Result<FileDisk> {
        FileDisk::open_with(path.into(), OpenOptions::new().read(true), false)
    }

    /// The same for a target's file, with a `flock` only if `locked`. While a block device is open the
    /// kernel keeps other programs from mounting and formatting it.
    pub(crate) fn open_fenced(path: PathBuf, fence: Arc<Fence>, locked: bool) -> Result<FileDisk> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let is_device = fs::metadata(&path).is_ok_and(|found| found.file_type().is_block_device());
        let file = match is_device {
            true => open_alone(&path, &options)?,
            false => open_now(&path, &options)?,
        };
        let disk = FileDisk::of(path, file, locked)?;
        Ok(FileDisk {
            fence: Some(fence),
            ..disk
        })
    }

    /// Creates a file at `path`, readable by its owner alone; fails if there is one.
    pub fn create(path: impl Into<PathBuf>) -> Result<FileDisk> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        FileDisk::open_with(path.into(), &options, true)
    }

    fn open_with(path: PathBuf, options: &OpenOptions, locked: bool) -> Result<FileDisk> {
        let file = open_now(&path, options)?;
        FileDisk::of(path, file, locked)
    }

    fn of(path: PathBuf, file: File, locked: bool) -> Result<FileDisk> {
        let lock = match locked {
            true => Some(lock_exclusive(&file, &path)?),
            false => None,
        };
        Ok(FileDisk {
            path,
            file,
            fence: None,
            lock: Mutex::new(lock),
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn is_device(&self) -> Result<bool> {
        let found = self.file.metadata().map_err(self.error("stat it"))?;
        Ok(found.file_type().is_block_device())
    }

    fn seek(&self, offset: u64, whence: Whence) -> nix::Result<u64> {
        lseek(&self.file, signed(offset), whence).map(|found| found as u64)
    }

    fn may_write(&self) -> Result<()> {
        self.fence.as_ref().map_or(Ok(()), |fence| fence.check())
    }

    fn error(&self, action: &'static str) -> impl Fn(std::io::Error) -> StorageError {
        let at = self.path.display().to_string();
        move |error| StorageError::from_io(&at, action, &error)
    }
}

fn open_now(path: &Path, options: &OpenOptions) -> Result<File> {
    let opened = regular::open_or_device(path, options, 0);
    opened.map_err(|error| StorageError::from_io(path.display(), "open it", &error))
}

/// Opens a device for this process alone. One that was killed may have it for a moment longer.
fn open_alone(path: &Path, options: &OpenOptions) -> Result<File> {
    let began = Instant::now();
    loop {
        match regular::open_or_device(path, options, libc::O_EXCL) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {}
            opened => {
                let failed = |error| StorageError::from_io(path.display(), "open it", &error);
                return opened.map_err(failed);
            }
        }
        if began.elapsed() > ENDING_MAX {
            let reason = "another program has it for itself, or it is mounted";
            return Err(StorageError::refused(path.display(), reason));
        }
        std::thread::sleep(LOOK);
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl fmt::Debug for FileDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.path.display(), f)
    }
}

impl Disk for FileDisk {
    fn len(&self) -> Result<u64> {
        let metadata = self.file.metadata().map_err(self.error("stat it"))?;
        if metadata.file_type().is_block_device() {
            // A block device's length is where its end is; its metadata says zero.
            return (&self.file)
                .seek(SeekFrom::End(0))
                .map_err(self.error("seek in it"));
        }
        Ok(metadata.len())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.file
            .read_exact_at(buffer, offset)
            .map_err(self.error("read it"))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.may_write()?;
        self.file
            .write_all_at(data, offset)
            .map_err(self.error("write it"))
    }

    fn sync(&self) -> Result<()> {
        self.may_write()?;
        // Data and the metadata needed to read it back, which includes the length.
        self.file.sync_data().map_err(self.error("sync it"))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.may_write()?;
        self.file.set_len(len).map_err(self.error("resize it"))
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        self.may_write()?;
        if self.is_device()? {
            // It has its space.
            return Ok(());
        }
        fallocate(
            &self.file,
            FallocateFlags::empty(),
            signed(offset),
            signed(len),
        )
        .map_err(|errno| self.error("take space for it")(errno.into()))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.may_write()?;
        if self.is_device()? {
            return Ok(());
        }
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        match fallocate(&self.file, flags, signed(offset), signed(len)) {
            // A file system that has no holes keeps what it gave.
            Ok(()) | Err(Errno::EOPNOTSUPP) => Ok(()),
            Err(errno) => Err(self.error("give back space of it")(errno.into())),
        }
    }

    fn backing(&self) -> Result<Option<Backing>> {
        let metadata = self.file.metadata().map_err(self.error("stat it"))?;
        if metadata.file_type().is_block_device() {
            return Ok(None);
        }
        let found = nix::sys::statvfs::fstatvfs(&self.file);
        let found = found.map_err(|errno| self.error("stat its file system")(errno.into()))?;
        Ok(Some(Backing {
            taken: metadata.blocks() * 512,
            space: SpaceStat {
                disk: disk_of(&self.file).unwrap_or(0),
                ..SpaceStat::of(&found)
            },
        }))
    }

    fn written(&self, range: ByteRange) -> Result<Vec<ByteRange>> {
        let (mut parts, mut at) = (Vec::new(), range.start);
        while at < range.end {
            let start = match self.seek(at, Whence::SeekData) {
                Ok(start) if start < range.end => start,
                Ok(_) | Err(Errno::ENXIO) => break,
                // A file system that does not know its holes.
                Err(Errno::EINVAL | Errno::EOPNOTSUPP) => at,
                Err(errno) => return Err(self.error("look for holes in it")(errno.into())),
            };
            at = self.seek(start, Whence::SeekHole).unwrap_or(range.end);
            parts.push(ByteRange::new(start, at.min(range.end)));
        }
        Ok(parts)
    }

    fn is_cold(&self, offset: u64, len: u64) -> bool {
        let range = ByteRange::new(offset, offset.saturating_add(len));
        page_cache::has_nothing_of(&self.file, range)
    }

    fn close(&self) -> Result<()> {
        // The lock goes with the first close; the descriptor goes with the value.
        let lock = self
            .lock
            .lock()
            .unwrap_or_else(|held| held.into_inner())
            .take();
        drop(lock);
        Ok(())
    }
}

/// The number that the running kernel gives to the disk of `file`, which is any other under another kernel.
pub(crate) fn disk_of(file: &File) -> io::Result<u64> {
    let (kernel, device) = (kernel()?, file.metadata()?.dev());
    // The first bytes are random.
    let kernel = u128::from_le_bytes(kernel) as u64;
    Ok((kernel ^ device).max(1))
}
