//! Locks by names: the process that can make one has it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::thread::yield_now;

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use super::{Worker, done, epoch};
use crate::event::{Call, Outcome};
use crate::object::{Kind, Object};

pub const DIR: &str = "locks";
/// Kinds of them.
const WAYS: u32 = 4;
const HOWS: [(&str, &str); WAYS as usize] = [
    ("open(O_EXCL)", "unlink"),
    ("mkdir", "rmdir"),
    ("link", "unlink"),
    ("rename(NOREPLACE)", "unlink"),
];
/// How often a holder looks away.
const HELD_MAX: u32 = 200;

pub fn step(worker: &mut Worker) {
    let way = worker.pick(WAYS);
    let number = epoch() * WAYS + way;
    let lock = worker.dir.join(DIR).join(number.to_string());
    let mine = worker.dir.join(DIR).join(format!("of{}", worker.process));
    let object = Object::whole(Kind::Lock, number);
    let (acquire, release) = HOWS[way as usize];
    if matches!(way, 2 | 3) && File::create(&mine).is_err() {
        // Told by the calls on objects, if it lasts.
        return;
    }
    let taken = worker.recorder.call(acquire, object, Call::Acquire, || {
        match take(way, &lock, &mine) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Outcome::Busy,
            taken => done(taken),
        }
    });
    if taken != Outcome::Done {
        return;
    }
    (0..worker.pick(HELD_MAX)).for_each(|_| yield_now());
    worker.recorder.call(release, object, Call::Release, || {
        done(match way {
            1 => fs::remove_dir(&lock),
            _ => fs::remove_file(&lock),
        })
    });
}

fn take(way: u32, lock: &Path, mine: &Path) -> io::Result<()> {
    match way {
        0 => {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).open(lock).map(drop)
        }
        1 => fs::create_dir(lock),
        2 => fs::hard_link(mine, lock),
        _ => {
            let flags = RenameFlags::RENAME_NOREPLACE;
            Ok(renameat2(AT_FDCWD, mine, AT_FDCWD, lock, flags)?)
        }
    }
}
