//! Appending from two mounts at once.
// SEMANTICS: op.append

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, IoSlice, Read as _, Seek as _, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mounted::{Cluster, count};

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

/// Records of this length, in bytes, come in several requests.
const LONG: usize = (3 << 20) + 5;
const LONG_RECORDS: usize = 4;

/// The last byte of a record says who wrote it and which it is, and so do all others.
fn append_long(path: &Path, writer: usize) {
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    for number in 0..LONG_RECORDS {
        let record = vec![(writer * LONG_RECORDS + number) as u8; LONG];
        // The kernel takes parts one after the other, as many bytes a request as fit.
        let (first, second) = record.split_at(LONG / 3);
        let parts = [IoSlice::new(first), IoSlice::new(second)];
        let written = match number % 2 {
            0 => file.write(&record),
            _ => file.write_vectored(&parts),
        };
        assert_eq!(written.unwrap(), LONG);
    }
}

#[test]
fn a_record_longer_than_a_request_comes_in_one_piece() {
    let cluster = Cluster::with_mounts(2);
    let path = |mount: usize| cluster.root(mount).join("log");
    fs::write(path(0), "").unwrap();
    cluster.timed("appending", || {
        thread::scope(|scope| {
            for writer in 0..4 {
                let path = path(writer % 2);
                scope.spawn(move || append_long(&path, writer));
            }
        });
    });
    let bytes = fs::read(path(1)).unwrap();
    let records = bytes.chunks(LONG).map(|record| {
        assert!(record == vec![record[0]; LONG], "record {}", record[0]);
        record[0]
    });
    let mut found: Vec<u8> = records.collect();
    found.sort_unstable();
    assert_eq!(found, Vec::from_iter(0..4 * LONG_RECORDS as u8));
}

/// Appends what it has at hand and then a mapped file, once it is told to.
const APPENDS_SLOWLY: &str = "import mmap,os,sys
log,source=sys.argv[1:]
with open(source,'rb') as file:
    slow=mmap.mmap(file.fileno(),0,prot=mmap.PROT_READ)
fd=os.open(log,os.O_WRONLY|os.O_APPEND)
print(flush=True)
sys.stdin.readline()
print(os.writev(fd,[b'a'*1500000,slow]))";

/// The end of the record comes from a mount that stands still for a while.
#[test]
fn a_record_whose_bytes_come_slowly_comes_in_one_piece() {
    let cluster = Cluster::with_mounts(2);
    let mut slow = Cluster::with_mounts(1);
    let source = slow.root(0).join("source");
    fs::write(&source, vec![b'a'; LONG]).unwrap();
    let [here, there] = [0, 1].map(|mount| cluster.root(mount).join("log"));
    fs::write(&here, "").unwrap();
    let mut program = Command::new("python3");
    program.args(["-c", APPENDS_SLOWLY]).args([&here, &source]);
    let mut program = program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(program.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "");
    slow.freeze_mount(0);
    drop(program.stdin.take());
    while fs::metadata(&here).unwrap().len() == 0 {
        thread::sleep(Duration::from_millis(5));
    }
    let other = thread::spawn(move || {
        let mut log = OpenOptions::new().append(true).open(there).unwrap();
        log.write_all(&[b'b'; 100]).unwrap();
    });
    // Longer than a call that is broken off is waited for.
    thread::sleep(Duration::from_secs(3));
    slow.thaw_mount(0);
    assert_eq!(
        said.next().unwrap().unwrap(),
        (1_500_000 + LONG).to_string()
    );
    assert!(program.wait().unwrap().success());
    other.join().unwrap();
    let bytes = fs::read(&here).unwrap();
    let (record, rest) = bytes.split_at(1_500_000 + LONG);
    assert!(record.iter().all(|byte| *byte == b'a'), "torn");
    assert_eq!(rest, [b'b'; 100]);
}

/// The last bytes of the file, read through the kernel's pages.
fn end_of(path: &Path) -> Vec<u8> {
    let mut file = File::open(path).unwrap();
    let len = file.metadata().unwrap().len();
    file.seek(SeekFrom::Start(len.saturating_sub(2000)))
        .unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Threads of one mount append and read, and one of another mount appends.
#[test]
fn a_read_to_the_end_ends_where_a_record_ends() {
    let cluster = Cluster::with_mounts(2);
    let limit = Duration::from_secs(count("APPENDS_SECONDS", 10));
    let over = AtomicBool::new(false);
    let (cluster, over) = (&cluster, &over);
    let append = &|mount: usize, reads: bool| {
        let path = cluster.root(mount).join("log");
        let mut options = OpenOptions::new();
        let mut file = options.append(true).create(true).open(&path).unwrap();
        let mut wrong = Vec::new();
        for number in 0.. {
            if over.load(Ordering::SeqCst) {
                break;
            }
            let mut line = vec![b'x'; [12, 112][number % 2]];
            line.push(b'\n');
            assert_eq!(file.write(&line).unwrap(), line.len());
            let seen = if reads { end_of(&path) } else { line };
            if seen.contains(&0) || seen.last() != Some(&b'\n') {
                wrong.push(format!(
                    "{} zeros",
                    seen.iter().filter(|byte| **byte == 0).count()
                ));
            }
        }
        wrong
    };
    let wrong = cluster.timed_for(limit + Duration::from_secs(60), "appending", || {
        thread::scope(|scope| {
            let each = [(0, true), (0, true), (0, true), (1, false)];
            let all = each.map(|(mount, reads)| scope.spawn(move || append(mount, reads)));
            let begun = Instant::now();
            while begun.elapsed() < limit && !all.iter().any(|one| one.is_finished()) {
                thread::sleep(Duration::from_millis(20));
            }
            over.store(true, Ordering::SeqCst);
            all.map(|one| one.join().unwrap()).concat()
        })
    });
    assert!(wrong.is_empty(), "{wrong:?}");
}
