//! A store of extents through power cuts at every change, torn writes, flipped bits and foreign disks.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, a failed unwrap is a failed test"
)]

use std::collections::BTreeMap;

use allocator::{Block, Extent, Length, Options, Owner, Want};
use base::{Rng, SeededRng, Tick};
use storage::extents::{Commit, ExtentDisk, Finding, Geometry, Opened, Row, StoreId, Taken, audit};
use storage::{Disk, FaultyDisk, MemDisk, Result, StorageError, Survivors};

const BLOCK: usize = 4096;
const LOG_BLOCKS: u64 = 20;
const DISK_BYTES: u64 = 120 * BLOCK as u64;
const STEPS: u64 = 100;

/// An object's blocks: where, and which number fills each of their words.
type Object = Vec<(Extent, u64)>;
type Objects = BTreeMap<u8, Object>;

fn geometry() -> Geometry {
    Geometry::new(StoreId([9; 16]), DISK_BYTES, LOG_BLOCKS).unwrap()
}

fn formatted() -> MemDisk {
    let disk = MemDisk::new();
    ExtentDisk::create(&disk, &geometry()).unwrap();
    disk
}

fn options() -> Options {
    Options {
        small_blocks: 4,
        packing_blocks: 8,
        table: "8 16".parse().unwrap(),
        ..Options::default()
    }
}

fn open<D: Disk>(disk: D) -> Result<Opened<D>> {
    ExtentDisk::open(disk, "OST0", options())
}

fn encode(object: &Object) -> Vec<u8> {
    let numbers = object
        .iter()
        .flat_map(|(extent, fill)| [extent.start.0, extent.blocks.into(), *fill]);
    numbers.flat_map(u64::to_le_bytes).collect()
}

fn decode(bytes: &[u8]) -> Object {
    let numbers = bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    let numbers: Vec<u64> = numbers.collect();
    let objects = numbers.chunks_exact(3);
    objects
        .map(|three| (Extent::new(Block(three[0]), three[1] as u32), three[2]))
        .collect()
}

fn filled(extent: Extent, fill: u64) -> Vec<u8> {
    fill.to_le_bytes()
        .repeat(extent.blocks as usize * BLOCK / 8)
}

