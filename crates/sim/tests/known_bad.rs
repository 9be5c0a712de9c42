//! Histories that no file system could have shown: the check must refuse each of them.

use std::time::Duration;

use base::{Fid, FsError};
use sim::check::names::{check, without_undone};
use sim::check::order::Verdict;
use sim::check::{attributes, bytes, without_doubtful};
use sim::excuses::Excuse;
use sim::history::{Call, Entry, Seen, Slot};

const A: Slot = Slot { dir: 0, name: 0 };
const B: Slot = Slot { dir: 0, name: 1 };
const C: Slot = Slot { dir: 1, name: 0 };

fn f(number: u64) -> Fid {
    Fid(number)
}

fn file(number: u64) -> Seen {
    Seen::File(f(number))
}

fn names(found: &[(u8, u64)]) -> Seen {
    Seen::Names(found.iter().map(|(name, fid)| (*name, f(*fid))).collect())
}

fn no(error: FsError) -> Seen {
    Seen::Failed(error)
}

/// A call of `caller` from `start` to `end`.
fn at(caller: u32, start: u64, end: u64, call: Call, seen: Seen) -> Entry {
    let (start, end) = (Duration::from_micros(start), Duration::from_micros(end));
    Entry {
        caller,
        start,
        end,
        call,
        seen,
    }
}

/// Calls one after the other, of two callers in turn.
fn after_each_other(calls: Vec<(Call, Seen)>) -> Vec<Entry> {
    let timed = (0u64..).zip(calls);
    timed
        .map(|(number, (call, seen))| {
            at(number as u32 % 2, number * 10, number * 10 + 5, call, seen)
        })
        .collect()
}

fn one_by_one() -> Vec<(&'static str, Vec<(Call, Seen)>)> {
    use Call::{Create, Link, List, Lookup, Mkdir, Rename, Rmdir, Unlink};
    use FsError::{Exists, IsDirectory, NotDirectory, NotFound};
    let made = || (Create(A), file(1));
    vec![
        ("found, never made", vec![(Lookup(A), file(1))]),
        ("made, not found", vec![made(), (Lookup(A), no(NotFound))]),
        ("opened, never made", vec![(Call::Open(A, true), file(1))]),
        (
            "made, not opened",
            vec![made(), (Call::Open(A, false), no(NotFound))],
        ),
        (
            "made, opened another",
            vec![made(), (Call::Open(A, false), file(2))],
        ),
        ("another file found", vec![made(), (Lookup(A), file(2))]),
        ("made twice", vec![made(), (Create(A), file(2))]),
        ("free, yet said to exist", vec![(Create(A), no(Exists))]),
        ("one id for two files", vec![made(), (Create(B), file(1))]),
        ("a missing name removed", vec![(Unlink(A), Seen::Done)]),
        (
            "removed twice",
            vec![made(), (Unlink(A), Seen::Done), (Unlink(A), Seen::Done)],
        ),
        (
            "removed, still found",
            vec![made(), (Unlink(A), Seen::Done), (Lookup(A), file(1))],
        ),
        (
            "removed, still listed",
            vec![made(), (Unlink(A), Seen::Done), (List(0), names(&[(0, 1)]))],
        ),
        ("there, not listed", vec![made(), (List(0), names(&[]))]),
        (
            "listed as another",
            vec![made(), (List(0), names(&[(0, 2)]))],
        ),
        (
            "listed where it is not",
            vec![made(), (List(1), names(&[(0, 1)]))],
        ),
        (
            "half a rename: both",
            vec![
                made(),
                (Rename(A, B), Seen::Done),
                (List(0), names(&[(0, 1), (1, 1)])),
            ],
        ),
        (
            "half a rename: none",
            vec![
                made(),
                (Rename(A, C), Seen::Done),
                (Lookup(C), no(NotFound)),
            ],
        ),
        (
            "the old name after a rename",
            vec![made(), (Rename(A, B), Seen::Done), (Lookup(A), file(1))],
        ),
        (
            "what was replaced",
            vec![
                made(),
                (Create(B), file(2)),
                (Rename(A, B), Seen::Done),
                (Lookup(B), file(2)),
            ],
        ),
        ("a rename of nothing", vec![(Rename(A, B), Seen::Done)]),
        (
            "a link to what is gone",
            vec![made(), (Unlink(A), Seen::Done), (Link(f(1), B), Seen::Done)],
        ),
        (
            "a link that leads elsewhere",
            vec![made(), (Link(f(1), B), Seen::Done), (Lookup(B), file(2))],
        ),
        (
            "a second name went with the first",
            vec![
                made(),
                (Link(f(1), B), Seen::Done),
                (Unlink(A), Seen::Done),
                (Lookup(B), no(NotFound)),
            ],
        ),
        (
            "a directory removed as a file",
            vec![(Mkdir(A), file(1)), (Unlink(A), Seen::Done)],
        ),
        (
            "a file removed as a directory",
            vec![made(), (Rmdir(A), Seen::Done)],
        ),
        (
            "a file called a directory",
            vec![made(), (Unlink(A), no(IsDirectory))],
        ),
        (
            "a directory replaced by a file",
            vec![(Mkdir(B), file(2)), made(), (Rename(A, B), Seen::Done)],
        ),
        (
            "a file replaced by a directory",
            vec![(Mkdir(B), file(2)), made(), (Rename(B, A), no(NotFound))],
        ),
        (
            "refused for the wrong reason",
            vec![made(), (Rmdir(A), no(NotFound))],
        ),
        (
            "a directory called a file",
            vec![(Mkdir(A), file(1)), (Rmdir(A), no(NotDirectory))],
        ),
    ]
}

