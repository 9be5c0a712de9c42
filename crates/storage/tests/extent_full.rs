//! A store of extents on a small file system that is full. Every call ends, and what is kept free below stays
//! free.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, a failed unwrap is a failed test"
)]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use allocator::Options;
use base::{ByteRange, Fid, Rng, SeededRng};
use storage::extents::{ExtentDisk, ExtentObjects, ExtentTables, Geometry, StoreId};
use storage::{
    Backing, Disk, Kv, KvOptions, MemDisk, ObjectId, ObjectStore, Result, SpaceStat, StorageError,
    TableId,
};

const TABLES: ExtentTables = ExtentTables {
    extents: TableId(0),
    sums: TableId(1),
};
const NAMES: [(TableId, &str); 2] = [(TableId(0), "extents"), (TableId(1), "sums")];
const MIB: u64 = 1 << 20;
const KIB: usize = 1 << 10;
const BLOCK: u64 = 4096;
/// The file system, and its sparse file.
const BELOW: u64 = 16 * MIB;
const FILE: u64 = 64 * MIB;
/// More than one call may take.
const SYNCS_MAX: u64 = 200;

fn id(n: u64) -> ObjectId {
    ObjectId::new(Fid::new(0x400, n as u32), 0)
}

/// What the file system knows.
#[derive(Debug, Default)]
struct Below {
    /// Blocks of the file that have space.
    taken: BTreeSet<u64>,
    /// Blocks that other files have.
    others: u64,
    refused: u64,
    syncs: u64,
}

impl Below {
    fn available(&self) -> u64 {
        (BELOW / BLOCK).saturating_sub(self.taken.len() as u64 + self.others)
    }

    fn take(&mut self, offset: u64, len: u64) -> Result<()> {
        for block in offset / BLOCK..(offset + len).div_ceil(BLOCK) {
            if !self.taken.contains(&block) && self.available() == 0 {
                self.refused += 1;
                let at = "the file system".to_owned();
                return Err(StorageError::NoSpace { at });
            }
            self.taken.insert(block);
        }
        Ok(())
    }
}

/// A sparse file of a small file system. Like one of those it takes what it can where it cannot take all.
#[derive(Debug)]
struct Sparse {
    file: MemDisk,
    below: Mutex<Below>,
}

impl Sparse {
    fn below(&self) -> MutexGuard<'_, Below> {
        self.below.lock().unwrap()
    }

    fn available(&self) -> u64 {
        self.below().available() * BLOCK
    }
}

impl Disk for Sparse {
    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.file.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.below().take(offset, data.len() as u64)?;
        self.file.write(offset, data)
    }

    fn sync(&self) -> Result<()> {
        let mut below = self.below();
        below.syncs += 1;
        assert!(below.syncs < SYNCS_MAX, "a call does not end");
        self.file.sync()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len)
    }

    fn close(&self) -> Result<()> {
        self.file.close()
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        self.below().take(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let mut below = self.below();
        for block in offset / BLOCK..(offset + len) / BLOCK {
            below.taken.remove(&block);
        }
        Ok(())
    }

    fn backing(&self) -> Result<Option<Backing>> {
        let below = self.below();
        let available = below.available() * BLOCK;
        let space = SpaceStat {
            total: BELOW,
            free: available,
            available,
            ..SpaceStat::default()
        };
        let taken = below.taken.len() as u64 * BLOCK;
        Ok(Some(Backing { taken, space }))
    }
}

struct Target {
    disk: Arc<Sparse>,
    records: MemDisk,
}

impl Target {
    fn new() -> Target {
        let disk = Arc::new(Sparse {
            file: MemDisk::new(),
            below: Mutex::default(),
        });
        let geometry = Geometry::new(StoreId([3; 16]), FILE, 256).unwrap();
        disk.set_len(FILE).unwrap();
        disk.reserve(0, geometry.data_offset(allocator::Block(0)))
            .unwrap();
        ExtentDisk::create(&disk, &geometry).unwrap();
        let records = MemDisk::new();
        Kv::create(records.clone()).unwrap();
        Target { disk, records }
    }

    fn open(&self) -> ExtentObjects {
        let options = KvOptions::new("OST0").manual();
        let kv = Arc::new(Kv::open(self.records.clone(), &NAMES, options).unwrap());
        ExtentObjects::open(self.disk.clone(), kv, TABLES, Options::default()).unwrap()
    }

    /// One call, with no more syncs than it may take, and few places tried in vain.
    fn one<T>(&self, call: impl FnOnce() -> Result<T>) -> Result<T> {
        let before = {
            let mut below = self.disk.below();
            below.syncs = 0;
            below.refused
        };
        let done = call();
        let refused = self.disk.below().refused - before;
        assert!(refused < 40, "{refused} places were tried in vain");
        done
    }
}

fn floor() -> u64 {
    let space = SpaceStat {
        total: BELOW,
        ..SpaceStat::default()
    };
    space.floor()
}

