//! Objects on extents compared with objects in memory: over restarts and power cuts at every change.
//! Reads beside removals, a full disk, holes to the block, and no block lost or named twice.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, a failed unwrap is a failed test"
)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, mpsc};
use std::time::Duration;

use allocator::{Length, Options, Owner, Want};
use base::{ByteRange, Fid, Rng, SeededRng, Tick};
use storage::extents::{Commit, ExtentDisk, ExtentObjects, ExtentTables, Geometry, StoreId, Taken};
use storage::{
    Backing, Batch, Disk, FaultyDisk, Flaw, Kv, KvOptions, MemDisk, ObjectId, ObjectMemory,
    ObjectStat, ObjectStore, Result, SpaceStat, StorageError, Survivors, TableId,
};

/// The product's allocator: thousands of restarts are mostly allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BLOCK: u64 = 4096;
const SEGMENT: u64 = 4 << 20;
const TABLES: ExtentTables = ExtentTables {
    extents: TableId(0),
    sums: TableId(1),
};
const OTHERS: TableId = TableId(2);
const NAMES: [(TableId, &str); 3] = [
    (TableId(0), "extents"),
    (TableId(1), "sums"),
    (OTHERS, "others"),
];
const OBJECTS: u64 = 4;
/// Steps of a random list, and where a sync may stand.
const STEPS: u64 = 40;

fn id(n: u64) -> ObjectId {
    ObjectId::new(Fid::new(0x400, n as u32 + 1), 0)
}

/// The two disks of a target.
#[derive(Clone)]
struct Disks {
    extents: MemDisk,
    records: MemDisk,
}

fn formatted(data_blocks: u64, log_blocks: u64) -> Disks {
    let (extents, records) = (MemDisk::new(), MemDisk::new());
    let bytes = (data_blocks + log_blocks + 2 + 4 + 2) * BLOCK;
    let geometry = Geometry::new(StoreId([9; 16]), bytes, log_blocks).unwrap();
    assert_eq!(geometry.data_blocks, data_blocks);
    ExtentDisk::create(&extents, &geometry).unwrap();
    Kv::create(records.clone()).unwrap();
    Disks { extents, records }
}

fn options() -> Options {
    Options {
        small_blocks: 4,
        packing_blocks: 8,
        table: "8 16".parse().unwrap(),
        ..Options::default()
    }
}

struct Store {
    objects: ExtentObjects,
    kv: Arc<Kv>,
}

fn open_on(extents: Arc<dyn Disk>, records: impl Disk + 'static) -> Result<Store> {
    let kv = Arc::new(Kv::open(records, &NAMES, KvOptions::new("OST0").manual())?);
    let objects = ExtentObjects::open(extents, kv.clone(), TABLES, options())?;
    Ok(Store { objects, kv })
}

fn open(disks: &Disks) -> Store {
    open_on(Arc::new(disks.extents.clone()), disks.records.clone()).unwrap()
}

#[derive(Debug, Clone)]
enum Step {
    Write(u64, u64, Vec<u8>),
    Truncate(u64, u64),
    Punch(u64, ByteRange),
    Allocate(u64, ByteRange, bool),
    Zero(u64, ByteRange, bool),
    Remove(u64),
    Sync,
    SyncOne(u64),
}

/// Offsets at blocks, near them, and near the border of segments.
fn offset(rng: &mut SeededRng) -> u64 {
    let base = match rng.below(4) {
        0 => SEGMENT - 2 * BLOCK,
        _ => 0,
    };
    let block = base + rng.below(20) * BLOCK;
    match rng.below(3) {
        0 => block,
        _ => block + rng.below(BLOCK),
    }
}

fn step(rng: &mut SeededRng) -> Step {
    let object = rng.below(OBJECTS);
    let at = offset(rng);
    let len = match rng.below(3) {
        0 => (1 + rng.below(5)) * BLOCK,
        _ => 1 + rng.below(9000),
    };
    let (range, keep) = (ByteRange::new(at, at + len), rng.below(2) == 0);
    match rng.below(14) {
        0 => Step::Remove(object),
        1 | 2 => Step::Truncate(object, at),
        3 => Step::Punch(object, range),
        4 => Step::Allocate(object, range, keep),
        5 => Step::Zero(object, range, keep),
        6 | 7 => Step::Sync,
        8 => Step::SyncOne(object),
        _ => {
            let fill = 1 + rng.below(250) as u8;
            Step::Write(
                object,
                at,
                (0..len).map(|n| fill ^ (n >> 9) as u8).collect(),
            )
        }
    }
}

