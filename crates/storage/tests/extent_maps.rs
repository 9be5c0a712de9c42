//! A store of extents on a disk of many groups: maps are read when they are needed, and few stay in memory.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, a failed unwrap is a failed test"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use allocator::{Block, Extent, GROUP_BLOCKS, Group, Length, Options, Owner, Want};
use base::{Rng, SeededRng, Tick};
use storage::extents::{Commit, ExtentDisk, Geometry, StoreId, Taken, audit};
use storage::{Disk, FaultyDisk, Result, Survivors};

const BLOCK: usize = 4096;
const GROUPS: u32 = 12;
const LOG_BLOCKS: u64 = 24;
const LOADED_MAX: usize = 3;

/// A large disk that keeps what was written, and counts what is read.
#[derive(Debug, Default)]
struct SparseDisk {
    blocks: Mutex<BTreeMap<u64, Vec<u8>>>,
    map_reads: Mutex<u64>,
}

impl SparseDisk {
    fn copy(&self) -> Arc<SparseDisk> {
        Arc::new(SparseDisk {
            blocks: Mutex::new(self.blocks.lock().unwrap().clone()),
            map_reads: Mutex::default(),
        })
    }

    fn each(offset: u64, len: usize, mut visit: impl FnMut(u64, std::ops::Range<usize>, usize)) {
        let mut at = 0;
        while at < len {
            let place = offset as usize + at;
            let part = (BLOCK - place % BLOCK).min(len - at);
            visit((place / BLOCK) as u64, at..at + part, place % BLOCK);
            at += part;
        }
    }
}

