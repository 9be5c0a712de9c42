//! What locks answers bring, and who is asked before a change.

mod support;

use base::{ClientId, Fid, FsError, LockHandle, Timestamp, Xid};
use dlm::Bits;
use support::*;
use wire::mdt::{
    Callback, Lease, OpenIntent, Page, RenameMode, Reply, Request, SetAttr, SetTime, SizeUpdate,
    XattrMode,
};
use wire::{Cover, Grant, SizeState};

fn two() -> (World, ClientId, ClientId) {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    (world, a, b)
}

fn lookup(world: &mut World, client: ClientId, dir: Fid, text: &str) -> (Lease, Option<Cover>) {
    match world.call(
        client,
        Request::Lookup {
            dir,
            name: name(text),
        },
    ) {
        Ok(Reply::Lookup { lease, node }) => (lease, node.map(|node| node.cover)),
        other => panic!("{other:?}"),
    }
}

fn held(lease: Lease) -> Grant {
    match lease {
        Lease::Held(grant) => grant,
        Lease::None => panic!("no lease"),
    }
}

#[test]
fn a_name_comes_with_the_lease_and_its_file_with_cover() {
    let (mut world, a, b) = two();
    world.touch(a, Fid::ROOT, "f");
    let sub = world.mkdir(a, Fid::ROOT, "d");
    let linked = world.touch(a, Fid::ROOT, "l");
    world.link(a, linked, Fid::ROOT, "m").expect("linked");
    let (lease, cover) = lookup(&mut world, b, Fid::ROOT, "f");
    // What others changed a moment ago travels without locks until it is durable.
    assert_eq!((lease, cover), (Lease::None, Some(Cover::None)));
    world.flush();
    let (lease, cover) = lookup(&mut world, b, Fid::ROOT, "f");
    assert!(Bits(held(lease).bits).contains(Bits::NAMES | Bits::CHILD));
    assert_eq!(cover, Some(Cover::Parent));
    assert_eq!(
        held(lookup(&mut world, b, Fid::ROOT, "g").0).handle,
        held(lease).handle
    );
    let own = |cover| match cover {
        Some(Cover::Own(grant)) => (grant.fid, Bits(grant.bits)),
        other => panic!("{other:?}"),
    };
    let (fid, bits) = own(lookup(&mut world, b, Fid::ROOT, "d").1);
    assert!(fid == sub && bits.contains(Bits::PERM | Bits::LIST | Bits::XATTR));
    let (fid, bits) = own(lookup(&mut world, b, Fid::ROOT, "m").1);
    assert!(fid == linked && bits.contains(Bits::PERM | Bits::UPDATE));
}

#[test]
fn a_page_of_many_files_takes_one_lock() {
    let (mut world, a, b) = two();
    let dir = world.mkdir(a, Fid::ROOT, "d");
    for i in 0..200 {
        world.touch(a, dir, &format!("f{i}"));
    }
    world.flush();
    let before = world.mds.locks().table().lock_count();
    let entries = world.list(b, dir, 64);
    assert!(entries.iter().all(|entry| {
        entry
            .node
            .as_ref()
            .is_some_and(|node| node.cover == Cover::Parent)
    }));
    assert!(world.mds.locks().table().lock_count() <= before + 1);
}

#[test]
fn a_walk_is_given_no_lock_that_makes_another_needless() {
    let (mut world, a, b) = two();
    let dir = world.mkdir(a, Fid::ROOT, "d");
    world.mkdir(a, dir, "e");
    world.touch(a, dir, "f");
    world.flush();
    let mut bits: Vec<(Fid, LockHandle, Bits)> = Vec::new();
    let mut given = |grant: Grant| bits.push((grant.fid, grant.handle, Bits(grant.bits)));
    for parent in [Fid::ROOT, dir] {
        let fid = parent;
        let answer = world.call(
            b,
            Request::GetAttr {
                fid,
                dir: Fid::NONE,
            },
        );
        match answer.expect("there") {
            Reply::Node(wire::Node {
                cover: Cover::Own(grant),
                ..
            }) => given(grant),
            other => panic!("{other:?}"),
        }
        let page = world.call(
            b,
            Request::ReadDir {
                dir: parent,
                cookie: 0,
                attrs_max: 64,
                entries_max: 64,
                bytes_max: 1 << 16,
            },
        );
        let Ok(Reply::Page(Page { lease, entries, .. })) = page else {
            panic!("{page:?}");
        };
        given(held(lease));
        for entry in entries {
            if let Some(Cover::Own(grant)) = entry.node.map(|node| node.cover) {
                given(grant);
            }
        }
    }
    given(held(lookup(&mut world, b, dir, "f").0));
    for (fid, handle, one) in &bits {
        for (_, _, other) in bits.iter().filter(|o| o.0 == *fid && o.1 != *handle) {
            assert!(!one.overlaps(*other), "{fid}: {one:?} and {other:?}");
        }
    }
    let all = bits.iter().filter(|(fid, ..)| *fid == dir);
    let all = all.fold(Bits::NONE, |all, (_, _, bits)| all | *bits);
    assert!(all.contains(Bits::PERM | Bits::LEASE));
}