/// Of names that are moved only where nothing is, exchanged, or of symbolic links.
fn moved_and_linked() -> Vec<(&'static str, Vec<(Call, Seen)>)> {
    use Call::{Create, Exchange, Lookup, Mkdir, ReadLink, RenameNew, Rmdir, Symlink, Unlink};
    use FsError::{Exists, IsDirectory, NotDirectory, NotFound};
    let made = || (Create(A), file(1));
    let both = || vec![made(), (Mkdir(B), file(2)), (Exchange(A, B), Seen::Done)];
    let with = |mut calls: Vec<(Call, Seen)>, last| {
        calls.push(last);
        calls
    };
    let link = || (Symlink(A, 7), file(1));
    let reads = |to| (ReadLink(A), Seen::Link(f(1), to));
    vec![
        (
            "replaced by what may not replace",
            vec![made(), (Create(B), file(2)), (RenameNew(A, B), Seen::Done)],
        ),
        (
            "said to be in the way, though free",
            vec![made(), (RenameNew(A, B), no(Exists))],
        ),
        (
            "in the way of nothing",
            vec![made(), (RenameNew(B, A), no(Exists))],
        ),
        (
            "the old name after a move to a free one",
            vec![made(), (RenameNew(A, B), Seen::Done), (Lookup(A), file(1))],
        ),
        (
            "exchanged with nothing",
            vec![made(), (Exchange(A, B), Seen::Done)],
        ),
        (
            "not exchanged, though both are there",
            vec![made(), (Create(B), file(2)), (Exchange(A, B), no(NotFound))],
        ),
        (
            "half an exchange: the first",
            with(both(), (Lookup(A), file(1))),
        ),
        (
            "half an exchange: the second",
            with(both(), (Lookup(B), file(2))),
        ),
        (
            "a kind that stayed behind",
            with(both(), (Unlink(A), Seen::Done)),
        ),
        (
            "another kind that stayed behind",
            with(both(), (Rmdir(B), Seen::Done)),
        ),
        ("a link to elsewhere", vec![link(), reads(8)]),
        (
            "a link read as a file",
            vec![link(), (ReadLink(A), file(1))],
        ),
        ("a file read as a link", vec![made(), reads(7)]),
        (
            "a link that is gone",
            vec![link(), (Unlink(A), Seen::Done), reads(7)],
        ),
        (
            "a link that was made, not found",
            vec![link(), (ReadLink(A), no(NotFound))],
        ),
        (
            "a link where a name is",
            vec![made(), (Symlink(A, 7), file(2))],
        ),
        (
            "a link removed as a directory",
            vec![link(), (Rmdir(A), Seen::Done)],
        ),
        (
            "a link called a directory",
            vec![link(), (Unlink(A), no(IsDirectory))],
        ),
        (
            "a link with another's name, to elsewhere",
            vec![
                link(),
                (Call::Link(f(1), B), Seen::Done),
                (ReadLink(B), Seen::Link(f(1), 8)),
            ],
        ),
        (
            "a directory replaced by a link",
            vec![
                link(),
                (Mkdir(B), file(2)),
                (Call::Rename(B, A), no(NotFound)),
            ],
        ),
        (
            "a directory's refusal of a link",
            vec![link(), (Call::Rename(A, B), no(NotDirectory))],
        ),
    ]
}

