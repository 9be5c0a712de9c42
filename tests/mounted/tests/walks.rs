//! Walks of one directory: what is fetched ahead, and changes, closes, kills and unmounts that end it.
// SEMANTICS: op.readdir, op.unlink, op.rename, wait.hard

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::collections::BTreeSet;
use std::fs::{self, File, ReadDir};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use mounted::Cluster;

const FILES: usize = 3000;

/// A cluster with a directory of files, durable, and one mount that knows nothing of it.
fn with_directory() -> (Cluster, usize) {
    let mut cluster = Cluster::with_mounts(1);
    let dir = cluster.root(0).join("dir");
    cluster.timed("making files", || {
        fs::create_dir(&dir).unwrap();
        (0..FILES).for_each(|number| drop(File::create(file(&dir, number)).unwrap()));
    });
    cluster.unmount(0);
    let cold = cluster.mount();
    (cluster, cold)
}

fn file(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("file{number}"))
}

/// Stats the next `count` entries; their names.
fn walk(listing: &mut ReadDir, count: usize) -> Vec<String> {
    let next = listing.take(count).map(|entry| {
        let entry = entry.unwrap();
        // It may have been removed since it was listed.
        let _ = entry.metadata();
        entry.file_name().into_string().unwrap()
    });
    next.collect()
}

