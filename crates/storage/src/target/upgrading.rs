//! How the directory of an OST changes while its objects move from files to extents, for `glint upgrade`
//! (docs/disk.md, "From files to extents").

use std::fs;
use std::io::ErrorKind;

use base::TargetKind;

use super::directory::{
    EXTENTS, EXTENTS_BEGUN, OBJECTS, Result, SUPERBLOCK, Target, rewrite_superblock, sync_dir,
};
use super::error::TargetError;
use super::making::unless_gone;
use crate::extents::{self, StoreId};
use crate::space::SpaceStat;

/// What an upgrade has to do with a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Nothing: it has no objects, or all are on extents.
    Done,
    /// All of its objects are files.
    Files,
    /// An upgrade was interrupted while objects moved.
    Moving,
    /// An upgrade was interrupted when no file was left.
    Moved,
}

impl Target {
    /// How far its upgrade is.
    pub fn stage(&self) -> Stage {
        let is_ost = self.superblock.target.kind == TargetKind::Ost;
        let has_files = self.path.join(OBJECTS).exists();
        match self.superblock.is_upgrading {
            true if has_files => Stage::Moving,
            true => Stage::Moved,
            false if is_ost && has_files && !self.has_extents() => Stage::Files,
            false => Stage::Done,
        }
    }

    /// Makes an empty store of extents, which is of no use yet.
    pub fn make_extents(&self) -> Result<()> {
        self.remove_made_extents()?;
        let begun = self.path.join(EXTENTS_BEGUN);
        let made = extents::make_file(&begun, StoreId(self.superblock.target_uuid.0), None);
        if made.is_err() {
            // What is left is removed by the next upgrade.
            let _ = fs::remove_file(&begun);
        }
        made?;
        sync_dir(&self.path)
    }

    /// Removes that one.
    pub fn remove_made_extents(&self) -> Result<()> {
        let begun = self.path.join(EXTENTS_BEGUN);
        unless_gone(fs::remove_file(&begun), &begun, "remove it")
    }

    /// Refuses where the file system has less than `bytes` left.
    pub fn check_room(&self, bytes: u64) -> Result<()> {
        let path = &self.path;
        let found = nix::sys::statvfs::statvfs(path)
            .map_err(|errno| TargetError::io(path, "stat its file system", &errno.into()))?;
        let available = SpaceStat::of(&found).available;
        match available < bytes {
            false => Ok(()),
            true => Err(TargetError::NoRoom {
                path: path.clone(),
                needed: bytes,
                available,
            }),
        }
    }

    /// From now on its objects move to the extents that were made, and nothing but an upgrade opens it.
    pub fn begin_moving(&mut self) -> Result<()> {
        if !self.superblock.is_upgrading {
            self.superblock.is_upgrading = true;
            rewrite_superblock(&self.path, &self.superblock)?;
        }
        if !self.has_extents() {
            let (begun, at) = (self.path.join(EXTENTS_BEGUN), self.path.join(EXTENTS));
            let moved = fs::rename(&begun, &at);
            moved.map_err(|error| TargetError::io(&begun, "move it to its place", &error))?;
            sync_dir(&self.path)?;
        }
        Ok(())
    }

    /// All of its objects have moved: it may be served.
    pub fn end_moving(&mut self) -> Result<()> {
        let objects = self.path.join(OBJECTS);
        match fs::read_dir(&objects) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(TargetError::io(&objects, "list it", &error)),
            Ok(shelves) => {
                for shelf in shelves {
                    let shelf = shelf.map_err(|e| TargetError::io(&objects, "list it", &e))?;
                    let path = shelf.path();
                    // One that is not empty is not removed.
                    unless_gone(fs::remove_dir(&path), &path, "remove it")?;
                }
                unless_gone(fs::remove_dir(&objects), &objects, "remove it")?;
                sync_dir(&self.path)?;
            }
        }
        if !self.has_extents() {
            return Err(TargetError::Damaged {
                path: self.path.join(SUPERBLOCK),
                why: format!("it says that objects moved to {EXTENTS}, which is missing"),
            });
        }
        self.superblock.is_upgrading = false;
        rewrite_superblock(&self.path, &self.superblock)
    }
}
