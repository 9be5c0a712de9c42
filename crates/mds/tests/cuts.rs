//! Power cuts at every write of an MDT. After each the store is whole, holds all that was promised
//! and nothing that nobody did, and clients that come back end where they would have ended.

mod power;
mod support;

use base::{Fid, LockHandle, Timestamp};
use power::script::Step;
use power::{Count, Scenario};
use storage::{Disk, FaultyDisk, Kv, KvOptions, MemDisk, StorageError};
use support::{READ, ROOT_USER, WRITE, create_open_request, make_request, name, rename_request};
use wire::FileKind;
use wire::mdt::{OpenIntent, RenameMode, Request, SetAttr, SizeUpdate, XattrMode};

const ROOT: Fid = Fid::ROOT;

/// A FID of the sequence that the preparation has granted to a client.
fn fid(client: u64, number: u32) -> Fid {
    Fid::new(Fid::SEQUENCE_FIRST + client - 1, number)
}

fn touch(fid: Fid, dir: Fid, text: &str) -> Request {
    make_request(fid, dir, text, FileKind::Regular)
}

fn mkdir(fid: Fid, dir: Fid, text: &str) -> Request {
    make_request(fid, dir, text, FileKind::Directory)
}

fn remove(dir: Fid, text: &str, directory: bool) -> Request {
    Request::Unlink {
        dir,
        name: name(text),
        directory,
        caller: ROOT_USER,
    }
}

fn rename(from: (Fid, &str), to: (Fid, &str), mode: RenameMode) -> Request {
    rename_request(from, to, mode, ROOT_USER)
}

fn link(fid: Fid, dir: Fid, text: &str) -> Request {
    let name = name(text);
    Request::Link { fid, dir, name }
}

fn open(fid: Fid, access: wire::mdt::Access) -> Request {
    Request::Open {
        fid,
        dir: Fid::NONE,
        access,
        intent: OpenIntent::First,
    }
}

fn set_attr(fid: Fid, change: SetAttr) -> Request {
    Request::SetAttr {
        fid,
        dir: Fid::NONE,
        change,
        caller: ROOT_USER,
        under: LockHandle(0),
    }
}

fn chmod(fid: Fid, mode: u16) -> Request {
    let mode = Some(mode);
    set_attr(
        fid,
        SetAttr {
            mode,
            ..SetAttr::default()
        },
    )
}

/// What a writer tells whose OSTs have all of it.
fn written(size: u64) -> SetAttr {
    let update = SizeUpdate {
        size,
        blocks: size.div_ceil(512),
        mtime: Timestamp {
            secs: 20_000,
            nanos: 5,
        },
        committed: true,
    };
    SetAttr {
        size: Some(update),
        ..SetAttr::default()
    }
}

fn set_xattr(fid: Fid, text: &str, value: &[u8]) -> Request {
    Request::SetXattr {
        fid,
        dir: Fid::NONE,
        name: text.as_bytes().to_vec(),
        value: value.to_vec(),
        mode: XattrMode::Set,
    }
}

fn one(client: u64, request: Request) -> Step {
    Step::Frame(client, vec![request])
}

fn lookup(dir: Fid, text: &str) -> Request {
    let name = name(text);
    Request::Lookup { dir, name }
}

/// `/d`, `/e`, `/d/sub`, and files `/d/f`, `/d/g` of client 1.
fn tree() -> Vec<Step> {
    vec![
        one(1, mkdir(fid(1, 1), ROOT, "d")),
        one(1, mkdir(fid(1, 2), ROOT, "e")),
        one(1, mkdir(fid(1, 3), fid(1, 1), "sub")),
        one(1, touch(fid(1, 4), fid(1, 1), "f")),
        one(1, touch(fid(1, 5), fid(1, 1), "g")),
    ]
}

const D: u32 = 1;
const E: u32 = 2;
const SUB: u32 = 3;
const F: u32 = 4;
const G: u32 = 5;

fn run(name: &'static str, script: Vec<Step>) -> Count {
    run_after(name, Vec::new(), script)
}

