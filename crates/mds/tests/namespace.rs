//! Operations as POSIX has them, each under its id in SEMANTICS.

mod support;

use base::{Fid, FsError, Timestamp};
use support::*;
use wire::mdt::{
    Caller, Page, Privileges, RenameMode, Reply, Request, SetAttr, SetTime, XattrMode,
};
use wire::{FileKind, SizeState};

const USER: Caller = Caller {
    uid: 1000,
    gid: 100,
};
const OTHER: Caller = Caller {
    uid: 1001,
    gid: 100,
};

fn world() -> (World, base::ClientId) {
    let mut world = World::new();
    let client = world.connect(1);
    (world, client)
}

#[test]
fn op_create_makes_every_kind() {
    let (mut world, a) = world();
    let kinds = [
        FileKind::Regular,
        FileKind::Directory,
        FileKind::Symlink,
        FileKind::Fifo,
        FileKind::Socket,
        FileKind::CharDevice,
        FileKind::BlockDevice,
    ];
    for (i, kind) in kinds.into_iter().enumerate() {
        let fid = world.make(a, Fid::ROOT, &format!("f{i}"), kind);
        let node = world.lookup(a, Fid::ROOT, &format!("f{i}")).expect("there");
        assert_eq!((node.fid, node.attr.kind), (fid, kind));
        assert_eq!(
            node.attr.nlink,
            if kind == FileKind::Directory { 2 } else { 1 }
        );
        assert_eq!(node.attr.size_state, SizeState::Strict);
        world.check();
    }
    let link = world.lookup(a, Fid::ROOT, "f2").expect("there");
    assert_eq!(link.attr.size, 10);
    let target = world.call(a, Request::ReadLink { fid: link.fid });
    assert_eq!(target, Ok(Reply::Target(b"over/there".to_vec())));
    assert_eq!(world.getattr(a, Fid::ROOT).expect("root").attr.nlink, 3);
}

#[test]
fn op_create_refuses() {
    let (mut world, a) = world();
    let b = world.connect(2);
    let dir = world.mkdir(a, Fid::ROOT, "d");
    let file = world.touch(a, dir, "f");
    let make = |world: &mut World, dir, fid, kind, text: &str, target: &[u8]| {
        let target = target.to_vec();
        let file = wire::mdt::NewFile {
            fid,
            kind,
            mode: 0o644,
            rdev: 0,
            target,
        };
        let request = Request::Create {
            dir,
            name: name(text),
            file,
            caller: ROOT_USER,
            open: None,
        };
        world.call(a, request).map(|_| ())
    };
    let regular = FileKind::Regular;
    let fresh = world.fid(a);
    assert_eq!(
        make(&mut world, dir, fresh, regular, "f", b""),
        Err(FsError::Exists)
    );
    assert_eq!(
        make(&mut world, file, fresh, regular, "x", b""),
        Err(FsError::NotDirectory)
    );
    assert_eq!(
        make(&mut world, Fid(99), fresh, regular, "x", b""),
        Err(FsError::Stale)
    );
    assert_eq!(
        make(&mut world, dir, file, regular, "x", b""),
        Err(FsError::Invalid),
        "in use"
    );
    let foreign = world.fid(b);
    assert_eq!(
        make(&mut world, dir, foreign, regular, "x", b""),
        Err(FsError::Invalid)
    );
    let symlink = FileKind::Symlink;
    assert_eq!(
        make(&mut world, dir, fresh, symlink, "x", b""),
        Err(FsError::NotFound)
    );
    let long = vec![b'x'; 4096];
    assert_eq!(
        make(&mut world, dir, fresh, symlink, "x", &long),
        Err(FsError::NameTooLong)
    );
    assert_eq!(
        make(&mut world, dir, fresh, symlink, "x", &long[1..]),
        Ok(())
    );
    world.check();
}

