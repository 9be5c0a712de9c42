//! The same calls on a real directory: a mount under test, or a file system known to be right.

use std::ffi::CString;
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base::{FsError, Timestamp};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, FallocateFlags, OFlag, RenameFlags};
use nix::sys::stat::{Mode, SFlag, UtimensatFlags};
use nix::sys::time::TimeSpec;
use rustix::fs::XattrFlags;
use wire::FileKind;
use wire::mdt::{RenameMode, SetTime, XattrMode};
use wire::ost::AllocateMode;

use crate::node::Stat;
use crate::op::{Op, OpenHow, Outcome, SLOTS, Seen};

/// A process that works in a real directory.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
    slots: [Option<File>; SLOTS as usize],
}

impl Directory {
    /// Works below `root`, with nothing open. Clears this process's umask, so that modes arrive whole.
    pub fn new(root: &Path) -> Directory {
        nix::sys::stat::umask(Mode::empty());
        Directory {
            root: root.to_owned(),
            slots: Default::default(),
        }
    }

    /// Where it works.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Makes one call.
    pub fn apply(&mut self, op: &Op) -> Outcome {
        self.call(op).or_else(|error| {
            let errno = error.raw_os_error().unwrap_or_default();
            fs_error(errno).map_or(Ok(Seen::Odd(errno)), Err)
        })
    }

    fn call(&mut self, op: &Op) -> io::Result<Seen> {
        match op {
            Op::SetXattr { .. }
            | Op::GetXattr { .. }
            | Op::ListXattrs { .. }
            | Op::RemoveXattr { .. } => self.on_xattrs(op),
            Op::Stat { path } => Ok(Seen::Stat(stat_of(&fs::symlink_metadata(self.at(path))?))),
            Op::ReadLink { path } => {
                let target = fs::read_link(self.at(path))?;
                Ok(Seen::Bytes(target.into_os_string().into_vec()))
            }
            Op::List { path } => Ok(Seen::Names(list(&self.at(path))?)),
            Op::Chmod { .. } | Op::Chown { .. } | Op::SetTimes { .. } | Op::Truncate { .. } => {
                self.change(op)
            }
            Op::Open {
                slot,
                path,
                how,
                mode,
            } => self.open(*slot, path, *how, *mode),
            Op::OpenNameless {
                slot,
                path,
                how,
                mode,
            } => {
                self.slots[usize::from(*slot)] = None;
                let flags = open_flags(*how) | OFlag::O_TMPFILE;
                let mode = Mode::from_bits_truncate(u32::from(*mode));
                let file = nix::fcntl::open(&self.at(path), flags, mode)?;
                self.slots[usize::from(*slot)] = Some(File::from(file));
                Ok(Seen::Nothing)
            }
            Op::LinkOpen { slot, to } => match &self.slots[usize::from(*slot)] {
                Some(file) => self.link_open(file, to),
                None => Ok(Seen::Skipped),
            },
            Op::Close { slot } => Ok(match self.slots[usize::from(*slot)].take() {
                Some(_) => Seen::Nothing,
                None => Seen::Skipped,
            }),
            _ => match op.slot().map(|slot| &self.slots[usize::from(slot)]) {
                Some(Some(file)) => with_file(file, op),
                Some(None) => Ok(Seen::Skipped),
                None => self.on_names(op),
            },
        }
    }

    fn link_open(&self, file: &File, to: &str) -> io::Result<Seen> {
        let open = format!("/proc/self/fd/{}", file.as_raw_fd());
        let follow = AtFlags::AT_SYMLINK_FOLLOW;
        nix::unistd::linkat(AT_FDCWD, open.as_str(), AT_FDCWD, &self.at(to), follow)?;
        Ok(Seen::Nothing)
    }