/// The same calls, with answers as they should be.
#[test]
fn what_can_be_is_not_refused() {
    use Call::{
        Create, Exchange, Lookup, Mkdir, ReadLink, Rename, RenameNew, Rmdir, Symlink, Unlink,
    };
    use FsError::{Exists, NotDirectory, NotFound};
    let calls = vec![
        (Create(A), file(1)),
        (RenameNew(A, A), no(Exists)),
        (RenameNew(B, A), no(NotFound)),
        (RenameNew(A, B), Seen::Done),
        (Exchange(A, B), no(NotFound)),
        (Mkdir(A), file(2)),
        (Exchange(B, A), Seen::Done),
        (Lookup(A), file(1)),
        (Rmdir(B), Seen::Done),
        (Symlink(C, 7), file(3)),
        (Exchange(C, A), Seen::Done),
        (ReadLink(A), Seen::Link(f(3), 7)),
        (ReadLink(C), file(1)),
        (Rename(A, C), Seen::Done),
        (ReadLink(A), no(NotFound)),
        (Call::Link(f(3), B), Seen::Done),
        (Exchange(B, C), Seen::Done),
        (Rmdir(B), no(NotDirectory)),
        (Unlink(B), Seen::Done),
        (ReadLink(C), Seen::Link(f(3), 7)),
    ];
    assert_eq!(check(&after_each_other(calls)), Verdict::Possible);
    // Who was not told may have been first, or last.
    let exchanged = at(0, 20, 30, Exchange(A, B), Seen::Unknown);
    let made = [
        at(1, 0, 5, Create(A), file(1)),
        at(1, 10, 15, Create(B), file(2)),
    ];
    let looked = |start, number| at(1, start, start + 5, Lookup(A), file(number));
    let with =
        |seen: Vec<Entry>| check(&[&made[..], std::slice::from_ref(&exchanged), &seen].concat());
    assert_eq!(with(vec![looked(40, 1), looked(50, 2)]), Verdict::Possible);
    let back = with(vec![looked(40, 2), looked(50, 1)]);
    assert!(matches!(back, Verdict::Impossible(_)));
}

#[test]
fn what_cannot_be_is_refused() {
    let histories = [one_by_one(), moved_and_linked()].concat();
    assert!(histories.len() >= 20);
    for (what, calls) in histories {
        let verdict = check(&after_each_other(calls));
        assert!(
            matches!(verdict, Verdict::Impossible(_)),
            "{what}: {verdict:?}"
        );
    }
}

#[test]
fn beside_each_other_much_is_possible_but_not_all() {
    // Two at once both make it, though one of them must have been refused.
    let twice = vec![
        at(0, 0, 10, Call::Create(A), file(1)),
        at(1, 5, 15, Call::Create(A), file(2)),
    ];
    assert!(matches!(check(&twice), Verdict::Impossible(_)));
    // Seen new, then old, by one who looked twice while it was made.
    let back = vec![
        at(0, 0, 100, Call::Create(A), file(1)),
        at(1, 10, 20, Call::Lookup(A), file(1)),
        at(2, 30, 40, Call::Lookup(A), Seen::Failed(FsError::NotFound)),
    ];
    assert!(matches!(check(&back), Verdict::Impossible(_)));
    let forth = vec![
        at(0, 0, 100, Call::Create(A), file(1)),
        at(1, 10, 20, Call::Lookup(A), Seen::Failed(FsError::NotFound)),
        at(2, 30, 40, Call::Lookup(A), file(1)),
    ];
    assert_eq!(check(&forth), Verdict::Possible);
    // Two renames that cross: each sees the other's half.
    let crossed = vec![
        at(0, 0, 5, Call::Create(A), file(1)),
        at(1, 10, 20, Call::Rename(A, B), Seen::Done),
        at(0, 10, 20, Call::Rename(A, C), Seen::Done),
    ];
    assert!(matches!(check(&crossed), Verdict::Impossible(_)));
}

