//! Two clients and a target: who waits for whom, who is asked what, and who sees which bytes.

mod rig;

#[allow(
    dead_code,
    reason = "`over_extents` has these tests too, and says it for them"
)]
const OVER_EXTENTS: bool = false;

use std::time::Duration;

use base::{BootEpoch, ByteRange, FsError, LockHandle, Transno};
use rig::{A, B, PR, PW, Rig, TICKET, attr_of, object, range, second};
use wire::mdt::WriteTicket;
use wire::ost::{AllocateMode, Callback, CallbackReply, ObjectAttr, Reply, Request, Watermark};

const NO_LOCK: LockHandle = LockHandle(0);

#[test]
fn a_reader_sees_what_a_writer_had_not_yet_written_out() {
    let mut rig = Rig::new();
    let writer = rig.lock(A, PW, range(0, 4));
    assert_eq!(
        writer.range,
        ByteRange::ALL,
        "grown where nobody is in the way"
    );
    let reading = rig.enqueue(B, PR, range(0, 100));
    assert!(rig.reply(reading).is_none());
    let (client, id, callback) = rig.callback();
    let expected = Callback::Blocking {
        handle: writer.handle,
        object: object(1),
        range: range(0, 100),
        mode: PR,
    };
    assert_eq!((client, callback), (A, expected));
    rig.answer_callback(A, id, CallbackReply::Done);
    assert!(rig.reply(reading).is_none());
    rig.write(A, writer.handle, 0, b"news").expect("still held");
    rig.cancel(A, writer.handle);
    let (grant, attr) = rig.granted(reading);
    assert_eq!((attr.size, attr.mtime), (4, rig.wall));
    assert_eq!(rig.read(B, grant.handle, 0, 100), Ok(b"news".to_vec()));
    assert_eq!(rig.write(A, writer.handle, 0, b"late"), Err(FsError::Stale));
    assert_eq!(
        rig.write(B, grant.handle, 0, b"with PR"),
        Err(FsError::Stale)
    );
    assert_eq!(
        rig.read(A, grant.handle, 0, 4),
        Err(FsError::Stale),
        "another client's lock"
    );
}

#[test]
fn a_cold_read_brings_its_lock_along_if_that_is_free() {
    let mut rig = Rig::new();
    rig.write(A, NO_LOCK, 0, b"bytes").expect("alone");
    let wish = |lock_mode| Request::Read {
        object: object(1),
        offset: 0,
        len: 100,
        lock_mode,
        under: NO_LOCK,
    };
    let answer = rig.ask(B, wish(PR), &[]).expect("read");
    let Reply::Read {
        bulk,
        grant: Some(grant),
        attr,
    } = answer.reply
    else {
        panic!("{answer:?}")
    };
    assert_eq!(
        (answer.data, bulk, attr.size),
        (b"bytes"[..].into(), (0, 5), 5)
    );
    assert_eq!(rig.read(B, grant.handle, 1, 2), Ok(b"yt".to_vec()));
    let answer = rig.ask(A, wish(PW), &[]).expect("no error");
    assert!(matches!(
        answer.reply,
        Reply::Read {
            bulk: (0, 0),
            grant: None,
            ..
        }
    ));
    assert!(
        answer.data.is_empty() && rig.callbacks.is_empty(),
        "nobody is disturbed"
    );
    assert_eq!(
        rig.read(A, NO_LOCK, 0, 5),
        Ok(b"bytes".to_vec()),
        "readers do not exclude readers"
    );
    rig.cancel(B, grant.handle);
    assert!(matches!(
        rig.ask(A, wish(PW), &[]).expect("read").reply,
        Reply::Read { grant: Some(_), .. }
    ));
    assert_eq!(
        rig.read(B, NO_LOCK, 0, 5),
        Err(FsError::Stale),
        "a writer may have newer bytes"
    );
}

