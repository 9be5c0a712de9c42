//! A full disk: what is refused, what goes on, and what makes room.
// SEMANTICS: crash.full

mod support;

use std::time::Duration;

use base::{ClientId, Fid, FsError};
use support::{READ, ROOT_USER, World};
use wire::FileKind;
use wire::mdt::{OpenIntent, RenameMode, Request, SetAttr, XattrMode};

/// Available bytes at which only removals go on: below half the floor.
const NEARLY_NOTHING: u64 = 1 << 20;

fn later(world: &mut World) {
    world.tick = world.tick.after(Duration::from_millis(100));
}

fn make(world: &mut World, client: ClientId, name: &str, kind: FileKind) -> Result<(), FsError> {
    let made = world.create_as(client, Fid::ROOT, name, kind, 0o755, ROOT_USER);
    made.map(drop)
}

fn set_xattr(world: &mut World, client: ClientId, fid: Fid) -> Result<(), FsError> {
    let request = Request::SetXattr {
        fid,
        dir: Fid::NONE,
        name: b"user.x".to_vec(),
        value: b"value".to_vec(),
        mode: XattrMode::Set,
    };
    world.call(client, request).map(drop)
}

#[test]
fn what_grows_is_refused_and_the_rest_goes_on() {
    let mut world = World::new();
    let a = world.connect(1);
    let file = world.touch(a, Fid::ROOT, "file");
    world.touch(a, Fid::ROOT, "other");
    world.mkdir(a, Fid::ROOT, "dir");
    world.space.set(NEARLY_NOTHING);
    later(&mut world);
    let full = Err(FsError::NoSpace);
    for kind in [FileKind::Regular, FileKind::Directory, FileKind::Fifo] {
        assert_eq!(make(&mut world, a, "new", kind), full);
    }
    let exists = make(&mut world, a, "file", FileKind::Regular);
    assert_eq!(exists, Err(FsError::Exists), "not a matter of space");
    assert_eq!(world.link(a, file, Fid::ROOT, "new").map(drop), full);
    assert_eq!(set_xattr(&mut world, a, file), full);
    let (from, mode) = ((Fid::ROOT, "file"), RenameMode::Replace);
    let renamed = world.rename(a, from, (Fid::ROOT, "new"), mode);
    assert_eq!(renamed.map(drop), full);
    let opened = world.open(a, file, READ).expect("opened");
    let mode_only = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    world.setattr(a, file, mode_only).expect("set");
    world
        .close(a, file, opened, SetAttr::default())
        .expect("closed");
    let over = world.rename(a, from, (Fid::ROOT, "other"), mode);
    over.expect("a name less");
    world.rmdir(a, Fid::ROOT, "dir").expect("removed");
    world.check();
}

#[test]
fn what_was_removed_makes_room_also_after_a_crash() {
    let mut world = World::new();
    let a = world.connect(1);
    world.touch(a, Fid::ROOT, "1");
    world.touch(a, Fid::ROOT, "2");
    world.space.set(NEARLY_NOTHING);
    later(&mut world);
    let full = Err(FsError::NoSpace);
    assert_eq!(make(&mut world, a, "3", FileKind::Regular), full);
    world.unlink(a, Fid::ROOT, "1").expect("removed");
    assert_eq!(make(&mut world, a, "3", FileKind::Regular), Ok(()));
    assert_eq!(make(&mut world, a, "4", FileKind::Regular), full);
    world.kv.flush_once().expect("durable");
    world.crash();
    assert_eq!(make(&mut world, a, "4", FileKind::Regular), full);
    world.space.set(8 << 20);
    later(&mut world);
    assert_eq!(make(&mut world, a, "4", FileKind::Regular), Ok(()));
    assert_eq!(world.names(a, Fid::ROOT).len(), 3);
    world.check();
}

/// It had space when it was answered; whatever has taken that since, it is not lost.
#[test]
fn what_a_crash_took_is_done_again_also_where_there_is_no_space_now() {
    let mut world = World::new();
    let a = world.connect(1);
    let dir = world.mkdir(a, Fid::ROOT, "dir");
    world.flush();
    world.auto_flush = false;
    let file = world.touch(a, dir, "file");
    world.link(a, file, dir, "other").expect("linked");
    set_xattr(&mut world, a, file).expect("set");
    world.space.set(NEARLY_NOTHING);
    world.crash_awaiting();
    later(&mut world);
    let lost = world.lost();
    assert_eq!(lost.len(), 3);
    for done in &lost {
        assert!(world.replay(done).0.is_ok(), "{done:?}");
    }
    world.ready(a);
    world.auto_flush = true;
    world.flush();
    assert_eq!(world.names(a, dir), ["file", "other"]);
    let full = Err(FsError::NoSpace);
    assert_eq!(make(&mut world, a, "new", FileKind::Regular), full);
    world.check();
}

/// Where there really is no space the store stops. It has refused nothing: clients keep what it has not
/// done again for its next boot.
#[test]
fn a_target_that_stops_refuses_nothing_of_the_past() {
    let mut world = World::new();
    let a = world.connect(1);
    let dir = world.mkdir(a, Fid::ROOT, "dir");
    world.flush();
    world.auto_flush = false;
    for name in ["one", "two", "three"] {
        world.touch(a, dir, name);
    }
    world.crash_awaiting();
    let lost = world.lost();
    assert!(world.replay(&lost[0]).0.is_ok());
    world.powered.cut_after(world.powered.changes());
    let cause = world.kv.flush_once().expect_err("the power is off");
    let mut out = Vec::new();
    world.mds.store_failed(cause, &mut out);
    assert!(
        lost[1..]
            .iter()
            .all(|done| world.try_replay(done).is_none())
    );
    let open = Request::Open {
        fid: dir,
        dir: Fid::NONE,
        access: READ,
        intent: OpenIntent::Reopen,
    };
    let tag = world.send(a, open);
    assert!(!world.answers.contains_key(&tag));
    world.crash_awaiting();
    for done in &lost {
        assert!(world.replay(done).0.is_ok(), "{done:?}");
    }
    world.ready(a);
    world.auto_flush = true;
    world.flush();
    assert_eq!(world.names(a, dir), ["one", "three", "two"]);
    world.check();
}
