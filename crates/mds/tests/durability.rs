//! What crashes take and leave, and that nothing is done twice.

mod support;

use std::time::Duration;

use base::{BootEpoch, Fid, FsError, TargetIndex, Transno, Xid};
use mds::OstInquiry;
use support::*;
use wire::mdt::{OpenHandle, OpenIntent, RenameMode, Reply, Request, SetAttr, XattrMode};
use wire::{Cover, FileKind, SizeState};

#[test]
fn a_crash_takes_a_suffix() {
    let mut world = World::new();
    let a = world.connect(1);
    let dir = world.mkdir(a, Fid::ROOT, "d");
    for i in 0..10 {
        world.touch(a, dir, &format!("kept{i}"));
    }
    world.flush();
    let kept = world.mds.last_transno();
    assert_eq!(world.mds.last_committed(), kept);
    for i in 0..10 {
        world.touch(a, dir, &format!("lost{i}"));
    }
    world
        .rename(a, (dir, "kept0"), (Fid::ROOT, "moved"), RenameMode::Replace)
        .expect("moved");
    assert_eq!(world.mds.last_committed(), kept);
    world.crash();
    world.check();
    assert_eq!(world.mds.last_transno(), kept);
    let names: Vec<String> = (0..10).map(|i| format!("kept{i}")).collect();
    assert_eq!(world.names(a, dir), names);
    assert_eq!(world.names(a, Fid::ROOT), ["d"]);
}

#[test]
fn sync_answers_when_all_is_durable() {
    let mut world = World::new();
    let a = world.connect(1);
    world.auto_flush = false;
    world.flush();
    let tag = world.send(a, Request::Sync);
    assert!(world.poll(tag).is_some(), "nothing is waiting");
    let request = Request::AllocSequences;
    let granting = world.send(a, request);
    assert!(
        world.poll(granting).is_none(),
        "a grant is durable before it is used"
    );
    let syncing = world.send(a, Request::Sync);
    assert!(world.poll(syncing).is_none());
    world.flush();
    assert!(world.poll(granting).is_some() && world.poll(syncing).is_some());
}

#[test]
fn others_see_a_change_when_it_is_durable() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    let (dir, other) = (
        world.mkdir(a, Fid::ROOT, "d"),
        world.mkdir(a, Fid::ROOT, "e"),
    );
    world.fid(b);
    world.flush();
    world.auto_flush = false;
    let f = world.touch(a, dir, "f");
    assert!(
        world.lookup(a, dir, "f").is_some(),
        "the maker does at once"
    );
    let lookup = |text| Request::Lookup {
        dir,
        name: name(text),
    };
    let waits = |world: &mut World, request| {
        let tag = world.send(b, request);
        world.answer_questions();
        let waits = world.poll(tag).is_none();
        (tag, waits)
    };
    let change = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    let under = base::LockHandle(0);
    let set = Request::SetAttr {
        fid: f,
        dir,
        change,
        caller: ROOT_USER,
        under,
    };
    let waiting = [lookup("f"), Request::GetAttr { fid: f, dir }, set];
    let waiting = waiting.map(|request| waits(&mut world, request));
    assert!(waiting.iter().all(|(_, waits)| *waits), "{waiting:?}");
    // What cannot be done shows it, too.
    let refused = Request::Unlink {
        dir,
        name: name("f"),
        directory: true,
        caller: ROOT_USER,
    };
    let (refused, is_held) = waits(&mut world, refused);
    assert!(is_held, "a refusal shows that the name is there");
    for request in [lookup("g"), Request::GetAttr { fid: other, dir }] {
        assert!(!waits(&mut world, request).1);
    }
    // Other names in the directory are made without waiting.
    let fid = world.fid(b);
    assert!(!waits(&mut world, create_open_request(fid, dir, "h", READ)).1);
    world.flush();
    for (tag, _) in waiting {
        assert!(matches!(world.poll(tag), Some((Ok(_), _))));
    }
    let (refused, _) = world.poll(refused).expect("durable");
    assert_eq!(refused.err(), Some(FsError::NotDirectory));
}

