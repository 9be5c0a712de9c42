//! What an MDT is told that looks for objects of files that it lost, and when it is told nothing.

mod rig;

#[allow(
    dead_code,
    reason = "`over_extents` has these tests too, and says it for them"
)]
const OVER_EXTENTS: bool = false;

use base::{Fid, FsError, LockHandle, Timestamp, Transno};
use layout::ObjectId;
use rig::{A, B, Rig, TICKET, object};
use wire::ost::{Reply, Request, Watermark};

const NO_LOCK: LockHandle = LockHandle(0);

fn request(from: ObjectId, unrecorded: bool) -> Request {
    Request::List {
        from,
        unrecorded,
        watermark: Watermark::default(),
    }
}

fn list(rig: &mut Rig, from: ObjectId, unrecorded: bool) -> (Vec<ObjectId>, Option<ObjectId>) {
    match rig
        .ask(B, request(from, unrecorded), &[])
        .expect("told")
        .reply
    {
        Reply::Objects { objects, next } => (objects, next),
        other => panic!("{other:?}"),
    }
}

/// All pages, and how many there are.
fn list_all(rig: &mut Rig, first: ObjectId, unrecorded: bool) -> (Vec<ObjectId>, usize) {
    let (mut found, mut from, mut pages) = (Vec::new(), Some(first), 0);
    while let Some(next) = from {
        let (objects, next) = list(rig, next, unrecorded);
        found.extend(objects);
        (from, pages) = (next, pages + 1);
    }
    (found, pages)
}

fn of(sequence: u64, number: u32, stripe: u32) -> ObjectId {
    ObjectId {
        fid: Fid::new(sequence, number),
        stripe,
    }
}

fn sync(rig: &mut Rig) {
    let tag = rig.send(A, Request::Sync, &[]);
    rig.sync();
    assert!(rig.reply(tag).expect("durable").is_ok());
}

fn write(rig: &mut Rig, id: ObjectId) {
    let written = rig.write_to(A, id, NO_LOCK, 0, b"x", TICKET);
    written.expect("free");
}

fn destroy(rig: &mut Rig, objects: &[ObjectId], watermark: Watermark) -> Result<Reply, FsError> {
    let objects = objects.iter().map(|object| (*object, 7)).collect();
    let tag = rig.send(B, Request::Destroy { objects, watermark }, &[]);
    rig.sync();
    let answer = rig.reply(tag).expect("answered");
    answer.map(|answer| answer.reply)
}

#[test]
fn an_mdt_is_told_of_the_objects_of_a_sequence_page_by_page() {
    let mut rig = Rig::new();
    assert_eq!(list(&mut rig, of(5, 0, 0), false), (vec![], None));
    // Some are in the store already, some in memory, some are both; and there are neighbours.
    (1..=300).for_each(|number| write(&mut rig, of(5, number, 0)));
    let neighbours = [of(4, Fid::OBJECT_MAX, 0), of(6, 0, 0)];
    neighbours.iter().for_each(|id| write(&mut rig, *id));
    sync(&mut rig);
    (250..=550).for_each(|number| write(&mut rig, of(5, number, 0)));
    write(&mut rig, of(5, 7, 3));
    let gone = [of(5, 3, 0), of(5, 549, 0)];
    let destroyed = destroy(&mut rig, &gone, Watermark::default());
    assert_eq!(destroyed, Ok(Reply::Done));
    let numbers = (1..=550).filter(|number| ![3, 549].contains(number));
    let mut expected: Vec<ObjectId> = numbers.map(|number| of(5, number, 0)).collect();
    expected.push(of(5, 7, 3));
    expected.sort_unstable();
    let (found, pages) = list_all(&mut rig, of(5, 0, 0), false);
    assert_eq!((found.len(), pages), (expected.len(), 3));
    assert!(found == expected, "each once, in their order");
    assert_eq!(list(&mut rig, of(4, 0, 0), false).0, neighbours[..1]);
}

#[test]
fn what_comes_back_after_a_restart_is_told_of_too() {
    let mut rig = Rig::new();
    rig.connect(A);
    let tag = rig.join(A);
    rig.sync();
    assert!(rig.reply(tag).expect("durable").is_ok());
    let mut rig = rig.restart();
    let tag = rig.send(B, request(object(0), false), &[]);
    assert!(rig.reply(tag).is_none(), "A is waited for");
    rig.connect(A);
    rig.write(A, NO_LOCK, 0, b"lost").expect("written again");
    rig.join(A);
    rig.sync();
    let told = rig.reply(tag).expect("all are back").expect("told").reply;
    let (objects, next) = (vec![object(1)], None);
    assert_eq!(told, Reply::Objects { objects, next });
}

