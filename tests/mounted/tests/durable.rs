//! Durability when a call returns, its cost in requests, and the state of replaced files after a crash.
//! Mounts are not supervised: their processes take unsent changes along.
// SEMANTICS: op.fsync, op.write, op.append, op.rename, op.close, crash.mount

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File, OpenOptions};
use std::io::{IoSlice, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use mounted::{Cluster, PATIENCE};
use rustix::io::{ReadWriteFlags, pwritev2};

const BYTES: usize = 8192;
/// What is not asked for is not sent in a test's time.
const NEVER_MS: u64 = 60_000;
const TIMEOUT: Duration = Duration::from_secs(2);
const ROUNDS: usize = 19;

fn create(path: &Path, flags: i32) -> File {
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).write(true);
    options.custom_flags(flags).open(path).unwrap()
}

/// A cluster with one mount that sends nothing by itself.
fn quiet() -> Cluster {
    let cluster = Cluster::with_mounts(1);
    cluster.set_param(0, "dirty_age_ms", NEVER_MS);
    cluster
}

#[test]
fn a_write_that_is_to_be_durable_is_when_it_returns() {
    let mut cluster = Cluster::that_evicts_after(TIMEOUT, 1);
    cluster.set_param(0, "dirty_age_ms", NEVER_MS);
    let root = cluster.root(0).to_owned();
    cluster.timed("writing", || {
        let dsync = create(&root.join("dsync"), libc::O_DSYNC);
        dsync.write_all_at(&[1; BYTES], 0).unwrap();
        let sync = create(&root.join("sync"), libc::O_SYNC);
        sync.write_all_at(&[2; BYTES], 0).unwrap();
        let mut options = OpenOptions::new();
        options
            .create(true)
            .append(true)
            .custom_flags(libc::O_DSYNC);
        let mut append = options.open(root.join("append")).unwrap();
        for _ in 0..2 {
            append.write_all(&[3; BYTES / 2]).unwrap();
        }
        let once = create(&root.join("once"), 0);
        let data = [4_u8; BYTES];
        let data = [IoSlice::new(&data)];
        let count = pwritev2(once.as_fd(), &data, 0, ReadWriteFlags::DSYNC).unwrap();
        assert_eq!(count, BYTES);
        let unasked = create(&root.join("unasked"), 0);
        unasked.write_all_at(&[5; BYTES], 0).unwrap();
    });
    cluster.kill_mount(0);
    cluster.mount_again(0).unwrap();
    for (name, byte) in [("dsync", 1_u8), ("sync", 2), ("append", 3), ("once", 4)] {
        assert_eq!(fs::read(root.join(name)).unwrap(), [byte; BYTES], "{name}");
    }
    // Or this shows nothing.
    assert!(fs::read(root.join("unasked")).unwrap().is_empty());
}

/// A file with bytes and a name that are durable.
fn settled(path: &Path) -> File {
    let file = create(path, 0);
    file.write_all_at(&[1; 10 * BYTES], 0).unwrap();
    file.sync_all().unwrap();
    file
}

#[test]
fn what_was_overwritten_is_made_durable_by_one_request() {
    let cluster = quiet();
    let root = cluster.root(0);
    let file = settled(&root.join("file"));
    let once = cluster.requests(0, "write and fdatasync", || {
        file.write_all_at(&[2; BYTES], 0).unwrap();
        file.sync_data().unwrap();
    });
    assert_eq!(once, 1);
    let many = cluster.requests(0, "ten times fsync, of two places each", || {
        for round in 0..10 {
            file.write_all_at(&[round; 100], 5).unwrap();
            file.write_all_at(&[round; 100], 5 * 8192).unwrap();
            file.sync_all().unwrap();
        }
    });
    assert_eq!(many, 10);
    let nothing = cluster.requests(0, "fsync of what is durable", || {
        for _ in 0..10 {
            file.sync_all().unwrap();
        }
    });
    assert_eq!(nothing, 0);
    drop(file);
    let mut durable = OpenOptions::new();
    let durable = durable.write(true).custom_flags(libc::O_DSYNC);
    let durable = durable.open(root.join("file")).unwrap();
    durable.write_all_at(&[3; BYTES], 0).unwrap();
    let asked = cluster.requests(0, "ten writes with O_DSYNC", || {
        for round in 0..10 {
            durable.write_all_at(&[round; BYTES], 0).unwrap();
        }
    });
    assert_eq!(asked, 10);
}