#[test]
fn op_create_inherits_the_group_of_a_setgid_directory() {
    let (mut world, a) = world();
    let dir = world.mkdir(a, Fid::ROOT, "d");
    let change = SetAttr {
        mode: Some(0o2775),
        gid: Some(7),
        ..SetAttr::default()
    };
    world.setattr(a, dir, change).expect("set");
    world
        .create_as(a, dir, "f", FileKind::Regular, 0o644, USER)
        .expect("made");
    world
        .create_as(a, dir, "s", FileKind::Directory, 0o755, USER)
        .expect("made");
    let file = world.lookup(a, dir, "f").expect("there").attr;
    let sub = world.lookup(a, dir, "s").expect("there").attr;
    assert_eq!((file.uid, file.gid, file.mode), (1000, 7, 0o644));
    assert_eq!((sub.uid, sub.gid, sub.mode), (1000, 7, 0o2755));
}

#[test]
fn op_create_is_bounded_by_the_number_of_files() {
    let mut world = World::with(
        mds::Rules {
            files_max: 3,
            ..mds::Rules::default()
        },
        56,
    );
    let a = world.connect(1);
    world.touch(a, Fid::ROOT, "a");
    world.touch(a, Fid::ROOT, "b");
    let full = world.create_as(a, Fid::ROOT, "c", FileKind::Regular, 0o644, ROOT_USER);
    assert_eq!(full, Err(FsError::NoSpace));
    let Ok(Reply::Space(space)) = world.call(a, Request::StatFs) else {
        panic!()
    };
    assert_eq!((space.files_total, space.files_free), (3, 0));
    world.unlink(a, Fid::ROOT, "a").expect("gone");
    world.touch(a, Fid::ROOT, "c");
    world.check();
}

#[test]
fn op_link_counts_names_and_moves_the_record() {
    let (mut world, a) = world();
    let (d, e) = (
        world.mkdir(a, Fid::ROOT, "d"),
        world.mkdir(a, Fid::ROOT, "e"),
    );
    let file = world.touch(a, d, "f");
    assert_eq!(world.link(a, file, e, "g").expect("linked").attr.nlink, 2);
    world.check();
    assert_eq!(world.link(a, file, e, "h").expect("linked").attr.nlink, 3);
    world.check();
    assert_eq!(world.link(a, file, e, "g"), Err(FsError::Exists));
    assert_eq!(world.link(a, d, e, "x"), Err(FsError::NotPermitted));
    assert_eq!(world.link(a, Fid(99), e, "x"), Err(FsError::Stale));
    for (dir, text, left) in [(d, "f", 2), (e, "h", 1), (e, "g", 0)] {
        assert_eq!(world.unlink(a, dir, text).expect("gone").attr.nlink, left);
        world.check();
    }
    assert_eq!(world.getattr(a, file), Err(FsError::Stale));
}

#[test]
fn op_unlink_and_op_rmdir_refuse() {
    let (mut world, a) = world();
    let dir = world.mkdir(a, Fid::ROOT, "d");
    world.touch(a, dir, "f");
    assert_eq!(world.unlink(a, Fid::ROOT, "d"), Err(FsError::IsDirectory));
    assert_eq!(world.rmdir(a, dir, "f"), Err(FsError::NotDirectory));
    assert_eq!(world.rmdir(a, Fid::ROOT, "d"), Err(FsError::NotEmpty));
    assert_eq!(world.unlink(a, dir, "x"), Err(FsError::NotFound));
    world.unlink(a, dir, "f").expect("gone");
    assert_eq!(world.rmdir(a, Fid::ROOT, "d").expect("gone").attr.nlink, 0);
    assert_eq!(world.getattr(a, Fid::ROOT).expect("root").attr.nlink, 2);
    world.check();
}