#[test]
fn without_a_lock_only_who_has_the_object_to_himself_writes() {
    let mut rig = Rig::new();
    rig.write(A, NO_LOCK, 0, b"mine").expect("nobody else");
    let own = rig.lock(A, PW, range(0, 4));
    rig.write(A, NO_LOCK, 2, b"n")
        .expect("an own lock is in nobody's way");
    rig.cancel(A, own.handle);
    let reader = rig.lock(B, PR, range(50, 60));
    assert_eq!(rig.write(A, NO_LOCK, 0, b"late"), Err(FsError::Stale));
    assert!(
        rig.callbacks.is_empty(),
        "refused without disturbing the reader"
    );
    assert_eq!(rig.read(B, reader.handle, 0, 9), Ok(b"mine".to_vec()));
    rig.cancel(B, reader.handle);
    rig.write(A, NO_LOCK, 0, b"mine").expect("alone again");
}

/// A and B wait for different bytes until a third client's lock on all of them goes.
fn two_neighbours(rig: &mut Rig) -> (u64, u64) {
    let all = rig.lock(rig::C, PW, ByteRange::ALL);
    let first = rig.enqueue(A, PR, range(0, 4096));
    let second = rig.enqueue(B, PW, range(1 << 20, 2 << 20));
    assert_eq!(
        rig.callbacks
            .drain(..)
            .filter(|(client, ..)| *client == rig::C)
            .count(),
        2
    );
    rig.cancel(rig::C, all.handle);
    (first, second)
}

#[test]
fn a_lock_covers_its_bytes_only() {
    let mut rig = Rig::new();
    let (first, second) = two_neighbours(&mut rig);
    let (a, b) = (rig.granted(first).0, rig.granted(second).0);
    assert!(!a.range.overlaps(b.range));
    assert_eq!(
        rig.read(A, a.handle, b.range.start - 1, 2),
        Err(FsError::Stale)
    );
    assert_eq!(
        rig.write(B, b.handle, b.range.start - 1, b"xx"),
        Err(FsError::Stale)
    );
}

#[test]
fn appends_find_the_end_that_a_writer_makes_and_never_interleave() {
    let mut rig = Rig::new();
    let writer = rig.lock(A, PW, range(0, 10));
    let first = rig.append(B, b"BBBB");
    let second = rig.append(A, b"AA");
    let third = rig.append(B, b"b");
    assert!(
        [first, second, third]
            .iter()
            .all(|tag| !rig.replies.contains_key(tag))
    );
    let (client, _, callback) = rig.callback();
    assert!(client == A && matches!(callback, Callback::Blocking { .. }));
    rig.write(A, writer.handle, 0, b"0123456789").expect("held");
    rig.cancel(A, writer.handle);
    let mut offset = |tag| match rig.reply(tag).expect("answered").expect("appended").reply {
        Reply::Appended { offset, attr } => (offset, attr.size),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        [offset(first), offset(second), offset(third)],
        [(10, 14), (14, 16), (16, 17)]
    );
    assert_eq!(
        rig.read(A, NO_LOCK, 0, 99),
        Ok(b"0123456789BBBBAAb".to_vec())
    );
}

#[test]
fn an_append_looks_again_when_the_object_was_cut_meanwhile() {
    let mut rig = Rig::new();
    rig.write(A, NO_LOCK, 0, &[1; 100]).expect("alone");
    // B reads the end, A's truncate and append wait for it in this order.
    let reader = rig.lock(B, PR, range(90, 100));
    let cut = rig.truncate(A, 10, NO_LOCK);
    let append = rig.append(A, b"tail");
    assert!(rig.reply(cut).is_none() && rig.reply(append).is_none());
    rig.cancel(B, reader.handle);
    assert_eq!(
        attr_of(&rig.reply(cut).expect("done").expect("cut").reply).size,
        10
    );
    let answer = rig.reply(append).expect("done").expect("appended");
    assert!(matches!(answer.reply, Reply::Appended { offset: 10, .. }));
}

