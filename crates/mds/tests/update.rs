//! Sets of changes under write leases: each kind of change, what is refused, and what the answer tells.

mod support;

use base::{Fid, FsError, LockHandle, TargetIndex, Transno};
use support::sets::*;
use support::*;
use wire::mdt::{Access, OpenHandle, Reply, Request, SetAttr};
use wire::update::{AttrUpdate, Change, LeasedDir, MadeFile, Replacement, Times, Told};
use wire::{FileKind, SizeState};

const BOTH: Access = Access {
    read: true,
    write: true,
    exec: false,
};

#[test]
fn a_set_makes_files_of_every_kind_as_its_client_has_them() {
    let (mut world, a, d, _) = world();
    let kinds = [
        FileKind::Regular,
        FileKind::Directory,
        FileKind::Symlink,
        FileKind::Fifo,
        FileKind::Socket,
        FileKind::CharDevice,
        FileKind::BlockDevice,
    ];
    let mut changes = Vec::new();
    for (n, kind) in kinds.into_iter().enumerate() {
        let fid = world.fid(a);
        let file = MadeFile {
            uid: 3,
            gid: 4,
            ..made(fid, kind)
        };
        changes.push(make(0, &format!("f{n}"), file));
    }
    let (transno, notes) = world.update(a, &[d], changes).expect("done");
    assert!(lease_of(&notes, 1).is_some(), "a directory's lease");
    assert!(
        notes
            .iter()
            .any(|note| note.change == 0 && note.told == Told::Ost(TargetIndex(0)))
    );
    assert_eq!(notes.len(), 2, "{notes:?}");
    for (n, kind) in kinds.into_iter().enumerate() {
        let node = world.lookup(a, d, &format!("f{n}")).expect("there");
        let attr = node.attr;
        let links = if kind == FileKind::Directory { 2 } else { 1 };
        assert_eq!(
            (attr.kind, attr.nlink, attr.uid, attr.gid),
            (kind, links, 3, 4)
        );
        assert_eq!((attr.mode, attr.size_state), (0o755, SizeState::Strict));
        assert_eq!(
            (attr.mtime, attr.btime, attr.version),
            (NOW, NOW, transno.0)
        );
    }
    let dir = world.getattr(a, d).expect("there").attr;
    assert_eq!((dir.nlink, dir.mtime, dir.version), (3, NOW, transno.0));
    world.check();
}

#[test]
fn names_go_come_move_and_swap_in_one_set_of_any_order() {
    let (mut world, a, d, e) = world();
    let [f, g, h, i] = ["f", "g", "h", "i"].map(|text| world.touch(a, d, text));
    let sub = world.mkdir(a, d, "sub");
    let deep = world.touch(a, sub, "deep");
    let new = world.fid(a);
    let mut changes = vec![
        replace(0, "f", f, g),
        replace(0, "g", g, f),
        remove(0, "h", h),
        link(1, "h2", h),
        link(1, "h3", h),
        replace_by(0, "i", i, Replacement::Made(made(new, FileKind::Directory))),
        remove(0, "sub", sub),
        link(1, "sub", sub),
    ];
    changes.reverse();
    world.update(a, &[d, e], changes).expect("done");
    let fid = |world: &mut World, dir, text| world.lookup(a, dir, text).map(|node| node.fid);
    assert_eq!(fid(&mut world, d, "f"), Some(g));
    assert_eq!(fid(&mut world, d, "g"), Some(f));
    assert_eq!(fid(&mut world, d, "i"), Some(new));
    assert_eq!(world.names(a, d), ["f", "g", "i"]);
    assert_eq!(world.names(a, e), ["h2", "h3", "sub"]);
    assert_eq!(world.lookup(a, e, "h2").expect("there").attr.nlink, 2);
    assert_eq!(fid(&mut world, sub, "deep"), Some(deep));
    let parent = node_of(world.call(a, Request::LookupParent { dir: sub }));
    assert_eq!(parent.expect("there").fid, e);
    assert_eq!(world.getattr(a, i), Err(FsError::Stale));
    world.check();
}

