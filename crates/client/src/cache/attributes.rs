//! Attributes as they are seen and changed here, before the MDT hears of it.

use base::Timestamp;
use wire::mdt::Privileges;
use wire::{Attr, FileKind};

/// Puts what is known of the bytes into the MDT's attributes. The bytes' mtime counts only if they
/// were written after the time was last set: `utimes` after a write wins.
pub(crate) fn merge_object(attr: &mut Attr, object: wire::ost::ObjectAttr) {
    attr.size = object.size;
    attr.blocks = object.blocks;
    if object.mtime > attr.mtime_set {
        attr.mtime = object.mtime;
        attr.ctime = attr.ctime.later(object.mtime);
    }
}

/// setuid and setgid of a regular file do not survive a new owner, nor what a writer asks for.
pub(crate) fn dropped_privileges(change: &wire::mdt::SetAttr) -> Privileges {
    match change.uid.is_some() || change.gid.is_some() {
        true => change.privileges.max(Privileges::Drop),
        false => change.privileges,
    }
}

/// Applies a change of attributes made under the EX lock, as the MDT would.
pub(crate) fn apply_locally(attr: &mut Attr, change: &wire::mdt::SetAttr, now: Timestamp) {
    let at = |time: wire::mdt::SetTime| match time {
        wire::mdt::SetTime::Now => now,
        wire::mdt::SetTime::At(time) => time,
    };
    if attr.kind != FileKind::Directory {
        attr.mode = dropped_privileges(change).left_of(attr.mode);
    }
    attr.mode = change.mode.unwrap_or(attr.mode);
    attr.uid = change.uid.unwrap_or(attr.uid);
    attr.gid = change.gid.unwrap_or(attr.gid);
    attr.atime = change.atime.map_or(attr.atime, at);
    if let Some(mtime) = change.mtime {
        attr.mtime = at(mtime);
        attr.mtime_set = now;
    }
    attr.ctime = now;
}