#[test]
fn a_glimpse_asks_writers_and_leaves_their_locks() {
    let mut rig = Rig::new();
    rig.write(A, NO_LOCK, 0, b"12345").expect("alone");
    let tag = rig.glimpse(B, true);
    assert_eq!(
        attr_of(&rig.reply(tag).expect("no writer").expect("glimpsed").reply).size,
        5
    );
    let writer = rig.lock(A, PW, range(0, 5));
    let own = rig.glimpse(A, false);
    assert!(
        rig.reply(own).is_some(),
        "a writer is not asked about itself"
    );
    let guess = rig.glimpse(B, true);
    assert!(matches!(rig.reply(guess), Some(Err(FsError::TryAgain))));
    assert!(rig.callbacks.is_empty());
    let tag = rig.glimpse(B, false);
    assert!(rig.reply(tag).is_none());
    let (client, id, callback) = rig.callback();
    let expected = Callback::Glimpse {
        handle: writer.handle,
        object: object(1),
    };
    assert_eq!((client, callback), (A, expected));
    let seen = ObjectAttr {
        size: 900,
        blocks: 0,
        mtime: second(2_000_000),
    };
    rig.answer_callback(B, id, CallbackReply::Glimpse(None));
    assert!(
        rig.reply(tag).is_none(),
        "another client cannot answer for it"
    );
    rig.answer_callback(A, id, CallbackReply::Glimpse(Some(seen)));
    let attr = attr_of(&rig.reply(tag).expect("answered").expect("glimpsed").reply);
    assert_eq!((attr.size, attr.mtime), (900, seen.mtime));
    // What is about to be cut off is not there any more, though the target still has it.
    rig.write(A, writer.handle, 0, b"12345").expect("held");
    let tag = rig.glimpse(B, false);
    let (_, id, _) = rig.callback();
    let seen = ObjectAttr { size: 2, ..seen };
    rig.answer_callback(A, id, CallbackReply::Resizing(seen));
    let attr = attr_of(&rig.reply(tag).expect("answered").expect("glimpsed").reply);
    assert_eq!(attr.size, 2);
    rig.write(A, writer.handle, 5, b"!")
        .expect("the lock is still there");
}

#[test]
fn a_glimpse_is_answered_when_the_writer_lets_go_or_is_evicted() {
    for evict in [false, true] {
        let mut rig = Rig::new();
        let writer = rig.lock(A, PW, range(0, 5));
        let tag = rig.glimpse(B, false);
        let (_, id, _) = rig.callback();
        if evict {
            rig.evict(A);
        } else {
            rig.write(A, writer.handle, 0, b"12345").expect("held");
            rig.cancel(A, writer.handle);
        }
        let size = attr_of(&rig.reply(tag).expect("answered").expect("glimpsed").reply).size;
        assert_eq!(size, if evict { 0 } else { 5 });
        rig.answer_callback(A, id, CallbackReply::Glimpse(None));
    }
}

#[test]
fn a_truncate_takes_the_bytes_from_every_cache_first() {
    let mut rig = Rig::new();
    rig.write(A, NO_LOCK, 0, b"0123456789").expect("alone");
    let reader = rig.lock(B, PR, range(0, 10));
    let cut = rig.truncate(A, 3, NO_LOCK);
    assert!(rig.reply(cut).is_none());
    assert_eq!(
        rig.read(B, reader.handle, 0, 10),
        Ok(b"0123456789".to_vec())
    );
    let late = rig.enqueue(B, PR, range(0, 10));
    assert!(rig.reply(late).is_none(), "no new reader overtakes it");
    assert_eq!(rig.callback().0, B);
    rig.cancel(B, reader.handle);
    assert_eq!(
        attr_of(&rig.reply(cut).expect("done").expect("cut").reply).size,
        3
    );
    let (reader, attr) = rig.granted(late);
    assert_eq!(
        (attr.size, rig.read(B, reader.handle, 0, 10)),
        (3, Ok(b"012".to_vec()))
    );
    // Under a lock of one's own: at once, if it covers all that changes.
    rig.cancel(B, reader.handle);
    let head = rig.lock(A, PW, range(0, 1 << 20));
    let tag = rig.truncate(A, 20, head.handle);
    assert_eq!(
        attr_of(&rig.reply(tag).expect("at once").expect("grown").reply).size,
        20
    );
    assert_eq!(
        rig.read(A, head.handle, 0, 30),
        Ok([&b"012"[..], &[0; 17]].concat())
    );
    rig.cancel(A, head.handle);
    rig.callbacks.clear();
    let (_, second) = two_neighbours(&mut rig);
    let middle = rig.granted(second).0;
    for under in [middle.handle, LockHandle(99)] {
        let tag = rig.truncate(B, 5, under);
        assert_eq!(rig.reply(tag).expect("at once").err(), Some(FsError::Stale));
    }
}

