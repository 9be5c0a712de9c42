//! Files that are cut and grown: the size is a register.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::Path;

use super::files::{Files, Way};
use super::{PROCESSES_MAX, Worker, done, outcome};
use crate::event::{Call, Outcome};
use crate::object::{Kind, Object};

/// Of each of the two kinds.
const FILES: u32 = 2;

fn name(object: Object) -> String {
    format!("{}{}", object.kind, object.number)
}

/// All files of this kind.
fn objects(kind: Kind) -> impl Iterator<Item = Object> {
    (0..FILES).map(move |number| Object::whole(kind, number))
}

pub fn prepare(dir: &Path) -> io::Result<()> {
    let mut all = objects(Kind::Size).chain(objects(Kind::End));
    all.try_for_each(|object| File::create(dir.join(name(object))).map(drop))
}

pub fn step(worker: &mut Worker, files: &mut Files, kind: Kind) {
    let object = Object::whole(kind, worker.pick(FILES));
    if worker.chance(30) {
        files.close(&worker.dir.join(name(object)));
    }
    match worker.chance(3) {
        true => truncate(worker, files, object),
        false => read(worker, files, object),
    }
}

fn truncate(worker: &mut Worker, files: &mut Files, object: Object) {
    let path = worker.dir.join(name(object));
    // Each process has sizes of its own.
    worker.made += 1;
    let size = worker.made * u64::from(PROCESSES_MAX) + u64::from(worker.process) + 1;
    let syncs = worker.syncs();
    let how = if syncs {
        "ftruncate+fsync"
    } else {
        "ftruncate"
    };
    let call = Call::Write(size);
    worker.recorder.call_through(how, object, call, || {
        let mut number = 0;
        let file = files.numbered(&path, Way::Usual, &mut number);
        let cut = file.and_then(|file| {
            file.set_len(size)?;
            if syncs { file.sync_all() } else { Ok(()) }
        });
        (done(cut), number)
    });
}

fn read(worker: &mut Worker, files: &mut Files, object: Object) {
    let path = worker.dir.join(name(object));
    let how = match object.kind {
        Kind::End => "lseek",
        _ => ["stat", "fstat"][worker.pick(2) as usize],
    };
    worker.recorder.call(how, object, Call::Read, || {
        let size = match how {
            "stat" => std::fs::metadata(&path).map(|stat| stat.len()),
            "fstat" => files
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
    for object in objects(Kind::Size).chain(objects(Kind::End)) {
        (0..3).for_each(|_| read(worker, &mut files, object));
    }
}
