//! Reads into pages that are locked in the kernel, while locks come and go.
// SEMANTICS: op.read, op.close, op.mmap, op.fallocate, cache.pages

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use mounted::{Cluster, Mapping, count};
use nix::fcntl::{FallocateFlags, fallocate};

/// A close tells the MDT once all is durable, in the background: readers are under way by then.
#[test]
fn a_file_is_read_while_its_writers_close_is_on_its_way() {
    let cluster = Cluster::with_mounts(1);
    let path = cluster.root(0).join("file");
    for round in 0..20u8 {
        cluster.timed("reading after a close", || {
            let data = vec![round; 4 << 20];
            let mut file = File::create(&path).unwrap();
            file.write_all(&data).unwrap();
            file.sync_all().unwrap();
            drop(file);
            let mut reader = File::open(&path).unwrap();
            for _ in 0..3 {
                let mut seen = Vec::new();
                reader.rewind().unwrap();
                reader.read_to_end(&mut seen).unwrap();
                assert!(seen == data, "round {round}");
                assert!(fs::read(&path).unwrap() == data, "round {round}");
            }
        });
    }
}

/// One mount reads and maps a file that another writes again and again. Each read is of one
/// version, none older than the last, and nobody waits for ever for a page.
#[test]
fn a_file_is_read_and_mapped_while_another_mount_rewrites_it() {
    const BYTES: usize = 64 << 10;
    let cluster = Cluster::with_mounts(2);
    let [a, b] = [0, 1].map(|mount| cluster.root(mount).join("file"));
    fs::write(&a, vec![0; BYTES]).unwrap();
    let rounds = count("MOUNTED_REWRITES", 1500);
    let written = AtomicU64::new(0);
    let _watch = cluster.watch(Duration::from_secs(120), "reads beside rewrites");
    thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::options().write(true).open(&b).unwrap();
            for round in 1..=rounds {
                file.write_all_at(&[round as u8; BYTES], 0).unwrap();
                written.store(round, Ordering::SeqCst);
            }
        });
        scope.spawn(|| {
            let mapping = Mapping::new(&a, BYTES).unwrap();
            while written.load(Ordering::SeqCst) < rounds {
                let before = written.load(Ordering::SeqCst);
                let seen = [mapping.load(0), mapping.load(BYTES - 1)];
                let after = written.load(Ordering::SeqCst) + 1;
                let known = |byte| (before..=after).any(|round| round as u8 == byte);
                assert!(seen.into_iter().all(known), "{seen:?}, {before} to {after}");
            }
        });
        while written.load(Ordering::SeqCst) < rounds {
            let before = written.load(Ordering::SeqCst);
            let seen = fs::read(&a).unwrap();
            let after = written.load(Ordering::SeqCst) + 1;
            assert_eq!(seen.len(), BYTES);
            let known = |byte| (before..=after).any(|round| round as u8 == byte);
            assert!(seen.into_iter().all(known), "{before} to {after}");
        }
    });
}

/// Pages that were read before anybody could write must not take stores without a word.
#[test]
fn a_store_is_seen_by_those_who_read_before_the_file_was_mapped() {
    let cluster = Cluster::with_mounts(2);
    let [a, b] = [0, 1].map(|mount| cluster.root(mount));
    for round in 0..20u8 {
        cluster.timed("reads, then a store", || {
            let name = format!("file{round}");
            fs::write(a.join(&name), [1; 4096]).unwrap();
            let readers = [a, b].map(|root| File::open(root.join(&name)).unwrap());
            let mut byte = [0];
            for reader in readers.iter().chain(&readers) {
                reader.read_exact_at(&mut byte, 7).unwrap();
                assert_eq!(byte, [1]);
            }
            let mapping = Mapping::new(&a.join(&name), 4096).unwrap();
            assert_eq!(mapping.load(7), 1);
            readers[0].read_exact_at(&mut byte, 8).unwrap();
            mapping.store(7, &[2]);
            readers[1].read_exact_at(&mut byte, 7).unwrap();
            assert_eq!(byte, [2], "round {round}");
        });
    }
}

/// What a read brings that overtook the punch on its way must not be kept.
#[test]
fn a_hole_that_was_punched_while_others_read_stays_a_hole() {
    const BYTES: usize = 32 << 10;
    let cluster = Cluster::with_mounts(1);
    let path = cluster.root(0).join("file");
    fs::write(&path, []).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let rounds = count("MOUNTED_PUNCHES", 500);
    let done = AtomicBool::new(false);
    let _watch = cluster.watch(Duration::from_secs(120), "reads beside punches");
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut buffer = vec![0; BYTES];
                while !done.load(Ordering::SeqCst) {
                    file.read_at(&mut buffer, 0).unwrap();
                }
            });
        }
        let mut buffer = vec![0; BYTES];
        let mut stale = 0;
        for _ in 0..rounds {
            file.write_all_at(&[7; BYTES], 0).unwrap();
            let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            fallocate(&file, flags, 0, BYTES as i64).unwrap();
            file.read_exact_at(&mut buffer, 0).unwrap();
            stale += u64::from(buffer.iter().any(|byte| *byte != 0));
        }
        done.store(true, Ordering::SeqCst);
        assert_eq!(stale, 0, "of {rounds} rounds");
    });
}