/// Rows as tables have them: drained up to a commit.
#[derive(Clone, Default)]
struct Tables {
    drained: u64,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Tables {
    fn put(&mut self, rows: &[Row]) {
        for row in rows {
            match &row.value {
                Some(value) => drop(self.rows.insert(row.key.clone(), value.clone())),
                None => drop(self.rows.remove(&row.key)),
            }
        }
    }

    fn objects(&self) -> Objects {
        self.rows
            .iter()
            .map(|(key, value)| (key[0], decode(value)))
            .collect()
    }
}

/// What ran on a disk until its power failed.
struct Run {
    /// After each commit.
    states: BTreeMap<u64, Objects>,
    durable: u64,
    tables: Tables,
}

/// One commit anywhere among the objects, its bytes written before.
fn step<D: Disk>(
    store: &mut ExtentDisk<D>,
    objects: &mut Objects,
    rng: &mut SeededRng,
) -> Result<Commit> {
    let number = rng.below(6) as u8;
    let mut commit = Commit::default();
    if rng.below(5) < 2 {
        let gone = objects.remove(&number).unwrap_or_default();
        commit.freed = gone.into_iter().map(|(extent, _)| extent).collect();
        commit.rows.push(Row {
            table: 1,
            key: vec![number],
            value: None,
        });
        return Ok(commit);
    }
    let blocks = 1 + rng.below(6) as u32;
    let length = if rng.below(2) == 0 {
        Length::Known(blocks.into())
    } else {
        Length::Open(0)
    };
    let logical = objects
        .get(&number)
        .map_or(0, |object| object.len() as u64 * 100);
    let want = Want {
        owner: Owner(number.into()),
        logical,
        blocks,
        length,
        goal: None,
    };
    let place = store.place(Tick(0), &want)?;
    let is_written = rng.below(4) > 0;
    let fill = if is_written { rng.next_u64() } else { 0 };
    let mut sums = None;
    if is_written {
        let bytes = filled(place, fill);
        store.write(place.start, &bytes)?;
        sums = Some(bytes.chunks(BLOCK).map(crc32c::crc32c).collect());
    }
    let object = objects.entry(number).or_default();
    // A fill of zero stands for unwritten blocks.
    object.push((place, fill));
    commit.taken.push(Taken { place, sums });
    commit.rows.push(Row {
        table: 1,
        key: vec![number],
        value: Some(encode(object)),
    });
    Ok(commit)
}

/// Does the same steps each time, until the disk fails.
fn run(disk: FaultyDisk) -> Run {
    let mut run = Run {
        states: BTreeMap::from([(0, Objects::new())]),
        durable: 0,
        tables: Tables::default(),
    };
    let Ok(Opened {
        mut store,
        replayed,
    }) = open(disk)
    else {
        run.states.insert(1, Objects::new());
        return run;
    };
    assert!(replayed.is_empty());
    // The record of a start is no commit that must be found.
    run.states.insert(store.last(), Objects::new());
    let _ = go_on(&mut store, &mut run);
    run
}

fn go_on(store: &mut ExtentDisk<FaultyDisk>, run: &mut Run) -> Result<()> {
    let (mut objects, mut rng) = (Objects::new(), SeededRng::new(4));
    let mut undrained: Vec<(u64, Vec<Row>)> = Vec::new();
    for _ in 0..STEPS {
        let before = objects.clone();
        let commit = match step(store, &mut objects, &mut rng) {
            Err(StorageError::NoSpace { .. }) => {
                objects = before;
                store.sync()?;
                continue;
            }
            commit => commit?,
        };
        // The record may be found although the call failed.
        run.states.insert(store.last() + 1, objects.clone());
        let ticket = store.commit(&commit)?;
        undrained.push((ticket, commit.rows));
        if rng.below(3) == 0 {
            run.durable = store.sync()?;
        }
        if store.wants_checkpoint() {
            run.durable = store.sync()?;
            // Sometimes the tables are behind the log.
            let keep = rng.below(3) as usize;
            let drained = undrained.len().saturating_sub(keep);
            for (ticket, rows) in undrained.drain(..drained) {
                run.tables.put(&rows);
                run.tables.drained = ticket;
            }
            store.checkpoint(run.tables.drained)?;
        }
    }
    run.durable = store.sync()?;
    // What a store does when nothing follows.
    run.states.insert(store.last() + 1, objects);
    store.commit(&Commit::default()).map(drop)
}

/// The objects that a store has, after its rows were put into `tables`; and it goes on from there.
fn check(disk: MemDisk, run: &Run, what: &str) -> u64 {
    let Opened {
        mut store,
        replayed,
    } = open(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut tables = run.tables.clone();
    replayed
        .iter()
        .for_each(|replayed| tables.put(&replayed.rows));
    let objects = tables.objects();
    // The start is a commit of its own.
    let found = store.last() - 1;
    let expected = run.states.get(&found);
    assert!(
        found >= run.durable,
        "{what}: {found} found, {} durable",
        run.durable
    );
    assert_eq!(Some(&objects), expected, "{what}: after commit {found}");
    check_blocks(&mut store, &objects, what);
    // A new object gets blocks that nobody has.
    let mut objects = objects;
    let mut rng = SeededRng::new(found);
    for _ in 0..3 {
        if let Ok(commit) = step(&mut store, &mut objects, &mut rng) {
            store.commit(&commit).unwrap();
            store.sync().unwrap();
        }
    }
    check_blocks(&mut store, &objects, what);
    found
}

fn check_blocks<D: Disk>(store: &mut ExtentDisk<D>, objects: &Objects, what: &str) {
    let named: Vec<Extent> = objects
        .values()
        .flatten()
        .map(|(extent, _)| *extent)
        .collect();
    assert_eq!(audit(store.all_maps().unwrap(), &named), [], "{what}");
    for (extent, fill) in objects.values().flatten().filter(|(_, fill)| *fill != 0) {
        let mut bytes = vec![0; extent.blocks as usize * BLOCK];
        store.read(extent.start, &mut bytes).unwrap();
        assert!(
            bytes == filled(*extent, *fill),
            "{what}: {extent} hold another's bytes"
        );
    }
}

const ALL_SURVIVORS: [Survivors; 7] = [
    Survivors::Nothing,
    Survivors::Torn { torn_bytes: 0 },
    Survivors::Torn { torn_bytes: 512 },
    Survivors::Torn { torn_bytes: 5000 },
    Survivors::Torn {
        torn_bytes: usize::MAX,
    },
    Survivors::Last,
    Survivors::Random { seed: 0 },
];

fn seeded(survivors: Survivors, seed: u64) -> Survivors {
    match survivors {
        Survivors::Random { .. } => Survivors::Random { seed },
        other => other,
    }
}

#[test]
fn after_a_power_cut_at_any_change_a_prefix_of_the_commits_is_found_with_their_bytes() {
    let image = formatted().to_bytes();
    let whole = FaultyDisk::new(MemDisk::from_bytes(image.clone()));
    let complete = run(whole.clone());
    let changes = whole.changes();
    assert!(
        changes > 100 && complete.tables.drained > 10,
        "the run is too small: {changes}"
    );
    for cut in 0..=changes {
        for survivors in ALL_SURVIVORS.map(|survivors| seeded(survivors, cut)) {
            let disk = MemDisk::from_bytes(image.clone());
            let faulty = FaultyDisk::new(disk.clone());
            faulty.cut_after(cut);
            let run = run(faulty.clone());
            faulty.power_cut(survivors).unwrap();
            check(disk, &run, &format!("cut {cut}, {survivors:?}"));
        }
    }
}

#[test]
fn cuts_while_it_opens_after_a_cut_lose_nothing_and_fill_no_log() {
    let image = formatted().to_bytes();
    for cut in (7..120).step_by(5) {
        let disk = MemDisk::from_bytes(image.clone());
        let faulty = FaultyDisk::new(disk.clone());
        faulty.cut_after(cut);
        let mut run = run(faulty.clone());
        faulty.power_cut(Survivors::Random { seed: cut }).unwrap();
        // More starts than the log has blocks.
        for again in 0..30 {
            let faulty = FaultyDisk::new(disk.clone());
            faulty.cut_after(again % 5);
            drop(open(faulty.clone()));
            faulty
                .power_cut(Survivors::Random {
                    seed: cut * 100 + again,
                })
                .unwrap();
            let copy = MemDisk::from_bytes(disk.to_bytes());
            let found = check(copy, &run, &format!("cut {cut}, then {again}"));
            run.durable = run.durable.max(found);
        }
    }
}

#[test]
fn a_flipped_bit_in_the_stores_own_blocks_is_harmless_or_damage() {
    let disk = formatted();
    let complete = run(FaultyDisk::new(disk.clone()));
    let image = disk.to_bytes();
    let data = geometry().data_offset(Block(0));
    let (mut damaged, mut harmless) = (0, 0);
    for offset in (0..data)
        .step_by(97)
        .chain((0..data).step_by(BLOCK).flat_map(|at| at..at + 64))
    {
        let disk = MemDisk::from_bytes(image.clone());
        FaultyDisk::new(disk.clone())
            .flip_bit(offset, (offset % 8) as u8)
            .unwrap();
        let before = disk.to_bytes();
        match open(disk.clone()) {
            Err(error) => {
                let is_named = error.damage().is_some()
                    || matches!(
                        error,
                        StorageError::Refused { .. } | StorageError::ForeignVersion { .. }
                    );
                assert!(is_named, "{offset}: {error}");
                assert!(
                    disk.to_bytes() == before,
                    "{offset}: written to a damaged disk"
                );
                damaged += 1;
            }
            Ok(mut opened) => {
                // A map is read when it is needed.
                if let Err(error) = opened.store.all_maps() {
                    assert!(error.damage().is_some(), "{offset}: {error}");
                    assert!(opened.store.commit(&Commit::default()).is_err());
                    damaged += 1;
                    continue;
                }
                let mut tables = complete.tables.clone();
                opened
                    .replayed
                    .iter()
                    .for_each(|replayed| tables.put(&replayed.rows));
                let last = complete.states.values().next_back().unwrap();
                assert_eq!(&tables.objects(), last, "byte {offset}");
                check_blocks(&mut opened.store, last, &format!("byte {offset}"));
                harmless += 1;
            }
        }
    }
    assert!(
        damaged > 50 && harmless > 500,
        "{damaged} damaged, {harmless} harmless"
    );
}

#[test]
fn a_disk_that_is_not_this_stores_is_named_and_nothing_is_written() {
    let refused = |disk: MemDisk, words: &str| {
        let before = disk.to_bytes();
        let error = open(disk.clone()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert!(disk.to_bytes() == before);
    };
    refused(MemDisk::new(), "no superblock");
    // A partition table where a superblock should be.
    let mut bytes = vec![0; DISK_BYTES as usize];
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    refused(MemDisk::from_bytes(bytes), "no superblock");
    let shorter = formatted().to_bytes()[..DISK_BYTES as usize - BLOCK].to_vec();
    refused(MemDisk::from_bytes(shorter), "the disk only");
    // Another store's tables in the middle, and another's map.
    let foreign = MemDisk::new();
    let other = Geometry::new(StoreId([8; 16]), DISK_BYTES, LOG_BLOCKS).unwrap();
    ExtentDisk::create(&foreign, &other).unwrap();
    let (foreign, mut bytes) = (foreign.to_bytes(), formatted().to_bytes());
    let tables = geometry().table_offset(0) as usize..geometry().table_offset(2) as usize;
    bytes[tables.clone()].copy_from_slice(&foreign[tables]);
    refused(MemDisk::from_bytes(bytes), "neither table is whole");
    let mut newer = formatted().to_bytes();
    for at in [8, BLOCK + 8] {
        newer[at] = 3;
    }
    refused(MemDisk::from_bytes(newer), "version 3");
}

#[test]
fn a_lost_copy_of_the_superblock_is_written_again() {
    let disk = formatted();
    disk.write(0, &[0; BLOCK]).unwrap();
    drop(open(disk.clone()).unwrap());
    let bytes = disk.to_bytes();
    assert!(bytes[..BLOCK] == bytes[BLOCK..2 * BLOCK] && bytes[..8] != [0; 8]);
}

#[test]
fn freed_blocks_wait_for_a_flush_and_for_readers() {
    let mut store = open(formatted()).unwrap().store;
    let free = store.allocator().free_blocks();
    let want = Want {
        owner: Owner(1),
        logical: 0,
        blocks: 5,
        length: Length::Known(5),
        goal: None,
    };
    let place = store.place(Tick(0), &want).unwrap();
    let taken = vec![Taken { place, sums: None }];
    store
        .commit(&Commit {
            taken: taken.clone(),
            ..Commit::default()
        })
        .unwrap();
    let twice = store.commit(&Commit {
        taken,
        ..Commit::default()
    });
    assert!(twice.unwrap_err().to_string().contains("in use"));
    let reader = store.begin_io();
    let freed = Commit {
        freed: vec![place],
        ..Commit::default()
    };
    store.commit(&freed).unwrap();
    assert!(store.commit(&freed).is_err(), "freed twice");
    assert_eq!(
        (store.allocator().free_blocks(), store.pending_blocks()),
        (free - 5, 5)
    );
    store.sync().unwrap();
    assert_eq!(store.allocator().free_blocks(), free - 5);
    store.end_io(reader);
    assert_eq!(
        (store.allocator().free_blocks(), store.pending_blocks()),
        (free, 0)
    );
}

#[test]
fn a_commit_costs_one_flush_and_a_hundred_a_second_never_fill_the_log() {
    let disk = FaultyDisk::new(formatted());
    let mut store = open(disk.clone()).unwrap().store;
    let mut changes = 0;
    for number in 0..1000_u32 {
        let row = Row {
            table: 1,
            key: vec![1],
            value: Some(number.to_le_bytes().to_vec()),
        };
        let before = disk.changes();
        let ticket = store
            .commit(&Commit {
                rows: vec![row],
                ..Commit::default()
            })
            .unwrap();
        store.sync().unwrap();
        changes = changes.max(disk.changes() - before);
        if store.wants_checkpoint() {
            store.checkpoint(ticket).unwrap();
        }
    }
    // A write and a flush.
    assert!(
        changes <= 3,
        "{changes} (a record that goes round is two writes)"
    );
    let full = (0..LOG_BLOCKS)
        .map(|_| store.commit(&Commit::default()))
        .find(Result::is_err);
    assert!(
        full.unwrap()
            .unwrap_err()
            .to_string()
            .contains("checkpoint")
    );
    store.checkpoint(store.last()).unwrap();
    store.commit(&Commit::default()).unwrap();
}

#[test]
fn an_audit_names_what_is_named_twice_what_is_free_and_what_is_leaked() {
    let mut store = open(formatted()).unwrap().store;
    let extents = [(2, 4), (8, 2)].map(|(start, blocks)| Extent::new(Block(start), blocks));
    let taken = extents.map(|place| Taken { place, sums: None });
    store
        .commit(&Commit {
            taken: taken.to_vec(),
            ..Commit::default()
        })
        .unwrap();
    assert_eq!(audit(store.all_maps().unwrap(), &extents), []);
    let named = [(2, 3), (4, 1), (20, 1)].map(|(start, blocks)| Extent::new(Block(start), blocks));
    let found = audit(store.all_maps().unwrap(), &named);
    let expected = [
        Finding::Twice(Extent::new(Block(4), 1)),
        Finding::Free(Extent::new(Block(20), 1)),
        Finding::Leaked(Extent::new(Block(5), 1)),
        Finding::Leaked(Extent::new(Block(8), 2)),
    ];
    assert_eq!(found, expected);
}
