//! Directories of targets: made once, served by one, and nothing else touched.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, a failed unwrap is a failed test"
)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use base::{ByteRange, Fid, SeededRng, TargetName, Timestamp};
use storage::{
    Batch, Commit, FileDisk, FormatRequest, KeyKind, KvOptions, ObjectBytes, ObjectId, ObjectStore,
    State, StorageError, Superblock, SystemRandom, TableId, TargetDir, TargetError, TargetKey,
    Uuid,
};

fn request(targets: &[TargetName]) -> FormatRequest {
    FormatRequest {
        fs_name: "demo".parse().unwrap(),
        fs_uuid: None,
        key: None,
        server_key: None,
        targets: targets.to_vec(),
        created: Timestamp { secs: 7, nanos: 0 },
        bytes: ObjectBytes::Files,
    }
}

fn all() -> [TargetName; 3] {
    [TargetName::MGS, TargetName::mdt(0), TargetName::ost(0)]
}

fn format(dir: &Path, targets: &[TargetName]) -> Result<Vec<Superblock>, TargetError> {
    TargetDir::format(
        dir,
        &request(targets),
        &mut |_, _| Ok(()),
        &mut SeededRng::new(1),
    )
}

fn names(state: State) -> Vec<TargetName> {
    match state {
        State::Targets { superblocks, .. } => superblocks.iter().map(|s| s.target).collect(),
        other => panic!("{other:?}"),
    }
}

fn tempdir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn format_then_open_then_open_again_counts_the_starts() {
    let root = tempdir();
    let dir = root.path().join("a/b");
    assert_eq!(
        TargetDir::inspect(&dir).unwrap(),
        State::Empty,
        "it does not exist"
    );
    let made = format(&dir, &all()).unwrap();
    assert_eq!(names(TargetDir::inspect(&dir).unwrap()), all());
    for epoch in 1..4 {
        let open = TargetDir::open(&dir).unwrap();
        for (target, made) in open.targets().iter().zip(&made) {
            assert_eq!(target.superblock().boot_epoch.0, epoch);
            assert_eq!(target.superblock().target_uuid, made.target_uuid);
            assert_eq!(target.superblock().fs_uuid, made.fs_uuid);
        }
    }
}

