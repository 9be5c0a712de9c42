//! The time that a target with very many files takes to open, and its anonymous memory, both printed.

mod bare;

use std::time::Instant;

use base::Fid;
use storage::{FileDisk, Kv};
use wire::FileKind;
use wire::mdt::{Reply, Request};

use bare::{Bench, name};

/// Files of one directory.
const FILES_PER_DIRECTORY: u32 = 400;

fn report(what: &str, started: Instant) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let anonymous = status.lines().find(|line| line.starts_with("RssAnon:"));
    println!(
        "{what}: {:.2?}, {}",
        started.elapsed(),
        anonymous.unwrap_or("memory unknown")
    );
}

fn make(path: &str, count: u32) {
    Kv::create(FileDisk::create(path).expect("a new file")).expect("a new store");
    let mut bench = Bench::start(FileDisk::open(path).expect("the file"), true);
    let (started, mut dir) = (Instant::now(), Fid::ROOT);
    for n in 0..count {
        if n % FILES_PER_DIRECTORY == 0 {
            dir = bench.create(Fid::ROOT, n, FileKind::Directory);
        } else {
            bench.create(dir, n, FileKind::Regular);
        }
    }
    bench.call(Request::Sync);
    report("made", started);
    std::process::abort();
}

fn fill(path: &str, count: u32) {
    let mut bench = Bench::start(FileDisk::open(path).expect("the file"), false);
    let started = Instant::now();
    let dir = bench.create(Fid::ROOT, count, FileKind::Directory);
    (0..count).for_each(|n| {
        bench.create(dir, n, FileKind::Regular);
    });
    bench.leave();
    report(&format!("filled {}", name(count)), started);
}

fn open(path: &str) {
    let started = Instant::now();
    let mut bench = Bench::start(FileDisk::open(path).expect("the file"), false);
    let root = bench.call(Request::GetAttr {
        fid: Fid::ROOT,
        dir: Fid::NONE,
    });
    assert!(matches!(root, Reply::Node(_)));
    report("opened", started);
    let started = Instant::now();
    for n in (0..).step_by(100 * FILES_PER_DIRECTORY as usize) {
        let request = Request::Lookup {
            dir: Fid::ROOT,
            name: name(n),
        };
        let Reply::Lookup {
            node: Some(node), ..
        } = bench.call(request)
        else {
            break;
        };
        bench.list(node.fid, FILES_PER_DIRECTORY - 1);
    }
    report("listed one directory in a hundred", started);
}

/// Measures as the arguments say:
///
/// ```text
/// million make FILE [N]   makes N files (2,000,000), 400 a directory, in a store in FILE; ends as if killed
/// million open FILE       opens that store and lists one directory in a hundred
/// million fill FILE N     makes N files in one new directory of an unserved target's store, `mdt0/db`
/// ```
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["make", path] => make(path, 2_000_000),
        ["make", path, count] => make(path, count.parse().expect("a number")),
        ["fill", path, count] => fill(path, count.parse().expect("a number")),
        ["open", path] => open(path),
        _ => eprintln!("usage: million make FILE [N] | million open FILE | million fill FILE N"),
    }
}
