//! `glint fsck` on directories in which something is wrong: what it says, mends and leaves.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use base::{Fid, TargetKind};
use mds::keys::{STATE, Table, dirent, fid};
use mds::mutation::{Mutation, apply};
use mds::records::{Bytes, Dirent, Inode, Place, Record, SequenceOwner, State};
use mds::store::{Store, table_id, tables};
use nix::sys::signal::Signal;
use oss::records::{EXTENTS, TABLES};
use storage::extents::{ExtentObjects, Options};
use storage::{Batch, KeyRange, KvOptions, ObjectId, ObjectStore, Target, TargetDir};
use support::{Staying, finish, glint, needs_root, program, shell};

/// Of a client that is gone.
const BURNT: u64 = Fid::SEQUENCE_FIRST;
/// Of one that may come back.
const LIVE: u64 = BURNT + 1;

fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("mnt")).unwrap();
    dir
}

fn target(dir: &Path, kind: TargetKind) -> Target {
    let targets = TargetDir::open(&dir.join("D")).unwrap().into_targets();
    let is_it = |target: &Target| target.superblock().target.kind == kind;
    targets.into_iter().find(is_it).unwrap()
}

/// Changes the records of D's MDT as `change` says, durably.
fn change(dir: &Path, change: impl FnOnce(&Store, &mut Batch)) {
    let target = target(dir, TargetKind::Mdt);
    let kv = Arc::new(target.kv(&tables(), KvOptions::new("MDT0")).unwrap());
    let store = Store::new(kv.clone());
    let mut batch = Batch::new();
    change(&store, &mut batch);
    kv.wait_durable(store.commit(batch).unwrap()).unwrap();
}

/// A sequence was granted and is nobody's any more, the next is somebody's.
fn grant(dir: &Path) {
    change(dir, |store, batch| {
        let state: Option<State> = store.get(Table::State, STATE).unwrap();
        let next_sequence = LIVE + 1;
        let state = State {
            next_sequence,
            ..state.unwrap()
        };
        let owner = SequenceOwner { client: [1; 16] };
        let grants = vec![
            Mutation::PutState(state),
            Mutation::PutSequence(LIVE, owner),
        ];
        apply(grants, batch);
    });
}

/// A directory that has no name.
fn lose_a_directory(dir: &Path) -> Fid {
    let lost = Fid::new(BURNT, 77);
    change(dir, |store, batch| {
        let root: Option<Inode> = store.get(Table::Inodes, &fid(Fid::ROOT)).unwrap();
        let records = vec![
            Mutation::PutInode(lost, root.unwrap()),
            Mutation::PutPlace(lost, Place::Own),
        ];
        apply(records, batch);
    });
    lost
}

/// Works on the objects of D's OST, which is on extents, durably.
fn on_objects<T>(dir: &Path, work: impl FnOnce(&dyn ObjectStore) -> T) -> T {
    let ost = target(dir, TargetKind::Ost);
    let kv = Arc::new(ost.kv(&TABLES, KvOptions::new("OST0")).unwrap());
    let disk = Arc::new(ost.extents().unwrap());
    let objects = ExtentObjects::open(disk, kv.clone(), EXTENTS, Options::default()).unwrap();
    let done = work(&objects);
    objects.sync_all().unwrap();
    kv.wait_durable(kv.committed()).unwrap();
    done
}

fn store_object(dir: &Path, file: Fid) {
    let id = ObjectId::new(file, 0);
    on_objects(dir, |objects| objects.write(id, 0, b"bytes")).unwrap();
}

fn has_object(dir: &Path, file: Fid) -> bool {
    let id = ObjectId::new(file, 0);
    let found = on_objects(dir, |objects| objects.stat(id));
    found.unwrap().is_some()
}

