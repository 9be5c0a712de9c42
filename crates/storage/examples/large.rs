//! How long it takes to open a store of extents on a sparse file of 1 TiB, and to find places on it. First
//! make it with the word `make`. The word `cut` leaves commits behind as a killed server does.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{ByteRange, Fid, Rng, SeededRng};
use storage::extents::{ExtentObjects, ExtentTables, Options, StoreId, make_file};
use storage::{Disk, FileDisk, Kv, KvOptions, ObjectId, ObjectStore, TableId};

type Anyhow<T = ()> = Result<T, Box<dyn std::error::Error>>;

const BYTES: u64 = 1 << 40;
const BLOCK: u64 = 4096;
const GROUP: u64 = 32_768 * BLOCK;
const TABLES: ExtentTables = ExtentTables {
    extents: TableId(0),
    sums: TableId(1),
};
const NAMES: [(TableId, &str); 2] = [(TableId(0), "extents"), (TableId(1), "sums")];

fn main() -> Anyhow {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["make", dir, extents] => make(dir.as_ref(), extents.parse()?),
        ["cut", dir] => cut(dir.as_ref()),
        ["open", dir] => open(dir.as_ref()).map(drop),
        ["place", dir] => place(dir.as_ref()),
        _ => Err("usage: large make DIR EXTENTS | cut DIR | open DIR | place DIR".into()),
    }
}

fn id(n: u32) -> ObjectId {
    let fid = Fid::new(0x400 + u64::from(n >> 20), (n & 0xf_ffff) + 1);
    ObjectId::new(fid, 0)
}

fn files(dir: &Path) -> (PathBuf, PathBuf) {
    (dir.join("extents"), dir.join("db"))
}

/// A file of which no space is taken beforehand: nothing is written to most of it.
#[derive(Debug)]
struct Sparse(FileDisk);

impl Disk for Sparse {
    fn len(&self) -> storage::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> storage::Result<()> {
        self.0.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> storage::Result<()> {
        self.0.write(offset, data)
    }

    fn sync(&self) -> storage::Result<()> {
        self.0.sync()
    }

    fn set_len(&self, len: u64) -> storage::Result<()> {
        self.0.set_len(len)
    }

    fn close(&self) -> storage::Result<()> {
        self.0.close()
    }

    fn written(&self, range: ByteRange) -> storage::Result<Vec<ByteRange>> {
        self.0.written(range)
    }
}

fn open(dir: &Path) -> Anyhow<ExtentObjects> {
    let (extents, records) = files(dir);
    let start = Instant::now();
    let kv = Arc::new(Kv::open(
        FileDisk::open(records)?,
        &NAMES,
        KvOptions::new("OST0"),
    )?);
    let in_records = start.elapsed();
    let disk = Arc::new(Sparse(FileDisk::open(extents)?));
    let store = ExtentObjects::open(disk, kv, TABLES, Options::default())?;
    println!(
        "opened in {:.3} s ({:.3} s of it the records), {} MB at most",
        start.elapsed().as_secs_f64(),
        in_records.as_secs_f64(),
        memory_mb()?
    );
    Ok(store)
}

/// The most memory that this process had.
fn memory_mb() -> Anyhow<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.unwrap_or("0").trim().trim_end_matches(" kB");
    Ok(kilobytes.parse::<u64>()? / 1024)
}

/// An object of 128 MiB a group, of which every `every`th block is a hole.
fn fill(store: &ExtentObjects, objects: std::ops::Range<u32>, every: usize) -> Anyhow {
    for n in objects {
        store.allocate(id(n), ByteRange::new(0, GROUP), false)?;
        for block in (0..GROUP).step_by(every * BLOCK as usize) {
            store.punch(id(n), ByteRange::new(block, block + BLOCK))?;
        }
        if n % 16 == 0 {
            store.sync_all()?;
        }
    }
    Ok(())
}

/// A part of the extents are of large objects, the others are objects of one block.
fn make(dir: &Path, extents: u64) -> Anyhow {
    let (file, records) = files(dir);
    std::fs::create_dir_all(dir)?;
    make_file(&file, StoreId([7; 16]), Some(BYTES))?;
    Kv::create(FileDisk::create(&records)?)?;
    let store = open(dir)?;
    let small = extents / 10;
    fill(&store, 0..(extents - small).div_ceil(16_384) as u32, 2)?;
    for n in 0..small as u32 {
        let range = ByteRange::new(0, BLOCK);
        store.allocate(id(10_000_000 + n), range, false)?;
        if n % 4096 == 0 {
            store.sync_all()?;
        }
    }
    store.sync_all()?;
    let map = store.map(id(0), 0, 1 << 16)?.ok_or("no map")?;
    println!("a large object has {} extents", map.extents.len());
    Ok(())
}

/// Commits that no checkpoint has, and no rows for them in the records.
fn cut(dir: &Path) -> Anyhow {
    let store = open(dir)?;
    for n in 0..20_000 {
        store.write(id(30_000_000 + n), 0, &[1; 100])?;
        if n % 100 == 0 {
            store.sync_all()?;
        }
    }
    store.sync_all()?;
    // As kill -9 does.
    std::process::abort()
}

/// Takes 90 % of the space, every tenth block left out, and measures what allocations take then.
fn place(dir: &Path) -> Anyhow {
    let store = open(dir)?;
    let start = Instant::now();
    let groups = (BYTES / GROUP) as u32 - 8;
    fill(&store, 0..groups, 10)?;
    println!(
        "{groups} groups filled in {:.0} s",
        start.elapsed().as_secs_f64()
    );
    let mut rng = SeededRng::new(1);
    let mut times: Vec<Duration> = Vec::new();
    for n in 0..100_000 {
        let object = id(20_000_000 + n);
        let range = ByteRange::new(0, (1 + rng.below(4)) * BLOCK);
        let start = Instant::now();
        store.allocate(object, range, false)?;
        times.push(start.elapsed());
        if n % 512 == 0 {
            store.sync_all()?;
        }
    }
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 1000].as_nanos();
    println!(
        "an allocation of 1 to 4 blocks: {} ns median, {} ns p99, {} ns p99.9, {} ns worst; {} MB",
        at(500),
        at(990),
        at(999),
        at(1000),
        memory_mb()?
    );
    Ok(())
}
