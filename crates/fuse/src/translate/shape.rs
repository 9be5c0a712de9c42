//! The client's types as the kernel's, and back.

use std::time::Duration;

use base::{Fid, FsError, Name, NameError};
use client::{Entry, OpenWish, Stat};
use wire::mdt::{Access, Privileges, SetAttr, SetTime};
use wire::{Attr, FileKind};

use super::nodes::Told;
use crate::kernel::{Attributes, FOREVER, OpenFlags, SetAttributes, attributes};

/// Preferred I/O size in bytes: what `cp` and `cat` read at once.
const BLOCK_BYTES: u32 = 64 << 10;

const KINDS: [(FileKind, u32); 7] = [
    (FileKind::Regular, 0o100000),
    (FileKind::Directory, 0o040000),
    (FileKind::Symlink, 0o120000),
    (FileKind::Fifo, 0o010000),
    (FileKind::Socket, 0o140000),
    (FileKind::CharDevice, 0o020000),
    (FileKind::BlockDevice, 0o060000),
];

/// The type bits of st_mode.
pub(super) fn kind_bits(kind: FileKind) -> u32 {
    KINDS
        .iter()
        .find(|(known, _)| *known == kind)
        .map_or(0, |(_, bits)| *bits)
}

/// The kind that st_mode's type bits say; none given means a regular file.
pub(super) fn kind_of(mode: u32) -> Result<FileKind, FsError> {
    match mode & 0o170000 {
        0 => Ok(FileKind::Regular),
        bits => KINDS
            .iter()
            .find(|(_, known)| *known == bits)
            .map(|(kind, _)| *kind)
            .ok_or(FsError::Invalid),
    }
}

pub(super) fn attributes_of(fid: Fid, attr: &Attr) -> Attributes {
    Attributes {
        ino: fid.0,
        size: match attr.kind {
            FileKind::Directory => attr.size.max(4096),
            _ => attr.size,
        },
        blocks: attr.blocks,
        atime: attr.atime,
        mtime: attr.mtime,
        ctime: attr.ctime,
        mode: kind_bits(attr.kind) | u32::from(attr.mode),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        block_size: BLOCK_BYTES,
    }
}

/// For ever where a lock covers it; else for this once.
pub(super) fn timeout(valid: bool) -> Duration {
    if valid { FOREVER } else { Duration::ZERO }
}

/// The kernel's entry. If `current`, nothing was withdrawn since it was put together. If `watched`, the mount
/// will know when the caller has digested it, and so when a directory's name can be expired for good. After a
/// directory that the kernel must move its next request is about it, which shows that it has.
pub(super) fn entry_of(
    entry: &Entry,
    told: Told,
    current: bool,
    watched: bool,
) -> attributes::Entry {
    let can_go = watched || entry.attr.kind != FileKind::Directory;
    attributes::Entry {
        nodeid: told.node,
        generation: 0,
        entry_valid: timeout(entry.name_valid && current && can_go),
        attributes_valid: timeout(entry.attr_valid && current && !told.must_move),
        attributes: attributes_of(entry.fid, &entry.attr),
    }
}

/// A name the kernel sent; it has been checked there, but for its length.
pub(super) fn name(bytes: &[u8]) -> Result<Name, FsError> {
    Name::new(bytes).map_err(|error| match error {
        NameError::TooLong => FsError::NameTooLong,
        NameError::Invalid => FsError::Invalid,
    })
}

pub(super) fn open_wish(flags: OpenFlags) -> OpenWish {
    let access = flags.access();
    OpenWish {
        access: Access {
            read: access.reads(),
            write: access.writes(),
            exec: flags.executes(),
        },
        append: flags.appends(),
    }
}

/// A SETATTR without its size.
pub(super) fn change_of(set: &SetAttributes) -> SetAttr {
    let time = |time: crate::kernel::SetTime| match time {
        crate::kernel::SetTime::Now => SetTime::Now,
        crate::kernel::SetTime::At(time) => SetTime::At(time),
    };
    SetAttr {
        mode: set.mode.map(|mode| (mode & 0o7777) as u16),
        uid: set.uid,
        gid: set.gid,
        atime: set.atime.map(time),
        mtime: set.mtime.map(time),
        ctime: None,
        size: None,
        // Taken before, by who knows of whom: see `Client::drop_privileges`.
        privileges: Privileges::Keep,
    }
}

/// What a GETATTR is answered.
pub(super) fn stat_of(fid: Fid, stat: &Stat, current: bool) -> (Duration, Attributes) {
    (
        timeout(stat.valid && current),
        attributes_of(fid, &stat.attr),
    )
}
