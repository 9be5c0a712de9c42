//! Objects as files: `objects/XX/FID.STRIPE`, hexadecimal, `XX` the lowest byte of the FID.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use base::limits::FILE_BYTES_MAX;
use base::{ByteRange, Fid};
use bytes::Bytes;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, fallocate, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, Whence, lseek, unlinkat};

use super::descriptors::Descriptors;
use super::direct::Direct;
use super::direct_io::DirectIo;
use super::page_cache;
use super::size_limit;
use super::store::{ObjectId, ObjectStat, ObjectStore};
use super::stream::Stream;
use crate::anchor::Anchor;
use crate::disk::disk_of;
use crate::error::{Result, StorageError, is_out_of_descriptors};
use crate::fence::Fence;
use crate::space::SpaceStat;

/// Directories the objects are spread over.
const FAN_OUT: usize = 256;
/// Files kept open, where the process may have that many.
pub const OPEN_FILES_MAX: usize = 512;

/// Objects as files in a directory of a local file system.
#[derive(Debug)]
pub struct ObjectFiles {
    dir: Anchor,
    open: Descriptors,
    direct: Direct,
    stream: Stream,
    /// One past the last byte that a file can have here.
    bytes_max: u64,
    /// As in [`SpaceStat`].
    disk: u64,
    /// Names in this directory came or went since it was synced.
    changed: [AtomicBool; FAN_OUT],
    /// The first sync that failed: the system reports a lost write once, so no later sync may
    /// claim that all is well.
    sync_failed: OnceLock<Arc<StorageError>>,
    /// Of the target they belong to.
    fence: Option<Arc<Fence>>,
}

impl ObjectFiles {
    /// Opens the existing directory `dir`.
    pub fn open(dir: impl Into<PathBuf>) -> Result<ObjectFiles> {
        ObjectFiles::open_fenced(dir.into(), None, OPEN_FILES_MAX)
    }

    /// The same, changed only while `fence` is held; keeps about `files` of them open.
    pub(crate) fn open_fenced(
        dir: PathBuf,
        fence: Option<Arc<Fence>>,
        files: usize,
    ) -> Result<ObjectFiles> {
        let anchor =
            Anchor::open(&dir).map_err(|e| StorageError::from_io(dir.display(), "open it", &e))?;
        for shelf in 0..FAN_OUT {
            let path = dir.join(shelf_name(shelf));
            match fs::create_dir(&path) {
                Err(e) if e.kind() != ErrorKind::AlreadyExists => {
                    return Err(StorageError::from_io(path.display(), "make it", &e));
                }
                _ => {}
            }
        }
        anchor
            .dir()
            .sync_all()
            .map_err(|e| StorageError::from_io(dir.display(), "sync it", &e))?;
        let bytes_max = size_limit::file_bytes_max(anchor.dir(), &dir);
        // Without it the disk counts as one of its own.
        let disk = disk_of(anchor.dir()).unwrap_or(0);
        let direct_io = Arc::<DirectIo>::default();
        Ok(ObjectFiles {
            dir: anchor,
            open: Descriptors::new(files),
            direct: Direct::new(direct_io.clone()),
            stream: Stream::new(direct_io),
            bytes_max,
            disk,
            changed: [const { AtomicBool::new(false) }; FAN_OUT],
            sync_failed: OnceLock::new(),
            fence,
        })
    }

    /// A file among them that is none of them, if there is one.
    pub fn first_foreign(&self) -> Result<Option<PathBuf>> {
        let shelves: Vec<String> = (0..FAN_OUT).map(shelf_name).collect();
        let mut foreign = self.names("")?.into_iter();
        let foreign = foreign.find(|name| !shelves.iter().any(|shelf| *name == **shelf));
        if let Some(name) = foreign {
            return Ok(Some(self.dir.path().join(name)));
        }
        for shelf in shelves {
            let is_foreign = |name: &OsString| name.to_str().and_then(id_of).is_none();
            if let Some(name) = self.names(&shelf)?.into_iter().find(is_foreign) {
                return Ok(Some(self.dir.path().join(shelf).join(name)));
            }
        }
        Ok(None)
    }

    /// What is in the directory `inner` of this one.
    fn names(&self, inner: &str) -> Result<Vec<OsString>> {
        let path = self.dir.path().join(inner);
        let failed = |e| StorageError::from_io(path.display(), "list it", &e);
        let entries = fs::read_dir(self.dir.reach(inner)).map_err(failed)?;
        let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
        names.collect::<io::Result<_>>().map_err(failed)
    }