#[test]
fn ranges_are_reserved_freed_and_zeroed() {
    let mut rig = Rig::new();
    let mut step = |mode, start, end| {
        let request = rig.allocation(ByteRange { start, end }, mode, NO_LOCK);
        rig.ask(A, request, &[])
            .map(|answer| attr_of(&answer.reply).size)
    };
    assert_eq!(step(AllocateMode::Extend, 0, 100), Ok(100));
    assert_eq!(step(AllocateMode::KeepSize, 0, 1000), Ok(100));
    assert_eq!(step(AllocateMode::ZeroKeepSize, 50, 150), Ok(100));
    assert_eq!(step(AllocateMode::Zero, 90, 110), Ok(110));
    assert_eq!(step(AllocateMode::PunchHole, 10, u64::MAX), Ok(110));
    assert_eq!(step(AllocateMode::Extend, 5, 5), Err(FsError::Invalid));
    assert_eq!(step(AllocateMode::Extend, 9, 5), Err(FsError::Invalid));
    assert_eq!(
        step(AllocateMode::Extend, 0, u64::MAX),
        Err(FsError::FileTooBig)
    );
    let holder = rig.lock(B, PW, range(0, 10));
    let hole = AllocateMode::PunchHole;
    let under_lost = rig.allocation(range(0, 5), hole, LockHandle(99));
    assert_eq!(rig.ask(A, under_lost, &[]).err(), Some(FsError::Stale));
    let request = rig.allocation(range(0, 5), hole, NO_LOCK);
    let tag = rig.send(A, request, &[]);
    assert!(rig.reply(tag).is_none());
    rig.write(B, holder.handle, 0, b"x").expect("held");
    rig.cancel(B, holder.handle);
    assert!(rig.reply(tag).expect("done").is_ok());
    assert_eq!(rig.read(A, NO_LOCK, 0, 1), Ok(vec![0]));
}

#[test]
fn data_and_holes_are_found_behind_a_writer() {
    let mut rig = Rig::new();
    let writer = rig.lock(A, PW, range(0, 10));
    let seek = |offset, hole| Request::Seek {
        object: object(1),
        offset,
        hole,
    };
    let tag = rig.send(B, seek(0, false), &[]);
    assert!(rig.reply(tag).is_none());
    rig.write(A, writer.handle, 1 << 20, b"data").expect("held");
    rig.cancel(A, writer.handle);
    let Reply::Offset(at) = rig.reply(tag).expect("done").expect("found").reply else {
        panic!()
    };
    assert!(at <= 1 << 20);
    let end = rig.ask(B, seek(1 << 20, true), &[]).expect("found").reply;
    assert_eq!(end, Reply::Offset((1 << 20) + 4));
    for offset in [(1 << 20) + 4, u64::MAX - 1, u64::MAX] {
        assert_eq!(
            rig.ask(B, seek(offset, true), &[]).err(),
            Some(FsError::NoData)
        );
        assert_eq!(
            rig.ask(B, seek(offset, false), &[]).err(),
            Some(FsError::NoData)
        );
    }
}

