//! Measures the key-value store on a real file, which is removed at the end: `kv_bench FILE RECORDS`. A
//! process fills it and is killed in a transaction; a new one measures opening, scanning and reading. A
//! record is a key of 40 bytes and a value of 150.

use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base::{Rng, SeededRng};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use storage::{Batch, FileDisk, KeyRange, Kv, KvOptions, TableId};

const TABLE: TableId = TableId(0);
const TABLES: &[(TableId, &str)] = &[(TABLE, "entries")];
const ENTRIES_PER_DIRECTORY: u64 = 100;
const SYNCS: usize = 200;
const READS: u64 = 200_000;

type Anyhow = Result<(), Box<dyn std::error::Error>>;

fn main() -> Anyhow {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [file, records] => measure(file, records.parse()?),
        ["fill", file, records] => fill(file, records.parse()?),
        ["use", file, records] => read(file, records.parse()?),
        _ => Err("usage: kv_bench FILE RECORDS".into()),
    }
}

fn measure(file: &str, records: u64) -> Anyhow {
    let myself = std::env::current_exe()?;
    let records = records.to_string();
    let mut filler = Command::new(&myself)
        .args(["fill", file, &records])
        .stdout(Stdio::piped())
        .spawn()?;
    let output = filler.stdout.take().ok_or("no output")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        if line == "filled" {
            // It goes on committing: this lands somewhere in a transaction.
            filler.kill()?;
            break;
        }
        println!("{line}");
    }
    filler.wait()?;
    println!(
        "file                {:>9} MB",
        std::fs::metadata(file)?.len() >> 20
    );
    forget_cached(file)?;
    let status = Command::new(&myself)
        .args(["use", file, &records])
        .status()?;
    std::fs::remove_file(file)?;
    status
        .success()
        .then_some(())
        .ok_or("the reader failed".into())
}

/// The key of record `n`: a directory, then what stands for a hash and a name.
fn key(n: u64) -> [u8; 40] {
    let mut rng = SeededRng::new(n);
    let mut key = [0; 40];
    key[..8].copy_from_slice(&(n / ENTRIES_PER_DIRECTORY).to_be_bytes());
    for word in key[8..].chunks_exact_mut(8) {
        word.copy_from_slice(&rng.next_u64().to_be_bytes());
    }
    key
}

fn fill(file: &str, records: u64) -> Anyhow {
    // A file left by an earlier run is in the way; a missing one is what is wanted.
    let _ = std::fs::remove_file(file);
    Kv::create(FileDisk::create(file)?)?;
    let kv = Kv::open(FileDisk::open(file)?, TABLES, KvOptions::new("bench"))?;
    let start = Instant::now();
    let mut ticket = kv.committed();
    for n in 0..records {
        let mut batch = Batch::new();
        batch.put(TABLE, key(n), [n as u8; 150]);
        ticket = kv.commit(batch)?;
    }
    kv.wait_durable(ticket)?;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "create              {:>9.0} records/s, all durable at the end",
        records as f64 / seconds
    );
    println!("transactions        {:>9}", kv.stats().flushes);
    println!(
        "anonymous memory    {:>9} MB after filling",
        anonymous_memory()? >> 20
    );
    overlay_rate(&kv, records)?;
    sync_latency(&kv, records)?;
    raw_sync_latency(file)?;
    println!("filled");
    let mut n = records;
    loop {
        let mut batch = Batch::new();
        batch.put(TABLE, key(n % records), [n as u8; 150]);
        kv.commit(batch)?;
        n += 7919;
    }
}

/// Has the system drop what it caches of `file`, so that it is read from the disk.
fn forget_cached(file: &str) -> Anyhow {
    let file = std::fs::File::open(file)?;
    file.sync_all()?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    Ok(())
}

fn overlay_rate(kv: &Kv, records: u64) -> Anyhow {
    let start = Instant::now();
    let count = 50_000;
    for n in 0..count {
        let mut batch = Batch::new();
        batch.put(TABLE, key(n * 31 % records), [1; 150]);
        kv.commit(batch)?;
    }
    let each = start.elapsed() / count as u32;
    println!(
        "commit              {:>9} ns each, key and batch made included",
        each.as_nanos()
    );
    kv.wait_durable(kv.committed())?;
    Ok(())
}

fn sync_latency(kv: &Kv, records: u64) -> Anyhow {
    let mut times = Vec::new();
    for n in 0..SYNCS as u64 {
        let mut batch = Batch::new();
        batch.put(TABLE, key(n * 7919 % records), [2; 150]);
        let start = Instant::now();
        let ticket = kv.commit(batch)?;
        kv.wait_durable(ticket)?;
        times.push(start.elapsed());
    }
    print_times("commit until durable", times);
    Ok(())
}

/// What the disk takes for 4 KiB by itself: the yardstick of the figure above.
fn raw_sync_latency(file: &str) -> Anyhow {
    let path = format!("{file}.raw");
    let raw = std::fs::File::create(&path)?;
    raw.set_len(1 << 20)?;
    let mut times = Vec::new();
    for n in 0..SYNCS as u64 {
        let start = Instant::now();
        raw.write_all_at(&[n as u8; 4096], n % 256 * 4096)?;
        raw.sync_data()?;
        times.push(start.elapsed());
    }
    print_times("4 KiB and fdatasync", times);
    Ok(std::fs::remove_file(path)?)
}

fn print_times(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    println!(
        "{what:<20} {:>8.2} ms median, {:.2} ms worst",
        ms(median),
        ms(worst)
    );
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn read(file: &str, records: u64) -> Anyhow {
    let start = Instant::now();
    let kv = Kv::open(FileDisk::open(file)?, TABLES, KvOptions::new("bench"))?;
    println!("open after kill -9  {:>9.2} ms", ms(start.elapsed()));
    println!(
        "anonymous memory    {:>9} MB after opening",
        anonymous_memory()? >> 20
    );
    for pass in ["first", "second"] {
        let start = Instant::now();
        let mut count = 0_u64;
        kv.scan(TABLE, &KeyRange::all(), |_, _| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        let rate = count as f64 / start.elapsed().as_secs_f64();
        println!("scan, {pass:<6}        {rate:>9.0} records/s");
        if count < records {
            return Err(format!("{count} records found of {records}").into());
        }
    }
    let start = Instant::now();
    for n in 0..READS {
        let found = kv.get_with(TABLE, &key(n * 104_729 % records), <[u8]>::len)?;
        if found != Some(150) {
            return Err("a record is missing".into());
        }
    }
    let each = start.elapsed() / READS as u32;
    println!("get, random         {:>9} ns", each.as_nanos());
    println!(
        "anonymous memory    {:>9} MB after reading",
        anonymous_memory()? >> 20
    );
    kv.close()?;
    Ok(())
}

/// This process's anonymous memory, in bytes.
fn anonymous_memory() -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib
        .ok_or("no RssAnon in /proc/self/status")?
        .parse::<u64>()?
        << 10)
}
