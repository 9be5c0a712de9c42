//! What a check of a target finds, and what it does not complain of.

mod rig;

#[allow(
    dead_code,
    reason = "`over_extents` has these tests too, and says it for them"
)]
const OVER_EXTENTS: bool = false;

use base::LockHandle;
use layout::ObjectId;
use oss::fsck::{Finding, Repaired, Report, Whose, check, repair};
use oss::records::{CLIENTS, META, OBJECTS, ObjectRecord, TOMBSTONES, Tombstone, object_key};
use rig::{A, Rig, TICKET, object};
use storage::Batch;
use wire::ost::{Request, Watermark};

fn look(rig: &Rig) -> Report {
    check(&*rig.disk.store, &rig.kv, &mut |_| Whose::Unasked).expect("readable")
}

/// Repairs, where the MDT says `whose` each object is.
fn mend(rig: &Rig, mut whose: impl FnMut(ObjectId) -> Whose) -> Repaired {
    repair(&*rig.disk.store, &rig.kv, &mut whose, rig.wall).expect("readable")
}

fn is_there(rig: &Rig, number: u32) -> bool {
    let size = oss::fsck::size(&*rig.disk.store, object(number));
    size.expect("readable").is_some()
}

/// Its removal is final.
fn bury(rig: &Rig, number: u32) {
    let stone = Tombstone {
        epoch: 7,
        removed: 0,
        pending: false,
    };
    let mut batch = Batch::new();
    batch.put(TOMBSTONES, object_key(object(number)), stone.encode());
    batch.delete(OBJECTS, object_key(object(number)));
    rig.kv.commit(batch).expect("memory");
}

fn write(rig: &mut Rig, number: u32, bytes: usize) {
    let data = vec![1; bytes];
    rig.write_to(A, object(number), LockHandle(0), 0, &data, TICKET)
        .expect("alone");
}

#[test]
fn a_sound_target_has_nothing_to_report() {
    let mut rig = Rig::new();
    write(&mut rig, 1, 10);
    write(&mut rig, 2, 20);
    let tag = rig.send(
        A,
        Request::Destroy {
            objects: vec![(object(2), 7)],
            watermark: Watermark::default(),
        },
        &[],
    );
    let expected = Report {
        objects: 1,
        bytes: 10,
        tombstones: 1,
        findings: Vec::new(),
    };
    assert_eq!(look(&rig), expected, "before the sync");
    rig.sync();
    assert!(rig.reply(tag).is_some());
    assert_eq!(look(&rig), expected, "and after it");
    assert_eq!(look(&rig.restart()), expected);
}

#[test]
fn what_is_wrong_is_found() {
    let mut rig = Rig::new();
    write(&mut rig, 1, 10);
    let stone = Tombstone {
        epoch: 7,
        removed: 0,
        pending: false,
    };
    let mut batch = Batch::new();
    batch.put(TOMBSTONES, object_key(object(1)), stone.encode());
    batch.put(TOMBSTONES, object_key(object(9)), vec![1, 2]);
    batch.put(OBJECTS, *b"short", vec![1]);
    batch.put(META, *b"what", vec![1]);
    batch.put(CLIENTS, [7; 16], vec![1, 2]);
    rig.kv.commit(batch).expect("memory");
    let findings = look(&rig).findings;
    assert_eq!(findings.len(), 5, "{findings:?}");
    assert!(findings.contains(&Finding::Resurrected {
        object: object(1),
        whose: Whose::Unasked
    }));
    let said: Vec<String> = findings.iter().map(Finding::to_string).collect();
    for part in [
        "ost_objects",
        "ost_meta",
        "ost_tombstones",
        "ost_clients",
        "was removed",
    ] {
        assert!(
            said.iter().any(|line| line.contains(part)),
            "{part}: {said:?}"
        );
    }
}

#[test]
fn a_removal_that_a_crash_interrupted_is_finished() {
    let mut rig = Rig::new();
    write(&mut rig, 1, 10);
    let stone = Tombstone {
        epoch: 7,
        removed: 0,
        pending: true,
    };
    let mut batch = Batch::new();
    batch.put(TOMBSTONES, object_key(object(1)), stone.encode());
    rig.kv.commit(batch).expect("memory");
    rig.kv.flush_once().expect("memory");
    assert!(look(&rig).findings.is_empty(), "it will be");
    let rig = rig.restart();
    assert_eq!(look(&rig).objects, 0);
}

/// Of objects 1 to 5: of a file, in doubt, nobody's, nobody was asked, nobody's.
fn whose(object: ObjectId) -> Whose {
    match object.fid.object() {
        1 => Whose::Known,
        2 => Whose::InDoubt,
        4 => Whose::Unasked,
        _ => Whose::Nobodys,
    }
}

#[test]
fn only_what_is_nobodys_is_removed() {
    let mut rig = Rig::new();
    (1..=5).for_each(|number| write(&mut rig, number, 10));
    rig.sync();
    let mut record = Batch::new();
    let bytes = ObjectRecord::default().encode();
    record.put(OBJECTS, object_key(object(9)), bytes);
    rig.kv.commit(record).expect("memory");
    let done = mend(&rig, whose);
    let removed: Vec<_> = done.mended.iter().filter_map(Finding::to_remove).collect();
    assert_eq!(removed, [object(3), object(5), object(9)]);
    let left = Finding::Unclaimed {
        object: object(2),
        for_good: false,
    };
    assert!(left.is_warning() && left.to_string().contains("may come back"));
    assert_eq!(done.left.findings, [left]);
    let there: Vec<u32> = (1..=9).filter(|number| is_there(&rig, *number)).collect();
    assert_eq!(there, [1, 2, 4]);
    assert_eq!(mend(&rig, whose).mended, [], "a second time");
    let mut rig = rig.power_cut();
    let late = rig.write_to(A, object(3), LockHandle(0), 0, b"late", TICKET);
    assert!(late.is_err(), "what was removed does not come back");
    assert_eq!(look(&rig).bytes, 30);
}

#[test]
fn what_came_back_is_removed_only_when_it_is_nobodys() {
    let mut rig = Rig::new();
    for number in 1..=4 {
        write(&mut rig, number, 10);
    }
    rig.sync();
    (1..=4).for_each(|number| bury(&rig, number));
    let done = mend(&rig, whose);
    assert_eq!(done.mended.len(), 1);
    assert_eq!(done.left.findings.len(), 3, "{:?}", done.left.findings);
    assert!(!is_there(&rig, 3) && is_there(&rig, 1) && is_there(&rig, 2) && is_there(&rig, 4));
    let said = done.left.findings.iter().map(Finding::to_string);
    let said: Vec<String> = said.collect();
    assert!(
        said[2].contains("together with the MDT's directory"),
        "{said:?}"
    );
}

#[test]
fn nothing_is_removed_where_a_record_is_damaged() {
    let mut rig = Rig::new();
    write(&mut rig, 3, 10);
    rig.sync();
    let mut batch = Batch::new();
    batch.put(TOMBSTONES, object_key(object(8)), vec![1, 2]);
    rig.kv.commit(batch).expect("memory");
    let before = rig.kv.committed();
    let done = mend(&rig, whose);
    assert_eq!((done.mended.len(), done.left.findings.len()), (0, 2));
    assert!(done.left.findings[0].to_string().contains("from a copy"));
    assert_eq!(rig.kv.committed(), before, "nothing is written");
    assert!(is_there(&rig, 3));
}
