//! Appending from two mounts at once.
// SEMANTICS: op.append

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::thread;

use mounted::Cluster;

const RECORDS: usize = 2000;

/// 37 bytes with a newline at the end.
fn record(writer: usize, number: usize) -> String {
    format!("{writer:04} {number:08} {:>22}\n", number * 7919)
}

fn append(root: &Path, writer: usize) {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(root.join("log"))
        .unwrap();
    for number in 0..RECORDS {
        assert_eq!(file.write(record(writer, number).as_bytes()).unwrap(), 37);
    }
}

#[test]
fn no_record_is_lost_or_torn() {
    let cluster = Cluster::with_mounts(2);
    cluster.timed("appending", || {
        thread::scope(|scope| {
            for writer in 0..2 {
                let root = cluster.root(writer);
                scope.spawn(move || append(root, writer));
            }
        });
    });
    for mount in 0..2 {
        let path = cluster.root(mount).join("log");
        let text = cluster
            .timed("reading", || fs::read_to_string(&path))
            .unwrap();
        check(&text);
    }
}

/// Each writer's records are all there, in its order.
fn check(text: &str) {
    let mut next = [0; 2];
    for line in text.split_inclusive('\n') {
        let writer: usize = line[..4]
            .parse()
            .unwrap_or_else(|_| panic!("torn: {line:?}"));
        assert_eq!(line, record(writer, next[writer]), "after {next:?}");
        next[writer] += 1;
    }
    assert_eq!(next, [RECORDS; 2]);
}