#[test]
fn a_refusal_for_what_is_not_named_waits_until_that_is_durable() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    let dir = world.mkdir(a, Fid::ROOT, "d");
    let full = world.mkdir(a, dir, "full");
    let (outer, inner) = (world.mkdir(a, dir, "outer"), world.mkdir(a, dir, "inner"));
    let owned = world.touch(a, dir, "owned");
    let set = |fid, change| Request::SetAttr {
        fid,
        dir,
        change,
        caller: ROOT_USER,
        under: base::LockHandle(0),
    };
    let give = |uid| SetAttr {
        uid: Some(uid),
        ..SetAttr::default()
    };
    let sticky = SetAttr {
        mode: Some(0o1777),
        ..SetAttr::default()
    };
    world.call(a, set(dir, sticky)).expect("set");
    world.call(a, set(dir, give(1))).expect("given");
    world.call(a, set(owned, give(7))).expect("given");
    world.flush();
    world.auto_flush = false;
    // The first client's changes, none of them durable.
    world.touch(a, full, "f");
    world.call(a, set(owned, give(8))).expect("given");
    let moved = world.rename(a, (dir, "inner"), (outer, "inner"), RenameMode::Replace);
    moved.expect("moved");
    let remove = |text, directory, uid| Request::Unlink {
        dir,
        name: name(text),
        directory,
        caller: wire::mdt::Caller { uid, gid: uid },
    };
    let replace = |from, to| rename_request(from, to, RenameMode::Replace, ROOT_USER);
    let refused = [
        (remove("full", true, 0), FsError::NotEmpty),
        (replace((dir, "outer"), (dir, "full")), FsError::NotEmpty),
        (replace((dir, "outer"), (inner, "o")), FsError::Invalid),
        (remove("owned", false, 7), FsError::NotPermitted),
    ];
    let refused = refused.map(|(request, why)| (world.send(b, request), why));
    world.answer_questions();
    for (tag, why) in &refused {
        assert!(world.poll(*tag).is_none(), "{why:?} shows what may go");
    }
    world.flush();
    for (tag, why) in refused {
        let (answer, _) = world.poll(tag).expect("durable");
        assert_eq!(answer.err(), Some(why));
    }
}

#[test]
fn the_first_writer_of_an_exact_size_waits_for_the_disk() {
    let mut world = World::new();
    let a = world.connect(1);
    let f = world.touch(a, Fid::ROOT, "f");
    world.flush();
    world.auto_flush = false;
    let open = Request::Open {
        fid: f,
        dir: Fid::ROOT,
        access: WRITE,
        intent: OpenIntent::First,
    };
    let tag = world.send(a, open.clone());
    assert!(world.poll(tag).is_none());
    world.flush();
    let Some((
        Ok(Reply::Opened {
            ticket: first,
            node,
            ..
        }),
        _,
    )) = world.poll(tag)
    else {
        panic!()
    };
    assert_eq!(node.attr.size_state, SizeState::Ask);
    let tag = world.send(a, open.clone());
    let Some((Ok(Reply::Opened { ticket: second, .. }), _)) = world.poll(tag) else {
        panic!("not exact any more: no need to wait")
    };
    assert!(second.open_epoch > first.open_epoch);
    world.crash();
    assert_eq!(
        world.getattr(a, f).expect("there").attr.size_state,
        SizeState::Ask
    );
    let tag = world.send(a, open);
    let Some((Ok(Reply::Opened { ticket, .. }), _)) = world.poll(tag) else {
        panic!()
    };
    assert!(ticket.open_epoch > second.open_epoch, "epochs only grow");
}

/// Sends a request twice: with the server up all the while, and over a crash.
fn resent(world: &mut World, client: base::ClientId, xid: u64, request: Request) -> Reply {
    let send = |world: &mut World| {
        let tag = world.send_in(client, 50, Xid(xid), 0, request.clone());
        let (result, transno) = world.wait(tag);
        (result.expect("done"), transno)
    };
    let (first, transno) = send(world);
    let files = files(world, client);
    let (second, again) = send(world);
    assert_eq!((&second, again), (&first, transno));
    world.check();
    assert_eq!(files_of(world, client), files, "not done again");
    world.flush();
    world.crash();
    let (third, again) = send(world);
    assert_eq!(again, transno);
    assert_eq!(bare(third), bare(first.clone()));
    world.check();
    assert_eq!(files_of(world, client), files);
    first
}