#[test]
fn a_change_withdraws_one_name_from_others_only() {
    let (mut world, a, b) = two();
    let f = world.touch(a, Fid::ROOT, "f");
    world.touch(a, Fid::ROOT, "g");
    world.flush();
    for client in [a, b] {
        lookup(&mut world, client, Fid::ROOT, "f");
        lookup(&mut world, client, Fid::ROOT, "new");
    }
    for client in [a, b] {
        world.client(client).asked.clear();
    }
    world.touch(a, Fid::ROOT, "new");
    world.unlink(a, Fid::ROOT, "f").expect("gone");
    assert!(world.client(a).asked.is_empty());
    let asked = world.client(b).asked.clone();
    let withdrawn: Vec<(Option<String>, Fid, bool)> = asked
        .iter()
        .filter_map(|callback| match callback {
            Callback::Withdraw {
                name, child, bits, ..
            } => {
                let text = name.as_ref().map(ToString::to_string);
                Some((text, *child, Bits(*bits).contains(Bits::CHILD)))
            }
            _ => None,
        })
        .collect();
    let expected = [
        (Some("new".to_string()), Fid::NONE, false),
        (Some("f".to_string()), f, true),
    ];
    assert_eq!(withdrawn, expected);
    // The rest of the lease stands, and what was withdrawn can be covered again.
    world.flush();
    assert!(matches!(
        lookup(&mut world, b, Fid::ROOT, "new"),
        (Lease::Held(_), Some(_))
    ));
}

#[test]
fn a_change_waits_for_the_acknowledgement_and_readers_do_not() {
    let (mut world, a, b) = two();
    let c = world.connect(3);
    lookup(&mut world, b, Fid::ROOT, "f");
    world.client(b).manners = Manners::Silent;
    let fid = world.fid(a);
    let tag = world.send(a, create_open_request(fid, Fid::ROOT, "f", READ));
    assert!(world.poll(tag).is_none());
    // Meanwhile the old truth, covered for nobody; and other names in the directory go on.
    assert_eq!(lookup(&mut world, c, Fid::ROOT, "f"), (Lease::None, None));
    assert_eq!(lookup(&mut world, b, Fid::ROOT, "f"), (Lease::None, None));
    assert!(matches!(
        lookup(&mut world, c, Fid::ROOT, "other").0,
        Lease::Held(_)
    ));
    world.client(b).manners = Manners::Prompt;
    assert!(world.wait(tag).0.is_ok());
    world.flush();
    assert!(matches!(
        lookup(&mut world, b, Fid::ROOT, "f"),
        (Lease::Held(_), Some(_))
    ));
    world.check();
}

#[test]
fn requests_of_one_frame_keep_their_order_while_the_first_waits() {
    let (mut world, a, b) = two();
    lookup(&mut world, b, Fid::ROOT, "d");
    world.client(b).manners = Manners::Silent;
    let (dir, file) = (world.fid(a), world.fid(a));
    let make = |fid, dir, text| {
        let Request::Create {
            name,
            mut file,
            caller,
            ..
        } = create_open_request(fid, dir, text, READ)
        else {
            unreachable!()
        };
        if dir == Fid::ROOT {
            file.kind = wire::FileKind::Directory;
        }
        Request::Create {
            dir,
            name,
            file,
            caller,
            open: None,
        }
    };
    let first = world.send_in(a, 40, Xid(7), 0, make(dir, Fid::ROOT, "d"));
    let second = world.send_in(a, 40, Xid(7), 1, make(file, dir, "f"));
    let third = world.send_in(a, 40, Xid(7), 2, Request::GetAttr { fid: file, dir });
    assert!(world.poll(first).is_none() && world.poll(third).is_none());
    world.client(b).manners = Manners::Prompt;
    for tag in [first, second, third] {
        assert!(world.wait(tag).0.is_ok());
    }
    world.check();
}

