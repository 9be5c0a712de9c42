//! Hundreds of small objects on extents: written together, committed together, read together.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, a failed unwrap is a failed test"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use allocator::{Block, Options};
use base::Fid;
use storage::extents::{ExtentDisk, ExtentObjects, ExtentTables, Geometry, StoreId};
use storage::{
    Disk, FaultyDisk, Kv, KvOptions, MemDisk, ObjectId, ObjectStore, Result, Survivors, TableId,
    Wanted,
};

const TABLES: ExtentTables = ExtentTables {
    extents: TableId(0),
    sums: TableId(1),
};
const NAMES: [(TableId, &str); 2] = [(TableId(0), "extents"), (TableId(1), "sums")];
const OBJECTS: u64 = 300;

/// A disk whose reads have to wait, and which counts calls: those of the data by themselves.
#[derive(Debug)]
struct Counting {
    disk: MemDisk,
    data: u64,
    reads: AtomicU64,
    writes: AtomicU64,
    log_writes: AtomicU64,
    syncs: AtomicU64,
}

impl Counting {
    fn counts(&self) -> [u64; 4] {
        let counts = [&self.reads, &self.writes, &self.log_writes, &self.syncs];
        counts.map(|count| count.swap(0, Ordering::Relaxed))
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Disk for Counting {
    fn len(&self) -> Result<u64> {
        self.disk.len()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        count(&self.reads);
        self.disk.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        count(if offset < self.data {
            &self.log_writes
        } else {
            &self.writes
        });
        self.disk.write(offset, data)
    }

    fn sync(&self) -> Result<()> {
        count(&self.syncs);
        self.disk.sync()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.disk.set_len(len)
    }

    fn close(&self) -> Result<()> {
        self.disk.close()
    }

    fn is_cold(&self, _offset: u64, _len: u64) -> bool {
        true
    }
}

fn id(number: u64) -> ObjectId {
    ObjectId::new(Fid::new(0x400, number as u32 + 1), 0)
}

fn bytes(number: u64) -> Vec<u8> {
    vec![(number % 255) as u8 + 1; 1000 + number as usize * 37 % 7000]
}

fn open(disk: Arc<dyn Disk>, records: impl Disk + 'static) -> Result<ExtentObjects> {
    let kv = Kv::open(records, &NAMES, KvOptions::new("OST0").manual())?;
    ExtentObjects::open(disk, Arc::new(kv), TABLES, Options::default())
}

fn formatted() -> (MemDisk, MemDisk, Geometry) {
    let geometry = Geometry::new(StoreId([9; 16]), 16 << 20, 256).unwrap();
    let (extents, records) = (MemDisk::new(), MemDisk::new());
    ExtentDisk::create(&extents, &geometry).unwrap();
    Kv::create(records.clone()).unwrap();
    (extents, records, geometry)
}

fn counting(disk: MemDisk, geometry: &Geometry) -> Arc<Counting> {
    Arc::new(Counting {
        disk,
        data: geometry.data_offset(Block(0)),
        reads: AtomicU64::new(0),
        writes: AtomicU64::new(0),
        log_writes: AtomicU64::new(0),
        syncs: AtomicU64::new(0),
    })
}

fn wanted(numbers: impl Iterator<Item = u64>) -> Vec<Wanted> {
    let whole = |number| Wanted {
        id: id(number),
        offset: 0,
        len: 65_536,
    };
    numbers.map(whole).collect()
}

#[test]
fn hundreds_of_small_objects_are_two_writes_one_commit_and_few_reads() {
    let (extents, records, geometry) = formatted();
    let disk = counting(extents, &geometry);
    let store = open(disk.clone(), records.clone()).unwrap();
    disk.counts();
    for number in 0..OBJECTS {
        store.write(id(number), 0, &bytes(number)).unwrap();
    }
    store.sync_all().unwrap();
    // Of the data as many as there are mebibytes, and the last part; one record; one flush.
    let [reads, writes, log_writes, syncs] = disk.counts();
    assert!(writes <= 3, "{writes} writes");
    assert_eq!((reads, log_writes, syncs), (0, 1, 1));
    drop(store);

    let store = open(disk.clone(), records.clone()).unwrap();
    disk.counts();
    // In any order.
    let shuffled: Vec<u64> = (0..OBJECTS).map(|number| number * 77 % OBJECTS).collect();
    let wanted = wanted(shuffled.iter().copied());
    store.read_ahead(&wanted).unwrap();
    for number in &shuffled {
        let found = store.read_shared(id(*number), 0, 65_536).unwrap();
        assert!(found[..] == bytes(*number), "object {number}");
    }
    let [reads, ..] = disk.counts();
    assert!(reads <= 4, "{reads} reads");
    // What was read ahead is not taken for what was written since.
    store.read_ahead(&wanted).unwrap();
    store.write(id(7), 0, b"later").unwrap();
    store.remove(id(8)).unwrap();
    store.sync_all().unwrap();
    store.write(id(OBJECTS), 0, &bytes(1)).unwrap();
    assert!(store.read_shared(id(7), 0, 5).unwrap()[..] == *b"later");
    assert!(store.read_shared(id(8), 0, 5).unwrap().is_empty());
    assert!(store.read_shared(id(OBJECTS), 0, 9999).unwrap()[..] == bytes(1));
}

/// Every tenth object is read with the others of these: they lie apart.
fn apart() -> impl Iterator<Item = u64> {
    (0..OBJECTS).step_by(10)
}

fn check_all(store: &ExtentObjects, what: &str) {
    for number in 0..OBJECTS {
        let found = store.read_shared(id(number), 0, 65_536).unwrap();
        assert!(found[..] == bytes(number), "{what}: object {number}");
    }
    assert_eq!(store.audit().unwrap(), [], "{what}");
}

#[test]
fn objects_that_are_read_together_are_moved_together_in_idle_time() {
    let (extents, records, geometry) = formatted();
    let disk = counting(extents, &geometry);
    let store = open(disk.clone(), records.clone()).unwrap();
    for number in 0..OBJECTS {
        store.write(id(number), 0, &bytes(number)).unwrap();
    }
    store.sync_all().unwrap();
    let free = store.statfs().unwrap().free;
    disk.counts();
    store.read_ahead(&wanted(apart())).unwrap();
    let reads = disk.counts()[0];
    // Not while there is work.
    store.settle().unwrap();
    assert_eq!(disk.counts()[1], 0);
    store.settle().unwrap();
    let [_, writes, log_writes, syncs] = disk.counts();
    assert_eq!((writes, log_writes, syncs), (1, 1, 1));
    assert_eq!(store.statfs().unwrap().free, free);
    check_all(&store, "moved");
    drop(store);
    let store = open(disk.clone(), records).unwrap();
    disk.counts();
    store.read_ahead(&wanted(apart())).unwrap();
    assert_eq!((reads, disk.counts()[0]), (OBJECTS / 10, 1));
    // They lie well: nothing more is to be done.
    store.settle().unwrap();
    store.settle().unwrap();
    assert_eq!(disk.counts()[1], 0);
    check_all(&store, "opened again");
}

#[test]
fn a_power_cut_while_objects_are_moved_changes_none_of_them() {
    let (extents, records, _) = formatted();
    let store = open(Arc::new(extents.clone()), records.clone()).unwrap();
    for number in 0..OBJECTS {
        store.write(id(number), 0, &bytes(number)).unwrap();
    }
    store.sync_all().unwrap();
    drop(store);
    let mut cut = 0;
    loop {
        let copy = |disk: &MemDisk| MemDisk::from_bytes(disk.to_bytes());
        let (extents, records) = (copy(&extents), copy(&records));
        let faulty = FaultyDisk::new(extents.clone());
        faulty.cut_after(cut);
        let tidied = open(Arc::new(faulty.clone()), records.clone()).and_then(|store| {
            store.read_ahead(&wanted(apart()))?;
            store.settle()?;
            store.settle()
        });
        faulty.power_cut(Survivors::Random { seed: cut }).unwrap();
        let store = open(Arc::new(extents), records).unwrap();
        check_all(&store, &format!("cut {cut}"));
        if tidied.is_ok() {
            break;
        }
        cut += 1;
    }
    // Opening, the bytes, the record and the flush.
    assert!(cut >= 5, "{cut}");
}
