//! Attributes and sizes that a set brings.

use base::{Fid, FsError};
use wire::SizeState;
use wire::mdt::{OpenHandle, Reply, SizeUpdate};
use wire::update::{AttrUpdate, Change, Told};

use super::Set;
use super::files::{Touched, bounded};
use super::wrong::{Checked, Of, refuse};
use crate::keys::{self, Spot, Table};
use crate::ops::access;
use crate::ops::context::Ctx;
use crate::records::Place;
use storage::KeyRange;

impl<'r> Set<'r> {
    pub(super) fn change_attributes(&mut self, ctx: &mut Ctx<'_, '_>) -> Checked<()> {
        for (change, one) in self.changes.iter().enumerate() {
            match one {
                Change::SetAttr { fid, attr } => self.set_attr(ctx, *fid, attr, change)?,
                Change::Size { fid, size, handle } => {
                    self.size(ctx, (*fid, *handle), size, change)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn set_attr(
        &mut self,
        ctx: &Ctx<'_, '_>,
        fid: Fid,
        attr: &AttrUpdate,
        change: usize,
    ) -> Checked<()> {
        let file = self.at_home(ctx, fid, change)?;
        if file.is_set || attr.mode.is_some_and(|mode| mode > 0o7777) {
            return refuse(change, FsError::Invalid);
        }
        file.is_set = true;
        file.changed(ctx, attr.ctime);
        let inode = &mut file.file.inode;
        inode.mode = attr.mode.unwrap_or(inode.mode);
        inode.uid = attr.uid.unwrap_or(inode.uid);
        inode.gid = attr.gid.unwrap_or(inode.gid);
        if let Some(atime) = attr.atime {
            // The clock's, or one that a program has set.
            inode.atime = match atime == attr.ctime {
                true => inode.ctime,
                false => atime,
            };
        }
        if let Some((mtime, set)) = attr.mtime {
            inode.mtime_set = bounded(ctx, set, inode.mtime_set);
            inode.mtime = match mtime == set {
                true => inode.mtime_set,
                false => mtime,
            };
        }
        Ok(())
    }

    fn size(
        &mut self,
        ctx: &Ctx<'_, '_>,
        (fid, handle): (Fid, OpenHandle),
        size: &SizeUpdate,
        change: usize,
    ) -> Checked<()> {
        let client = ctx.who.client;
        let file = self.at_home(ctx, fid, change)?;
        let writes = file.open.is_some_and(|open| open.write);
        if file.is_sized || (file.is_made && handle != OpenHandle::default()) {
            return refuse(change, FsError::Invalid);
        }
        file.is_sized = true;
        let is_told_again = ctx.replay.is_some();
        let ends = handle != OpenHandle::default() && !is_told_again;
        if ends && !ctx.opens.get(handle, client, fid).of(change)?.access.write {
            return refuse(change, FsError::BadHandle);
        }
        let is_known = is_told_again || file.is_made || ends || ctx.opens.is_writer(fid, client);
        if !is_known && !ctx.grace {
            return refuse(change, FsError::Invalid);
        }
        let is_alone = match ctx.replay {
            Some(answer) => !writes && !was_inexact(answer, change),
            None if file.is_made => !writes,
            None if ends => ctx.opens.knows_bytes(fid, handle) && !ctx.grace,
            None => !ctx.opens.has_writer(fid) && !ctx.grace,
        };
        let told = SizeUpdate {
            mtime: size.mtime.min(ctx.txn.now),
            ..*size
        };
        let inode = &mut file.file.inode;
        if is_known {
            access::set_size(inode, &told, is_alone).of(change)?;
        } else {
            // A writer that has yet to tell of itself after a restart: OSTs know the size.
            inode.size_state = SizeState::Ask;
        }
        inode.written = true;
        let is_inexact = inode.size_state != SizeState::Strict;
        file.changed(ctx, told.mtime);
        if size.committed && is_inexact && !writes {
            self.note(change, Told::Inexact);
        }
        if ends {
            self.ended.push(handle);
        }
        Ok(())
    }

    /// The file, which is new, or named in a directory of the set, or one of those.
    pub(super) fn at_home(
        &mut self,
        ctx: &Ctx<'_, '_>,
        fid: Fid,
        change: usize,
    ) -> Checked<&mut Touched<'r>> {
        let is_dir_of_set = self.files.is_dir_of_set(fid);
        let dirs = self.dirs;
        let file = self.files.touch(ctx, fid, change)?;
        let is_in = |spot: Spot| dirs.iter().any(|leased| leased.dir == spot.dir);
        let is_named = |file: &Touched<'_>| !file.lost.is_empty() || !file.gained.is_empty();
        let is_at_home = match file.file.place {
            _ if file.is_made || is_dir_of_set || is_named(file) => true,
            Place::Entry(spot) | Place::Directory(spot) => is_in(spot),
            Place::Own => {
                let mut found = false;
                for leased in dirs {
                    found |= is_linked_in(ctx, fid, leased.dir).of(change)?;
                }
                found
            }
        };
        match is_at_home {
            true => Ok(file),
            false => refuse(change, FsError::Invalid),
        }
    }
}

/// One of several names of the file is in `dir`.
fn is_linked_in(ctx: &Ctx<'_, '_>, fid: Fid, dir: Fid) -> crate::txn::Result<bool> {
    let all = [&keys::fid(fid)[..], &keys::fid(dir)].concat();
    let none = ctx
        .txn
        .store()
        .is_empty(Table::Links, &KeyRange::prefix(&all))?;
    Ok(!none)
}

/// The size was not exact when this was done first.
fn was_inexact(answer: &Reply, change: usize) -> bool {
    let Reply::Updated { notes, .. } = answer else {
        return true;
    };
    let of_change = |note: &&wire::update::UpdateNote| usize::from(note.change) == change;
    notes
        .iter()
        .filter(of_change)
        .any(|note| note.told == Told::Inexact)
}
