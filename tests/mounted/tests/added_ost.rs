//! OSTs that come to a file system whose other servers and mounts are there already.
// SEMANTICS: op.create

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use mounted::Cluster;

/// How soon a new OST is used, and asked by who meets it: seconds, on a busy machine.
const SOON: Duration = Duration::from_secs(30);
const MIB: usize = 1 << 20;

/// Bytes that files in the directory take.
fn bytes_below(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let bytes = entries.map(|path| match fs::symlink_metadata(&path) {
        Ok(stat) if stat.is_dir() => bytes_below(&path),
        Ok(stat) => stat.blocks() * 512,
        Err(_) => 0,
    });
    bytes.sum()
}

fn content(number: usize) -> Vec<u8> {
    vec![number as u8; MIB]
}

#[test]
fn the_first_ost_may_come_after_its_mdt() {
    let mut cluster = Cluster::start_at(&[(None, "mgs,mdt")]);
    cluster.add_targets("ost0");
    let mount = cluster.mount();
    let file = cluster.root(mount).join("f");
    cluster.timed("a first file", || {
        fs::write(&file, "x").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"x");
    });
}

#[test]
fn a_first_file_waits_for_an_ost_that_is_away() {
    let mut cluster = Cluster::start_at(&[(None, "mgs,mdt")]);
    cluster.add_targets("ost0");
    let mount = cluster.mount();
    cluster.server(1).kill();
    let (directory, file) = (cluster.root(mount).join("d"), cluster.root(mount).join("f"));
    let made = file.clone();
    let write = spawn(move || {
        fs::write(&made, "x")?;
        fs::File::open(made)?.sync_all()
    });
    cluster.timed("a directory", || fs::create_dir(&directory).unwrap());
    sleep(Duration::from_secs(2));
    assert!(!write.is_finished());
    cluster.server(1).restart();
    cluster.timed("a first file", || {
        write.join().unwrap().unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"x");
    });
}

#[test]
fn an_ost_that_is_added_is_used_and_found_by_all_mounts() {
    let mut cluster = Cluster::with_mounts(2);
    fs::write(cluster.root(0).join("before"), content(7)).unwrap();
    let added = cluster.add_targets("ost1");
    let empty = bytes_below(&added);
    cluster.timed("an added OST", || {
        let name = |root: usize, number: usize| cluster.root(root).join(format!("f{number}"));
        let mut written = 0;
        let start = Instant::now();
        // Files go to one OST and the other in turn.
        while bytes_below(&added) < empty + 2 * MIB as u64 {
            assert!(
                start.elapsed() < SOON,
                "no file of {written} is on the new OST"
            );
            let path = name(0, written);
            fs::write(&path, content(written)).unwrap();
            fs::File::open(&path).unwrap().sync_all().unwrap();
            written += 1;
            sleep(Duration::from_millis(50));
        }
        for number in 0..written {
            let read = fs::read(name(1, number)).unwrap();
            assert!(read == content(number), "f{number} elsewhere");
        }
        assert!(fs::read(cluster.root(1).join("before")).unwrap() == content(7));
    });
    let again = cluster.mount();
    cluster.timed("a mount that comes later", || {
        assert!(fs::read(cluster.root(again).join("f0")).unwrap() == content(0));
    });
    cluster.kill_server();
    cluster.restart_server();
    cluster.timed("after a restart", || {
        fs::write(cluster.root(1).join("after"), content(9)).unwrap();
        assert!(fs::read(cluster.root(0).join("after")).unwrap() == content(9));
    });
}