#[test]
fn what_nobody_knows_may_have_been_or_not_but_not_both() {
    let unknown = at(0, 0, 5, Call::Create(A), Seen::Unknown);
    let seen = |start, seen| at(1, start, start + 5, Call::Lookup(A), seen);
    let missing = || Seen::Failed(FsError::NotFound);
    for history in [
        vec![unknown.clone(), seen(10, file(1))],
        vec![unknown.clone(), seen(10, missing())],
        vec![unknown.clone(), seen(10, missing()), seen(20, file(1))],
    ] {
        assert_eq!(check(&history), Verdict::Possible, "{history:?}");
    }
    for history in [
        vec![unknown.clone(), seen(10, file(1)), seen(20, missing())],
        vec![unknown.clone(), seen(10, file(1)), seen(20, file(2))],
    ] {
        assert!(
            matches!(check(&history), Verdict::Impossible(_)),
            "{history:?}"
        );
    }
}

/// Of changes that a power cut may have taken only the last can be missing, and none comes later.
#[test]
fn what_may_be_undone_is_the_last_of_a_client_and_comes_in_its_time_or_never() {
    let made = |start, slot, number| at(0, start, start + 5, Call::Create(slot), file(number));
    let looked = |start, slot, seen| at(1, start, start + 5, Call::Lookup(slot), seen);
    let missing = || Seen::Failed(FsError::NotFound);
    let undone = Excuse {
        client: Some(0),
        file: None,
        from: Duration::ZERO,
        until: Duration::from_micros(100),
    };
    let own = at(0, 45, 48, Call::Lookup(A), file(1));
    let verdict = |seen: Vec<Entry>| {
        let mut history = vec![made(0, A, 1), made(10, B, 2), own.clone()];
        history.extend(seen);
        check(&without_undone(&history, 1, &[undone]))
    };
    for seen in [
        vec![looked(50, A, file(1)), looked(60, B, file(2))],
        vec![looked(50, A, file(1)), looked(60, B, missing())],
        vec![looked(50, A, missing()), looked(60, B, missing())],
    ] {
        assert_eq!(verdict(seen.clone()), Verdict::Possible, "{seen:?}");
    }
    for seen in [
        vec![looked(50, A, missing()), looked(60, B, file(2))],
        vec![looked(50, A, file(1)), looked(60, A, missing())],
        vec![looked(50, A, missing()), looked(60, A, file(1))],
        vec![looked(50, A, file(3))],
    ] {
        let found = verdict(seen.clone());
        assert!(matches!(found, Verdict::Impossible(_)), "{seen:?}");
    }
}

#[test]
fn what_a_client_synced_is_not_undone() {
    let made = |start, slot, number| at(0, start, start + 5, Call::Create(slot), file(number));
    let synced = |start, seen| at(0, start, start + 5, Call::SyncDir(A.dir), seen);
    let lost = at(1, 50, 55, Call::Lookup(A), Seen::Failed(FsError::NotFound));
    let undone = Excuse {
        client: Some(0),
        file: None,
        from: Duration::ZERO,
        until: Duration::from_micros(100),
    };
    let verdict = |sync: Entry| {
        let history = vec![made(10, A, 1), sync, lost.clone()];
        check(&without_undone(&history, 1, &[undone]))
    };
    // Of another directory, or of a file: that makes all durable that the mount did before.
    let other = |caller, call| at(caller, 20, 25, call, Seen::Done);
    for sync in [
        synced(20, Seen::Done),
        other(0, Call::SyncDir(A.dir + 1)),
        other(0, Call::Append(0, 7)),
    ] {
        let verdict = verdict(sync.clone());
        assert!(matches!(verdict, Verdict::Impossible(_)), "{sync}");
    }
    // It was on its way when the sync began; the sync failed, or came after the loss; it was of another
    // client, or none.
    for sync in [
        synced(12, Seen::Done),
        synced(20, Seen::Unknown),
        synced(110, Seen::Done),
        other(2, Call::SyncDir(A.dir)),
        other(0, Call::Lookup(A)),
    ] {
        assert_eq!(verdict(sync.clone()), Verdict::Possible, "{sync}");
    }
}

