//! Power cuts at every write of an MDT that does sets of changes: each is there as a whole, or not at all.

mod power;
mod support;

use base::{Fid, LockHandle, TargetIndex};
use mds::opens::Opens;
use power::Scenario;
use power::script::Step;
use support::make_request;
use support::sets::*;
use wire::FileKind;
use wire::mdt::{OpenHandle, Request};
use wire::update::{Change, LeasedDir};

/// A FID of the sequence that the preparation has granted to client 1.
fn fid(number: u32) -> Fid {
    Fid::new(Fid::SEQUENCE_FIRST, number)
}

fn set(dirs: &[Fid], changes: Vec<Change>) -> Request {
    let leased = dirs.iter().map(|dir| LeasedDir {
        dir: *dir,
        lease: LockHandle(0),
        changed: NOW,
    });
    let dirs = leased.collect();
    Request::Update { dirs, changes }
}

fn frame(sets: Vec<Request>) -> Step {
    Step::Frame(1, sets)
}

fn file(number: u32) -> wire::update::MadeFile {
    made(fid(number), FileKind::Regular)
}

/// `/d` with `f` and `g`, `/e` with `h`.
fn tree() -> Vec<Step> {
    let (d, e) = (fid(1), fid(2));
    let touch = |number, dir, text| make_request(fid(number), dir, text, FileKind::Regular);
    let mkdir = |number, text| make_request(fid(number), Fid::ROOT, text, FileKind::Directory);
    let made = [
        mkdir(1, "d"),
        mkdir(2, "e"),
        touch(3, d, "f"),
        touch(4, d, "g"),
        touch(5, e, "h"),
    ];
    made.map(|request| frame(vec![request])).to_vec()
}

fn run(name: &'static str, script: Vec<Step>) {
    let scenario = Scenario {
        name,
        before: tree(),
        script,
        goes_on: true,
    };
    println!("{name}: {:?}", scenario.cut_everywhere());
}

#[test]
fn new_files_come_as_a_set_or_not_at_all() {
    let (d, sub) = (fid(1), fid(20));
    let all = vec![
        make(0, "sub", made(sub, FileKind::Directory)),
        make(0, "a", file(21)),
        link(0, "b", fid(21)),
        make(0, "s", made(fid(22), FileKind::Symlink)),
        set_attr(fid(21), attr(0o600)),
        set_xattr(fid(21), "user.a", b"1"),
    ];
    let below = vec![make(0, "x", file(23)), make(0, "y", file(24))];
    run(
        "a tree in one frame",
        vec![
            frame(vec![set(&[d], all), set(&[sub], below)]),
            Step::Commit,
            frame(vec![set(&[sub], vec![make(0, "z", file(25))])]),
            Step::Sync(1),
        ],
    );
}

#[test]
fn names_swap_and_move_as_a_set_or_not_at_all() {
    let (d, e, f, g, h) = (fid(1), fid(2), fid(3), fid(4), fid(5));
    run(
        "swap and move",
        vec![
            frame(vec![set(
                &[d, e],
                vec![replace(0, "f", f, g), replace(0, "g", g, f)],
            )]),
            Step::Commit,
            frame(vec![set(
                &[d, e],
                vec![replace(0, "f", g, h), replace(1, "h", h, g)],
            )]),
            frame(vec![set(&[d, e], vec![link(1, "k", f), remove(0, "g", f)])]),
            Step::Sync(1),
        ],
    );
}

#[test]
fn files_go_as_a_set_or_not_at_all() {
    let (d, e, f, g, h) = (fid(1), fid(2), fid(3), fid(4), fid(5));
    let gone = Change::Gone {
        fid: fid(30),
        ost: TargetIndex(0),
        open_epoch: Opens::new(1).last_epoch(),
    };
    run(
        "removal",
        vec![
            frame(vec![set(
                &[d],
                vec![
                    make(0, "w", written(fid(31), 0, None)),
                    sized(fid(31), 10, OpenHandle(0)),
                    gone,
                ],
            )]),
            Step::Commit,
            frame(vec![set(
                &[Fid::ROOT, e],
                vec![remove(1, "h", h), remove(0, "e", e)],
            )]),
            frame(vec![set(
                &[d],
                vec![
                    remove(0, "f", f),
                    remove(0, "g", g),
                    remove(0, "w", fid(31)),
                ],
            )]),
            Step::Sync(1),
        ],
    );
}