#[test]
fn a_new_file_is_its_makers_own_until_others_want_it() {
    let (mut world, a, b) = two();
    lookup(&mut world, a, Fid::ROOT, "f");
    let (node, handle) = world.create_open(a, Fid::ROOT, "f", WRITE);
    let Cover::Own(grant) = node.cover else {
        panic!("{:?}", node.cover)
    };
    assert!(Bits(grant.bits).contains(Bits::PERM | Bits::UPDATE | Bits::DOM | Bits::OPEN));
    // A reader hears what the maker says, without a lock; the maker keeps its own.
    let mut attr = node.attr.clone();
    (attr.size, attr.mode) = (77, 0o600);
    world.client(a).held.insert(node.fid, attr);
    let seen = world.getattr(b, node.fid).expect("there");
    assert_eq!(
        (seen.attr.size, seen.attr.mode, seen.cover),
        (77, 0o600, Cover::None)
    );
    let seen = world.lookup(b, Fid::ROOT, "f").expect("there");
    assert_eq!((seen.attr.size, seen.cover), (77, Cover::None));
    assert!(
        world.list(b, Fid::ROOT, 10)[0].node.is_none(),
        "a page asks nobody"
    );
    assert!(
        !world
            .client(a)
            .asked
            .iter()
            .any(|c| matches!(c, Callback::Blocking { .. }))
    );
    // The maker tells what it did under its lock.
    let change = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    let (dir, caller, under) = (Fid::ROOT, ROOT_USER, grant.handle);
    let fid = node.fid;
    let tell = Request::SetAttr {
        fid,
        dir,
        change: change.clone(),
        caller,
        under,
    };
    assert!(world.call(a, tell.clone()).is_ok());
    let stolen = Request::SetAttr {
        fid,
        dir,
        change,
        caller,
        under: LockHandle(12345),
    };
    assert_eq!(world.call(a, stolen), Err(FsError::Stale));
    // The client that opens it ends that.
    world.open(b, fid, READ).expect("opened");
    assert!(
        world
            .client(a)
            .asked
            .iter()
            .any(|c| matches!(c, Callback::Blocking { .. }))
    );
    assert_eq!(world.call(a, tell), Err(FsError::Stale), "the lock is gone");
    assert!(world.close(a, fid, handle, SetAttr::default()).is_ok());
}

/// It may be about to write, and what others learn meanwhile of the bytes from their OST, they keep.
#[test]
fn who_has_not_heard_that_a_file_is_its_own_gives_it_up_to_who_looks() {
    let (mut world, a, b) = two();
    lookup(&mut world, a, Fid::ROOT, "f");
    let (node, _) = world.create_open(a, Fid::ROOT, "f", WRITE);
    let Cover::Own(grant) = node.cover else {
        panic!("{:?}", node.cover)
    };
    let seen = world.lookup(b, Fid::ROOT, "f").expect("there");
    assert_eq!(seen.attr.size_state, SizeState::Ask);
    let asked = &world.client(a).asked;
    let is_called_back = |callback: &Callback| matches!(callback, Callback::Blocking { handle, .. } if *handle == grant.handle);
    let at = |is: &dyn Fn(&Callback) -> bool| asked.iter().position(is);
    let glimpse = at(&|callback| matches!(callback, Callback::Glimpse { .. }));
    assert!(
        glimpse.is_some() && glimpse < at(&is_called_back),
        "{asked:?}"
    );
    assert!(world.mds.locks().table().holds(a, grant.handle).is_none());
}