#[test]
fn what_outlasted_a_loss_may_be_there_without_what_was_lost() {
    let made = |start, end, slot, number| at(0, start, end, Call::Create(slot), file(number));
    let looked = |start, slot, seen| at(1, start, start + 5, Call::Lookup(slot), seen);
    let undone = Excuse {
        client: Some(0),
        file: None,
        from: Duration::ZERO,
        until: Duration::from_micros(100),
    };
    let verdict = |end| {
        let missing = Seen::Failed(FsError::NotFound);
        let history = [
            made(10, 15, A, 1),
            made(45, end, B, 2),
            looked(110, A, missing),
            looked(130, B, file(2)),
        ];
        check(&without_undone(&history, 1, &[undone]))
    };
    assert_eq!(verdict(120), Verdict::Possible, "sent again");
    assert!(matches!(verdict(90), Verdict::Impossible(_)));
}

#[test]
fn what_one_loss_took_says_nothing_of_the_next() {
    let made = |start, slot, number| at(0, start, start + 5, Call::Create(slot), file(number));
    let looked = |start, slot, seen| at(1, start, start + 5, Call::Lookup(slot), seen);
    let missing = || Seen::Failed(FsError::NotFound);
    let until = |from, until| Excuse {
        client: Some(0),
        file: None,
        from: Duration::from_micros(from),
        until: Duration::from_micros(until),
    };
    let losses = [until(0, 20), until(30, 50)];
    // The first was lost by the first, the second not by the second.
    let history = [
        made(10, A, 1),
        looked(25, A, missing()),
        made(40, B, 2),
        looked(60, B, file(2)),
    ];
    let verdict = |losses: &[Excuse]| check(&without_undone(&history, 1, losses));
    assert_eq!(verdict(&losses), Verdict::Possible);
    let one = verdict(&[until(0, 50)]);
    assert!(matches!(one, Verdict::Impossible(_)), "{one:?}");
}

#[test]
fn bytes_that_nobody_could_read_are_refused() {
    use Call::{Append, Get, Punch, Put, Reserve, Size, Truncate, Zero};
    let put = |block, number| (Put(0, block, number), Seen::Done);
    let append = |number| (Append(0, number), Seen::Done);
    let cut = |blocks| (Truncate(0, blocks), Seen::Done);
    let get = |numbers: &[u64]| (Get(0), Seen::Blocks(numbers.to_vec()));
    let size = |blocks: u64| (Size(0), Seen::Bytes(64 * blocks));
    let reserve = |blocks| (Reserve(0, blocks), Seen::Done);
    let punch = |block| (Punch(0, block), Seen::Done);
    let zero = |block| (Zero(0, block), Seen::Done);
    for calls in [
        vec![get(&[5])],
        vec![put(0, 5), get(&[0])],
        vec![put(0, 5), get(&[])],
        vec![put(0, 5), put(0, 6), get(&[5])],
        vec![put(0, 5), get(&[5]), get(&[0])],
        vec![put(0, 5), get(&[u64::MAX])],
        vec![put(0, 5), put(0, 6), get(&[6]), get(&[5])],
        vec![put(1, 5), get(&[5])],
        vec![append(5), append(6), get(&[6, 5])],
        vec![append(5), append(6), get(&[6])],
        vec![append(5), get(&[5, 5])],
        vec![append(5), cut(0), get(&[5])],
        vec![append(5), append(6), cut(1), cut(2), get(&[5, 6])],
        vec![append(5), size(0)],
        vec![append(5), cut(3), size(1)],
        vec![size(1)],
        vec![reserve(2), size(1)],
        vec![append(5), reserve(1), get(&[0])],
        vec![put(2, 5), reserve(1), size(1)],
        vec![append(5), punch(0), get(&[5])],
        vec![append(5), punch(0), size(0)],
        vec![append(5), punch(1), size(2)],
        vec![append(5), zero(0), get(&[5])],
        vec![append(5), zero(1), get(&[5])],
    ] {
        let history = after_each_other(calls);
        let verdicts = bytes::check(&history);
        assert!(
            matches!(verdicts[..], [Verdict::Impossible(_)]),
            "{history:?}"
        );
    }
    let fine = vec![
        get(&[]),
        put(1, 5),
        get(&[0, 5]),
        append(6),
        size(3),
        cut(1),
        append(7),
        get(&[0, 7]),
        cut(3),
        get(&[0, 7, 0]),
        punch(1),
        punch(3),
        get(&[0, 0, 0]),
        reserve(2),
        zero(3),
        put(0, 8),
        get(&[8, 0, 0, 0]),
    ];
    let fine = after_each_other(fine);
    assert_eq!(bytes::check(&fine), [Verdict::Possible]);
    assert_eq!(bytes::twice(&fine), [""; 0]);
}

