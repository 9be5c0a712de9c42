//! One file written and read in every way at once, by two threads, two processes and two mounts. Each owns
//! some bytes of every page.
// SEMANTICS: op.read, op.write, op.append, op.mmap, op.truncate, op.fallocate, cache.pages

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File, OpenOptions};
use std::io::{IoSlice, IoSliceMut, Write as _};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use base::{Rng, SeededRng};
use mounted::{Cluster, Mapping, count, seed};
use rustix::fs::{FallocateFlags, copy_file_range, fallocate};
use rustix::io::{preadv, pwritev};
use rustix::pipe::{SpliceFlags, pipe, splice};

/// Some pages.
const SIZE: usize = 64 * 1024;
/// Bytes in a row that one actor owns: sixteen in a page.
const PIECE: usize = 256;
const ACTORS: usize = 4;
/// Between them the file is cut off and grown.
const ROUNDS: u64 = 5;
const LIMIT: Duration = Duration::from_secs(600);
/// What another process of this test is told: place, directory of models, seed, steps, actors.
const TOLD: &str = "MIXED_IO";

#[derive(Clone, Copy, Debug)]
enum Write {
    Pwrite,
    Vector,
    Direct,
    Durable,
    Store,
    StoreAndSync,
    Punch,
    Zero,
    Copy,
    Splice,
}

#[derive(Clone, Copy, Debug)]
enum Read {
    Pread,
    Cached,
    Vector,
    Direct,
    Load,
    Splice,
}

const WRITES: [Write; 12] = [
    Write::Pwrite,
    Write::Pwrite,
    Write::Vector,
    Write::Direct,
    Write::Durable,
    Write::Store,
    Write::Store,
    Write::StoreAndSync,
    Write::Punch,
    Write::Zero,
    Write::Copy,
    Write::Splice,
];

const READS: [Read; 6] = [
    Read::Pread,
    Read::Cached,
    Read::Vector,
    Read::Direct,
    Read::Load,
    Read::Splice,
];

/// The file, open in every way.
struct Ways {
    file: File,
    cached: File,
    direct: File,
    durable: File,
    mapping: Mapping,
}

impl Ways {
    fn open(path: &Path) -> Ways {
        let with = |flags| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(flags);
            options.open(path).unwrap()
        };
        Ways {
            file: with(0),
            cached: File::open(path).unwrap(),
            direct: with(libc::O_DIRECT),
            durable: with(libc::O_DSYNC),
            mapping: Mapping::new(path, SIZE).unwrap(),
        }
    }

    fn write(&self, how: Write, at: usize, data: &[u8]) {
        let (offset, length) = (at as u64, data.len() as u64);
        match how {
            Write::Pwrite => self.file.write_all_at(data, offset).unwrap(),
            Write::Direct => self.direct.write_all_at(data, offset).unwrap(),
            Write::Durable => self.durable.write_all_at(data, offset).unwrap(),
            Write::Vector => {
                let (one, two) = data.split_at(data.len() / 2);
                let parts = [IoSlice::new(one), IoSlice::new(two)];
                assert_eq!(pwritev(&self.file, &parts, offset).unwrap(), data.len());
            }
            Write::Store => self.mapping.store(at, data),
            Write::StoreAndSync => {
                self.mapping.store(at, data);
                self.mapping.sync().unwrap();
            }
            Write::Punch => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&self.file, flags, offset, length).unwrap();
            }
            Write::Zero => {
                fallocate(&self.file, FallocateFlags::ZERO_RANGE, offset, length).unwrap();
            }
            Write::Copy => unreachable!("it has no data"),
            Write::Splice => {
                let (from, to) = pipe().unwrap();
                File::from(to).write_all(data).unwrap();
                let mut at = offset;
                let moved = splice(
                    &from,
                    None,
                    &self.file,
                    Some(&mut at),
                    data.len(),
                    SpliceFlags::empty(),
                );
                assert_eq!(moved.unwrap(), data.len());
            }
        }
    }

    fn copy(&self, from: usize, to: usize, length: usize) {
        let (mut from, mut to) = (from as u64, to as u64);
        let copied = copy_file_range(
            &self.cached,
            Some(&mut from),
            &self.file,
            Some(&mut to),
            length,
        );
        assert_eq!(copied.unwrap(), length);
    }

    fn read(&self, how: Read, at: usize, length: usize) -> Vec<u8> {
        let (offset, mut seen) = (at as u64, vec![0xEE; length]);
        match how {
            Read::Pread => self.file.read_exact_at(&mut seen, offset).unwrap(),
            Read::Cached => self.cached.read_exact_at(&mut seen, offset).unwrap(),
            Read::Direct => self.direct.read_exact_at(&mut seen, offset).unwrap(),
            Read::Vector => {
                let (one, two) = seen.split_at_mut(length / 2);
                let mut parts = [IoSliceMut::new(one), IoSliceMut::new(two)];
                assert_eq!(preadv(&self.cached, &mut parts, offset).unwrap(), length);
            }
            Read::Load => seen = (at..at + length).map(|at| self.mapping.load(at)).collect(),
            Read::Splice => {
                let (from, to) = pipe().unwrap();
                let mut at = offset;
                let moved = splice(
                    &self.cached,
                    Some(&mut at),
                    &to,
                    None,
                    length,
                    SpliceFlags::empty(),
                );
                assert_eq!(moved.unwrap(), length);
                std::io::Read::read_exact(&mut File::from(from), &mut seen).unwrap();
            }
        }
        seen
    }
}