#[test]
fn a_ring_of_names_in_two_directories_comes_right() {
    let (mut world, a, d, e) = world();
    let (x, y, z) = (
        world.mkdir(a, d, "x"),
        world.touch(a, e, "y"),
        world.touch(a, d, "z"),
    );
    let ring = [
        replace(0, "x", x, z),
        replace(1, "y", y, x),
        replace(0, "z", z, y),
    ];
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        let changes = order.map(|at: usize| ring[at].clone()).to_vec();
        world.update(a, &[d, e], changes).expect("done");
        let back = vec![
            replace(0, "x", z, x),
            replace(1, "y", x, y),
            replace(0, "z", y, z),
        ];
        assert_eq!(world.lookup(a, e, "y").expect("there").fid, x);
        assert_eq!(world.getattr(a, d).expect("there").attr.nlink, 2);
        assert_eq!(world.getattr(a, e).expect("there").attr.nlink, 3);
        world.check();
        world.update(a, &[d, e], back).expect("done");
    }
    world.check();
}

#[test]
fn no_directory_comes_into_itself_by_a_set() {
    let (mut world, a, d, e) = world();
    let x = world.mkdir(a, d, "x");
    let y = world.mkdir(a, x, "y");
    let z = world.mkdir(a, y, "z");
    let moved = vec![remove(0, "x", x), link(1, "x", x)];
    for inside in [x, y, z] {
        let refused = world.update(a, &[d, inside], moved.clone());
        assert_eq!(refused, Err((Some(1), FsError::Loop)));
    }
    let swap = vec![remove(0, "e", e), link(1, "e", e)];
    assert_eq!(
        world.update(a, &[Fid::ROOT, e], swap),
        Err((Some(1), FsError::Loop))
    );
    let out = vec![remove(0, "y", y), link(1, "y", y)];
    world.update(a, &[x, d], out).expect("upwards");
    world.check();
    let around = vec![remove(0, "x", x), link(1, "x", x)];
    world
        .update(a, &[d, y], around)
        .expect("into what was in it");
    assert_eq!(world.names(a, y), ["x", "z"]);
    world.check();
}

#[test]
fn a_directory_goes_if_it_is_empty_at_the_end() {
    let (mut world, a, d, e) = world();
    let sub = world.mkdir(a, d, "sub");
    let f = world.touch(a, sub, "f");
    let gone = vec![remove(0, "sub", sub)];
    assert_eq!(
        world.update(a, &[d], gone.clone()),
        Err((Some(0), FsError::NotEmpty))
    );
    let new = world.fid(a);
    let replaced = replace_by(
        0,
        "sub",
        sub,
        Replacement::Made(made(new, FileKind::Regular)),
    );
    assert_eq!(
        world.update(a, &[d], vec![replaced.clone()]),
        Err((Some(0), FsError::NotEmpty))
    );
    let more = world.fid(a);
    let filled = vec![
        remove(0, "sub", sub),
        remove(1, "f", f),
        make(1, "g", made(more, FileKind::Regular)),
    ];
    assert_eq!(
        world.update(a, &[d, sub], filled),
        Err((Some(0), FsError::NotEmpty))
    );
    let emptied = vec![replaced, remove(1, "f", f)];
    world.update(a, &[d, sub], emptied).expect("done");
    assert_eq!(world.lookup(a, d, "sub").expect("there").fid, new);
    assert_eq!(world.getattr(a, sub), Err(FsError::Stale));
    assert_eq!(
        world.update(a, &[e], gone),
        Err((Some(0), FsError::NotFound))
    );
    world.check();
}

