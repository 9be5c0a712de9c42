//! Names that new files are renamed to, as editors and databases do: the process that opens one
//! finds one file, whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use super::blocks::{read_whole, value_of};
use super::{Worker, done, outcome};
use crate::event::{Call, Outcome};
use crate::object::{Kind, Object};

const NAMES: u32 = 3;

fn name(number: u32) -> String {
    format!("replaced{number}")
}

/// How many words a file of this value has: from eight to some pages.
fn words(value: u64) -> usize {
    8 + (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize
}

fn contents(value: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(words(value))
}

pub fn prepare(dir: &Path) -> io::Result<()> {
    (0..NAMES).try_for_each(|number| fs::write(dir.join(name(number)), contents(0)))
}

pub fn step(worker: &mut Worker) {
    let number = worker.pick(NAMES);
    match worker.chance(3) {
        true => replace(worker, number),
        false => read(worker, number),
    }
}

fn replace(worker: &mut Worker, number: u32) {
    let to = worker.dir.join(name(number));
    let from = worker.dir.join(format!("new{}", worker.process));
    let value = worker.unique();
    let syncs = worker.syncs();
    let how = if syncs {
        "write+fsync+rename"
    } else {
        "write+rename"
    };
    let object = Object::whole(Kind::Replaced, number);
    worker.recorder.call(how, object, Call::Write(value), || {
        let write = || {
            let mut file = File::create(&from)?;
            file.write_all(&contents(value))?;
            if syncs {
                file.sync_all()?;
            }
            drop(file);
            fs::rename(&from, &to)
        };
        done(write())
    });
}

fn read(worker: &mut Worker, number: u32) {
    let path = worker.dir.join(name(number));
    let object = Object::whole(Kind::Replaced, number);
    worker.recorder.call("open+read", object, Call::Read, || {
        outcome(read_whole(&path), |bytes| match value_of(&bytes) {
            Outcome::Value(value) if bytes.len() != words(value) * 8 => {
                Outcome::Flawed(format!("{} bytes of {value:x}", bytes.len()))
            }
            found => found,
        })
    });
}

pub fn look(worker: &mut Worker) {
    (0..NAMES).for_each(|number| read(worker, number));
}
