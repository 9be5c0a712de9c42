//! The files that a set touches, each once, as they are by what has been done of the set so far.

use base::{Fid, FsError, Name, Timestamp};
use dlm::IdMap;
use wire::mdt::Access;

use super::wrong::{Checked, Of, refuse};
use crate::keys::Spot;
use crate::ops::context::Ctx;
use crate::records::{Inode, Place};
use crate::txn::File;

/// A new name of a file.
#[derive(Debug)]
pub struct Gained<'r> {
    pub spot: Spot,
    pub name: &'r Name,
}

/// A file that the set touches.
#[derive(Debug)]
pub struct Touched<'r> {
    /// As it is stored, with the attributes that it is to have.
    pub file: File,
    /// The last change of its names; else the first that is about it.
    pub change: usize,
    /// The first change that is about it; of a new file, the one that makes it.
    pub first: usize,
    /// It is new.
    pub is_made: bool,
    /// The use that a new file is registered with.
    pub open: Option<Access>,
    /// Names that it loses.
    pub lost: Vec<Spot>,
    /// Names that it gets.
    pub gained: Vec<Gained<'r>>,
    /// Its attributes change.
    pub is_changed: bool,
    /// Of a directory: by how many names, and by how many of directories, it grows.
    pub entries: i64,
    pub subdirs: i32,
    /// Names in it change.
    pub has_new_names: bool,
    /// Its attributes were set, its size was told: once is all.
    pub is_set: bool,
    pub is_sized: bool,
}

impl<'r> Touched<'r> {
    fn new(file: File, change: usize, is_made: bool) -> Touched<'r> {
        Touched {
            file,
            change,
            first: change,
            is_made,
            open: None,
            lost: Vec::new(),
            gained: Vec::new(),
            is_changed: is_made,
            entries: 0,
            subdirs: 0,
            has_new_names: false,
            is_set: false,
            is_sized: false,
        }
    }

    /// Its attributes changed at this time.
    pub fn changed(&mut self, ctx: &Ctx<'_, '_>, ctime: Timestamp) {
        self.is_changed = true;
        let inode = &mut self.file.inode;
        inode.ctime = bounded(ctx, ctime, inode.ctime);
    }

    /// The names that it will have, where it is no directory.
    pub fn links(&self) -> u64 {
        let stored = if self.is_made {
            0
        } else {
            self.file.inode.nlink
        };
        (u64::from(stored) + self.gained.len() as u64).saturating_sub(self.lost.len() as u64)
    }
}

/// All of them, the set's directories first.
#[derive(Debug)]
pub struct Files<'r> {
    pub all: Vec<Touched<'r>>,
    places: IdMap<Fid, usize>,
    /// How many of them are the set's directories.
    dirs: usize,
}

impl<'r> Files<'r> {
    pub fn with_room(count: usize) -> Files<'r> {
        Files {
            all: Vec::with_capacity(count),
            places: IdMap::with_capacity_and_hasher(count, Default::default()),
            dirs: 0,
        }
    }

    /// One of the set's directories, before any other file.
    pub fn add_dir(&mut self, fid: Fid, place: Place, inode: Inode) {
        self.dirs += 1;
        self.insert(Touched::new(File { fid, place, inode }, 0, false));
    }

    /// A new file.
    pub fn add_made(&mut self, file: File, change: usize) -> Checked<&mut Touched<'r>> {
        if self.places.contains_key(&file.fid) {
            return refuse(change, FsError::Invalid);
        }
        let at = self.insert(Touched::new(file, change, true));
        Ok(&mut self.all[at])
    }

    fn insert(&mut self, touched: Touched<'r>) -> usize {
        let at = self.all.len();
        self.places.insert(touched.file.fid, at);
        self.all.push(touched);
        at
    }

    /// Of the set's directories, the one at that place.
    pub fn dir(&mut self, dir: u8) -> &mut Touched<'r> {
        &mut self.all[usize::from(dir)]
    }

    /// The set's directories.
    pub fn dirs(&self) -> &[Touched<'r>] {
        &self.all[..self.dirs]
    }

    pub fn get(&self, fid: Fid) -> Option<&Touched<'r>> {
        self.places.get(&fid).map(|at| &self.all[*at])
    }

    pub fn is_dir_of_set(&self, fid: Fid) -> bool {
        self.places.get(&fid).is_some_and(|at| *at < self.dirs)
    }

    /// The file `fid`, which is new or stored.
    pub fn touch(
        &mut self,
        ctx: &Ctx<'_, '_>,
        fid: Fid,
        change: usize,
    ) -> Checked<&mut Touched<'r>> {
        let at = match self.places.get(&fid) {
            Some(at) => *at,
            None => {
                let file = ctx.txn.file(fid).of(change)?;
                self.insert(Touched::new(file, change, false))
            }
        };
        Ok(&mut self.all[at])
    }
}

/// A time of the client's clock: never in the server's future, never before the one that it follows.
pub fn bounded(ctx: &Ctx<'_, '_>, time: Timestamp, before: Timestamp) -> Timestamp {
    time.min(ctx.txn.now).later(before)
}
