//! A store of extents in a file that has the space of its file system. How long it is, what it takes, and
//! that it gives back what was removed.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, a failed unwrap is a failed test"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use allocator::Options;
use base::{ByteRange, Fid};
use storage::extents::{ExtentDisk, ExtentObjects, ExtentTables, StoreId, make_file};
use storage::{
    Backing, Disk, FileDisk, Kv, KvOptions, MemDisk, ObjectId, ObjectStore, Result, SpaceStat,
    StorageError, TableId,
};

const TABLES: ExtentTables = ExtentTables {
    extents: TableId(0),
    sums: TableId(1),
};
const NAMES: [(TableId, &str); 2] = [(TableId(0), "extents"), (TableId(1), "sums")];
const MIB: u64 = 1 << 20;
/// What is kept for the next objects.
const KEPT: u64 = 256 * MIB;
/// More than the log, tables and maps take.
const OTHERS: u64 = 160 * MIB;

fn id(n: u32) -> ObjectId {
    ObjectId::new(Fid::new(0x400, n), 0)
}

struct Target {
    disk: Arc<FileDisk>,
    records: MemDisk,
}

impl Target {
    fn new(dir: &Path) -> Target {
        let path = dir.join("extents");
        make_file(&path, StoreId([3; 16]), None).unwrap();
        let records = MemDisk::new();
        Kv::create(records.clone()).unwrap();
        let disk = Arc::new(FileDisk::open(path).unwrap());
        Target { disk, records }
    }

    fn open(&self) -> ExtentObjects {
        self.open_on(self.disk.clone())
    }

    fn open_on(&self, disk: Arc<dyn Disk>) -> ExtentObjects {
        let options = KvOptions::new("OST0").manual();
        let kv = Arc::new(Kv::open(self.records.clone(), &NAMES, options).unwrap());
        ExtentObjects::open(disk, kv, TABLES, Options::default()).unwrap()
    }

    fn taken(&self) -> u64 {
        self.disk.backing().unwrap().unwrap().taken
    }
}

/// Counts the bytes that are read where the log is.
#[derive(Debug)]
struct Counting {
    disk: Arc<FileDisk>,
    read: AtomicU64,
}

impl Disk for Counting {
    fn len(&self) -> Result<u64> {
        self.disk.len()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if offset < 32 * MIB {
            self.read.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        }
        self.disk.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.disk.write(offset, data)
    }

    fn sync(&self) -> Result<()> {
        self.disk.sync()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.disk.set_len(len)
    }

    fn close(&self) -> Result<()> {
        self.disk.close()
    }

    fn backing(&self) -> Result<Option<Backing>> {
        self.disk.backing()
    }

    fn written(&self, range: ByteRange) -> Result<Vec<ByteRange>> {
        self.disk.written(range)
    }
}

/// Long enough for idle time to do its work.
fn be_idle(store: &ExtentObjects) {
    (0..20).for_each(|_| store.settle().unwrap());
}

#[test]
fn a_store_without_a_size_has_the_space_of_its_file_system() {
    let dir = tempfile::tempdir().unwrap();
    let target = Target::new(dir.path());
    let below = target.disk.backing().unwrap().unwrap().space;
    assert!(target.disk.len().unwrap() >= below.total);
    assert!(target.taken() < OTHERS, "{} bytes", target.taken());
    let space = target.open().statfs().unwrap();
    assert_eq!((space.total, space.disk), (below.total, below.disk));
    // Others write meanwhile.
    assert!(space.available.abs_diff(below.available) < 4096 * MIB);
}

/// Objects of a gigabyte go, in this life of the store or in the one before.
#[test]
fn space_of_removed_objects_goes_back_to_the_file_system() {
    let dir = tempfile::tempdir().unwrap();
    let target = Target::new(dir.path());
    let mut store = target.open();
    for is_restarted in [false, true] {
        for n in 0..4 {
            let range = ByteRange::new(0, 256 * MIB);
            store.allocate(id(n), range, false).unwrap();
            store.write(id(n), n.into(), b"bytes").unwrap();
        }
        store.sync_all().unwrap();
        assert!(target.taken() > 1024 * MIB, "{} bytes", target.taken());
        for n in 1..4 {
            assert!(store.remove(id(n)).unwrap());
        }
        store.sync_all().unwrap();
        if is_restarted {
            drop(store);
            store = target.open();
        }
        be_idle(&store);
        let most = 256 * MIB + KEPT + OTHERS;
        assert!(target.taken() < most, "{} bytes", target.taken());
        let mut bytes = [0; 5];
        store.read(id(0), 0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"bytes");
        assert_eq!(store.audit().unwrap(), []);
    }
}

