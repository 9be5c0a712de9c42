//! Objects move from files to extents. All are as before, whenever the power fails on the way, and what is
//! damaged stays so.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, a failed unwrap is a failed test"
)]

use std::sync::{Arc, Mutex};

use allocator::Options;
use base::{ByteRange, Fid, Rng, SeededRng};
use storage::extents::{ExtentDisk, ExtentObjects, ExtentTables, Geometry, StoreId};
use storage::upgrade::{Event, FilesToMove, Pieces, Survey};
use storage::{
    Disk, FaultyDisk, Kv, KvOptions, MemDisk, ObjectId, ObjectMemory, ObjectStat, ObjectStore,
    Result, SealedObjects, SpaceStat, StorageError, Survivors, TableId,
};

const MIB: u64 = 1 << 20;
const TABLES: ExtentTables = ExtentTables {
    extents: TableId(0),
    sums: TableId(1),
};
const SEALS: TableId = TableId(2);
const NAMES: [(TableId, &str); 3] = [
    (TableId(0), "extents"),
    (TableId(1), "sums"),
    (SEALS, "seals"),
];
const SIZES: [u64; 9] = [0, 1, 4095, 4096, 65_535, 65_536, 65_537, 5 * MIB, 300_001];

fn id(n: usize) -> ObjectId {
    ObjectId::new(Fid::new(0x400, n as u32 + 1), n as u32 % 3)
}

/// Files of which removals are lost in a power cut, or not.
#[derive(Debug, Clone)]
struct Files {
    memory: ObjectMemory,
    unsynced: Arc<Mutex<Vec<ObjectId>>>,
    /// Removals and syncs that are left until the power fails.
    left: Arc<Mutex<Option<u64>>>,
}

impl Files {
    fn new() -> Files {
        Files {
            memory: ObjectMemory::new(1 << 40),
            unsynced: Arc::default(),
            left: Arc::default(),
        }
    }

