//! Names asked for in sorted order without a listing: their directory's list comes, and is true.
// SEMANTICS: op.lookup, op.stat, op.create

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::path::Path;

use mounted::Cluster;

const FILES: u32 = 2000;

/// In the order of numbers, and without any.
fn name(number: u32) -> String {
    let letter = |place: u32| char::from(b'a' + (number / 26u32.pow(place) % 26) as u8);
    (0..3).rev().map(letter).collect()
}

/// A cluster with a directory of files, durable, and a mount that knows nothing of them.
fn with_files() -> (Cluster, usize) {
    let mut cluster = Cluster::with_mounts(1);
    let dir = cluster.root(0).join("dir");
    cluster.timed("making files", || {
        fs::create_dir(&dir).unwrap();
        (0..FILES).for_each(|n| drop(File::create(dir.join(name(n))).unwrap()));
    });
    cluster.unmount(0);
    let cold = cluster.mount();
    (cluster, cold)
}

fn exist(dir: &Path, numbers: impl Iterator<Item = u32>) -> u32 {
    numbers.filter(|n| dir.join(name(*n)).exists()).count() as u32
}

#[test]
fn all_of_a_long_directory_costs_little_and_few_of_it_not_much_more_than_they_do() {
    let (mut cluster, cold) = with_files();
    let dir = |cluster: &Cluster, mount| cluster.root(mount).join("dir");
    let root = dir(&cluster, cold);
    let sent = cluster.requests(cold, "all", || {
        assert_eq!(exist(&root, 0..FILES), FILES);
    });
    assert!(sent <= u64::from(FILES) / 40, "{sent} requests");
    for few in [3, 20] {
        let [with, without] = [true, false].map(|prefetch| {
            let mount = cluster.mount();
            if !prefetch {
                cluster.set_param(mount, "statahead_max", 0);
            }
            let root = dir(&cluster, mount);
            cluster.requests(mount, "few", || {
                assert_eq!(exist(&root, (0..few).map(|n| n * 90)), few);
            })
        });
        // One short page, which may not bring what is needed.
        assert!(with <= without + 1, "{with} requests, {without} without");
    }
}

#[test]
fn who_looks_for_what_is_not_there_takes_no_list() {
    let (mut cluster, cold) = with_files();
    let without = cluster.mount();
    cluster.set_param(without, "statahead_max", 0);
    let [with, without] = [cold, without].map(|mount| {
        let dir = cluster.root(mount).join("dir");
        cluster.requests(mount, "names", || {
            for n in FILES..FILES + 300 {
                assert!(!dir.join(name(n)).exists());
            }
        })
    });
    assert!(with <= without, "{with} requests, {without} without");
}

#[test]
fn names_that_change_elsewhere_are_seen_after_the_list_has_come() {
    let (mut cluster, cold) = with_files();
    let other = cluster.mount();
    let [here, there] = [cold, other].map(|mount| cluster.root(mount).join("dir"));
    cluster.timed("changes", || {
        for round in 0..5 {
            assert_eq!(exist(&here, 0..FILES), FILES - round);
            let (made, gone) = (
                there.join(format!("new{round}")),
                there.join(name(7 * round)),
            );
            assert!(!here.join(made.file_name().unwrap()).exists());
            File::create(&made).unwrap();
            fs::remove_file(&gone).unwrap();
            assert!(
                here.join(made.file_name().unwrap()).exists(),
                "round {round}"
            );
            assert!(
                !here.join(gone.file_name().unwrap()).exists(),
                "round {round}"
            );
        }
    });
}
