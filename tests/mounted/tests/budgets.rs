//! How many requests work costs: counts, which no machine makes smaller.
// SEMANTICS: op.stat, cache.names, cache.attributes

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use mounted::{Cluster, run};
use serde_json::Value;

const DIRS: u64 = 100;
const FILES: u64 = 50;

/// Makes directory number `dir`, of two levels of directories with small files.
fn make_files(root: &Path, dir: u64) {
    let path = root.join(format!("top{}/dir{dir}", dir % 10));
    fs::create_dir_all(&path).unwrap();
    for file in 0..FILES {
        fs::write(path.join(format!("file{file}")), format!("{dir} {file}")).unwrap();
    }
}

/// Requests that mount `number` sends during `work`, printed by kind.
fn sent(cluster: &Cluster, number: usize, what: &str, work: impl FnOnce()) -> u64 {
    let before = cluster.stats(number);
    cluster.timed(what, work);
    let after = cluster.stats(number);
    let more = |now: &Value, then: &Value| now.as_u64().unwrap() - then.as_u64().unwrap_or(0);
    for (kind, now) in after["requests"].as_object().unwrap() {
        match more(now, &before["requests"][kind]) {
            0 => {}
            count => println!("{what}: {count} {kind}"),
        }
    }
    more(&after["rpcs_sent"], &before["rpcs_sent"])
}

/// Waits until the mount has nothing more to say of what was done: closes are told in the background.
fn settle(cluster: &Cluster, number: usize) {
    let sent = || cluster.stats(number)["rpcs_sent"].as_u64();
    let mut before = sent();
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = sent();
        if now == before {
            return;
        }
        before = now;
    }
}

/// A cluster with the tree, durable, and a mount that knows nothing of it: its number.
fn with_tree() -> (Cluster, usize) {
    let mut cluster = Cluster::with_mounts(1);
    for dir in 0..DIRS {
        cluster.timed("making a directory", || make_files(cluster.root(0), dir));
    }
    cluster.unmount(0);
    let cold = cluster.mount();
    (cluster, cold)
}

#[test]
fn a_file_that_was_read_is_opened_and_read_again_for_nothing() {
    let (cluster, cold) = with_tree();
    let dir = cluster.root(cold).join("top0/dir0");
    let read_all = || {
        for file in 0..FILES {
            let mut text = String::new();
            let path = dir.join(format!("file{file}"));
            File::open(path).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, format!("0 {file}"));
        }
    };
    let first = sent(&cluster, cold, "open, read and close, cold", read_all);
    assert!(
        first <= 2 * FILES + 10,
        "{first} requests for {FILES} files"
    );
    assert_eq!(sent(&cluster, cold, "the same, warm", read_all), 0);
}

#[test]
fn making_and_removing_files_costs_few_requests_each() {
    let cluster = Cluster::with_mounts(1);
    let root = cluster.root(0);
    const MADE: u64 = 500;
    let make = || {
        fs::create_dir(root.join("dir")).unwrap();
        for number in 0..MADE {
            let mut file = File::create(root.join(format!("dir/file{number}"))).unwrap();
            file.write_all(b"some bytes").unwrap();
        }
        let dir = File::open(root.join("dir")).unwrap();
        dir.sync_all().unwrap();
    };
    let made = sent(&cluster, 0, "create, write and close", make);
    assert!(made <= MADE * 2 + 50, "{made} requests for {MADE} files");
    settle(&cluster, 0);
    let size = || assert_eq!(fs::metadata(root.join("dir/file7")).unwrap().size(), 10);
    assert_eq!(sent(&cluster, 0, "stat of what was made", size), 0);
    let removed = sent(&cluster, 0, "rm -r", || run(root, "rm -r dir"));
    assert!(
        removed <= MADE + MADE / 2,
        "{removed} requests for {MADE} files"
    );
}