#[test]
fn objects_go_only_when_nobody_can_want_them() {
    let dir = place();
    let (nobodys, awaited) = (Fid::new(BURNT, 1), Fid::new(LIVE, 1));
    glint(dir.path(), &["format", "D", "--store", "extents"]).worked();
    grant(dir.path());
    for file in [nobodys, awaited] {
        store_object(dir.path(), file);
    }
    let ran = glint(dir.path(), &["fsck", "D"]);
    assert!(
        ran.worked().contains("OST0: 0 errors, 2 warnings"),
        "{ran:?}"
    );
    assert!(has_object(dir.path(), nobodys));
    let ran = glint(dir.path(), &["fsck", "D", "--repair"]);
    for part in [
        "OST0: mended: object",
        "OST0: 1 mended, 1 left",
        "may come back",
    ] {
        assert!(ran.worked().contains(part), "no {part:?} in {ran:?}");
    }
    assert!(!has_object(dir.path(), nobodys));
    assert!(has_object(dir.path(), awaited));
}

#[test]
fn a_part_that_a_file_does_not_have_is_removed() {
    let dir = place();
    glint(dir.path(), &["format", "D", "--store", "extents"]).worked();
    grant(dir.path());
    // A directory has no bytes. The grant of the other's sequence may be repeated.
    let files = [Fid::ROOT, Fid::new(LIVE + 7, 1)];
    for file in files {
        store_object(dir.path(), file);
    }
    let ran = glint(dir.path(), &["fsck", "D"]);
    assert!(
        ran.worked().contains("OST0: 0 errors, 2 warnings"),
        "{ran:?}"
    );
    let ran = glint(dir.path(), &["fsck", "D", "--repair"]);
    assert!(ran.worked().contains("OST0: 1 mended, 1 left"), "{ran:?}");
    let left = files.map(|file| has_object(dir.path(), file));
    assert_eq!(left, [false, true]);
}

#[test]
fn objects_stay_where_the_mdt_was_not_sound_or_was_not_there() {
    let dir = place();
    let file = Fid::new(BURNT, 1);
    glint(
        dir.path(),
        &["format", "D", "--role", "mgs,ost", "--store", "extents"],
    )
    .worked();
    glint(dir.path(), &["format", "E", "--role", "mdt", "--join", "D"]).worked();
    store_object(dir.path(), file);
    let ran = glint(dir.path(), &["fsck", "D", "--repair"]);
    assert!(ran.worked().contains("OST0: 0 mended, 0 left"), "{ran:?}");
    fs::rename(dir.path().join("E/mdt0"), dir.path().join("D/mdt0")).unwrap();
    grant(dir.path());
    let lost = lose_a_directory(dir.path());
    let words = ["fsck", "D", "--repair", "--json"];
    let ran = glint(dir.path(), &words);
    for part in ["mended", &format!("/lost+found/#{lost}"), "may come back"] {
        assert!(ran.worked().contains(part), "no {part:?} in {ran:?}");
    }
    assert!(has_object(dir.path(), file));
    glint(dir.path(), &words).worked();
    assert!(!has_object(dir.path(), file));
}

#[test]
fn without_repair_no_store_is_written() {
    let dir = place();
    let formatted = ["format", "D", "--role", "mgs,mdt,ost"];
    glint(dir.path(), &formatted).worked();
    let stores = || {
        ["mgs", "mdt0", "ost0"].map(|target| {
            let store = dir.path().join("D").join(target).join("db");
            let written = fs::metadata(&store).unwrap().modified().unwrap();
            (written, fs::read(&store).unwrap())
        })
    };
    // Also where a server was killed, and left more to do to who opens them.
    for killed in [false, true] {
        if killed {
            drop(Staying::start(
                dir.path(),
                &["serve", "D", "--listen", "127.0.0.1:0"],
            ));
        }
        let before = stores();
        glint(dir.path(), &["fsck", "D"]).worked();
        assert!(stores() == before, "killed: {killed}");
    }
}