fn same(what: &str, at: usize, seen: &[u8], truth: &[u8]) {
    let differ: Vec<usize> = (0..truth.len()).filter(|i| seen[*i] != truth[*i]).collect();
    if let (Some(first), Some(last)) = (differ.first(), differ.last()) {
        panic!(
            "{} bytes differ from {} to {}; the first is {}, not {}: {what}",
            differ.len(),
            at + first,
            at + last,
            seen[*first],
            truth[*first]
        );
    }
}

/// Who owns every fourth piece of the file, and appends to a log that belongs to all.
struct Actor {
    number: usize,
    ways: Ways,
    appender: File,
    log: PathBuf,
    rng: SeededRng,
    /// What is in the pieces; elsewhere, what was.
    bytes: Vec<u8>,
    appended: u64,
    /// Up to where the log was read, and the next record of each.
    read: (u64, [Option<u64>; ACTORS]),
    last: Vec<String>,
}

impl Actor {
    fn new(place: &Path, bytes: Vec<u8>, seed: u64, number: usize) -> Actor {
        let log = place.join("log");
        let mut options = OpenOptions::new();
        Actor {
            number,
            ways: Ways::open(&place.join("file")),
            appender: options.append(true).create(true).open(&log).unwrap(),
            read: (fs::metadata(&log).unwrap().len(), [None; ACTORS]),
            log,
            rng: SeededRng::new(seed.wrapping_add(number as u64)),
            bytes,
            appended: 0,
            last: Vec::new(),
        }
    }

    /// Some bytes in a row of one of the pieces.
    fn range(&mut self) -> (usize, usize) {
        let pieces = SIZE / PIECE / ACTORS;
        let piece = self.rng.below(pieces as u64) as usize * ACTORS + self.number;
        let from = self.rng.below(PIECE as u64) as usize;
        let length = 1 + self.rng.below((PIECE - from) as u64) as usize;
        (piece * PIECE + from, length)
    }

    fn step(&mut self) {
        match self.rng.below(10) {
            0 => self.append(),
            1..=4 => self.write(),
            _ => self.check(),
        }
    }

    fn note(&mut self, what: String) {
        self.last.push(what);
        if self.last.len() > 20 {
            self.last.remove(0);
        }
    }

    fn write(&mut self) {
        let how = WRITES[self.rng.below(WRITES.len() as u64) as usize];
        let (at, length) = self.range();
        self.note(format!("{how:?} {at}+{length}"));
        if let Write::Copy = how {
            let (from, other) = self.range();
            let length = length.min(other);
            if (at..at + length).contains(&from) || (from..from + length).contains(&at) {
                return;
            }
            self.ways.copy(from, at, length);
            self.bytes.copy_within(from..from + length, at);
            return;
        }
        let zeros = matches!(how, Write::Punch | Write::Zero);
        let value = |rng: &mut SeededRng| if zeros { 0 } else { rng.below(255) as u8 + 1 };
        let data: Vec<u8> = (0..length).map(|_| value(&mut self.rng)).collect();
        self.ways.write(how, at, &data);
        self.bytes[at..at + length].copy_from_slice(&data);
    }

    fn check(&mut self) {
        let how = READS[self.rng.below(READS.len() as u64) as usize];
        let (at, length) = self.range();
        self.note(format!("{how:?} {at}+{length}"));
        let seen = self.ways.read(how, at, length);
        let what = format!("actor {} after\n{}", self.number, self.last.join("\n"));
        same(&what, at, &seen, &self.bytes[at..at + length]);
    }

    /// Appends a record, and reads the log on to its end: whole records, each actor's in order, the
    /// last of its own among them.
    fn append(&mut self) {
        let filler = "x".repeat(self.rng.below(100) as usize);
        let record = format!("{} {} {filler}\n", self.number, self.appended);
        self.note(format!("append {}", self.appended));
        assert_eq!(
            self.appender.write(record.as_bytes()).unwrap(),
            record.len()
        );
        self.appended += 1;
        let (from, mut next) = self.read;
        let bytes = read_on(&self.log, from);
        let text = String::from_utf8(bytes).unwrap();
        assert!(
            text.ends_with('\n'),
            "the log ends in {:?}",
            text.rsplit('\n').next()
        );
        for line in text.lines() {
            let mut words = line.split(' ').map(str::parse::<u64>);
            let (Some(Ok(actor)), Some(Ok(number))) = (words.next(), words.next()) else {
                panic!("a record of the log is {line:?}");
            };
            let next = &mut next[actor as usize];
            assert_eq!(number, next.unwrap_or(number), "in {line:?}");
            *next = Some(number + 1);
        }
        assert_eq!(next[self.number], Some(self.appended), "its own is missing");
        self.read = (from + text.len() as u64, next);
    }
}

