//! Both object stores against each other and a plain model, and their edges.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, a failed unwrap is a failed test"
)]

use base::limits::FILE_BYTES_MAX;
use base::{ByteRange, Fid, Rng, SeededRng};
use std::sync::Arc;

use storage::extents::{ExtentDisk, ExtentObjects, ExtentTables, Geometry, StoreId};
use storage::{Disk, Kv, MemDisk, TableId};
use storage::{ObjectFiles, ObjectId, ObjectMemory, ObjectStore, StorageError};

const MIB: u64 = 1 << 20;

fn id(n: u64) -> ObjectId {
    ObjectId::new(Fid::new(0x400 + n / 7, n as u32), (n % 3) as u32)
}

fn files() -> (tempfile::TempDir, ObjectFiles) {
    let dir = tempfile::tempdir().unwrap();
    let store = ObjectFiles::open(dir.path()).unwrap();
    (dir, store)
}

fn extents(bytes: u64) -> ExtentObjects {
    let disk = MemDisk::new();
    // Superblocks, log, tables and a map twice beside the data.
    let beside = (2 + 64 + 4 + 2) << 12;
    let geometry = Geometry::new(StoreId([3; 16]), bytes + beside, 64).unwrap();
    assert_eq!(geometry.data_blocks * 4096, bytes);
    ExtentDisk::create(&disk, &geometry).unwrap();
    let tables = ExtentTables {
        extents: TableId(0),
        sums: TableId(1),
    };
    let names = [(TableId(0), "extents"), (TableId(1), "sums")];
    let kv = Arc::new(Kv::scratch(&names).unwrap());
    let disk: Arc<dyn Disk> = Arc::new(disk);
    ExtentObjects::open(disk, kv, tables, Default::default()).unwrap()
}

fn with_each(test: impl Fn(&dyn ObjectStore)) {
    let (_dir, files) = files();
    test(&files);
    // A file system with fewer ways to allocate.
    if let Ok(dir) = tempfile::tempdir_in("/dev/shm") {
        test(&ObjectFiles::open(dir.path()).unwrap());
    }
    test(&ObjectMemory::new(64 * MIB));
    test(&extents(64 * MIB));
}

fn bytes(store: &dyn ObjectStore, id: ObjectId) -> Option<Vec<u8>> {
    let size = store.stat(id).unwrap()?.size as usize;
    let mut buffer = vec![0xee; size + 10];
    let count = store.read(id, 0, &mut buffer).unwrap();
    assert_eq!(count, size);
    buffer.truncate(size);
    Some(buffer)
}

#[test]
fn both_agree_with_a_vector_on_random_operations() {
    with_each(|store| {
        let mut rng = SeededRng::new(5);
        let mut model: std::collections::BTreeMap<ObjectId, Vec<u8>> = Default::default();
        for _ in 0..1_500 {
            let id = id(rng.below(4));
            let (at, len) = (rng.below(20_000), rng.below(9_000) + 1);
            let range = ByteRange::new(at, at + len);
            let span = at as usize..(at + len) as usize;
            let keep_size = rng.below(2) == 0;
            match rng.below(9) {
                0 => assert_eq!(store.remove(id).unwrap(), model.remove(&id).is_some()),
                1 => {
                    store.truncate(id, at).unwrap();
                    model.entry(id).or_default().resize(at as usize, 0);
                }
                2 => {
                    store.punch(id, range).unwrap();
                    if let Some(held) = model.get_mut(&id) {
                        let end = span.end.min(held.len());
                        held[span.start.min(end)..end].fill(0);
                    }
                }
                3 | 4 => {
                    let zeroes = rng.below(2) == 0;
                    match zeroes {
                        true => store.zero(id, range, keep_size).unwrap(),
                        false => store.allocate(id, range, keep_size).unwrap(),
                    }
                    let held = model.entry(id).or_default();
                    if !keep_size && held.len() < span.end {
                        held.resize(span.end, 0);
                    }
                    let end = span.end.min(held.len());
                    if zeroes {
                        held[span.start.min(end)..end].fill(0);
                    }
                }
                _ => {
                    let data = vec![rng.next_u64() as u8; len as usize];
                    store.write(id, at, &data).unwrap();
                    let held = model.entry(id).or_default();
                    held.resize(held.len().max(span.end), 0);
                    held[span].copy_from_slice(&data);
                }
            }
            assert!(bytes(store, id) == model.get(&id).cloned(), "object {id}");
        }
        let mut listed = Vec::new();
        store.list(&mut |id| listed.push(id)).unwrap();
        listed.sort();
        assert_eq!(listed, model.keys().copied().collect::<Vec<_>>());
    });
}

#[test]
fn holes_take_no_space_and_are_found() {
    with_each(|store| {
        store.write(id(1), MIB, &[1; 8192]).unwrap();
        store.truncate(id(1), 4 * MIB).unwrap();
        let stat = store.stat(id(1)).unwrap().unwrap();
        assert_eq!(stat.size, 4 * MIB);
        assert!((16..100).contains(&stat.blocks_512), "{stat:?}");
        assert_eq!(store.seek_data(id(1), 0).unwrap(), Some(MIB));
        assert_eq!(store.seek_hole(id(1), MIB + 1).unwrap(), Some(MIB + 8192));
        assert_eq!(store.seek_hole(id(1), 5).unwrap(), Some(5));
        assert_eq!(store.seek_data(id(1), 2 * MIB).unwrap(), None);
        assert_eq!(
            store.seek_hole(id(1), 4 * MIB).unwrap(),
            None,
            "past the end"
        );
        store.punch(id(1), ByteRange::from(0)).unwrap();
        assert_eq!(store.seek_data(id(1), 0).unwrap(), None);
        assert_eq!(store.stat(id(1)).unwrap().unwrap().size, 4 * MIB);
        assert!(store.stat(id(1)).unwrap().unwrap().blocks_512 < 16);
    });
}

