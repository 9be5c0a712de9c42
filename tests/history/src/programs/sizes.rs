//! Files that are cut and grown: the size is a register.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::Path;

use super::files::{Files, Way};
use super::{Worker, done, outcome};
use crate::event::{Call, Outcome};
use crate::object::{Kind, Object};

const FILES: u32 = 2;

fn name(number: u32) -> String {
    format!("size{number}")
}

pub fn prepare(dir: &Path) -> io::Result<()> {
    (0..FILES).try_for_each(|number| File::create(dir.join(name(number))).map(drop))
}

pub fn step(worker: &mut Worker, files: &mut Files) {
    let number = worker.pick(FILES);
    if worker.chance(30) {
        files.close(&worker.dir.join(name(number)));
    }
    match worker.chance(3) {
        true => truncate(worker, files, number),
        false => read(worker, files, number),
    }
}

fn truncate(worker: &mut Worker, files: &mut Files, number: u32) {
    let path = worker.dir.join(name(number));
    // Each process has sizes of its own.
    worker.made += 1;
    let size = worker.made * 64 + u64::from(worker.process) + 1;
    let syncs = worker.syncs();
    let how = if syncs {
        "ftruncate+fsync"
    } else {
        "ftruncate"
    };
    let object = Object::whole(Kind::Size, number);
    worker.recorder.call(how, object, Call::Write(size), || {
        done(files.get(&path, Way::Usual).and_then(|file| {
            file.set_len(size)?;
            if syncs { file.sync_all() } else { Ok(()) }
        }))
    });
}

fn read(worker: &mut Worker, files: &mut Files, number: u32) {
    let path = worker.dir.join(name(number));
    let object = Object::whole(Kind::Size, number);
    let way = worker.pick(3);
    let how = ["stat", "fstat", "lseek"][way as usize];
    worker.recorder.call(how, object, Call::Read, || {
        let size = match way {
            0 => std::fs::metadata(&path).map(|stat| stat.len()),
            1 => files
                .get(&path, Way::Usual)
                .and_then(|file| Ok(file.metadata()?.len())),
            _ => files
                .get(&path, Way::Usual)
                .and_then(|file| file.seek(SeekFrom::End(0))),
        };
        outcome(size, Outcome::Value)
    });
}

pub fn look(worker: &mut Worker) {
    let mut files = Files::default();
    for number in 0..FILES {
        (0..3).for_each(|_| read(worker, &mut files, number));
    }
}
