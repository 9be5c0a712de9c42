//! Power cuts at every change, and flipped bits everywhere.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, a failed unwrap is a failed test"
)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use base::{Rng, SeededRng};
use storage::{
    Batch, Disk, FaultyDisk, KeyRange, Kv, KvOptions, MemDisk, Result, Survivors, TableId,
};

const NAMES: TableId = TableId(0);
const FILES: TableId = TableId(1);
const TABLES: &[(TableId, &str)] = &[(NAMES, "names"), (FILES, "files")];
const ROUNDS: u64 = 8;
const BATCHES_PER_ROUND: u64 = 4;

type Contents = BTreeMap<(TableId, Vec<u8>), Vec<u8>>;

fn options() -> KvOptions {
    KvOptions::new("MDT0").manual()
}

fn contents(kv: &Kv) -> Result<Contents> {
    let mut contents = Contents::new();
    for table in [NAMES, FILES] {
        kv.scan(table, &KeyRange::all(), |key, value| {
            contents.insert((table, key.to_vec()), value.to_vec());
            ControlFlow::Continue(())
        })?;
    }
    Ok(contents)
}

/// Batch number `n` (from one), and what it does to `oracle`.
fn batch(n: u64, oracle: &mut Contents) -> Batch {
    let mut batch = Batch::new();
    let mut rng = SeededRng::new(n);
    for _ in 0..6 {
        let table = if rng.below(2) == 0 { NAMES } else { FILES };
        let key = vec![b'k', rng.below(40) as u8];
        let value = vec![n as u8; 50 + rng.below(3000) as usize];
        oracle.insert((table, key.clone()), value.clone());
        batch.put(table, key, value);
    }
    if n.is_multiple_of(5) {
        let gone = KeyRange::new([b'k', 10], [b'k', 20]);
        oracle.retain(|(table, key), _| *table != NAMES || !gone.contains(key));
        batch.delete_range(NAMES, gone);
    }
    // Tells the prefix: no two states are alike.
    oracle.insert((FILES, b"count".to_vec()), n.to_le_bytes().to_vec());
    batch.put(FILES, *b"count", n.to_le_bytes());
    batch
}

/// The state after each number of batches.
fn states() -> Vec<Contents> {
    let mut state = Contents::new();
    let mut states = vec![state.clone()];
    for n in 1..=ROUNDS * BATCHES_PER_ROUND {
        batch(n, &mut state);
        states.push(state.clone());
    }
    states
}

/// Runs the scenario until the disk fails; says what was durable and committed.
fn run(disk: FaultyDisk) -> (u64, u64) {
    let Ok(kv) = Kv::open(disk, TABLES, options()) else {
        return (0, 0);
    };
    let mut scratch = Contents::new();
    let mut n = 0;
    'rounds: for _ in 0..ROUNDS {
        for _ in 0..BATCHES_PER_ROUND {
            if kv.commit(batch(n + 1, &mut scratch)).is_err() {
                break 'rounds;
            }
            n += 1;
        }
        if kv.flush_once().is_err() {
            break;
        }
    }
    (kv.durable().0, n)
}

fn formatted() -> MemDisk {
    let disk = MemDisk::new();
    Kv::create(disk.clone()).unwrap();
    disk
}

fn check_after_cut(cut: u64, survivors: Survivors, states: &[Contents], image: &[u8]) {
    let disk = MemDisk::from_bytes(image.to_vec());
    let faulty = FaultyDisk::new(disk.clone());
    faulty.cut_after(cut);
    let (durable, committed) = run(faulty.clone());
    faulty.power_cut(survivors).unwrap();
    let kv = Kv::open(disk, TABLES, options())
        .unwrap_or_else(|error| panic!("cut {cut}, {survivors:?}: {error}"));
    let found = contents(&kv).unwrap();
    let count = found.get(&(FILES, b"count".to_vec()));
    let count = count.map_or(0, |n| u64::from_le_bytes(n[..].try_into().unwrap()));
    assert!(
        (durable..=committed).contains(&count),
        "cut {cut}, {survivors:?}: found {count}, durable {durable}, committed {committed}"
    );
    assert_eq!(found, states[count as usize], "cut {cut}, {survivors:?}");
    // And it goes on from there.
    let mut state = found;
    kv.commit(batch(count + 1, &mut state)).unwrap();
    kv.flush_once().unwrap();
    assert_eq!(contents(&kv).unwrap(), state);
}

