//! Hostile bytes, and one request of each kind that matters.

use base::Timestamp;
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::kernel::abi::{EXTENSION_GROUPS, InHeader};
use crate::kernel::setattr::SetTime;

const LONG: Dialect = Dialect {
    long_setxattr: true,
};

/// A request's bytes: header, body, then extensions.
fn bytes(opcode: u32, body: &[&[u8]], extension_words: u16) -> Vec<u8> {
    let body = body.concat();
    let header = InHeader {
        len: (size_of::<InHeader>() + body.len()) as u32,
        opcode,
        unique: 8,
        nodeid: 3,
        uid: 1000,
        gid: 100,
        pid: 42,
        extension_words,
        padding: 0,
    };
    [header.as_bytes(), &body].concat()
}

fn simple(opcode: Opcode, body: &[&[u8]]) -> Vec<u8> {
    bytes(opcode as u32, body, 0)
}

#[test]
fn reads_header_and_name() {
    let raw = simple(Opcode::Lookup, &[b"file\0"]);
    let request = Request::parse(&raw, LONG).unwrap();
    assert_eq!(
        (request.unique, request.nodeid, request.resent),
        (8, 3, false)
    );
    assert_eq!((request.uid, request.gid, request.pid), (1000, 100, 42));
    assert!(matches!(request.op, Op::Lookup { name: b"file" }));
}

#[test]
fn reads_the_supplementary_group() {
    let head = raw::Mkdir {
        mode: 0o755,
        umask: 0o22,
    };
    let extension = [16u32, EXTENSION_GROUPS, 1, 555];
    let raw = bytes(
        Opcode::Mkdir as u32,
        &[head.as_bytes(), b"d\0\0\0", extension.as_bytes()],
        2,
    );
    let request = Request::parse(&raw, LONG).unwrap();
    assert_eq!(request.group, Some(555));
    assert!(matches!(
        request.op,
        Op::Mkdir {
            name: b"d",
            mode: 0o755,
            umask: 0o22
        }
    ));
    let cut = bytes(Opcode::Mkdir as u32, &[head.as_bytes(), b"d\0"], 9);
    assert_eq!(
        Request::parse(&cut, LONG).unwrap_err().fault,
        Fault::Extension
    );
}

#[test]
fn setattr_becomes_plain_options() {
    let mut head = raw::Setattr::read_from_bytes(&[0; 88]).unwrap();
    head.valid = raw::valid::MODE | raw::valid::ATIME | raw::valid::ATIME_NOW | raw::valid::MTIME;
    (head.mode, head.mtime, head.mtime_nanos) = (0o600, -3i64 as u64, 9);
    head.size = 77;
    let raw = simple(Opcode::Setattr, &[head.as_bytes()]);
    let Op::Setattr(set) = Request::parse(&raw, LONG).unwrap().op else {
        panic!()
    };
    let mtime = Some(SetTime::At(Timestamp { secs: -3, nanos: 9 }));
    let expected = SetAttributes {
        mode: Some(0o600),
        atime: Some(SetTime::Now),
        mtime,
        ..SetAttributes::default()
    };
    assert_eq!(set, expected);
    head.mtime_nanos = 1_000_000_000;
    let raw = simple(Opcode::Setattr, &[head.as_bytes()]);
    assert_eq!(Request::parse(&raw, LONG).unwrap_err().fault, Fault::Time);
}

#[test]
fn write_carries_its_data_and_flags() {
    let head = raw::Write {
        fh: 5,
        offset: 4096,
        size: 3,
        write_flags: raw::WRITE_CACHE | raw::WRITE_KILL_SUIDGID,
        lock_owner: 9,
        flags: (libc::O_WRONLY | libc::O_APPEND) as u32,
        padding: 0,
    };
    let raw = simple(Opcode::Write, &[head.as_bytes(), b"abc"]);
    let Op::Write(write) = Request::parse(&raw, LONG).unwrap().op else {
        panic!()
    };
    assert!(write.data == b"abc" && write.from_cache && write.kill_suid_gid);
    assert!(write.lock_owner.is_none() && write.flags.appends());
    let short = simple(Opcode::Write, &[head.as_bytes(), b"ab"]);
    let error = Request::parse(&short, LONG).unwrap_err();
    assert_eq!((error.unique, error.fault), (Some(8), Fault::Short));
}

