//! Few names in two directories, which all processes make, move, link, remove and look at. Any
//! error that a local file system could not have answered is one too many.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use super::{Worker, done};
use crate::event::Call;
use crate::object::{Kind, Object};

pub const DIRS: [&str; 2] = ["names0", "names1"];
const NAMES: u32 = 4;

fn path(worker: &mut Worker) -> PathBuf {
    let dir = DIRS[worker.pick(2) as usize];
    let name = worker.pick(NAMES);
    let path = worker.dir.join(dir).join(name.to_string());
    match worker.chance(4) {
        // Perhaps it is a directory.
        true => path.join(worker.pick(NAMES).to_string()),
        false => path,
    }
}

type Act = (&'static str, fn(&Path, &Path) -> io::Result<()>);

fn exclusive(path: &Path, _: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).open(path).map(drop)
}

fn unfollowed(path: &Path, _: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)
        .map(drop)
}

fn exchange(from: &Path, to: &Path) -> io::Result<()> {
    let flags = RenameFlags::RENAME_EXCHANGE;
    Ok(renameat2(AT_FDCWD, from, AT_FDCWD, to, flags)?)
}

const ACTS: [Act; 18] = [
    ("lstat", |path, _| fs::symlink_metadata(path).map(drop)),
    ("lstat", |path, _| fs::symlink_metadata(path).map(drop)),
    ("open", |path, _| File::open(path).map(drop)),
    ("open", |path, _| File::open(path).map(drop)),
    ("open(O_PATH)", unfollowed),
    ("open(O_EXCL)", exclusive),
    ("open(O_EXCL)", exclusive),
    ("open(O_CREAT)", |path, _| File::create(path).map(drop)),
    ("mkdir", |path, _| fs::create_dir(path)),
    ("mkdir", |path, _| fs::create_dir(path)),
    ("rmdir", |path, _| fs::remove_dir(path)),
    ("unlink", |path, _| fs::remove_file(path)),
    ("link", |from, to| fs::hard_link(from, to)),
    ("rename", |from, to| fs::rename(from, to)),
    ("rename", |from, to| fs::rename(from, to)),
    ("rename", |from, to| fs::rename(from, to)),
    ("exchange", exchange),
    ("readdir", |path, _| {
        fs::read_dir(path)?.try_for_each(|entry| entry.map(drop))
    }),
];

pub fn step(worker: &mut Worker) {
    let (from, to) = (path(worker), path(worker));
    let (how, act) = ACTS[worker.pick(ACTS.len() as u32) as usize];
    let object = Object::whole(Kind::Names, 0);
    worker
        .recorder
        .call(how, object, Call::Path, || done(act(&from, &to)));
}