#[test]
fn a_format_that_fails_leaves_nothing() {
    let dir = tempdir();
    let failed = TargetDir::format(
        dir.path(),
        &request(&all()),
        &mut |_, _| Err(StorageError::refused("db", "full")),
        &mut SeededRng::new(1),
    );
    assert!(failed.is_err());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_target_holds_records_and_objects() {
    const TABLE: TableId = TableId(0);
    let dir = tempdir();
    format(dir.path(), &[TargetName::ost(0)]).unwrap();
    for round in 0..2 {
        let open = TargetDir::open(dir.path()).unwrap();
        let target = &open.targets()[0];
        let kv = target
            .kv(&[(TABLE, "records")], KvOptions::new("OST0"))
            .unwrap();
        let id = storage::ObjectId::new(base::Fid::new(0x400, 1), 0);
        if round == 1 {
            assert_eq!(kv.get(TABLE, b"k").unwrap().as_deref(), Some(&b"v"[..]));
            assert_eq!(target.objects().unwrap().stat(id).unwrap().unwrap().size, 5);
            continue;
        }
        let again = target
            .kv(&[(TABLE, "records")], KvOptions::new("OST0"))
            .unwrap_err();
        assert!(matches!(again, StorageError::InUse { .. }), "{again}");
        let mut batch = Batch::new();
        batch.put(TABLE, *b"k", *b"v");
        kv.commit(batch).unwrap();
        target.objects().unwrap().write(id, 0, b"bytes").unwrap();
        kv.close().unwrap();
    }
}

#[test]
fn a_directory_with_anything_else_is_refused_untouched() {
    let dir = tempdir();
    fs::create_dir(dir.path().join("photos")).unwrap();
    for n in 0..410 {
        fs::write(dir.path().join(format!("photos/{n}.jpg")), b"x").unwrap();
    }
    symlink("/", dir.path().join("root")).unwrap();
    let error = format(dir.path(), &all()).unwrap_err().to_string();
    let expected = "holds 412 files that are not Glint's; choose an empty directory";
    assert!(error.ends_with(expected), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    assert!(TargetDir::open(dir.path()).is_err());
}

#[test]
fn names_like_ours_are_not_ours() {
    for name in [
        "key",
        "ost0",
        "mdt0.new",
        "ost01",
        "mgs0",
        "lost+found",
        "targets.new",
        "targets.made",
    ] {
        let dir = tempdir();
        let path = dir.path().join(name);
        if name == "key" || name == "lost+found" {
            fs::write(&path, b"my house key\n").unwrap();
        } else {
            fs::create_dir(&path).unwrap();
            fs::write(path.join("diary"), b"dear").unwrap();
        }
        let state = TargetDir::inspect(dir.path()).unwrap();
        assert!(matches!(state, State::NotOurs { .. }), "{name}: {state:?}");
        format(dir.path(), &all()).unwrap_err();
        assert!(path.exists() && fs::read_dir(dir.path()).unwrap().count() == 1);
    }
}

#[test]
fn a_fresh_file_system_and_what_an_interrupted_format_left_count_as_empty() {
    let dir = tempdir();
    fs::create_dir(dir.path().join("lost+found")).unwrap();
    for left in ["mdt0.new", "targets.new/ost0"].map(|left| dir.path().join(left)) {
        fs::create_dir_all(&left).unwrap();
        fs::write(left.join("db"), b"half").unwrap();
        fs::write(left.join("superblock.new"), b"half").unwrap();
    }
    fs::write(dir.path().join("targets.new/key.new"), b"0123abc").unwrap();
    assert_eq!(TargetDir::inspect(dir.path()).unwrap(), State::Empty);
    format(dir.path(), &all()).unwrap();
    for left in ["mdt0.new", "targets.new", "targets.made"] {
        assert!(!dir.path().join(left).exists(), "{left}");
    }
    TargetDir::open(dir.path()).unwrap();
}

#[test]
fn nothing_is_formatted_again_and_targets_join_their_file_system() {
    let dir = tempdir();
    let first = format(dir.path(), &[TargetName::mdt(0)]).unwrap();
    let error = format(dir.path(), &all()).unwrap_err().to_string();
    assert!(
        error.contains("MDT0") && error.contains("--erase mdt0"),
        "{error}"
    );
    let twice = format(dir.path(), &[TargetName::ost(1), TargetName::ost(1)]);
    assert!(matches!(twice, Err(TargetError::Twice { .. })));
    assert_eq!(
        names(TargetDir::inspect(dir.path()).unwrap()),
        [TargetName::mdt(0)]
    );
    let second = format(dir.path(), &[TargetName::ost(1)]).unwrap();
    assert_eq!(second[0].fs_uuid, first[0].fs_uuid);
    let mut other = request(&[TargetName::ost(2)]);
    other.fs_name = "other".parse().unwrap();
    let error = TargetDir::format(
        dir.path(),
        &other,
        &mut |_, _| Ok(()),
        &mut SeededRng::new(2),
    )
    .unwrap_err();
    assert!(
        matches!(error, TargetError::OtherFileSystem { .. }),
        "{error}"
    );
    let mut other = request(&[TargetName::ost(2)]);
    other.fs_uuid = Some(Uuid([9; 16]));
    let error = TargetDir::format(
        dir.path(),
        &other,
        &mut |_, _| Ok(()),
        &mut SeededRng::new(2),
    )
    .unwrap_err();
    assert!(
        matches!(error, TargetError::OtherFileSystem { .. }),
        "{error}"
    );
}

#[test]
fn a_target_in_use_is_refused_with_the_process_that_holds_it() {
    let dir = tempdir();
    format(dir.path(), &all()).unwrap();
    let held = TargetDir::open(dir.path()).unwrap();
    let error = TargetDir::open(dir.path()).unwrap_err().to_string();
    let pid = format!("in use by process {}", std::process::id());
    assert!(error.contains(&pid), "{error}");
    let error = TargetDir::erase(dir.path(), &[TargetName::mdt(0)]).unwrap_err();
    assert!(
        matches!(error, TargetError::Storage(StorageError::InUse { .. })),
        "{error}"
    );
    drop(held);
    let open = TargetDir::open(dir.path()).unwrap();
    assert_eq!(
        open.targets()[0].superblock().boot_epoch.0,
        2,
        "the refused start did not count"
    );
}

#[test]
fn a_file_in_use_is_refused_with_the_process_that_holds_it() {
    let dir = tempdir();
    let path = dir.path().join("db");
    let held = FileDisk::create(&path).unwrap();
    let error = FileDisk::open(&path).unwrap_err().to_string();
    assert!(
        error.contains(&format!("process {}", std::process::id())),
        "{error}"
    );
    assert!(FileDisk::create(&path).is_err(), "it exists");
    drop(held);
    FileDisk::open(&path).unwrap();
}

#[test]
fn damaged_missing_foreign_and_mixed_superblocks_are_told_apart() {
    let dir = tempdir();
    format(dir.path(), &all()).unwrap();
    let path = dir.path().join("mdt0/superblock");
    let good = fs::read(&path).unwrap();
    let check = |bytes: Option<Vec<u8>>, expected: &str| {
        match bytes {
            Some(bytes) => fs::write(&path, bytes).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        for error in [
            TargetDir::open(dir.path()).unwrap_err().to_string(),
            format(dir.path(), &[TargetName::ost(5)])
                .unwrap_err()
                .to_string(),
        ] {
            assert!(error.contains("mdt0/superblock"), "{error}");
            assert!(error.contains(expected), "{error}");
        }
        fs::write(&path, &good).unwrap();
    };
    let mut flipped = good.clone();
    flipped[70] ^= 4;
    check(Some(flipped), "checksum does not match");
    check(Some(Vec::new()), "its length is wrong");
    check(None, "it is missing");
    check(
        Some(fs::read(dir.path().join("ost0/superblock")).unwrap()),
        "superblock of OST0",
    );
    let mut newer = good.clone();
    newer[8] = 2;
    let crc = crc32c::crc32c(&newer[..508]);
    newer[508..].copy_from_slice(&crc.to_le_bytes());
    check(Some(newer), "format version 2");
    let elsewhere = tempdir();
    let mut other = request(&[TargetName::mdt(0)]);
    other.fs_uuid = Some(Uuid([3; 16]));
    TargetDir::format(
        elsewhere.path(),
        &other,
        &mut |_, _| Ok(()),
        &mut SeededRng::new(8),
    )
    .unwrap();
    let stray = fs::read(elsewhere.path().join("mdt0/superblock")).unwrap();
    fs::write(&path, stray).unwrap();
    let state = TargetDir::inspect(dir.path()).unwrap();
    assert!(matches!(state, State::Damaged { .. }), "{state:?}");
}

#[test]
fn erase_removes_the_named_target_and_no_other() {
    let dir = tempdir();
    format(dir.path(), &all()).unwrap();
    TargetDir::erase(dir.path(), &[TargetName::ost(0)]).unwrap();
    assert_eq!(names(TargetDir::inspect(dir.path()).unwrap()), all()[..2]);
    let error = TargetDir::erase(dir.path(), &[TargetName::ost(0)]).unwrap_err();
    assert!(matches!(error, TargetError::Unknown { .. }), "{error}");
    fs::create_dir(dir.path().join("ost7")).unwrap();
    fs::write(dir.path().join("ost7/diary"), b"dear").unwrap();
    TargetDir::erase(dir.path(), &[TargetName::ost(7)]).unwrap_err();
    assert!(dir.path().join("ost7/diary").exists());
    fs::remove_dir_all(dir.path().join("ost7")).unwrap();
    format(dir.path(), &[TargetName::ost(0)]).unwrap();
}

#[test]
fn the_key_is_random_private_and_checked() {
    let (a, b) = (tempdir(), tempdir());
    format(a.path(), &all()).unwrap();
    format(b.path(), &all()).unwrap();
    let path = KeyKind::Client.path_in(a.path());
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let key = TargetKey::load(&path).unwrap();
    assert_ne!(
        key,
        TargetKey::load(&KeyKind::Client.path_in(b.path())).unwrap()
    );
    assert_eq!(TargetDir::open(a.path()).unwrap().key(), &key);
    assert!(!format!("{key:?}").contains(&fs::read_to_string(&path).unwrap()[..8]));
    let (c, joining) = (tempdir(), TargetDir::file_system(a.path()).unwrap());
    let joined = FormatRequest {
        fs_uuid: Some(joining.0),
        key: Some(joining.1),
        server_key: Some(joining.2),
        ..request(&[TargetName::ost(1)])
    };
    TargetDir::format(
        c.path(),
        &joined,
        &mut |_, _| Ok(()),
        &mut SeededRng::new(3),
    )
    .unwrap();
    assert_eq!(TargetDir::open(c.path()).unwrap().key(), &key);
    for mode in [0o640, 0o604, 0o660] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = TargetKey::load(&path).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        assert!(TargetDir::open(a.path()).is_err());
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let long = "0".repeat(66);
    for bad in ["", "xyz", &long, &format!("{}\n\n", "g".repeat(64))] {
        fs::write(&path, bad).unwrap();
        let error = TargetKey::load(&path).unwrap_err();
        assert!(matches!(error, TargetError::KeyMalformed { .. }), "{error}");
    }
}

#[test]
fn a_file_is_no_directory_and_nothing_is_no_target() {
    let dir = tempdir();
    let file = dir.path().join("file");
    fs::write(&file, b"x").unwrap();
    for result in [
        TargetDir::inspect(&file).map(drop),
        format(&file, &all()).map(drop),
    ] {
        let error = result.unwrap_err();
        assert!(
            matches!(error, TargetError::NotADirectory { .. }),
            "{error}"
        );
    }
    let error = TargetDir::open(&dir.path().join("missing"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("glint format"), "{error}");
}

#[test]
fn system_random_ids_differ() {
    let mut random = SystemRandom::open().unwrap();
    let (a, b) = (Uuid::random(&mut random), Uuid::random(&mut random));
    assert_ne!(a, b);
    assert_eq!(a.to_string().len(), 36);
    assert_eq!(a.to_string().as_bytes()[14], b'4');
}

/// A process that finds its fence taken writes nothing more, in whatever way.
#[test]
fn nothing_is_written_behind_a_fence_that_was_lost() {
    const TABLE: TableId = TableId(0);
    let (here, there) = (tempdir(), tempdir());
    for dir in [&here, &there] {
        format(dir.path(), &[TargetName::ost(0)]).unwrap();
    }
    let open = TargetDir::open(here.path()).unwrap();
    let target = &open.targets()[0];
    let objects = target.objects().unwrap();
    let options = KvOptions {
        commit: Commit::Manual,
        ..KvOptions::new("OST0")
    };
    let kv = target.kv(&[(TABLE, "records")], options).unwrap();
    let object = ObjectId::new(Fid::new(0x400, 1), 0);
    objects.write(object, 0, b"before").unwrap();
    let database = here.path().join("ost0/db");
    let before = fs::read(&database).unwrap();
    // Another's claim, as a network file system would show it.
    let other = TargetDir::open(there.path()).unwrap();
    fs::copy(
        there.path().join("ost0/fence"),
        here.path().join("ost0/fence"),
    )
    .unwrap();
    let began = Instant::now();
    while objects.sync_all().is_ok() {
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "it looks at its fence"
        );
    }
    let (range, mut batch) = (ByteRange::new(0, 3), Batch::new());
    batch.put(TABLE, *b"key", *b"value");
    let refused = [
        objects.write(object, 0, b"after"),
        objects.truncate(object, 1),
        objects.punch(object, range),
        objects.allocate(object, range, false),
        objects.zero(object, range, false),
        objects.remove(object).map(drop),
        objects.sync(object),
        objects.sync_all(),
        kv.commit(batch).and_then(|_| kv.flush_once()).map(drop),
    ];
    for refused in refused {
        assert!(
            matches!(refused, Err(StorageError::FenceLost { .. })),
            "{refused:?}"
        );
    }
    let mut bytes = [0; 6];
    objects.read(object, 0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"before");
    assert!(fs::read(&database).unwrap() == before, "its records stay");
    drop(other);
}