#[test]
fn a_holder_that_does_not_answer_is_evicted() {
    let mut rig = Rig::new();
    let writer = rig.lock(A, PW, range(0, 10));
    let waiting = rig.enqueue(B, PR, range(0, 10));
    let also = rig.append(A, b"A's own request goes with it");
    rig.pass(base::limits::CALLBACK_DEADLINE - Duration::from_secs(1));
    assert!(rig.evicted.is_empty() && rig.reply(waiting).is_none());
    rig.pass(Duration::from_secs(2));
    assert_eq!(rig.evicted, [A]);
    let (grant, _) = rig.granted(waiting);
    assert_eq!(rig.read(B, grant.handle, 0, 10), Ok(vec![]));
    assert_eq!(rig.write(A, writer.handle, 0, b"late"), Err(FsError::Stale));
    rig.cancel(B, grant.handle);
    assert!(rig.reply(also).is_none() && rig.oss.parked_count() == 0);
}

#[test]
fn a_destroyed_object_stays_away_from_late_writes() {
    let mut rig = Rig::new();
    rig.write(A, NO_LOCK, 0, b"old").expect("alone");
    let destroy = Request::Destroy {
        objects: vec![(object(1), 7)],
        watermark: Watermark::default(),
    };
    let tag = rig.send(B, destroy.clone(), &[]);
    assert!(rig.reply(tag).is_none(), "not before it is durable");
    rig.sync();
    assert!(rig.reply(tag).expect("durable").is_ok());
    assert_eq!(rig.write(A, NO_LOCK, 0, b"late"), Err(FsError::Stale));
    let tag = rig.append(A, b"late");
    assert_eq!(rig.reply(tag).expect("done").err(), Some(FsError::Stale));
    let mut rig = rig.restart();
    assert_eq!(rig.write(A, NO_LOCK, 0, b"late"), Err(FsError::Stale));
    // Once more, as an MDT that did not hear the answer would; the higher epoch counts.
    let again = Request::Destroy {
        objects: vec![(object(1), 3), (object(2), 3)],
        watermark: Watermark::default(),
    };
    let tag = rig.send(B, again, &[]);
    rig.sync();
    assert!(rig.reply(tag).expect("durable").is_ok());
    assert_eq!(rig.write(A, NO_LOCK, 0, b"late"), Err(FsError::Stale));
    let newer = WriteTicket {
        open_epoch: 8,
        ..TICKET
    };
    rig.write_to(A, object(1), NO_LOCK, 0, b"new", newer)
        .expect("a later open");
    for _ in 0..8 {
        rig.pass(oss::TOMBSTONE_AGE / 4);
        rig.sync();
    }
    let older = WriteTicket {
        open_epoch: 1,
        ..TICKET
    };
    rig.write_to(A, object(2), NO_LOCK, 0, b"x", older)
        .expect("long over");
}

#[test]
fn a_destroyed_object_is_gone_before_its_bytes_are() {
    let mut rig = Rig::new();
    rig.write(A, NO_LOCK, 0, b"old").expect("alone");
    rig.hold_removals = true;
    let destroy = Request::Destroy {
        objects: vec![(object(1), 7)],
        watermark: Watermark::default(),
    };
    let tag = rig.send(B, destroy.clone(), &[]);
    let again = rig.send(B, destroy, &[]);
    rig.sync();
    rig.sync();
    assert!(
        rig.reply(tag).is_some() && rig.reply(again).is_some(),
        "the tombstone is durable"
    );
    assert_eq!(rig.removals, [[object(1)]], "asked for once");
    assert_eq!(rig.read(A, NO_LOCK, 0, 9), Ok(vec![]));
    let tag = rig.glimpse(A, false);
    let attr = attr_of(&rig.reply(tag).expect("done").expect("none").reply);
    assert_eq!(attr, ObjectAttr::default());
    let seek = Request::Seek {
        object: object(1),
        offset: 0,
        hole: true,
    };
    assert_eq!(rig.ask(A, seek, &[]).err(), Some(FsError::NoData));
    assert_eq!(rig.write(A, NO_LOCK, 0, b"late"), Err(FsError::Stale));
    let newer = WriteTicket {
        open_epoch: 8,
        ..TICKET
    };
    let early = rig.write_to(A, object(1), NO_LOCK, 0, b"new", newer);
    assert_eq!(
        early,
        Err(FsError::TryAgain),
        "the old bytes are still there"
    );
    let mut rig = rig.power_cut();
    assert_eq!(
        rig.read(A, NO_LOCK, 0, 9),
        Ok(vec![]),
        "removed at the start"
    );
    rig.write_to(A, object(1), NO_LOCK, 0, b"new", newer)
        .expect("a later open");
    assert_eq!(rig.read(A, NO_LOCK, 0, 9), Ok(b"new".to_vec()));
}

