//! What several operations ask of open files and of locks a client says it holds.

use base::limits::FILE_BYTES_MAX;
use base::{FsError, Timestamp};
use wire::SizeState;
use wire::mdt::{Privileges, SetAttr, SetTime, SizeUpdate};

use super::context::Ctx;
use crate::records::Inode;
use crate::txn::Result;

/// Nothing is to be changed.
pub fn is_empty(change: &SetAttr) -> bool {
    *change == SetAttr::default()
}

/// Applies everything in `change` but the ctime. If `alone`, no other client has had the file open for
/// writing since this one opened it, so a size that the OSTs have committed is exact.
pub fn apply(ctx: &Ctx<'_, '_>, inode: &mut Inode, change: &SetAttr, alone: bool) -> Result<()> {
    let chown = change.uid.is_some() || change.gid.is_some();
    inode.uid = change.uid.unwrap_or(inode.uid);
    inode.gid = change.gid.unwrap_or(inode.gid);
    let taken = match chown {
        true => change.privileges.max(Privileges::Drop),
        false => change.privileges,
    };
    if !inode.is_dir() {
        inode.mode = taken.left_of(inode.mode);
    }
    if let Some(mode) = change.mode {
        inode.mode = mode & 0o7777;
    }
    let time = |set: SetTime| match set {
        SetTime::Now => ctx.txn.now,
        SetTime::At(time) => time,
    };
    if let Some(size) = &change.size {
        // A client from before a restart may still tell of a writer.
        set_size(inode, size, alone && !ctx.grace)?;
    }
    inode.atime = change.atime.map_or(inode.atime, time);
    if let Some(mtime) = change.mtime {
        inode.mtime = time(mtime);
        // Not before what was written before, no matter by which clock.
        let set = change.ctime.unwrap_or(ctx.txn.now);
        inode.mtime_set = inode.mtime_set.later(set);
    }
    Ok(())
}

/// What a writer says of the size.
pub fn set_size(inode: &mut Inode, update: &SizeUpdate, alone: bool) -> Result<()> {
    match inode.kind {
        wire::FileKind::Regular => {}
        wire::FileKind::Directory => return Err(FsError::IsDirectory.into()),
        _ => return Err(FsError::Invalid.into()),
    }
    if update.size > FILE_BYTES_MAX {
        return Err(FsError::FileTooBig.into());
    }
    (inode.size, inode.blocks) = (update.size, update.blocks);
    // What was written before the time was last set must not undo that, however late it is told;
    // clients merge what OSTs know by the same rule.
    if update.mtime > inode.mtime_set {
        inode.mtime = update.mtime;
        inode.mtime_set = update.mtime;
    }
    let exact = update.committed && alone;
    inode.size_state = if exact {
        SizeState::Strict
    } else {
        SizeState::Ask
    };
    Ok(())
}

/// When a file was changed last of which that was at `ctime`, and to which a writer's bytes came.
pub fn ctime_with_bytes(ctime: Timestamp, change: &SetAttr) -> Timestamp {
    change.size.map_or(ctime, |size| ctime.later(size.mtime))
}

/// Times of a change are within what `stat` can show.
pub fn check_times(change: &SetAttr) -> Result<()> {
    let valid = |set: &Option<SetTime>| match set {
        Some(SetTime::At(time)) => time.checked().is_ok(),
        _ => true,
    };
    let size = change.size.is_none_or(|size| size.mtime.checked().is_ok());
    let ctime = change.ctime.is_none_or(|ctime| ctime.checked().is_ok());
    let all = valid(&change.atime) && valid(&change.mtime) && size && ctime;
    if all {
        Ok(())
    } else {
        Err(FsError::Invalid.into())
    }
}
