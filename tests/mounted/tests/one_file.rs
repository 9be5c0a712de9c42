//! One file read, written, mapped and truncated through two mounts by turns, compared with its expected
//! bytes.
// SEMANTICS: op.read, op.write, op.append, op.mmap, op.truncate, op.fallocate, cache.pages, cache.attributes

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::Path;

use base::{Rng, SeededRng};
use mounted::{Cluster, Mapping, count, first_difference, fresh_bytes, seed};
use nix::fcntl::{FallocateFlags, fallocate};

/// The file's greatest size: some pages.
const SIZE: usize = 96 * 1024;
/// The greatest length of one operation.
const LENGTH: u64 = 12 * 1024;

/// What one mount has of the file.
struct Holder {
    file: File,
    appender: File,
    mapping: Mapping,
}

impl Holder {
    fn open(path: &Path) -> Holder {
        let mut options = OpenOptions::new();
        Holder {
            file: options.read(true).write(true).open(path).unwrap(),
            appender: OpenOptions::new().append(true).open(path).unwrap(),
            mapping: Mapping::new(path, SIZE).unwrap(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Read,
    Write,
    Append,
    Load,
    Store,
    Truncate,
    Punch,
    Zero,
    Reserve,
    Reopen,
}

const ACTS: [Act; 16] = [
    Act::Read,
    Act::Read,
    Act::Read,
    Act::Write,
    Act::Write,
    Act::Append,
    Act::Load,
    Act::Load,
    Act::Load,
    Act::Store,
    Act::Store,
    Act::Store,
    Act::Truncate,
    Act::Punch,
    Act::Zero,
    Act::Reserve,
];

struct Exercise<'a> {
    roots: [&'a Path; 2],
    holders: [Holder; 2],
    rng: SeededRng,
    /// What is in the file.
    bytes: Vec<u8>,
    last: Vec<String>,
}

impl Exercise<'_> {
    fn new(roots: [&Path; 2], seed: u64) -> Exercise<'_> {
        File::create(roots[0].join("file")).unwrap();
        Exercise {
            roots,
            holders: roots.map(|root| Holder::open(&root.join("file"))),
            rng: SeededRng::new(seed),
            bytes: Vec::new(),
            last: Vec::new(),
        }
    }

    /// An offset and a length below a greatest size.
    fn range(&mut self, size: usize) -> (usize, usize) {
        let offset = self.rng.below(size as u64) as usize;
        let length = 1 + self.rng.below(LENGTH) as usize;
        (offset, length.min(size - offset))
    }

    fn fresh(&mut self, length: usize) -> Vec<u8> {
        fresh_bytes(self.rng.next_u64(), length)
    }

    fn put(&mut self, offset: usize, data: &[u8]) {
        let end = offset + data.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[offset..end].copy_from_slice(data);
    }

    fn same(&self, offset: usize, seen: &[u8]) {
        let truth = &self.bytes[offset..offset + seen.len()];
        if let Some(at) = first_difference(seen, truth) {
            panic!(
                "byte {} is {}, not {}, after\n{}",
                offset + at,
                seen[at],
                truth[at],
                self.last.join("\n")
            );
        }
    }

    /// One act through one of the mounts.
    fn step(&mut self) {
        let mount = self.rng.below(2) as usize;
        let act = match self.rng.below(200) {
            0 => Act::Reopen,
            other => ACTS[other as usize % ACTS.len()],
        };
        let size = match act {
            Act::Read | Act::Load | Act::Store => self.bytes.len(),
            _ => SIZE,
        };
        let (offset, length) = match size {
            0 => (0, 0),
            _ => self.range(size),
        };
        self.last
            .push(format!("mount {mount}: {act:?} {offset}+{length}"));
        if self.last.len() > 20 {
            self.last.remove(0);
        }
        let seen = self.holders[mount].file.metadata().unwrap().len();
        assert_eq!(seen, self.bytes.len() as u64, "{}", self.last.join("\n"));
        self.act(act, mount, offset, length);
    }

    fn act(&mut self, act: Act, mount: usize, offset: usize, length: usize) {
        match act {
            Act::Read => {
                let mut seen = vec![0; length];
                let file = &self.holders[mount].file;
                file.read_exact_at(&mut seen, offset as u64).unwrap();
                self.same(offset, &seen);
            }
            Act::Load => {
                let mapping = &self.holders[mount].mapping;
                let load = |at| mapping.load(at);
                let seen: Vec<u8> = (offset..offset + length).map(load).collect();
                self.same(offset, &seen);
            }
            Act::Write => {
                let data = self.fresh(length);
                let file = &self.holders[mount].file;
                file.write_all_at(&data, offset as u64).unwrap();
                self.put(offset, &data);
            }
            Act::Store => {
                let data = self.fresh(length);
                self.holders[mount].mapping.store(offset, &data);
                self.put(offset, &data);
            }
            Act::Append => {
                let length = length.min(SIZE - self.bytes.len());
                let data = self.fresh(length);
                let file = &mut self.holders[mount].appender;
                file.write_all(&data).unwrap();
                self.put(self.bytes.len(), &data);
            }
            Act::Truncate => {
                self.holders[mount].file.set_len(offset as u64).unwrap();
                self.bytes.resize(offset, 0);
            }
            Act::Punch | Act::Zero | Act::Reserve => self.allocate(act, mount, offset, length),
            Act::Reopen => self.holders[mount] = Holder::open(&self.roots[mount].join("file")),
        }
    }

    fn allocate(&mut self, act: Act, mount: usize, offset: usize, length: usize) {
        let keep = FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let flags = match act {
            Act::Punch => FallocateFlags::FALLOC_FL_PUNCH_HOLE | keep,
            Act::Zero => FallocateFlags::FALLOC_FL_ZERO_RANGE,
            _ => FallocateFlags::empty(),
        };
        let file = &self.holders[mount].file;
        fallocate(file, flags, offset as i64, length as i64).unwrap();
        let (size, end) = (self.bytes.len(), offset + length);
        if !matches!(act, Act::Punch) {
            self.bytes.resize(size.max(end), 0);
        }
        if !matches!(act, Act::Reserve) {
            let size = self.bytes.len();
            self.bytes[offset.min(size)..end.min(size)].fill(0);
        }
    }
}

fn exercise(steps: u64) {
    let cluster = Cluster::with_mounts(2);
    let roots = [cluster.root(0), cluster.root(1)];
    let mut exercise = Exercise::new(roots, seed());
    for step in 0..steps {
        cluster.timed(&format!("step {step}"), || exercise.step());
    }
}

#[test]
fn what_one_mount_does_to_a_file_the_other_reads_and_maps() {
    exercise(count("MOUNTED_STEPS", 10_000));
}

#[test]
#[ignore = "soak: half an hour"]
fn soak_what_one_mount_does_to_a_file_the_other_reads_and_maps() {
    exercise(count("MOUNTED_STEPS", 1_000_000));
}
