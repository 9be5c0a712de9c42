//! Path-level calls on the model: what the kernel's VFS adds to the file system below it.

use base::{ByteRange, Fid, FsError, Name};
use wire::FileKind;
use wire::mdt::{Caller, NewFile, Privileges, RenameMode, SetAttr, SetTime};
use wire::ost::AllocateMode;

use crate::namespace::Model;
use crate::node::Node;
use crate::op::{Op, OpenHow, Outcome, SLOTS, Seen};

/// An open file.
#[derive(Debug, Clone, Copy)]
struct Handle {
    fid: Fid,
    how: OpenHow,
}

/// A process that works on a [`Model`] of its own.
#[derive(Debug, Clone)]
pub struct Process {
    /// The file system.
    pub model: Model,
    caller: Caller,
    slots: [Option<Handle>; SLOTS as usize],
    minted: u32,
}

/// Where a path leads: the directory, and the last name if it is one.
type Place = (Fid, Result<Name, FsError>);

impl Process {
    /// A process of `caller`, with nothing open.
    pub fn new(model: Model, caller: Caller) -> Process {
        Process {
            model,
            caller,
            slots: [None; SLOTS as usize],
            minted: 0,
        }
    }

    /// Makes one call; the model's clock moves by a nanosecond.
    pub fn apply(&mut self, op: &Op) -> Outcome {
        self.model.now.nanos += 1;
        match op {
            Op::Read { .. }
            | Op::Write { .. }
            | Op::SetLength { .. }
            | Op::Allocate { .. }
            | Op::Fstat { .. }
            | Op::Fsync { .. }
            | Op::Close { .. }
            | Op::Open { .. }
            | Op::OpenNameless { .. }
            | Op::LinkOpen { .. } => self.on_handle(op),
            Op::Stat { .. } | Op::ReadLink { .. } | Op::List { .. } => self.look(op),
            Op::SetXattr { .. }
            | Op::GetXattr { .. }
            | Op::ListXattrs { .. }
            | Op::RemoveXattr { .. } => self.on_xattrs(op),
            Op::Chmod { .. } | Op::Chown { .. } | Op::SetTimes { .. } | Op::Truncate { .. } => {
                self.change(op)
            }
            _ => self.on_names(op),
        }
    }

    /// The file at `path`; a symlink at its end is not followed.
    pub fn find(&self, path: &str) -> Result<Fid, FsError> {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        parts.try_fold(Fid::ROOT, |dir, part| {
            if self.model.get(dir)?.kind == FileKind::Symlink {
                return Err(FsError::NotFound);
            }
            self.model.parent(dir)?;
            self.model.lookup(dir, &name_of(part)?)
        })
    }

    /// The file at `path`; a symlink at its end leads to nothing.
    fn follow(&self, path: &str) -> Result<Fid, FsError> {
        let fid = self.find(path)?;
        match self.model.get(fid)?.kind {
            FileKind::Symlink => Err(FsError::NotFound),
            _ => Ok(fid),
        }
    }

    fn place(&self, path: &str) -> Result<Place, FsError> {
        let (above, last) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = self.follow(above)?;
        self.model.parent(dir)?;
        Ok((dir, name_of(last)))
    }

    fn place_now(&self, path: &str) -> Result<(Fid, Name), FsError> {
        let (dir, name) = self.place(path)?;
        Ok((dir, name?))
    }

    fn make(
        &mut self,
        path: &str,
        kind: FileKind,
        (mode, rdev): (u16, u32),
        target: &[u8],
    ) -> Result<Fid, FsError> {
        let (dir, name) = self.place_now(path)?;
        let file = NewFile {
            fid: self.mint(),
            kind,
            mode,
            rdev,
            target: target.to_vec(),
        };
        self.model.create(dir, &name, &file, self.caller)?;
        Ok(file.fid)
    }

