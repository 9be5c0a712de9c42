//! Pages there and back: of any attributes, of hostile bytes, and how long they are.

use base::{LockHandle, TargetIndex, Timestamp};
use layout::{Layout, Stripes};
use proptest::prelude::*;

use super::*;
use crate::attr::{Attr, Cover, Grant, SizeState};
use crate::{decode, encode};

fn at(secs: i64, nanos: u32) -> Timestamp {
    Timestamp { secs, nanos }
}

/// A file as an archive brings it.
fn file(version: u64) -> Attr {
    Attr {
        kind: FileKind::Regular,
        mode: 0o644,
        uid: 0,
        gid: 0,
        nlink: 1,
        rdev: 0,
        has_xattrs: false,
        size_state: SizeState::Strict,
        layout: Layout::single(TargetIndex(0)),
        atime: at(2_000, 200_000),
        mtime: at(1_000, 0),
        mtime_set: at(2_000, 300_000),
        ctime: at(2_000, 300_000),
        btime: at(2_000, 200_000),
        size: 5_000,
        blocks: 16,
        version,
    }
}

fn directory() -> Attr {
    Attr {
        kind: FileKind::Directory,
        mode: 0o755,
        nlink: 2,
        layout: Layout::none(),
        size: 0,
        blocks: 0,
        ..file(7)
    }
}

fn entry(cookie: u64, name: &str, attr: Option<Attr>) -> DirEntry {
    let fid = Fid(0x4000_0000 + cookie % 1000);
    DirEntry {
        cookie,
        name: Name::try_from(name).expect("a name"),
        fid,
        kind: attr.as_ref().map_or(FileKind::Regular, |attr| attr.kind),
        node: attr.map(|attr| Node {
            fid,
            attr,
            cover: Cover::Parent,
        }),
        is_outside: false,
    }
}

fn page(entries: Vec<DirEntry>) -> Page {
    Page {
        lease: Lease::None,
        dir: DirState {
            fid: Fid(0x4000_0000),
            attr: directory(),
            version: 3,
        },
        entries,
        end: true,
        covers_list: false,
    }
}

#[test]
fn a_page_has_these_bytes() {
    let own = Cover::Own(Grant {
        handle: LockHandle(9),
        fid: Fid(0x4000_0003),
        mode: 4,
        bits: 3,
        version: 5,
    });
    let mut below = entry(0x103, "b", Some(directory()));
    below.fid = Fid(0x4000_0003);
    below.node.as_mut().expect("it has").fid = below.fid;
    below.node.as_mut().expect("it has").cover = own;
    let mut names = page(vec![
        entry(2, "a", Some(file(9))),
        below,
        entry(0x104, "c", None),
    ]);
    names.entries[2].fid = Fid(0x4000_0001);
    names.entries[2].is_outside = true;
    names.covers_list = true;
    let expected = [
        // No lease; so many bytes follow.
        &[0, 62][..],
        // The directory: its FID from zero, mtime is told, version 7.
        &[0x80, 0x80, 0x80, 0x80, 0x08, 1 << 2, 14],
        // Made 2000 s and 200 us after 1970, changed 100 us later, 0 bytes.
        &[0x80, 0xb5, 0xe9, 0x94, 0xb5, 0x74, 0xc0, 0x9a, 0x0c, 0],
        // mtime 1000 s after 1970; version of the lease; three entries, the list is covered, the end.
        &[0x80, 0xc0, 0xa8, 0xca, 0x9a, 0x3a, 3, 3 << 2 | 1 << 1 | 1],
        // A file with attributes: cookie 2 up, name, FID 2 up.
        &[1 << 6, 2, 1, b'a', 4],
        // Nothing differs; version 2 up; made as the directory, changed 100 us later; 5000 bytes.
        &[0, 4, 0, 0xc0, 0x9a, 0x0c, 0x88, 0x27],
        // A directory: two bytes of cookie, 0x101 up; FID 1 up.
        &[1 | 1 << 3 | 1 << 6, 0x01, 0x01, 1, b'b', 2],
        // It has a cover of its own; version 2 down; 0 bytes.
        &[1 << 5, 3, 0, 0xc0, 0x9a, 0x0c, 0],
        // A lock: its number from zero, the same FID, mode, bits, version.
        &[1, 18, 0, 4, 3, 5],
        // A name alone, which the lease does not cover; FID 2 down.
        &[1 << 7, 1, 1, b'c', 3],
    ]
    .concat();
    let bytes = encode(&names);
    assert_eq!(bytes, expected);
    assert_eq!(decode(&bytes), Ok(names));
}

#[test]
fn entries_of_an_archive_take_few_bytes_beside_their_names() {
    let mut random = 1u64;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % below
    };
    let entries = (0..1000u64).map(|n| {
        let mut attr = file(4_000 + 2 * next(1000));
        attr.btime = at(2_000, next(100_000_000) as u32);
        attr.atime = attr.btime;
        attr.ctime = at(2_000, attr.btime.nanos + next(500_000) as u32);
        attr.mtime_set = attr.ctime;
        attr.size = next(60_000);
        attr.blocks = attr.size.div_ceil(4096) * 8;
        entry((n << 53) + next(1 << 50), "name", Some(attr))
    });
    let page = page(entries.collect());
    let bytes = encode(&page);
    assert!(bytes.len() < 1000 * (24 + 5), "{} bytes", bytes.len());
    assert_eq!(decode(&bytes), Ok(page));
}