#[test]
fn a_close_under_the_lock_gives_it_up() {
    let (mut world, a, b) = two();
    lookup(&mut world, a, Fid::ROOT, "f");
    let (node, handle) = world.create_open(a, Fid::ROOT, "f", WRITE);
    let Cover::Own(grant) = node.cover else {
        panic!()
    };
    let size = SizeUpdate {
        size: 5,
        blocks: 1,
        mtime: world.wall,
        committed: true,
    };
    let change = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    let request = Request::Close {
        fid: node.fid,
        dir: Fid::ROOT,
        handle,
        change,
        under: grant.handle,
    };
    let closed = node_of(world.call(a, request)).expect("closed");
    assert_eq!(
        (closed.attr.size, closed.attr.size_state),
        (5, SizeState::Strict)
    );
    assert_eq!(closed.cover, Cover::Parent, "the lease covers it now");
    world.flush();
    assert!(world.lookup(b, Fid::ROOT, "f").is_some());
    assert!(
        !world
            .client(a)
            .asked
            .iter()
            .any(|c| matches!(c, Callback::Blocking { .. }))
    );
}

/// Another client has removed the name by which this one knows the file.
#[test]
fn what_is_changed_is_covered_by_the_directory_that_was_asked_for_or_by_none() {
    let (mut world, a, b) = two();
    let [kept, lost] = ["kept", "lost"].map(|text| world.mkdir(b, Fid::ROOT, text));
    let file = world.touch(b, kept, "f");
    world.link(b, file, lost, "g").expect("linked");
    world.touch(b, lost, "h");
    world.flush();
    held(lookup(&mut world, a, kept, "f").0);
    held(lookup(&mut world, a, lost, "g").0);
    world.unlink(b, lost, "g").expect("removed");
    world.flush();
    held(lookup(&mut world, a, lost, "h").0);
    let mut change = |dir, request: &dyn Fn(Fid) -> Request| {
        let changed = world.call(a, request(dir));
        world.flush();
        node_of(changed).expect("changed").cover == Cover::Parent
    };
    let set = |dir| Request::SetXattr {
        fid: file,
        dir,
        name: b"user.x".to_vec(),
        value: b"v".to_vec(),
        mode: XattrMode::Set,
    };
    let remove = |dir| Request::RemoveXattr {
        fid: file,
        dir,
        name: b"user.x".to_vec(),
    };
    assert!(!change(lost, &set) && change(kept, &set));
    assert!(!change(lost, &remove));
    let handle = world.open(a, file, READ).expect("opened");
    let close = |dir| Request::Close {
        fid: file,
        dir,
        handle,
        change: SetAttr::default(),
        under: LockHandle(0),
    };
    let closed = world.call(a, close(lost));
    assert_ne!(node_of(closed).expect("closed").cover, Cover::Parent);
}

/// Several Closes come in one frame. One of them waits for a rename of its file, and the rename for a
/// lock on another that goes with a Close further behind: that one does not wait.
#[test]
fn what_gives_a_lock_up_waits_behind_nothing_of_its_frame() {
    let (mut world, a, b) = two();
    let one = world.touch(a, Fid::ROOT, "one");
    let first = world.open(a, one, WRITE).expect("opened");
    world.flush();
    lookup(&mut world, a, Fid::ROOT, "two");
    let (two, second) = world.create_open(a, Fid::ROOT, "two", WRITE);
    let Cover::Own(grant) = two.cover else {
        panic!("{two:?}")
    };
    world.flush();
    world.client(a).manners = Manners::Silent;
    let rename = rename_request(
        (Fid::ROOT, "one"),
        (Fid::ROOT, "two"),
        RenameMode::Replace,
        ROOT_USER,
    );
    let renamed = world.send(b, rename);
    let size = SizeUpdate {
        size: 5,
        blocks: 1,
        mtime: world.wall,
        committed: true,
    };
    let close = |fid, handle, under| Request::Close {
        fid,
        dir: Fid::NONE,
        handle,
        change: SetAttr {
            size: Some(size),
            ..SetAttr::default()
        },
        under,
    };
    let (slot, xid) = (20, Xid(1000));
    let waits = world.send_in(a, slot, xid, 0, close(one, first, LockHandle(0)));
    let gives = world.send_in(a, slot, xid, 1, close(two.fid, second, grant.handle));
    for (client, id, callback) in std::mem::take(&mut world.questions) {
        // That lock is on its way.
        if !matches!(callback, Callback::Blocking { handle, .. } if handle == grant.handle) {
            world.answer(client, id, callback);
        }
    }
    assert!(world.wait(gives).0.is_ok());
    assert!(world.wait(renamed).0.is_ok());
    assert!(world.wait(waits).0.is_ok());
}