/// The process dies: the bytes are the kernel's, the record was in memory.
#[test]
fn what_lost_its_record_in_a_crash_is_told_of_when_that_is_asked() {
    let mut rig = Rig::new();
    write(&mut rig, object(1));
    sync(&mut rig);
    let lost: Vec<ObjectId> = (2..=400).map(object).collect();
    lost.iter().for_each(|id| write(&mut rig, *id));
    write(&mut rig, of(1 << 20, 1, 0));
    let mut rig = rig.restart();
    assert_eq!(list(&mut rig, object(0), false), (vec![object(1)], None));
    let (found, pages) = list_all(&mut rig, object(0), true);
    if crate::OVER_EXTENTS {
        // Their bytes were as little durable as their records.
        assert_eq!((found, pages), (vec![], 1));
        return;
    }
    assert_eq!((found.len(), pages), (lost.len(), 2));
    assert!(found == lost, "each once, in their order");
    let destroyed = destroy(&mut rig, &lost[1..], Watermark::default());
    assert_eq!(destroyed, Ok(Reply::Done));
    rig.remove();
    rig.sync();
    assert_eq!(list(&mut rig, object(0), true), (vec![lost[0]], None));
}

/// An older copy of an MDT knows nothing of files that are newer, and would have them removed.
#[test]
fn an_mdt_that_lost_changes_it_told_of_removes_nothing() {
    let mut rig = Rig::new();
    let boot_epoch = |secs, begun, committed| Watermark {
        epoch_stamp: Timestamp { secs, nanos: 0 },
        begun: Transno(begun),
        committed: Transno(committed),
    };
    write(&mut rig, object(1));
    write(&mut rig, object(2));
    sync(&mut rig);
    let done = Ok(Reply::Done);
    assert_eq!(destroy(&mut rig, &[object(3)], boot_epoch(1, 0, 10)), done);
    assert_eq!(destroy(&mut rig, &[object(4)], boot_epoch(1, 0, 20)), done);
    // Words of one boot may overtake each other.
    assert_eq!(destroy(&mut rig, &[object(5)], boot_epoch(1, 0, 15)), done);
    assert_eq!(destroy(&mut rig, &[object(6)], boot_epoch(2, 20, 25)), done);
    let mut rig = rig.restart();
    let ahead = Reply::Ahead {
        committed: Transno(25),
    };
    for old in [
        boot_epoch(3, 24, 24),
        boot_epoch(4, 0, 0),
        boot_epoch(5, 12, 40),
    ] {
        let refused = destroy(&mut rig, &[object(1)], old);
        assert_eq!(refused, Ok(ahead.clone()));
        let request = Request::List {
            from: object(0),
            unrecorded: false,
            watermark: old,
        };
        assert_eq!(rig.ask(B, request, &[]).expect("told").reply, ahead);
    }
    let left = Request::List {
        from: object(0),
        unrecorded: false,
        watermark: boot_epoch(6, 25, 25),
    };
    let (objects, next) = (vec![object(1), object(2)], None);
    let told = rig.ask(B, left, &[]).expect("told").reply;
    assert_eq!(told, Reply::Objects { objects, next });
}

fn watermark(watermark: Watermark, seen: u64) -> Request {
    Request::Watermark {
        watermark,
        seen: Transno(seen),
    }
}

/// Where nothing is removed the MDT is heard all the same.
#[test]
fn an_mdt_that_lost_changes_it_only_told_of_is_known() {
    let mut rig = Rig::new();
    let boot_epoch = |secs, begun, committed| Watermark {
        epoch_stamp: Timestamp { secs, nanos: 0 },
        begun: Transno(begun),
        committed: Transno(committed),
    };
    let told = rig
        .ask(B, watermark(boot_epoch(1, 0, 20), 0), &[])
        .expect("told");
    assert!(matches!(told.reply, Reply::Watermark { .. }), "{told:?}");
    write(&mut rig, object(1));
    sync(&mut rig);
    let mut rig = rig.restart();
    let ahead = Reply::Ahead {
        committed: Transno(20),
    };
    let told = rig
        .ask(B, watermark(boot_epoch(2, 19, 40), 0), &[])
        .expect("told");
    assert_eq!(told.reply, ahead);
    assert_eq!(
        destroy(&mut rig, &[object(1)], boot_epoch(2, 19, 40)),
        Ok(ahead)
    );
}

/// Seen from the MDT, which knows how far the target had come.
#[test]
fn a_target_that_was_further_than_it_is_stops() {
    let mut rig = Rig::new();
    write(&mut rig, object(1));
    sync(&mut rig);
    let told = rig
        .ask(B, watermark(Watermark::default(), 0), &[])
        .expect("told");
    let Reply::Watermark { committed } = told.reply else {
        panic!("{told:?}")
    };
    assert!(committed > Transno(0));
    let same = rig.ask(B, watermark(Watermark::default(), committed.0), &[]);
    assert_eq!(same.expect("told").reply, Reply::Watermark { committed });
    let more = rig.ask(B, watermark(Watermark::default(), committed.0 + 1), &[]);
    assert_eq!(more.map(|answer| answer.reply), Err(FsError::Io));
    let why = rig.stopped.concat();
    assert!(
        why.contains("older copy") && why.contains("history"),
        "{why}"
    );
    assert_eq!(
        rig.ask(A, Request::StatFs, &[]).map(|answer| answer.reply),
        Err(FsError::Io)
    );
}
