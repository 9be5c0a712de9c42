//! Files that a mount makes by itself and tells the MDT of later.
// SEMANTICS: op.create, op.mkdir, op.unlink, op.rmdir, op.fsync, cache.names

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mounted::Cluster;

const FILES: usize = 300;
const TIMEOUT: Duration = Duration::from_secs(2);

/// Two mounts; the first makes files by itself, and tells of them when it must.
fn cluster() -> Cluster {
    let cluster = Cluster::with_mounts(2);
    cluster.set_param(0, "wbc", 1);
    cluster.set_param(0, "writeback_age_ms", 600_000);
    cluster
}

fn make(dir: &Path) {
    for number in 0..FILES {
        let below = dir.join(format!("d{}", number % 7));
        if number < 7 {
            fs::create_dir(&below).unwrap();
        }
        let file = below.join(format!("f{number}"));
        fs::write(&file, format!("words {number}")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("f0", below.join(format!("s{number}"))).unwrap();
    }
}

/// A directory that was there before: it has so many names.
fn existing(cluster: &Cluster) -> PathBuf {
    cluster.set_param(0, "wbc", 0);
    let dir = cluster.root(0).join("old");
    fs::create_dir(&dir).unwrap();
    for number in 0..1000 {
        std::os::unix::fs::symlink("x", dir.join(format!("old{number}"))).unwrap();
    }
    File::open(&dir).unwrap().sync_all().unwrap();
    cluster.set_param(0, "wbc", 1);
    dir
}

fn look(dir: &Path) -> String {
    let script = "find . -printf '%p %y %m %s %l\\n' | sort; find . -type f | sort | xargs cat";
    let mut command = Command::new("sh");
    let output = command
        .args(["-c", script])
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_new_tree_is_made_without_a_request_and_seen_by_all() {
    let mut cluster = cluster();
    let dir = cluster.root(0).join("tree");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("first"), "so that there are ids").unwrap();
    let sent = || {
        let mut requests = cluster.stats(0)["requests"].clone();
        // The lock that the write lease has made needless goes when there is time for it.
        requests.as_object_mut().unwrap().remove("cancel");
        requests
    };
    let before = sent();
    cluster.timed("a tree is made", || make(&dir));
    assert_eq!(sent(), before);
    let here = look(&dir);
    let local = cluster.local().join("tree");
    fs::create_dir_all(&local).unwrap();
    fs::write(local.join("first"), "so that there are ids").unwrap();
    make(&local);
    // Their directories have sizes of their own.
    let plain = |text: &str| {
        let lines = text.lines().filter(|line| !line.contains(" d "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(plain(&here), plain(&look(&local)));
    let there = cluster.root(1).join("tree");
    let seen = cluster.timed("the other mount looks", || look(&there));
    assert_eq!(seen, here);
    let again = look(&dir);
    assert_eq!(again, here);
    (0..2).for_each(|mount| cluster.unmount(mount));
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}

/// What a large tree may take on a busy machine.
const MAKING: Duration = Duration::from_secs(240);
/// So many directories, and so many files in each.
const MANY: (usize, usize) = (200, 100);

/// A large tree that nobody has heard of, but for its top.
fn large_tree(cluster: &Cluster) -> PathBuf {
    let dir = cluster.root(0).join("tree");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("first"), "so that there are ids").unwrap();
    File::open(dir.join("first")).unwrap().sync_all().unwrap();
    cluster.timed_for(MAKING, "a large tree is made", || {
        for number in 0..MANY.0 {
            let below = dir.join(format!("d{number}"));
            fs::create_dir(&below).unwrap();
            for number in 0..MANY.1 {
                File::create(below.join(format!("f{number}"))).unwrap();
            }
        }
    });
    dir
}

/// The changes that the first mount has sent in sets, and the sets.
fn reported(cluster: &Cluster) -> (u64, u64) {
    let stats = cluster.stats(0);
    let of = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
    (
        of(&stats["update_changes"]),
        of(&stats["requests"]["update"]),
    )
}

#[test]
fn fsync_reports_a_file_and_what_leads_to_it_and_nothing_beside_it() {
    let mut cluster = Cluster::that_evicts_after(TIMEOUT, 2);
    cluster.set_param(0, "wbc", 1);
    cluster.set_param(0, "writeback_age_ms", 600_000);
    let dir = large_tree(&cluster);
    let below = dir.join("d7/deep/deeper");
    fs::create_dir_all(&below).unwrap();
    let mut file = File::create(below.join("file")).unwrap();
    file.write_all(b"words").unwrap();
    let before = reported(&cluster);
    let frames = cluster.requests(0, "fsync of one file", || file.sync_all().unwrap());
    let after = reported(&cluster);
    assert_eq!(after.0 - before.0, 4, "the file and three directories");
    assert!(frames <= 4, "{frames} frames");
    // Of a directory what is in it goes, and nothing below that.
    let frames = cluster.requests(0, "fsync of a directory", || {
        File::open(&dir).unwrap().sync_all().unwrap();
    });
    assert_eq!(reported(&cluster).0 - after.0, MANY.0 as u64 - 1);
    assert!(frames <= 3, "{frames} frames");
    drop(file);
    cluster.kill_mount(0);
    let there = cluster.root(1).join("tree");
    cluster.timed("the other mount looks", || {
        assert_eq!(fs::read_dir(&there).unwrap().count(), MANY.0 + 1);
        let file = there.join("d7/deep/deeper/file");
        assert_eq!(fs::read(file).unwrap(), b"words");
        assert_eq!(fs::read_dir(there.join("d7")).unwrap().count(), 1);
    });
}

#[test]
fn a_visitor_waits_for_the_entries_of_one_directory() {
    let cluster = cluster();
    let dir = large_tree(&cluster);
    let there = cluster.root(1).join("tree");
    let steps = [
        (there.clone(), MANY.0 + 1, MANY.0),
        (there.join("d5"), MANY.1, MANY.1),
    ];
    for (dir, names, most) in steps {
        let before = reported(&cluster);
        let count = cluster.timed("a first look", || fs::read_dir(dir).unwrap().count());
        let after = reported(&cluster);
        assert_eq!(count, names);
        assert_eq!(after.0 - before.0, most as u64);
        assert!(after.1 - before.1 <= 1, "{} sets", after.1 - before.1);
    }
    assert_eq!(fs::read_dir(dir.join("d5")).unwrap().count(), MANY.1);
}

#[test]
fn what_comes_and_goes_leaves_nothing() {
    let cluster = cluster();
    let dir = cluster.root(0).join("tree");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("first"), "").unwrap();
    File::open(&dir).unwrap().sync_all().unwrap();
    let all = cluster.requests(0, "a tree comes and goes", || {
        make(&dir);
        for number in 0..7 {
            fs::remove_dir_all(dir.join(format!("d{number}"))).unwrap();
        }
        File::open(&dir).unwrap().sync_all().unwrap();
    });
    assert!(all <= 1, "{all} requests");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    assert_eq!(
        fs::read_dir(cluster.root(1).join("tree")).unwrap().count(),
        1
    );
}

#[test]
fn files_are_made_in_a_directory_that_was_there_without_a_request() {
    let cluster = cluster();
    let dir = existing(&cluster);
    let count = cluster.requests(0, "1,000 files more", || {
        for number in 0..1000 {
            File::create_new(dir.join(format!("new{number}"))).unwrap();
        }
    });
    assert!(count <= 5, "{count} requests");
    for there_already in ["old7", "new7"] {
        let again = File::create_new(dir.join(there_already));
        assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists);
    }
    let there = cluster.root(1).join("old");
    assert_eq!(look(&there), look(&dir));
    assert_eq!(fs::read_dir(&there).unwrap().count(), 2000);
    // The lease is gone, and both make files.
    fs::write(there.join("theirs"), "theirs").unwrap();
    fs::write(dir.join("ours"), "ours").unwrap();
    assert_eq!(look(&there), look(&dir));
}

#[test]
fn a_file_that_another_mount_has_open_stays_outside_the_lease() {
    let cluster = cluster();
    let dir = existing(&cluster);
    let elsewhere = cluster.root(1).join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("file"), b"words").unwrap();
    let theirs = File::open(elsewhere.join("file")).unwrap();
    let ours = dir.join("file");
    fs::rename(cluster.root(0).join("elsewhere/file"), &ours).unwrap();
    File::create_new(dir.join("first")).unwrap();
    let made = || {
        for number in 0..100 {
            File::create_new(dir.join(format!("new{number}"))).unwrap();
        }
    };
    assert!(cluster.requests(0, "the lease is there", made) <= 5);
    let mode = || fs::metadata(&ours).unwrap().permissions().mode() & 0o777;
    for bits in [0o600, 0o640, 0o604] {
        let permissions = fs::Permissions::from_mode(bits);
        theirs.set_permissions(permissions).unwrap();
        assert_eq!(mode(), bits);
    }
    assert_eq!(fs::read(&ours).unwrap(), b"words");
    fs::remove_file(&ours).unwrap();
    assert_eq!(theirs.metadata().unwrap().len(), 5);
    assert_eq!(theirs.metadata().unwrap().nlink(), 0);
}