#[test]
fn links_are_counted_once_at_the_end() {
    let (mut world, a, d, e) = world();
    let f = world.touch(a, d, "f");
    world
        .update(a, &[d, e], vec![link(1, "two", f), link(1, "three", f)])
        .expect("linked");
    assert_eq!(world.getattr(a, f).expect("there").attr.nlink, 3);
    world.check();
    let moved = vec![
        remove(0, "f", f),
        remove(1, "two", f),
        remove(1, "three", f),
        link(0, "one", f),
    ];
    world.update(a, &[d, e], moved).expect("moved");
    assert_eq!(world.lookup(a, d, "one").expect("there").attr.nlink, 1);
    world.check();
    world
        .update(a, &[d, e], vec![link(1, "two", f)])
        .expect("linked");
    world
        .update(a, &[d, e], vec![remove(0, "one", f)])
        .expect("one is left");
    assert_eq!(world.lookup(a, e, "two").expect("there").attr.nlink, 1);
    world.check();
    let fresh = world.fid(a);
    let twins = vec![
        link(0, "b", fresh),
        make(0, "a", made(fresh, FileKind::Regular)),
        set_attr(fresh, attr(0o600)),
    ];
    world
        .update(a, &[d, e], twins)
        .expect("made with two names");
    let node = world.lookup(a, d, "b").expect("there");
    assert_eq!((node.attr.nlink, node.attr.mode), (2, 0o600));
    world.check();
    world
        .update(
            a,
            &[d, e],
            vec![remove(0, "a", fresh), remove(0, "b", fresh)],
        )
        .expect("gone");
    assert_eq!(world.getattr(a, fresh), Err(FsError::Stale));
    world.check();
}

#[test]
fn attributes_and_extended_attributes_come_with_their_file() {
    let (mut world, a, d, _) = world();
    let f = world.touch(a, d, "f");
    let times = AttrUpdate {
        uid: Some(5),
        atime: Some(at(1)),
        mtime: Some((at(-7), at(998))),
        ..attr(0o4700)
    };
    let changes = vec![
        set_attr(f, times),
        set_xattr(f, "user.a", b"1"),
        set_xattr(f, "user.b", b"2"),
        set_attr(
            d,
            AttrUpdate {
                mtime: Some((at(50), NOW)),
                ctime: NOW,
                ..AttrUpdate::default()
            },
        ),
    ];
    world.update(a, &[d], changes).expect("done");
    let node = world.getattr(a, f).expect("there").attr;
    assert_eq!((node.mode, node.uid, node.gid), (0o4700, 5, 0));
    assert_eq!((node.atime, node.mtime), (at(1), at(-7)));
    assert!(node.has_xattrs);
    assert_eq!(world.getattr(a, d).expect("there").attr.mtime, at(50));
    world.check();
    let gone = vec![remove_xattr(f, "user.a"), remove_xattr(f, "user.b")];
    world.update(a, &[d], gone.clone()).expect("done");
    assert!(!world.getattr(a, f).expect("there").attr.has_xattrs);
    assert_eq!(
        world.update(a, &[d], gone),
        Err((Some(0), FsError::NoAttribute))
    );
    world.check();
}

#[test]
fn times_stay_between_the_one_before_and_the_clock_of_the_server() {
    let (mut world, a, d, _) = world();
    let f = world.fid(a);
    let wall = world.wall;
    let ahead = at(wall.secs + 5);
    let future = Times {
        atime: ahead,
        mtime: ahead,
        mtime_set: ahead,
        ctime: ahead,
        btime: ahead,
    };
    let file = MadeFile {
        times: future,
        ..made(f, FileKind::Regular)
    };
    world
        .update(a, &[d], vec![make(0, "f", file)])
        .expect("done");
    let attr_of = |world: &mut World| world.getattr(a, f).expect("there").attr;
    let born = attr_of(&mut world);
    assert_eq!(
        [
            born.atime,
            born.mtime,
            born.mtime_set,
            born.ctime,
            born.btime
        ],
        [wall; 5]
    );
    let past = AttrUpdate {
        mtime: Some((at(2000), at(3))),
        ctime: at(3),
        ..AttrUpdate::default()
    };
    world
        .update(a, &[d], vec![set_attr(f, past)])
        .expect("done");
    let later = attr_of(&mut world);
    assert_eq!((later.ctime, later.mtime_set), (wall, wall), "never back");
    assert_eq!(later.mtime, at(2000), "a program's own");
    let leased = LeasedDir {
        changed: ahead,
        ..world.leased(a, &[d])[0]
    };
    world
        .update_under(a, vec![leased], vec![remove(0, "f", f)])
        .expect("done");
    assert_eq!(world.getattr(a, d).expect("there").attr.mtime, wall);
}