#[test]
fn a_new_file_is_made_durable_at_both_targets_at_once() {
    let cluster = quiet();
    let root = cluster.root(0);
    let file = create(&root.join("file"), 0);
    file.write_all_at(&[2; BYTES], 0).unwrap();
    let first = cluster.requests(0, "fsync of a new file", || file.sync_all().unwrap());
    assert!(first <= 2, "{first}: its bytes, and its name");
    file.write_all_at(&[2; BYTES], 0).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o600))
        .unwrap();
    let changed = cluster.requests(0, "fsync of a new mode and bytes", || {
        file.sync_all().unwrap()
    });
    assert!(
        changed <= 3,
        "{changed}: bytes, the mode, and that it be durable"
    );
}

/// Old bytes that are durable, and new ones that nobody made so.
fn bytes(round: usize, generation: u8) -> Vec<u8> {
    (0..3 * BYTES)
        .map(|at| (at / 7 + round) as u8 ^ generation)
        .collect()
}

/// The name leads to all of the old bytes or to all of the new ones.
fn is_old_or_new(path: &Path, round: usize) {
    let read = fs::read(path).unwrap();
    let known = [0, 0xFF].map(|generation| bytes(round, generation));
    assert!(
        known.contains(&read),
        "{}: {} bytes",
        path.display(),
        read.len()
    );
}

/// Both servers and the mount that wrote are killed just after the rename returned.
fn replaced_then_killed(renamer: usize) {
    let mut cluster = Cluster::that_evicts_after(TIMEOUT, 2);
    for number in 0..2 {
        cluster.set_param(number, "dirty_age_ms", NEVER_MS);
    }
    let (one, other) = (cluster.root(0).to_owned(), cluster.root(renamer).to_owned());
    cluster.timed("replacing", || {
        for round in 0..ROUNDS {
            let old = create(&one.join(format!("file{round}")), 0);
            old.write_all_at(&bytes(round, 0), 0).unwrap();
            old.sync_all().unwrap();
        }
        for round in 0..ROUNDS {
            fs::write(one.join("new"), bytes(round, 0xFF)).unwrap();
            fs::rename(other.join("new"), other.join(format!("file{round}"))).unwrap();
        }
    });
    cluster.kill_server();
    cluster.kill_mount(0);
    cluster.restart_server();
    cluster.mount_again(0).unwrap();
    cluster.timed("looking", || {
        for round in 0..ROUNDS {
            is_old_or_new(&one.join(format!("file{round}")), round);
        }
    });
}

#[test]
fn a_file_that_replaces_another_has_its_bytes_before_it_has_the_name() {
    replaced_then_killed(0);
}

#[test]
fn a_file_that_another_mount_renames_has_its_bytes_before_it_has_the_name() {
    replaced_then_killed(1);
}

#[test]
fn a_rename_to_a_free_name_waits_for_no_disk() {
    let cluster = quiet();
    let root = cluster.root(0);
    fs::write(root.join("new"), bytes(0, 0)).unwrap();
    fs::read_dir(root).unwrap().for_each(drop);
    let count = cluster.requests(0, "a rename to a free name", || {
        fs::rename(root.join("new"), root.join("free")).unwrap();
    });
    assert!(count <= 2, "{count}");
    assert_ne!(cluster.stats(0)["unsent_bytes"].as_u64(), Some(0));
}

#[test]
fn the_bytes_of_a_file_that_was_emptied_are_sent_when_it_is_closed() {
    let cluster = quiet();
    let path = cluster.root(0).join("file");
    drop(settled(&path));
    let unsent = || cluster.stats(0)["unsent_bytes"].as_u64().unwrap();
    let mut file = File::create(&path).unwrap();
    file.write_all(&bytes(0, 0)).unwrap();
    drop(file);
    let closed = Instant::now();
    while unsent() > 0 {
        assert!(closed.elapsed() < PATIENCE, "they stay here");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(fs::read(&path).unwrap(), bytes(0, 0));
}
