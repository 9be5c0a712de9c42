//! Sets of changes that are sent again, wait for what others made, or are replayed after a crash.

mod support;

use base::Timestamp;
use support::sets::*;
use support::*;
use wire::FileKind;
use wire::mdt::{OpenHandle, Reply, Request, SetAttr};

#[test]
fn a_set_that_is_sent_again_is_answered_again() {
    let (mut world, a, d, _) = world();
    let f = world.fid(a);
    let dirs = world.leased(a, &[d]);
    let changes = vec![make(0, "f", written(f, 0, Some(WRITE)))];
    let request = Request::Update { dirs, changes };
    let send = |world: &mut World| {
        let tag = world.send_in(a, 7, base::Xid(1000), 0, request.clone());
        world.wait(tag)
    };
    let first = send(&mut world);
    let state = world.mds.last_transno();
    assert_eq!(send(&mut world), first);
    world.flush();
    // The next boot has neither the use nor the lock.
    world.crash_awaiting();
    world.ready(a);
    let (again, transno) = send(&mut world);
    assert_eq!(transno, first.1);
    let Ok(Reply::Updated { notes, .. }) = again else {
        panic!("{again:?}")
    };
    let (handle, ticket, is_locked) = opened(&notes);
    assert!(!is_locked && ticket.open_epoch > 0);
    assert_eq!(world.mds.uses(), [(a, f)]);
    assert!(world.mds.last_transno() > state);
    world
        .close(a, f, handle, SetAttr::default())
        .expect("the new use");
    world.check();
}

#[test]
fn a_set_waits_for_what_others_made_and_is_leased_at_once() {
    let (mut world, a, d, _) = world();
    let b = world.connect(2);
    // A sequence is granted durably: not while nothing becomes durable.
    let _ = [a, b].map(|client| world.fid(client));
    world.flush();
    world.auto_flush = false;
    let sub = world.mkdir(b, d, "sub");
    [b, a]
        .into_iter()
        .for_each(|client| give_all_back(&mut world, client));
    let (inner, dirs) = (world.fid(a), world.leased(a, &[sub]));
    let changes = vec![make(0, "inner", made(inner, FileKind::Directory))];
    let tag = world.send(a, Request::Update { dirs, changes });
    assert_eq!(world.poll(tag), None, "it builds on what is not durable");
    let held = world.mds.locks().holds_write_lease(a, inner);
    assert!(held, "the lease is given all the same");
    world.flush();
    assert!(world.poll(tag).is_some());
}

#[test]
fn a_replay_has_the_same_result_and_needs_no_lease() {
    for twice in [false, true] {
        let (mut world, a, d, e) = world();
        let (old, f, g, h) = (
            world.touch(a, d, "old"),
            world.fid(a),
            world.fid(a),
            world.fid(a),
        );
        world.flush();
        world.auto_flush = false;
        let changes = vec![
            make(0, "f", made(f, FileKind::Regular)),
            make(1, "g", written(g, 0, None)),
            sized(g, 77, OpenHandle(0)),
            make(1, "h", written(h, 0, Some(WRITE))),
            remove(0, "old", old),
            link(1, "old", old),
            set_xattr(f, "user.a", b"x"),
        ];
        let dirs = world.leased(a, &[d, e]);
        let tag = world.send(a, Request::Update { dirs, changes });
        world.wait(tag).0.expect("done");
        let seen = |world: &mut World| {
            [f, g, h, old, d, e].map(|fid| world.getattr(a, fid).expect("there").attr)
        };
        let before = seen(&mut world);
        world.crash_awaiting();
        let lost = world.lost();
        assert_eq!(lost.len(), 1);
        world.wall = Timestamp {
            secs: 5000,
            nanos: 0,
        };
        for _ in 0..=usize::from(twice) {
            world.replay(&lost[0]).0.expect("done again");
        }
        world.ready(a);
        let after = seen(&mut world);
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(
                wire::Attr {
                    version: after.version,
                    ..before.clone()
                },
                *after
            );
        }
        world.auto_flush = true;
        world.check();
    }
}
