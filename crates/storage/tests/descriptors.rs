//! A target goes on where the process has no descriptor left. Alone in its program: the limit is the
//! process's.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, a failed unwrap is a failed test"
)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use base::{Fid, SeededRng, TargetName, Timestamp};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use storage::{FormatRequest, ObjectId, ObjectStore, TargetDir};

/// Where a fence's holder shows that it lives (docs/disk.md).
const BEAT: (u64, usize) = (4096, 512);

fn id(n: u32) -> ObjectId {
    ObjectId::new(Fid::new(0x400, n), 0)
}

#[test]
fn without_a_descriptor_fences_are_kept_and_objects_made_written_and_synced() {
    let dir = tempfile::tempdir().unwrap();
    let request = FormatRequest {
        fs_name: "demo".parse().unwrap(),
        fs_uuid: None,
        key: None,
        server_key: None,
        targets: vec![TargetName::ost(0)],
        created: Timestamp { secs: 7, nanos: 0 },
        bytes: storage::ObjectBytes::Files,
    };
    let mut rng = SeededRng::new(1);
    TargetDir::format(dir.path(), &request, &mut |_, _| Ok(()), &mut rng).unwrap();
    let open = TargetDir::open(dir.path()).unwrap();
    let target = &open.targets()[0];
    let objects = target.objects_keeping(64).unwrap();
    for n in 1..=64 {
        objects.write(id(n), 0, b"before").unwrap();
    }
    let fence = File::open(dir.path().join("ost0/fence")).unwrap();
    let beat = || {
        let mut sector = [0; BEAT.1];
        fence.read_exact_at(&mut sector, BEAT.0).unwrap();
        sector
    };
    let lowest_free = File::open("/dev/null").unwrap().as_raw_fd();
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, lowest_free as u64, hard).unwrap();
    let none_left = File::open("/dev/null").unwrap_err();
    assert_eq!(none_left.raw_os_error(), Some(libc::EMFILE));

    // Objects that are not kept take the descriptors of those that are.
    for n in 1..=200 {
        objects.write(id(n), 0, b"words").unwrap();
    }
    objects.sync(id(200)).unwrap();
    // And where none is kept that could be closed, all is synced by what is open.
    let mut taken = Vec::new();
    for n in 1..=5 {
        while let Ok(file) = File::open("/dev/null") {
            taken.push(file);
        }
        objects.write(id(n), 5, b"more").unwrap();
        objects.sync(id(n)).unwrap();
        objects.sync(id(n + 100)).unwrap();
    }
    // Longer than a fence is held without being kept.
    let (began, mut seen) = (Instant::now(), vec![beat()]);
    while seen.len() < 7 {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{} beats",
            seen.len()
        );
        std::thread::sleep(Duration::from_millis(20));
        if seen.last() != Some(&beat()) {
            seen.push(beat());
        }
    }
    assert!(target.fence().unwrap().is_held());
    drop(taken);
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let mut found = [0; 9];
    objects.read(id(5), 0, &mut found).unwrap();
    assert_eq!(&found, b"wordsmore");
}
