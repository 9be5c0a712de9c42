//! What has no bytes at a server stays what it is where it is open, as on a local disk. Its last name is
//! removed on this mount or on another.
// SEMANTICS: op.unlink

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;

use mounted::{Cluster, output};
use nix::sys::stat::{Mode, SFlag, mknod};

type Make = fn(&Path);

fn special(path: &Path, kind: SFlag) {
    let null = nix::sys::stat::makedev(1, 3);
    mknod(path, kind, Mode::from_bits_truncate(0o666), null).unwrap();
}

/// Each kind, and how it is opened.
const KINDS: [(&str, Make, i32); 7] = [
    (
        "fifo",
        |path| special(path, SFlag::S_IFIFO),
        libc::O_NONBLOCK,
    ),
    ("device", |path| special(path, SFlag::S_IFCHR), libc::O_PATH),
    (
        "socket",
        |path| special(path, SFlag::S_IFSOCK),
        libc::O_PATH,
    ),
    (
        "fifo by its path",
        |path| special(path, SFlag::S_IFIFO),
        libc::O_PATH,
    ),
    (
        "symlink",
        |path| symlink("x", path).unwrap(),
        libc::O_PATH | libc::O_NOFOLLOW,
    ),
    (
        "file by its path",
        |path| fs::write(path, "x").unwrap(),
        libc::O_PATH,
    ),
    (
        "directory",
        |path| fs::create_dir(path).unwrap(),
        libc::O_DIRECTORY,
    ),
];

fn open(path: &Path, flags: i32) -> File {
    let writes = flags == libc::O_NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).write(writes).custom_flags(flags);
    options.open(path).unwrap()
}

#[test]
fn what_is_open_stays_when_its_name_goes() {
    let cluster = Cluster::with_mounts(2);
    cluster.timed("removing", || {
        for (name, make, flags) in KINDS {
            for remover in [0, 1] {
                let path = cluster.root(0).join(name);
                make(&path);
                let opened = open(&path, flags);
                let before = opened.metadata().unwrap();
                let there = cluster.root(remover).join(name);
                match before.is_dir() {
                    true => fs::remove_dir(&there).unwrap(),
                    false => fs::remove_file(&there).unwrap(),
                }
                let after = opened.metadata();
                let after = after.unwrap_or_else(|error| panic!("{name}, {remover}: {error}"));
                assert_eq!(
                    (after.nlink(), after.mode()),
                    (0, before.mode()),
                    "{name}, {remover}"
                );
                assert_eq!(after.ino(), before.ino());
                assert!(
                    path.symlink_metadata().is_err(),
                    "{name}, {remover}: its name"
                );
            }
        }
    });
}

/// What shells do: a fifo that has no name any more as soon as both ends are open.
#[test]
fn a_fifo_works_without_its_name() {
    let cluster = Cluster::with_mounts(1);
    let said = cluster.timed("talking", || {
        let idiom = "mkfifo p; (echo hello > p) & exec 3< p; rm p; cat <&3; wait";
        output(cluster.root(0), idiom)
    });
    assert_eq!(said.trim(), "hello");
    let path = cluster.root(0).join("fifo");
    special(&path, SFlag::S_IFIFO);
    cluster.timed("writing", || {
        let mut both = open(&path, libc::O_NONBLOCK);
        fs::remove_file(&path).unwrap();
        both.write_all(b"x").unwrap();
        let mut byte = [0];
        both.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
    });
}