#[test]
fn without_repair_nothing_is_mended_and_what_is_damaged_stays() {
    let dir = place();
    glint(dir.path(), &["format", "D"]).worked();
    grant(dir.path());
    lose_a_directory(dir.path());
    for _ in 0..2 {
        let ran = glint(dir.path(), &["fsck", "D"]);
        ran.failed_saying(&["2 errors in D"]);
        assert!(ran.out.contains("has 0 names"), "{ran:?}");
    }
    change(dir.path(), |_, batch| {
        batch.put(
            table_id(Table::Orphans),
            fid(Fid::new(BURNT, 9)),
            vec![9, 9],
        );
    });
    for _ in 0..2 {
        let ran = glint(dir.path(), &["fsck", "D", "--repair"]);
        ran.failed_saying(&["one error left in D"]);
        assert!(ran.out.contains("restore it from a copy"), "{ran:?}");
        assert!(ran.out.contains("MDT0: 0 mended, 1 left"), "{ran:?}");
    }
    change(dir.path(), |_, batch| {
        batch.delete(table_id(Table::Orphans), fid(Fid::new(BURNT, 9)));
    });
    glint(dir.path(), &["fsck", "D", "--repair"]).worked();
    let ran = glint(dir.path(), &["fsck", "D"]);
    assert!(
        ran.worked().contains("MDT0: 0 errors, 0 warnings"),
        "{ran:?}"
    );
}

/// Changes a bit wherever `what` is stored, in live pages and in old ones.
fn flip(path: &Path, what: &str) {
    let mut bytes = fs::read(path).unwrap();
    let found = |bytes: &[u8]| {
        bytes
            .windows(what.len())
            .position(|at| at == what.as_bytes())
    };
    let mut flipped = 0;
    while let Some(at) = found(&bytes) {
        bytes[at] ^= 1;
        flipped += 1;
    }
    assert!(flipped > 0, "{what} is not stored");
    fs::write(path, bytes).unwrap();
}

#[test]
fn all_damage_that_can_be_found_is_named() {
    let dir = place();
    glint(dir.path(), &["format", "D"]).worked();
    grant(dir.path());
    let file = |number: u32| Fid::new(BURNT, number);
    change(dir.path(), |_, batch| {
        for number in 1..=2000 {
            let value = Bytes(format!("xattr-{number:05}-{}", "x".repeat(100)).into_bytes());
            let key = [&fid(file(number))[..], b"user.a"].concat();
            batch.put(table_id(Table::Xattrs), key, value.to_bytes());
            let value = Bytes(format!("target-{number:05}-{}", "x".repeat(100)).into_bytes());
            let key = fid(file(number));
            batch.put(table_id(Table::Targets), key, value.to_bytes());
        }
        let damaged = fid(Fid::new(BURNT, 9000));
        batch.put(table_id(Table::Orphans), damaged, vec![9, 9]);
    });
    let db = dir.path().join("D/mdt0/db");
    for what in ["xattr-00500-", "xattr-01500-", "target-01000-"] {
        flip(&db, what);
    }
    for words in [&["fsck", "D"][..], &["fsck", "D", "--repair"]] {
        let ran = glint(dir.path(), words);
        ran.failed_saying(&["3 errors"]);
        let lines: Vec<&str> = ran.out.lines().collect();
        let line = |part: &str| {
            let mut found = lines.iter().filter(|line| line.contains(part));
            let line = found
                .next()
                .unwrap_or_else(|| panic!("no {part:?} in {ran:?}"));
            assert!(line.starts_with("MDT0: "), "{line}");
            assert!(found.next().is_none(), "{part:?} twice in {ran:?}");
            *line
        };
        // Two blocks are damaged: neither is passed over.
        let xattrs = line("lost of table xattrs: what is between file ");
        assert_eq!(
            xattrs.matches("damaged record block ").count(),
            2,
            "{ran:?}"
        );
        let targets = line("lost of table targets: what is between file ");
        assert_eq!(
            targets.matches("damaged record block ").count(),
            1,
            "{ran:?}"
        );
        line("damaged record orphan ");
        assert!(ran.out.contains("OST0: 0 "), "{ran:?}");
        assert_eq!(
            ran.out.matches("restore it from a copy").count(),
            1,
            "{ran:?}"
        );
    }
    for what in ["xattr-00500-", "xattr-01500-"] {
        unflip(&db, what);
    }
    let ran = glint(dir.path(), &["fsck", "D"]);
    ran.failed_saying(&["2 errors"]);
}