#[test]
fn op_unlink_in_a_sticky_directory() {
    let (mut world, a) = world();
    let tmp = world.mkdir(a, Fid::ROOT, "tmp");
    let change = SetAttr {
        mode: Some(0o1777),
        ..SetAttr::default()
    };
    world.setattr(a, tmp, change).expect("set");
    for text in ["f", "g"] {
        world
            .create_as(a, tmp, text, FileKind::Regular, 0o644, USER)
            .expect("made");
    }
    let remove =
        |world: &mut World, text, caller| world.remove_as(a, tmp, text, false, caller).map(|_| ());
    assert_eq!(remove(&mut world, "f", OTHER), Err(FsError::NotPermitted));
    let steal = rename_request((tmp, "f"), (Fid::ROOT, "f"), RenameMode::Replace, OTHER);
    assert_eq!(world.call(a, steal), Err(FsError::NotPermitted));
    assert_eq!(remove(&mut world, "f", USER), Ok(()));
    assert_eq!(remove(&mut world, "g", ROOT_USER), Ok(()));
}

#[test]
fn op_unlink_keeps_an_open_file() {
    let (mut world, a) = world();
    let b = world.connect(2);
    let file = world.touch(a, Fid::ROOT, "f");
    let (one, two) = (
        world.open(a, file, WRITE).unwrap(),
        world.open(b, file, READ).unwrap(),
    );
    assert_eq!(world.unlink(b, Fid::ROOT, "f").expect("gone").attr.nlink, 0);
    world.check();
    assert_eq!(world.getattr(a, file).expect("an orphan").attr.nlink, 0);
    let c = world.connect(3);
    assert_eq!(
        world.open(c, file, READ),
        Err(FsError::Stale),
        "no new user"
    );
    let again = world.open(b, file, READ).expect("by /proc/self/fd");
    world
        .close(b, file, again, SetAttr::default())
        .expect("closed");
    assert_eq!(
        world.link(a, file, Fid::ROOT, "g"),
        Err(FsError::NotFound),
        "no way back"
    );
    world
        .close(a, file, one, SetAttr::default())
        .expect("closed");
    assert!(world.getattr(b, file).is_ok());
    world
        .close(b, file, two, SetAttr::default())
        .expect("closed");
    assert_eq!(world.getattr(b, file), Err(FsError::Stale));
    assert_eq!(
        world.close(b, file, two, SetAttr::default()),
        Err(FsError::BadHandle)
    );
    world.check();
}

#[test]
fn op_rename_replaces() {
    let (mut world, a) = world();
    let (d, e) = (
        world.mkdir(a, Fid::ROOT, "d"),
        world.mkdir(a, Fid::ROOT, "e"),
    );
    let (f, g) = (world.touch(a, d, "f"), world.touch(a, e, "g"));
    let moved = world
        .rename(a, (d, "f"), (e, "g"), RenameMode::Replace)
        .expect("moved");
    let Reply::Renamed { node, replaced, .. } = moved else {
        panic!()
    };
    assert_eq!((node.fid, replaced.map(|node| node.fid)), (f, Some(g)));
    assert_eq!(
        (world.names(a, d), world.names(a, e)),
        (vec![], vec!["g".to_string()])
    );
    assert_eq!(world.getattr(a, g), Err(FsError::Stale));
    world.check();
    // A directory moves and its parents' counts with it.
    let sub = world.mkdir(a, d, "s");
    world
        .rename(a, (d, "s"), (e, "s"), RenameMode::Replace)
        .expect("moved");
    let nlink = |world: &mut World, fid| world.getattr(a, fid).expect("there").attr.nlink;
    assert_eq!((nlink(&mut world, d), nlink(&mut world, e)), (2, 3));
    let parent = world.call(a, Request::LookupParent { dir: sub });
    assert_eq!(node_of(parent).expect("parent").fid, e);
    assert_eq!(
        world.call(a, Request::PathOf { fid: sub }),
        Ok(Reply::Path(b"e/s".to_vec()))
    );
    world.check();
}

