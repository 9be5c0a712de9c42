//! What tests of the client are made of.

pub(crate) mod servers;

use base::{TargetIndex, Timestamp};
use layout::{Layout, Stripes};
use wire::{Attr, FileKind, SizeState};

/// Attributes of a file whose bytes are at `ost`.
pub(crate) fn attr_at(ost: TargetIndex) -> Attr {
    let then = Timestamp::default();
    Attr {
        kind: FileKind::Regular,
        mode: 0o644,
        uid: 0,
        gid: 0,
        nlink: 1,
        rdev: 0,
        has_xattrs: false,
        size_state: SizeState::Ask,
        layout: Layout {
            stripes: Stripes::new(&[ost]),
            ..Layout::none()
        },
        atime: then,
        mtime: then,
        mtime_set: then,
        ctime: then,
        btime: then,
        size: 0,
        blocks: 0,
        version: 1,
    }
}