#[test]
fn sync_answers_when_all_before_it_is_durable() {
    let mut rig = Rig::new();
    assert!(
        rig.ask(A, Request::Sync, &[]).is_ok(),
        "nothing to wait for"
    );
    rig.write(A, NO_LOCK, 0, b"x").expect("alone");
    assert_eq!(rig.oss.committed(), Transno(0));
    let (first, second) = (
        rig.send(A, Request::Sync, &[]),
        rig.send(B, Request::Sync, &[]),
    );
    assert_eq!(rig.syncs.len(), 1, "one for both");
    rig.write(A, NO_LOCK, 0, b"y").expect("alone");
    let third = rig.send(A, Request::Sync, &[]);
    assert_eq!(rig.syncs.len(), 1, "one at a time");
    rig.sync();
    assert!(rig.reply(first).is_some() && rig.reply(second).is_some());
    assert!(rig.reply(third).is_none() && rig.syncs.len() == 1);
    rig.sync();
    assert!(rig.reply(third).is_some());
    assert_eq!(rig.oss.committed(), Transno(2));
}

#[test]
fn a_sync_of_few_objects_is_about_these_only() {
    let mut rig = Rig::new();
    rig.write(A, NO_LOCK, 0, b"x").expect("alone");
    let tag = rig.send(
        B,
        Request::Destroy {
            objects: vec![(object(2), 7)],
            watermark: Watermark::default(),
        },
        &[],
    );
    let about = |rig: &Rig| rig.syncs[0].1.touched.clone();
    assert_eq!(about(&rig), oss::Touched::Objects(vec![object(1)]));
    rig.sync();
    assert!(rig.reply(tag).is_some());
    rig.pass(Duration::from_secs(1));
    assert_eq!(
        about(&rig),
        oss::Touched::Objects(vec![object(2)]),
        "its removal is final"
    );
    rig.sync();
    for number in (1..=100).filter(|number| *number != 2) {
        rig.write_to(A, object(number), NO_LOCK, 0, b"y", TICKET)
            .expect("alone");
    }
    rig.pass(Duration::from_secs(1));
    assert_eq!(about(&rig), oss::Touched::Many);
    rig.sync();
    let mut rig = rig.power_cut();
    assert_eq!(rig.read(A, NO_LOCK, 0, 9), Ok(b"y".to_vec()));
}

#[test]
fn writes_are_durable_after_a_second_and_survive_a_restart() {
    let mut rig = Rig::new();
    let tag = rig.append(A, b"kept");
    let (_, transno) = rig.replies.remove(&tag).expect("done");
    let mtime = rig.wall;
    rig.pass(Duration::from_millis(500));
    assert!(rig.syncs.is_empty());
    rig.pass(Duration::from_millis(600));
    rig.sync();
    assert_eq!(rig.oss.committed(), transno);
    rig.pass(Duration::from_secs(5));
    assert!(rig.syncs.is_empty(), "clean again");
    let mut rig = rig.restart();
    assert_eq!(rig.oss.committed(), transno);
    let tag = rig.glimpse(B, false);
    let attr = attr_of(&rig.reply(tag).expect("done").expect("glimpsed").reply);
    assert_eq!((attr.size, attr.mtime), (4, mtime));
    let tag = rig.append(A, b"!");
    let (_, later) = rig.replies.remove(&tag).expect("done");
    assert!(later > transno, "no number is given twice");
}