#[test]
fn a_written_file_is_exact_where_nobody_else_wrote() {
    let (mut world, a, d, _) = world();
    let (f, g) = (world.fid(a), world.fid(a));
    let changes = vec![
        make(0, "f", written(f, 0, None)),
        sized(f, 700, OpenHandle(0)),
        make(0, "g", written(g, 0, Some(BOTH))),
        sized(g, 5, OpenHandle(0)),
    ];
    let (_, notes) = world.update(a, &[d], changes).expect("done");
    let (handle, ticket, is_locked) = opened(&notes);
    assert!(ticket.open_epoch > 0 && is_locked);
    let exact = world.getattr(a, f).expect("there").attr;
    assert_eq!((exact.size, exact.size_state), (700, SizeState::Strict));
    let open = world.getattr(a, g).expect("there").attr;
    assert_eq!((open.size, open.size_state), (5, SizeState::Ask));
    world
        .update(a, &[d], vec![sized(g, 9, handle)])
        .expect("closed");
    let closed = world.getattr(a, g).expect("there").attr;
    assert_eq!((closed.size, closed.size_state), (9, SizeState::Strict));
    assert!(world.mds.opens().is_empty());
    assert_eq!(
        world.update(a, &[d], vec![sized(g, 9, handle)]),
        Err((Some(0), FsError::BadHandle))
    );
    assert_eq!(
        world.update(a, &[d], vec![sized(g, 9, OpenHandle(0))]),
        Err((Some(0), FsError::Invalid)),
        "no writer"
    );
    let handle = world.open(a, g, BOTH).expect("open");
    let b = world.connect(2);
    let other = world.open(b, g, BOTH).expect("open");
    world
        .close(b, g, other, SetAttr::default())
        .expect("closed");
    give_all_back(&mut world, b);
    let (_, notes) = world
        .update(a, &[d], vec![sized(g, 11, handle)])
        .expect("closed");
    assert_eq!(notes[0].told, Told::Inexact);
    assert_eq!(
        world.getattr(a, g).expect("there").attr.size_state,
        SizeState::Ask
    );
    world.check();
}

#[test]
fn a_removed_file_stays_while_it_is_open_and_not_for_a_use_that_ends() {
    let (mut world, a, d, _) = world();
    let (f, g) = (world.fid(a), world.fid(a));
    let changes = vec![
        make(0, "f", written(f, 0, Some(WRITE))),
        make(0, "g", written(g, 0, Some(READ))),
    ];
    let (_, notes) = world.update(a, &[d], changes).expect("done");
    let (handle, ..) = opened(&notes);
    let gone = vec![remove(0, "f", f), sized(f, 3, handle), remove(0, "g", g)];
    world.update(a, &[d], gone).expect("done");
    assert_eq!(world.getattr(a, f), Err(FsError::Stale));
    assert_eq!(world.getattr(a, g).expect("open").attr.nlink, 0);
    assert_eq!(world.mds.uses(), [(a, g)]);
    world.check();
}

