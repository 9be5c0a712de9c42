//! What a check of a target finds, and what it does not complain of.

mod rig;

use base::{Fid, LockHandle};
use oss::fsck::{Finding, Report, check, orphans};
use oss::records::{META, OBJECTS, TOMBSTONES, Tombstone, object_key};
use rig::{A, Rig, TICKET, object};
use storage::{Batch, ObjectStore};
use wire::ost::Request;

fn look(rig: &Rig) -> Report {
    check(&*rig.disk.store, &rig.kv).expect("readable")
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
    rig.kv.commit(batch).expect("memory");
    let findings = look(&rig).findings;
    assert_eq!(findings.len(), 4, "{findings:?}");
    assert!(findings.contains(&Finding::Resurrected { object: object(1) }));
    let said: Vec<String> = findings.iter().map(Finding::to_string).collect();
    for part in ["ost_objects", "ost_meta", "ost_tombstones", "was removed"] {
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

#[test]
fn orphans_are_the_objects_of_files_that_do_not_exist() {
    let mut rig = Rig::new();
    for number in 1..=3000 {
        write(&mut rig, number, 1);
    }
    let exists = |file: &Fid| !file.object().is_multiple_of(1000);
    let found = orphans(&*rig.disk.store, |files| files.iter().map(exists).collect());
    let expected: Vec<_> = [1000, 2000, 3000].map(object).to_vec();
    assert_eq!(found.expect("readable"), expected);
    let silent = orphans(&*rig.disk.store, |_| Vec::new());
    assert_eq!(
        silent.expect("readable"),
        [],
        "what was not answered is kept"
    );
    assert!(
        rig.disk
            .store
            .stat(storage::ObjectId::new(object(1000).fid, 0))
            .is_ok()
    );
}
