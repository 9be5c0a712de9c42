//! Files by id, as the servers keep them: names, attributes, bytes.
//!
//! Errors come in the order in which Linux and its local file systems give them.

use std::collections::BTreeMap;

use base::limits::{LINKS_MAX, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use base::{ByteRange, Fid, FsError, Name, Timestamp};
use wire::FileKind;
use wire::mdt::{Caller, NewFile, RenameMode, SetAttr, SetTime, XattrMode};
use wire::ost::AllocateMode;

use crate::node::{Body, Node, Stat};

const SETGID: u16 = 0o2000;
const STICKY: u16 = 0o1000;

/// A whole file system in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    files: BTreeMap<Fid, Node>,
    /// The time that changes are stamped with; the owner moves it.
    pub now: Timestamp,
}

impl Model {
    /// An empty file system: a root directory of `owner`, mode 0755.
    pub fn new(now: Timestamp, owner: Caller) -> Model {
        let mut model = Model {
            files: BTreeMap::new(),
            now,
        };
        let names = Body::Names {
            names: BTreeMap::new(),
            parent: Fid::ROOT,
        };
        let root = model.node(FileKind::Directory, 0o755, owner, names);
        model.files.insert(Fid::ROOT, root);
        model
    }

    fn node(&self, kind: FileKind, mode: u16, owner: Caller, body: Body) -> Node {
        Node {
            kind,
            mode,
            uid: owner.uid,
            gid: owner.gid,
            nlink: if kind == FileKind::Directory { 2 } else { 1 },
            rdev: 0,
            atime: Some(self.now),
            mtime: Some(self.now),
            ctime: self.now,
            xattrs: BTreeMap::new(),
            body,
            opens: 0,
            linkable: false,
        }
    }

    /// The file, while it has a name or is open.
    pub fn get(&self, fid: Fid) -> Result<&Node, FsError> {
        self.files.get(&fid).ok_or(FsError::Stale)
    }

    fn get_mut(&mut self, fid: Fid) -> Result<&mut Node, FsError> {
        self.files.get_mut(&fid).ok_or(FsError::Stale)
    }

    /// Its attributes.
    pub fn stat(&self, fid: Fid) -> Result<Stat, FsError> {
        Ok(self.get(fid)?.stat())
    }

    /// Every file there is, orphans included.
    pub fn files(&self) -> impl Iterator<Item = (Fid, &Node)> {
        self.files.iter().map(|(fid, node)| (*fid, node))
    }

    fn names(&self, dir: Fid) -> Result<(&BTreeMap<Name, Fid>, Fid), FsError> {
        match &self.get(dir)?.body {
            Body::Names { names, parent } => Ok((names, *parent)),
            _ => Err(FsError::NotDirectory),
        }
    }

    /// The file that `name` names in `dir`.
    pub fn lookup(&self, dir: Fid, name: &Name) -> Result<Fid, FsError> {
        let found = self.names(dir)?.0.get(name).copied();
        found.ok_or(FsError::NotFound)
    }

    /// The directory that holds the directory `dir`; the root holds itself.
    pub fn parent(&self, dir: Fid) -> Result<Fid, FsError> {
        Ok(self.names(dir)?.1)
    }

    /// All names in `dir`, sorted.
    pub fn list(&self, dir: Fid) -> Result<Vec<(Name, Fid, FileKind)>, FsError> {
        let names = self.names(dir)?.0.iter();
        Ok(names
            .map(|(name, fid)| (name.clone(), *fid, self.files[fid].kind))
            .collect())
    }