#[test]
fn op_rename_refuses() {
    let (mut world, a) = world();
    let (d, e) = (
        world.mkdir(a, Fid::ROOT, "d"),
        world.mkdir(a, Fid::ROOT, "e"),
    );
    let sub = world.mkdir(a, d, "s");
    let file = world.touch(a, Fid::ROOT, "f");
    world.link(a, file, Fid::ROOT, "g").expect("linked");
    world.touch(a, e, "x");
    let root = Fid::ROOT;
    use FsError as E;
    use RenameMode::{Exchange, NoReplace, Replace};
    let cases = [
        ((root, "none"), (root, "y"), Replace, Some(E::NotFound)),
        ((root, "f"), (root, "e"), NoReplace, Some(E::Exists)),
        ((root, "f"), (root, "none"), Exchange, Some(E::NotFound)),
        ((root, "d"), (sub, "y"), Replace, Some(E::Invalid)),
        ((root, "d"), (d, "y"), Replace, Some(E::Invalid)),
        ((d, "s"), (root, "d"), Exchange, Some(E::Invalid)),
        ((d, "s"), (root, "d"), Replace, Some(E::NotEmpty)),
        ((root, "d"), (root, "f"), Replace, Some(E::NotDirectory)),
        ((root, "f"), (root, "d"), Replace, Some(E::IsDirectory)),
        ((root, "d"), (root, "e"), Replace, Some(E::NotEmpty)),
        ((root, "f"), (root, "g"), Replace, None),
        ((root, "f"), (root, "g"), Exchange, None),
        ((root, "f"), (root, "f"), Replace, None),
        ((root, "f"), (root, "g"), NoReplace, Some(E::Exists)),
    ];
    let before = world.names(a, root);
    for (from, to, mode, error) in cases {
        let result = world.rename(a, from, to, mode).map(|_| ());
        assert_eq!(result.err(), error, "{from:?} {to:?} {mode:?}");
        assert_eq!(world.names(a, root), before);
        world.check();
    }
}

#[test]
fn op_rename_exchanges() {
    let (mut world, a) = world();
    let (d, e) = (
        world.mkdir(a, Fid::ROOT, "d"),
        world.mkdir(a, Fid::ROOT, "e"),
    );
    let (sub, file) = (world.mkdir(a, d, "s"), world.touch(a, e, "f"));
    world
        .rename(a, (d, "s"), (e, "f"), RenameMode::Exchange)
        .expect("swapped");
    assert_eq!(world.lookup(a, d, "s").expect("there").fid, file);
    assert_eq!(world.lookup(a, e, "f").expect("there").fid, sub);
    world.check();
    let link = world.touch(a, d, "l");
    world.link(a, link, e, "l").expect("linked");
    world
        .rename(a, (e, "f"), (e, "l"), RenameMode::Exchange)
        .expect("swapped");
    assert_eq!(world.lookup(a, e, "l").expect("there").fid, sub);
    world.check();
}

#[test]
fn op_setattr_changes_and_clears_privileges() {
    let (mut world, a) = world();
    let file = world.touch(a, Fid::ROOT, "f");
    let set = |world: &mut World, change| world.setattr(a, file, change).expect("set").attr;
    let mode = |mode| SetAttr {
        mode: Some(mode),
        ..SetAttr::default()
    };
    assert_eq!(set(&mut world, mode(0o106755)).mode, 0o6755);
    let owned = set(
        &mut world,
        SetAttr {
            uid: Some(5),
            ..SetAttr::default()
        },
    );
    assert_eq!((owned.uid, owned.mode), (5, 0o755));
    set(&mut world, mode(0o6745));
    let owned = set(
        &mut world,
        SetAttr {
            gid: Some(6),
            ..SetAttr::default()
        },
    );
    assert_eq!(
        (owned.gid, owned.mode),
        (6, 0o2745),
        "mandatory locking is no privilege"
    );
    let take = |privileges| SetAttr {
        privileges,
        ..SetAttr::default()
    };
    set(&mut world, mode(0o4711));
    assert_eq!(set(&mut world, take(Privileges::Drop)).mode, 0o711);
    set(&mut world, mode(0o6745));
    assert_eq!(set(&mut world, take(Privileges::Drop)).mode, 0o2745);
    assert_eq!(set(&mut world, take(Privileges::DropAll)).mode, 0o745);
    let at = Timestamp {
        secs: -5,
        nanos: 999_999_999,
    };
    let times = SetAttr {
        atime: Some(SetTime::At(at)),
        mtime: Some(SetTime::Now),
        ..SetAttr::default()
    };
    let after = set(&mut world, times);
    assert_eq!(
        (after.atime, after.mtime, after.ctime),
        (at, world.wall, world.wall)
    );
    let bad = Timestamp {
        secs: 0,
        nanos: 1_000_000_000,
    };
    let times = SetAttr {
        atime: Some(SetTime::At(bad)),
        ..SetAttr::default()
    };
    assert_eq!(world.setattr(a, file, times), Err(FsError::Invalid));
    world.check();
}