fn apply(store: &dyn ObjectStore, step: &Step) -> Result<()> {
    match step {
        Step::Write(object, at, data) => store.write(id(*object), *at, data),
        Step::Truncate(object, size) => store.truncate(id(*object), *size),
        Step::Punch(object, range) => store.punch(id(*object), *range),
        Step::Allocate(object, range, keep) => store.allocate(id(*object), *range, *keep),
        Step::Zero(object, range, keep) => store.zero(id(*object), *range, *keep),
        Step::Remove(object) => store.remove(id(*object)).map(drop),
        Step::Sync => store.sync_all(),
        Step::SyncOne(object) => store.sync(id(*object)),
    }
}

/// What an object is to those that look at it.
type Seen = Option<(ObjectStat, Vec<u8>)>;

fn seen(store: &dyn ObjectStore, object: u64) -> Seen {
    let stat = store.stat(id(object)).unwrap()?;
    let mut bytes = vec![0xee; stat.size as usize + 3];
    let count = store.read(id(object), 0, &mut bytes).unwrap();
    assert_eq!(count as u64, stat.size);
    bytes.truncate(count);
    Some((stat, bytes))
}

fn all(store: &dyn ObjectStore) -> BTreeMap<u64, Seen> {
    (0..OBJECTS).map(|n| (n, seen(store, n))).collect()
}

/// Both are the same; else the failure says where.
fn compare(found: &BTreeMap<u64, Seen>, wanted: &BTreeMap<u64, Seen>, what: &str) {
    for (object, wanted) in wanted {
        let found = &found[object];
        if found == wanted {
            continue;
        }
        let stats = [found, wanted].map(|seen| seen.as_ref().map(|(stat, _)| *stat));
        let bytes = [found, wanted].map(|seen| seen.iter().flat_map(|(_, bytes)| bytes));
        let [found, wanted] = bytes;
        let at = found.zip(wanted).position(|(a, b)| a != b);
        panic!("{what}: object {object} is {stats:?} and not as it should be from byte {at:?} on");
    }
}

/// No block is lost, or named twice, or free although named; and every byte is what was written.
fn check(store: &Store, what: &str) {
    let audit = store.objects.audit().unwrap();
    assert_eq!(audit, [], "{what}");
}

#[test]
fn random_work_is_as_in_memory_and_over_restarts() {
    for seed in 0..20 {
        let (disks, memory) = (formatted(3000, 64), ObjectMemory::new(1 << 40));
        let (mut store, mut rng) = (open(&disks), SeededRng::new(seed));
        for number in 0..300 {
            let step = step(&mut rng);
            let what = format!("seed {seed}, step {number}");
            apply(&store.objects, &step).unwrap();
            apply(&memory, &step).unwrap();
            let object = rng.below(OBJECTS);
            let one = |store: &dyn ObjectStore| [(object, seen(store, object))].into();
            compare(&one(&store.objects), &one(&memory), &what);
            if rng.below(40) == 0 {
                store.objects.sync_all().unwrap();
                check(&store, &what);
                // Rows that are not durable in the tables come from the log again.
                drop(store);
                store = open(&disks);
                compare(
                    &all(&store.objects),
                    &all(&memory),
                    &format!("{what}, restarted"),
                );
                check(&store, &what);
            }
        }
    }
}

struct Run {
    /// What memory has after each sync that was begun, and after all that was done.
    synced: Vec<BTreeMap<u64, Seen>>,
    /// Syncs that ended.
    ended: usize,
    /// The last step whose record was durable.
    beside: u64,
}

fn row(key: &[u8], number: u64) -> Batch {
    let mut batch = Batch::new();
    batch.put(OTHERS, key, number.to_le_bytes().to_vec());
    batch
}

fn number(kv: &Kv, key: &[u8]) -> u64 {
    let found = kv.get(OTHERS, key).unwrap();
    found.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
}