    /// For messages.
    fn path(&self, id: ObjectId) -> PathBuf {
        self.dir.path().join(name_of(id))
    }

    fn open_file(&self, id: ObjectId, flags: OFlag) -> io::Result<File> {
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let open = |access| {
            let flags = flags | access | OFlag::O_CLOEXEC;
            openat(self.dir.dir(), name_of(id).as_str(), flags, mode)
        };
        let opened = match open(OFlag::O_RDWR) {
            // To look at it.
            Err(Errno::EROFS) => open(OFlag::O_RDONLY),
            opened => opened,
        };
        Ok(opened?.into())
    }

    /// For reads and writes past the page cache, which are large: not kept.
    fn open_direct(&self, id: ObjectId) -> io::Result<File> {
        self.open.open(|| self.open_file(id, OFlag::O_DIRECT))
    }

    /// The object's file, if it exists, and its directory, if names in it are to be synced.
    fn open_to_sync(
        &self,
        id: ObjectId,
        with_names: bool,
    ) -> io::Result<(Option<Arc<File>>, Option<File>)> {
        let file = self.open.get(id, || self.open_if_there(id))?;
        let (shelf, flags) = (shelf_name(shelf_of(id)), OFlag::O_RDONLY | OFlag::O_CLOEXEC);
        let open = || Ok(openat(self.dir.dir(), shelf.as_str(), flags, Mode::empty())?.into());
        let shelf = with_names.then(|| self.open.open(open)).transpose()?;
        Ok((file, shelf))
    }

    fn open_if_there(&self, id: ObjectId) -> io::Result<Option<File>> {
        match self.open_file(id, OFlag::empty()) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }

    fn error(&self, id: ObjectId, action: &'static str) -> impl Fn(io::Error) -> StorageError {
        move |error| StorageError::from_io(self.path(id).display(), action, &error)
    }

    fn too_big(&self, id: ObjectId) -> StorageError {
        let at = self.path(id).display().to_string();
        StorageError::FileTooBig { at }
    }

    /// The file, if the object exists.
    fn existing(&self, id: ObjectId) -> Result<Option<Arc<File>>> {
        let opened = self.open.get(id, || self.open_if_there(id));
        opened.map_err(self.error(id, "open it"))
    }

    fn may_write(&self) -> Result<()> {
        self.fence.as_ref().map_or(Ok(()), |fence| fence.check())
    }

    /// The file, to be changed; created if need be.
    fn made(&self, id: ObjectId) -> Result<Arc<File>> {
        self.may_write()?;
        let create = || {
            let file = self.open_file(id, OFlag::O_CREAT)?;
            // It may have been there: one needless sync of a directory is cheaper than a second
            // call for each new object.
            self.changed[shelf_of(id)].store(true, Ordering::Release);
            Ok(Some(file))
        };
        let made = self.open.get(id, create);
        let made = made.map_err(self.error(id, "create it"))?;
        Ok(made.expect("the closure above never gives None"))
    }

    fn unlink(&self, id: ObjectId) -> io::Result<()> {
        let (name, flags) = (name_of(id), UnlinkatFlags::NoRemoveDir);
        Ok(unlinkat(self.dir.dir(), name.as_str(), flags)?)
    }

    fn fallocate(
        &self,
        id: ObjectId,
        file: &File,
        range: ByteRange,
        flags: FallocateFlags,
    ) -> Result<()> {
        let done = fallocated(file, range, flags);
        done.map_err(|errno| self.error(id, "allocate in it")(errno.into()))
    }

    /// The file in which `range` shall be allocated, made if need be.
    fn with_room_for(&self, id: ObjectId, range: ByteRange) -> Result<Arc<File>> {
        match range.end > self.bytes_max {
            true => Err(self.too_big(id)),
            false => self.made(id),
        }
    }

    fn seek(&self, id: ObjectId, offset: u64, whence: Whence) -> Result<Option<u64>> {
        let Some(file) = self.existing(id)? else {
            return Ok(None);
        };
        let Ok(offset) = i64::try_from(offset) else {
            return Ok(None);
        };
        // The shared position of the descriptor is used by nothing else here.
        match lseek(&*file, offset, whence) {
            Ok(found) => Ok(Some(found as u64)),
            Err(Errno::ENXIO) => Ok(None),
            Err(errno) => Err(self.error(id, "seek in it")(errno.into())),
        }
    }