#[test]
fn a_power_cut_takes_only_what_was_not_synced() {
    let mut rig = Rig::new();
    rig.write(A, NO_LOCK, 0, b"kept").expect("alone");
    rig.write_to(A, object(2), NO_LOCK, 0, b"removed", TICKET)
        .expect("alone");
    rig.write_to(A, object(3), NO_LOCK, 0, b"still there", TICKET)
        .expect("alone");
    let (mtime, tag) = (rig.wall, rig.send(A, Request::Sync, &[]));
    rig.sync();
    assert!(rig.reply(tag).is_some());
    let committed = rig.oss.committed();
    let destroy = |number| Request::Destroy {
        objects: vec![(object(number), 7)],
        watermark: Watermark::default(),
    };
    let removed = rig.send(B, destroy(2), &[]);
    rig.sync();
    assert!(rig.reply(removed).is_some());
    rig.wall = second(2_000_000);
    rig.write(A, NO_LOCK, 0, b"lost, all of it").expect("alone");
    // Bytes go when it is durable that they are to, and all records with that.
    rig.hold_removals = true;
    let waiting = rig.send(B, destroy(3), &[]);
    assert!(rig.reply(waiting).is_none());
    let mut rig = rig.power_cut();
    assert!(rig.oss.committed() > committed);
    assert_eq!(rig.read(A, NO_LOCK, 0, 99), Ok(b"kept".to_vec()));
    let tag = rig.glimpse(A, false);
    let attr = attr_of(&rig.reply(tag).expect("done").expect("glimpsed").reply);
    assert_eq!((attr.size, attr.mtime), (4, mtime));
    let late = rig.write_to(A, object(2), NO_LOCK, 0, b"late", TICKET);
    assert_eq!(late, Err(FsError::Stale));
    rig.write_to(A, object(3), NO_LOCK, 0, b"x", TICKET)
        .expect("its removal was not promised");
}

#[test]
fn a_full_target_says_so_and_goes_on() {
    let mut rig = Rig::with_room(64 << 10);
    rig.write(A, NO_LOCK, 0, b"fits").expect("room");
    let large = vec![1; 128 << 10];
    let full = rig.write_to(A, object(2), NO_LOCK, 0, &large, TICKET);
    assert_eq!(full, Err(FsError::NoSpace));
    assert!(rig.stopped.is_empty());
    assert_eq!(rig.read(A, NO_LOCK, 0, 4), Ok(b"fits".to_vec()));
    let tag = rig.send(
        A,
        Request::Destroy {
            objects: vec![(object(2), 7)],
            watermark: Watermark::default(),
        },
        &[],
    );
    rig.sync();
    assert!(rig.reply(tag).expect("durable").is_ok());
    rig.write(A, NO_LOCK, 4, &large[..16 << 10])
        .expect("room again");
    let answer = rig.ask(A, Request::StatFs, &[]).expect("space");
    assert!(matches!(answer.reply, Reply::Space(space) if space.bytes_free < 64 << 10));
}

#[test]
fn a_failed_sync_stops_the_target() {
    let mut rig = Rig::new();
    rig.write(A, NO_LOCK, 0, b"x").expect("alone");
    let tag = rig.send(A, Request::Sync, &[]);
    let error = storage::StorageError::refused("OST0", "the disk is on fire");
    let mut out = Vec::new();
    rig.oss.sync_failed(&error, &mut out);
    assert!(
        matches!(&out[0], oss::Output::Reply { tag: t, result: Err(FsError::Io), .. } if *t == tag)
    );
    assert!(matches!(&out[1], oss::Output::Stop { reason } if reason.contains("on fire")));
    assert_eq!(rig.write(A, NO_LOCK, 0, b"x"), Err(FsError::Io));
    assert_eq!(rig.read(A, NO_LOCK, 0, 1), Err(FsError::Io));
}

