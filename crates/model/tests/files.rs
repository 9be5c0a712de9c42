//! What calls by path do not reach: removed directories, handles, sticky directories, ids.

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use base::{Fid, FsError, Name, Timestamp};
use model::Model;
use wire::FileKind;
use wire::mdt::{Caller, NewFile, RenameMode, SetAttr};

const ROOT: Caller = Caller { uid: 0, gid: 0 };
const ANN: Caller = Caller { uid: 1, gid: 1 };
const BOB: Caller = Caller { uid: 2, gid: 2 };

fn name(text: &str) -> Name {
    Name::try_from(text).unwrap()
}

fn make(model: &mut Model, dir: Fid, text: &str, kind: FileKind, caller: Caller) -> Fid {
    let fid = Fid::new(Fid::SEQUENCE_FIRST, model.files().count() as u32);
    let file = NewFile {
        fid,
        kind,
        mode: 0o755,
        rdev: 0,
        target: Vec::new(),
    };
    model.create(dir, &name(text), &file, caller).unwrap();
    fid
}

fn empty() -> Model {
    Model::new(Timestamp::default(), ROOT)
}

#[test]
fn nothing_is_made_in_a_removed_directory_that_is_open() {
    let mut model = empty();
    let dir = make(&mut model, Fid::ROOT, "d", FileKind::Directory, ROOT);
    let file = make(&mut model, Fid::ROOT, "f", FileKind::Regular, ROOT);
    model.open(dir).unwrap();
    model.unlink(Fid::ROOT, &name("d"), true, ROOT).unwrap();
    assert_eq!(model.link(file, dir, &name("x")), Err(FsError::NotFound));
    assert_eq!(model.stat(dir).unwrap().nlink, 0);
    model.close(dir).unwrap();
    assert_eq!(model.stat(dir), Err(FsError::Stale));
}

#[test]
fn an_orphan_lives_until_its_last_handle_is_closed() {
    let mut model = empty();
    let file = make(&mut model, Fid::ROOT, "f", FileKind::Regular, ROOT);
    model.open(file).unwrap();
    model.open(file).unwrap();
    model.unlink(Fid::ROOT, &name("f"), false, ROOT).unwrap();
    model.close(file).unwrap();
    model.write(file, 3, b"x").unwrap();
    assert_eq!(model.read(file, 0, 9).unwrap(), b"\0\0\0x");
    assert_eq!(
        model.link(file, Fid::ROOT, &name("g")),
        Err(FsError::NotFound)
    );
    model.close(file).unwrap();
    assert_eq!(model.close(file), Err(FsError::Stale));
}

#[test]
fn a_sticky_directory_guards_names_of_others() {
    let mut model = empty();
    let dir = make(&mut model, Fid::ROOT, "tmp", FileKind::Directory, ROOT);
    let sticky = SetAttr {
        mode: Some(0o1777),
        ..SetAttr::default()
    };
    model.set_attr(dir, &sticky).unwrap();
    make(&mut model, dir, "a", FileKind::Regular, ANN);
    make(&mut model, dir, "b", FileKind::Regular, BOB);
    let (a, b) = (name("a"), name("b"));
    let refused = Err(FsError::NotPermitted);
    assert_eq!(model.unlink(dir, &a, false, BOB), refused);
    assert_eq!(
        model.rename((dir, &b), (dir, &a), RenameMode::Replace, BOB),
        refused
    );
    model.unlink(dir, &a, false, ANN).unwrap();
    model.unlink(dir, &b, false, ROOT).unwrap();
}