/// All that comes behind `from`.
fn read_on(path: &Path, from: u64) -> Vec<u8> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 16384]);
    let file = File::open(path).unwrap();
    loop {
        match file
            .read_at(&mut buffer, from + bytes.len() as u64)
            .unwrap()
        {
            0 => return bytes,
            more => bytes.extend_from_slice(&buffer[..more]),
        }
    }
}

/// Where the actors are.
struct Told {
    place: PathBuf,
    models: PathBuf,
    seed: u64,
    steps: u64,
}

/// Lets these act, each on a thread of its own, and leaves what they believe to be in the file.
fn act(told: &Told, actors: &[usize]) {
    let bytes = fs::read(told.models.join("all")).unwrap();
    thread::scope(|scope| {
        for number in actors {
            let bytes = bytes.clone();
            scope.spawn(move || {
                let mut actor = Actor::new(&told.place, bytes, told.seed, *number);
                (0..told.steps).for_each(|_| actor.step());
                fs::write(told.models.join(number.to_string()), &actor.bytes).unwrap();
            });
        }
    });
}

#[test]
#[ignore = "run by the others, as another process"]
fn acts() {
    let told = std::env::var(TOLD).unwrap();
    let told: Vec<&str> = told.split('|').collect();
    let [place, models, seed, steps, actors] = told[..] else {
        panic!("{told:?}")
    };
    let told = Told {
        place: place.into(),
        models: models.into(),
        seed: seed.parse().unwrap(),
        steps: steps.parse().unwrap(),
    };
    let actors: Vec<usize> = actors.split(',').map(|n| n.parse().unwrap()).collect();
    act(&told, &actors);
}

fn start(told: &Told, actors: &str) -> std::process::Child {
    let Told {
        place,
        models,
        seed,
        steps,
    } = told;
    let (place, models) = (place.display(), models.display());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "acts"]);
    command.env(TOLD, format!("{place}|{models}|{seed}|{steps}|{actors}"));
    command.spawn().unwrap()
}

/// Two threads and a process on the first place, a process on the second.
fn round(places: [&Path; 2], models: &Path, seed: u64, steps: u64) {
    let told = |place: &Path| Told {
        place: place.into(),
        models: models.into(),
        seed,
        steps,
    };
    let children = [start(&told(places[0]), "2"), start(&told(places[1]), "3")];
    let here = std::panic::catch_unwind(|| act(&told(places[0]), &[0, 1]));
    let others = children.map(|mut child| child.wait().unwrap().success());
    assert!(
        here.is_ok() && others == [true; 2],
        "threads: {here:?}, processes: {others:?}"
    );
}

fn exercise(places: [&Path; 2], local: &Path, steps: u64, watch: impl Fn(&str, &mut dyn FnMut())) {
    let models = tempfile::tempdir_in(local).unwrap();
    let path = places.map(|place| place.join("file"));
    fs::write(&path[0], vec![0; SIZE]).unwrap();
    let ways = path.map(|path| Ways::open(&path));
    let mut rng = SeededRng::new(seed());
    let mut bytes = vec![0; SIZE];
    for number in 0..ROUNDS {
        fs::write(models.path().join("all"), &bytes).unwrap();
        let seed = rng.next_u64();
        watch(&format!("round {number}"), &mut || {
            round(places, models.path(), seed, steps);
        });
        for actor in 0..ACTORS {
            let mine = fs::read(models.path().join(actor.to_string())).unwrap();
            for at in (0..SIZE).filter(|at| at / PIECE % ACTORS == actor) {
                bytes[at] = mine[at];
            }
        }
        watch("looking", &mut || {
            for how in [Read::Pread, Read::Cached, Read::Load, Read::Splice] {
                for (mount, ways) in ways.iter().enumerate() {
                    let what = format!("{how:?} on mount {mount} after round {number}");
                    same(&what, 0, &ways.read(how, 0, SIZE), &bytes);
                }
            }
        });
        let cut = rng.below(SIZE as u64);
        let file = &ways[rng.below(2) as usize].file;
        file.set_len(cut).unwrap();
        file.set_len(SIZE as u64).unwrap();
        bytes[cut as usize..].fill(0);
    }
}

fn on_mounts(steps: u64) {
    let cluster = Cluster::with_mounts(2);
    let places = [cluster.root(0), cluster.root(1)];
    exercise(places, &cluster.local(), steps, |what, work| {
        cluster.timed_for(LIMIT, what, work);
    });
}

#[test]
fn what_is_written_in_any_way_is_read_in_every_way() {
    on_mounts(count("MIXED_STEPS", 300));
}

#[test]
#[ignore = "soak: an hour"]
fn soak_what_is_written_in_any_way_is_read_in_every_way() {
    on_mounts(count("MIXED_STEPS", 50_000));
}