fn names(listing: ReadDir) -> Vec<String> {
    let names = listing.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// What is known of the list ends where nothing is left of it.
#[test]
fn a_listing_goes_on_behind_what_was_removed_in_front_of_it() {
    let (mut cluster, cold) = with_directory();
    let order = cluster.timed("listing", || {
        names(fs::read_dir(cluster.root(cold).join("dir")).unwrap())
    });
    cluster.unmount(cold);
    let cold = cluster.mount();
    // So that a page comes when it is needed and not before: its end is met.
    cluster.set_param(cold, "statahead_max", 0);
    let dir = cluster.root(cold).join("dir");
    let (removed, left) = order.split_at(FILES / 2);
    cluster.timed("removing what is next", || {
        let mut listing = fs::read_dir(&dir).unwrap();
        assert!(listing.next().is_some());
        for name in removed {
            fs::remove_file(dir.join(name)).unwrap();
        }
        let rest: BTreeSet<String> = names(listing).into_iter().collect();
        let missing = left.iter().filter(|name| !rest.contains(*name)).count();
        assert_eq!(missing, 0, "of {} files", left.len());
    });
}

#[test]
fn a_listing_closed_in_the_middle_ends_what_it_fetches() {
    let (cluster, cold) = with_directory();
    let dir = cluster.root(cold).join("dir");
    cluster.timed("closing listings", || {
        for length in [1, 2, 10, 100, 1000, 0, 5] {
            let mut listing = fs::read_dir(&dir).unwrap();
            assert_eq!(walk(&mut listing, length).len(), length);
        }
        assert_eq!(fs::read_dir(&dir).unwrap().count(), FILES);
    });
}

#[test]
fn names_removed_and_moved_during_a_walk_are_not_seen_afterwards() {
    let (mut cluster, cold) = with_directory();
    let other = cluster.mount();
    let [dir, theirs] = [cold, other].map(|mount| cluster.root(mount).join("dir"));
    cluster.timed("changes during a walk", || {
        let mut listing = fs::read_dir(&dir).unwrap();
        let mut seen = walk(&mut listing, FILES / 10);
        for number in (0..FILES).step_by(100) {
            fs::remove_file(file(&theirs, number)).unwrap();
            fs::rename(
                file(&theirs, number + 1),
                theirs.join(format!("moved{number}")),
            )
            .unwrap();
            assert!(!file(&dir, number).exists() && !file(&dir, number + 1).exists());
            assert!(dir.join(format!("moved{number}")).exists());
        }
        seen.extend(walk(&mut listing, usize::MAX));
        let stayed = (0..FILES).filter(|number| number % 100 > 1);
        let seen: BTreeSet<String> = seen.into_iter().collect();
        let missing: Vec<_> = stayed
            .filter(|n| !seen.contains(&format!("file{n}")))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
        let names = |dir: &Path| -> BTreeSet<_> {
            let entries = fs::read_dir(dir).unwrap();
            entries.map(|entry| entry.unwrap().file_name()).collect()
        };
        assert_eq!(names(&dir), names(&theirs));
    });
}

#[test]
fn a_walk_goes_on_when_the_server_was_killed_in_its_middle() {
    let (mut cluster, cold) = with_directory();
    let dir = cluster.root(cold).join("dir");
    let mut listing = cluster.timed("opening", || fs::read_dir(&dir).unwrap());
    let mut seen = cluster.timed("the first part", || walk(&mut listing, 20));
    cluster.kill_server();
    let rest = thread::spawn(move || walk(&mut listing, usize::MAX));
    thread::sleep(Duration::from_millis(100));
    cluster.restart_server();
    seen.extend(cluster.timed("the rest", || rest.join().unwrap()));
    let names: BTreeSet<String> = seen.iter().cloned().collect();
    assert_eq!((seen.len(), names.len()), (FILES, FILES));
}

#[test]
fn an_unmount_ends_walks_that_nobody_goes_on_with() {
    let (mut cluster, cold) = with_directory();
    let dir = cluster.root(cold).join("dir");
    let mut listing = cluster.timed("opening", || fs::read_dir(&dir).unwrap());
    cluster.timed("a part", || walk(&mut listing, 3));
    drop(listing);
    cluster.unmount(cold);
}

/// What a mount has asked servers, each question of a message.
fn questions(cluster: &Cluster, mount: usize) -> u64 {
    let stats = cluster.stats(mount);
    let kinds = stats["requests"].as_object().unwrap();
    kinds.values().map(|count| count.as_u64().unwrap()).sum()
}

#[test]
fn who_lists_what_others_write_to_pays_no_more_than_without_prefetch() {
    const WRITTEN: u64 = 300;
    let mut counts = Vec::new();
    for prefetch in [true, false] {
        let mut cluster = Cluster::with_mounts(1);
        let dir = cluster.root(0).join("dir");
        let mut writers: Vec<File> = cluster.timed("making files", || {
            fs::create_dir(&dir).unwrap();
            let make = |number| File::create(file(&dir, number as usize)).unwrap();
            (0..WRITTEN).map(make).collect()
        });
        let reader = cluster.mount();
        if !prefetch {
            cluster.set_param(reader, "statahead_max", 0);
        }
        let dir = cluster.root(reader).join("dir");
        let mut written = 0;
        let before = questions(&cluster, reader);
        cluster.timed("listings", || {
            for round in 0..5u64 {
                for (number, writer) in writers.iter_mut().enumerate() {
                    let bytes = vec![7; (round * number as u64) as usize % 1000];
                    writer.write_all(&bytes).unwrap();
                    written += bytes.len() as u64;
                }
                let sizes = fs::read_dir(&dir).unwrap();
                let sizes = sizes.map(|entry| entry.unwrap().metadata().unwrap().len());
                assert_eq!(sizes.sum::<u64>(), written, "round {round}");
            }
        });
        counts.push(questions(&cluster, reader) - before);
    }
    let [with, without] = counts[..] else {
        panic!("two");
    };
    assert!(with <= without + without / 20, "{with}, {without} without");
}

#[test]
fn two_thousand_directories_are_open_at_once() {
    let cluster = Cluster::with_mounts(1);
    let root = cluster.root(0);
    let resource = nix::sys::resource::Resource::RLIMIT_NOFILE;
    let (_, most) = nix::sys::resource::getrlimit(resource).unwrap();
    nix::sys::resource::setrlimit(resource, most, most).unwrap();
    let count = 2000.min(most as usize / 2);
    let path = |number: usize| root.join(format!("dir{number}"));
    cluster.timed("making directories", || {
        for number in 0..count {
            fs::create_dir(path(number)).unwrap();
            fs::write(path(number).join("file"), "").unwrap();
        }
    });
    cluster.timed("open directories", || {
        let mut listings: Vec<ReadDir> = (0..count)
            .map(|number| fs::read_dir(path(number)).unwrap())
            .collect();
        for listing in &mut listings {
            assert_eq!(walk(listing, usize::MAX), ["file"]);
        }
    });
}