#[test]
fn a_writer_elsewhere_leaves_no_cover() {
    let (mut world, a, b) = two();
    let f = world.touch(a, Fid::ROOT, "f");
    world.flush();
    assert_eq!(lookup(&mut world, b, Fid::ROOT, "f").1, Some(Cover::Parent));
    world.client(b).asked.clear();
    let handle = world.open(a, f, WRITE).expect("opened");
    let asked = &world.client(b).asked;
    assert!(matches!(&asked[..], [Callback::Withdraw { child, .. }] if *child == f));
    world.flush();
    let seen = world.lookup(b, Fid::ROOT, "f").expect("there");
    assert_eq!(
        (seen.cover, seen.attr.size_state),
        (Cover::None, SizeState::Ask)
    );
    let size = SizeUpdate {
        size: 9,
        blocks: 8,
        mtime: world.wall,
        committed: true,
    };
    let change = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    world.close(a, f, handle, change).expect("closed");
    world.flush();
    let seen = world.lookup(b, Fid::ROOT, "f").expect("there");
    assert_eq!(
        (seen.cover, seen.attr.size_state),
        (Cover::Parent, SizeState::Strict)
    );
    assert_eq!(seen.attr.size, 9);
}

/// A mount that was given up tells of its uses anew; those that were not given up believe what they
/// were told.
#[test]
fn a_writer_who_is_told_of_anew_leaves_no_exact_size_elsewhere() {
    let (mut world, a, b) = two();
    let f = world.touch(a, Fid::ROOT, "f");
    world.flush();
    assert_eq!(lookup(&mut world, b, Fid::ROOT, "f").1, Some(Cover::Parent));
    world.client(b).asked.clear();
    let open = |access| Request::Open {
        fid: f,
        dir: Fid::NONE,
        access,
        intent: OpenIntent::Reopen,
    };
    world.call(a, open(READ)).expect("told of");
    assert!(
        world.client(b).asked.is_empty(),
        "who reads changes nothing"
    );
    world.call(a, open(WRITE)).expect("told of");
    let asked = &world.client(b).asked;
    assert!(matches!(&asked[..], [Callback::Withdraw { child, .. }] if *child == f));
    world.flush();
    lookup(&mut world, b, Fid::ROOT, "f");
    world.client(b).asked.clear();
    // It waits for nobody where the size is not exact: others may wait for it.
    world.call(a, open(WRITE)).expect("told of");
    assert!(world.client(b).asked.is_empty());
    world.check();
}

#[test]
fn executing_and_writing_exclude_each_other() {
    let (mut world, a, b) = two();
    let f = world.touch(a, Fid::ROOT, "f");
    let running = world.open(a, f, EXEC).expect("opened");
    assert_eq!(world.open(b, f, WRITE), Err(FsError::TextBusy));
    assert!(world.open(b, f, READ).is_ok());
    world
        .close(a, f, running, SetAttr::default())
        .expect("closed");
    let writing = world.open(b, f, WRITE).expect("opened");
    assert_eq!(world.open(a, f, EXEC), Err(FsError::TextBusy));
    world
        .close(b, f, writing, SetAttr::default())
        .expect("closed");
    assert!(world.open(a, f, EXEC).is_ok());
}

fn open_request(fid: Fid, access: wire::mdt::Access) -> Request {
    Request::Open {
        fid,
        dir: Fid::NONE,
        access,
        intent: OpenIntent::First,
    }
}