    /// A name can be made in `dir`, which is there and not removed.
    fn may_create(&self, dir: Fid, name: &Name) -> Result<(), FsError> {
        match self.lookup(dir, name) {
            Ok(_) => Err(FsError::Exists),
            Err(FsError::NotFound) if self.get(dir)?.nlink > 0 => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Each subdirectory is a link to its parent.
    fn may_hold(&self, dir: Fid, directory: bool) -> Result<(), FsError> {
        match directory && self.get(dir)?.nlink >= LINKS_MAX {
            true => Err(FsError::TooManyLinks),
            false => Ok(()),
        }
    }

    /// A sticky directory lets only the file's owner, its own owner and root remove a name.
    fn may_remove(&self, dir: Fid, fid: Fid, caller: Caller) -> Result<(), FsError> {
        let (dir, file) = (self.get(dir)?, self.get(fid)?);
        let owner = caller.uid == 0 || caller.uid == dir.uid || caller.uid == file.uid;
        if dir.mode & STICKY != 0 && !owner {
            return Err(FsError::NotPermitted);
        }
        Ok(())
    }

    fn insert_name(&mut self, dir: Fid, name: &Name, fid: Fid) {
        let moved = self.files.get_mut(&fid).is_some_and(|file| {
            if let Body::Names { parent, .. } = &mut file.body {
                *parent = dir;
            }
            file.is_directory()
        });
        let now = self.now;
        let Some(node) = self.files.get_mut(&dir) else {
            return;
        };
        if let Body::Names { names, .. } = &mut node.body {
            names.insert(name.clone(), fid);
        }
        node.nlink += u32::from(moved);
        (node.mtime, node.ctime) = (Some(now), now);
    }

    fn remove_name(&mut self, dir: Fid, name: &Name, fid: Fid) {
        let directory = self.files.get(&fid).is_some_and(Node::is_directory);
        let now = self.now;
        let Some(node) = self.files.get_mut(&dir) else {
            return;
        };
        if let Body::Names { names, .. } = &mut node.body {
            names.remove(name);
        }
        node.nlink -= u32::from(directory);
        (node.mtime, node.ctime) = (Some(now), now);
    }

    /// A file lost one name; without names and handles it is gone.
    fn drop_link(&mut self, fid: Fid) {
        let now = self.now;
        if let Some(node) = self.files.get_mut(&fid) {
            node.nlink = if node.is_directory() {
                0
            } else {
                node.nlink - 1
            };
            node.ctime = now;
        }
        self.forget_if_gone(fid);
    }

    fn forget_if_gone(&mut self, fid: Fid) {
        if matches!(self.files.get(&fid), Some(node) if node.nlink == 0 && node.opens == 0) {
            self.files.remove(&fid);
        }
    }

    /// Makes `file` under `name`.
    pub fn create(
        &mut self,
        dir: Fid,
        name: &Name,
        file: &NewFile,
        caller: Caller,
    ) -> Result<(), FsError> {
        self.may_create(dir, name)?;
        self.may_hold(dir, file.kind == FileKind::Directory)?;
        let node = self.new_node(dir, file, caller)?;
        self.files.insert(file.fid, node);
        self.insert_name(dir, name, file.fid);
        Ok(())
    }

    /// Makes a regular file without a name, open; `linkable`: it may get one.
    pub fn create_nameless(
        &mut self,
        dir: Fid,
        file: &NewFile,
        caller: Caller,
        linkable: bool,
    ) -> Result<(), FsError> {
        self.names(dir)?;
        if self.get(dir)?.nlink == 0 {
            return Err(FsError::NotFound);
        }
        let mut node = self.new_node(dir, file, caller)?;
        (node.nlink, node.opens, node.linkable) = (0, 1, linkable);
        self.files.insert(file.fid, node);
        Ok(())
    }

    /// A setgid directory gives what is made in it its group, and a subdirectory the bit.
    fn new_node(&self, dir: Fid, file: &NewFile, caller: Caller) -> Result<Node, FsError> {
        let body = match file.kind {
            FileKind::Regular => Body::Bytes(Vec::new()),
            FileKind::Directory => Body::Names {
                names: BTreeMap::new(),
                parent: dir,
            },
            FileKind::Symlink => Body::Target(file.target.clone()),
            _ => Body::Nothing,
        };
        let mut node = self.node(file.kind, file.mode, caller, body);
        node.rdev = file.rdev;
        let home = self.get(dir)?;
        if home.mode & SETGID != 0 {
            node.gid = home.gid;
            node.mode |= if node.is_directory() { SETGID } else { 0 };
        }
        Ok(node)
    }

    /// Gives `fid` one more name.
    pub fn link(&mut self, fid: Fid, dir: Fid, name: &Name) -> Result<(), FsError> {
        self.get(fid)?;
        self.may_create(dir, name)?;
        let now = self.now;
        let node = self.get_mut(fid)?;
        if node.is_directory() {
            return Err(FsError::NotPermitted);
        }
        match node.nlink {
            0 if !node.linkable => return Err(FsError::NotFound),
            LINKS_MAX.. => return Err(FsError::TooManyLinks),
            _ => node.nlink += 1,
        }
        node.linkable = false;
        node.ctime = now;
        self.insert_name(dir, name, fid);
        Ok(())
    }

    /// Removes a name: of an empty directory with `directory`, else of anything else.
    pub fn unlink(
        &mut self,
        dir: Fid,
        name: &Name,
        directory: bool,
        caller: Caller,
    ) -> Result<(), FsError> {
        let fid = self.lookup(dir, name)?;
        self.may_remove(dir, fid, caller)?;
        self.removable_as(fid, directory)?;
        self.remove_name(dir, name, fid);
        self.drop_link(fid);
        Ok(())
    }

    fn removable_as(&self, fid: Fid, directory: bool) -> Result<(), FsError> {
        match (&self.get(fid)?.body, directory) {
            (Body::Names { .. }, false) => Err(FsError::IsDirectory),
            (Body::Names { names, .. }, true) if !names.is_empty() => Err(FsError::NotEmpty),
            (Body::Names { .. }, true) | (_, false) => Ok(()),
            (_, true) => Err(FsError::NotDirectory),
        }
    }

    /// `ancestor` is `fid` or above it.
    fn holds(&self, ancestor: Fid, mut fid: Fid) -> bool {
        loop {
            match self.parent(fid) {
                _ if fid == ancestor => return true,
                Ok(parent) if parent != fid => fid = parent,
                _ => return false,
            }
        }
    }

    /// Moves a name and leaves a whiteout of this id in its place. Two names of one file: nothing
    /// happens.
    pub fn rename_leaving(
        &mut self,
        whiteout: Fid,
        (source_dir, source): (Fid, &Name),
        to: (Fid, &Name),
        mode: RenameMode,
        caller: Caller,
    ) -> Result<(), FsError> {
        if mode == RenameMode::Exchange {
            return Err(FsError::Invalid);
        }
        self.rename((source_dir, source), to, mode, caller)?;
        let file = NewFile {
            fid: whiteout,
            kind: FileKind::CharDevice,
            mode: 0,
            rdev: 0,
            target: Vec::new(),
        };
        match self.create(source_dir, source, &file, caller) {
            Err(FsError::Exists) => Ok(()),
            left => left,
        }
    }

    /// Moves a name. Two names of one file: nothing happens.
    pub fn rename(
        &mut self,
        (source_dir, source): (Fid, &Name),
        (target_dir, target): (Fid, &Name),
        mode: RenameMode,
        caller: Caller,
    ) -> Result<(), FsError> {
        let fid = self.lookup(source_dir, source)?;
        let old = match self.lookup(target_dir, target) {
            Ok(_) if mode == RenameMode::NoReplace => return Err(FsError::Exists),
            Ok(old) => Some(old),
            Err(FsError::NotFound) if mode != RenameMode::Exchange => {
                self.may_create(target_dir, target)?;
                None
            }
            Err(error) => return Err(error),
        };
        self.no_loop(fid, source_dir, old, target_dir, mode)?;
        if old == Some(fid) {
            return Ok(());
        }
        self.may_remove(source_dir, fid, caller)?;
        if let Some(old) = old {
            self.may_remove(target_dir, old, caller)?;
            if mode != RenameMode::Exchange {
                self.removable_as(old, self.get(fid)?.is_directory())?;
            }
        }
        let comes = source_dir != target_dir && self.get(fid)?.is_directory();
        let goes = old.is_some_and(|old| self.files[&old].is_directory());
        self.may_hold(target_dir, comes && !goes)?;
        self.remove_name(source_dir, source, fid);
        if let Some(old) = old {
            self.remove_name(target_dir, target, old);
        }
        self.insert_name(target_dir, target, fid);
        let now = self.now;
        self.get_mut(fid)?.ctime = now;
        match (old, mode) {
            (Some(old), RenameMode::Exchange) => {
                self.insert_name(source_dir, source, old);
                self.get_mut(old)?.ctime = now;
            }
            (Some(old), _) => self.drop_link(old),
            (None, _) => {}
        }
        Ok(())
    }

    /// No directory becomes its own ancestor; none is replaced by what is inside it.
    fn no_loop(
        &self,
        fid: Fid,
        source_dir: Fid,
        old: Option<Fid>,
        target_dir: Fid,
        mode: RenameMode,
    ) -> Result<(), FsError> {
        if self.holds(fid, target_dir) {
            return Err(FsError::Invalid);
        }
        match old {
            Some(old) if self.holds(old, source_dir) => Err(match mode {
                RenameMode::Exchange => FsError::Invalid,
                RenameMode::Replace | RenameMode::NoReplace => FsError::NotEmpty,
            }),
            _ => Ok(()),
        }
    }

    /// Changes attributes; a size given cuts or extends the bytes.
    pub fn set_attr(&mut self, fid: Fid, change: &SetAttr) -> Result<(), FsError> {
        let now = self.now;
        let node = self.get_mut(fid)?;
        let time = |set: Option<SetTime>, old| match set {
            None => old,
            Some(SetTime::Now) => Some(now),
            Some(SetTime::At(at)) => Some(at),
        };
        node.mode = change.mode.unwrap_or(node.mode);
        node.uid = change.uid.unwrap_or(node.uid);
        node.gid = change.gid.unwrap_or(node.gid);
        node.atime = time(change.atime, node.atime);
        node.mtime = time(change.mtime, node.mtime);
        node.ctime = change.ctime.unwrap_or(now);
        if !node.is_directory() {
            node.mode = change.privileges.left_of(node.mode);
        }
        match change.size {
            Some(update) => self.truncate(fid, update.size),
            None => Ok(()),
        }
    }

    /// Counts a handle: the file stays until the last is closed.
    pub fn open(&mut self, fid: Fid) -> Result<(), FsError> {
        self.get_mut(fid)?.opens += 1;
        Ok(())
    }

    /// Ends a handle.
    pub fn close(&mut self, fid: Fid) -> Result<(), FsError> {
        let node = self.get_mut(fid)?;
        node.opens = node.opens.checked_sub(1).ok_or(FsError::BadHandle)?;
        self.forget_if_gone(fid);
        Ok(())
    }

    fn bytes(&mut self, fid: Fid) -> Result<&mut Vec<u8>, FsError> {
        match &mut self.get_mut(fid)?.body {
            Body::Bytes(bytes) => Ok(bytes),
            Body::Names { .. } => Err(FsError::IsDirectory),
            Body::Target(_) | Body::Nothing => Err(FsError::Invalid),
        }
    }

    fn touch(&mut self, fid: Fid, mtime: Option<Timestamp>) -> Result<(), FsError> {
        let now = self.now;
        let node = self.get_mut(fid)?;
        (node.mtime, node.ctime) = (mtime, now);
        Ok(())
    }

    /// Up to `len` bytes from `offset`.
    pub fn read(&mut self, fid: Fid, offset: u64, len: usize) -> Result<Vec<u8>, FsError> {
        let bytes = self.bytes(fid)?;
        let start = (offset as usize).min(bytes.len());
        let end = start.saturating_add(len).min(bytes.len());
        let read = bytes[start..end].to_vec();
        self.get_mut(fid)?.atime = None;
        Ok(read)
    }

    /// Writes `data` at `offset`; zeros fill what lies between the old end and it.
    pub fn write(&mut self, fid: Fid, offset: u64, data: &[u8]) -> Result<(), FsError> {
        let bytes = self.bytes(fid)?;
        if data.is_empty() {
            return Ok(());
        }
        let (start, end) = (offset as usize, offset as usize + data.len());
        bytes.resize(bytes.len().max(end), 0);
        bytes[start..end].copy_from_slice(data);
        self.touch(fid, Some(self.now))
    }

    /// Writes at the end.
    pub fn append(&mut self, fid: Fid, data: &[u8]) -> Result<(), FsError> {
        let end = self.bytes(fid)?.len() as u64;
        self.write(fid, end, data)
    }

    /// Cuts or extends with zeros. Whether mtime moves when the size stays is left open.
    pub fn truncate(&mut self, fid: Fid, size: u64) -> Result<(), FsError> {
        let now = self.now;
        let bytes = self.bytes(fid)?;
        let changed = bytes.len() as u64 != size;
        bytes.resize(size as usize, 0);
        self.touch(fid, changed.then_some(now))
    }

    /// Reserves, frees or zeroes a range of a regular file.
    pub fn allocate(
        &mut self,
        fid: Fid,
        range: ByteRange,
        mode: AllocateMode,
    ) -> Result<(), FsError> {
        let bytes = self.bytes(fid)?;
        if range.is_empty() {
            return Err(FsError::Invalid);
        }
        let (start, end) = (range.start as usize, range.end as usize);
        if matches!(mode, AllocateMode::Extend | AllocateMode::Zero) {
            bytes.resize(bytes.len().max(end), 0);
        }
        let zeroes = !matches!(mode, AllocateMode::Extend | AllocateMode::KeepSize);
        if zeroes && start < bytes.len() {
            let end = end.min(bytes.len());
            bytes[start..end].fill(0);
        }
        self.touch(fid, None)
    }

    /// A symlink's target.
    pub fn read_link(&mut self, fid: Fid) -> Result<Vec<u8>, FsError> {
        let node = self.get_mut(fid)?;
        node.atime = None;
        match &node.body {
            Body::Target(target) => Ok(target.clone()),
            _ => Err(FsError::Invalid),
        }
    }

    /// One extended attribute.
    pub fn xattr(&self, fid: Fid, name: &[u8]) -> Result<Vec<u8>, FsError> {
        let node = self.get(fid)?;
        xattr_namespace(node.kind, name, FsError::NoAttribute)?;
        node.xattrs.get(name).cloned().ok_or(FsError::NoAttribute)
    }

    /// The names of all extended attributes, sorted.
    pub fn xattrs(&self, fid: Fid) -> Result<Vec<Vec<u8>>, FsError> {
        Ok(self.get(fid)?.xattrs.keys().cloned().collect())
    }

    /// Sets one extended attribute.
    pub fn set_xattr(
        &mut self,
        fid: Fid,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), FsError> {
        if name.is_empty() || name.len() > XATTR_NAME_BYTES_MAX {
            return Err(FsError::Range);
        }
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(FsError::TooLarge);
        }
        let now = self.now;
        let node = self.get_mut(fid)?;
        xattr_namespace(node.kind, name, FsError::NotPermitted)?;
        match (mode, node.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => return Err(FsError::Exists),
            (XattrMode::Replace, false) => return Err(FsError::NoAttribute),
            _ => node.xattrs.insert(name.to_vec(), value.to_vec()),
        };
        node.ctime = now;
        Ok(())
    }

    /// Removes one extended attribute.
    pub fn remove_xattr(&mut self, fid: Fid, name: &[u8]) -> Result<(), FsError> {
        let now = self.now;
        let node = self.get_mut(fid)?;
        xattr_namespace(node.kind, name, FsError::NotPermitted)?;
        node.xattrs.remove(name).ok_or(FsError::NoAttribute)?;
        node.ctime = now;
        Ok(())
    }
}

/// Only files and directories have user attributes (`otherwise` on the rest); other namespaces than
/// user, trusted and security do not exist.
fn xattr_namespace(kind: FileKind, name: &[u8], otherwise: FsError) -> Result<(), FsError> {
    let plain = matches!(kind, FileKind::Regular | FileKind::Directory);
    let is_empty = [&b"user."[..], b"trusted.", b"security."].contains(&name);
    if is_empty && (plain || name != b"user.") {
        return Err(FsError::Invalid);
    }
    if name.starts_with(b"user.") {
        return if plain { Ok(()) } else { Err(otherwise) };
    }
    match name.starts_with(b"trusted.") || name.starts_with(b"security.") {
        true => Ok(()),
        false => Err(FsError::NotSupported),
    }
}