#[test]
fn bytes_that_were_never_in_an_open_file_are_refused() {
    let write = |fid, number| (Call::WriteOpen(f(fid), 0, number), Seen::Done);
    let read = |fid, blocks: &[u64]| (Call::ReadOpen(f(fid)), Seen::Blocks(blocks.to_vec()));
    let bad = [
        vec![read(1, &[7])],
        vec![write(1, 7), read(1, &[])],
        vec![write(1, 7), write(1, 8), read(1, &[7])],
        vec![write(1, 7), read(2, &[7])],
        vec![(Call::ReadOpen(f(1)), no(FsError::Stale))],
    ];
    for calls in bad {
        let history = after_each_other(calls);
        let verdicts = bytes::check(&history);
        let refused = |verdict: &Verdict| matches!(verdict, Verdict::Impossible(_));
        assert!(verdicts.iter().any(refused), "{history:?}");
    }
    let fine = after_each_other(vec![
        read(2, &[]),
        write(1, 7),
        write(2, 8),
        read(1, &[7]),
        read(2, &[8]),
    ]);
    assert_eq!(bytes::check(&fine), [Verdict::Possible, Verdict::Possible]);
}

#[test]
fn one_effect_seen_twice_is_told() {
    let append = at(0, 0, 100, Call::Append(0, 5), Seen::Unknown);
    let get = |start, blocks: &[u64]| {
        let seen = Seen::Blocks(blocks.to_vec());
        at(1, start, start + 5, Call::Get(0), seen)
    };
    let beside = vec![append.clone(), get(10, &[5, 5])];
    assert_eq!(bytes::twice(&beside).len(), 1);
    let later = vec![append.clone(), get(10, &[5]), get(20, &[7, 5])];
    assert_eq!(bytes::twice(&later).len(), 1);
    let once = vec![append, get(10, &[0, 5]), get(20, &[]), get(30, &[0, 5])];
    assert_eq!(bytes::twice(&once), [""; 0]);
}