/// What the store says that data may take.
fn room(store: &ExtentObjects) -> u64 {
    let space = store.statfs().unwrap();
    space.available.saturating_sub(space.floor())
}

fn is_full(error: &StorageError) -> bool {
    matches!(error, StorageError::NoSpace { .. })
}

/// Writes new objects until none fits: their number.
fn fill(target: &Target, store: &ExtentObjects, len: usize) -> u64 {
    let refused = (0..10_000).find(|n| {
        let written = target.one(|| store.write(id(*n), 0, &vec![7; len]));
        written.is_err_and(|error| is_full(&error))
    });
    refused.unwrap()
}

/// Bytes that are replaced need other places first; those become free with a commit.
#[test]
fn bytes_are_replaced_on_a_full_disk_in_a_bounded_number_of_commits() {
    let target = Target::new();
    let store = target.open();
    target
        .one(|| store.write(id(0), 0, &vec![1; 4 << 20]))
        .unwrap();
    fill(&target, &store, 300 * KIB);
    target.one(|| store.sync_all()).unwrap();
    for round in 2..9 {
        let done = target.one(|| store.write(id(0), 0, &vec![round; 4 << 20]));
        assert!(done.as_ref().err().is_none_or(is_full), "{done:?}");
    }
    // With room for a part of it, all of it is replaced, one part after the other.
    assert!(store.remove(id(1)).unwrap());
    for round in 2..9 {
        let bytes = vec![round; 4 << 20];
        target.one(|| store.write(id(0), 0, &bytes)).unwrap();
        target.one(|| store.sync_all()).unwrap();
        assert!(store.read_shared(id(0), 0, 4 << 20).unwrap() == bytes);
    }
    assert_eq!(store.audit().unwrap(), []);
}

#[test]
fn what_is_kept_free_below_stays_free() {
    let target = Target::new();
    for len in [300 * KIB, 5 * KIB, 1 << 20] {
        let store = target.open();
        let fit = fill(&target, &store, len);
        let blocks = fit * (len as u64).div_ceil(BLOCK);
        assert!(blocks * BLOCK > 10 * MIB, "{blocks} blocks");
        assert!(target.disk.available() >= floor());
        assert!(room(&store) < len as u64 + BLOCK, "{} bytes", room(&store));
        (0..fit).for_each(|n| assert!(store.remove(id(n)).unwrap()));
        target.one(|| store.sync_all()).unwrap();
        assert!(room(&store) > 10 * MIB, "{} bytes", room(&store));
    }
}

/// Objects of all sizes are written, replaced, cut and removed, as a server admits it.
#[test]
fn what_the_store_promises_can_be_written() {
    for seed in 8..14 {
        let (target, mut rng) = (Target::new(), SeededRng::new(seed));
        let mut store = target.open();
        let mut refused = 0;
        for step in 0..400 {
            let of = id(rng.below(12));
            let len = [5_000, 70_000, 700_000, 2_000_000][rng.below(4) as usize];
            let at = rng.below(1_500_000);
            match rng.below(20) {
                0 => drop(store.remove(of).unwrap()),
                1 => drop(target.one(|| store.truncate(of, at))),
                2 => target.one(|| store.sync_all()).unwrap(),
                3 if step % 7 == 0 => {
                    drop(store);
                    store = target.open();
                }
                _ if room(&store) < (len + BLOCK) => refused += 1,
                _ => {
                    let written =
                        target.one(|| store.write(of, at, &vec![step as u8; len as usize]));
                    written.unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
                }
            }
            assert!(
                target.disk.available() >= floor(),
                "seed {seed}, step {step}"
            );
        }
        assert!(refused > 0, "the disk of seed {seed} was never full");
        assert_eq!(store.audit().unwrap(), []);
    }
}

/// Others take all. Then bytes go where the file has space, and nothing is tried without end.
#[test]
fn on_a_disk_that_others_fill_every_call_ends() {
    for seed in 0..4 {
        let (target, mut rng) = (Target::new(), SeededRng::new(seed));
        let store = target.open();
        for n in 0..12 {
            let len = 1 + rng.below(900_000) as usize;
            target.one(|| store.write(id(n), 0, &vec![1; len])).unwrap();
        }
        for step in 0..200 {
            let available = target.disk.below().available();
            target.disk.below().others += available;
            let (of, at) = (id(rng.below(12)), rng.below(900_000));
            let done = match rng.below(6) {
                0 => target.one(|| store.truncate(of, at)),
                1 => target.one(|| store.remove(of)).map(drop),
                2 => target.one(|| store.sync_all()),
                3 => target.one(|| store.punch(of, ByteRange::new(at, at + 100_000))),
                4 => target.one(|| store.allocate(of, ByteRange::new(at, at + 500_000), false)),
                _ => {
                    target.one(|| store.write(of, at, &vec![step; 1 + rng.below(900_000) as usize]))
                }
            };
            assert!(done.as_ref().err().is_none_or(is_full), "{done:?}");
        }
        assert_eq!(store.audit().unwrap(), []);
    }
}