fn files(world: &mut World, client: base::ClientId) -> u64 {
    files_of(world, client)
}

fn files_of(world: &mut World, client: base::ClientId) -> u64 {
    match world.call(client, Request::StatFs) {
        Ok(Reply::Space(space)) => space.files_free,
        other => panic!("{other:?}"),
    }
}

/// An answer without what is good in one boot of the server only.
fn bare(mut reply: Reply) -> Reply {
    let blank = |node: &mut wire::Node| node.cover = Cover::None;
    match &mut reply {
        Reply::Node(node) => blank(node),
        Reply::Created {
            node,
            dir,
            handle,
            ticket,
            ..
        } => {
            blank(node);
            (dir.version, *handle, *ticket) = (0, OpenHandle(0), Default::default());
        }
        Reply::Opened {
            node,
            handle,
            ticket,
        } => {
            blank(node);
            (*handle, *ticket) = (OpenHandle(0), Default::default());
        }
        Reply::Linked { node, dir, .. } | Reply::Unlinked { node, dir } => {
            blank(node);
            dir.version = 0;
        }
        Reply::Renamed {
            source_dir,
            target_dir,
            node,
            replaced,
            ..
        } => {
            blank(node);
            replaced.iter_mut().for_each(blank);
            (source_dir.version, target_dir.version) = (0, 0);
        }
        _ => {}
    }
    reply
}

#[test]
fn every_modification_is_done_once() {
    let mut world = World::new();
    let a = world.connect(1);
    let (d, f) = (
        world.mkdir(a, Fid::ROOT, "d"),
        world.touch(a, Fid::ROOT, "f"),
    );
    world.touch(a, d, "g");
    let (fid, dir, caller) = (world.fid(a), Fid::ROOT, ROOT_USER);
    let under = base::LockHandle(0);
    let change = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    let (text, value) = (b"user.x".to_vec(), b"1".to_vec());
    let requests = [
        Request::AllocSequences,
        create_open_request(fid, dir, "new", WRITE),
        Request::Link {
            fid: f,
            dir: d,
            name: name("link"),
        },
        rename_request((d, "g"), (dir, "g"), RenameMode::NoReplace, caller),
        Request::SetAttr {
            fid: f,
            dir,
            change,
            caller,
            under,
        },
        Request::SetXattr {
            fid: f,
            dir: Fid::NONE,
            name: text.clone(),
            value,
            mode: XattrMode::Create,
        },
        Request::RemoveXattr {
            fid: f,
            dir: Fid::NONE,
            name: text,
        },
        Request::Open {
            fid: f,
            dir,
            access: WRITE,
            intent: OpenIntent::First,
        },
        Request::Unlink {
            dir,
            name: name("g"),
            directory: false,
            caller,
        },
    ];
    for (i, request) in requests.into_iter().enumerate() {
        resent(&mut world, a, 100 + i as u64, request);
    }
    // A close in the boot it was opened in.
    let handle = world.open(a, f, READ).expect("opened");
    let close = Request::Close {
        fid: f,
        dir: Fid::NONE,
        handle,
        change: SetAttr::default(),
        under,
    };
    let sent: Vec<_> = (0..2)
        .map(|_| {
            let tag = world.send_in(a, 51, Xid(1), 0, close.clone());
            world.poll(tag).expect("answered")
        })
        .collect();
    assert_eq!(sent[0], sent[1]);
    assert!(sent[0].0.is_ok());
}