/// A disk in a file system that is nearly full, and always wants space back. What is given back is garbage at
/// once.
#[derive(Debug)]
struct Shrinking(FaultyDisk);

impl Disk for Shrinking {
    fn len(&self) -> Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.0.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.0.write(offset, data)
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.0.set_len(len)
    }

    fn close(&self) -> Result<()> {
        self.0.close()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.0.write(offset, &vec![0xee; len as usize])
    }

    fn backing(&self) -> Result<Option<Backing>> {
        let space = SpaceStat {
            total: 1 << 40,
            // More than the floor, and less than twice that.
            available: 100 << 20,
            ..SpaceStat::default()
        };
        let taken = self.len()?;
        Ok(Some(Backing { taken, space }))
    }
}

/// The disk of the objects, as a test wants it.
type Below = fn(FaultyDisk) -> Arc<dyn Disk>;

fn run(disks: &Disks, (seed, cut): (u64, u64), below: Below) -> (Run, FaultyDisk, FaultyDisk) {
    let extents = FaultyDisk::new(disks.extents.clone());
    let records = FaultyDisk::new(disks.records.clone());
    let memory = ObjectMemory::new(1 << 40);
    let mut run = Run {
        synced: vec![all(&memory)],
        ended: 0,
        beside: 0,
    };
    extents.cut_after(cut);
    let Ok(store) = open_on(below(extents.clone()), records.clone()) else {
        return (run, extents, records);
    };
    let mut rng = SeededRng::new(seed);
    for number in 0..STEPS {
        let step = step(&mut rng);
        let is_sync = matches!(step, Step::Sync | Step::SyncOne(_));
        apply(&memory, &step).unwrap();
        if is_sync {
            run.synced.push(all(&memory));
        }
        // Records beside the objects, and the word that all up to here is durable.
        let beside = store.kv.commit(row(b"beside", number));
        beside.expect("its disk works");
        let done = match is_sync {
            true => {
                let word = row(b"synced", run.synced.len() as u64 - 1);
                store.objects.sync_with(None, &store.kv, word).is_ok()
            }
            false => apply(&store.objects, &step).is_ok(),
        };
        if number % 5 == 0 {
            // Not before the bytes that they speak of, although this is.
            store.kv.flush_once().expect("its disk works");
            run.beside = number;
        }
        if is_sync && done {
            run.ended = run.synced.len() - 1;
            run.beside = number;
        }
        if !done {
            break;
        }
    }
    (run, extents, records)
}

/// What is found after a power cut is what the last sync left, or one that was under way.
fn check_cut(disks: &Disks, run: &Run, what: &str) {
    let store = open_on(Arc::new(disks.extents.clone()), disks.records.clone());
    let store = store.unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = all(&store.objects);
    let at = run.synced.iter().rposition(|state| *state == found);
    let at = at.filter(|at| *at >= run.ended);
    let at = at.unwrap_or_else(|| panic!("{what}: another state than any that was synced"));
    assert!(
        number(&store.kv, b"synced") <= at as u64,
        "{what}: word of what is not there"
    );
    assert!(
        number(&store.kv, b"synced") >= run.ended as u64,
        "{what}: no word of what is"
    );
    assert!(
        number(&store.kv, b"beside") >= run.beside,
        "{what}: a durable record is lost"
    );
    check(&store, what);
    // And it goes on.
    store.objects.write(id(0), 0, &[7; 5000]).unwrap();
    store.objects.sync_all().unwrap();
    check(&store, what);
}

#[test]
fn after_a_power_cut_at_any_change_objects_are_as_a_sync_left_them() {
    cut_at_every_change(|disk| Arc::new(disk));
}

#[test]
fn space_that_is_given_back_is_no_longer_needed_after_a_power_cut_either() {
    cut_at_every_change(|disk| Arc::new(Shrinking(disk)));
}

fn cut_at_every_change(below: Below) {
    let mut cuts = 0;
    for seed in 0..10 {
        for cut in (seed % 2..).step_by(2) {
            let mut is_over = true;
            for survivors in [
                Survivors::Nothing,
                Survivors::Last,
                Survivors::Torn { torn_bytes: 700 },
                Survivors::Random { seed: cut },
            ] {
                let disks = formatted(400, 20);
                let (run, extents, records) = run(&disks, (seed, cut), below);
                is_over &= extents.changes() <= cut;
                extents.power_cut(survivors).unwrap();
                records.power_cut(survivors).unwrap();
                check_cut(
                    &disks,
                    &run,
                    &format!("seed {seed}, cut {cut}, {survivors:?}"),
                );
                cuts += 1;
            }
            if is_over {
                break;
            }
        }
    }
    println!("{cuts} cuts");
    assert!(cuts > 500);
}

