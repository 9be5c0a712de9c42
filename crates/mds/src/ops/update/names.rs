//! Names of a set: all that go are detached before any is attached.

use base::{Fid, FsError, Name, Timestamp};
use wire::update::{Change, Replacement, Told};

use super::Set;
use super::files::{Gained, Touched, bounded};
use super::wrong::{Checked, Of, refuse};
use crate::keys::Spot;
use crate::mutation::Mutation;
use crate::namespace::may_be_named;
use crate::ops::context::Ctx;
use crate::records::Dirent;
use wire::hash;

impl<'r> Set<'r> {
    /// Takes away the names that go or are replaced.
    pub(super) fn detach(&mut self, ctx: &mut Ctx<'_, '_>) -> Checked<()> {
        for (change, one) in self.changes.iter().enumerate() {
            if self.done.contains(&change) {
                continue;
            }
            let (dir, name, fid, ctime) = match one {
                Change::Remove {
                    dir,
                    name,
                    fid,
                    ctime,
                } => (*dir, name, *fid, *ctime),
                Change::Replace {
                    dir,
                    name,
                    old,
                    ctime,
                    ..
                } => (*dir, name, *old, *ctime),
                _ => continue,
            };
            let (spot, dirent) = ctx.txn.find_some(self.dir(dir), name).of(change)?;
            if dirent.fid != fid {
                return refuse(change, FsError::Stale);
            }
            let file = self.files.touch(ctx, fid, change)?;
            file.change = change;
            file.lost.push(spot);
            file.changed(ctx, ctime);
            let is_dir = file.file.inode.is_dir();
            match one {
                Change::Remove { .. } => ctx.txn.change(Mutation::RemoveDirent(spot)),
                // Its place stays taken, for the file that the name gets.
                _ => self.replaced.push_back(spot),
            }
            self.count(dir, -1, is_dir);
        }
        Ok(())
    }

    /// Puts new and known files under their new names.
    pub(super) fn attach(&mut self, ctx: &mut Ctx<'_, '_>) -> Checked<()> {
        for (change, one) in self.changes.iter().enumerate() {
            match one {
                Change::Make { .. } | Change::Replace { .. } if self.done.contains(&change) => {}
                Change::Make { dir, name, made } => {
                    let spot = self.free_spot(ctx, (*dir, name), change)?;
                    self.put(ctx, (*dir, name), (spot, made.file.fid), change)?;
                }
                Change::Link {
                    dir,
                    name,
                    fid,
                    ctime,
                } => {
                    let spot = self.free_spot(ctx, (*dir, name), change)?;
                    self.link(ctx, (*fid, *ctime), change)?;
                    self.put(ctx, (*dir, name), (spot, *fid), change)?;
                }
                Change::Replace { dir, name, new, .. } => {
                    let spot = self.replaced.pop_front().ok_or(FsError::Invalid);
                    let spot = spot.of(change)?;
                    let fid = match new {
                        Replacement::Made(made) => made.file.fid,
                        Replacement::Linked { fid, ctime } => {
                            self.link(ctx, (*fid, *ctime), change)?;
                            *fid
                        }
                    };
                    self.put(ctx, (*dir, name), (spot, fid), change)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn free_spot(
        &mut self,
        ctx: &Ctx<'_, '_>,
        (dir, name): (u8, &Name),
        change: usize,
    ) -> Checked<Spot> {
        let is_empty = self.files.dir(dir).file.inode.entries == 0;
        let spot = ctx.txn.free_spot_in(self.dir(dir), is_empty, name);
        let spot = spot.of(change)?;
        if spot.cookie != hash::bucket(hash::hash_of(spot.cookie)).0 {
            self.note(change, Told::Cookie(spot.cookie));
        }
        Ok(spot)
    }

    /// A file that is there gets one more name.
    fn link(
        &mut self,
        ctx: &Ctx<'_, '_>,
        (fid, ctime): (Fid, Timestamp),
        change: usize,
    ) -> Checked<()> {
        let is_nameless = |file: &Touched<'_>| !file.is_made && file.file.inode.nlink == 0;
        if is_nameless(self.files.touch(ctx, fid, change)?) {
            if !may_be_named(ctx.txn, fid).of(change)? {
                return refuse(change, FsError::NotFound);
            }
        } else {
            self.at_home(ctx, fid, change)?;
        }
        let file = self.files.touch(ctx, fid, change)?;
        file.changed(ctx, ctime);
        Ok(())
    }

    /// Whether the record is in the entry is settled when all names are known.
    fn put(
        &mut self,
        ctx: &mut Ctx<'_, '_>,
        (dir, name): (u8, &'r Name),
        (spot, fid): (Spot, Fid),
        change: usize,
    ) -> Checked<()> {
        let file = self.files.touch(ctx, fid, change)?;
        let kind = file.file.inode.kind;
        file.change = change;
        file.gained.push(Gained { spot, name });
        let is_dir = file.file.inode.is_dir();
        let dirent = Dirent {
            name: name.clone(),
            fid,
            kind,
            inode: None,
        };
        ctx.txn.change(Mutation::PutDirent(spot, dirent));
        self.count(dir, 1, is_dir);
        Ok(())
    }

    fn count(&mut self, dir: u8, names: i64, is_dir: bool) {
        let dir = self.files.dir(dir);
        dir.entries += names;
        dir.subdirs += if is_dir { names as i32 } else { 0 };
        dir.has_new_names = true;
        dir.is_changed = true;
    }

    /// A directory's times follow from the last change of its names.
    pub(super) fn date_dirs(&mut self, ctx: &Ctx<'_, '_>) {
        let leased = self.dirs.iter();
        for (leased, dir) in leased.zip(&mut self.files.all) {
            if dir.has_new_names {
                let inode = &mut dir.file.inode;
                let changed = bounded(ctx, leased.changed, inode.ctime);
                (inode.mtime, inode.ctime) = (changed, changed);
            }
        }
    }
}
