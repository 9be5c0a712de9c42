//! Listings of a directory in which other mounts change a few files meanwhile: what does not change costs
//! no request of its own.
// SEMANTICS: op.readdir, op.stat, cache.attributes

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use mounted::{Cluster, PATIENCE};

const FILES: u64 = 3000;
/// Files of a page, at least; and requests for a name that changes, at most.
const PAGE: u64 = 100;
const EACH: u64 = 10;

fn name(number: u64) -> String {
    format!("file{number:04}")
}

/// `dir` with its files, and so many mounts of which none has seen them.
fn with_files(mounts: usize) -> Cluster {
    let mut cluster = Cluster::with_mounts(1);
    let dir = cluster.root(0).join("dir");
    cluster.timed("making files", || {
        fs::create_dir(&dir).unwrap();
        (0..FILES).for_each(|number| drop(File::create(dir.join(name(number))).unwrap()));
    });
    cluster.unmount(0);
    (0..mounts).for_each(|_| assert!(cluster.mount() > 0));
    cluster
}

fn dir(cluster: &Cluster, mount: usize) -> PathBuf {
    cluster.root(mount).join("dir")
}

/// What `ls -l` does: the names, each file having been stat'ed as soon as its name was read.
fn list(dir: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        // It may be gone.
        let stat = entry.metadata();
        assert!(stat.is_ok() || stat.unwrap_err().kind() == std::io::ErrorKind::NotFound);
        names.insert(entry.file_name().into_string().unwrap());
    }
    names
}

/// Requests of a kind that a mount has sent.
fn sent(cluster: &Cluster, mount: usize, kind: &str) -> u64 {
    cluster.stats(mount)["requests"][kind].as_u64().unwrap_or(0)
}

/// Waits until the mount has sent so many requests of that kind.
fn wait_until_sent(cluster: &Cluster, mount: usize, (kind, count): (&str, u64)) {
    let begun = Instant::now();
    while sent(cluster, mount, kind) < count {
        assert!(begun.elapsed() < PATIENCE, "no {kind}");
        sleep(Duration::from_millis(20));
    }
}

/// Of so many requests those that are not for the directory's own attributes are bounded by what changes.
fn check(cluster: &Cluster, mount: usize, all: u64, changes: u64) {
    let of = &cluster.stats(mount)["requests"];
    let others = all - sent(cluster, mount, "getattr");
    assert!(
        others <= FILES / PAGE + changes * EACH,
        "{others} requests: {of}"
    );
    assert!(
        all <= FILES + FILES / PAGE + changes * EACH,
        "{all} requests: {of}"
    );
}

/// The changes wait for a mount that answers nobody, all the time while the directory is listed. No lock
/// covers the directory's own attributes meanwhile: the kernel asks for them before it looks at a file.
#[test]
fn a_listing_beside_files_under_change_asks_for_those_and_the_directory_alone() {
    let mut cluster = with_files(3);
    let [holder, reader, writer] = [1, 2, 3];
    assert_eq!(list(&dir(&cluster, holder)).len() as u64, FILES);
    cluster.freeze_mount(holder);
    let changed = [1, 1000, 2000];
    thread::scope(|scope| {
        for number in changed {
            let path = dir(&cluster, writer).join(name(number));
            let private = Permissions::from_mode(0o600);
            scope.spawn(|| fs::set_permissions(path, private).unwrap());
        }
        wait_until_sent(&cluster, writer, ("setattr", 3));
        let read = dir(&cluster, reader);
        let all = cluster.requests(reader, "ls -l beside files under change", || {
            assert_eq!(list(&read).len() as u64, FILES);
        });
        check(&cluster, reader, all, changed.len() as u64);
        cluster.thaw_mount(holder);
    });
    let read = dir(&cluster, reader);
    for number in changed {
        let mode = fs::metadata(read.join(name(number)))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn a_listing_beside_names_under_change_asks_for_those_and_the_directory_alone() {
    let mut cluster = with_files(4);
    let [holder, reader, creates, removes] = [1, 2, 3, 4];
    assert_eq!(list(&dir(&cluster, holder)).len() as u64, FILES);
    cluster.freeze_mount(holder);
    let kept = BTreeSet::from_iter((0..FILES).filter(|n| *n != 2).map(name));
    thread::scope(|scope| {
        let [new, gone] = [(creates, "new".to_owned()), (removes, name(2))]
            .map(|(mount, name)| dir(&cluster, mount).join(name));
        scope.spawn(|| drop(File::create(new).unwrap()));
        scope.spawn(|| fs::remove_file(gone).unwrap());
        wait_until_sent(&cluster, creates, ("create", 1));
        wait_until_sent(&cluster, removes, ("unlink", 1));
        let read = dir(&cluster, reader);
        let all = cluster.requests(reader, "ls -l beside names under change", || {
            assert!(list(&read).is_superset(&kept));
        });
        check(&cluster, reader, all, 2);
        cluster.thaw_mount(holder);
    });
    let after = cluster.timed("afterwards", || list(&dir(&cluster, reader)));
    assert_eq!(after, &kept | &BTreeSet::from(["new".to_owned()]));
}

/// Few enough that the directory is not fought over.
#[test]
fn a_listing_that_changes_cross_asks_for_those_alone() {
    const CHANGES: u64 = 4;
    let cluster = with_files(2);
    let [reader, writer] = [1, 2];
    let (read, written) = (dir(&cluster, reader), dir(&cluster, writer));
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..CHANGES {
                // Some are new, and some are not.
                let name = format!("file{:04}", FILES - CHANGES / 2 + number);
                fs::write(written.join(name), b"changed").unwrap();
                sleep(Duration::from_millis(30));
            }
        });
        let sent = cluster.requests(reader, "ls -l beside a writer", || drop(list(&read)));
        let of = &cluster.stats(reader)["requests"];
        assert!(
            sent <= FILES / PAGE + CHANGES * EACH,
            "{sent} requests: {of}"
        );
    });
    assert_eq!(list(&read).len() as u64, FILES + CHANGES / 2);
}