#[test]
fn op_xattr_keeps_to_namespaces_and_limits() {
    let (mut world, a) = world();
    let file = world.touch(a, Fid::ROOT, "f");
    let fifo = world.make(a, Fid::ROOT, "p", FileKind::Fifo);
    let set = |world: &mut World, fid, text: &str, len: usize, mode| {
        let (name, value) = (text.as_bytes().to_vec(), vec![7; len]);
        node_of(world.call(
            a,
            Request::SetXattr {
                fid,
                dir: Fid::NONE,
                name,
                value,
                mode,
            },
        ))
        .map(|_| ())
    };
    use XattrMode::{Create, Replace, Set};
    assert_eq!(
        set(&mut world, file, "user.a", 3, Replace),
        Err(FsError::NoAttribute)
    );
    assert_eq!(set(&mut world, file, "user.a", 3, Create), Ok(()));
    assert_eq!(
        set(&mut world, file, "user.a", 3, Create),
        Err(FsError::Exists)
    );
    assert_eq!(set(&mut world, file, "user.a", 4, Replace), Ok(()));
    assert_eq!(set(&mut world, file, "trusted.b", 0, Set), Ok(()));
    assert_eq!(set(&mut world, file, "security.c", 1, Set), Ok(()));
    for nameless in ["user.", "trusted.", "security."] {
        let refused = set(&mut world, file, nameless, 1, Set);
        assert_eq!(refused, Err(FsError::Invalid), "{nameless}");
    }
    for bad in ["system.posix_acl_access", "nothing", ""] {
        assert_eq!(
            set(&mut world, file, bad, 1, Set),
            Err(FsError::NotSupported),
            "{bad}"
        );
    }
    let long = format!("user.{}", "x".repeat(251));
    assert_eq!(set(&mut world, file, &long, 1, Set), Err(FsError::Range));
    assert_eq!(
        set(&mut world, file, "user.big", 65_537, Set),
        Err(FsError::TooLarge)
    );
    for i in 0..3 {
        assert_eq!(
            set(&mut world, file, &format!("user.big{i}"), 65_536, Set),
            Ok(())
        );
    }
    assert_eq!(
        set(&mut world, file, "user.big3", 65_536, Set),
        Err(FsError::NoSpace)
    );
    assert_eq!(
        set(&mut world, fifo, "user.a", 1, Set),
        Err(FsError::NotPermitted)
    );
    assert_eq!(set(&mut world, fifo, "trusted.a", 1, Set), Ok(()));
    let values = world
        .call(a, Request::GetXattrs { fid: file })
        .expect("listed");
    let Reply::Xattrs { values, cover } = values else {
        panic!()
    };
    assert_eq!(values.len(), 6);
    assert!(cover.is_some());
    assert!(
        world
            .lookup(a, Fid::ROOT, "f")
            .expect("there")
            .attr
            .has_xattrs
    );
    world.check();
    for (name, _) in values {
        let removed = world.call(
            a,
            Request::RemoveXattr {
                fid: file,
                dir: Fid::NONE,
                name: name.clone(),
            },
        );
        assert!(removed.is_ok());
        let again = world.call(
            a,
            Request::RemoveXattr {
                fid: file,
                dir: Fid::NONE,
                name,
            },
        );
        assert_eq!(again, Err(FsError::NoAttribute));
    }
    assert!(
        !world
            .lookup(a, Fid::ROOT, "f")
            .expect("there")
            .attr
            .has_xattrs
    );
    world.check();
}