#[test]
fn a_resent_open_after_a_crash_is_open_again() {
    let mut world = World::new();
    let a = world.connect(1);
    let fid = world.fid(a);
    let create = create_open_request(fid, Fid::ROOT, "f", WRITE);
    let Reply::Created { handle: old, .. } = resent(&mut world, a, 9, create.clone()) else {
        panic!()
    };
    let tag = world.send_in(a, 50, Xid(9), 0, create);
    let Some((Ok(Reply::Created { handle, .. }), _)) = world.poll(tag) else {
        panic!()
    };
    assert_ne!(handle, old);
    assert_eq!(
        world.mds.opens().len(),
        1,
        "once, however often it is resent"
    );
    assert!(world.close(a, fid, handle, SetAttr::default()).is_ok());
    assert_eq!(
        world.close(a, fid, old, SetAttr::default()),
        Err(FsError::BadHandle)
    );
}

#[test]
fn a_frame_is_resumed_where_the_crash_cut_it() {
    let mut world = World::new();
    let a = world.connect(1);
    let fids: Vec<Fid> = (0..6).map(|_| world.fid(a)).collect();
    let send = |world: &mut World, i: usize| {
        let request = create_open_request(fids[i], Fid::ROOT, &format!("f{i}"), READ);
        let tag = world.send_in(a, 7, Xid(70), i as u16, request);
        world.poll(tag).expect("answered")
    };
    let first: Vec<_> = (0..3).map(|i| send(&mut world, i)).collect();
    world.flush();
    (3..6).for_each(|i| assert!(send(&mut world, i).0.is_ok()));
    world.crash();
    for round in 0..2 {
        for i in 0..6 {
            let (result, transno) = send(&mut world, i);
            assert!(result.is_ok(), "round {round}, {i}");
            if let Some((_, before)) = first.get(i) {
                assert_eq!(transno, *before);
            }
        }
    }
    assert_eq!(world.names(a, Fid::ROOT).len(), 6);
    world.check();
    // A shorter frame in that slot ends the memory of the longer one.
    let fid = world.fid(a);
    let tag = world.send_in(
        a,
        7,
        Xid(71),
        0,
        create_open_request(fid, Fid::ROOT, "g", READ),
    );
    assert!(world.poll(tag).is_some());
    let (result, _) = send(&mut world, 4);
    assert_eq!(result, Err(FsError::Exists), "run anew, not remembered");
}

/// What its user finds below a directory: files by their paths, with modes, counts of names, and
/// extended attributes.
fn found_below(world: &mut World, client: base::ClientId, dir: Fid, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in world.list(client, dir, 100) {
        let (fid, path) = (entry.fid, format!("{path}/{}", entry.name));
        let attr = world.getattr(client, fid).expect("there").attr;
        let values = match world.call(client, Request::GetXattrs { fid }) {
            Ok(Reply::Xattrs { values, .. }) => values,
            other => panic!("{other:?}"),
        };
        let (mode, nlink) = (attr.mode, attr.nlink);
        found.push(format!("{path}: {fid} {mode:o} {nlink} {values:?}"));
        if entry.kind == FileKind::Directory {
            found.extend(found_below(world, client, fid, &path));
        }
    }
    found.sort();
    found
}

const KINDS: usize = 14;

/// A tree, and a frame with changes of every kind in it, none of which can be done twice.
fn a_frame_of_all_kinds(world: &mut World, a: base::ClientId) -> [Request; KINDS] {
    let (root, caller, under) = (Fid::ROOT, ROOT_USER, base::LockHandle(0));
    let d = world.mkdir(a, root, "d");
    world.mkdir(a, root, "gone");
    let [f, ..] = ["f", "g", "h", "i", "j"].map(|text| world.touch(a, root, text));
    let (x, y, value) = (b"user.x".to_vec(), b"user.y".to_vec(), b"1".to_vec());
    let set = |name, mode| Request::SetXattr {
        fid: f,
        dir: Fid::NONE,
        name,
        value: value.clone(),
        mode,
    };
    world.call(a, set(y.clone(), XattrMode::Set)).expect("set");
    let change = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    let remove = |text, directory| Request::Unlink {
        dir: root,
        name: name(text),
        directory,
        caller,
    };
    let made = world.fid(a);
    let rename = |from, to, mode| rename_request(from, to, mode, caller);
    [
        make_request(made, root, "made", FileKind::Directory),
        make_request(world.fid(a), made, "in it", FileKind::Regular),
        make_request(world.fid(a), root, "s", FileKind::Symlink),
        make_request(world.fid(a), root, "p", FileKind::Fifo),
        create_open_request(world.fid(a), root, "open", WRITE),
        Request::Link {
            fid: f,
            dir: d,
            name: name("link"),
        },
        rename((root, "g"), (d, "g"), RenameMode::NoReplace),
        rename((root, "h"), (root, "i"), RenameMode::Replace),
        rename((root, "f"), (root, "j"), RenameMode::Exchange),
        Request::SetAttr {
            fid: f,
            dir: root,
            change,
            caller,
            under,
        },
        set(x, XattrMode::Create),
        Request::RemoveXattr {
            fid: f,
            dir: Fid::NONE,
            name: y,
        },
        remove("i", false),
        remove("gone", true),
    ]
}

