//! The bytes of updates, and bytes that are none.

use proptest::prelude::*;

use super::*;
use crate::attr::FileKind;
use crate::codec::{decode, encode};
use crate::mdt::{Reply, Request};
use base::{FsError, Transno};

const FID: Fid = Fid(9);

fn at(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 5 }
}

fn name(text: &str) -> Name {
    Name::try_from(text).expect("valid")
}

fn made() -> MadeFile {
    MadeFile {
        file: NewFile {
            fid: FID,
            kind: FileKind::Regular,
            mode: 0o644,
            rdev: 0,
            target: Vec::new(),
        },
        uid: 1,
        gid: 2,
        times: Times::default(),
        ost: Some(TargetIndex(3)),
        open: Some(Access::default()),
    }
}

fn every_change() -> Vec<Change> {
    let (dir, fid, ctime) = (1, FID, at(7));
    let linked = Replacement::Linked { fid, ctime };
    let replace = |new| Change::Replace {
        dir,
        name: name("c"),
        old: Fid(4),
        new,
        ctime,
    };
    vec![
        Change::Make {
            dir,
            name: name("a"),
            made: made(),
        },
        Change::Link {
            dir,
            name: name("b"),
            fid,
            ctime,
        },
        Change::Remove {
            dir,
            name: name("b"),
            fid,
            ctime,
        },
        replace(linked),
        replace(Replacement::Made(made())),
        Change::SetAttr {
            fid,
            attr: AttrUpdate {
                mtime: Some((at(1), at(2))),
                ..AttrUpdate::default()
            },
        },
        Change::SetXattr {
            fid,
            name: b"user.a".to_vec(),
            value: vec![1, 2],
            ctime,
        },
        Change::RemoveXattr {
            fid,
            name: b"user.b".to_vec(),
            ctime,
        },
        Change::Size {
            fid,
            size: SizeUpdate {
                size: 5,
                blocks: 8,
                mtime: at(3),
                committed: true,
            },
            handle: OpenHandle(6),
        },
        Change::Gone {
            fid,
            ost: TargetIndex(3),
            open_epoch: 11,
        },
    ]
}

fn update(changes: Vec<Change>) -> Request {
    let dirs = vec![LeasedDir {
        dir: Fid::ROOT,
        lease: LockHandle(2),
        changed: at(1),
    }];
    Request::Update { dirs, changes }
}

#[test]
fn every_change_travels() {
    let request = update(every_change());
    let bytes = encode(&request);
    assert_eq!(decode(&bytes).as_ref(), Ok(&request));
    for cut in 0..bytes.len() {
        assert!(decode::<Request>(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    assert!(decode::<Request>(&[&bytes[..], &[0]].concat()).is_err());
}

#[test]
fn updates_and_their_answers_have_these_bytes() {
    let remove = Change::Remove {
        dir: 0,
        name: name("a"),
        fid: FID,
        ctime: at(1),
    };
    // Operation, one directory (FID, lease, time), one change (kind, place, name, FID, time).
    let bytes = [24, 1, 1, 2, 2, 5, 1, 2, 0, 1, b'a', 9, 2, 5];
    assert_eq!(encode(&update(vec![remove])), bytes);
    let refused = Reply::UpdateRefused {
        change: 3,
        error: FsError::Exists,
    };
    assert_eq!(encode(&refused)[1..], [3, 1]);
    let notes = vec![UpdateNote {
        change: 2,
        told: Told::Cookie(5),
    }];
    let updated = Reply::Updated {
        transno: Transno(7),
        at: at(1),
        version: 4,
        notes,
    };
    assert_eq!(encode(&updated)[1..], [7, 2, 5, 4, 1, 2, 3, 5]);
}

#[test]
fn a_change_costs_few_bytes_beside_its_name() {
    let one = encode(&every_change()[0]).len() - name("a").as_bytes().len();
    assert!(one <= 32, "{one} bytes");
}

#[test]
fn times_names_and_kinds_that_are_none_are_no_update() {
    let remove = |text, ctime| Change::Remove {
        dir: 0,
        name: name(text),
        fid: FID,
        ctime,
    };
    let bytes = encode(&remove("ab", at(1)));
    assert!(decode::<Change>(&bytes).is_ok());
    for (place, bad) in [(0, 9), (2, 0), (3, b'/'), (4, 0)] {
        let mut bytes = bytes.clone();
        bytes[place] = bad;
        assert!(decode::<Change>(&bytes).is_err(), "{bad} at {place}");
    }
    let nanos = 1_000_000_000;
    let late = Timestamp { secs: 1, nanos };
    assert!(decode::<Change>(&encode(&remove("ab", late))).is_err());
}

proptest! {
    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let hostile = [&[24, 1, 1, 2, 2, 5][..], &bytes].concat();
        let _ = decode::<Request>(&hostile);
        let _ = decode::<Change>(&bytes);
        let _ = decode::<Vec<UpdateNote>>(&bytes);
    }
}