#[test]
fn op_readdir_survives_changes_and_collisions() {
    for mut world in [World::new(), World::colliding()] {
        let a = world.connect(1);
        let dir = world.mkdir(a, Fid::ROOT, "d");
        for i in 0..300 {
            world.touch(a, dir, &format!("stay{i}"));
            world.touch(a, dir, &format!("go{i}"));
        }
        world.check();
        let (mut seen, mut cookie, mut round) = (Vec::new(), 0, 0);
        loop {
            let (entries, end) = world.page(a, dir, cookie, 7);
            cookie = entries.last().map_or(cookie, |entry| entry.cookie);
            assert!(entries.iter().all(|e| e.cookie > 2 && e.cookie < 1 << 63));
            seen.extend(entries.into_iter().map(|entry| entry.name.to_string()));
            if end {
                break;
            }
            let _ = world.unlink(a, dir, &format!("go{round}"));
            world.touch(a, dir, &format!("new{round}"));
            round += 1;
        }
        let mut stayed: Vec<_> = seen
            .iter()
            .filter(|text| text.starts_with("stay"))
            .collect();
        assert_eq!(stayed.len(), 300, "each once");
        stayed.sort();
        stayed.dedup();
        assert_eq!(stayed.len(), 300);
        world.check();
    }
}

#[test]
fn op_readdir_pages_by_entries_attributes_and_bytes() {
    let (mut world, a) = world();
    let dir = world.mkdir(a, Fid::ROOT, "d");
    for i in 0..50 {
        world.touch(a, dir, &format!("f{i}"));
    }
    let read = |world: &mut World, attrs_max, entries_max, bytes_max| {
        let request = Request::ReadDir {
            dir,
            cookie: 0,
            attrs_max,
            entries_max,
            bytes_max,
        };
        match world.call(a, request) {
            Ok(Reply::Page(page)) => page,
            other => panic!("{other:?}"),
        }
    };
    let Page { entries, end, .. } = read(&mut world, 5, 20, 1 << 20);
    assert_eq!((entries.len(), end), (20, false));
    assert_eq!(
        entries.iter().filter(|entry| entry.node.is_some()).count(),
        5
    );
    let Page { entries, end, .. } = read(&mut world, 100, 100, 1 << 20);
    assert_eq!((entries.len(), end), (50, true));
    assert_eq!(
        read(&mut world, 100, 100, 1).entries.len(),
        1,
        "one at least"
    );
    let page = read(&mut world, 100, 100, 2000);
    assert!(page.entries.len() > 5 && page.entries.len() < 15 && !page.end);
    let size = wire::encode(&Reply::Page(page)).len();
    assert!(size <= 2000, "{size}");
    let none = Request::ReadDir {
        dir,
        cookie: 0,
        attrs_max: 0,
        entries_max: 0,
        bytes_max: 1,
    };
    assert_eq!(world.call(a, none), Err(FsError::Invalid));
}

#[test]
fn a_path_of_links_and_orphans() {
    let (mut world, a) = world();
    let dir = world.mkdir(a, Fid::ROOT, "d");
    let file = world.touch(a, dir, "f");
    let path = |world: &mut World, fid| world.call(a, Request::PathOf { fid });
    assert_eq!(path(&mut world, Fid::ROOT), Ok(Reply::Path(b"".to_vec())));
    assert_eq!(path(&mut world, file), Ok(Reply::Path(b"d/f".to_vec())));
    world.link(a, file, Fid::ROOT, "g").expect("linked");
    world.unlink(a, dir, "f").expect("gone");
    assert_eq!(path(&mut world, file), Ok(Reply::Path(b"g".to_vec())));
    let handle = world.open(a, file, READ).expect("open");
    world.unlink(a, Fid::ROOT, "g").expect("gone");
    assert_eq!(path(&mut world, file), Err(FsError::NotFound));
    world
        .close(a, file, handle, SetAttr::default())
        .expect("closed");
    assert_eq!(path(&mut world, file), Err(FsError::Stale));
}

