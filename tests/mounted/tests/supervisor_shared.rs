//! Several supervised mounts write to the same files while their processes are killed, on a busy machine. All
//! bytes of writes that returned are there, on every mount, also without a sync.
// SEMANTICS: crash.mount

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use base::{Rng, SeededRng};
use mounted::{BusyProcesses, Cluster, Work, count, seed};

const MOUNTS: u64 = 3;
/// Of the clusters that are simulated beside, where they are.
const FIRST_SEED: u64 = 30_000_000;
/// Bytes of a record in the log.
const RECORD: usize = 64;
const BLOCK: usize = 4096;
/// How long ending and looking may take on a busy machine.
const LONG: Duration = Duration::from_secs(300);

/// What `mount` writes as its write `number`, `len` bytes of it.
fn written(mount: u64, number: u64, len: usize) -> Vec<u8> {
    let words = [mount + 1, number].map(u64::to_le_bytes).concat();
    words.repeat(len / words.len())
}

/// Appends records to the log. How many.
fn append(root: PathBuf, mount: u64) -> Work<u64> {
    Work::start(move |goes_on| {
        let mut log = File::options().append(true).open(root.join("log")).unwrap();
        let mut number = 0;
        while goes_on() {
            let record = written(mount, number, RECORD);
            assert_eq!(log.write(&record).unwrap(), RECORD);
            number += 1;
        }
        number
    })
}

/// Writes blocks of its own, one after the other, between those of others. How many.
fn write_blocks(root: PathBuf, mount: u64) -> Work<u64> {
    Work::start(move |goes_on| {
        let open = File::options().write(true).open(root.join("blocks"));
        let (file, mut number) = (open.unwrap(), 0);
        while goes_on() {
            let block = written(mount, number, BLOCK);
            let at = (number * MOUNTS + mount) * BLOCK as u64;
            file.write_all_at(&block, at).unwrap();
            number += 1;
        }
        number
    })
}

/// Where each record is in the log.
fn places(log: &[u8]) -> BTreeMap<&[u8], usize> {
    let mut places = BTreeMap::new();
    for (at, record) in log.chunks(RECORD).enumerate() {
        let known = places.insert(record, at);
        assert!(
            known.is_none(),
            "at {at} and {known:?}: {:?}",
            &record[..16]
        );
    }
    places
}

/// What is not there of what was written: appends, and blocks.
fn lost(cluster: &Cluster, on: u64, counts: &[(u64, u64)]) -> Vec<String> {
    let read = |name| fs::read(cluster.root(on as usize).join(name)).unwrap();
    let (log, blocks) = (read("log"), read("blocks"));
    let places = places(&log);
    let mut lost = Vec::new();
    for (mount, (appended, blocks_written)) in (0..).zip(counts) {
        for number in 0..*appended {
            if !places.contains_key(&written(mount, number, RECORD)[..]) {
                lost.push(format!("append {number} of mount {mount}"));
            }
        }
        for number in 0..*blocks_written {
            let at = (number * MOUNTS + mount) as usize * BLOCK;
            if blocks.get(at..at + BLOCK) != Some(&written(mount, number, BLOCK)[..]) {
                lost.push(format!("block {number} of mount {mount}"));
            }
        }
    }
    let appended: u64 = counts.iter().map(|(appended, _)| appended).sum();
    let all = appended as usize * RECORD;
    if log.len() != all {
        lost.push(format!("the log has {} bytes, not {all}", log.len()));
    }
    lost
}

/// Kills a process every 0.5 to 3 s for `time` beside as many busy processes.
fn write_under_kills(time: Duration, busy: u64, rng: &mut SeededRng) {
    let mut cluster = Cluster::with_mounts_of(MOUNTS as usize, &["--supervisor"]);
    for name in ["log", "blocks"] {
        File::create(cluster.root(0).join(name)).unwrap();
    }
    let root = |mount: u64| cluster.root(mount as usize).to_owned();
    let busy = BusyProcesses::start(busy, FIRST_SEED);
    let works =
        (0..MOUNTS).map(|mount| (append(root(mount), mount), write_blocks(root(mount), mount)));
    let works: Vec<_> = works.collect();
    let (began, mut kills) = (Instant::now(), 0);
    while began.elapsed() < time {
        thread::sleep(Duration::from_millis(500 + rng.below(2500)));
        // False: the one before is not replaced yet.
        kills += u64::from(cluster.kill_worker(rng.below(MOUNTS) as usize));
    }
    let counts = cluster.timed_for(LONG, "ending", || {
        let ended = works
            .into_iter()
            .map(|(log, blocks)| (log.end(), blocks.end()));
        ended.collect::<Vec<_>>()
    });
    drop(busy);
    assert!(kills > 0, "nobody was killed");
    for mount in 0..MOUNTS {
        let lost = cluster.timed_for(LONG, "reading", || lost(&cluster, mount, &counts));
        assert!(
            lost.is_empty(),
            "of {counts:?}, after {kills} kills: {lost:#?}"
        );
    }
    println!("{counts:?} appends and blocks, {kills} kills, nothing lost");
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
    cluster.restart_server();
}

#[test]
fn writes_of_mounts_outlive_the_processes_of_others() {
    write_under_kills(Duration::from_secs(12), 4, &mut SeededRng::new(seed()));
}

#[test]
#[ignore = "soak: twenty minutes"]
fn soak_writes_of_mounts_outlive_the_processes_of_others() {
    let mut rng = SeededRng::new(seed());
    for _ in 0..count("GLINT_RUNS", 20) {
        write_under_kills(Duration::from_secs(60), 10, &mut rng);
    }
}