#[test]
fn attributes_that_no_file_had_are_refused() {
    use Call::{Chmod, Chown, Contents, GetXattr, Mode, Owner, Remake, RemoveXattr, SetXattr};
    let given = |owner| (Chown(0, owner), Seen::Done);
    let owned = |owner| (Owner(0), Seen::Owner(owner));
    let number = |number| (SetXattr(0, number), Seen::Done);
    let has = |number| (GetXattr(0), Seen::Number(number));
    let gone = || (RemoveXattr(0), Seen::Done);
    let none = || (RemoveXattr(0), no(FsError::NoAttribute));
    let set = |mode| (Chmod(0, mode), Seen::Done);
    let seen = |mode| (Mode(0), Seen::Mode(mode));
    let made = |mode| (Remake(0, mode), Seen::Done);
    // A file is full of the mode that it was made with, and one.
    let read = |numbers: &[u64]| (Contents(0), Seen::Blocks(numbers.to_vec()));
    let bad = [
        vec![seen(0o700)],
        vec![set(0o700), seen(0o755)],
        vec![set(0o700), made(0o600), seen(0o700)],
        vec![set(0o700), set(0o600), seen(0o600), seen(0o700)],
        vec![made(0o600), seen(0o755)],
        vec![made(0o600), read(&[])],
        vec![made(0o600), made(0o400), read(&[0o601])],
        vec![made(0o600), set(0o400), read(&[0o401])],
        vec![read(&[0o756])],
        vec![(Chmod(1, 0o700), Seen::Done), seen(0o700)],
        vec![(Mode(0), no(FsError::NotFound))],
        vec![owned(7)],
        vec![given(7), owned(0)],
        vec![given(7), given(8), owned(8), owned(7)],
        vec![given(7), made(0o600), owned(7)],
        vec![(Chown(1, 7), Seen::Done), owned(7)],
        vec![given(7), seen(7)],
        vec![has(Some(5))],
        vec![number(5), has(None)],
        vec![number(5), number(6), has(Some(5))],
        vec![number(5), gone(), has(Some(5))],
        vec![number(5), made(0o600), has(Some(5))],
        vec![made(0o610), has(None)],
        vec![gone()],
        vec![number(5), gone(), gone()],
        vec![number(5), none()],
        vec![made(0o610), none()],
    ];
    for calls in bad {
        let history = after_each_other(calls);
        let verdicts = attributes::check(&history);
        let refused = |verdict: &Verdict| matches!(verdict, Verdict::Impossible(_));
        assert!(verdicts.iter().any(refused), "{history:?}");
    }
    let fine = after_each_other(vec![
        owned(0),
        none(),
        has(None),
        given(7),
        number(5),
        set(0o700),
        owned(7),
        has(Some(5)),
        seen(0o700),
        gone(),
        none(),
        made(0o610),
        owned(0o611),
        has(Some(0o611)),
        gone(),
        made(0o600),
        has(None),
    ]);
    assert_eq!(attributes::check(&fine), [Verdict::Possible]);
    // Of two that set it beside each other either was the last, and what failed may come later.
    let mut fine = vec![
        at(0, 0, 20, Chmod(0, 0o700), Seen::Done),
        at(1, 5, 15, Remake(0, 0o600), Seen::Done),
        at(2, 0, 9, Chmod(0, 0o444), Seen::Unknown),
        at(1, 30, 35, Mode(0), Seen::Mode(0o700)),
        at(0, 40, 45, Mode(0), Seen::Mode(0o444)),
    ];
    assert_eq!(attributes::check(&fine), [Verdict::Possible]);
    let [nothing, full] = [vec![], vec![0o601]].map(Seen::Blocks);
    fine.insert(0, at(3, 0, 4, Contents(0), nothing));
    fine.push(at(3, 50, 55, Contents(0), full));
    assert_eq!(attributes::check(&fine), [Verdict::Possible]);
    fine.push(at(1, 50, 55, Mode(0), Seen::Mode(0o600)));
    assert_ne!(attributes::check(&fine), [Verdict::Possible]);
}

/// Answers that show a change which later failed do not count while it was under way. After a failure for
/// damaged bytes they do not count while those are damaged, on other clients too.
#[test]
fn what_was_shown_of_a_change_that_failed_does_not_count() {
    let append = at(0, 10, 20, Call::Append(0, 7), Seen::Unknown);
    let beside = at(1, 15, 30, Call::Size(0), Seen::Bytes(64));
    let later = at(1, 40, 50, Call::Size(0), Seen::Bytes(64));
    let elsewhere = at(2, 15, 30, Call::Size(0), Seen::Bytes(0));
    let history = [append, beside, later, elsewhere];
    let left = |failures: &[Excuse]| {
        let left = without_doubtful(&history, 2, failures).into_iter();
        left.map(|entry| entry.start.as_micros())
            .collect::<Vec<_>>()
    };
    let damaged = |file| Excuse {
        client: None,
        file,
        from: Duration::ZERO,
        until: Duration::from_micros(60),
    };
    assert_eq!(left(&[]), [10, 40, 15]);
    assert_eq!(left(&[damaged(Some(0))]), [10]);
    assert_eq!(left(&[damaged(Some(1)), damaged(None)]), [10, 40, 15]);
}