fn nameless_request(fid: Fid) -> Request {
    let file = wire::mdt::NewFile {
        fid,
        kind: FileKind::Regular,
        mode: 0o640,
        rdev: 0,
        target: Vec::new(),
    };
    Request::CreateNameless {
        dir: Fid::ROOT,
        file,
        caller: USER,
        open: WRITE,
    }
}

#[test]
fn op_tmpfile_gets_a_name_or_goes_with_its_last_use() {
    let (mut world, a) = world();
    let b = world.connect(2);
    let make = |world: &mut World| {
        let request = nameless_request(world.fid(a));
        match world.call(a, request).expect("made") {
            Reply::Created { node, handle, .. } => (node, handle),
            other => panic!("{other:?}"),
        }
    };
    let (node, handle) = make(&mut world);
    let fid = node.fid;
    assert_eq!((node.attr.nlink, node.attr.uid), (0, 1000));
    assert!(
        matches!(node.cover, wire::Cover::Own(_)),
        "its maker alone has it"
    );
    assert!(world.names(b, Fid::ROOT).is_empty());
    world.link(a, fid, Fid::ROOT, "f").expect("named");
    assert_eq!(
        world.lookup(b, Fid::ROOT, "f").expect("there").attr.nlink,
        1
    );
    world
        .close(a, fid, handle, SetAttr::default())
        .expect("closed");
    world.check();
    let (other, handle) = make(&mut world);
    world
        .close(a, other.fid, handle, SetAttr::default())
        .expect("closed");
    assert_eq!(world.getattr(a, other.fid).err(), Some(FsError::Stale));
    let handle = world.open(a, fid, WRITE).expect("open");
    world.unlink(a, Fid::ROOT, "f").expect("removed");
    let again = world.link(a, fid, Fid::ROOT, "g");
    assert_eq!(again.err(), Some(FsError::NotFound), "it had a name");
    world
        .close(a, fid, handle, SetAttr::default())
        .expect("closed");
    world.check();
}

#[test]
fn op_rename_leaves_a_whiteout_where_that_is_asked_for() {
    let (mut world, a) = world();
    let d = world.mkdir(a, Fid::ROOT, "d");
    let (file, old) = (world.touch(a, d, "f"), world.touch(a, Fid::ROOT, "g"));
    let leave = |world: &mut World, mode| {
        let fid = world.fid(a);
        let mut request = rename_request((d, "f"), (Fid::ROOT, "g"), mode, USER);
        let Request::Rename { whiteout, .. } = &mut request else {
            panic!()
        };
        *whiteout = Some(fid);
        world.call(a, request)
    };
    use RenameMode::{Exchange, NoReplace, Replace};
    assert_eq!(leave(&mut world, Exchange).err(), Some(FsError::Invalid));
    assert_eq!(leave(&mut world, NoReplace).err(), Some(FsError::Exists));
    let Ok(Reply::Renamed {
        whiteout: Some(left),
        replaced,
        ..
    }) = leave(&mut world, Replace)
    else {
        panic!("no whiteout")
    };
    assert_eq!(replaced.map(|node| node.fid), Some(old));
    let seen = world.lookup(a, d, "f").expect("a whiteout");
    assert_eq!(seen.fid, left.fid);
    let attr = (
        seen.attr.kind,
        seen.attr.mode,
        seen.attr.rdev,
        seen.attr.uid,
    );
    assert_eq!(attr, (FileKind::CharDevice, 0, 0, 1000));
    let moved = world.lookup(a, Fid::ROOT, "g").expect("moved");
    assert_eq!(moved.fid, file);
    world.check();
}