#[test]
fn a_full_disk_says_so_at_the_call_and_removals_make_room() {
    let disks = formatted(64, 64);
    let store = open(&disks).objects;
    for object in 0..OBJECTS {
        store.write(id(object), 0, &[1; 16 * 4096]).unwrap();
    }
    let error = store.write(id(9), 0, b"x").unwrap_err();
    assert!(matches!(error, StorageError::NoSpace { .. }), "{error}");
    assert_eq!(store.statfs().unwrap().available, 0);
    store.sync_all().unwrap();
    // Whole blocks are freed with nothing to spare, and so is the end of one.
    store.punch(id(0), ByteRange::new(0, 4096)).unwrap();
    store.truncate(id(1), 5000).unwrap();
    assert_eq!(store.statfs().unwrap().available, 15 * 4096);
    // Bytes that are replaced need a new place until they are durable.
    store.write(id(2), 0, &[3; 15 * 4096]).unwrap();
    store.write(id(2), 0, &[4; 15 * 4096]).unwrap();
    assert!(store.remove(id(3)).unwrap());
    store.write(id(9), 0, &[5; 16 * 4096]).unwrap();
    assert_eq!(seen(&store, 2).unwrap().1[..15 * 4096], [4; 15 * 4096]);
}

/// The write finds room only after a commit, which takes from memory what is known of the object.
#[test]
fn a_write_that_waits_for_freed_blocks_keeps_the_bytes_before_it() {
    let disks = formatted(64, 64);
    let store = open(&disks);
    store.objects.write(id(0), 0, &[1; 20 * 4096]).unwrap();
    store.objects.write(id(1), 0, &[2; 40 * 4096]).unwrap();
    store.objects.sync_all().unwrap();
    assert!(store.objects.remove(id(1)).unwrap());
    store
        .objects
        .write(id(0), 20 * BLOCK, &[3; 30 * 4096])
        .unwrap();
    let (stat, bytes) = seen(&store.objects, 0).unwrap();
    assert_eq!((stat.size, stat.blocks_512), (50 * BLOCK, 50 * 8));
    assert!(bytes[..20 * 4096].iter().all(|byte| *byte == 1));
    assert!(bytes[20 * 4096..].iter().all(|byte| *byte == 3));
    store.objects.sync_all().unwrap();
    check(&store, "afterwards");
}

/// Blocks that a write takes before it finds no more are no object's, and show in none that grows later.
#[test]
fn a_write_for_which_there_is_too_little_room_leaves_nothing() {
    let disks = formatted(64, 64);
    let store = open(&disks);
    let objects = &store.objects;
    objects.write(id(0), 0, &[1; 40 * 4096]).unwrap();
    objects.write(id(2), 0, &[2; 4096]).unwrap();
    objects.sync_all().unwrap();
    for (object, offset) in [(1, 0), (2, 4096)] {
        let refused = objects.write(id(object), offset, &[3; 30 * 4096]);
        let error = refused.unwrap_err();
        assert!(matches!(error, StorageError::NoSpace { .. }), "{error}");
        objects.sync_all().unwrap();
        check(&store, "after a refusal");
    }
    assert_eq!(objects.stat(id(1)).unwrap(), None);
    assert_eq!(objects.statfs().unwrap().available, 23 * BLOCK);
    objects.truncate(id(2), 20 * BLOCK).unwrap();
    let (stat, bytes) = seen(objects, 2).unwrap();
    assert_eq!(stat.blocks_512, 8);
    assert!(bytes[4096..].iter().all(|byte| *byte == 0));
    // There is room after a commit, before which some of the blocks were taken.
    assert!(objects.remove(id(0)).unwrap());
    objects.write(id(1), 0, &[4; 50 * 4096]).unwrap();
    objects.sync_all().unwrap();
    check(&store, "after a write that waited");
    assert_eq!(objects.statfs().unwrap().available, 13 * BLOCK);
}