/// With none of it durable, it is a frame that is sent again and was never done.
#[test]
fn a_frame_of_all_kinds_of_changes_is_done_once_wherever_a_crash_cut_it() {
    let send = |world: &mut World, a, (i, request): (usize, &Request)| {
        let tag = world.send_in(a, 50, Xid(1000), i as u16, request.clone());
        let (result, transno) = world.poll(tag).expect("nobody is in the way");
        let reply = result.unwrap_or_else(|error| panic!("{request:?}: {error}"));
        (reply, transno)
    };
    let mut whole = None;
    for cut in 0..=KINDS {
        let mut world = World::new();
        let a = world.connect(1);
        let frame = a_frame_of_all_kinds(&mut world, a);
        world.flush();
        let mut first = Vec::new();
        for numbered in frame.iter().enumerate() {
            first.push(send(&mut world, a, numbered));
            if first.len() == cut {
                world.flush();
            }
        }
        let expected = whole.get_or_insert_with(|| found_below(&mut world, a, Fid::ROOT, ""));
        world.crash();
        let mut again = Vec::new();
        for numbered in frame.iter().enumerate() {
            again.push(send(&mut world, a, numbered));
        }
        for ((reply, transno), before) in again.iter().zip(first).take(cut) {
            assert_eq!((bare(reply.clone()), *transno), (bare(before.0), before.1));
        }
        for numbered in frame.iter().enumerate() {
            assert_eq!(send(&mut world, a, numbered), again[numbered.0]);
        }
        assert_eq!(found_below(&mut world, a, Fid::ROOT, ""), *expected);
        assert_eq!(world.mds.opens().len(), 1, "cut at {cut}");
        world.check();
    }
}

#[test]
fn a_resent_close_changes_nothing_after_what_was_changed_since() {
    let mut world = World::new();
    let a = world.connect(1);
    let f = world.touch(a, Fid::ROOT, "f");
    let handle = world.open(a, f, WRITE).expect("opened");
    let mode = |mode| SetAttr {
        mode: Some(mode),
        ..SetAttr::default()
    };
    let close = Request::Close {
        fid: f,
        dir: Fid::NONE,
        handle,
        change: mode(0o640),
        under: base::LockHandle(0),
    };
    let send = |world: &mut World| {
        let tag = world.send_in(a, 51, Xid(1000), 0, close.clone());
        world.poll(tag).expect("answered")
    };
    let (first, transno) = send(&mut world);
    let first = bare(first.expect("closed"));
    world.setattr(a, f, mode(0o604)).expect("changed since");
    for _ in 0..2 {
        let (again, same) = send(&mut world);
        assert_eq!(
            (bare(again.expect("closed")), same),
            (first.clone(), transno)
        );
        assert_eq!(world.getattr(a, f).expect("there").attr.mode, 0o604);
        world.flush();
        world.crash();
    }
    world.check();
}

