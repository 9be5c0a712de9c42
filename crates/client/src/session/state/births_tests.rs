//! Times of new directories, which programs set and changes of names end.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::TargetIndex;
use wire::mdt::SetTime::At;

use super::*;
use crate::rig::attr_at;
use crate::session::locks::Locks;

const PARENT: Fid = Fid(7);
const DIR: Fid = Fid(8);

const fn at(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 0 }
}

fn body(fid: Fid, dir: Fid, kind: FileKind, made: Timestamp) -> BirthBody {
    let attr = Attr {
        kind,
        atime: made,
        mtime: made,
        mtime_set: made,
        ctime: made,
        btime: made,
        ..attr_at(TargetIndex(0))
    };
    BirthBody {
        fid,
        dir,
        name: Name::new(format!("{fid}")).expect("valid"),
        attr,
        cookie: fid.0,
        target: Vec::new(),
        order: fid.0,
        origin: 0,
    }
}

fn state() -> State {
    State::new(Locks::new([]), Arc::new(AtomicU64::new(0)))
}

fn mtime(state: &State) -> Timestamp {
    state.cache.attr_of(DIR).expect("known").mtime
}

#[test]
fn a_time_that_is_to_be_reported_ends_with_a_change_of_names() {
    let mut state = state();
    state.restore_birth(body(DIR, PARENT, FileKind::Directory, at(10)));
    let change = SetAttr {
        mode: Some(0o700),
        mtime: Some(At(at(1))),
        ..SetAttr::default()
    };
    assert!(state.cache.inode(DIR).change_here(&change, at(20)));
    assert_eq!(mtime(&state), at(1));
    state.names_changed(DIR, 0, at(30));
    assert_eq!(mtime(&state), at(30));
    let left = state.changed_on_the_way(DIR).expect("its mode is left");
    assert_eq!((left.mode, left.mtime), (Some(0o700), None));
}

#[test]
fn a_time_that_was_set_outlasts_names_of_before_in_the_next_process() {
    let mut state = state();
    let mut dir = body(DIR, PARENT, FileKind::Directory, at(10));
    (dir.attr.mtime, dir.attr.mtime_set) = (at(1), at(20));
    state.restore_birth(dir);
    state.restore_birth(body(Fid(9), DIR, FileKind::Symlink, at(15)));
    state.restore_date(DIR, at(16));
    assert_eq!(mtime(&state), at(1));
    state.restore_birth(body(Fid(10), DIR, FileKind::Symlink, at(25)));
    assert_eq!(mtime(&state), at(25));
    state.restore_date(DIR, at(26));
    assert_eq!(mtime(&state), at(26));
}