    fn check_synced(&self) -> Result<()> {
        match self.sync_failed.get() {
            None => Ok(()),
            Some(cause) => Err(StorageError::Stopped {
                at: self.dir.path().display().to_string(),
                cause: cause.clone(),
            }),
        }
    }

    fn note_sync<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            // Only the first is kept: it is the one to act on.
            let _ = self.sync_failed.set(Arc::new(error.clone()));
        }
        result
    }
}

fn shelf_of(id: ObjectId) -> usize {
    id.fid.0 as usize % FAN_OUT
}

fn shelf_name(shelf: usize) -> String {
    format!("{shelf:02x}")
}

/// Where the object's file is, seen from the directory of all.
fn name_of(id: ObjectId) -> String {
    let (shelf, stripe) = (shelf_of(id), id.stripe);
    format!("{shelf:02x}/{:016x}.{stripe:08x}", id.fid.0)
}

/// The object whose file is called `name`.
fn id_of(name: &str) -> Option<ObjectId> {
    let (fid, stripe) = name.split_once('.')?;
    if fid.len() != 16 || stripe.len() != 8 {
        return None;
    }
    Some(ObjectId {
        fid: Fid(u64::from_str_radix(fid, 16).ok()?),
        stripe: u32::from_str_radix(stripe, 16).ok()?,
    })
}

