//! One durable commit of objects' records, as rows of the key-value store and as a record of the log. Called
//! by the example and by the test `commit_cost`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::{Rng, SeededRng};
use storage::extents::log::{BLOCK_BYTES, Position};
use storage::extents::{Area, Log};
use storage::{Batch, Disk, Kv, KvOptions, Result, TableId};

const OBJECTS: TableId = TableId(0);
const META: TableId = TableId(1);
const SEALS: TableId = TableId(2);
const TABLES: &[(TableId, &str)] = &[
    (OBJECTS, "ost_objects"),
    (META, "ost_meta"),
    (SEALS, "ost_seals"),
];

/// The log's ring in the measurement, and the blocks behind it that bytes go to.
const AREA: Area = Area {
    first: 1,
    blocks: 1 << 12,
};
const DATA_FIRST: u64 = AREA.first + AREA.blocks;
const DATA_BLOCKS: u64 = 1 << 14;

/// Bytes that a log record has for one object of a block: its key, row with extent and sum, and what was
/// allocated.
const LOGGED_BYTES: usize = 128;

/// Counts what goes to the disk below. Clones share it.
#[derive(Debug, Clone)]
pub struct CountingDisk {
    below: Arc<dyn Disk>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    bytes: AtomicU64,
    flushes: AtomicU64,
}

impl CountingDisk {
    /// Counts from zero.
    pub fn new(below: impl Disk + 'static) -> CountingDisk {
        CountingDisk {
            below: Arc::new(below),
            counts: Arc::default(),
        }
    }

    fn counted(&self) -> (u64, u64) {
        let Counts { bytes, flushes } = &*self.counts;
        (
            bytes.load(Ordering::Relaxed),
            flushes.load(Ordering::Relaxed),
        )
    }
}

impl Disk for CountingDisk {
    fn len(&self) -> Result<u64> {
        self.below.len()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.below.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let bytes = data.len() as u64;
        self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.below.write(offset, data)
    }

    fn sync(&self) -> Result<()> {
        self.counts.flushes.fetch_add(1, Ordering::Relaxed);
        self.below.sync()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.below.set_len(len)
    }

    fn close(&self) -> Result<()> {
        self.below.close()
    }
}

/// What commits cost, each.
#[derive(Debug)]
pub struct Costs {
    /// Bytes written to the disk of the records, or of the log with the bytes beside it.
    pub bytes: u64,
    /// Syncs of that disk.
    pub flushes: f64,
    /// Of each commit, the shortest first.
    pub times: Vec<Duration>,
}

fn costs(
    disk: &CountingDisk,
    commits: u64,
    mut commit: impl FnMut(u64) -> Result<()>,
) -> Result<Costs> {
    let (bytes, flushes) = disk.counted();
    let mut times = Vec::new();
    for n in 0..commits {
        let start = Instant::now();
        commit(n)?;
        times.push(start.elapsed());
    }
    times.sort();
    let (bytes_now, flushes_now) = disk.counted();
    Ok(Costs {
        bytes: (bytes_now - bytes) / commits,
        flushes: (flushes_now - flushes) as f64 / commits as f64,
        times,
    })
}

/// The key of object `n`: FIDs of many sequences, as clients mint them, and stripe zero.
fn key(n: u64) -> [u8; 12] {
    let sequence = 0x400 + SeededRng::new(n / 1000).below(1 << 20);
    let fid = (sequence << 24) | (n % 1000);
    let mut key = [0; 12];
    key[..8].copy_from_slice(&fid.to_be_bytes());
    key
}

/// The rows that a sync of an object of one block puts today: its record, its sum, its end.
fn put_object(batch: &mut Batch, n: u64, version: u64) {
    batch.put(OBJECTS, key(n), [version as u8; 25]);
    for (segment, bytes) in [(0_u64, 10), (u64::MAX - 1, 10)] {
        let mut seal = [0; 20];
        seal[..12].copy_from_slice(&key(n));
        seal[12..].copy_from_slice(&segment.to_be_bytes());
        batch.put(SEALS, seal, vec![version as u8; bytes]);
    }
}

/// A store of records with `objects` objects, and its disk.
pub fn fill(disk: CountingDisk, objects: u64) -> Result<(Kv, CountingDisk)> {
    Kv::create(disk.clone())?;
    let kv = Kv::open(disk.clone(), TABLES, KvOptions::new("commit_cost").manual())?;
    for first in (0..objects).step_by(1000) {
        let mut batch = Batch::new();
        for n in first..objects.min(first + 1000) {
            put_object(&mut batch, n, 0);
        }
        kv.commit(batch)?;
        if first % 100_000 == 0 {
            kv.flush_once()?;
        }
    }
    kv.flush_once()?;
    Ok((kv, disk))
}

/// Commits of `objects_each` objects anywhere among `objects`, as rows: each durable before the next. The
/// sync of the objects' own files comes on top.
pub fn rows(
    (kv, disk): &(Kv, CountingDisk),
    objects: u64,
    commits: u64,
    objects_each: u64,
) -> Result<Costs> {
    let mut rng = SeededRng::new(objects_each);
    costs(disk, commits, |n| {
        let mut batch = Batch::new();
        for _ in 0..objects_each {
            put_object(&mut batch, rng.below(objects), n);
        }
        batch.put(META, *b"history", [n as u8; 17]);
        kv.commit(batch)?;
        kv.flush_once().map(drop)
    })
}

/// The same as log records: a block of each object beside the record, and one sync. The cost does not depend
/// on the number of objects there are.
pub fn log_records(disk: &CountingDisk, commits: u64, objects_each: u64) -> Result<Costs> {
    // Space that is there before: else each sync waits for the local file system's own metadata too.
    let zeros = vec![0; 1 << 20];
    let total = (DATA_FIRST + DATA_BLOCKS) * BLOCK_BYTES;
    for offset in (0..total).step_by(zeros.len()) {
        disk.write(offset, &zeros[..zeros.len().min((total - offset) as usize)])?;
    }
    disk.sync()?;
    let mut log = Log::new(AREA, 0, 0, Position::START, 1);
    let mut next = 0;
    costs(disk, commits, |n| {
        let block = [n as u8; BLOCK_BYTES as usize];
        for _ in 0..objects_each {
            let place = DATA_FIRST + next % DATA_BLOCKS;
            disk.write(place * BLOCK_BYTES, &block)?;
            next += 1;
        }
        log.trim(log.end().block);
        let body = vec![n as u8; LOGGED_BYTES * objects_each as usize];
        let appended = log.append(&body);
        let (ticket, pieces) =
            appended.map_err(|_| storage::StorageError::refused("log", "full"))?;
        for piece in pieces {
            disk.write(piece.offset, &piece.bytes)?;
        }
        disk.sync()?;
        log.made_durable(ticket);
        Ok(())
    })
}
