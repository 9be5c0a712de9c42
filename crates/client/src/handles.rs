//! Open files and directories of this mount.

use std::collections::HashMap;

use base::Fid;
use wire::mdt::{Access, OpenHandle};

use crate::io::failures::Told;
use crate::io::readahead::ReadAhead;
use crate::statahead::Statahead;

/// An open file or directory, as the kernel names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandleId(pub u64);

/// An open file.
#[derive(Debug)]
pub(crate) struct FileHandle {
    pub fid: Fid,
    pub access: Access,
    pub append: bool,
    pub readahead: ReadAhead,
    /// The MDT's handle of an open for execution, which each has of its own.
    pub exec: Option<OpenHandle>,
    /// What its owner knows of writes that failed.
    pub told: Told,
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct DirHandle {
    pub fid: Fid,
    pub statahead: Statahead,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    last: u64,
    files: HashMap<HandleId, FileHandle>,
    dirs: HashMap<HandleId, DirHandle>,
    /// The handle opened last on each directory.
    dir_by_fid: HashMap<Fid, HandleId>,
}

impl Handles {
    fn next(&mut self) -> HandleId {
        self.last += 1;
        HandleId(self.last)
    }

    pub fn add_file(&mut self, handle: FileHandle) -> HandleId {
        let id = self.next();
        self.files.insert(id, handle);
        id
    }

    pub fn add_dir(&mut self, handle: DirHandle) -> HandleId {
        let id = self.next();
        self.dir_by_fid.insert(handle.fid, id);
        self.dirs.insert(id, handle);
        id
    }

    pub fn file(&mut self, id: HandleId) -> Option<&mut FileHandle> {
        self.files.get_mut(&id)
    }

    pub fn dir(&mut self, id: HandleId) -> Option<&mut DirHandle> {
        self.dirs.get_mut(&id)
    }

    pub fn remove_file(&mut self, id: HandleId) -> Option<FileHandle> {
        self.files.remove(&id)
    }

    pub fn remove_dir(&mut self, id: HandleId) -> Option<DirHandle> {
        let handle = self.dirs.remove(&id)?;
        if self.dir_by_fid.get(&handle.fid) == Some(&id) {
            self.dir_by_fid.remove(&handle.fid);
        }
        Some(handle)
    }

    /// A handle open on the directory.
    pub fn dir_open_on(&self, fid: Fid) -> Option<HandleId> {
        self.dir_by_fid.get(&fid).copied()
    }

    /// The cached bytes of a file are gone: what was read ahead must be read again.
    pub fn forget_readahead(&mut self, fid: Fid) {
        let open = self.files.values_mut().filter(|handle| handle.fid == fid);
        open.for_each(|handle| handle.readahead.reset());
    }

    /// Every file and directory that is open.
    pub fn open_files(&self) -> Vec<Fid> {
        let files = self.files.values().map(|handle| handle.fid);
        let mut fids: Vec<Fid> = files.chain(self.dir_by_fid.keys().copied()).collect();
        fids.sort_unstable();
        fids.dedup();
        fids
    }

    /// Files open, directories open.
    pub fn counts(&self) -> (usize, usize) {
        (self.files.len(), self.dirs.len())
    }
}