    fn change(&self) -> Result<()> {
        let mut left = self.left.lock().unwrap();
        match left.as_mut() {
            Some(0) => {
                let error = std::io::Error::other("the power is off");
                Err(StorageError::from_io("files", "reach them", &error))
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn power_cut(&self, seed: u64) {
        let mut coin = SeededRng::new(seed);
        self.memory.power_cut();
        for id in std::mem::take(&mut *self.unsynced.lock().unwrap()) {
            if coin.below(2) == 0 {
                self.memory.remove(id).unwrap();
            }
        }
        self.memory.sync_all().unwrap();
        *self.left.lock().unwrap() = None;
    }
}

impl ObjectStore for Files {
    fn read(&self, id: ObjectId, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.memory.read(id, offset, buffer)
    }

    fn write(&self, id: ObjectId, offset: u64, data: &[u8]) -> Result<()> {
        self.memory.write(id, offset, data)
    }

    fn truncate(&self, id: ObjectId, size: u64) -> Result<()> {
        self.change()?;
        self.memory.truncate(id, size)
    }

    fn stat(&self, id: ObjectId) -> Result<Option<ObjectStat>> {
        self.memory.stat(id)
    }

    fn punch(&self, id: ObjectId, range: ByteRange) -> Result<()> {
        self.memory.punch(id, range)
    }

    fn allocate(&self, id: ObjectId, range: ByteRange, keep_size: bool) -> Result<()> {
        self.memory.allocate(id, range, keep_size)
    }

    fn zero(&self, id: ObjectId, range: ByteRange, keep_size: bool) -> Result<()> {
        self.memory.zero(id, range, keep_size)
    }

    fn seek_data(&self, id: ObjectId, offset: u64) -> Result<Option<u64>> {
        self.memory.seek_data(id, offset)
    }

    fn seek_hole(&self, id: ObjectId, offset: u64) -> Result<Option<u64>> {
        self.memory.seek_hole(id, offset)
    }

    fn remove(&self, id: ObjectId) -> Result<bool> {
        self.change()?;
        self.unsynced.lock().unwrap().push(id);
        self.memory.remove(id)
    }

    fn sync_all(&self) -> Result<()> {
        self.change()?;
        self.unsynced.lock().unwrap().clear();
        self.memory.sync_all()
    }

    fn sync(&self, id: ObjectId) -> Result<()> {
        self.change()?;
        self.memory.sync(id)
    }

    fn statfs(&self) -> Result<SpaceStat> {
        self.memory.statfs()
    }

    fn list(&self, visit: &mut dyn FnMut(ObjectId)) -> Result<()> {
        self.memory.list(visit)
    }
}

/// What a target has.
#[derive(Clone)]
struct Target {
    files: Files,
    extents: MemDisk,
    records: MemDisk,
}

fn bytes_of(n: usize, size: u64) -> Vec<u8> {
    let mut rng = SeededRng::new(n as u64);
    let mut bytes = vec![0; size as usize];
    bytes.chunks_mut(8).for_each(|part| {
        let random = rng.next_u64().to_le_bytes();
        part.copy_from_slice(&random[..part.len()]);
    });
    bytes
}

fn kv(records: impl Disk + 'static) -> Result<Arc<Kv>> {
    let kv = Kv::open(records, &NAMES, KvOptions::new("OST0").manual())?;
    Ok(Arc::new(kv))
}

/// Files of all sizes, one with a hole and one that nobody has sealed.
fn formatted() -> Target {
    let (extents, records) = (MemDisk::new(), MemDisk::new());
    let geometry = Geometry::new(StoreId([9; 16]), 24 * MIB, 64).unwrap();
    ExtentDisk::create(&extents, &geometry).unwrap();
    Kv::create(records.clone()).unwrap();
    let target = Target {
        files: Files::new(),
        extents,
        records,
    };
    let kv = kv(target.records.clone()).unwrap();
    let sealed = SealedObjects::new(Arc::new(target.files.clone()), kv.clone(), SEALS);
    for (n, size) in SIZES.into_iter().enumerate() {
        sealed.truncate(id(n), 0).unwrap();
        sealed.write(id(n), 0, &bytes_of(n, size)).unwrap();
    }
    let sparse = SIZES.len();
    sealed
        .write(id(sparse), 5 * MIB + 7, b"behind a hole")
        .unwrap();
    sealed.truncate(id(sparse), 6 * MIB).unwrap();
    sealed.sync_all().unwrap();
    sealed.settle_all().unwrap();
    sealed.write(id(sparse + 1), 0, b"not sealed").unwrap();
    sealed.sync_all().unwrap();
    kv.wait_durable(kv.committed()).unwrap();
    target
}

/// What an object is to those that look at it.
type Seen = (ObjectId, ObjectStat, Vec<u8>);

fn seen(store: &dyn ObjectStore) -> Vec<Seen> {
    let mut all = Vec::new();
    store.list(&mut |id| all.push(id)).unwrap();
    all.sort_unstable();
    let one = |id| {
        let stat = store.stat(id).unwrap().unwrap();
        let bytes = store.read_shared(id, 0, stat.size as usize).unwrap();
        (id, stat, bytes.to_vec())
    };
    all.into_iter().map(one).collect()
}

fn upgrade_with(
    (files, extents, records): (Files, Arc<dyn Disk>, impl Disk + 'static),
    told: &mut dyn FnMut(Event<'_>),
) -> Result<(bool, Survey)> {
    let kv = kv(records)?;
    let pieces = Pieces {
        bytes: 2 * MIB,
        objects: 3,
    };
    let objects = FilesToMove::new(Arc::new(files), kv.clone(), SEALS, pieces);
    let extents = ExtentObjects::open(extents, kv, TABLES, Options::default())?;
    let survey = objects.survey(&|id| Ok(extents.stat(id)?.is_some()))?;
    Ok((objects.move_to(&extents, survey.clone(), told)?, survey))
}

fn upgrade(target: &Target, told: &mut dyn FnMut(Event<'_>)) -> Survey {
    let Target {
        files,
        extents,
        records,
    } = target.clone();
    let (is_all, survey) = upgrade_with((files, Arc::new(extents), records), told).unwrap();
    assert!(is_all);
    survey
}

/// The objects on extents. No file is left, no sum of one, and no block is lost.
fn check(target: &Target, what: &str) -> (ExtentObjects, Arc<Kv>) {
    let kv = kv(target.records.clone()).unwrap();
    let disk = Arc::new(target.extents.clone());
    let extents = ExtentObjects::open(disk, kv.clone(), TABLES, Options::default()).unwrap();
    assert_eq!(extents.audit().unwrap(), [], "{what}");
    assert_eq!(seen(&target.files.memory), [], "{what}");
    let mut rows = 0;
    kv.scan(SEALS, &storage::KeyRange::all(), |_, _| {
        rows += 1;
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(rows, 0, "{what}");
    (extents, kv)
}

#[test]
fn all_objects_are_as_before() {
    let target = formatted();
    let before = seen(&target.files.memory);
    let (mut moved, mut bytes) = (0, 0);
    let survey = upgrade(&target, &mut |event| match event {
        Event::Moved { objects, bytes: of } => (moved, bytes) = (moved + objects, bytes + of),
        other => panic!("{other:?}"),
    });
    assert_eq!((moved, bytes), (before.len(), survey.bytes));
    assert_eq!((survey.objects.len(), survey.lost.len()), (before.len(), 0));
    assert_eq!(survey.largest_bytes, 5 * MIB);
    let (extents, _) = check(&target, "upgraded");
    assert!(seen(&extents) == before, "another object than before");
    drop(extents);
    // Once more: nothing is left to do.
    assert_eq!(
        upgrade(&target, &mut |event| panic!("{event:?}")),
        Survey::default()
    );
}

/// Where the power fails.
#[derive(Debug, Clone, Copy)]
enum Place {
    Extents,
    Records,
    Files,
}

/// Cuts the power with change `cut` of one part of the target. False: it was not reached.
fn cut_at(target: &Target, place: Place, cut: u64, survivors: Survivors) -> bool {
    let extents = FaultyDisk::new(target.extents.clone());
    let records = FaultyDisk::new(target.records.clone());
    let files = target.files.clone();
    match place {
        Place::Extents => extents.cut_after(cut),
        Place::Records => records.cut_after(cut),
        Place::Files => *files.left.lock().unwrap() = Some(cut),
    }
    let parts = (
        files,
        Arc::new(extents.clone()) as Arc<dyn Disk>,
        records.clone(),
    );
    let is_cut = upgrade_with(parts, &mut |_| {}).is_err();
    extents.power_cut(survivors).unwrap();
    records.power_cut(survivors).unwrap();
    target.files.power_cut(cut);
    is_cut
}

#[test]
fn a_power_cut_at_any_change_loses_nothing() {
    let before = seen(&formatted().files.memory);
    let mut cuts = 0;
    for place in [Place::Extents, Place::Records, Place::Files] {
        for cut in 0.. {
            let survivors = match cut % 4 {
                0 => Survivors::Nothing,
                1 => Survivors::Last,
                2 => Survivors::Torn { torn_bytes: 700 },
                _ => Survivors::Random { seed: cut },
            };
            let what = format!("{place:?}, cut {cut}, {survivors:?}");
            let target = formatted();
            let is_cut = cut_at(&target, place, cut, survivors);
            // And once more on the way back.
            let cut_again = cut_at(&target, place, cut / 2, survivors);
            upgrade(&target, &mut |event| match event {
                Event::Moved { .. } => {}
                other => panic!("{what}: {other:?}"),
            });
            let (extents, _) = check(&target, &what);
            assert!(
                seen(&extents) == before,
                "{what}: another object than before"
            );
            cuts += u64::from(is_cut) + u64::from(cut_again);
            if !is_cut {
                break;
            }
        }
    }
    println!("{cuts} cuts");
    assert!(cuts > 60, "{cuts}");
}

fn is_damaged(store: &dyn ObjectStore, n: usize, offset: u64) -> bool {
    match store.read_shared(id(n), offset, 1) {
        Ok(_) => false,
        Err(StorageError::DamagedBytes { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn damaged_bytes_stay_damaged_and_all_others_move() {
    let target = formatted();
    let memory = &target.files.memory;
    let before = seen(memory);
    // A block has rotted, an end is lost, bytes were added behind another, and a file is gone.
    memory.write(id(7), 4 * MIB + 9, b"rot").unwrap();
    memory.truncate(id(4), 10_000).unwrap();
    memory.write(id(5), 65_536, b"more").unwrap();
    memory.remove(id(6)).unwrap();
    memory.sync_all().unwrap();
    let mut damaged = Vec::new();
    let survey = upgrade(&target, &mut |event| match event {
        Event::Damaged(id, range) => damaged.push((id, range)),
        Event::Moved { .. } => {}
        other => panic!("{other:?}"),
    });
    assert_eq!(survey.lost, [id(6)]);
    let rotten = ByteRange::new(4 * MIB, 4 * MIB + 4096);
    let expected = [
        (id(4), ByteRange::new(8192, 65_535)),
        (id(7), rotten),
        (id(6), ByteRange::new(0, 65_537)),
    ];
    assert_eq!(damaged, expected);
    let (extents, _) = check(&target, "upgraded");
    let sizes = |seen: &Seen| extents.stat(seen.0).unwrap().unwrap().size == seen.1.size;
    assert!(before.iter().all(sizes));
    assert!(is_damaged(&extents, 7, 4 * MIB) && is_damaged(&extents, 6, 65_536));
    assert!(is_damaged(&extents, 4, 65_534) && !is_damaged(&extents, 4, 8191));
    let whole = extents.read_shared(id(7), 4 * MIB + 4096, 100_000).unwrap();
    let from = 4 * MIB as usize + 4096;
    assert_eq!(whole, before[7].2[from..from + 100_000]);
    assert_eq!(extents.read_shared(id(5), 0, 100_000).unwrap(), before[5].2);
    // Bytes written there are sound ones.
    extents.write(id(7), 4 * MIB, &[5; 4096]).unwrap();
    assert!(!is_damaged(&extents, 7, 4 * MIB));
}

#[test]
fn a_power_cut_leaves_damaged_bytes_damaged() {
    for cut in 0.. {
        let target = formatted();
        let memory = &target.files.memory;
        memory.write(id(3), 9, b"rot").unwrap();
        memory.sync_all().unwrap();
        let survivors = match cut % 2 {
            0 => Survivors::Nothing,
            _ => Survivors::Random { seed: cut },
        };
        let is_cut = cut_at(&target, Place::Extents, cut, survivors);
        upgrade(&target, &mut |_| {});
        let (extents, _) = check(&target, "upgraded");
        assert!(is_damaged(&extents, 3, 0), "cut {cut}");
        assert!(!is_damaged(&extents, 4, 0), "cut {cut}");
        if !is_cut {
            break;
        }
    }
}