/// The log of a store of this size has tens of mebibytes.
#[test]
fn a_start_reads_nothing_of_a_log_that_was_never_written() {
    let dir = tempfile::tempdir().unwrap();
    let target = Target::new(dir.path());
    let inside = ByteRange::new(4 * MIB, 32 * MIB);
    if target.disk.written(inside).unwrap() == [inside] {
        println!("not tried: this file system does not know what was never written");
        return;
    }
    for _ in 0..3 {
        let disk = Arc::new(Counting {
            disk: target.disk.clone(),
            read: AtomicU64::new(0),
        });
        let store = target.open_on(disk.clone());
        let read = disk.read.load(Ordering::Relaxed);
        assert!(read < 4 * MIB, "{read} bytes");
        store.write(id(0), 0, b"bytes").unwrap();
        store.sync_all().unwrap();
    }
}

/// The file system below is full when told so: then only what was taken before can be taken.
#[derive(Debug)]
struct Fillable {
    disk: Arc<FileDisk>,
    is_full: AtomicBool,
    taken: Mutex<BTreeSet<u64>>,
    asked: AtomicU64,
}

impl Disk for Fillable {
    fn len(&self) -> Result<u64> {
        self.disk.len()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.disk.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.disk.write(offset, data)
    }

    fn sync(&self) -> Result<()> {
        self.disk.sync()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.disk.set_len(len)
    }

    fn close(&self) -> Result<()> {
        self.disk.close()
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mut taken = self.taken.lock().unwrap();
        let blocks = (offset..offset + len).step_by(4096);
        if self.is_full.load(Ordering::Relaxed) && !blocks.clone().all(|at| taken.contains(&at)) {
            let at = "the file system".to_owned();
            return Err(StorageError::NoSpace { at });
        }
        taken.extend(blocks);
        Ok(())
    }

    fn backing(&self) -> Result<Option<Backing>> {
        let available = match self.is_full.load(Ordering::Relaxed) {
            true => 0,
            false => 1 << 40,
        };
        let space = SpaceStat {
            total: 1 << 40,
            available,
            ..SpaceStat::default()
        };
        Ok(Some(Backing { taken: 0, space }))
    }
}

/// Groups that were never in use are no place for bytes then, and the search for others is not begun anew
/// with each allocation.
#[test]
fn on_a_full_file_system_bytes_go_where_space_is_and_few_places_are_tried() {
    let dir = tempfile::tempdir().unwrap();
    let target = Target::new(dir.path());
    let disk = Arc::new(Fillable {
        disk: target.disk.clone(),
        is_full: AtomicBool::new(false),
        taken: Mutex::default(),
        asked: AtomicU64::new(0),
    });
    let store = target.open_on(disk.clone());
    for n in 0..3 {
        let group = ByteRange::new(0, 128 * MIB);
        store.allocate(id(n), group, false).unwrap();
    }
    // Every tenth block of the last one is free, and no two beside each other.
    for block in (0..32_768).step_by(10) {
        let block = ByteRange::new(block * 4096, block * 4096 + 4096);
        store.punch(id(2), block).unwrap();
    }
    store.sync_all().unwrap();
    disk.is_full.store(true, Ordering::Relaxed);
    let before = disk.asked.load(Ordering::Relaxed);
    for n in 100..2100 {
        store.write(id(n), 0, b"bytes").unwrap();
    }
    let asked = disk.asked.load(Ordering::Relaxed) - before;
    assert!(asked < 20, "{asked} places were tried");
    let fill = || (2100..9000).find_map(|n| store.write(id(n), 0, b"bytes").err());
    let error = fill().unwrap();
    assert!(matches!(error, StorageError::NoSpace { .. }), "{error}");
    // One that is removed makes room, and so does other space of the file system.
    assert!(store.remove(id(0)).unwrap());
    store.write(id(9001), 0, &vec![7; 8 << 20]).unwrap();
    disk.is_full.store(false, Ordering::Relaxed);
    store.write(id(9002), 0, &vec![8; 200 << 20]).unwrap();
    store.sync_all().unwrap();
    assert_eq!(store.audit().unwrap(), []);
}

#[test]
fn after_a_clean_end_a_start_has_no_row_to_put_once_more() {
    let dir = tempfile::tempdir().unwrap();
    let target = Target::new(dir.path());
    let store = target.open();
    for n in 0..100 {
        store.write(id(n), 0, b"bytes").unwrap();
    }
    store.sync_all().unwrap();
    store.remove(id(0)).unwrap();
    store.settle_all().unwrap();
    drop(store);
    let opened = ExtentDisk::open(target.disk.clone(), "OST0", Options::default()).unwrap();
    assert_eq!(opened.replayed, []);
    drop(opened);
    let store = target.open();
    assert_eq!(store.stat(id(0)).unwrap(), None);
    assert_eq!(store.read_shared(id(99), 0, 9).unwrap(), b"bytes"[..]);
    assert_eq!(store.audit().unwrap(), []);
}
