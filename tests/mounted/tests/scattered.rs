//! Many small writes apart from each other in one file: more than one message takes.
// SEMANTICS: op.write, op.fsync

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use mounted::Cluster;

/// More than a message has requests, none next to another.
const WRITES: u64 = 10_000;
const STRIDE: u64 = 3;

#[test]
fn single_bytes_apart_from_each_other_are_all_durable() {
    let cluster = Cluster::with_mounts(2);
    let file = File::create(cluster.root(0).join("file")).unwrap();
    cluster.timed_for(Duration::from_secs(60), "writing bytes", || {
        for number in 0..WRITES {
            let byte = [number as u8 | 1];
            file.write_all_at(&byte, number * STRIDE).unwrap();
        }
        file.sync_all().unwrap();
    });
    let seen = fs::read(cluster.root(1).join("file")).unwrap();
    assert_eq!(seen.len() as u64, (WRITES - 1) * STRIDE + 1);
    for (at, byte) in (0u64..).zip(seen) {
        let expected = match at % STRIDE {
            0 => (at / STRIDE) as u8 | 1,
            _ => 0,
        };
        assert_eq!(byte, expected, "at {at}");
    }
}