#[test]
fn bytes_that_are_not_looked_at_are_told_of() {
    if needs_root() {
        return;
    }
    let dir = place();
    glint(dir.path(), &["format", "D"]).worked();
    glint(
        dir.path(),
        &["format", "E", "--role", "ost1", "--join", "D"],
    )
    .worked();
    let mut serve = Staying::start(dir.path(), &["serve", "D", "E", "--listen", "127.0.0.1:0"]);
    let address = serve.address();
    let mount = ["mount", &address, "mnt", "--key", "D/key"];
    let mut mount = Staying::start(dir.path(), &mount);
    // Enough for both OSTs to have some.
    shell(dir.path(), "for i in $(seq 32); do echo $i > mnt/$i; done").worked();
    for one in [&mut mount, &mut serve] {
        one.signal(Signal::SIGTERM);
        assert_eq!(one.ended(), Some(0), "{}", one.said());
    }
    let of_one = glint(dir.path(), &["fsck", "D"]);
    let said = of_one.worked();
    let told = [
        "MDT0: OST1 has bytes of ",
        " files and was not given",
        "0 errors, 1 warnings",
    ];
    assert!(told.iter().all(|part| said.contains(part)), "{said}");
    let of_all = glint(dir.path(), &["fsck", "D", "E"]);
    let said = of_all.worked();
    assert!(said.contains("MDT0: 0 errors, 0 warnings"), "{said}");
}