#[test]
fn setxattr_comes_in_two_lengths() {
    let head = raw::Setxattr {
        size: 2,
        flags: libc::XATTR_CREATE as u32,
    };
    let tail = raw::SetxattrTail {
        setxattr_flags: raw::SETXATTR_ACL_KILL_SGID,
        padding: 0,
    };
    let long = simple(
        Opcode::Setxattr,
        &[head.as_bytes(), tail.as_bytes(), b"user.a\0xy"],
    );
    let short = simple(Opcode::Setxattr, &[head.as_bytes(), b"user.a\0xy"]);
    for (raw, dialect, kills) in [(&long, LONG, true), (&short, Dialect::default(), false)] {
        let Op::Setxattr {
            name,
            value,
            mode,
            acl_kills_sgid,
        } = Request::parse(raw, dialect).unwrap().op
        else {
            panic!()
        };
        assert_eq!(
            (name, value, mode),
            (&b"user.a"[..], &b"xy"[..], XattrMode::Create)
        );
        assert_eq!(acl_kills_sgid, kills);
    }
}

#[test]
fn rename_flags_and_both_names() {
    let head = raw::Rename2 {
        new_parent: 7,
        flags: libc::RENAME_EXCHANGE,
        padding: 0,
    };
    let raw = simple(Opcode::Rename2, &[head.as_bytes(), b"a\0b\0"]);
    let op = Request::parse(&raw, LONG).unwrap().op;
    let Op::Rename {
        name,
        new_parent,
        new_name,
        mode,
    } = op
    else {
        panic!()
    };
    assert_eq!((name, new_parent, new_name), (&b"a"[..], 7, &b"b"[..]));
    assert_eq!(mode, RenameMode::Exchange);
    let cut = simple(Opcode::Rename2, &[head.as_bytes(), b"a\0b"]);
    assert_eq!(
        Request::parse(&cut, LONG).unwrap_err().fault,
        Fault::Unterminated
    );
}

#[test]
fn batch_forget_lists_all() {
    let head = raw::BatchForget {
        count: 2,
        unused: 0,
    };
    let ones = [[1u64, 2], [3, 4]];
    let raw = simple(Opcode::BatchForget, &[head.as_bytes(), ones.as_bytes()]);
    let Op::BatchForget(forgets) = Request::parse(&raw, LONG).unwrap().op else {
        panic!()
    };
    assert_eq!(forgets.collect::<Vec<_>>(), [(1, 2), (3, 4)]);
    let greedy = raw::BatchForget {
        count: u32::MAX,
        unused: 0,
    };
    let raw = simple(Opcode::BatchForget, &[greedy.as_bytes(), ones.as_bytes()]);
    let error = Request::parse(&raw, LONG).unwrap_err();
    assert_eq!((error.unique, error.fault), (None, Fault::Short));
}

#[test]
fn init_of_old_kernels_is_shorter() {
    let head = [7u32, 31, 4096, 0x8000_0001];
    let raw = simple(Opcode::Init, &[head.as_bytes()]);
    let Op::Init(init) = Request::parse(&raw, LONG).unwrap().op else {
        panic!()
    };
    assert_eq!((init.minor, init.flags), (31, 0x8000_0001));
    let tail = [[8u32; 1].as_bytes(), &[0; 44]].concat();
    let raw = simple(Opcode::Init, &[head.as_bytes(), &tail]);
    let Op::Init(init) = Request::parse(&raw, LONG).unwrap().op else {
        panic!()
    };
    assert_eq!(init.flags, 8 << 32 | 0x8000_0001);
}

#[test]
fn unknown_operations_and_wrong_lengths_are_named() {
    let error = Request::parse(&bytes(9999, &[], 0), LONG).unwrap_err();
    assert_eq!(
        (error.unique, error.opcode, error.fault),
        (Some(8), 9999, Fault::Opcode)
    );
    let mut raw = simple(Opcode::Statfs, &[]);
    raw.push(0);
    assert_eq!(Request::parse(&raw, LONG).unwrap_err().fault, Fault::Length);
    assert_eq!(Request::parse(&raw[..39], LONG).unwrap_err().unique, None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn any_bytes_are_a_request_or_an_error(noise in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Request::parse(&noise, LONG);
    }

    #[test]
    fn any_body_of_any_operation_is_read_without_panic(
        index in 0..Opcode::ALL.len(),
        body in proptest::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..160),
        extension_words in prop_oneof![3 => Just(0u16), 1 => 0..30u16],
        long_setxattr: bool,
    ) {
        let raw = bytes(Opcode::ALL[index] as u32, &[&body], extension_words);
        if let Ok(request) = Request::parse(&raw, Dialect { long_setxattr }) {
            prop_assert_eq!(request.opcode, Opcode::ALL[index]);
            if let Op::BatchForget(forgets) = request.op {
                prop_assert!(forgets.count() <= body.len() / 16);
            }
        }
    }
}