#[test]
fn whose_use_excludes_an_open_is_asked_to_end_it() {
    for (first, second) in [(WRITE, EXEC), (EXEC, WRITE)] {
        let (mut world, a, b) = two();
        let f = world.touch(a, Fid::ROOT, "f");
        let idle = world.open(a, f, first).expect("opened");
        world.client(a).manners = Manners::Silent;
        let tag = world.send(b, open_request(f, second));
        assert!(world.poll(tag).is_none(), "it waits for an answer");
        let asks = |(whom, _, callback): &(ClientId, u64, Callback)| {
            *whom == a && matches!(callback, Callback::EndIdleUse { fid } if *fid == f)
        };
        assert!(world.questions.iter().any(asks));
        // The use is over, and that is told before the question is answered.
        world.close(a, f, idle, SetAttr::default()).expect("closed");
        world.client(a).manners = Manners::Prompt;
        world.answer_questions();
        world.flush();
        let answer = world.poll(tag).expect("answered");
        assert!(answer.0.is_ok(), "{answer:?}");
        world.check();
    }
}

#[test]
fn an_open_does_not_wait_for_one_who_is_gone() {
    let (mut world, a, b) = two();
    let f = world.touch(a, Fid::ROOT, "f");
    world.open(a, f, WRITE).expect("opened");
    world.client(a).manners = Manners::Silent;
    let tag = world.send(b, open_request(f, EXEC));
    assert!(world.poll(tag).is_none(), "it waits for an answer");
    world.evict(a);
    world.flush();
    assert!(world.poll(tag).expect("answered").0.is_ok());
}

/// The process that had the file open is gone: only the next one knows which uses go on.
#[test]
fn an_open_waits_for_the_next_process_of_a_user_that_is_gone() {
    for asks_before in [true, false] {
        let (mut world, a, b) = two();
        let f = world.touch(a, Fid::ROOT, "f");
        world.open(a, f, EXEC).expect("opened");
        let send = |world: &mut World| world.send(b, open_request(f, WRITE));
        world.client(a).manners = Manners::Silent;
        let early = asks_before.then(|| send(&mut world));
        world.succeed(a);
        let tag = early.unwrap_or_else(|| send(&mut world));
        world.client(a).manners = Manners::Prompt;
        world.answer_questions();
        world.flush();
        assert!(world.poll(tag).is_none(), "the next process is not ready");
        world.end_succession(a);
        world.flush();
        let answer = world.poll(tag).expect("answered");
        assert!(answer.0.is_ok(), "{answer:?}");
        world.check();
    }
}

#[test]
fn sizes_are_told_by_writers_only() {
    let (mut world, a, b) = two();
    let f = world.touch(a, Fid::ROOT, "f");
    let size = SizeUpdate {
        size: 5,
        blocks: 1,
        mtime: world.wall,
        committed: true,
    };
    let change = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    assert_eq!(world.setattr(a, f, change.clone()), Err(FsError::Invalid));
    let reading = world.open(a, f, READ).expect("opened");
    assert_eq!(
        world.close(a, f, reading, change.clone()),
        Err(FsError::BadHandle)
    );
    let (one, two) = (
        world.open(a, f, WRITE).unwrap(),
        world.open(b, f, WRITE).unwrap(),
    );
    let state = |node: wire::Node| node.attr.size_state;
    assert_eq!(
        state(world.close(a, f, one, change.clone()).expect("closed")),
        SizeState::Ask
    );
    // It may have been on its way while the other wrote.
    assert_eq!(
        state(world.close(b, f, two, change.clone()).expect("closed")),
        SizeState::Ask
    );
    let alone = world.open(a, f, WRITE).unwrap();
    assert_eq!(
        state(world.close(a, f, alone, change).expect("closed")),
        SizeState::Strict
    );
    let huge = SizeUpdate {
        size: u64::MAX,
        blocks: 1,
        mtime: world.wall,
        committed: true,
    };
    let handle = world.open(a, f, WRITE).expect("opened");
    let change = SetAttr {
        size: Some(huge),
        ..SetAttr::default()
    };
    assert_eq!(world.close(a, f, handle, change), Err(FsError::FileTooBig));
    assert!(
        world.close(a, f, handle, SetAttr::default()).is_ok(),
        "still open after that"
    );
}

