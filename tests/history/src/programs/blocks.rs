//! Files of blocks, each full of one value: a call reads or writes one block or some.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::files::{Files, Way, open};
use super::{Worker, outcome};
use crate::event::{Call, Outcome};
use crate::object::{Kind, Object};

const FILES: u32 = 2;
const BLOCKS: u32 = 8;
const BLOCK: usize = 4096;
/// Blocks of one call.
const CALL_MAX: u32 = 3;

fn name(number: u32) -> String {
    format!("blocks{number}")
}

fn block(number: u32, part: u32) -> Object {
    let kind = Kind::Block;
    Object { kind, number, part }
}

pub fn prepare(dir: &Path) -> io::Result<()> {
    (0..FILES)
        .try_for_each(|number| fs::write(dir.join(name(number)), vec![0; BLOCK * BLOCKS as usize]))
}

/// Memory that a direct call takes: it begins at a multiple of a block.
pub struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    pub fn new(length: usize) -> Aligned {
        let bytes = vec![0; length + BLOCK];
        let start = bytes.as_ptr().align_offset(BLOCK);
        Aligned {
            bytes,
            start,
            length,
        }
    }

    pub fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

pub fn step(worker: &mut Worker, files: &mut Files) {
    let number = worker.pick(FILES);
    let first = worker.pick(BLOCKS);
    let count = (1 + worker.pick(CALL_MAX)).min(BLOCKS - first);
    if worker.chance(30) {
        files.close(&worker.dir.join(name(number)));
    }
    match worker.pick(10) {
        0..=3 => write(worker, files, number, (first, count)),
        4 => load(worker, files, number, first),
        5..=8 => read(worker, files, number, (first, count)),
        _ => {
            let path = worker.dir.join(name(number));
            files.close(&path);
            read(worker, files, number, (first, count));
        }
    }
}

fn way(worker: &mut Worker) -> (Way, &'static str, &'static str) {
    match worker.chance(4) {
        true => (Way::Direct, "pread(O_DIRECT)", "pwrite(O_DIRECT)"),
        false => (Way::Usual, "pread", "pwrite"),
    }
}

fn write(worker: &mut Worker, files: &mut Files, number: u32, (first, count): (u32, u32)) {
    let path = worker.dir.join(name(number));
    let (way, _, how) = way(worker);
    let values: Vec<u64> = (0..count).map(|_| worker.unique()).collect();
    let syncs = worker.syncs();
    let mut bytes = Aligned::new(BLOCK * count as usize);
    for (piece, value) in bytes.get().chunks_exact_mut(BLOCK).zip(&values) {
        let words = piece.chunks_exact_mut(8);
        words.for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
    }
    let parts = (first..).zip(&values);
    let about: Vec<_> = parts
        .map(|(part, value)| (block(number, part), Call::Write(*value)))
        .collect();
    let how = if syncs {
        format!("{how}+fsync")
    } else {
        how.to_owned()
    };
    worker.recorder.calls_through(&how, &about, || {
        let mut number = 0;
        let file = files.numbered(&path, way, &mut number);
        let written = file.and_then(|file| {
            file.write_all_at(bytes.get(), u64::from(first) * BLOCK as u64)?;
            if syncs { file.sync_data() } else { Ok(()) }
        });
        (vec![super::done(written); about.len()], number)
    });
}

fn read(worker: &mut Worker, files: &mut Files, number: u32, (first, count): (u32, u32)) {
    let path = worker.dir.join(name(number));
    let (way, how, _) = way(worker);
    let mut bytes = Aligned::new(BLOCK * count as usize);
    let about: Vec<_> = (first..first + count)
        .map(|part| (block(number, part), Call::Read))
        .collect();
    worker.recorder.calls(how, &about, || {
        let read = files.get(&path, way);
        let read =
            read.and_then(|file| file.read_exact_at(bytes.get(), u64::from(first) * BLOCK as u64));
        let failed = read
            .err()
            .map(|error| outcome(Err(error), |()| Outcome::Done));
        let pieces = bytes.get().chunks_exact(BLOCK);
        pieces
            .map(|piece| failed.clone().unwrap_or_else(|| value_of(piece)))
            .collect()
    });
}

/// The value that all of `bytes` is full of.
pub fn value_of(bytes: &[u8]) -> Outcome {
    let mut words = bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    let Some(first) = words.next() else {
        return Outcome::Flawed("nothing is there".to_owned());
    };
    match words.enumerate().find(|(_, word)| *word != first) {
        None => Outcome::Value(first),
        Some((at, word)) => {
            let at = 8 * (at + 1);
            Outcome::Flawed(format!("torn: {first:x} up to byte {at}, then {word:x}"))
        }
    }
}

/// Of a mapped block the first word is read.
fn load(worker: &mut Worker, files: &mut Files, number: u32, part: u32) {
    let path = worker.dir.join(name(number));
    worker
        .recorder
        .call("load", block(number, part), Call::Read, || {
            let mapping = files.mapping(&path, BLOCK * BLOCKS as usize);
            outcome(mapping, |(_, mapping)| {
                Outcome::Value(mapping.load_word(part as usize * BLOCK))
            })
        });
}

pub fn look(worker: &mut Worker) {
    let mut files = Files::default();
    for number in 0..FILES {
        for first in (0..BLOCKS).step_by(2) {
            read(worker, &mut files, number, (first, 2));
        }
    }
}

/// Opens a file anew and reads all of it.
pub fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    let mut file: File = open(path, Way::Usual)?;
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut file, &mut bytes)?;
    Ok(bytes)
}
