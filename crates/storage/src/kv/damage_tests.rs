//! A store whose file was damaged by the dice: all is read as it was, or an error names the file.

use std::fmt;
use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};

use base::{Rng, SeededRng};

use super::{Batch, KeyRange, Kv, KvOptions, TableId, examine};
use crate::disk::checked::BLOCK;
use crate::disk::{CheckedDisk, Disk, MemDisk};
use crate::error::{Result, StorageError};

const NAMES: TableId = TableId(0);
const FILES: TableId = TableId(1);
const TABLES: &[(TableId, &str)] = &[(NAMES, "names"), (FILES, "files")];
/// What messages call the disk.
const FILE: &str = "/targets/mdt0/db";
const RECORDS: u64 = 400;
const DAMAGES: usize = 200;

type Row = (TableId, Vec<u8>, Vec<u8>);

/// A disk in memory that is called what a file would be.
#[derive(Clone)]
struct Named(MemDisk);

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FILE)
    }
}

impl Disk for Named {
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
}

fn options() -> KvOptions {
    KvOptions::new("MDT0").manual()
}

fn open(image: &[u8]) -> (MemDisk, Result<Kv>) {
    let disk = MemDisk::from_bytes(image.to_vec());
    let kv = Kv::open(Named(disk.clone()), TABLES, options());
    (disk, kv)
}

