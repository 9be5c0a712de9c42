//! The records' bytes, asserted: a failure here means that targets in the field become unreadable.

use base::TargetIndex;
use proptest::prelude::*;

use super::*;

fn time(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 5 }
}

fn inode() -> Inode {
    Inode {
        kind: FileKind::Regular,
        mode: 0o644,
        uid: 1000,
        gid: 100,
        nlink: 1,
        rdev: 0,
        has_xattrs: false,
        size_state: SizeState::Ask,
        written: true,
        layout: Layout::single(TargetIndex(3)),
        atime: time(1),
        mtime: time(-1),
        mtime_set: time(2),
        ctime: time(3),
        btime: time(4),
        size: 300,
        blocks: 8,
        version: 9,
        entries: 0,
    }
}

fn golden<T: Record + PartialEq + std::fmt::Debug>(record: &T, expected: &str) {
    let bytes = record.to_bytes();
    assert_eq!(hex(&bytes), expected);
    assert_eq!(T::from_bytes(b"k", &bytes).as_ref(), Ok(record));
}

#[test]
fn golden_bytes() {
    let inode_hex = "00a403e80764010000010101808040010302050105040506050805ac02080900";
    golden(&inode(), &format!("01{inode_hex}"));
    let name = Name::try_from("ab").expect("valid");
    let fid = Fid::new(0x400, 1);
    let dirent = Dirent {
        name,
        fid,
        kind: FileKind::Regular,
        inode: Some(inode()),
    };
    golden(&dirent, &format!("0102616281808080400001{inode_hex}"));
    let spot = Spot {
        dir: Fid::ROOT,
        cookie: 128,
    };
    golden(&Place::Entry(spot), "0100018001");
    golden(&Place::Directory(spot), "0101018001");
    golden(&Place::Own, "0102");
    golden(&Orphan { since: time(1) }, "010205");
    golden(&Orphan::NEVER_NAMED, "01ffffffffffffffffff0100");
    golden(
        &Destroy {
            open_epoch: 1,
            transno: Transno(2),
        },
        "010102",
    );
    golden(
        &StoredReply {
            xid: Xid(1),
            transno: Transno(2),
            boot: 3,
            body: vec![7, 8],
        },
        "01010203020708",
    );
    golden(
        &SequenceOwner { client: [1; 16] },
        &format!("01{}", "01".repeat(16)),
    );
    let state = State {
        hash_key: 1,
        boots: 2,
        transno: Transno(3),
        next_sequence: 0x400,
        files: 1,
    };
    golden(&state, "01010203800801");
    golden(&Bytes(b"xy".to_vec()), "01027879");
    golden(&KnownClient { given_up: None }, "0100");
    let given_up = Some(time(1));
    golden(&KnownClient { given_up }, "01010205");
    let committed = Transno(300);
    golden(&BootBegun { committed }, "01ac02");
    golden(&SeenOst { committed }, "01ac02");
}

#[test]
fn damage_is_named() {
    let reason = |bytes: &[u8]| {
        Place::from_bytes(&[0xab], bytes)
            .expect_err("damaged")
            .to_string()
    };
    assert_eq!(reason(b""), "damaged record place ab: it is empty");
    assert_eq!(
        reason(&[9, 2]),
        "damaged record place ab: version 9 is not known here"
    );
    assert_eq!(
        reason(&[1, 2, 0]),
        "damaged record place ab: 1 bytes left over"
    );
    assert!(reason(&[1]).starts_with("damaged record place ab: "));
}

proptest! {
    #[test]
    fn any_bytes_are_a_record_or_damage(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = Inode::from_bytes(b"", &bytes);
        let _ = Dirent::from_bytes(b"", &bytes);
        let _ = StoredReply::from_bytes(b"", &bytes);
    }
}
