//! Small files read in order: the number of requests, and that the bytes are current.
// SEMANTICS: op.read, op.write, op.rename

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::thread;

use base::{Rng, SeededRng};
use mounted::{Cluster, glint, run, seed};

const DIRS: u64 = 20;
const FILES: u64 = 50;
const BYTES: usize = 3000;
/// One that comes in several pieces.
const LARGE_BYTES: usize = 5 << 20;

fn file(root: &Path, number: u64) -> PathBuf {
    root.join(format!("dir{}/file{number}", number % DIRS))
}

fn make(root: &Path) {
    for number in 0..DIRS * FILES {
        let path = file(root, number);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![number as u8; BYTES]).unwrap();
    }
    fs::write(root.join("dir7/large"), vec![b'l'; LARGE_BYTES]).unwrap();
}

/// A cluster with the files, durable, and a mount that knows nothing of them: its number.
fn with_files() -> (Cluster, usize) {
    let mut cluster = Cluster::with_mounts(1);
    cluster.timed("making files", || make(cluster.root(0)));
    cluster.unmount(0);
    let cold = cluster.mount();
    (cluster, cold)
}

fn read(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn who_reads_in_order_gets_many_files_in_one_answer() {
    for program in ["grep -r nowhere . || true", "tar -c . | cat > /dev/null"] {
        let (cluster, cold) = with_files();
        let root = cluster.root(cold).to_path_buf();
        let count = cluster.requests(cold, program, || run(&root, program));
        assert!(count <= 60, "{count} requests for {} files", DIRS * FILES);
        for number in 0..DIRS * FILES {
            assert_eq!(read(&file(&root, number)), vec![number as u8; BYTES]);
        }
        assert!(read(&root.join("dir7/large")) == vec![b'l'; LARGE_BYTES]);
    }
}

#[test]
fn what_was_fetched_on_demand_is_read_for_nothing() {
    let (cluster, cold) = with_files();
    let root = cluster.root(cold);
    // They are looked up to be asked for.
    run(root, "find . > /dev/null");
    let fetch = format!("find . -type f | {} fs prefetch -", glint().display());
    let first = cluster.requests(cold, "prefetch", || run(root, &fetch));
    assert!(first <= 20, "{first} requests");
    let read = || run(root, "find . -type f | shuf | xargs cat > /dev/null");
    assert_eq!(cluster.requests(cold, "reading", read), 0);
}

#[test]
fn who_reads_in_no_order_pays_no_more_than_without_prefetch() {
    let mut counts = Vec::new();
    for off in [true, false] {
        let (cluster, cold) = with_files();
        let root = cluster.root(cold).to_path_buf();
        if off {
            cluster.set_param(cold, "statahead_bytes_max", 0);
        }
        let mut rng = SeededRng::new(11);
        counts.push(cluster.requests(cold, "files in no order", || {
            for _ in 0..400 {
                let number = rng.below(DIRS * FILES);
                assert_eq!(read(&file(&root, number)), vec![number as u8; BYTES]);
            }
        }));
    }
    assert!(counts[1] <= counts[0], "{counts:?}");
}

/// A file gets other bytes, in place or by another file that takes its name.
fn change(root: &Path, rng: &mut SeededRng) {
    let path = file(root, rng.below(DIRS * FILES));
    let bytes = vec![rng.below(256) as u8; BYTES];
    match rng.below(2) {
        0 => {
            let mut file = OpenOptions::new().write(true).open(path).unwrap();
            file.write_all(&bytes).unwrap();
        }
        _ => {
            let new = path.with_extension("new");
            fs::write(&new, &bytes).unwrap();
            fs::rename(new, path).unwrap();
        }
    }
}

#[test]
fn what_is_read_in_order_is_whole_and_current_while_another_mount_changes_it() {
    let (mut cluster, cold) = with_files();
    let other = cluster.mount();
    let [ours, theirs] = [cold, other].map(|mount| cluster.root(mount).to_path_buf());
    cluster.timed("reads under change", || {
        let changer = theirs.clone();
        let changes = thread::spawn(move || {
            let mut rng = SeededRng::new(seed());
            (0..1500).for_each(|_| change(&changer, &mut rng));
        });
        while !changes.is_finished() {
            for dir in 0..DIRS {
                let entries = fs::read_dir(ours.join(format!("dir{dir}"))).unwrap();
                for path in entries.map(|entry| entry.unwrap().path()) {
                    let small = path.extension().is_none() && !path.ends_with("large");
                    let Some(mut file) = small.then(|| File::open(&path).ok()).flatten() else {
                        continue;
                    };
                    let mut bytes = vec![0; BYTES + 1];
                    let count = file.read(&mut bytes).unwrap();
                    let whole = count == BYTES && bytes[..count].iter().all(|b| *b == bytes[0]);
                    assert!(whole, "{}: {count} bytes", path.display());
                }
            }
        }
        changes.join().unwrap();
        for number in 0..DIRS * FILES {
            assert_eq!(read(&file(&ours, number)), read(&file(&theirs, number)));
        }
    });
}