fn rows(kv: &Kv) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for table in [NAMES, FILES] {
        kv.scan(table, &KeyRange::all(), |key, value| {
            rows.push((table, key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
    }
    Ok(rows)
}

/// A store that was filled in several transactions, closed or killed, and its rows.
fn filled(rng: &mut SeededRng, is_closed: bool) -> (Vec<u8>, Vec<Row>) {
    let disk = MemDisk::new();
    Kv::create(disk.clone()).expect("memory");
    let kv = Kv::open(disk.clone(), TABLES, options()).expect("memory");
    for n in 0..RECORDS {
        let table = if rng.below(2) == 0 { NAMES } else { FILES };
        let longest = if rng.below(20) == 0 { 20_000 } else { 400 };
        let value = vec![n as u8; 1 + rng.below(longest) as usize];
        let mut batch = Batch::new();
        batch.put(table, rng.below(RECORDS).to_be_bytes(), value);
        kv.commit(batch).expect("memory");
        if rng.below(40) == 0 {
            kv.flush_once().expect("memory");
        }
    }
    kv.flush_once().expect("memory");
    let rows = rows(&kv).expect("memory");
    if is_closed {
        kv.close().expect("memory");
    }
    (disk.to_bytes(), rows)
}

/// A run of 512 bytes to 64 KiB: where the heads and the first sums are, in one of them, or anywhere.
fn run(rng: &mut SeededRng, len: usize) -> Range<usize> {
    let longest = 512 << rng.below(8);
    let (start, within) = match rng.below(4) {
        0 => (0, 16 * BLOCK),
        1 => (0, 4 * BLOCK),
        2 => (4 * BLOCK, BLOCK),
        _ => (0, len),
    };
    let mut start = start + rng.below(within as u64) as usize;
    if rng.below(2) == 0 {
        start = start / 512 * 512;
    }
    start..(start + longest).min(len)
}

/// Damages `image` and says how.
fn damage(rng: &mut SeededRng, image: &mut Vec<u8>) -> String {
    let first = run(rng, image.len());
    match rng.below(5) {
        0 | 1 => {
            image[first.clone()].fill(0);
            format!("zeroed {first:?}")
        }
        2 => {
            let flips = 1 + rng.below(4);
            for _ in 0..flips {
                let at = first.start + rng.below(first.len() as u64) as usize;
                image[at] ^= 1 << rng.below(8);
            }
            format!("{flips} bits flipped in {first:?}")
        }
        3 => {
            image.truncate(first.start);
            format!("cut at {}", first.start)
        }
        _ => {
            let second = run(rng, image.len());
            let len = first.len().min(second.len());
            let (first, second) = (first.start, second.start);
            let moved = image[first..first + len].to_vec();
            let other = image[second..second + len].to_vec();
            image[second..second + len].copy_from_slice(&moved);
            image[first..first + len].copy_from_slice(&other);
            format!("{len} bytes exchanged at {first} and {second}")
        }
    }
}

/// Damage, and where.
fn names_file(error: &StorageError, how: &str) {
    let words = error.to_string();
    assert!(words.contains(FILE), "{how}: {words}");
    assert!(error.damage().is_some(), "{how}: not damage: {words}");
}

/// Opens, scans, changes and examines a store; fails the test where something wrong is read, or an error does
/// not name the file. Whether all could be read.
fn check(image: &[u8], expected: &[Row], how: &str) -> bool {
    let (disk, kv) = open(image);
    let read = kv.and_then(|kv| Ok((rows(&kv)?, kv)));
    let is_read = match read {
        Ok((found, kv)) => {
            assert!(found == expected, "{how}: other rows were read");
            change(kv, &disk, expected).unwrap_or_else(|error| names_file(&error, how));
            true
        }
        Err(error) => {
            names_file(&error, how);
            false
        }
    };
    let disk = MemDisk::from_bytes(image.to_vec());
    let mut visit = |table: TableId, key: &[u8], value: &[u8]| {
        let row = (table, key.to_vec(), value.to_vec());
        assert!(expected.contains(&row), "{how}: a wrong row was examined");
    };
    let holes = examine(|| Ok(Named(disk.clone())), TABLES, &options(), &mut visit);
    for hole in holes.unwrap_or_else(|error| panic!("{how}: {error}")) {
        hole.causes.iter().for_each(|cause| names_file(cause, how));
    }
    is_read
}

/// The store goes on, and the next process finds all of that.
fn change(kv: Kv, disk: &MemDisk, before: &[Row]) -> Result<()> {
    let mut batch = Batch::new();
    batch.put(FILES, *b"~", *b"new");
    kv.commit(batch)?;
    kv.flush_once()?;
    drop(kv);
    let (_, kv) = open(&disk.to_bytes());
    let found = rows(&kv?)?;
    assert_eq!(found.len(), before.len() + 1);
    assert!(found.starts_with(before));
    Ok(())
}

#[test]
fn whatever_is_damaged_all_is_read_as_it_was_or_an_error_names_the_file() {
    let seed = std::env::var("SEED").map_or_else(
        |_| {
            let since = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
            since.as_nanos() as u64
        },
        |seed| seed.parse().expect("a number"),
    );
    println!("SEED={seed}");
    let mut rng = SeededRng::new(seed);
    let images = [filled(&mut rng, true), filled(&mut rng, false)];
    let (mut read, mut refused) = (0, 0);
    let mut wrong = Vec::new();
    for n in 0..DAMAGES {
        let (image, rows) = &images[n % 2];
        let mut image = image.clone();
        let how = format!("SEED={seed}, damage {n}: {}", damage(&mut rng, &mut image));
        match catch_unwind(AssertUnwindSafe(|| check(&image, rows, &how))) {
            Ok(true) => read += 1,
            Ok(false) => refused += 1,
            Err(_) => wrong.push(how),
        }
    }
    println!("{read} read, {refused} refused");
    assert!(wrong.is_empty(), "{} of {DAMAGES}: {wrong:#?}", wrong.len());
    assert!(read > 20 && refused > 20, "the damage hits nothing, or all");
}

/// No checksum shows that a block is wrong: the engine meets what it takes for impossible.
#[test]
fn an_engine_that_panics_stops_its_store_for_good_and_nothing_else() {
    let mut rng = SeededRng::new(5);
    let (image, _) = filled(&mut rng, false);
    let blocks = CheckedDisk::open(MemDisk::from_bytes(image.clone()));
    let blocks = blocks.and_then(|disk| disk.len()).expect("sound") / BLOCK as u64;
    let (mut at_start, mut later) = (0, 0);
    for block in 1..blocks {
        let how = format!("block {block}");
        let disk = MemDisk::from_bytes(image.clone());
        let checked = CheckedDisk::open(disk.clone()).expect("sound");
        let fill = [0, 1, 2, 255][rng.below(4) as usize];
        let written = checked.write(block * BLOCK as u64, &[fill; BLOCK]);
        written.and_then(|()| checked.sync()).expect("memory");
        let image = disk.to_bytes();
        let (disk, kv) = open(&image);
        match kv.map(|kv| (rows(&kv), kv)) {
            Err(error) => {
                names_file(&error, &how);
                at_start += usize::from(error.to_string().contains("panicked"));
            }
            Ok((Err(error), kv)) => {
                names_file(&error, &how);
                later += usize::from(error.to_string().contains("panicked"));
                let stopped = [kv.get(NAMES, b"x").err(), kv.commit(Batch::new()).err()];
                let is_stopped = |error| matches!(error, Some(StorageError::Stopped { .. }));
                assert!(stopped.into_iter().all(is_stopped), "{how}");
                let before = disk.to_bytes();
                drop(kv);
                assert!(disk.to_bytes() == before, "{how}: written after a panic");
            }
            Ok((Ok(_), _)) => {}
        }
        let disk = MemDisk::from_bytes(image);
        let holes = examine(
            || Ok(Named(disk.clone())),
            TABLES,
            &options(),
            &mut |_, _, _| {},
        );
        for hole in holes.expect("no other version") {
            hole.causes.iter().for_each(|cause| names_file(cause, &how));
        }
    }
    println!("{at_start} panics at the start, {later} later");
    assert!(at_start > 0 && later > 0, "none was met");
}