#[test]
fn allocation_reserves_space() {
    with_each(|store| {
        store.allocate(id(1), ByteRange::new(0, MIB), true).unwrap();
        let stat = store.stat(id(1)).unwrap().unwrap();
        assert_eq!(stat.size, 0);
        assert!(stat.blocks_512 >= 2048, "{stat:?}");
        store
            .allocate(id(1), ByteRange::new(0, MIB), false)
            .unwrap();
        assert_eq!(store.stat(id(1)).unwrap().unwrap().size, MIB);
    });
}

#[test]
fn what_is_not_there_reads_as_nothing() {
    with_each(|store| {
        assert_eq!(store.read(id(9), 0, &mut [0; 10]).unwrap(), 0);
        assert_eq!(store.stat(id(9)).unwrap(), None);
        assert_eq!(store.seek_data(id(9), 0).unwrap(), None);
        assert!(!store.remove(id(9)).unwrap());
        store.punch(id(9), ByteRange::ALL).unwrap();
        store.sync(id(9)).unwrap();
        assert_eq!(store.stat(id(9)).unwrap(), None, "none of it created it");
        store.write(id(9), 3, b"x").unwrap();
        assert_eq!(store.read(id(9), u64::MAX, &mut [0; 10]).unwrap(), 0);
    });
}

#[test]
fn offsets_past_any_file_are_too_big() {
    with_each(|store| {
        let beyond = ByteRange::new(0, FILE_BYTES_MAX + 1);
        let errors = [
            store.write(id(1), u64::MAX, b"x").unwrap_err(),
            store.write(id(1), FILE_BYTES_MAX, b"x").unwrap_err(),
            store.truncate(id(1), FILE_BYTES_MAX + 1).unwrap_err(),
            store.allocate(id(1), beyond, true).unwrap_err(),
            store.zero(id(1), beyond, false).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, StorageError::FileTooBig { .. }), "{error}");
        }
    });
}

#[test]
fn a_full_store_says_so_and_takes_more_after_a_removal() {
    let stores: [Box<dyn ObjectStore>; 2] =
        [Box::new(ObjectMemory::new(MIB)), Box::new(extents(MIB))];
    for store in stores {
        store.write(id(1), 0, &vec![1; MIB as usize]).unwrap();
        let error = store.write(id(2), 0, b"x").unwrap_err();
        assert!(matches!(error, StorageError::NoSpace { .. }), "{error}");
        assert_eq!(store.statfs().unwrap().free, 0);
        store.remove(id(1)).unwrap();
        store.write(id(2), 0, b"x").unwrap();
        assert_eq!(store.statfs().unwrap().free, MIB - 4096);
    }
}

#[test]
fn a_full_file_system_is_told_from_other_errors() {
    use std::io::{Error, ErrorKind};
    let sort = |kind: ErrorKind| StorageError::from_io("x", "write it", &Error::from(kind));
    assert!(matches!(
        sort(ErrorKind::StorageFull),
        StorageError::NoSpace { .. }
    ));
    assert!(matches!(
        sort(ErrorKind::QuotaExceeded),
        StorageError::NoSpace { .. }
    ));
    assert!(matches!(
        sort(ErrorKind::FileTooLarge),
        StorageError::FileTooBig { .. }
    ));
    let raw = Error::from_raw_os_error(27);
    let sorted = StorageError::from_io("x", "write it", &raw);
    assert!(
        matches!(sorted, StorageError::FileTooBig { .. }),
        "EFBIG: {sorted}"
    );
    let raw = Error::from_raw_os_error(28);
    let sorted = StorageError::from_io("x", "write it", &raw);
    assert!(
        matches!(sorted, StorageError::NoSpace { .. }),
        "ENOSPC: {sorted}"
    );
}

#[test]
fn a_power_cut_takes_what_was_not_synced() {
    let store = ObjectMemory::new(MIB);
    store.write(id(1), 0, b"one").unwrap();
    store.write(id(2), 0, b"two").unwrap();
    store.sync(id(1)).unwrap();
    store.write(id(1), 0, b"ONE").unwrap();
    store.power_cut();
    assert_eq!(bytes(&store, id(1)).unwrap(), b"one");
    assert_eq!(store.stat(id(2)).unwrap(), None);
    store.remove(id(1)).unwrap();
    store.sync_all().unwrap();
    store.power_cut();
    assert_eq!(store.stat(id(1)).unwrap(), None);
}

#[test]
fn files_are_found_again_and_more_than_are_kept_open_work() {
    let (dir, store) = files();
    for n in 0..2_000 {
        store.write(id(n), 0, &n.to_le_bytes()).unwrap();
    }
    store.sync(id(3)).unwrap();
    store.sync_all().unwrap();
    drop(store);
    std::fs::write(dir.path().join("00/stray"), b"not an object").unwrap();
    let store = ObjectFiles::open(dir.path()).unwrap();
    for n in 0..2_000 {
        assert_eq!(bytes(&store, id(n)).unwrap(), n.to_le_bytes());
    }
    let mut count = 0;
    store.list(&mut |_| count += 1).unwrap();
    assert_eq!(count, 2_000);
    let space = store.statfs().unwrap();
    assert!(space.total >= space.free && space.free >= space.available && space.total > 0);
}

#[test]
fn stores_on_one_disk_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let disks = ["one", "two"].map(|name| {
        let path = dir.path().join(name);
        std::fs::create_dir(&path).unwrap();
        ObjectFiles::open(path).unwrap().statfs().unwrap().disk
    });
    assert!(disks[0] == disks[1] && disks[0] != 0, "{disks:?}");
}