#[test]
fn what_the_server_never_knew_leaves_a_destroy_record() {
    let (mut world, a, d, _) = world();
    let f = world.touch(a, d, "f");
    let (gone, epoch) = (world.fid(a), world.mds.opens().last_epoch());
    let record = |fid, ost, open_epoch| {
        vec![Change::Gone {
            fid,
            ost: TargetIndex(ost),
            open_epoch,
        }]
    };
    for (fid, ost, open_epoch, error) in [
        (f, 0, epoch, FsError::Invalid),
        (
            Fid::new(Fid::SEQUENCE_FIRST + 9, 1),
            0,
            epoch,
            FsError::Invalid,
        ),
        (gone, 9, epoch, FsError::TryAgain),
        (gone, 0, epoch + 1, FsError::Invalid),
    ] {
        let refused = world.update(a, &[d], record(fid, ost, open_epoch));
        assert_eq!(refused, Err((Some(0), error)));
    }
    world.update(a, &[d], record(gone, 0, epoch)).expect("done");
    world.check();
    let back = vec![make(0, "back", written(gone, 0, None))];
    let refused = world.update(a, &[d], back);
    assert_eq!(
        refused,
        Err((Some(0), FsError::Invalid)),
        "not while its object is removed"
    );
}

#[test]
fn a_set_is_done_under_its_leases_only() {
    let (mut world, a, d, e) = world();
    let b = world.connect(2);
    let f = world.fid(a);
    let changes = || vec![make(0, "f", made(f, FileKind::Regular))];
    let under = |lease| {
        vec![LeasedDir {
            dir: d,
            lease,
            changed: NOW,
        }]
    };
    let stale = Err((None, FsError::Stale));
    assert_eq!(
        world.update_under(a, under(LockHandle(0)), changes()),
        stale
    );
    assert_eq!(
        world.update_under(a, under(LockHandle(77)), changes()),
        stale
    );
    let of_e = world.leased(a, &[e])[0].lease;
    let of_d = world.leased(a, &[d])[0].lease;
    assert_eq!(world.update_under(a, under(of_e), changes()), stale);
    assert_eq!(world.update_under(b, under(of_d), changes()), stale);
    world
        .update_under(a, under(of_d), changes())
        .expect("its own");
    let handles = vec![of_d];
    world
        .call(a, Request::Cancel { handles })
        .expect("given back");
    assert_eq!(world.update_under(a, under(of_d), changes()), stale);
    let twice = world.leased(a, &[d, d]);
    assert_eq!(
        world.update_under(a, twice, changes()),
        Err((None, FsError::Invalid))
    );
    assert_eq!(
        world.update(a, &[d], Vec::new()),
        Err((None, FsError::Invalid))
    );
    assert_eq!(
        world.update_under(a, Vec::new(), changes()),
        Err((None, FsError::Invalid))
    );
}

#[test]
fn a_directory_of_the_set_before_serves_the_set_behind_it_in_its_frame() {
    let (mut world, a, d, _) = world();
    let (sub, f) = (world.fid(a), world.fid(a));
    let leased = world.leased(a, &[d]);
    let inside = |world: &mut World, xid: u64, index, dirs, change| {
        let changes = vec![change];
        let request = Request::Update { dirs, changes };
        world.send_in(a, 6, base::Xid(xid), index, request)
    };
    let below = vec![LeasedDir {
        dir: sub,
        lease: LockHandle(0),
        changed: NOW,
    }];
    let file = make(0, "f", made(f, FileKind::Regular));
    // Refused: it has a name that is taken. So what is inside is not done.
    world.touch(a, d, "taken");
    let dir = made(sub, FileKind::Directory);
    let leased_again = world.leased(a, &[d]);
    assert_eq!(leased, leased_again);
    let first = inside(
        &mut world,
        900,
        0,
        leased.clone(),
        make(0, "taken", dir.clone()),
    );
    let second = inside(&mut world, 900, 1, below.clone(), file.clone());
    let refused = Reply::UpdateRefused {
        change: 0,
        error: FsError::Exists,
    };
    assert_eq!(world.wait(first), (Ok(refused), Transno(0)));
    assert_eq!(world.wait(second), (Err(FsError::Stale), Transno(0)));
    let first = inside(&mut world, 901, 0, leased, make(0, "sub", dir));
    let second = inside(&mut world, 901, 1, below, file);
    assert!(world.wait(first).0.is_ok());
    assert!(matches!(world.wait(second).0, Ok(Reply::Updated { .. })));
    assert_eq!(world.lookup(a, sub, "f").expect("there").fid, f);
    world.check();
}

