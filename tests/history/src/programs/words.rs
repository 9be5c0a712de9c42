//! Words of files that are mapped and written as well: several to a page.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::files::{Files, Way};
use super::{Worker, done, outcome};
use crate::event::{Call, Outcome};
use crate::object::{Kind, Object};

const FILES: u32 = 1;
const WORDS: u32 = 12;
/// The distance of two words.
const APART: usize = 512;
const BYTES: usize = 2 * 4096;

fn name(number: u32) -> String {
    format!("words{number}")
}

fn word(number: u32, part: u32) -> Object {
    let kind = Kind::Word;
    Object { kind, number, part }
}

pub fn prepare(dir: &Path) -> io::Result<()> {
    (0..FILES).try_for_each(|number| fs::write(dir.join(name(number)), vec![0; BYTES]))
}

pub fn step(worker: &mut Worker, files: &mut Files) {
    let (number, part) = (worker.pick(FILES), worker.pick(WORDS));
    let (path, at) = (worker.dir.join(name(number)), part as usize * APART);
    if worker.chance(60) {
        files.close(&path);
    }
    let object = word(number, part);
    match worker.pick(8) {
        0 | 1 => store(worker, files, (&path, at), object),
        2 | 3 => write(worker, files, (&path, at), object),
        4 | 5 => drop(worker.recorder.call("load", object, Call::Read, || {
            let mapping = files.mapping(&path, BYTES);
            outcome(mapping, |(_, mapping)| {
                Outcome::Value(mapping.load_word(at))
            })
        })),
        _ => read(worker, files, (&path, at), object),
    }
}

fn store(worker: &mut Worker, files: &mut Files, (path, at): (&Path, usize), object: Object) {
    let value = worker.unique();
    let flushes = worker.habits.flushes || worker.chance(4);
    let how = if flushes { "store+msync" } else { "store" };
    let call = Call::Write(value);
    worker.recorder.call_through(how, object, call, || {
        let mut number = 0;
        let stored = files.mapping(path, BYTES).and_then(|(its, mapping)| {
            number = its;
            mapping.store_word(at, value);
            if flushes { mapping.sync() } else { Ok(()) }
        });
        (done(stored), number)
    });
}

fn write(worker: &mut Worker, files: &mut Files, (path, at): (&Path, usize), object: Object) {
    let value = worker.unique();
    let syncs = worker.syncs();
    let how = if syncs { "pwrite+fsync" } else { "pwrite" };
    let call = Call::Write(value);
    worker.recorder.call_through(how, object, call, || {
        let mut number = 0;
        let file = files.numbered(path, Way::Usual, &mut number);
        let written = file.and_then(|file| {
            file.write_all_at(&value.to_le_bytes(), at as u64)?;
            if syncs { file.sync_data() } else { Ok(()) }
        });
        (done(written), number)
    });
}

fn read(worker: &mut Worker, files: &mut Files, (path, at): (&Path, usize), object: Object) {
    worker.recorder.call("pread", object, Call::Read, || {
        let mut bytes = [0; 8];
        let read = files.get(path, Way::Usual);
        let read = read.and_then(|file| file.read_exact_at(&mut bytes, at as u64));
        outcome(read, |()| Outcome::Value(u64::from_le_bytes(bytes)))
    });
}

pub fn look(worker: &mut Worker) {
    let mut files = Files::default();
    for number in 0..FILES {
        let path = worker.dir.join(name(number));
        for part in 0..WORDS {
            read(
                worker,
                &mut files,
                (&path, part as usize * APART),
                word(number, part),
            );
        }
    }
}
