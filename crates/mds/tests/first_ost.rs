//! A file system that has no OST yet. SEMANTICS: op.create

mod support;

use base::{ClientId, Fid, FsError, TargetIndex, Xid};
use support::*;
use wire::FileKind;
use wire::Node;
use wire::mdt::{Reply, Request, SetAttr};

const OST: TargetIndex = TargetIndex(3);

fn world() -> (World, ClientId) {
    let rules = mds::Rules {
        osts: Vec::new(),
        ..mds::Rules::default()
    };
    let mut world = World::with(rules, 56);
    let client = world.connect(1);
    (world, client)
}

fn file(world: &mut World, client: ClientId, text: &str) -> Request {
    let fid = world.fid(client);
    make_request(fid, Fid::ROOT, text, FileKind::Regular)
}

/// The file that the request `tag` has made.
fn made(world: &mut World, tag: u64) -> Node {
    match world.wait(tag).0 {
        Ok(Reply::Created { node, .. }) => node,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_file_waits_until_there_is_an_ost() {
    let (mut world, a) = world();
    let wanted = file(&mut world, a, "f");
    let tag = world.send(a, wanted);
    world.answer_questions();
    assert_eq!(world.poll(tag), None);
    world.set_osts(&[]);
    assert_eq!(world.poll(tag), None, "that is none");
    world.set_osts(&[OST]);
    let made = made(&mut world, tag);
    assert_eq!(made.attr.layout, layout::Layout::single(OST));
    world.check();
}

#[test]
fn what_has_no_bytes_is_made_and_what_is_wrong_refused_without_an_ost() {
    let (mut world, a) = world();
    world.mkdir(a, Fid::ROOT, "d");
    world.make(a, Fid::ROOT, "l", FileKind::Symlink);
    let again = file(&mut world, a, "d");
    assert_eq!(world.call(a, again), Err(FsError::Exists));
}

#[test]
fn what_is_behind_a_waiting_create_in_its_frame_waits_too() {
    let (mut world, a) = world();
    let fid = world.fid(a);
    let create = make_request(fid, Fid::ROOT, "f", FileKind::Regular);
    let chmod = Request::SetAttr {
        fid,
        dir: Fid::ROOT,
        change: SetAttr {
            mode: Some(0o600),
            ..SetAttr::default()
        },
        caller: ROOT_USER,
        under: base::LockHandle(0),
    };
    let first = world.send_in(a, 9, Xid(1000), 0, create);
    let second = world.send_in(a, 9, Xid(1000), 1, chmod);
    assert_eq!((world.poll(first), world.poll(second)), (None, None));
    world.set_osts(&[OST]);
    made(&mut world, first);
    let changed = node_of(world.wait(second).0).unwrap();
    assert_eq!(changed.attr.mode & 0o7777, 0o600);
}

#[test]
fn a_client_that_is_gone_waits_for_no_ost() {
    let (mut world, a) = world();
    let wanted = file(&mut world, a, "f");
    let tag = world.send(a, wanted);
    world.evict(a);
    world.set_osts(&[OST]);
    assert_eq!(world.poll(tag), None);
    let b = world.connect(2);
    assert_eq!(world.lookup(b, Fid::ROOT, "f"), None);
}

#[test]
fn two_creates_of_one_name_wait_and_one_is_refused() {
    let (mut world, a) = world();
    let b = world.connect(2);
    let (one, other) = (file(&mut world, a, "f"), file(&mut world, b, "f"));
    let (one, other) = (world.send(a, one), world.send(b, other));
    world.set_osts(&[OST]);
    made(&mut world, one);
    assert_eq!(world.wait(other).0, Err(FsError::Exists));
}