    fn on_names(&self, op: &Op) -> io::Result<Seen> {
        match op {
            Op::Mkdir { path, mode } => DirBuilder::new()
                .mode(u32::from(*mode))
                .create(self.at(path))?,
            Op::Mknod {
                path,
                kind,
                mode,
                rdev,
            } => nix::sys::stat::mknod(
                &self.at(path),
                file_type(*kind),
                Mode::from_bits_truncate(u32::from(*mode)),
                u64::from(*rdev),
            )?,
            Op::Symlink { path, target } => std::os::unix::fs::symlink(target, self.at(path))?,
            Op::Link { from, to } => fs::hard_link(self.at(from), self.at(to))?,
            Op::Unlink { path } => nix::unistd::unlink(&self.at(path))?,
            Op::Rmdir { path } => fs::remove_dir(self.at(path))?,
            Op::Rename {
                from,
                to,
                mode,
                whiteout,
            } => {
                let mut flags = match mode {
                    RenameMode::Replace => RenameFlags::empty(),
                    RenameMode::NoReplace => RenameFlags::RENAME_NOREPLACE,
                    RenameMode::Exchange => RenameFlags::RENAME_EXCHANGE,
                };
                flags.set(RenameFlags::RENAME_WHITEOUT, *whiteout);
                let (from, to) = (self.at(from), self.at(to));
                let rename = || nix::fcntl::renameat2(AT_FDCWD, &from, AT_FDCWD, &to, flags);
                match rename() {
                    // Directories that another mount has just moved: op.rename.
                    Err(Errno::ESTALE) => {
                        let _ = (from.symlink_metadata(), to.symlink_metadata());
                        rename()?;
                    }
                    result => result?,
                }
            }
            _ => unreachable!("call sends only calls about names"),
        }
        Ok(Seen::Nothing)
    }

    fn on_xattrs(&self, op: &Op) -> io::Result<Seen> {
        match op {
            Op::SetXattr {
                path,
                name,
                value,
                mode,
            } => {
                let flags = match mode {
                    XattrMode::Set => XattrFlags::empty(),
                    XattrMode::Create => XattrFlags::CREATE,
                    XattrMode::Replace => XattrFlags::REPLACE,
                };
                rustix::fs::lsetxattr(self.at(path), name.as_str(), value, flags)?;
                Ok(Seen::Nothing)
            }
            Op::GetXattr { path, name } => Ok(Seen::Bytes(get_xattr(&self.at(path), name)?)),
            Op::ListXattrs { path } => Ok(Seen::Xattrs(list_xattrs(&self.at(path))?)),
            Op::RemoveXattr { path, name } => {
                rustix::fs::lremovexattr(self.at(path), name.as_str())?;
                Ok(Seen::Nothing)
            }
            _ => unreachable!("call sends only calls about attributes"),
        }
    }

    fn change(&self, op: &Op) -> io::Result<Seen> {
        match op {
            Op::Chmod { path, mode } => {
                let permissions = Permissions::from_mode(u32::from(*mode));
                fs::set_permissions(self.at(path), permissions)?;
            }
            Op::Chown { path, uid, gid } => std::os::unix::fs::lchown(self.at(path), *uid, *gid)?,
            Op::SetTimes { path, atime, mtime } => {
                return set_times(&self.at(path), *atime, *mtime);
            }
            Op::Truncate { path, size } => nix::unistd::truncate(&self.at(path), *size as i64)?,
            _ => unreachable!("call sends only calls that change attributes"),
        }
        Ok(Seen::Nothing)
    }

    fn open(&mut self, slot: u8, path: &str, how: OpenHow, mode: u16) -> io::Result<Seen> {
        self.slots[usize::from(slot)] = None;
        let path = self.at(path);
        if let Ok(metadata) = fs::symlink_metadata(&path) {
            use FileKind::{BlockDevice, CharDevice, Fifo, Socket};
            if matches!(
                kind_of(&metadata.file_type()),
                Fifo | Socket | CharDevice | BlockDevice
            ) {
                return Ok(Seen::Skipped);
            }
        }
        let mode = Mode::from_bits_truncate(u32::from(mode));
        let file = nix::fcntl::open(&path, open_flags(how), mode)?;
        self.slots[usize::from(slot)] = Some(File::from(file));
        Ok(Seen::Nothing)
    }
}