    fn on_names(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Mkdir { path, mode } => {
                self.make(path, FileKind::Directory, (mode & 0o1777, 0), b"")?;
            }
            Op::Mknod {
                path,
                kind,
                mode,
                rdev,
            } => {
                self.make(path, *kind, (*mode, *rdev), b"")?;
            }
            Op::Symlink { path, target } => {
                self.make(path, FileKind::Symlink, (0o777, 0), target.as_bytes())?;
            }
            Op::Link { from, to } => {
                let fid = self.find(from)?;
                let (dir, name) = self.place_now(to)?;
                self.model.link(fid, dir, &name)?;
            }
            Op::Unlink { path } => self.remove(path, false)?,
            Op::Rmdir { path } => self.remove(path, true)?,
            Op::Rename {
                from,
                to,
                mode,
                whiteout,
            } => self.rename(from, to, *mode, *whiteout)?,
            _ => unreachable!("apply sends only calls about names"),
        }
        Ok(Seen::Nothing)
    }

    fn remove(&mut self, path: &str, directory: bool) -> Result<(), FsError> {
        let (dir, name) = self.place_now(path)?;
        self.model.unlink(dir, &name, directory, self.caller)
    }

    fn rename(
        &mut self,
        from: &str,
        to: &str,
        mode: RenameMode,
        whiteout: bool,
    ) -> Result<(), FsError> {
        if whiteout && mode == RenameMode::Exchange {
            return Err(FsError::Invalid);
        }
        let ((source_dir, source), (target_dir, target)) = (self.place(from)?, self.place(to)?);
        let source = source?;
        self.model.lookup(source_dir, &source)?;
        let (from, target) = ((source_dir, &source), target?);
        let to = (target_dir, &target);
        if !whiteout {
            return self.model.rename(from, to, mode, self.caller);
        }
        let left = self.mint();
        self.model.rename_leaving(left, from, to, mode, self.caller)
    }

    fn mint(&mut self) -> Fid {
        self.minted += 1;
        Fid::new(Fid::SEQUENCE_FIRST, self.minted)
    }

    fn look(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Stat { path } => Ok(Seen::Stat(self.model.stat(self.find(path)?)?)),
            Op::ReadLink { path } => Ok(Seen::Bytes(self.model.read_link(self.find(path)?)?)),
            Op::List { path } => {
                let listed = self.model.list(self.follow(path)?)?.into_iter();
                Ok(Seen::Names(
                    listed
                        .map(|(name, _, kind)| (name.as_bytes().to_vec(), kind))
                        .collect(),
                ))
            }
            _ => unreachable!("apply sends only calls that look"),
        }
    }

    fn on_xattrs(&mut self, op: &Op) -> Outcome {
        match op {
            Op::SetXattr {
                path,
                name,
                value,
                mode,
            } => {
                if value.len() > base::limits::XATTR_VALUE_BYTES_MAX {
                    return Err(FsError::TooLarge);
                }
                let fid = self.find(path)?;
                self.model.set_xattr(fid, name.as_bytes(), value, *mode)?;
            }
            Op::GetXattr { path, name } => {
                let value = self.model.xattr(self.find(path)?, name.as_bytes())?;
                return Ok(Seen::Bytes(value));
            }
            Op::ListXattrs { path } => {
                return Ok(Seen::Xattrs(self.model.xattrs(self.find(path)?)?));
            }
            Op::RemoveXattr { path, name } => {
                let fid = self.find(path)?;
                self.model.remove_xattr(fid, name.as_bytes())?;
            }
            _ => unreachable!("apply sends only calls about attributes"),
        }
        Ok(Seen::Nothing)
    }

    fn change(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Chmod { path, mode } => {
                let change = SetAttr {
                    mode: Some(*mode),
                    ..SetAttr::default()
                };
                self.model.set_attr(self.follow(path)?, &change)?;
            }
            Op::Chown { path, uid, gid } => {
                let fid = self.find(path)?;
                let node = self.model.get(fid)?;
                let left = Privileges::Drop.left_of(node.mode);
                let change = SetAttr {
                    mode: (!node.is_directory()).then_some(left),
                    uid: *uid,
                    gid: *gid,
                    ..SetAttr::default()
                };
                self.model.set_attr(fid, &change)?;
            }
            Op::SetTimes { path, atime, mtime } => return self.set_times(path, *atime, *mtime),
            Op::Truncate { path, size } => self.model.truncate(self.follow(path)?, *size)?,
            _ => unreachable!("apply sends only calls that change attributes"),
        }
        Ok(Seen::Nothing)
    }

    fn set_times(&mut self, path: &str, atime: Option<SetTime>, mtime: Option<SetTime>) -> Outcome {
        let change = SetAttr {
            atime,
            mtime,
            ..SetAttr::default()
        };
        self.model.set_attr(self.find(path)?, &change)?;
        let fixed = |set| match set {
            Some(SetTime::At(at)) => Some(at),
            Some(SetTime::Now) | None => None,
        };
        Ok(Seen::Times(fixed(atime), fixed(mtime)))
    }

    fn handle(&self, slot: u8) -> Option<Handle> {
        self.slots[usize::from(slot)]
    }

    fn on_handle(&mut self, op: &Op) -> Outcome {
        if let Op::Open {
            slot,
            path,
            how,
            mode,
        } = op
        {
            self.close(*slot)?;
            return self.open(*slot, path, *how, *mode);
        }
        if let Op::OpenNameless {
            slot,
            path,
            how,
            mode,
        } = op
        {
            self.close(*slot)?;
            return self.open_nameless(*slot, path, *how, *mode);
        }
        let slot = op.slot().unwrap_or_default();
        match self.handle(slot) {
            None => Ok(Seen::Skipped),
            Some(handle) => self.with_handle(handle, op),
        }
    }

    fn close(&mut self, slot: u8) -> Result<(), FsError> {
        match self.slots[usize::from(slot)].take() {
            Some(handle) => self.model.close(handle.fid),
            None => Ok(()),
        }
    }

    fn open(&mut self, slot: u8, path: &str, how: OpenHow, mode: u16) -> Outcome {
        let found = self.find(path);
        if let Some(node) = found.ok().and_then(|fid| self.model.get(fid).ok())
            && is_special(node)
        {
            return Ok(Seen::Skipped);
        }
        let fid = match found {
            Ok(_) if how.exclusive => return Err(FsError::Exists),
            Ok(fid) => fid,
            Err(FsError::NotFound) if how.create => {
                self.make(path, FileKind::Regular, (mode, 0), b"")?
            }
            Err(error) => return Err(error),
        };
        match self.model.get(fid)?.kind {
            FileKind::Symlink if how.create && self.is_guarded(path, fid)? => {
                return Err(FsError::AccessDenied);
            }
            FileKind::Symlink => return Err(FsError::Loop),
            FileKind::Directory if how.write || how.create => return Err(FsError::IsDirectory),
            _ => {}
        }
        if how.truncate {
            self.model.truncate(fid, 0)?;
        }
        self.model.open(fid)?;
        self.slots[usize::from(slot)] = Some(Handle { fid, how });
        Ok(Seen::Nothing)
    }

    fn open_nameless(&mut self, slot: u8, path: &str, how: OpenHow, mode: u16) -> Outcome {
        // A symlink is no directory, and not followed.
        let dir = self.find(path)?;
        let file = NewFile {
            fid: self.mint(),
            kind: FileKind::Regular,
            mode,
            rdev: 0,
            target: Vec::new(),
        };
        let linkable = !how.exclusive;
        self.model
            .create_nameless(dir, &file, self.caller, linkable)?;
        let fid = file.fid;
        self.slots[usize::from(slot)] = Some(Handle { fid, how });
        Ok(Seen::Nothing)
    }

    /// In a sticky directory that all may write to, the kernel lets `O_CREAT` open only what is the
    /// caller's or the directory's owner's. (Of files this is a setting, and off by default.)
    fn is_guarded(&self, path: &str, fid: Fid) -> Result<bool, FsError> {
        let (dir, _) = self.place(path)?;
        let (dir, file) = (self.model.get(dir)?, self.model.get(fid)?);
        let open_to_all = dir.mode & 0o1002 == 0o1002;
        Ok(open_to_all && file.uid != dir.uid && file.uid != self.caller.uid)
    }

    fn with_handle(&mut self, Handle { fid, how }: Handle, op: &Op) -> Outcome {
        let reads = how.read || !how.write;
        match *op {
            Op::Close { slot } => self.close(slot)?,
            Op::Read { .. } if !reads => return Err(FsError::BadHandle),
            Op::Read { offset, len, .. } => {
                return Ok(Seen::Bytes(self.model.read(fid, offset, len)?));
            }
            Op::Write { .. } if !how.write => return Err(FsError::BadHandle),
            Op::Write {
                offset, len, fill, ..
            } => {
                let data = Op::data(len, fill);
                match how.append {
                    true => self.model.append(fid, &data)?,
                    false => self.model.write(fid, offset, &data)?,
                }
                return Ok(Seen::Count(len));
            }
            Op::SetLength { .. } if !how.write => return Err(FsError::Invalid),
            Op::SetLength { size, .. } => self.model.truncate(fid, size)?,
            Op::Allocate {
                offset, len, mode, ..
            } => self.allocate(fid, how, (offset, len), mode)?,
            Op::Fstat { .. } => return Ok(Seen::Stat(self.model.stat(fid)?)),
            Op::LinkOpen { ref to, .. } => {
                let (dir, name) = self.place_now(to)?;
                self.model.link(fid, dir, &name)?;
            }
            _ => {}
        }
        Ok(Seen::Nothing)
    }

    fn allocate(
        &mut self,
        fid: Fid,
        how: OpenHow,
        (offset, len): (u64, u64),
        mode: AllocateMode,
    ) -> Result<(), FsError> {
        let range = ByteRange::at(offset, len).filter(|range| !range.is_empty());
        let range = range.ok_or(FsError::Invalid)?;
        if !how.write {
            return Err(FsError::BadHandle);
        }
        self.model.allocate(fid, range, mode)
    }
}

/// Opening it would wait for a peer or reach a driver.
fn is_special(node: &Node) -> bool {
    use FileKind::{BlockDevice, CharDevice, Fifo, Socket};
    matches!(node.kind, Fifo | Socket | CharDevice | BlockDevice)
}

fn name_of(part: &str) -> Result<Name, FsError> {
    Name::try_from(part).map_err(|error| match error {
        base::NameError::TooLong => FsError::NameTooLong,
        base::NameError::Invalid => FsError::Invalid,
    })
}