#[test]
fn reserved_space_is_used_when_nothing_else_is_left() {
    let disks = formatted(64, 64);
    let store = open(&disks).objects;
    store
        .allocate(id(0), ByteRange::new(0, 40 * 4096), true)
        .unwrap();
    store.write(id(1), 0, &[1; 24 * 4096]).unwrap();
    for at in 0..40 {
        store
            .write(id(0), at * 4096, &[at as u8 + 1; 4096])
            .unwrap();
        store.sync_all().unwrap();
    }
    assert_eq!(store.stat(id(0)).unwrap().unwrap().size, 40 * 4096);
    let store = {
        drop(store);
        open(&disks).objects
    };
    for at in 0..40 {
        let mut bytes = [0; 4096];
        store.read(id(0), at * 4096, &mut bytes).unwrap();
        assert_eq!(bytes, [at as u8 + 1; 4096]);
    }
}

#[test]
fn data_and_holes_are_found_to_the_block() {
    let disks = formatted(3000, 64);
    let store = open(&disks).objects;
    let end = 2 * SEGMENT + 5 * BLOCK + 9;
    store.truncate(id(0), end).unwrap();
    store.write(id(0), SEGMENT - BLOCK, &[1; 8192]).unwrap();
    store
        .write(id(0), 2 * SEGMENT + 3 * BLOCK + 1, &[1])
        .unwrap();
    store
        .allocate(id(0), ByteRange::new(0, BLOCK), true)
        .unwrap();
    for synced in [false, true] {
        let data = |at| store.seek_data(id(0), at).unwrap();
        let hole = |at| store.seek_hole(id(0), at).unwrap();
        assert_eq!(data(0), Some(SEGMENT - BLOCK), "unwritten is no data");
        assert_eq!(data(SEGMENT + 5), Some(SEGMENT + 5));
        assert_eq!(hole(SEGMENT - 5), Some(SEGMENT + BLOCK));
        assert_eq!(hole(3), Some(3));
        assert_eq!(data(SEGMENT + BLOCK), Some(2 * SEGMENT + 3 * BLOCK));
        assert_eq!(hole(2 * SEGMENT + 3 * BLOCK), Some(2 * SEGMENT + 4 * BLOCK));
        assert_eq!(data(2 * SEGMENT + 4 * BLOCK), None);
        assert_eq!((data(end), hole(end)), (None, None));
        assert_eq!(
            store.stat(id(0)).unwrap().unwrap().blocks_512,
            4 * 8,
            "{synced}"
        );
        store.sync_all().unwrap();
    }
}

#[test]
fn a_flipped_bit_is_never_served() {
    let disks = formatted(64, 64);
    let store = open(&disks).objects;
    store.write(id(0), 0, &[7; 3 * 4096]).unwrap();
    store.sync_all().unwrap();
    let bytes = disks.extents.to_bytes();
    let place = bytes.windows(4096).position(|window| window == [7; 4096]);
    let faulty = FaultyDisk::new(disks.extents.clone());
    faulty
        .flip_bit(place.unwrap() as u64 + 4096 + 77, 3)
        .unwrap();
    let error = store.read_shared(id(0), 0, 3 * 4096).unwrap_err();
    let is_second = matches!(&error, StorageError::DamagedBytes { range, .. }
        if *range == ByteRange::new(4096, 8192));
    assert!(is_second, "{error}");
    assert_eq!(store.read_shared(id(0), 0, 4096).unwrap()[..], [7; 4096]);
    // Neither is it sealed anew by a change of the rest of the block.
    assert!(store.write(id(0), 5000, b"x").is_err());
    assert!(store.write(id(0), 4096, &[8; 4096]).is_ok());
    assert_eq!(store.read_shared(id(0), 4096, 4096).unwrap()[..], [8; 4096]);
}