impl Disk for SparseDisk {
    fn len(&self) -> Result<u64> {
        Ok(geometry().blocks * BLOCK as u64)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let maps = geometry().map_offset(0, 0)..geometry().data_offset(Block(0));
        *self.map_reads.lock().unwrap() += u64::from(maps.contains(&offset));
        let blocks = self.blocks.lock().unwrap();
        SparseDisk::each(offset, buffer.len(), |block, part, within| {
            match blocks.get(&block) {
                Some(bytes) => buffer[part.clone()].copy_from_slice(&bytes[within..][..part.len()]),
                None => buffer[part].fill(0),
            }
        });
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut blocks = self.blocks.lock().unwrap();
        SparseDisk::each(offset, data.len(), |block, part, within| {
            let bytes = blocks.entry(block).or_insert_with(|| vec![0; BLOCK]);
            bytes[within..][..part.len()].copy_from_slice(&data[part]);
        });
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, _len: u64) -> Result<()> {
        Ok(())
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

fn geometry() -> Geometry {
    let overhead = LOG_BLOCKS + 2 + 4 + 2 * u64::from(GROUPS);
    // The last group is short.
    let data = u64::from(GROUPS) * u64::from(GROUP_BLOCKS) - 1000;
    let bytes = (overhead + data) * BLOCK as u64;
    let geometry = Geometry::new(StoreId([9; 16]), bytes, LOG_BLOCKS).unwrap();
    assert_eq!((geometry.data_blocks, geometry.groups()), (data, GROUPS));
    geometry
}

fn formatted() -> Arc<SparseDisk> {
    let disk = Arc::new(SparseDisk::default());
    ExtentDisk::create(&disk, &geometry()).unwrap();
    disk
}

fn open<D: Disk>(disk: D) -> Result<ExtentDisk<D>> {
    let options = Options {
        loaded_max: LOADED_MAX,
        owners_max: 2,
        table: "64 128".parse().unwrap(),
        ..Options::default()
    };
    Ok(ExtentDisk::open(disk, "OST0", options)?.store)
}

/// What objects have after each commit.
type States = BTreeMap<u64, Vec<Extent>>;

/// Takes and frees extents in random groups.
fn go_on<D: Disk>(
    store: &mut ExtentDisk<D>,
    states: &mut States,
    steps: u64,
    rng: &mut SeededRng,
) -> Result<u64> {
    let mut durable = 0;
    let mut objects = states.values().next_back().cloned().unwrap_or_default();
    for step in 0..steps {
        let mut commit = Commit::default();
        if rng.below(3) == 0 && !objects.is_empty() {
            let at = rng.below(objects.len() as u64) as usize;
            commit.freed.push(objects.swap_remove(at));
        } else {
            let group = Group(rng.below(GROUPS.into()) as u32);
            store.allocator().set_last_group(group).unwrap();
            let want = Want {
                owner: Owner(step.into()),
                logical: 0,
                blocks: 1 + rng.below(300) as u32,
                length: Length::Open(400),
                goal: None,
            };
            let place = store.place(Tick(step), &want)?;
            assert!(
                objects.iter().all(|other| !other.overlaps(place)),
                "{place}"
            );
            objects.push(place);
            commit.taken.push(Taken { place, sums: None });
        }
        states.insert(store.last() + 1, objects.clone());
        store.commit(&commit)?;
        if rng.below(4) == 0 {
            durable = store.sync()?;
        }
        if store.wants_checkpoint() {
            store.checkpoint(store.last())?;
            durable = store.last();
        }
    }
    Ok(durable)
}

fn check<D: Disk>(store: &mut ExtentDisk<D>, objects: &[Extent], what: &str) {
    let used: u64 = objects.iter().map(|extent| u64::from(extent.blocks)).sum();
    let pending = store.pending_blocks();
    let allocator = store.allocator();
    assert!(allocator.is_consistent(), "{what}");
    let free = allocator.free_blocks() + allocator.reserved_blocks();
    assert_eq!(free + pending + used, geometry().data_blocks, "{what}");
    assert_eq!(audit(store.all_maps().unwrap(), objects), [], "{what}");
}

#[test]
fn opening_reads_no_map_and_few_stay_in_memory() {
    let disk = formatted();
    let (mut states, mut rng) = (States::new(), SeededRng::new(1));
    for life in 0..20 {
        let before = *disk.map_reads.lock().unwrap();
        let mut store = open(disk.clone()).unwrap();
        // The life before ended with a checkpoint.
        assert_eq!(
            (*disk.map_reads.lock().unwrap(), store.loaded()),
            (before, 0)
        );
        go_on(&mut store, &mut states, 100, &mut rng).unwrap();
        store.allocator().release_all();
        store.checkpoint(store.last()).unwrap();
        assert!(store.loaded() <= LOADED_MAX, "{} of {life}", store.loaded());
        let objects = states.values().next_back().unwrap();
        check(&mut store, objects, &format!("life {life}"));
    }
    assert!(
        *disk.map_reads.lock().unwrap() > 100,
        "nothing was read again"
    );
}

#[test]
fn after_a_power_cut_at_any_change_maps_are_those_of_a_prefix_of_the_commits() {
    let disk = formatted();
    let (mut states, mut rng) = (States::new(), SeededRng::new(2));
    go_on(&mut open(disk.clone()).unwrap(), &mut states, 60, &mut rng).unwrap();
    let mut cuts = 0;
    loop {
        let (copy, mut states, mut rng) = (disk.copy(), states.clone(), SeededRng::new(3));
        let faulty = FaultyDisk::new(copy.clone());
        faulty.cut_after(cuts);
        let ran =
            open(faulty.clone()).and_then(|mut store| go_on(&mut store, &mut states, 60, &mut rng));
        faulty.power_cut(Survivors::Random { seed: cuts }).unwrap();
        let what = format!("cut {cuts}");
        let mut store = open(copy.clone()).unwrap();
        // The start is a commit of its own.
        let found = states.range(..store.last()).next_back().unwrap().1.clone();
        check(&mut store, &found, &what);
        let mut states = BTreeMap::from([(0, found)]);
        go_on(&mut store, &mut states, 20, &mut rng).unwrap();
        check(&mut store, states.values().next_back().unwrap(), &what);
        if ran.is_ok() {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 100, "{cuts}");
}

#[test]
fn a_damaged_map_is_named_when_it_is_read_and_stops_the_store() {
    let disk = formatted();
    let mut states = States::new();
    let mut store = open(disk.clone()).unwrap();
    go_on(&mut store, &mut states, 60, &mut SeededRng::new(4)).unwrap();
    store.checkpoint(store.last()).unwrap();
    drop(store);
    let (first, end) = (
        geometry().map_offset(0, 0),
        geometry().data_offset(Block(0)),
    );
    disk.write(first, &vec![7; (end - first) as usize]).unwrap();
    let mut store = open(disk.clone()).unwrap();
    let error = store.all_maps().unwrap_err();
    assert!(error.damage().is_some() && error.to_string().contains("map of group"));
    assert!(store.commit(&Commit::default()).is_err());
}
