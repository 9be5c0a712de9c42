//! Names and the files behind them: where a file's record lives follows from how many names it has.

use base::{Fid, FsError, Name};

use crate::keys::{self, Spot, Table};
use crate::mutation::Mutation;
use crate::opens::Opens;
use crate::records::{Destroy, Dirent, Inode, Orphan, Place};
use crate::store::missing;
use crate::txn::{File, Result, Txn};

/// Set-group-id: on a directory new files take its group, new directories the bit too.
pub const S_ISGID: u16 = 0o2000;
/// Set-user-id.
pub const S_ISUID: u16 = 0o4000;
/// Sticky: in such a directory only owners remove and rename.
pub const S_ISVTX: u16 = 0o1000;

/// Whether a file that has just lost its last name may still be in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InUse {
    /// Somebody has it open, or may tell so after a restart.
    Perhaps,
    /// Nobody.
    No,
}

/// Makes `spot` the entry `name` of the file, and stores the file where it belongs then.
/// `file.inode.nlink` counts the new name already.
pub fn attach(txn: &mut Txn<'_>, spot: Spot, name: Name, file: &mut File) {
    file.inode.version = txn.transno.0;
    let (fid, kind) = (file.fid, file.inode.kind);
    let inline = !file.inode.is_dir() && file.inode.nlink == 1;
    let inode = inline.then(|| file.inode.clone());
    txn.change(Mutation::PutDirent(
        spot,
        Dirent {
            name,
            fid,
            kind,
            inode,
        },
    ));
    file.place = if inline {
        Place::Entry(spot)
    } else if file.inode.is_dir() {
        Place::Directory(spot)
    } else {
        txn.change(Mutation::PutLink(fid, spot));
        Place::Own
    };
    txn.change(Mutation::PutPlace(fid, file.place));
    if !inline {
        txn.change(Mutation::PutInode(fid, file.inode.clone()));
    }
}

/// Removes the entry at `spot`; the file's record is stored again by the caller.
pub fn detach(txn: &mut Txn<'_>, spot: Spot, file: &File) {
    txn.change(Mutation::RemoveDirent(spot));
    if file.place == Place::Own {
        txn.change(Mutation::RemoveLink(file.fid, spot));
    }
}

/// Moves the record of a file with one name out of its directory entry, for a second name.
pub fn move_out(txn: &mut Txn<'_>, file: &mut File) -> Result<()> {
    let Place::Entry(spot) = file.place else {
        return Ok(());
    };
    let mut dirent = txn
        .dirent(spot)?
        .ok_or_else(|| missing("directory entry", file.fid))?;
    dirent.inode = None;
    txn.change(Mutation::PutDirent(spot, dirent));
    txn.change(Mutation::PutLink(file.fid, spot));
    file.place = Place::Own;
    Ok(())
}

/// Moves the record of a file that has one name left into that name's entry.
pub fn move_in(txn: &mut Txn<'_>, file: &mut File) -> Result<()> {
    let spots = txn.some_links(file.fid)?;
    let [spot] = spots[..] else {
        return Err(missing("only link", file.fid));
    };
    let mut dirent = txn
        .dirent(spot)?
        .ok_or_else(|| missing("directory entry", file.fid))?;
    dirent.inode = Some(file.inode.clone());
    txn.change(Mutation::PutDirent(spot, dirent));
    txn.change(Mutation::RemoveLink(file.fid, spot));
    txn.change(Mutation::RemoveInode(file.fid));
    file.place = Place::Entry(spot);
    txn.change(Mutation::PutPlace(file.fid, file.place));
    Ok(())
}

/// Takes the name at `spot` from the file; without another one it is gone, or an orphan.
pub fn unlink(
    txn: &mut Txn<'_>,
    opens: &Opens,
    spot: Spot,
    file: &mut File,
    in_use: InUse,
) -> Result<()> {
    detach(txn, spot, file);
    file.inode.nlink = if file.inode.is_dir() {
        0
    } else {
        file.inode.nlink - 1
    };
    file.inode.ctime = txn.now;
    file.inode.version = txn.transno.0;
    match file.inode.nlink {
        0 => lose_last_name(txn, opens, file, in_use),
        1 => move_in(txn, file)?,
        _ => txn.change(Mutation::PutInode(file.fid, file.inode.clone())),
    }
    Ok(())
}

