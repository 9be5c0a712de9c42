//! One large file written in streams and in patches, read in order and truncated through two mounts by turns.
//! Writes go from the cache without a copy, reads and writes pass page caches, and read-ahead is long.
// SEMANTICS: op.read, op.write, op.truncate, op.fsync, cache.pages

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use base::{Rng, SeededRng};
use mounted::{Cluster, count, first_difference, fresh_bytes, seed};

const MIB: usize = 1 << 20;
/// The file's greatest size: most of it is where writes pass the page cache of the OST.
const SIZE: usize = 160 * MIB;
/// The greatest length of a stream.
const STREAM: u64 = 48 << 20;
/// The greatest length of a patch: more than a block.
const PATCH: u64 = 300 << 10;
/// Bytes of one call.
const CALL: usize = MIB;

struct Exercise<'a> {
    roots: [&'a Path; 2],
    rng: SeededRng,
    bytes: Vec<u8>,
    /// Where the last stream went: patches find it on its way.
    last: (usize, usize),
}

impl Exercise<'_> {
    fn file(&self, mount: usize, write: bool) -> File {
        let path = self.roots[mount].join("file");
        File::options().read(true).write(write).open(path).unwrap()
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    fn fresh(&mut self, length: usize) -> Vec<u8> {
        fresh_bytes(self.rng.next_u64(), length)
    }

    fn write(&mut self, file: &File, offset: usize, length: usize) {
        let data = self.fresh(length);
        file.write_all_at(&data, offset as u64).unwrap();
        let end = offset + length;
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[offset..end].copy_from_slice(&data);
    }

    /// Large writes one after the other, at the border of blocks or not.
    fn stream(&mut self, file: &File) {
        let aligned = self.below(2) == 0;
        let start = self.below(SIZE - CALL);
        let start = if aligned { start / MIB * MIB } else { start };
        let end = SIZE.min(start + self.below(STREAM as usize) + 1);
        for offset in (start..end).step_by(CALL) {
            self.write(file, offset, CALL.min(end - offset));
        }
        self.last = (start, end);
    }

    /// Small writes where a stream may still be on its way.
    fn patch(&mut self, file: &File) {
        let (start, end) = self.last;
        for _ in 0..40 {
            let offset = start + self.below(end - start);
            let length = 1 + self.below(PATCH as usize);
            self.write(file, offset, length.min(end - offset));
        }
    }

    /// In order, by a reader of its own: further and further ahead.
    fn read(&mut self, mount: usize) {
        let file = self.file(mount, self.last.0.is_multiple_of(2));
        let start = self.below(self.bytes.len() + 1);
        let mut seen = vec![0; CALL];
        let mut at = start;
        while at < self.bytes.len() {
            let length = file.read_at(&mut seen, at as u64).unwrap();
            assert!(length > 0, "the end at {at} of {}", self.bytes.len());
            if let Some(differs) = first_difference(&seen[..length], &self.bytes[at..]) {
                panic!("byte {} differs, read from {start}", at + differs);
            }
            at += length;
        }
    }

    fn step(&mut self) {
        let mount = self.below(2);
        match self.below(10) {
            0..3 => {
                let file = self.file(mount, true);
                self.stream(&file);
                self.patch(&file);
            }
            3 => {
                let file = self.file(mount, true);
                self.patch(&file);
            }
            4 => {
                let size = self.below(SIZE);
                self.file(mount, true).set_len(size as u64).unwrap();
                self.bytes.resize(size, 0);
            }
            5 => self.file(mount, true).sync_all().unwrap(),
            _ => self.read(mount),
        }
    }
}

fn exercise(steps: u64) {
    let cluster = Cluster::with_mounts(2);
    let roots = [cluster.root(0), cluster.root(1)];
    File::create(roots[0].join("file")).unwrap();
    let mut exercise = Exercise {
        roots,
        rng: SeededRng::new(seed()),
        bytes: Vec::new(),
        last: (0, PATCH as usize),
    };
    for step in 0..steps {
        let what = format!("step {step}");
        cluster.timed_for(Duration::from_secs(60), &what, || exercise.step());
    }
}

#[test]
fn two_mounts_agree_on_a_large_file() {
    exercise(count("MOUNTED_STEPS", 40));
}

#[test]
#[ignore = "soak: some minutes"]
fn soak_two_mounts_agree_on_a_large_file() {
    exercise(count("MOUNTED_STEPS", 2000));
}
