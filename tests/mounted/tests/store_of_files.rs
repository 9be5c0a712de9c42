//! An OST with a file for each object, as `glint format --store files` makes it: work over kills, damage, and
//! sizes that its disk cannot hold.
// SEMANTICS: crash.damage, op.write, op.truncate

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use mounted::{Cluster, Layout, SmallDisk, StoredBytes};
use nix::fcntl::{FallocateFlags, fallocate};

const FILES: usize = 200;
const PATIENCE: Duration = Duration::from_secs(30);
const ON_FILES: Layout<'static> = Layout {
    places: &[(None, "mgs,mdt,ost")],
    store: Some("files"),
    is_apart: false,
    timeout: None,
    has_links: false,
    far: None,
};

fn words(number: usize) -> String {
    format!("file {number} ").repeat(1 + number * 10)
}

fn check(dir: &Path) {
    for number in 0..FILES {
        let found = fs::read_to_string(dir.join(number.to_string()));
        assert_eq!(found.unwrap(), words(number));
    }
}

#[test]
fn work_outlives_kills_and_damage_is_never_served() {
    let mut cluster = Cluster::of(ON_FILES);
    let mount = cluster.mount();
    let dir = cluster.root(mount).join("dir");
    cluster.timed("making files over kills", || {
        fs::create_dir(&dir).unwrap();
        for number in 0..FILES {
            fs::write(dir.join(number.to_string()), words(number)).unwrap();
        }
    });
    cluster.kill_server();
    cluster.restart_server();
    check(&dir);
    assert!(cluster.target_dirs()[0].join("ost0/objects").is_dir());
    File::open(dir.join("7")).unwrap().sync_all().unwrap();
    let began = Instant::now();
    while cluster.stored_objects(1) < FILES as u64 {
        assert!(began.elapsed() < PATIENCE, "not all are there");
        thread::sleep(Duration::from_millis(50));
    }
    cluster.unmount(mount);
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
    let stored = StoredBytes::find(&cluster.target_dirs()[0], words(7).as_bytes());
    stored.flip(5);
    assert!(cluster.fsck().is_some());
    cluster.restart_server();
    let mount = cluster.mount();
    let dir = cluster.root(mount).join("dir");
    let read = cluster.timed("reading damage", || fs::read(dir.join("7")));
    assert_eq!(read.unwrap_err().raw_os_error(), Some(libc::EIO));
    cluster.unmount(mount);
    cluster.stop_server();
    stored.flip(5);
    cluster.restart_server();
    let mount = cluster.mount();
    let dir = cluster.root(mount).join("dir");
    check(&dir);
    cluster.timed("removal", || fs::remove_dir_all(&dir).unwrap());
    let began = Instant::now();
    while cluster.stored_objects(1) > 0 {
        assert!(began.elapsed() < PATIENCE, "objects stay");
        thread::sleep(Duration::from_millis(50));
    }
}

fn is_too_big<T: std::fmt::Debug>(result: io::Result<T>) {
    assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EFBIG));
}

/// On ext4 a file ends before 16 TiB.
#[test]
fn what_the_disk_of_the_ost_cannot_hold_is_refused_at_the_call() {
    const LIMIT: u64 = (1 << 44) - 4096;
    let disk = SmallDisk::ext4(1 << 30);
    let mut cluster = Cluster::of(Layout {
        places: &[(None, "mgs,mdt"), (Some(disk.path()), "ost")],
        ..ON_FILES
    });
    let mount = cluster.mount();
    let path = cluster.root(mount).join("file");
    let file = File::create(&path).unwrap();
    file.write_all_at(b"first", 0).unwrap();
    is_too_big(file.write_at(b"x", LIMIT));
    is_too_big(file.write_at(b"x", (1 << 44) + (1 << 20)));
    is_too_big(file.set_len(LIMIT + 1));
    let keep = FallocateFlags::FALLOC_FL_KEEP_SIZE;
    is_too_big(fallocate(&file, keep, LIMIT as i64, 4096).map_err(io::Error::from));
    assert_eq!(fs::metadata(&path).unwrap().len(), 5);
    assert_eq!(file.write_at(b"too much", LIMIT - 4).unwrap(), 4);
    file.write_all_at(b"last", LIMIT - 4).unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), LIMIT);
    let append = OpenOptions::new().append(true).open(&path).unwrap();
    is_too_big(io::Write::write(&mut &append, b"x"));
    append.sync_all().unwrap();
    let mut read = [0; 4];
    File::open(&path)
        .unwrap()
        .read_exact_at(&mut read, LIMIT - 4)
        .unwrap();
    assert_eq!(&read, b"last");
}