/// The file has no name any more: it is gone, or an orphan.
pub fn lose_last_name(txn: &mut Txn<'_>, opens: &Opens, file: &mut File, in_use: InUse) {
    match in_use {
        InUse::Perhaps => orphan(txn, file),
        InUse::No => destroy(txn, opens, file),
    }
}

/// Keeps a file that has lost its last name.
fn orphan(txn: &mut Txn<'_>, file: &mut File) {
    let since = txn.now;
    keep_nameless(txn, file, Orphan { since });
}

/// Keeps a new file that has no name yet.
pub fn born_nameless(txn: &mut Txn<'_>, file: &mut File) {
    keep_nameless(txn, file, Orphan::NEVER_NAMED);
}

fn keep_nameless(txn: &mut Txn<'_>, file: &mut File, orphan: Orphan) {
    file.place = Place::Own;
    txn.change(Mutation::PutPlace(file.fid, file.place));
    txn.change(Mutation::PutInode(file.fid, file.inode.clone()));
    txn.change(Mutation::PutOrphan(file.fid, orphan));
}

/// The file is without a name because it never had one, and may get one.
pub fn may_be_named(txn: &Txn<'_>, fid: Fid) -> Result<bool> {
    let orphan: Option<Orphan> = txn.store().get(Table::Orphans, &keys::fid(fid))?;
    Ok(orphan == Some(Orphan::NEVER_NAMED))
}

/// It is about to get its first name.
pub fn stop_being_nameless(txn: &mut Txn<'_>, file: &File) {
    txn.change(Mutation::RemoveOrphan(file.fid));
    txn.change(Mutation::RemoveInode(file.fid));
}

/// Ends an orphan.
pub fn end_orphan(txn: &mut Txn<'_>, opens: &Opens, file: &File) {
    txn.change(Mutation::RemoveOrphan(file.fid));
    destroy(txn, opens, file);
}

/// Removes everything of a file that has no name: its objects by way of the destroy log.
fn destroy(txn: &mut Txn<'_>, opens: &Opens, file: &File) {
    let (fid, inode) = (file.fid, &file.inode);
    txn.change(Mutation::RemovePlace(fid));
    if file.place == Place::Own || inode.is_dir() {
        txn.change(Mutation::RemoveInode(fid));
    }
    if inode.kind == wire::FileKind::Symlink {
        txn.change(Mutation::RemoveTarget(fid));
    }
    if inode.has_xattrs {
        txn.change(Mutation::RemoveXattrs(fid));
    }
    if inode.written {
        let destroy = Destroy {
            open_epoch: opens.last_epoch(),
            transno: txn.transno,
        };
        for (stripe, ost) in (0_u32..).zip(inode.layout.stripes.iter()) {
            txn.change(Mutation::PutDestroy(*ost, fid, stripe, destroy));
        }
    }
    txn.state.files = txn.state.files.saturating_sub(1);
}

/// The sticky rule: who may take the name of `child` out of `dir`.
pub fn check_sticky(dir: &Inode, child: &Inode, uid: u32) -> Result<()> {
    let allowed = dir.mode & S_ISVTX == 0 || uid == 0 || uid == child.uid || uid == dir.uid;
    if allowed {
        Ok(())
    } else {
        Err(FsError::NotPermitted.into())
    }
}

/// Notes in a directory's record that names came or went.
pub fn names_changed(txn: &Txn<'_>, dir: &mut Inode, entries: i64, subdirs: i32) {
    dir.entries = dir.entries.saturating_add_signed(entries);
    dir.nlink = dir.nlink.saturating_add_signed(subdirs);
    // Clients do again what they did, each in its order, but not in that of all; a time that was
    // set just before is not one of theirs.
    let was_set = dir.mtime_set == dir.ctime;
    let out_of_turn = txn.is_again && !was_set;
    dir.mtime = match out_of_turn {
        true => dir.mtime.later(txn.now),
        false => txn.now,
    };
    dir.ctime = match txn.is_again {
        true => dir.ctime.later(txn.now),
        false => txn.now,
    };
}

/// The directory entry a file's attributes are in, which a lease on that directory can cover;
/// `None` for directories, files with several names and orphans.
pub fn covering_dir(place: Place) -> Option<Fid> {
    match place {
        Place::Entry(spot) => Some(spot.dir),
        Place::Directory(_) | Place::Own => None,
    }
}