#[test]
fn answers_are_kept_for_those_who_may_come_back() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    let stored = |world: &World| {
        let mut count = 0;
        let table = mds::store::table_id(mds::keys::Table::Replies);
        let scanned = world.kv.scan(table, &storage::KeyRange::all(), |_, _| {
            count += 1;
            std::ops::ControlFlow::Continue(())
        });
        scanned.map(|()| count).expect("readable")
    };
    for client in [a, b] {
        world.fid(client);
    }
    world.flush();
    assert_eq!(stored(&world), 2);
    world.evict(a);
    assert_eq!(stored(&world), 1);
    world.connect(1);
    world.flush();
    // After a crash: until the grace period ends.
    world.clients.remove(&2);
    world.crash();
    assert_eq!(stored(&world), 1);
    world.advance(mds::GRACE);
    assert_eq!(stored(&world), 0);
}

#[test]
fn orphans_wait_for_their_users_after_a_crash() {
    let mut world = World::new();
    let a = world.connect(1);
    let (f, g) = (
        world.touch(a, Fid::ROOT, "f"),
        world.touch(a, Fid::ROOT, "g"),
    );
    let h = world.touch(a, Fid::ROOT, "h");
    for fid in [f, g, h] {
        world.open(a, fid, READ).expect("opened");
    }
    for text in ["f", "g"] {
        world.unlink(a, Fid::ROOT, text).expect("gone");
    }
    world.flush();
    world.crash();
    world.check();
    // One is told again; one not; one loses its name before it is told.
    let again = |fid| Request::Open {
        fid,
        dir: Fid::NONE,
        access: READ,
        intent: OpenIntent::Reopen,
    };
    let Ok(Reply::Opened { handle, .. }) = world.call(a, again(f)) else {
        panic!()
    };
    world.unlink(a, Fid::ROOT, "h").expect("gone");
    assert!(world.call(a, again(h)).is_ok());
    world.advance(mds::GRACE - Duration::from_secs(2));
    assert!(world.getattr(a, g).is_ok());
    world.advance(Duration::from_secs(2));
    world.check();
    assert_eq!(world.getattr(a, g), Err(FsError::Stale));
    assert!(world.getattr(a, f).is_ok() && world.getattr(a, h).is_ok());
    world
        .close(a, f, handle, SetAttr::default())
        .expect("closed");
    assert_eq!(world.getattr(a, f), Err(FsError::Stale));
    world.check();
}

#[test]
fn orphans_wait_no_longer_than_their_users_have_something_to_tell() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    let f = world.touch(a, Fid::ROOT, "f");
    world.fid(b);
    world.open(a, f, READ).expect("opened");
    world.unlink(a, Fid::ROOT, "f").expect("gone");
    world.flush();
    let join = |world: &mut World, client, boot_epoch| {
        let joined = world.call(client, Request::Join { boot_epoch });
        assert_eq!(joined, Ok(Reply::Done));
        world.advance(Duration::ZERO);
        world.check();
    };
    world.crash();
    let (before, boot_epoch) = (BootEpoch(1), BootEpoch(2));
    let clients = [1, 2].map(|n| world.clients[&n].id);
    join(&mut world, clients[0], boot_epoch);
    join(&mut world, clients[1], before);
    let client = clients[0];
    assert!(world.getattr(client, f).is_ok(), "one may have it open");
    join(&mut world, clients[1], boot_epoch);
    assert_eq!(world.getattr(client, f), Err(FsError::Stale));
}

#[test]
fn orphans_do_not_wait_for_who_is_gone() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    let f = world.touch(a, Fid::ROOT, "f");
    world.fid(b);
    world.open(b, f, READ).expect("opened");
    world.unlink(a, Fid::ROOT, "f").expect("gone");
    world.flush();
    world.crash();
    let (boot_epoch, clients) = (BootEpoch(2), [1, 2].map(|n| world.clients[&n].id));
    let joined = world.call(clients[0], Request::Join { boot_epoch });
    assert_eq!(joined, Ok(Reply::Done));
    world.advance(Duration::from_secs(1));
    assert!(world.getattr(clients[0], f).is_ok());
    world.evict(clients[1]);
    world.advance(Duration::ZERO);
    assert_eq!(world.getattr(clients[0], f), Err(FsError::Stale));
}