#[test]
fn a_damaged_record_stops_the_target() {
    let mut rig = Rig::new();
    let mut batch = storage::Batch::new();
    let key = oss::records::object_key(object(1));
    batch.put(oss::records::OBJECTS, key, vec![1, 2, 3]);
    rig.kv.commit(batch).expect("memory");
    assert_eq!(rig.write(A, NO_LOCK, 0, b"x"), Err(FsError::Io));
    assert!(
        rig.stopped[0].contains("object record"),
        "{:?}",
        rig.stopped
    );
    let request = Request::StatFs;
    assert_eq!(rig.ask(A, request, &[]).err(), Some(FsError::Io));
}

#[test]
fn senseless_requests_are_refused() {
    use base::limits::{BULK_BYTES_MAX, FILE_BYTES_MAX};
    let mut rig = Rig::new();
    let none = layout::ObjectId {
        fid: base::Fid::NONE,
        stripe: 0,
    };
    let striped = layout::ObjectId {
        stripe: 5000,
        ..object(1)
    };
    let mut refuse = |request: Request, bulk: &[u8], error| {
        let shown = format!("{request:?}");
        assert_eq!(rig.ask(A, request, bulk).err(), Some(error), "{shown}");
    };
    let write = |object, offset, bulk| {
        let (ticket, mtime, under) = (TICKET, second(0), NO_LOCK);
        Request::Write {
            object,
            offset,
            bulk,
            ticket,
            mtime,
            under,
            boot_epoch: BootEpoch(0),
        }
    };
    refuse(write(object(1), 0, (0, 5)), b"1234", FsError::Invalid);
    refuse(
        write(object(1), 0, (u32::MAX, u32::MAX)),
        b"1234",
        FsError::Invalid,
    );
    refuse(write(none, 0, (0, 4)), b"1234", FsError::Invalid);
    refuse(write(striped, 0, (0, 4)), b"1234", FsError::Invalid);
    refuse(
        write(object(1), FILE_BYTES_MAX - 3, (0, 4)),
        b"1234",
        FsError::FileTooBig,
    );
    refuse(
        write(object(1), u64::MAX, (0, 4)),
        b"1234",
        FsError::FileTooBig,
    );
    let large = vec![0; BULK_BYTES_MAX + 1];
    refuse(
        write(object(1), 0, (0, large.len() as u32)),
        &large,
        FsError::Invalid,
    );
    let read = |offset, len, lock_mode| Request::Read {
        object: object(1),
        offset,
        len,
        lock_mode,
        under: NO_LOCK,
    };
    refuse(read(0, u32::MAX, 0), &[], FsError::Invalid);
    refuse(read(u64::MAX, 5, 0), &[], FsError::Invalid);
    refuse(read(0, 5, 1), &[], FsError::Invalid);
    refuse(read(0, 5, 99), &[], FsError::Invalid);
    let backwards = ByteRange { start: 9, end: 3 };
    let lock = |range| Request::Enqueue {
        object: object(1),
        mode: PW,
        range,
    };
    refuse(lock(backwards), &[], FsError::Invalid);
    refuse(lock(range(3, 3)), &[], FsError::Invalid);
    refuse(
        Request::Glimpse {
            object: none,
            speculative: false,
        },
        &[],
        FsError::Invalid,
    );
    refuse(
        Request::Destroy {
            objects: vec![(object(1), 1), (none, 1)],
            watermark: Watermark::default(),
        },
        &[],
        FsError::Invalid,
    );
    let tag = rig.truncate(A, FILE_BYTES_MAX + 1, NO_LOCK);
    assert_eq!(
        rig.reply(tag).expect("done").err(),
        Some(FsError::FileTooBig)
    );
    let tag = rig.glimpse(A, false);
    assert_eq!(
        attr_of(&rig.reply(tag).expect("done").expect("none").reply),
        ObjectAttr::default()
    );
    rig.cancel(A, LockHandle(77));
    rig.answer_callback(A, 12345, CallbackReply::Done);
}