#[test]
fn a_file_that_another_client_has_a_lock_on_is_not_changed() {
    let (mut world, a, d, _) = world();
    let b = world.connect(2);
    let sub = world.mkdir(a, d, "sub");
    world
        .getattr(b, sub)
        .expect("seen, and kept under a lock of its own");
    world.names(b, sub);
    let changes = vec![set_attr(d, attr(0o711)), remove(0, "sub", sub)];
    assert_eq!(
        world.update(a, &[d], changes),
        Err((Some(1), FsError::Busy))
    );
    assert_eq!(world.getattr(a, d).expect("there").attr.mode, 0o755);
    world.check();
}

#[test]
fn a_wrong_set_names_its_change_and_changes_nothing() {
    let (mut world, a, d, e) = world();
    let f = world.touch(a, d, "f");
    let far = world.touch(a, e, "far");
    let link_target = world.make(a, d, "l", FileKind::Symlink);
    let sub = world.mkdir(a, d, "sub");
    let new = world.fid(a);
    let foreign = Fid::new(Fid::SEQUENCE_FIRST + 50, 3);
    let file = |fid| made(fid, FileKind::Regular);
    let with_mode = |mode| {
        let mut made = file(new);
        made.file.mode = mode;
        made
    };
    let bare_symlink = {
        let mut made = made(new, FileKind::Symlink);
        made.file.target.clear();
        made
    };
    let open_fifo = MadeFile {
        open: Some(READ),
        ..made(new, FileKind::Fifo)
    };
    let long = vec![0; base::limits::XATTR_VALUE_BYTES_MAX + 1];
    let invalid = FsError::Invalid;
    let wrong: Vec<(Change, FsError)> = vec![
        (make(0, "f", file(new)), FsError::Exists),
        (make(1, "n", file(new)), invalid),
        (make(0, "n", file(foreign)), invalid),
        (make(0, "n", file(f)), invalid),
        (make(0, "n", file(Fid::ROOT)), invalid),
        (make(0, "n", file(Fid::NONE)), invalid),
        (make(0, "n", with_mode(0o10000)), invalid),
        (make(0, "n", bare_symlink), FsError::NotFound),
        (make(0, "n", open_fifo), invalid),
        (make(0, "n", written(new, 5, None)), FsError::TryAgain),
        (make(0, "ok", file(new)), invalid),
        (link(0, "n", far), invalid),
        (link(0, "n", foreign), FsError::Stale),
        (link(0, "n", sub), FsError::NotPermitted),
        (link(0, "n", d), FsError::NotPermitted),
        (remove(0, "n", f), FsError::NotFound),
        (remove(0, "f", far), FsError::Stale),
        (replace(0, "f", far, f), FsError::Stale),
        (replace(0, "n", f, f), FsError::NotFound),
        (set_attr(f, attr(0o10000)), invalid),
        (set_attr(far, attr(0o600)), invalid),
        (set_attr(foreign, attr(0o600)), FsError::Stale),
        (set_xattr(f, "nobody.a", b""), FsError::NotSupported),
        (set_xattr(f, "user.", b""), invalid),
        (set_xattr(link_target, "user.a", b""), FsError::NotPermitted),
        (set_xattr(f, "user.a", &long), FsError::TooLarge),
        (set_xattr(far, "user.a", b""), invalid),
        (remove_xattr(f, "user.a"), FsError::NoAttribute),
        (sized(f, 1, OpenHandle(0)), invalid),
        (sized(f, 1, OpenHandle(3)), FsError::BadHandle),
        (sized(far, 1, OpenHandle(0)), invalid),
    ];
    let before = world.names(a, d);
    for (change, error) in wrong {
        let good = world.fid(a);
        let set = vec![make(0, "ok", file(good)), change.clone()];
        let refused = world.update(a, &[d], set);
        assert_eq!(refused, Err((Some(1), error)), "{change:?}");
        assert_eq!(world.names(a, d), before);
    }
    let twice: Vec<Vec<Change>> = vec![
        vec![remove(0, "f", f), make(0, "f", file(new))],
        vec![set_attr(f, attr(0o600)), set_attr(f, attr(0o700))],
        vec![set_xattr(f, "user.a", b"1"), remove_xattr(f, "user.a")],
        vec![make(0, "m", file(new)), make(0, "n", file(new))],
    ];
    for set in twice {
        assert_eq!(
            world.update(a, &[d], set.clone()),
            Err((Some(1), invalid)),
            "{set:?}"
        );
    }
    let many = (0..257).map(|n| link(0, &format!("n{n}"), f)).collect();
    assert_eq!(world.update(a, &[d], many), Err((None, invalid)));
    world.check();
}