fn run_after(name: &'static str, more: Vec<Step>, script: Vec<Step>) -> Count {
    let scenario = Scenario {
        name,
        before: [tree(), more].concat(),
        script,
        goes_on: true,
    };
    let count = scenario.cut_everywhere();
    println!("{name}: {count:?}");
    count
}

#[test]
fn files_and_directories_come_to_be() {
    let (d, new) = (fid(1, D), fid(1, 20));
    run(
        "create",
        vec![
            one(1, touch(new, d, "a")),
            Step::Commit,
            one(1, touch(fid(1, 21), ROOT, "b")),
            one(1, touch(fid(1, 22), d, "c")),
            Step::Sync(1),
        ],
    );
    run(
        "create in a new directory",
        vec![
            one(1, mkdir(new, ROOT, "new")),
            one(1, touch(fid(1, 21), new, "a")),
            Step::Commit,
            one(1, touch(fid(1, 22), new, "b")),
            one(1, mkdir(fid(1, 23), new, "sub")),
            Step::Commit,
        ],
    );
    run(
        "symlink and device",
        vec![
            one(1, make_request(new, d, "s", FileKind::Symlink)),
            one(1, make_request(fid(1, 21), d, "p", FileKind::Fifo)),
            Step::Sync(1),
            one(1, remove(d, "s", false)),
            Step::Commit,
        ],
    );
}

#[test]
fn a_directory_comes_and_goes() {
    let (d, new) = (fid(1, D), fid(1, 20));
    run(
        "mkdir and rmdir",
        vec![
            one(1, mkdir(new, d, "x")),
            one(1, mkdir(fid(1, 21), new, "y")),
            Step::Commit,
            one(1, remove(new, "y", true)),
            one(1, remove(d, "x", true)),
            Step::Sync(1),
        ],
    );
}

#[test]
fn names_move() {
    let (d, e, sub) = (fid(1, D), fid(1, E), fid(1, SUB));
    let mode = RenameMode::Replace;
    run(
        "rename",
        vec![
            one(1, rename((d, "f"), (d, "h"), mode)),
            Step::Commit,
            one(1, rename((d, "h"), (e, "f"), mode)),
            one(1, rename((e, "f"), (ROOT, "i"), RenameMode::NoReplace)),
            Step::Sync(1),
        ],
    );
    run(
        "rename over a file",
        vec![
            one(1, rename((d, "f"), (d, "g"), mode)),
            Step::Commit,
            one(1, touch(fid(1, 20), e, "t")),
            one(1, rename((d, "g"), (e, "t"), mode)),
            Step::Sync(1),
        ],
    );
    run(
        "rename of directories",
        vec![
            one(1, rename((d, "sub"), (e, "sub"), mode)),
            Step::Commit,
            one(1, touch(fid(1, 20), sub, "in")),
            one(1, rename((ROOT, "e"), (d, "e"), mode)),
            one(1, mkdir(fid(1, 21), d, "sub2")),
            Step::Commit,
            one(1, rename((d, "f"), (d, "sub2"), RenameMode::Exchange)),
            Step::Commit,
        ],
    );
}

#[test]
fn a_file_has_several_names() {
    let (d, e, f) = (fid(1, D), fid(1, E), fid(1, F));
    run(
        "link and unlink",
        vec![
            one(1, link(f, e, "l")),
            one(1, link(f, ROOT, "m")),
            Step::Commit,
            one(1, remove(d, "f", false)),
            Step::Sync(1),
            one(1, remove(e, "l", false)),
            one(1, remove(ROOT, "m", false)),
            Step::Commit,
        ],
    );
}