#[test]
fn what_was_held_back_is_held_back_when_it_is_answered_again() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    world.touch(b, Fid::ROOT, "f");
    let create = create_open_request(world.fid(a), Fid::ROOT, "f", WRITE);
    world.flush();
    world.auto_flush = false;
    world.unlink(b, Fid::ROOT, "f").expect("gone");
    let send = |world: &mut World| {
        let tag = world.send_in(a, 3, Xid(1000), 0, create.clone());
        world.answer_questions();
        tag
    };
    let (first, again) = (send(&mut world), send(&mut world));
    assert!(
        world.poll(first).is_none(),
        "it follows what is not durable"
    );
    assert!(
        world.poll(again).is_none(),
        "nor less for the client that asks again"
    );
    world.flush();
    let answers = [first, again].map(|tag| world.poll(tag).expect("durable").0);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

#[test]
fn objects_are_removed_once_the_unlink_is_durable() {
    let mut world = World::new();
    let a = world.connect(1);
    let (node, handle) = world.create_open(a, Fid::ROOT, "f", WRITE);
    world.touch(a, Fid::ROOT, "never-written");
    world
        .close(a, node.fid, handle, SetAttr::default())
        .expect("closed");
    let ost = TargetIndex(0);
    let asked = |world: &mut World| {
        let asked = world.outputs.drain(..).filter_map(|output| match output {
            mds::Output::Destroy { ost, objects, .. } => Some((ost, objects)),
            _ => None,
        });
        asked.collect::<Vec<_>>()
    };
    for text in ["f", "never-written"] {
        world.unlink(a, Fid::ROOT, text).expect("gone");
    }
    assert!(asked(&mut world).is_empty());
    world.flush();
    let first = asked(&mut world);
    let objects: Vec<_> = first[0].1.iter().map(|(object, _)| *object).collect();
    assert_eq!(
        (first.len(), first[0].0, objects.len(), objects[0].fid),
        (1, ost, 1, node.fid)
    );
    // An OST that cannot be reached is asked again; so is one after a restart of ours.
    world
        .mds
        .ost_failed(world.tick, ost, OstInquiry::Destroy, &mut Vec::new());
    world.flush();
    assert!(asked(&mut world).is_empty());
    world.advance(Duration::from_secs(5));
    assert_eq!(asked(&mut world), first);
    world.crash();
    world.advance(Duration::from_secs(1));
    assert_eq!(asked(&mut world).len(), 1);
    let mut out = Vec::new();
    world
        .mds
        .destroyed(world.tick, world.wall, ost, &objects, &mut out);
    world.flush();
    world.crash();
    world.advance(Duration::from_secs(1));
    assert!(asked(&mut world).is_empty());
    world.check();
}

#[test]
fn a_restart_keeps_everything_of_every_kind() {
    let mut world = World::colliding();
    let a = world.connect(1);
    let dir = world.mkdir(a, Fid::ROOT, "d");
    let link = world.make(a, dir, "s", FileKind::Symlink);
    let file = world.touch(a, dir, "f");
    world.link(a, file, Fid::ROOT, "g").expect("linked");
    let (text, value) = (b"user.x".to_vec(), b"v".to_vec());
    let set = Request::SetXattr {
        fid: dir,
        dir: Fid::NONE,
        name: text,
        value,
        mode: XattrMode::Set,
    };
    world.call(a, set).expect("set");
    let before: Vec<_> = [dir, link, file]
        .map(|fid| world.getattr(a, fid).expect("there").attr)
        .into();
    world.flush();
    world.crash();
    world.check();
    let after: Vec<_> = [dir, link, file]
        .map(|fid| world.getattr(a, fid).expect("there").attr)
        .into();
    assert_eq!(after, before);
    let target = world.call(a, Request::ReadLink { fid: link });
    assert_eq!(target, Ok(Reply::Target(b"over/there".to_vec())));
    let Ok(Reply::Xattrs { values, .. }) = world.call(a, Request::GetXattrs { fid: dir }) else {
        panic!()
    };
    assert_eq!(values.len(), 1);
    assert!(world.mds.last_transno() > Transno(5));
}