#[test]
fn an_eviction_frees_what_the_client_held() {
    let (mut world, a, b) = two();
    let f = world.touch(b, Fid::ROOT, "f");
    world.flush();
    lookup(&mut world, b, Fid::ROOT, "f");
    world.open(b, f, WRITE).expect("opened");
    world.client(b).manners = Manners::Silent;
    let tag = world.send(
        a,
        Request::Unlink {
            dir: Fid::ROOT,
            name: name("f"),
            directory: false,
            caller: ROOT_USER,
        },
    );
    assert!(world.poll(tag).is_none());
    world.evict(b);
    assert!(world.wait(tag).0.is_ok());
    assert_eq!(
        world.getattr(a, f),
        Err(FsError::Stale),
        "nobody has it open any more"
    );
    assert!(world.mds.opens().is_empty());
    world.check();
    // Its sequence is burnt: files it made in the dark cannot come to be.
    world.client(b).manners = Manners::Prompt;
    world.connect(2);
    let fid = world.fid(b);
    assert_eq!(
        world.call(b, create_open_request(fid, Fid::ROOT, "g", READ)),
        Err(FsError::Invalid)
    );
    world.drop_sequence(b);
    world.touch(b, Fid::ROOT, "g");
}

#[test]
fn a_silent_client_is_reported_in_time() {
    let (mut world, a, b) = two();
    lookup(&mut world, b, Fid::ROOT, "f");
    world.client(b).manners = Manners::Silent;
    let fid = world.fid(a);
    let tag = world.send(a, create_open_request(fid, Fid::ROOT, "f", READ));
    let evict = mds::Output::Evict { client: b };
    // It may wait at an OST for one that is evicted there first.
    world.advance(base::limits::CALLBACK_DEADLINE);
    assert!(!world.outputs.contains(&evict), "{:?}", world.outputs);
    world.advance(base::limits::CALLBACK_DEADLINE / 2);
    assert!(world.outputs.contains(&evict), "{:?}", world.outputs);
    world.evict(b);
    assert!(world.wait(tag).0.is_ok());
}

#[test]
fn a_directorys_own_attributes_have_a_lock_of_their_own() {
    let (mut world, a, b) = two();
    let dir = world.mkdir(a, Fid::ROOT, "d");
    world.flush();
    assert!(is_covered(&world.lookup(b, Fid::ROOT, "d").expect("there")));
    world.client(b).asked.clear();
    // Its times change with its names: that part is withdrawn, its permissions stay.
    world.touch(a, dir, "f");
    let asked = world.client(b).asked.clone();
    assert!(
        matches!(&asked[..], [Callback::Withdraw { bits, .. }] if Bits(*bits) == Bits::LIST),
        "{asked:?}"
    );
    world.flush();
    assert!(is_covered(&world.getattr(b, dir).expect("there")));
    world.client(b).asked.clear();
    let change = SetAttr {
        mode: Some(0o700),
        ..SetAttr::default()
    };
    world.setattr(a, dir, change).expect("set");
    assert!(matches!(&world.client(b).asked[..], [Callback::Blocking { fid, .. }] if *fid == dir));
    let at = SetTime::At(Timestamp { secs: 1, nanos: 1 });
    let change = SetAttr {
        mtime: Some(at),
        ..SetAttr::default()
    };
    let set = world.setattr(a, dir, change).expect("set").attr;
    assert_eq!({ set.mtime.secs }, 1);
}

/// Each of several writers must know what a write takes from the mode, without a question a write.
#[test]
fn writers_of_one_file_know_its_mode_until_it_changes() {
    let (mut world, a, b) = two();
    let file = world.touch(a, Fid::ROOT, "f");
    for client in [a, b] {
        world.open(client, file, WRITE).expect("opened");
    }
    world.flush();
    let mode_alone = |world: &mut World, client| match world.getattr(client, file) {
        Ok(wire::Node {
            cover: Cover::Own(grant),
            ..
        }) => Bits(grant.bits).contains(Bits::PERM) && !Bits(grant.bits).overlaps(Bits::UPDATE),
        _ => false,
    };
    assert!(mode_alone(&mut world, a) && mode_alone(&mut world, b));
    let reader = world.connect(3);
    assert!(!mode_alone(&mut world, reader), "one who writes nothing");
    world.client(a).asked.clear();
    let change = SetAttr {
        mode: Some(0o4755),
        ..SetAttr::default()
    };
    world.setattr(b, file, change).expect("changed");
    let asked = &world.client(a).asked;
    let is_it =
        |callback: &Callback| matches!(callback, Callback::Blocking { fid, .. } if *fid == file);
    assert!(asked.iter().any(is_it), "{asked:?}");
    world.check();
}
