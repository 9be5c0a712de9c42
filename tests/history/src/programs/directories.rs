//! Directories in which each process makes and removes names of its own, and lists all.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;

use super::{Worker, done, epoch, outcome};
use crate::check::is_directory;
use crate::event::{Call, Outcome};
use crate::object::{Kind, Object};

pub const DIR: &str = "directories";
/// At a time.
const DIRECTORIES: u32 = 1;
/// Names of one process that are there at a time.
const KEPT_MAX: usize = 12;

fn path(worker: &Worker, number: u32) -> PathBuf {
    worker.dir.join(DIR).join(number.to_string())
}

pub fn step(worker: &mut Worker) {
    let number = epoch() * DIRECTORIES + worker.pick(DIRECTORIES);
    if worker.directory != number {
        worker.names.clear();
        // One of all makes it; where there is no room for it, nobody.
        match fs::create_dir(path(worker, number)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return,
            _ => worker.directory = number,
        }
    }
    match worker.pick(6) {
        0 | 1 => make(worker, number),
        2 => remove(worker, number),
        3 | 4 => list(worker, number),
        _ => count(worker, number),
    }
}

fn make(worker: &mut Worker, number: u32) {
    if worker.names.len() >= KEPT_MAX {
        return remove(worker, number);
    }
    let name = (worker.process << 20) | (worker.unique() & 0xf_ffff) as u32;
    let path = path(worker, number).join(format!("{name:x}"));
    let way = match is_directory(name) {
        true => 0,
        false => 1 + worker.pick(2),
    };
    let how = ["mkdir", "create", "symlink"][way as usize];
    let object = Object::whole(Kind::Directory, number);
    let made = worker.recorder.call(how, object, Call::Make(name), || {
        done(match way {
            0 => fs::create_dir(&path),
            1 => File::create(&path).map(drop),
            _ => symlink("nowhere", &path),
        })
    });
    if made == Outcome::Done {
        worker.names.push(name);
    }
}

fn remove(worker: &mut Worker, number: u32) {
    let Some(last) = worker.names.len().checked_sub(1) else {
        return;
    };
    let at = worker.pick(last as u32 + 1) as usize;
    let name = worker.names.swap_remove(at);
    let path = path(worker, number).join(format!("{name:x}"));
    let how = if is_directory(name) {
        "rmdir"
    } else {
        "unlink"
    };
    let object = Object::whole(Kind::Directory, number);
    worker.recorder.call(how, object, Call::Remove(name), || {
        done(match is_directory(name) {
            true => fs::remove_dir(&path),
            false => fs::remove_file(&path),
        })
    });
}

fn list(worker: &mut Worker, number: u32) {
    let path = path(worker, number);
    let object = Object::whole(Kind::Directory, number);
    worker.recorder.call("readdir", object, Call::List, || {
        let names = || -> io::Result<Vec<u32>> {
            let entries = fs::read_dir(&path)?;
            let names = entries.map(|entry| {
                let name = entry?.file_name();
                let number = u32::from_str_radix(&name.to_string_lossy(), 16);
                number.map_err(|_| io::Error::other(format!("no name of ours: {name:?}")))
            });
            names.collect()
        };
        outcome(names(), Outcome::Names)
    });
}

fn count(worker: &mut Worker, number: u32) {
    let path = path(worker, number);
    let object = Object::whole(Kind::Directory, number);
    worker.recorder.call("stat", object, Call::Count, || {
        outcome(fs::metadata(&path), |stat| {
            Outcome::Number(stat.nlink().saturating_sub(2))
        })
    });
}

pub fn look(worker: &mut Worker) -> io::Result<()> {
    for entry in fs::read_dir(worker.dir.join(DIR))? {
        let name = entry?.file_name();
        let number = name.to_string_lossy().parse();
        let number = number.map_err(|_| io::Error::other(format!("no directory: {name:?}")))?;
        list(worker, number);
        count(worker, number);
    }
    Ok(())
}
