//! Bytes that another mount adds to a file are there for every call, also for those that do not ask for its
//! length.
// SEMANTICS: op.read, op.append, op.mmap

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mounted::{BusyProcesses, Cluster, count};
use nix::fcntl::{FallocateFlags, fallocate};

/// Of the clusters that are simulated beside, where they are.
const FIRST_SEED: u64 = 20_000_000;
/// How a file can be read; the last two only say how long it is.
const WAYS: [&str; 7] = [
    "sendfile", "splice", "copied", "load", "read", "end", "size",
];

/// Where the file ends after each step: in the same page and others, at a page's end and one behind it.
const ENDS: [u64; 9] = [
    9_010, 9_011, 12_288, 12_289, 16_385, 16_386, 20_000, 45_057, 50_000,
];

/// A process of a mount that holds the file open and mapped.
struct Reader {
    process: Child,
    asked: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Reader {
    fn open(path: &Path) -> Reader {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/grown/reader.py");
        let mut process = Command::new("python3")
            .arg(script)
            .arg(path)
            .arg(path.with_extension("copy"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let asked = process.stdin.take().unwrap();
        let said = BufReader::new(process.stdout.take().unwrap());
        let mut reader = Reader {
            process,
            asked,
            said,
        };
        assert_eq!(reader.line(), "ready");
        reader
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Reads `count` bytes at `at`: how many came.
    fn reads(&mut self, way: &str, at: u64, count: u64) -> String {
        writeln!(self.asked, "{way} {at} {count}").unwrap();
        self.line()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.write(true).create(true).open(path).unwrap()
}

fn write(file: &File, from: u64, to: u64) {
    let bytes = vec![b'y'; (to - from) as usize];
    file.write_all_at(&bytes, from).unwrap();
}

#[test]
fn every_way_to_read_sees_what_another_mount_has_written_behind_the_end() {
    let cluster = Cluster::with_mounts(2);
    let mut wrong = Vec::new();
    cluster.timed("reading", || {
        for way in WAYS {
            let file = open(&cluster.root(0).join(way));
            write(&file, 0, 10);
            let mut reader = Reader::open(&cluster.root(1).join(way));
            let mut before = 10;
            for end in ENDS {
                write(&file, before, end);
                let (count, said) = (end - before, reader.reads(way, before, end - before));
                if said != count.to_string() {
                    wrong.push(format!("{way} from {before} to {end}: {said} of {count}"));
                }
                before = end;
            }
        }
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_file_that_another_mount_makes_longer_in_any_way_is_longer_at_once() {
    let cluster = Cluster::with_mounts(2);
    let name = |way: &str| format!("grown-{way}");
    let mut wrong = Vec::new();
    cluster.timed("growing", || {
        for way in ["sendfile", "splice", "copied", "end"] {
            let path = cluster.root(0).join(name(way));
            write(&open(&path), 0, 10);
            let mut reader = Reader::open(&cluster.root(1).join(name(way)));
            let mut expect = |reader: &mut Reader, how: &str, before: u64, end: u64| {
                let said = reader.reads(way, before, end - before);
                if said != (end - before).to_string() {
                    wrong.push(format!("{way} after {how}: {said} of {}", end - before));
                }
            };
            open(&path).set_len(5_000).unwrap();
            expect(&mut reader, "truncate", 10, 5_000);
            fallocate(open(&path), FallocateFlags::empty(), 5_000, 2_000).unwrap();
            expect(&mut reader, "fallocate", 5_000, 7_000);
            let mut appender = OpenOptions::new().append(true).open(&path).unwrap();
            appender.write_all(&[b'y'; 100]).unwrap();
            expect(&mut reader, "append", 7_000, 7_100);
            drop(appender);
            write(&open(&path), 7_100, 20_000);
            expect(&mut reader, "another open", 7_100, 20_000);
            open(&path).set_len(10).unwrap();
            expect(&mut reader, "a cut", 0, 10);
            write(&open(&path), 10, 8_000);
            expect(&mut reader, "growth behind a cut", 10, 8_000);
        }
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Requests of a kind that mount `number` has sent.
fn sent(cluster: &Cluster, number: usize, kind: &str) -> u64 {
    let stats = cluster.stats(number);
    stats["requests"][kind].as_u64().unwrap_or(0)
}

/// Until the MDT has heard that nobody writes the file.
fn wait_until_closed(path: &Path) {
    let begun = Instant::now();
    let is_exact = || {
        let mut getsom = Command::new(mounted::glint());
        let output = getsom.args(["fs", "getsom", "--json"]).arg(path).output();
        String::from_utf8_lossy(&output.unwrap().stdout).contains("\"exact\":true")
    };
    while !is_exact() {
        assert!(begun.elapsed() < Duration::from_secs(20), "never closed");
        thread::sleep(Duration::from_millis(50));
    }
}

const WRITES: u64 = 200;

/// Makes the file longer by a little, again and again: how often that was announced.
fn grow(cluster: &Cluster, file: &File) -> u64 {
    let before = sent(cluster, 0, "ost_announce");
    let end = file.metadata().unwrap().len();
    for number in 0..WRITES {
        write(file, end + number * 10, end + number * 10 + 10);
    }
    sent(cluster, 0, "ost_announce") - before
}

#[test]
fn growth_is_announced_once_for_each_write_and_only_while_others_have_the_file_open() {
    let cluster = Cluster::with_mounts(2);
    let [here, there] = [0, 1].map(|mount| cluster.root(mount).join("file"));
    cluster.timed("growing", || {
        let file = open(&here);
        assert_eq!(grow(&cluster, &file), 0, "it was made here");
        drop(file);
        wait_until_closed(&here);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).open(&here).unwrap();
        assert_eq!(grow(&cluster, &file), 0, "nobody else has it open");
        let asked = ["ldlm_watch", "ldlm_extent_enqueue"].map(|kind| sent(&cluster, 0, kind));
        assert_eq!(asked, [1, 0], "the lock came with the watch");

        let writer = OpenOptions::new().append(true).open(&there).unwrap();
        write_all(&writer, 10);
        assert!(grow(&cluster, &file) <= 2, "nobody else reads it");
        drop(writer);

        let reader = File::open(&there).unwrap();
        let heard = |cluster: &Cluster| cluster.stats(1)["growth_heard"].as_u64().unwrap();
        let before = heard(&cluster);
        assert_eq!(grow(&cluster, &file), WRITES, "each must be seen at once");
        assert_eq!(heard(&cluster) - before, WRITES);
        let announced = sent(&cluster, 0, "ost_announce");
        for _ in 0..WRITES {
            write(&file, 0, 10);
        }
        assert_eq!(
            sent(&cluster, 0, "ost_announce"),
            announced,
            "it is no longer for that"
        );
        drop(reader);
        assert!(
            grow(&cluster, &file) <= 2,
            "nobody else has it open any more"
        );
        assert_eq!(grow(&cluster, &file), 0);
    });
}

/// A reader on mount 1 sees what mount 0 adds after `meanwhile`.
fn grows_after(cluster: &mut Cluster, meanwhile: impl FnOnce(&mut Cluster)) {
    let [here, there] = [0, 1].map(|mount| cluster.root(mount).join("file"));
    let file = open(&here);
    write(&file, 0, 10);
    let mut readers = [Reader::open(&there), Reader::open(&there)];
    write(&file, 10, 20);
    meanwhile(cluster);
    let limit = Duration::from_secs(60);
    cluster.timed_for(limit, "growing", || {
        for (number, end) in ENDS.into_iter().enumerate() {
            let before = if number == 0 { 20 } else { ENDS[number - 1] };
            write(&file, before, end);
            for (reader, way) in readers.iter_mut().zip(["sendfile", "load"]) {
                let said = reader.reads(way, before, end - before);
                assert_eq!(said, (end - before).to_string(), "{way} to {end}");
            }
        }
    });
}

#[test]
fn growth_is_heard_of_after_a_restart_of_the_servers() {
    let mut cluster = Cluster::with_mounts(2);
    grows_after(&mut cluster, |cluster| {
        cluster.kill_server();
        cluster.restart_server();
    });
}

#[test]
fn growth_is_heard_of_by_the_process_that_takes_over_a_mount() {
    let mut cluster = Cluster::with_mounts_of(2, &["--supervisor"]);
    grows_after(&mut cluster, |cluster| {
        let lives = taken_over_by(cluster);
        assert!(cluster.kill_worker(1));
        let begun = Instant::now();
        while taken_over_by(cluster) == lives {
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "nobody takes over"
            );
            thread::sleep(Duration::from_millis(20));
        }
    });
}

/// How often another process took over mount 1.
fn taken_over_by(cluster: &Cluster) -> usize {
    cluster.said(1).matches("took over").count()
}

fn write_all(mut file: &File, len: usize) {
    file.write_all(&vec![b'y'; len]).unwrap();
}

/// What was acknowledged before a call begins is there for it. Of several mounts that append, and
/// of the mount that reads, which appends as well.
#[test]
fn on_a_busy_machine_what_was_appended_is_there_for_every_way_to_read() {
    let seconds = count("GROWN_SECONDS", 10);
    let cluster = Cluster::with_mounts(3);
    let _busy = BusyProcesses::start(count("GROWN_BUSY", 10), FIRST_SEED);
    let limit = Duration::from_secs(seconds + 120);
    cluster.timed_for(limit, "appending and reading", || {
        drop(open(&cluster.root(0).join("log")));
        let (end, over) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for mount in 0..2 {
                let (cluster, end, over) = (&cluster, &end, &over);
                scope.spawn(move || {
                    let path = cluster.root(mount).join("log");
                    let file = OpenOptions::new().append(true).open(path).unwrap();
                    for number in 0_usize.. {
                        if over.load(Ordering::SeqCst) {
                            return;
                        }
                        let len = [10, 112, 4096, 1][number % 4];
                        write_all(&file, len);
                        // So many bytes at least are there: all writers count.
                        end.fetch_add(len as u64, Ordering::SeqCst);
                        thread::sleep(Duration::from_millis(1));
                    }
                });
            }
            let begun = Instant::now();
            let readers: Vec<_> = [(1, "sendfile"), (2, "sendfile"), (2, "load"), (1, "splice")]
                .map(|(mount, way)| {
                    let (cluster, end) = (&cluster, &end);
                    scope.spawn(move || {
                        let mut reader = Reader::open(&cluster.root(mount).join("log"));
                        let mut reads = 0;
                        while begun.elapsed() < Duration::from_secs(seconds) {
                            let at = end.load(Ordering::SeqCst);
                            let from = at.saturating_sub(100);
                            if from < at {
                                let said = reader.reads(way, from, at - from);
                                assert_eq!(
                                    said,
                                    (at - from).to_string(),
                                    "{way} on {mount} to {at}"
                                );
                                reads += 1;
                            }
                        }
                        println!("{way} on {mount}: {reads} reads");
                    })
                })
                .into_iter()
                .collect();
            let results: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
            over.store(true, Ordering::SeqCst);
            println!("{} bytes", end.load(Ordering::SeqCst));
            assert!(results.iter().all(Result::is_ok), "a reader saw less");
        });
    });
}