#[test]
fn records_of_another_store_or_a_newer_one_are_refused() {
    let disks = formatted(64, 64);
    let older = disks.extents.to_bytes();
    let store = open(&disks);
    store.objects.write(id(0), 0, b"x").unwrap();
    store.objects.sync_all().unwrap();
    store.kv.flush_once().unwrap();
    drop(store);
    let open = |extents: MemDisk| open_on(Arc::new(extents), disks.records.clone()).map(drop);
    let error = open(MemDisk::from_bytes(older)).unwrap_err();
    assert!(error.damage().is_some(), "{error}");
    let other = MemDisk::new();
    let geometry = Geometry::new(StoreId([1; 16]), 200 * BLOCK, 64).unwrap();
    ExtentDisk::create(&other, &geometry).unwrap();
    let error = open(other).unwrap_err();
    assert!(error.to_string().contains("another store"), "{error}");
    open(disks.extents.clone()).unwrap();
}

/// A disk whose next read waits until the test lets it go on.
#[derive(Debug)]
struct SlowDisk {
    disk: MemDisk,
    /// Waits are armed; a read has come; it may go on.
    gate: Mutex<(bool, bool, bool)>,
    moved: Condvar,
}

impl SlowDisk {
    fn until(&self, is_so: impl Fn(&(bool, bool, bool)) -> bool) {
        let gate = self.gate.lock().unwrap();
        drop(self.moved.wait_while(gate, |gate| !is_so(gate)).unwrap());
    }

    fn set(&self, change: impl Fn(&mut (bool, bool, bool))) {
        change(&mut self.gate.lock().unwrap());
        self.moved.notify_all();
    }
}

impl Disk for SlowDisk {
    fn len(&self) -> Result<u64> {
        self.disk.len()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let is_armed = std::mem::take(&mut self.gate.lock().unwrap().0);
        if is_armed {
            self.set(|gate| gate.1 = true);
            self.until(|gate| gate.2);
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
}

#[test]
fn a_read_under_way_keeps_the_blocks_of_a_removed_object() {
    let disks = formatted(64, 64);
    let slow = Arc::new(SlowDisk {
        disk: disks.extents.clone(),
        gate: Mutex::default(),
        moved: Condvar::new(),
    });
    let store = open_on(slow.clone(), disks.records.clone())
        .unwrap()
        .objects;
    // The blocks of one are named by a commit, those of the other by none.
    store.write(id(0), 0, &[1; 30 * 4096]).unwrap();
    store.sync_all().unwrap();
    store.write(id(1), 0, &[2; 34 * 4096]).unwrap();
    for (object, fill) in [(0, 1), (1, 2)] {
        let len = store.stat(id(object)).unwrap().unwrap().size as usize;
        let (written, is_written) = mpsc::channel();
        slow.set(|gate| *gate = (true, false, false));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| store.read_shared(id(object), 0, len).unwrap());
            slow.until(|gate| gate.1);
            assert!(store.remove(id(object)).unwrap());
            store.sync_all().unwrap();
            assert_eq!(store.statfs().unwrap().available, len as u64);
            let store = &store;
            scope.spawn(move || {
                // There is no other room on the disk.
                store.write(id(object + 5), 0, &vec![9; len]).unwrap();
                written.send(()).unwrap();
            });
            let early = is_written.recv_timeout(Duration::from_millis(50));
            assert!(early.is_err(), "blocks that are being read");
            slow.set(|gate| gate.2 = true);
            assert!(reader.join().unwrap()[..] == vec![fill; len]);
            is_written.recv().unwrap();
        });
    }
}

#[test]
fn leaked_blocks_are_found_and_freed_and_damage_is_named() {
    let disks = formatted(64, 64);
    let store = open(&disks);
    store.objects.write(id(0), 0, &[7; 3 * 4096]).unwrap();
    store.objects.sync_all().unwrap();
    drop(store);
    // A commit takes blocks for nobody.
    let mut disk = ExtentDisk::open(disks.extents.clone(), "OST0", options())
        .unwrap()
        .store;
    let want = Want {
        owner: Owner(1),
        logical: 0,
        blocks: 5,
        length: Length::Known(5),
        goal: None,
    };
    let place = disk.place(Tick(0), &want).unwrap();
    let taken = vec![Taken { place, sums: None }];
    disk.commit(&Commit {
        taken,
        ..Commit::default()
    })
    .unwrap();
    disk.sync().unwrap();
    drop(disk);
    let bytes = disks.extents.to_bytes();
    let at = bytes.windows(4096).position(|window| window == [7; 4096]);
    let faulty = FaultyDisk::new(disks.extents.clone());
    faulty
        .flip_bit(at.unwrap() as u64 + 2 * 4096 + 1, 0)
        .unwrap();
    let flaws = |store: &ExtentObjects| {
        let mut flaws = Vec::new();
        store.find_flaws(&mut |flaw| flaws.push(flaw)).unwrap();
        flaws
    };
    let store = open(&disks).objects;
    let rotten = Flaw::Bytes(id(0), ByteRange::new(2 * BLOCK, 3 * BLOCK));
    assert_eq!(flaws(&store), [Flaw::Leaked(place), rotten]);
    let free = store.statfs().unwrap().free;
    assert_eq!(store.free_leaked().unwrap(), u64::from(place.blocks));
    assert_eq!(flaws(&store), [rotten]);
    drop(store);
    let store = open(&disks).objects;
    assert_eq!(flaws(&store), [rotten]);
    assert_eq!(
        store.statfs().unwrap().free,
        free + u64::from(place.blocks) * BLOCK
    );
}