#[test]
fn an_open_file_loses_its_name() {
    let d = fid(1, D);
    let create = create_open_request(fid(1, 20), d, "o", WRITE);
    run(
        "an orphan",
        vec![
            one(1, create.clone()),
            Step::Commit,
            one(1, remove(d, "o", false)),
            one(1, open(fid(1, G), READ)),
            Step::Commit,
            Step::Close(1, fid(1, 20), SetAttr::default()),
            Step::Commit,
            one(1, remove(d, "g", false)),
            Step::Close(1, fid(1, G), SetAttr::default()),
            Step::Sync(1),
        ],
    );
    // It is there before, and has bytes to be removed; another one goes by a rename.
    let written_before = vec![one(1, create), Step::Close(1, fid(1, 20), written(10))];
    run_after(
        "an orphan by a rename",
        written_before,
        vec![
            Step::Durable(1, vec![open(fid(1, 20), WRITE)]),
            one(1, rename((d, "f"), (d, "o"), RenameMode::Replace)),
            Step::Commit,
            Step::Close(1, fid(1, 20), written(30)),
            Step::Commit,
            Step::Commit,
        ],
    );
}

#[test]
fn attributes_change() {
    let (d, f) = (fid(1, D), fid(1, F));
    run(
        "setattr",
        vec![
            one(1, chmod(f, 0o600)),
            Step::Commit,
            one(1, chmod(d, 0o700)),
            one(1, chmod(f, 0o640)),
            Step::Sync(1),
        ],
    );
    run(
        "truncate by path",
        vec![
            Step::Durable(1, vec![open(f, WRITE)]),
            Step::Close(1, f, written(4096)),
            Step::Commit,
            one(1, chmod(f, 0o600)),
            Step::Sync(1),
        ],
    );
    run(
        "xattrs",
        vec![
            one(1, set_xattr(f, "user.a", b"1")),
            one(1, set_xattr(d, "user.b", &[7; 3000])),
            Step::Commit,
            one(1, set_xattr(f, "user.a", b"2")),
            one(
                1,
                Request::RemoveXattr {
                    fid: d,
                    dir: Fid::NONE,
                    name: b"user.b".to_vec(),
                },
            ),
            Step::Sync(1),
        ],
    );
}

#[test]
fn sizes_become_exact() {
    let d = fid(1, D);
    let create = |number, text| create_open_request(fid(1, number), d, text, WRITE);
    run(
        "close with sizes",
        vec![
            one(1, create(20, "a")),
            one(1, create(21, "b")),
            Step::Commit,
            Step::Close(1, fid(1, 20), written(100)),
            Step::Commit,
            Step::Close(1, fid(1, 21), written(5000)),
            Step::Durable(1, vec![open(fid(1, 20), WRITE)]),
            Step::Close(1, fid(1, 20), written(200)),
            Step::Sync(1),
        ],
    );
}

#[test]
fn fifty_files_in_one_frame() {
    let d = fid(1, D);
    let create = |n: u32| touch(fid(1, 100 + n), d, &format!("n{n}"));
    run(
        "a batch",
        vec![
            Step::Frame(1, (0..50).map(create).collect()),
            Step::Commit,
            Step::Frame(
                1,
                (0..20)
                    .map(|n| remove(d, &format!("n{n}"), false))
                    .collect(),
            ),
            Step::Sync(1),
        ],
    );
}

#[test]
fn requests_of_a_frame_build_on_each_other() {
    let (e, f, new) = (fid(1, E), fid(1, F), fid(1, 20));
    run(
        "frames",
        vec![
            Step::Frame(
                1,
                vec![
                    mkdir(new, ROOT, "new"),
                    touch(fid(1, 21), new, "a"),
                    link(f, new, "b"),
                    set_xattr(f, "user.a", b"1"),
                ],
            ),
            Step::Frame(
                1,
                vec![
                    rename((new, "a"), (e, "a"), RenameMode::Replace),
                    remove(new, "b", false),
                    remove(ROOT, "new", true),
                ],
            ),
            Step::Commit,
        ],
    );
}

#[test]
fn sequences_are_granted_once() {
    let granted = Fid::SEQUENCE_FIRST + 2;
    run(
        "grants",
        vec![
            one(1, touch(fid(1, 20), ROOT, "a")),
            Step::Durable(1, vec![Request::AllocSequences]),
            one(1, touch(Fid::new(granted, 1), ROOT, "b")),
            Step::Durable(2, vec![Request::AllocSequences]),
            one(2, touch(Fid::new(granted + 1, 1), ROOT, "c")),
            Step::Commit,
        ],
    );
}

