//! Long listings of one directory: requests that prefetch saves, never adds, and faults that it lives
//! through. Cases of Lustre's tests, restated (tests/mounted/README.md has the table).
// SEMANTICS: op.readdir, op.stat, wait.hard

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions, ReadDir};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mounted::{Cluster, run};

/// A cluster whose only mount has ended after it made `dir` with these files.
fn with_files(names: impl Iterator<Item = String>) -> Cluster {
    let mut cluster = Cluster::with_mounts(1);
    let dir = cluster.root(0).join("dir");
    cluster.timed("making files", || {
        fs::create_dir(&dir).unwrap();
        names.for_each(|name| drop(File::create(dir.join(name)).unwrap()));
    });
    cluster.unmount(0);
    cluster
}

fn numbered(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("file{number}"))
}

/// The names of `dir`, each looked at when it comes, with the call that programs without statx make.
fn look_at_all(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let looked = entries.map(|entry| {
        let entry = entry.unwrap();
        nix::sys::stat::lstat(&entry.path()).unwrap();
        entry.file_name().into_string().unwrap()
    });
    looked.collect()
}

/// The time and the requests that one cold listing takes.
fn listing(cluster: &mut Cluster, prefetch: bool, list: impl FnOnce(&Path)) -> (Duration, u64) {
    let mount = cluster.mount();
    if !prefetch {
        cluster.set_param(mount, "statahead_max", 0);
        cluster.set_param(mount, "batch_max", 1);
    }
    let dir = cluster.root(mount).join("dir");
    let mut time = Duration::ZERO;
    let requests = cluster.requests(mount, "a listing", || {
        let start = Instant::now();
        list(&dir);
        time = start.elapsed();
    });
    cluster.unmount(mount);
    (time, requests)
}

/// Pairs with and without in turn, so that what else the machine does falls on both.
#[test]
fn a_long_listing_is_never_slower_and_never_dearer_than_without_prefetch() {
    let with_statx = |dir: &Path| run(dir, "ls -l > /dev/null");
    let without_statx = |dir: &Path| drop(look_at_all(dir));
    for count in [100, 3000] {
        let mut cluster = with_files(numbered(count));
        let (mut with, mut without) = (Duration::ZERO, Duration::ZERO);
        for list in [with_statx, without_statx] {
            for _ in 0..2 {
                let first = listing(&mut cluster, true, list);
                let second = listing(&mut cluster, false, list);
                assert!(first.1 <= second.1, "{count} files: {first:?}, {second:?}");
                with += first.0;
                without += second.0;
            }
        }
        println!("{count} files: {with:?}, {without:?} without prefetch");
        let is_slower = with > without.mul_f64(1.05);
        let is_much = with > without + Duration::from_secs(2);
        assert!(
            !(is_slower && is_much),
            "{count} files: {with:?}, {without:?}"
        );
    }
}

/// Names that were read without attributes, then looked at in their order.
#[test]
fn stats_in_the_order_of_the_list_come_in_batches_of_any_size() {
    const FILES: u64 = 10_000;
    let mut cluster = with_files(numbered(FILES as usize));
    let mut costs = Vec::new();
    for (window, batch) in [(0, 1), (32, 32), (2048, 256)] {
        let mount = cluster.mount();
        cluster.set_param(mount, "statahead_max", 0);
        let dir = cluster.root(mount).join("dir");
        let mut listing = fs::read_dir(&dir).unwrap();
        let names: Vec<_> = cluster.timed("the list", || {
            let entries = listing.by_ref().map(|entry| entry.unwrap());
            entries.map(|entry| entry.file_name()).collect()
        });
        assert_eq!(names.len() as u64, FILES);
        cluster.set_param(mount, "statahead_max", window);
        cluster.set_param(mount, "batch_max", batch);
        costs.push(cluster.requests(mount, "stats", || {
            for name in &names {
                fs::symlink_metadata(dir.join(name)).unwrap();
            }
        }));
        // The kernel says some time after it that a directory was closed: nothing waits for that.
        let stats = cluster.stats(mount);
        drop(listing);
        let counted = |name: &str| stats[name].as_u64().unwrap();
        println!(
            "({window}, {batch}): {} hits, {} misses",
            counted("hit_total"),
            counted("miss_total")
        );
        if window > 0 {
            assert!(counted("hit_total") > FILES * 3 / 4, "({window}, {batch})");
            assert!(counted("statahead_batches") > 0);
        }
        cluster.unmount(mount);
    }
    assert_eq!(costs[0], FILES, "one for each without");
    assert!(costs[2] < costs[1] && costs[1] < costs[0] / 4, "{costs:?}");
}