fn open_flags(how: OpenHow) -> OFlag {
    let mut flags = OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    flags |= match (how.read, how.write) {
        (_, false) => OFlag::O_RDONLY,
        (false, true) => OFlag::O_WRONLY,
        (true, true) => OFlag::O_RDWR,
    };
    for (wanted, flag) in [
        (how.append, OFlag::O_APPEND),
        (how.create, OFlag::O_CREAT),
        (how.exclusive, OFlag::O_EXCL),
        (how.truncate, OFlag::O_TRUNC),
    ] {
        if wanted {
            flags |= flag;
        }
    }
    flags
}

fn with_file(file: &File, op: &Op) -> io::Result<Seen> {
    match *op {
        Op::Read { offset, len, .. } => Ok(Seen::Bytes(read_at(file, offset, len)?)),
        Op::Write {
            offset, len, fill, ..
        } => Ok(Seen::Count(file.write_at(&Op::data(len, fill), offset)?)),
        Op::SetLength { size, .. } => {
            nix::unistd::ftruncate(file, size as i64)?;
            Ok(Seen::Nothing)
        }
        Op::Allocate {
            offset, len, mode, ..
        } => {
            nix::fcntl::fallocate(file, allocate_flags(mode), offset as i64, len as i64)?;
            Ok(Seen::Nothing)
        }
        Op::Fstat { .. } => Ok(Seen::Stat(stat_of(&file.metadata()?))),
        Op::Fsync { .. } => {
            file.sync_all()?;
            Ok(Seen::Nothing)
        }
        _ => unreachable!("call sends only calls on an open file"),
    }
}

