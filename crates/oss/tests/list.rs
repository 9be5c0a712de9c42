//! What an MDT is told that asks for objects.

mod rig;

use base::{Fid, LockHandle};
use layout::ObjectId;
use rig::{A, B, Rig, TICKET, object};
use wire::ost::{Reply, Request};

const NO_LOCK: LockHandle = LockHandle(0);

#[test]
fn an_mdt_is_told_of_the_objects_of_a_sequence_page_by_page() {
    let mut rig = Rig::new();
    let list = |rig: &mut Rig, from| match rig.ask(B, Request::List { from }, &[]).unwrap().reply {
        Reply::Objects { objects, next } => (objects, next),
        other => panic!("{other:?}"),
    };
    let of = |sequence, number, stripe| ObjectId {
        fid: Fid::new(sequence, number),
        stripe,
    };
    assert_eq!(list(&mut rig, of(5, 0, 0)), (vec![], None));
    // Some are in the store already, some in memory, some are both; and there are neighbours.
    let (old, new) = (1..=600, 500..=1100);
    for number in old {
        let change = |rig: &mut Rig, id| rig.write_to(A, id, NO_LOCK, 0, b"x", TICKET).is_ok();
        assert!(change(&mut rig, of(5, number, 0)));
    }
    let neighbours = [of(4, Fid::OBJECT_MAX, 0), of(6, 0, 0)];
    for id in neighbours {
        rig.write_to(A, id, NO_LOCK, 0, b"x", TICKET).expect("free");
    }
    rig.sync();
    for number in new {
        let written = rig.write_to(A, of(5, number, 0), NO_LOCK, 0, b"y", TICKET);
        written.expect("free");
    }
    rig.write_to(A, of(5, 7, 3), NO_LOCK, 0, b"z", TICKET)
        .expect("free");
    let destroy = Request::Destroy {
        objects: vec![(of(5, 3, 0), 7), (of(5, 1099, 0), 7)],
    };
    rig.send(B, destroy, &[]);
    let (mut found, mut from, mut pages) = (Vec::new(), Some(of(5, 0, 0)), 0);
    while let Some(next) = from {
        let (objects, next) = list(&mut rig, next);
        found.extend(objects);
        (from, pages) = (next, pages + 1);
    }
    let numbers = (1..=1100).filter(|number| ![3, 1099].contains(number));
    let mut expected: Vec<ObjectId> = numbers.map(|number| of(5, number, 0)).collect();
    expected.push(of(5, 7, 3));
    expected.sort_unstable();
    assert_eq!((found.len(), pages), (expected.len(), 2));
    assert!(found == expected, "each once, in their order");
    assert_eq!(list(&mut rig, of(4, 0, 0)).0, neighbours[..1]);
}

#[test]
fn what_comes_back_after_a_restart_is_told_of_too() {
    let mut rig = Rig::new();
    rig.connect(A);
    let tag = rig.join(A);
    rig.sync();
    assert!(rig.reply(tag).expect("durable").is_ok());
    let mut rig = rig.restart();
    let from = object(0);
    let tag = rig.send(B, Request::List { from }, &[]);
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
fn what_lost_its_record_in_a_crash_is_told_of() {
    let mut rig = Rig::new();
    rig.write(A, NO_LOCK, 0, b"with").expect("alone");
    rig.sync();
    let other = ObjectId {
        fid: Fid::new(1 << 20, 1),
        stripe: 0,
    };
    for id in [object(2), other] {
        rig.write_to(A, id, NO_LOCK, 0, b"without", TICKET)
            .expect("alone");
    }
    let mut rig = rig.restart();
    let from = object(0);
    let told = |rig: &mut Rig, from| rig.ask(B, Request::List { from }, &[]).expect("told").reply;
    let (objects, next) = (vec![object(1), object(2)], None);
    assert_eq!(told(&mut rig, from), Reply::Objects { objects, next });
    let from = object(2);
    let (objects, next) = (vec![], None);
    assert_eq!(
        told(&mut rig, from),
        Reply::Objects { objects, next },
        "they are looked for once for a list"
    );
    // What is removed is not told of again.
    let destroy = Request::Destroy {
        objects: vec![(object(2), 7)],
    };
    rig.send(B, destroy, &[]);
    rig.sync();
    rig.remove();
    rig.sync();
    let (objects, next) = (vec![object(1)], None);
    let from = object(0);
    assert_eq!(told(&mut rig, from), Reply::Objects { objects, next });
}
