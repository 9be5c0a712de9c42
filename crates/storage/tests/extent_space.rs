//! A store of extents in a file that has the space of its file system. How long it is, what it takes, and
//! that it gives back what was removed.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, a failed unwrap is a failed test"
)]

use std::path::Path;
use std::sync::Arc;

use allocator::Options;
use base::{ByteRange, Fid};
use storage::extents::{ExtentObjects, ExtentTables, StoreId, make_file};
use storage::{Disk, FileDisk, Kv, KvOptions, MemDisk, ObjectId, ObjectStore, TableId};

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
        let options = KvOptions::new("OST0").manual();
        let kv = Arc::new(Kv::open(self.records.clone(), &NAMES, options).unwrap());
        ExtentObjects::open(self.disk.clone(), kv, TABLES, Options::default()).unwrap()
    }

    fn taken(&self) -> u64 {
        self.disk.backing().unwrap().unwrap().taken
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
