//! Files that a mount makes by itself and tells the MDT of later.
// SEMANTICS: op.create, op.mkdir, op.unlink, op.rmdir, op.fsync, cache.names

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use mounted::Cluster;

const FILES: usize = 300;

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