#[test]
fn after_a_power_cut_at_any_change_a_prefix_is_found_with_all_that_was_durable() {
    let states = states();
    let image = formatted().to_bytes();
    let whole = FaultyDisk::new(MemDisk::from_bytes(image.clone()));
    let (durable, _) = run(whole.clone());
    assert_eq!(durable, ROUNDS * BATCHES_PER_ROUND);
    let changes = whole.changes();
    assert!(changes > 60, "the scenario is too small: {changes} changes");
    for cut in 0..=changes {
        for survivors in [
            Survivors::Nothing,
            Survivors::Torn { torn_bytes: 0 },
            Survivors::Torn { torn_bytes: 100 },
            Survivors::Torn { torn_bytes: 2048 },
            Survivors::Torn {
                torn_bytes: usize::MAX,
            },
            Survivors::Last,
            Survivors::Random { seed: cut },
            Survivors::Random { seed: !cut },
        ] {
            check_after_cut(cut, survivors, &states, &image);
        }
    }
}

#[test]
fn cuts_during_recovery_from_cuts_lose_nothing_durable() {
    let states = states();
    let image = formatted().to_bytes();
    for cut in (5..100).step_by(7) {
        let disk = MemDisk::from_bytes(image.clone());
        let faulty = FaultyDisk::new(disk.clone());
        faulty.cut_after(cut);
        let (mut durable, _) = run(faulty.clone());
        faulty.power_cut(Survivors::Random { seed: cut }).unwrap();
        for again in 0..12 {
            let faulty = FaultyDisk::new(disk.clone());
            faulty.cut_after(again);
            let opened = Kv::open(faulty.clone(), TABLES, options());
            drop(opened);
            let seed = cut * 100 + again;
            faulty.power_cut(Survivors::Random { seed }).unwrap();
            let kv = Kv::open(disk.clone(), TABLES, options()).unwrap();
            let found = contents(&kv).unwrap();
            let count = found.get(&(FILES, b"count".to_vec()));
            let count = count.map_or(0, |n| u64::from_le_bytes(n[..].try_into().unwrap()));
            assert!(count >= durable, "cut {cut}, then {again}");
            assert_eq!(found, states[count as usize]);
            durable = count;
        }
    }
}

/// What a reader gets from a disk: all of it, or damage. Anything else fails the test.
fn read_back(disk: MemDisk) -> Option<Contents> {
    let read = Kv::open(disk, TABLES, options()).and_then(|kv| contents(&kv));
    match read {
        Ok(contents) => Some(contents),
        Err(error) => {
            assert!(error.damage().is_some(), "not called damage: {error}");
            None
        }
    }
}

#[test]
fn a_flipped_bit_is_harmless_or_damage_and_never_a_wrong_value() {
    for clean in [true, false] {
        let disk = formatted();
        let kv = Kv::open(disk.clone(), TABLES, options()).unwrap();
        let mut state = Contents::new();
        for n in 1..=ROUNDS * BATCHES_PER_ROUND {
            kv.commit(batch(n, &mut state)).unwrap();
            if n.is_multiple_of(BATCHES_PER_ROUND) {
                kv.flush_once().unwrap();
            }
        }
        // Killed, or closed: the image differs in what the engine must do when it opens it.
        let image = if clean {
            kv.close().unwrap();
            disk.to_bytes()
        } else {
            disk.to_bytes()
        };
        let (mut harmless, mut noticed) = (0, 0);
        let mut rng = SeededRng::new(11);
        let mut at = 0;
        while at < image.len() {
            let mut image = image.clone();
            image[at] ^= 1 << rng.below(8);
            match read_back(MemDisk::from_bytes(image)) {
                Some(found) => {
                    assert!(found == state, "byte {at}: a wrong value was served");
                    harmless += 1;
                }
                None => noticed += 1,
            }
            // Densely where heads and checksums are, then strides that meet every block.
            at += if at < 5 * 4096 {
                61
            } else {
                1 + rng.below(2047) as usize
            };
        }
        println!(
            "clean {clean}: {harmless} harmless, {noticed} noticed of {} bytes",
            image.len()
        );
        assert!(
            noticed > 30 && harmless > 30,
            "the flips miss the data or the slack"
        );
    }
}

#[test]
fn wholly_lost_and_exchanged_blocks_are_damage_too() {
    let disk = formatted();
    let kv = Kv::open(disk.clone(), TABLES, options()).unwrap();
    let mut state = Contents::new();
    for n in 1..=32 {
        kv.commit(batch(n, &mut state)).unwrap();
    }
    kv.close().unwrap();
    let image = disk.to_bytes();
    let mut noticed = 0;
    let blocks = (disk.len().unwrap() / 4096) as usize;
    for block in 4..blocks {
        for other in [None, Some(4 + (block - 3) % (blocks - 4))] {
            let mut image = image.clone();
            let donor = other.map_or([0; 4096], |other| {
                let mut donor = [0; 4096];
                donor.copy_from_slice(&image[other * 4096..][..4096]);
                donor
            });
            image[block * 4096..][..4096].copy_from_slice(&donor);
            match read_back(MemDisk::from_bytes(image)) {
                Some(found) => assert!(found == state, "block {block}: a wrong value"),
                None => noticed += 1,
            }
        }
    }
    assert!(noticed > 10);
}