#[test]
fn a_sync_is_one_flush_of_the_objects_disk_and_none_of_the_records() {
    let disks = formatted(64, 64);
    let (extents, records) = (
        FaultyDisk::new(disks.extents.clone()),
        FaultyDisk::new(disks.records.clone()),
    );
    let store = open_on(Arc::new(extents.clone()), records.clone()).unwrap();
    store.kv.flush_once().unwrap();
    let before = (extents.changes(), records.changes());
    store.objects.write(id(0), 0, &[7; 4096]).unwrap();
    store.kv.commit(row(b"beside", 1)).unwrap();
    let word = row(b"synced", 1);
    store
        .objects
        .sync_with(Some(&[id(0)]), &store.kv, word)
        .unwrap();
    // The block; a record of one block with the object's rows, one with those beside, one with the word.
    assert_eq!(extents.changes() - before.0, 1 + 3 + 1);
    assert_eq!(records.changes(), before.1);
    // What the tables have later than the log stays over a crash.
    store.kv.commit(row(b"beside", 2)).unwrap();
    store.kv.flush_once().unwrap();
    drop(store);
    let store = open(&disks);
    assert_eq!(
        (number(&store.kv, b"beside"), number(&store.kv, b"synced")),
        (2, 1)
    );
    assert_eq!(seen(&store.objects, 0).unwrap().1, [7; 4096]);
}

/// Looks at the objects whenever it is synced.
#[derive(Default)]
struct Watched {
    disk: MemDisk,
    look: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("watched disk")
    }
}

impl Disk for Watched {
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
        self.look.get().inspect(|look| look());
        self.disk.sync()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.disk.set_len(len)
    }

    fn close(&self) -> Result<()> {
        self.disk.close()
    }
}

/// What is committed takes more than the log has room for, so it is committed in parts. Objects are what they
/// were written between them, too.
#[test]
fn objects_are_read_while_their_commit_waits_for_room_in_the_log() {
    const FILES: u64 = 12_000;
    let disks = formatted(16_000, 64);
    let disk = Arc::new(Watched {
        disk: disks.extents.clone(),
        ..Watched::default()
    });
    let store = Arc::new(open_on(disk.clone(), disks.records.clone()).unwrap());
    for file in 0..FILES {
        let data = [file as u8 | 1; 4096];
        store.objects.write(id(file), 0, &data).unwrap();
    }
    let (looks, wrong) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let look = {
        let (store, looks, wrong) = (Arc::downgrade(&store), looks.clone(), wrong.clone());
        move || {
            let Some(store) = store.upgrade() else { return };
            looks.fetch_add(1, Ordering::Relaxed);
            let is_right = |file: &u64| {
                let mut bytes = [0; 4096];
                store.objects.read(id(*file), 0, &mut bytes).is_ok()
                    && bytes == [*file as u8 | 1; 4096]
            };
            let lost = (0..FILES).filter(|file| !is_right(file)).count() as u64;
            wrong.fetch_add(lost, Ordering::Relaxed);
        }
    };
    let _ = disk.look.set(Box::new(look));
    store.objects.sync_all().unwrap();
    assert!(looks.load(Ordering::Relaxed) > 4, "all had room in the log");
    assert_eq!(wrong.load(Ordering::Relaxed), 0);
}