#[test]
fn what_another_one_saw_stays() {
    let (d, e, f) = (fid(1, D), fid(1, E), fid(1, F));
    run(
        "two clients",
        vec![
            one(1, touch(fid(1, 20), d, "x")),
            one(2, touch(fid(2, 20), e, "y")),
            Step::Look(2, lookup(d, "x")),
            one(2, chmod(f, 0o604)),
            Step::Look(
                1,
                Request::GetAttr {
                    fid: f,
                    dir: Fid::NONE,
                },
            ),
            one(1, rename((e, "y"), (d, "z"), RenameMode::Replace)),
            Step::Look(2, lookup(d, "z")),
            one(2, remove(d, "z", false)),
            one(1, touch(fid(1, 21), d, "w")),
            Step::Commit,
        ],
    );
}

#[test]
fn a_client_is_evicted_wholly_or_not_at_all() {
    let d = fid(1, D);
    let before = vec![
        one(2, create_open_request(fid(2, 20), d, "theirs", WRITE)),
        one(2, remove(d, "theirs", false)),
    ];
    let scenario = Scenario {
        name: "eviction",
        before: [tree(), before].concat(),
        script: vec![
            one(1, touch(fid(1, 20), d, "a")),
            one(2, create_open_request(fid(2, 21), d, "kept", WRITE)),
            Step::Evict(2),
            one(1, touch(fid(1, 21), d, "b")),
            Step::Commit,
        ],
        goes_on: false,
    };
    println!("eviction: {:?}", scenario.cut_everywhere());
}

#[test]
fn who_does_not_come_back_is_given_up_wholly_or_not_at_all() {
    let d = fid(1, D);
    let scenario = Scenario {
        name: "giving up",
        before: tree(),
        script: vec![
            one(1, touch(fid(1, 20), d, "a")),
            one(2, touch(fid(2, 20), ROOT, "b")),
            one(2, chmod(fid(2, 20), 0o600)),
            one(1, chmod(fid(1, 20), 0o600)),
        ],
        goes_on: false,
    };
    println!("giving up: {:?}", scenario.cut_giving_up());
}

fn format(disk: impl Disk + Clone + 'static) -> storage::Result<()> {
    Kv::create(disk.clone())?;
    let kv = Kv::open(disk, &mds::tables(), KvOptions::new("MDT0").manual())?;
    mds::format(&kv, power::HASH_KEY, support::FORMATTED)
}

#[test]
fn a_target_is_formatted_wholly_or_refused() {
    let whole = FaultyDisk::new(MemDisk::new());
    format(whole.clone()).expect("memory");
    let (mut refused, mut opened) = (0, 0);
    for cut in 0..=whole.changes() {
        for survivors in power::variants(cut) {
            let what = format!("cut {cut}, {survivors:?}");
            let disk = MemDisk::new();
            let power = FaultyDisk::new(disk.clone());
            power.cut_after(cut);
            let promised = format(power.clone()).is_ok();
            power.power_cut(survivors).expect("memory");
            match power::start(disk.clone()) {
                Ok(machine) => {
                    power::check(&machine, &what);
                    assert!(power::picture::tree(machine.mds.store()).is_empty());
                    opened += 1;
                }
                Err(error) => {
                    assert!(!promised, "{what}: {error}");
                    let is_clear = matches!(
                        error,
                        StorageError::Damaged { .. } | StorageError::Refused { .. }
                    );
                    assert!(is_clear, "{what}: {error}");
                    refused += 1;
                }
            }
            format(disk.clone()).unwrap_or_else(|error| panic!("{what}, anew: {error}"));
            power::check(&power::start(disk).expect("formatted anew"), &what);
        }
    }
    assert!(
        refused > 20 && opened > 5,
        "{refused} refused, {opened} opened"
    );
}