fn read_up_to(file: &File, mut offset: u64, mut buffer: &mut [u8]) -> io::Result<usize> {
    let asked = buffer.len();
    while !buffer.is_empty() {
        match file.read_at(buffer, offset) {
            Ok(0) => break,
            Ok(count) => {
                offset += count as u64;
                buffer = &mut buffer[count..];
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(asked - buffer.len())
}

fn fallocated(file: &File, range: ByteRange, flags: FallocateFlags) -> nix::Result<()> {
    match range.is_empty() {
        true => Ok(()),
        false => fallocate(file, flags, range.start as i64, range.len() as i64),
    }
}

fn keep_size_flag(keep_size: bool) -> FallocateFlags {
    match keep_size {
        true => FallocateFlags::FALLOC_FL_KEEP_SIZE,
        false => FallocateFlags::empty(),
    }
}

impl ObjectStore for ObjectFiles {
    fn read(&self, id: ObjectId, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        match self.existing(id)? {
            Some(file) if offset < FILE_BYTES_MAX => {
                read_up_to(&file, offset, buffer).map_err(self.error(id, "read it"))
            }
            _ => Ok(0),
        }
    }

    fn read_shared(&self, id: ObjectId, offset: u64, len: usize) -> Result<Bytes> {
        let (file, range) = match (self.existing(id)?, ByteRange::at(offset, len as u64)) {
            (Some(file), Some(range)) if range.end <= FILE_BYTES_MAX => (file, range),
            _ => return Ok(Bytes::new()),
        };
        let open = || self.open_direct(id);
        let read = match self.direct.read(id, &file, range, open) {
            Ok(None) => {
                let mut data = vec![0; len];
                read_up_to(&file, offset, &mut data).map(|count| {
                    data.truncate(count);
                    data.into()
                })
            }
            Ok(Some(data)) => Ok(data),
            // Removed meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Bytes::new()),
            Err(error) => Err(error),
        };
        read.map_err(self.error(id, "read it"))
    }

    fn is_cold(&self, id: ObjectId, offset: u64, len: usize) -> Result<bool> {
        let (file, range) = (self.existing(id)?, ByteRange::at(offset, len as u64));
        let (Some(file), Some(range)) = (file, range) else {
            return Ok(false);
        };
        Ok(page_cache::has_nothing_of(&file, range))
    }

    fn write(&self, id: ObjectId, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset.checked_add(data.len() as u64);
        if end.is_none_or(|end| end > self.bytes_max) {
            return Err(self.too_big(id));
        }
        let file = self.made(id)?;
        self.stream
            .write(&file, data, offset, || self.open_direct(id))
            .map_err(self.error(id, "write it"))
    }

    fn truncate(&self, id: ObjectId, size: u64) -> Result<()> {
        if size > self.bytes_max {
            return Err(self.too_big(id));
        }
        let file = self.made(id)?;
        file.set_len(size).map_err(self.error(id, "resize it"))
    }

    fn stat(&self, id: ObjectId) -> Result<Option<ObjectStat>> {
        let Some(file) = self.existing(id)? else {
            return Ok(None);
        };
        let metadata = file.metadata().map_err(self.error(id, "stat it"))?;
        Ok(Some(ObjectStat {
            size: metadata.len(),
            blocks_512: metadata.blocks(),
        }))
    }

    fn punch(&self, id: ObjectId, range: ByteRange) -> Result<()> {
        self.may_write()?;
        let Some(file) = self.existing(id)? else {
            return Ok(());
        };
        // Beyond its end nothing can be read, and the system refuses what no file can hold.
        let end = file.metadata().map_err(self.error(id, "stat it"))?.len();
        let end = range.end.min(end);
        let range = ByteRange::new(range.start.min(end), end);
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        self.fallocate(id, &file, range, flags)
    }

    fn allocate(&self, id: ObjectId, range: ByteRange, keep_size: bool) -> Result<()> {
        let file = self.with_room_for(id, range)?;
        self.fallocate(id, &file, range, keep_size_flag(keep_size))
    }

    fn zero(&self, id: ObjectId, range: ByteRange, keep_size: bool) -> Result<()> {
        let file = self.with_room_for(id, range)?;
        let flags = FallocateFlags::FALLOC_FL_ZERO_RANGE | keep_size_flag(keep_size);
        match fallocated(&file, range, flags) {
            // tmpfs cannot, but it can free and reserve, which comes to the same.
            Err(Errno::EOPNOTSUPP) => {
                self.punch(id, range)?;
                self.allocate(id, range, keep_size)
            }
            done => done.map_err(|errno| self.error(id, "zero in it")(errno.into())),
        }
    }

    fn seek_data(&self, id: ObjectId, offset: u64) -> Result<Option<u64>> {
        self.seek(id, offset, Whence::SeekData)
    }

    fn seek_hole(&self, id: ObjectId, offset: u64) -> Result<Option<u64>> {
        self.seek(id, offset, Whence::SeekHole)
    }

    fn remove(&self, id: ObjectId) -> Result<bool> {
        self.may_write()?;
        let removed = self.open.forget(id, || self.unlink(id));
        match removed {
            Ok(()) => {
                self.changed[shelf_of(id)].store(true, Ordering::Release);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.error(id, "remove it")(error)),
        }
    }

    fn sync_all(&self) -> Result<()> {
        self.may_write()?;
        self.check_synced()?;
        let synced = nix::unistd::syncfs(self.dir.dir());
        let at = self.dir.path().display();
        let synced = synced.map_err(|e| StorageError::from_io(at, "sync it", &e.into()));
        self.note_sync(synced)
    }

    fn sync(&self, id: ObjectId) -> Result<()> {
        self.may_write()?;
        self.check_synced()?;
        let changed = &self.changed[shelf_of(id)];
        // Taken before anything is synced: a name that comes later is for the next sync.
        let had_names = changed.swap(false, Ordering::AcqRel);
        let opened = self.open_to_sync(id, had_names);
        if opened.is_err() {
            changed.fetch_or(had_names, Ordering::AcqRel);
        }
        let (file, shelf) = match opened {
            // What is open already syncs all of the file system.
            Err(error) if is_out_of_descriptors(&error) => return self.sync_all(),
            opened => opened.map_err(self.error(id, "open it"))?,
        };
        if let Some(file) = file {
            self.note_sync(file.sync_data().map_err(self.error(id, "sync it")))?;
        }
        let synced = shelf.map_or(Ok(()), |shelf| shelf.sync_all());
        self.note_sync(synced.map_err(self.error(id, "sync its directory")))
    }

    fn statfs(&self) -> Result<SpaceStat> {
        let found = nix::sys::statvfs::fstatvfs(self.dir.dir());
        let at = self.dir.path().display();
        let found = found.map_err(|e| StorageError::from_io(at, "stat it", &e.into()))?;
        Ok(SpaceStat {
            object_bytes_max: self.bytes_max,
            disk: self.disk,
            ..SpaceStat::of(&found)
        })
    }

    fn list(&self, visit: &mut dyn FnMut(ObjectId)) -> Result<()> {
        for shelf in 0..FAN_OUT {
            let shelf = shelf_name(shelf);
            for name in self.names(&shelf)? {
                match name.to_str().and_then(id_of) {
                    Some(id) => visit(id),
                    None => {
                        let dir = self.dir.path().join(&shelf);
                        tracing::warn!(?name, dir = %dir.display(), "not an object");
                    }
                }
            }
        }
        Ok(())
    }
}