/// A mount that does not wait: what was asked for ahead fails, and so does what it is asked for, until
/// the server is back.
#[test]
fn requests_that_fail_ahead_of_a_lister_do_not_wedge_it() {
    let mut cluster = with_files(numbered(3000));
    let mount = cluster.mount_with(&["-o", "soft,timeout=1"]);
    let dir = cluster.root(mount).join("dir");
    let look = |listing: &mut ReadDir, count: usize| -> io::Result<()> {
        listing
            .take(count)
            .try_for_each(|entry| entry?.metadata().map(drop))
    };
    let mut listing = fs::read_dir(&dir).unwrap();
    cluster.timed("the first part", || look(&mut listing, 20).unwrap());
    cluster.kill_server();
    let failed = cluster.timed("the rest", || look(&mut listing, usize::MAX));
    if let Err(error) = failed {
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
    }
    drop(listing);
    // What is at hand still needs a lock that nobody can take back unseen.
    let other = cluster.timed("a new listing", || fs::read_dir(&dir).map(Iterator::count));
    println!("without a server: {other:?}");
    cluster.restart_server();
    let start = Instant::now();
    let names = loop {
        let listed = cluster.timed("the list", || {
            fs::read_dir(&dir)?.collect::<io::Result<Vec<_>>>()
        });
        match listed {
            Ok(names) => break names,
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EIO)),
        }
        assert!(start.elapsed() < Duration::from_secs(30), "it stays wedged");
        sleep(Duration::from_millis(50));
    };
    assert_eq!(names.len(), 3000);
    assert_eq!(cluster.timed("stats", || look_at_all(&dir)).len(), 3000);
}

/// A page has as many names as fit: with the longest ones far fewer than it may have.
#[test]
fn names_of_every_length_are_each_listed_once_in_pages_of_any_size() {
    let name = |number: usize| format!("{number:0width$}", width = 5 + number * 7 % 251);
    let all: BTreeSet<String> = (0..4000).map(name).collect();
    assert!(all.len() == 4000 && all.iter().any(|name| name.len() == 255));
    let mut cluster = with_files(all.iter().cloned());
    for window in [0, 1, 7, 8192, 65_536] {
        let mount = cluster.mount();
        cluster.set_param(mount, "statahead_max", window);
        let dir = cluster.root(mount).join("dir");
        let listed = cluster.timed("a listing", || look_at_all(&dir));
        let names: BTreeSet<String> = listed.iter().cloned().collect();
        assert_eq!(listed.len(), names.len(), "twice, window {window}");
        assert!(names == all, "window {window}");
        cluster.unmount(mount);
    }
}

#[test]
fn to_open_a_directory_and_read_its_first_page_is_one_request() {
    let mut cluster = with_files(numbered(100));
    let mount = cluster.mount();
    let dir = cluster.root(mount).join("dir");
    cluster.timed("a look", || fs::metadata(&dir).unwrap());
    let mut count = 0;
    let list = || count = fs::read_dir(&dir).unwrap().count();
    assert_eq!(cluster.requests(mount, "opening and reading", list), 1);
    assert_eq!(count, 100);
}

/// What is kept of a walk ends half a minute after it was used last.
#[test]
#[ignore = "soak: half a minute"]
fn soak_a_lister_goes_on_after_what_was_fetched_for_it_is_given_up() {
    let mut cluster = with_files(numbered(3000));
    let [mount, other] = [cluster.mount(), cluster.mount()];
    let dir = cluster.root(mount).join("dir");
    let mut listing = fs::read_dir(&dir).unwrap();
    let next = |listing: &mut ReadDir, count: usize| -> Vec<_> {
        let next = listing.take(count).map(|entry| entry.unwrap());
        next.map(|entry| {
            (
                entry.file_name(),
                entry.metadata().unwrap().permissions().mode() & 0o777,
            )
        })
        .collect()
    };
    let first = cluster.timed("the first part", || next(&mut listing, 20));
    sleep(Duration::from_secs(32));
    cluster.timed("changes elsewhere", || {
        for name in numbered(3000).step_by(10) {
            let path = cluster.root(other).join("dir").join(name);
            fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
        }
    });
    let rest = cluster.timed("the rest", || next(&mut listing, usize::MAX));
    assert_eq!(first.len() + rest.len(), 3000);
    let number = |name: &std::ffi::OsString| -> usize {
        name.to_str().unwrap()["file".len()..].parse().unwrap()
    };
    for (name, mode) in &rest {
        let expected = if number(name) % 10 == 0 { 0o600 } else { 0o644 };
        assert_eq!(*mode, expected, "{name:?}");
    }
}
