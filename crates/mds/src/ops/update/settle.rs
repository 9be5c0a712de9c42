//! The end of a set: each file that it touches gets its link count and its place, or goes. A directory's
//! record is written once, however many of its names changed.

use base::limits::LINKS_MAX;
use base::{Fid, FsError};

use super::Set;
use super::files::Touched;
use super::wrong::{Checked, Of, refuse};
use crate::keys::Spot;
use crate::mutation::Mutation;
use crate::namespace::{InUse, lose_last_name, move_in, stop_being_nameless};
use crate::ops::context::Ctx;
use crate::records::{Dirent, Place};
use crate::store::missing;
use crate::txn::{Result, Txn};

impl Set<'_> {
    pub(super) fn settle(&mut self, ctx: &mut Ctx<'_, '_>) -> Checked<()> {
        let mut moved = None;
        for at in 0..self.files.all.len() {
            let fid = self.files.all[at].file.fid;
            let in_use = self.in_use(ctx, fid);
            let file = &mut self.files.all[at];
            let change = file.change;
            file.file.inode.version = match file.is_changed {
                true => ctx.txn.transno.0,
                false => file.file.inode.version,
            };
            match file.file.inode.is_dir() {
                true => moved = settle_dir(ctx, file, in_use)?.or(moved),
                false => settle_file(ctx, file, in_use).of(change)?,
            }
        }
        match moved {
            Some(change) => self.check_rings(ctx, change),
            None => Ok(()),
        }
    }

    /// Whether a file without names must be kept. Uses that end with the set do not count.
    fn in_use(&self, ctx: &Ctx<'_, '_>, fid: Fid) -> InUse {
        let ended = |handle| self.ended.contains(&handle);
        let is_used = ctx.grace || ctx.opens.handles(fid).any(|handle| !ended(handle));
        match is_used {
            true => InUse::Perhaps,
            false => InUse::No,
        }
    }

    /// Each of the set's directories still leads to the root. Only they have new children that may have
    /// been above them: so a ring goes through one of them.
    fn check_rings(&self, ctx: &Ctx<'_, '_>, change: usize) -> Checked<()> {
        let (mut leads_to_other, dirs) = (Vec::new(), self.files.dirs());
        for dir in dirs.iter().filter(|dir| dir.file.inode.nlink > 0) {
            let start = dir.file.fid;
            let mut at = start;
            let meets = loop {
                if at == Fid::ROOT {
                    break false;
                }
                at = ctx.txn.parent(at).of(change)?;
                if at == start {
                    return refuse(change, FsError::Loop);
                }
                if self.files.is_dir_of_set(at) {
                    break true;
                }
            };
            leads_to_other.push(meets);
        }
        match leads_to_other[..] {
            [true, true] => refuse(change, FsError::Loop),
            _ => Ok(()),
        }
    }
}

/// Settles a directory. If it has another parent now, says by which change.
fn settle_dir(
    ctx: &mut Ctx<'_, '_>,
    dir: &mut Touched<'_>,
    in_use: InUse,
) -> Checked<Option<usize>> {
    let (change, fid) = (dir.change, dir.file.fid);
    let inode = &mut dir.file.inode;
    inode.entries = inode.entries.saturating_add_signed(dir.entries);
    inode.nlink = inode.nlink.saturating_add_signed(dir.subdirs);
    if dir.subdirs > 0 && inode.nlink > LINKS_MAX {
        return refuse(change, FsError::TooManyLinks);
    }
    let mut moved = None;
    match (dir.is_made, &dir.lost[..], &dir.gained[..]) {
        (false, [], []) if !dir.is_changed => return Ok(None),
        (false, [], []) => {}
        (true, [], [gained]) => dir.file.place = Place::Directory(gained.spot),
        (false, [lost], [gained]) => {
            moved = (lost.dir != gained.spot.dir).then_some(change);
            dir.file.place = Place::Directory(gained.spot);
        }
        (false, [_], []) => {
            if inode.entries > 0 {
                return refuse(change, FsError::NotEmpty);
            }
            inode.nlink = 0;
            lose_last_name(ctx.txn, ctx.opens, &mut dir.file, in_use);
            return Ok(None);
        }
        _ => return refuse(change, FsError::NotPermitted),
    }
    let record = dir.file.inode.clone();
    ctx.txn.change(Mutation::PutInode(fid, record));
    if !dir.gained.is_empty() {
        ctx.txn.change(Mutation::PutPlace(fid, dir.file.place));
    }
    Ok(moved)
}

/// Settles anything else.
fn settle_file(ctx: &mut Ctx<'_, '_>, file: &mut Touched<'_>, in_use: InUse) -> Result<()> {
    if !file.is_changed {
        return Ok(());
    }
    let links = file.links();
    if links > u64::from(LINKS_MAX) && !file.gained.is_empty() {
        return Err(FsError::TooManyLinks.into());
    }
    let was_nameless = !file.is_made && file.file.inode.nlink == 0;
    if was_nameless && links > 0 {
        stop_being_nameless(ctx.txn, &file.file);
    }
    file.file.inode.nlink = links as u32;
    let txn = &mut *ctx.txn;
    let has_link_records = file.file.place == Place::Own && !file.is_made && !was_nameless;
    if has_link_records {
        for spot in &file.lost {
            txn.change(Mutation::RemoveLink(file.file.fid, *spot));
        }
    }
    match (links, &file.gained[..]) {
        (0, []) if was_nameless => txn.save(&mut file.file),
        (0, _) => {
            lose_last_name(txn, ctx.opens, &mut file.file, in_use);
            Ok(())
        }
        (1, [gained]) => {
            let (spot, name) = (gained.spot, gained.name.clone());
            if has_link_records {
                txn.change(Mutation::RemoveInode(file.file.fid));
            }
            file.file.place = Place::Entry(spot);
            let inode = Some(file.file.inode.clone());
            put(txn, file, spot, name, inode);
            txn.change(Mutation::PutPlace(file.file.fid, file.file.place));
            Ok(())
        }
        (1, _) if has_link_records => move_in(txn, &mut file.file),
        (1, _) => txn.save(&mut file.file),
        _ => link(txn, file, has_link_records),
    }
}

/// The file has several names: its record is its own.
fn link(txn: &mut Txn<'_>, file: &mut Touched<'_>, has_link_records: bool) -> Result<()> {
    let fid = file.file.fid;
    if let Place::Entry(spot) = file.file.place
        && !file.lost.contains(&spot)
    {
        let dirent = txn.dirent(spot)?;
        let mut dirent = dirent.ok_or_else(|| missing("directory entry", fid))?;
        dirent.inode = None;
        txn.change(Mutation::PutDirent(spot, dirent));
        txn.change(Mutation::PutLink(fid, spot));
    }
    for gained in &file.gained {
        txn.change(Mutation::PutLink(fid, gained.spot));
    }
    txn.change(Mutation::PutInode(fid, file.file.inode.clone()));
    if !has_link_records {
        file.file.place = Place::Own;
        txn.change(Mutation::PutPlace(fid, Place::Own));
    }
    Ok(())
}

/// The file's record goes into its only name.
fn put(
    txn: &mut Txn<'_>,
    file: &Touched<'_>,
    spot: Spot,
    name: base::Name,
    inode: Option<crate::records::Inode>,
) {
    let (fid, kind) = (file.file.fid, file.file.inode.kind);
    let dirent = Dirent {
        name,
        fid,
        kind,
        inode,
    };
    txn.change(Mutation::PutDirent(spot, dirent));
}