#[test]
fn a_file_system_that_is_full_makes_nothing_and_removes() {
    let rules = mds::Rules {
        files_max: 5,
        ..mds::Rules::default()
    };
    let mut world = World::with(rules, 56);
    let a = world.connect(1);
    let d = world.mkdir(a, Fid::ROOT, "d");
    let fids: Vec<Fid> = (0..4).map(|_| world.fid(a)).collect();
    let changes: Vec<Change> = fids
        .iter()
        .enumerate()
        .map(|(n, fid)| make(0, &format!("f{n}"), made(*fid, FileKind::Regular)))
        .collect();
    assert_eq!(
        world.update(a, &[d], changes.clone()),
        Err((Some(3), FsError::NoSpace))
    );
    world
        .update(a, &[d], changes[..3].to_vec())
        .expect("room for three");
    world
        .update(a, &[d], vec![remove(0, "f0", fids[0])])
        .expect("removed");
    world.check();
}

#[test]
fn a_replaced_name_keeps_its_cookie_and_collisions_are_told() {
    let mut world = World::colliding();
    let a = world.connect(1);
    let d = world.mkdir(a, Fid::ROOT, "d");
    let mut changes = Vec::new();
    for n in 0..40 {
        let fid = world.fid(a);
        changes.push(make(0, &format!("f{n}"), made(fid, FileKind::Regular)));
    }
    let (_, notes) = world.update(a, &[d], changes).expect("done");
    let entries = world.list(a, d, 100);
    assert_eq!(entries.len(), 40);
    for entry in &entries {
        let place: u16 = entry.name.to_string()[1..].parse().expect("a number");
        let told = notes.iter().find_map(|note| match note.told {
            Told::Cookie(cookie) if note.change == place => Some(cookie),
            _ => None,
        });
        let first = entry.cookie & !127;
        assert_eq!(told.unwrap_or(first), entry.cookie);
    }
    assert!(
        notes
            .iter()
            .any(|note| matches!(note.told, Told::Cookie(_)))
    );
    let swapped: Vec<Change> = entries
        .iter()
        .zip(entries.iter().cycle().skip(1))
        .map(|(entry, next)| replace(0, &entry.name.to_string(), entry.fid, next.fid))
        .collect();
    let (_, notes) = world.update(a, &[d], swapped).expect("a ring of forty");
    assert_eq!(notes, []);
    let now = world.list(a, d, 100);
    for (at, entry) in now.iter().enumerate() {
        assert_eq!(entry.cookie, entries[at].cookie);
        assert_eq!(entry.fid, entries[(at + 1) % 40].fid);
    }
    world.check();
}