/// Takes back what [`flip`] did.
fn unflip(path: &Path, what: &str) {
    let mut flipped = what.as_bytes().to_vec();
    flipped[0] ^= 1;
    let mut bytes = fs::read(path).unwrap();
    let found = |bytes: &[u8]| bytes.windows(what.len()).position(|at| at == flipped);
    while let Some(at) = found(&bytes) {
        bytes[at] ^= 1;
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn missing_bytes_are_told_of_though_records_of_the_ost_are_damaged() {
    if needs_root() {
        return;
    }
    let dir = place();
    // Without records nothing is known of extents.
    glint(dir.path(), &["format", "D", "--store", "files"]).worked();
    let mut up = Staying::start(dir.path(), &["up", "--dir", "D", "--mount", "mnt"]);
    let mnt = dir.path().join("mnt");
    let made = ["file", "other"].map(|name| {
        fs::write(mnt.join(name), "words").unwrap();
        Fid(fs::metadata(mnt.join(name)).unwrap().ino())
    });
    glint(dir.path(), &["down", "mnt"]).worked();
    assert_eq!(up.ended(), Some(0), "{}", up.said());
    let objects = target(dir.path(), TargetKind::Ost).objects().unwrap();
    assert!(objects.remove(ObjectId::new(made[0], 0)).unwrap());
    drop(objects);
    let db = dir.path().join("D/ost0/db");
    let mut bytes = fs::read(&db).unwrap();
    let key = made[1].0.to_be_bytes();
    let places: Vec<usize> = (0..bytes.len() - 8)
        .filter(|at| bytes[*at..at + 8] == key)
        .collect();
    assert!(!places.is_empty(), "no object is recorded");
    places.into_iter().for_each(|at| bytes[at + 7] ^= 0x80);
    fs::write(&db, bytes).unwrap();
    let ran = glint(dir.path(), &["fsck", "D"]);
    ran.failed_saying(&["3 errors"]);
    let missing = format!("OST0: the bytes of file {} are missing", made[0]);
    for part in [
        &*missing,
        "OST0: ",
        "lost of table ost_objects: all",
        "lost of table ost_seals: all",
    ] {
        assert!(ran.out.contains(part), "no {part:?} in {ran:?}");
    }
}

#[test]
fn directories_of_different_file_systems_are_not_mixed() {
    let dir = place();
    glint(dir.path(), &["format", "D"]).worked();
    glint(dir.path(), &["format", "E"]).worked();
    glint(dir.path(), &["fsck", "D", "E"]).failed_saying(&["different file systems"]);
}

#[test]
fn what_cannot_be_written_is_looked_at() {
    if needs_root() {
        return;
    }
    for store in ["extents", "files"] {
        let dir = place();
        let formatted = ["format", "D", "--store", store];
        glint(dir.path(), &formatted).worked();
        let mut up = Staying::start(dir.path(), &["up", "--dir", "D", "--mount", "mnt"]);
        fs::write(dir.path().join("mnt/file"), vec![7; 100_000]).unwrap();
        glint(dir.path(), &["down", "mnt"]).worked();
        assert_eq!(up.ended(), Some(0), "{}", up.said());
        let starts = || {
            target(dir.path(), TargetKind::Mdt)
                .superblock()
                .boot_epoch
                .0
        };
        let before = starts();
        let read_only = |words: &str| {
            let line = format!(
                "mount --bind D D && mount -o remount,bind,ro D && {} fsck D {words}",
                program()
            );
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", &line]);
            finish(command.current_dir(dir.path()))
        };
        let said = read_only("");
        assert!(said.worked().contains("OST0: 0 errors"), "{said:?}");
        read_only("--repair").failed_saying(&["Read-only file system"]);
        assert_eq!(starts(), before + 1, "that of this look");
        remove_name(dir.path(), "file");
        read_only("").failed_saying(&["2 errors in D"]);
    }
}

/// The name of a directory below the root goes, and nothing else.
fn remove_name(dir: &Path, name: &str) -> Fid {
    let mut file = None;
    change(dir, |store, batch| {
        let scanned = store.scan(Table::Dirents, &KeyRange::all(), |key, found: Dirent| {
            if found.name.as_bytes() == name.as_bytes() {
                file = Some(found.fid);
                let spot = mds::keys::parse_dirent(key).unwrap();
                batch.delete(table_id(Table::Dirents), dirent(spot));
            }
            Ok(ControlFlow::Continue(()))
        });
        scanned.unwrap();
    });
    file.unwrap()
}

#[test]
fn what_was_lost_is_there_again_on_a_mount() {
    if needs_root() {
        return;
    }
    let dir = place();
    let mnt = dir.path().join("mnt");
    let words = ["up", "--dir", "D", "--mount", "mnt"];
    let mut up = Staying::start(dir.path(), &words);
    fs::create_dir(mnt.join("dir")).unwrap();
    fs::write(mnt.join("dir/file"), "words").unwrap();
    fs::write(mnt.join("other"), vec![7; 100_000]).unwrap();
    glint(dir.path(), &["fsck", "D", "--repair"]).failed_saying(&["in use"]);
    glint(dir.path(), &["down", "mnt"]).worked();
    assert_eq!(up.ended(), Some(0), "{}", up.said());
    let lost = remove_name(dir.path(), "dir");
    glint(dir.path(), &["fsck", "D"]).failed_saying(&["errors in D"]);
    glint(dir.path(), &["fsck", "D", "--repair"]).worked();
    let _up = Staying::start(dir.path(), &words);
    let found = mnt.join(format!("lost+found/#{lost}/file"));
    assert_eq!(fs::read_to_string(found).unwrap(), "words");
    assert_eq!(fs::read(mnt.join("other")).unwrap(), vec![7; 100_000]);
    fs::rename(mnt.join(format!("lost+found/#{lost}")), mnt.join("dir")).unwrap();
    fs::remove_dir(mnt.join("lost+found")).unwrap();
}

#[test]
fn bytes_that_are_missing_are_told_of() {
    if needs_root() {
        return;
    }
    let dir = place();
    glint(dir.path(), &["format", "D", "--store", "extents"]).worked();
    let mut up = Staying::start(dir.path(), &["up", "--dir", "D", "--mount", "mnt"]);
    let mnt = dir.path().join("mnt");
    fs::write(mnt.join("file"), "words").unwrap();
    fs::write(mnt.join("empty"), "").unwrap();
    fs::File::create(mnt.join("hole"))
        .unwrap()
        .set_len(5000)
        .unwrap();
    let file = Fid(fs::metadata(mnt.join("file")).unwrap().ino());
    glint(dir.path(), &["down", "mnt"]).worked();
    assert_eq!(up.ended(), Some(0), "{}", up.said());
    glint(dir.path(), &["fsck", "D"]).worked();
    let id = ObjectId::new(file, 0);
    assert!(on_objects(dir.path(), |objects| objects.remove(id)).unwrap());
    for words in [&["fsck", "D"][..], &["fsck", "D", "--repair"]] {
        let ran = glint(dir.path(), words);
        ran.failed_saying(&["one error"]);
        let told = format!("the bytes of file {file} are missing");
        assert!(ran.out.contains(&told), "{ran:?}");
    }
}

/// A file system with one file, which is stopped. Its file.
fn with_words(dir: &Path) -> Fid {
    let mut up = Staying::start(dir, &UP);
    fs::write(dir.join("mnt/file"), "words").unwrap();
    let file = Fid(fs::metadata(dir.join("mnt/file")).unwrap().ino());
    glint(dir, &["down", "mnt"]).worked();
    assert_eq!(up.ended(), Some(0), "{}", up.said());
    glint(dir, &["fsck", "D"]).worked();
    file
}

const UP: [&str; 5] = ["up", "--dir", "D", "--mount", "mnt"];

/// SEMANTICS: crash.damage
#[test]
fn bytes_that_something_else_added_are_not_read() {
    if needs_root() {
        return;
    }
    let dir = place();
    glint(dir.path(), &["format", "D", "--store", "files"]).worked();
    let file = with_words(dir.path());
    let objects = target(dir.path(), TargetKind::Ost).objects().unwrap();
    objects.write(ObjectId::new(file, 0), 5, b"more").unwrap();
    drop(objects);
    let ran = glint(dir.path(), &["fsck", "D"]);
    ran.failed_saying(&["one error"]);
    let told = format!("object {file}.0 is damaged: bytes 5 to 9");
    assert!(ran.out.contains(&told), "{ran:?}");
    let up = Staying::start(dir.path(), &UP);
    let path = dir.path().join("mnt/file");
    assert_eq!(fs::read_to_string(&path).unwrap(), "words");
    assert_eq!(fs::metadata(&path).unwrap().len(), 5);
    let mut longer = fs::OpenOptions::new().append(true).open(&path).unwrap();
    let refused = longer.write_all(b"x").and_then(|()| longer.sync_all());
    assert_eq!(
        refused.unwrap_err().raw_os_error(),
        Some(5),
        "{}",
        up.said()
    );
    drop(longer);
    // Written anew it is sound.
    fs::write(&path, "others").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "others");
}

#[test]
fn a_file_whose_object_a_client_has_changed_is_as_long_as_that() {
    if needs_root() {
        return;
    }
    let dir = place();
    glint(dir.path(), &["format", "D", "--store", "extents"]).worked();
    let file = with_words(dir.path());
    let id = ObjectId::new(file, 0);
    on_objects(dir.path(), |objects| objects.write(id, 5, b"more")).unwrap();
    let ran = glint(dir.path(), &["fsck", "D"]);
    ran.failed_saying(&["one error"]);
    assert!(ran.out.contains("is 5 bytes long, and has 9"), "{ran:?}");
    let ran = glint(dir.path(), &["fsck", "D", "--repair"]);
    assert!(ran.worked().contains("OST0: 1 mended, 0 left"), "{ran:?}");
    glint(dir.path(), &["fsck", "D"]).worked();
    let _up = Staying::start(dir.path(), &UP);
    let path = dir.path().join("mnt/file");
    assert_eq!(fs::read_to_string(path).unwrap(), "wordsmore");
}