/// Reads until `len` bytes or the end: a read may be short in the middle of a file.
fn read_at(file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut done = 0;
    while done < len {
        match file.read_at(&mut bytes[done..], offset + done as u64)? {
            0 => break,
            read => done += read,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

fn allocate_flags(mode: AllocateMode) -> FallocateFlags {
    let keep = FallocateFlags::FALLOC_FL_KEEP_SIZE;
    match mode {
        AllocateMode::Extend => FallocateFlags::empty(),
        AllocateMode::KeepSize => keep,
        AllocateMode::PunchHole => FallocateFlags::FALLOC_FL_PUNCH_HOLE | keep,
        AllocateMode::Zero => FallocateFlags::FALLOC_FL_ZERO_RANGE,
        AllocateMode::ZeroKeepSize => FallocateFlags::FALLOC_FL_ZERO_RANGE | keep,
    }
}

fn set_times(path: &Path, atime: Option<SetTime>, mtime: Option<SetTime>) -> io::Result<Seen> {
    let spec = |set| match set {
        None => TimeSpec::UTIME_OMIT,
        Some(SetTime::Now) => TimeSpec::UTIME_NOW,
        Some(SetTime::At(at)) => TimeSpec::new(at.secs, i64::from(at.nanos)),
    };
    let flags = UtimensatFlags::NoFollowSymlink;
    nix::sys::stat::utimensat(AT_FDCWD, path, &spec(atime), &spec(mtime), flags)?;
    let metadata = fs::symlink_metadata(path)?;
    let stored = |set, secs, nanos: i64| match set {
        Some(SetTime::At(_)) => Some(Timestamp {
            secs,
            nanos: nanos as u32,
        }),
        Some(SetTime::Now) | None => None,
    };
    Ok(Seen::Times(
        stored(atime, metadata.atime(), metadata.atime_nsec()),
        stored(mtime, metadata.mtime(), metadata.mtime_nsec()),
    ))
}

/// Names with kinds, sorted.
pub(crate) fn list(path: &Path) -> io::Result<Vec<(Vec<u8>, FileKind)>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let kind = kind_of(&entry.file_type()?);
        names.push((entry.file_name().into_vec(), kind));
    }
    names.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(names)
}

/// One attribute's value.
pub(crate) fn get_xattr(path: &Path, name: &str) -> io::Result<Vec<u8>> {
    let mut value = vec![0; base::limits::XATTR_VALUE_BYTES_MAX];
    let len = rustix::fs::lgetxattr(path, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

/// The attributes' names, sorted.
pub(crate) fn list_xattrs(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut names = vec![0; 64 << 10];
    let len = rustix::fs::llistxattr(path.as_c_str(), &mut names[..])?;
    let names = names[..len].split(|byte| *byte == 0);
    let mut names: Vec<Vec<u8>> = names
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    names.sort();
    Ok(names)
}

/// What the model's [`Stat`] holds of `metadata`.
pub(crate) fn stat_of(metadata: &Metadata) -> Stat {
    let kind = kind_of(&metadata.file_type());
    let sized = matches!(kind, FileKind::Regular | FileKind::Symlink);
    Stat {
        kind,
        mode: (metadata.mode() & 0o7777) as u16,
        uid: metadata.uid(),
        gid: metadata.gid(),
        nlink: metadata.nlink() as u32,
        size: if sized { metadata.size() } else { 0 },
        rdev: metadata.rdev() as u32,
    }
}

fn kind_of(kind: &fs::FileType) -> FileKind {
    match kind {
        kind if kind.is_dir() => FileKind::Directory,
        kind if kind.is_symlink() => FileKind::Symlink,
        kind if kind.is_fifo() => FileKind::Fifo,
        kind if kind.is_socket() => FileKind::Socket,
        kind if kind.is_char_device() => FileKind::CharDevice,
        kind if kind.is_block_device() => FileKind::BlockDevice,
        _ => FileKind::Regular,
    }
}

fn file_type(kind: FileKind) -> SFlag {
    match kind {
        FileKind::Regular => SFlag::S_IFREG,
        FileKind::Directory => SFlag::S_IFDIR,
        FileKind::Symlink => SFlag::S_IFLNK,
        FileKind::Fifo => SFlag::S_IFIFO,
        FileKind::Socket => SFlag::S_IFSOCK,
        FileKind::CharDevice => SFlag::S_IFCHR,
        FileKind::BlockDevice => SFlag::S_IFBLK,
    }
}

/// The error an errno stands for, where there is one.
pub fn fs_error(errno: i32) -> Option<FsError> {
    Some(match Errno::from_raw(errno) {
        Errno::ENOENT => FsError::NotFound,
        Errno::EEXIST => FsError::Exists,
        Errno::ENOTDIR => FsError::NotDirectory,
        Errno::EISDIR => FsError::IsDirectory,
        Errno::ENOTEMPTY => FsError::NotEmpty,
        Errno::EACCES => FsError::AccessDenied,
        Errno::EPERM => FsError::NotPermitted,
        Errno::EINVAL => FsError::Invalid,
        Errno::ENAMETOOLONG => FsError::NameTooLong,
        Errno::EFBIG => FsError::FileTooBig,
        Errno::ENOSPC => FsError::NoSpace,
        Errno::EMLINK => FsError::TooManyLinks,
        Errno::ELOOP => FsError::Loop,
        Errno::EXDEV => FsError::CrossDevice,
        Errno::ENODATA => FsError::NoAttribute,
        Errno::EOPNOTSUPP | Errno::ENOSYS => FsError::NotSupported,
        Errno::ERANGE => FsError::Range,
        Errno::E2BIG => FsError::TooLarge,
        Errno::EBUSY => FsError::Busy,
        Errno::ETXTBSY => FsError::TextBusy,
        Errno::ESTALE => FsError::Stale,
        Errno::EBADF => FsError::BadHandle,
        Errno::EROFS => FsError::ReadOnly,
        Errno::EAGAIN => FsError::TryAgain,
        Errno::EINTR => FsError::Interrupted,
        Errno::EIO => FsError::Io,
        Errno::ENXIO | Errno::ENODEV => FsError::NoDevice,
        _ => return None,
    })
}
