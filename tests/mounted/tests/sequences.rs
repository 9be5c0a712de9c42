//! Numbered names, asked for in order without a listing: fetched ahead, and true.
// SEMANTICS: op.lookup, op.stat

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;

use mounted::Cluster;

const FILES: u64 = 1000;

/// A cluster with directories of numbered files, durable, and a mount that knows nothing of them.
fn with_files(dirs: &[&str], name: impl Fn(u64) -> String) -> (Cluster, usize) {
    let mut cluster = Cluster::with_mounts(1);
    cluster.timed("making files", || {
        for dir in dirs {
            let dir = cluster.root(0).join(dir);
            fs::create_dir(&dir).unwrap();
            (0..FILES).for_each(|n| drop(File::create(dir.join(name(n))).unwrap()));
        }
    });
    cluster.unmount(0);
    let cold = cluster.mount();
    (cluster, cold)
}

fn exist(dir: &Path, names: impl Iterator<Item = String>) -> usize {
    names.filter(|name| dir.join(name).exists()).count()
}

fn counted(cluster: &Cluster, mount: usize, name: &str) -> u64 {
    cluster.stats(mount)[name].as_u64().unwrap()
}

#[test]
fn names_in_order_come_many_at_a_time() {
    let padded = |n: u64| format!("img{n:05}.png");
    let (cluster, cold) = with_files(&["plain", "steps"], padded);
    for (dir, step, batches) in [("plain", 1, 12), ("steps", 7, 8)] {
        let dir = cluster.root(cold).join(dir);
        let numbers = || (0..FILES).step_by(step);
        let sent = cluster.requests(cold, "stats in order", || {
            assert_eq!(exist(&dir, numbers().map(padded)), numbers().count());
        });
        // The directory itself, four names to see an order, and then batches.
        assert!(sent <= 5 + batches, "{sent} requests in steps of {step}");
    }
    assert_eq!(counted(&cluster, cold, "statahead_fname_total"), 2);
    assert_eq!(counted(&cluster, cold, "statahead_wrong"), 0);
    for walk in cluster.walks(cold) {
        println!("{walk}");
        let (pattern, of) = match walk["dir"].as_str().unwrap() {
            "/plain" => ("fname", FILES),
            _ => ("stride", FILES.div_ceil(7)),
        };
        assert_eq!(
            (&walk["pattern"], &walk["missed"]),
            (&pattern.into(), &3.into())
        );
        assert_eq!(walk["used"], of - 4);
    }
}

#[test]
fn two_processes_go_through_their_own_names_of_one_directory() {
    let (cluster, cold) = with_files(&["dir"], |n| format!("file{n}"));
    let dir = cluster.root(cold).join("dir");
    let name = |n: u64| format!("file{n}");
    // Neither gets far ahead: one that begins where the other has ended goes on with its series.
    let abreast = Barrier::new(2);
    let sent = cluster.requests(cold, "two walks", || {
        thread::scope(|scope| {
            for first in [0, FILES / 2] {
                let (dir, half, abreast) = (&dir, FILES / 2, &abreast);
                scope.spawn(move || {
                    let together = |n: &u64| {
                        if n.is_multiple_of(20) {
                            abreast.wait();
                        }
                    };
                    let names = (0..half).inspect(together).map(|n| name(first + n));
                    assert_eq!(exist(dir, names), half as usize);
                });
            }
        });
    });
    assert!(sent < FILES / 4, "{sent} requests");
    // While one of them has just begun the other's names may be taken for its own.
    let series = counted(&cluster, cold, "statahead_fname_total");
    // Where enough of them are asked for in the order of the list, that is fetched instead.
    assert!(series <= 4, "{series} series");
}

#[test]
fn a_name_that_was_not_there_when_it_was_guessed_is_seen_when_it_is_made() {
    let (mut cluster, cold) = with_files(&["dir"], |n| format!("file{n}"));
    let other = cluster.mount();
    let [here, there] = [cold, other].map(|mount| cluster.root(mount).join("dir"));
    let file = |dir: &Path, n: u64| -> PathBuf { dir.join(format!("file{n}")) };
    cluster.timed("going beyond the end", || {
        for n in FILES - 20..FILES + 3 {
            assert_eq!(file(&here, n).exists(), n < FILES, "{n}");
        }
        for n in FILES..FILES + 10 {
            File::create(file(&there, n)).unwrap();
            assert!(file(&here, n).exists(), "{n} was made elsewhere");
        }
        for n in FILES + 10..FILES + 20 {
            File::create(file(&here, n)).unwrap();
            assert!(file(&there, n).exists() && file(&here, n).exists());
            fs::remove_file(file(&there, n)).unwrap();
            assert!(!file(&here, n).exists(), "{n} was removed elsewhere");
        }
    });
}

#[test]
fn names_in_no_order_cost_what_they_do_without() {
    let (mut cluster, cold) = with_files(&["dir"], |n| format!("file{n}"));
    let without = cluster.mount();
    cluster.set_param(without, "statahead_fname_max", 0);
    // A step that is coprime to the number of files, and too large to be believed.
    let shuffled = || (0..FILES).map(|n| format!("file{}", n * 613 % FILES));
    let [with, without] = [cold, without].map(|mount| {
        let dir = cluster.root(mount).join("dir");
        cluster.requests(mount, "stats in no order", || {
            assert_eq!(exist(&dir, shuffled()), FILES as usize);
        })
    });
    assert!(with <= without + 2, "{with} requests, {without} without");
}