#[test]
fn more_entries_than_there_can_be_are_refused_before_anything_is_made() {
    let bytes = encode(&page(Vec::new()));
    // What counts them is last.
    for count in [1u64, 8193, 1 << 40, u64::MAX >> 2] {
        let mut packed = bytes[2..bytes.len() - 1].to_vec();
        put(&mut packed, count << 2);
        let refused = Page::unpacked(Lease::None, &packed);
        assert_eq!(
            refused,
            Err(Malformed("a page of more entries than there can be"))
        );
    }
}

#[test]
fn what_is_cut_short_or_goes_on_is_no_page() {
    let whole = page(vec![entry(2, "a", Some(file(9))), entry(9, "b", None)]);
    let bytes = whole.packed();
    assert_eq!(Page::unpacked(Lease::None, &bytes).as_ref(), Ok(&whole));
    for length in 0..bytes.len() {
        assert!(Page::unpacked(Lease::None, &bytes[..length]).is_err());
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(Page::unpacked(Lease::None, &longer).is_err());
}

fn any_time() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        Just(at(2_000, 0)),
        (-3i64..3, 0u32..1_000_000_000).prop_map(|(secs, nanos)| at(secs, nanos)),
        (any::<i64>(), any::<u32>()).prop_map(|(secs, nanos)| at(secs, nanos)),
    ]
}

fn any_kind() -> impl Strategy<Value = FileKind> {
    (0u8..7).prop_map(|number| prior::kind(number).expect("there are seven"))
}

fn any_layout() -> impl Strategy<Value = Layout> {
    let stripes = proptest::collection::vec(any::<u16>().prop_map(TargetIndex), 0..6);
    let several = (any::<u32>(), stripes).prop_map(|(generation, osts)| Layout {
        generation,
        stripes: Stripes::new(&osts),
        ..Layout::none()
    });
    prop_oneof![
        Just(Layout::none()),
        Just(Layout::single(TargetIndex(0))),
        several
    ]
}

fn any_attr() -> impl Strategy<Value = Attr> {
    let times = (any_time(), any_time(), any_time(), any_time(), any_time());
    let few = || prop_oneof![Just(0u32), Just(1), any::<u32>()];
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<bool>());
    let owner = (few(), few(), few(), few(), any::<u16>());
    let rest = (any_kind(), any_layout(), any::<bool>(), any::<bool>());
    (times, numbers, owner, rest).prop_map(|(times, numbers, owner, rest)| Attr {
        kind: rest.0,
        mode: owner.4,
        uid: owner.0,
        gid: owner.1,
        nlink: owner.2,
        rdev: owner.3,
        has_xattrs: rest.2,
        size_state: [SizeState::Strict, SizeState::Ask][usize::from(rest.3)],
        layout: rest.1,
        atime: times.0,
        mtime: times.1,
        mtime_set: if numbers.3 { times.3 } else { times.2 },
        ctime: times.3,
        btime: times.4,
        size: numbers.0 >> 20,
        blocks: if numbers.3 {
            (numbers.0 >> 20).div_ceil(4096) * 8
        } else {
            numbers.1
        },
        version: numbers.2,
    })
}

fn any_cover() -> impl Strategy<Value = Cover> {
    let ids = (any::<u64>(), any::<u64>(), any::<u64>());
    let own = (ids, any::<u8>(), any::<u32>()).prop_map(|(ids, mode, bits)| {
        Cover::Own(Grant {
            handle: LockHandle(ids.0),
            fid: Fid(ids.1),
            mode,
            bits,
            version: ids.2,
        })
    });
    prop_oneof![Just(Cover::None), Just(Cover::Parent), own]
}

fn any_entry() -> impl Strategy<Value = DirEntry> {
    let node = (any_attr(), any_cover(), proptest::option::of(any::<u64>()));
    let name = "[a-z]{1,40}".prop_map(|name| Name::new(name).expect("a name"));
    let bools = (any::<bool>(), any::<bool>());
    let ids = (any::<u64>(), any::<u64>(), any_kind());
    let entry = (ids, name, bools, proptest::option::of(node));
    entry.prop_map(|(ids, name, (same, is_outside), node)| DirEntry {
        cookie: ids.0,
        name,
        fid: Fid(ids.1),
        kind: match &node {
            Some((attr, ..)) if same => attr.kind,
            _ => ids.2,
        },
        node: node.map(|(attr, cover, fid)| Node {
            fid: Fid(fid.unwrap_or(ids.1)),
            attr,
            cover,
        }),
        is_outside,
    })
}

proptest! {
    #[test]
    fn any_page_comes_back_as_it_was(
        entries in proptest::collection::vec(any_entry(), 0..12),
        attr in any_attr(),
        ids in (any::<u64>(), any::<u64>()),
        bools in (any::<bool>(), any::<bool>()),
    ) {
        let dir = DirState { fid: Fid(ids.0), attr, version: ids.1 };
        let (lease, (end, covers_list)) = (Lease::None, bools);
        let page = Page { lease, dir, entries, end, covers_list };
        prop_assert_eq!(decode(&encode(&page)), Ok(page));
    }

    #[test]
    fn hostile_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Page::unpacked(Lease::None, &bytes);
    }

    #[test]
    fn a_page_with_a_byte_changed_is_refused_or_read(
        entries in proptest::collection::vec(any_entry(), 1..5),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = page(entries).packed();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        // What is read can be written.
        if let Ok(read) = Page::unpacked(Lease::None, &bytes) {
            prop_assert_eq!(Page::unpacked(Lease::None, &read.packed()), Ok(read));
        }
    }
}
