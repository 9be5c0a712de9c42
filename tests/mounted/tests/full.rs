//! Full disks: the right error at the right call, and nothing broken afterwards.
// SEMANTICS: crash.full, op.write, op.close, op.fsync, op.statfs

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use base::{Rng, SeededRng};
use mounted::{Cluster, SmallDisk, first_difference, glint};

const MIB: usize = 1 << 20;
/// The small disk.
const DISK: u64 = 64 << 20;
/// How long freed space may take to come back: other mounts and the OST are told in the background.
const COMES_BACK: Duration = Duration::from_secs(15);
/// The same with what is done meanwhile.
const MAKING_SPACE: Duration = Duration::from_secs(40);

/// Tests a disk in memory, and a real ext4.
fn on_small_disks(bytes: u64, test: impl Fn(SmallDisk)) {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can mount a small disk");
        return;
    }
    test(SmallDisk::in_memory(bytes));
    println!("the same on ext4");
    test(SmallDisk::ext4(bytes));
}

fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOSPC)
}

/// What chunk `number` of file `seed` holds.
fn chunk(seed: u8, number: usize) -> Vec<u8> {
    // So often repeated, since test programs are not optimised: this way little of it runs for each byte.
    const PERIOD: usize = 7 * 256;
    let period: Vec<u8> = (0..PERIOD)
        .map(|i| (i / 7) as u8 ^ seed ^ number as u8)
        .collect();
    let mut chunk = period.repeat(MIB.div_ceil(PERIOD));
    chunk.truncate(MIB);
    chunk
}

/// Writes chunks, each synced, until there is no more space: how many are durable.
fn fill(path: &Path, seed: u8) -> usize {
    let file = File::create(path).unwrap();
    for number in 0.. {
        let data = chunk(seed, number);
        let written = file
            .write_all_at(&data, (number * MIB) as u64)
            .and_then(|()| file.sync_all());
        if let Err(error) = written {
            assert!(is_full(&error), "{error}");
            return number;
        }
    }
    unreachable!("the disk is small")
}

/// The durable chunks are what was written.
fn check(path: &Path, seed: u8, chunks: usize) {
    let data = fs::read(path).unwrap();
    assert!(data.len() >= chunks * MIB, "{} of {chunks} MiB", data.len());
    for (number, data) in data.chunks(MIB).take(chunks).enumerate() {
        assert!(data == chunk(seed, number), "chunk {number} of {seed}");
    }
}

fn write_synced(path: &Path, data: &[u8]) -> io::Result<()> {
    let file = File::create(path)?;
    file.write_all_at(data, 0)?;
    file.sync_all()
}

/// Tries until there is space again.
fn succeeds_soon(what: &str, mut attempt: impl FnMut() -> io::Result<()>) {
    let start = Instant::now();
    while let Err(error) = attempt() {
        assert!(is_full(&error), "{what}: {error}");
        assert!(start.elapsed() < COMES_BACK, "{what}: still no space");
        sleep(Duration::from_millis(200));
    }
}

/// Stops all, looks for what is broken, and starts again with one mount.
fn restarted_clean(cluster: &mut Cluster, mounts: usize) -> usize {
    (0..mounts).for_each(|number| cluster.unmount(number));
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
    cluster.restart_server();
    cluster.mount()
}

/// However much is sent at once.
#[test]
fn a_file_that_does_not_fit_takes_what_space_there_is() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can mount a small disk");
        return;
    }
    // On ext4 some space comes free when the rest of the file is cut off.
    let disk = SmallDisk::in_memory(DISK);
    let mut cluster = Cluster::start_at(&[(None, "mgs,mdt"), (Some(disk.path()), "ost")]);
    let number = cluster.mount();
    let root = cluster.root(number).to_owned();
    let path = root.join("large");
    cluster.timed("filling", || {
        let file = File::create(&path).unwrap();
        let data = vec![7; DISK as usize];
        let written = file.write_all_at(&data, 0).and_then(|()| file.sync_all());
        assert!(written.is_err_and(|error| is_full(&error)));
    });
    let space = nix::sys::statvfs::statvfs(&root).unwrap();
    let left = space.blocks_available() * space.fragment_size();
    assert!(left < MIB as u64 / 2, "{left} bytes are left");
    let found = fs::read(&path).unwrap();
    assert!(found.len() > DISK as usize / 2, "{} bytes", found.len());
    assert!(found.iter().all(|byte| *byte == 7));
    restarted_clean(&mut cluster, 1);
}

#[test]
fn a_full_ost_says_so_and_goes_on_when_there_is_space() {
    on_small_disks(DISK, |disk| {
        let mut cluster = Cluster::start_at(&[(None, "mgs,mdt"), (Some(disk.path()), "ost")]);
        let roots = [0, 1].map(|_| {
            let number = cluster.mount();
            cluster.root(number).to_owned()
        });
        let durable = cluster.timed("filling", || fill(&roots[0].join("first"), 1));
        assert!((16..64).contains(&durable), "{durable} MiB fit");
        cluster.timed("what a full file system still does", || {
            for root in &roots {
                check(&root.join("first"), 1, durable);
                let space = nix::sys::statvfs::statvfs(root).unwrap();
                let left = space.blocks_available() * space.fragment_size();
                assert!(left < 4 << 20, "{left} bytes are said to be left");
            }
            // Names need no space of the OST.
            fs::create_dir(roots[1].join("dir")).unwrap();
            fs::rename(roots[1].join("first"), roots[1].join("dir/first")).unwrap();
            let refused = write_synced(&roots[1].join("second"), &chunk(2, 0));
            assert!(refused.is_err_and(|error| is_full(&error)));
        });
        cluster.timed_for(MAKING_SPACE, "making space", || {
            fs::remove_file(roots[1].join("dir/first")).unwrap();
            succeeds_soon("writing again", || {
                write_synced(&roots[0].join("second"), &chunk(2, 0))
            });
        });
        let again = cluster.timed("filling again", || fill(&roots[1].join("third"), 3));
        let last = restarted_clean(&mut cluster, 2);
        let root = cluster.root(last);
        cluster.timed("the last look", || {
            check(&root.join("second"), 2, 1);
            check(&root.join("third"), 3, again);
            assert_eq!(fs::read_dir(root).unwrap().count(), 3);
        });
    });
}

/// What is written and not synced is refused by the write, the sync or the close that follows.
#[test]
fn what_does_not_fit_is_never_lost_in_silence() {
    on_small_disks(DISK, |disk| {
        let mut cluster = Cluster::start_at(&[(None, "mgs,mdt"), (Some(disk.path()), "ost")]);
        let mount = cluster.mount();
        let path = cluster.root(mount).join("file");
        cluster.timed("writing more than fits", || {
            let file = File::create(&path).unwrap();
            let data = vec![7; 96 * MIB];
            let written = file.write_all_at(&data, 0).and_then(|()| file.sync_all());
            assert!(written.is_err_and(|error| is_full(&error)));
            drop(file);
            fs::remove_file(&path).unwrap();
            succeeds_soon("writing less", || write_synced(&path, &chunk(4, 0)));
        });
        let last = restarted_clean(&mut cluster, 1);
        cluster.timed("the last look", || {
            check(&cluster.root(last).join("file"), 4, 1);
        });
    });
}

/// Small files, too, that are closed and not synced: the one that does not fit says so, also long after
/// others did not.
#[test]
fn files_that_were_closed_without_an_error_are_there() {
    on_small_disks(DISK, |disk| {
        let mut cluster = Cluster::start_at(&[(None, "mgs,mdt"), (Some(disk.path()), "ost")]);
        let roots = [0, 1].map(|_| {
            let number = cluster.mount();
            cluster.root(number).to_owned()
        });
        let here = &roots[0];
        let data = chunk(5, 0);
        let mut kept = Vec::new();
        let mut write = |number: usize| {
            let name = format!("{number}");
            let len = [MIB, 3_000, 200_000][number % 3];
            let file = File::create(here.join(&name)).unwrap();
            let written = file.write_all_at(&data[..len], 0);
            match written.and_then(|()| nix::unistd::close(file).map_err(io::Error::from)) {
                Ok(()) => kept.push((name, len)),
                Err(error) => assert!(is_full(&error), "{error}"),
            }
        };
        cluster.timed("writing more files than fit", || {
            (0..240).for_each(&mut write);
        });
        cluster.timed("writing more, one by one", || {
            for number in 240..246 {
                write(number);
                sleep(Duration::from_millis(700));
            }
        });
        assert!((60..240).contains(&kept.len()), "{} files", kept.len());
        let synced = Command::new(glint())
            .args(["fs", "sync"])
            .arg(here)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&synced.stderr);
        assert!(synced.status.success(), "{said}");
        cluster.timed("looking at all", || {
            for (name, len) in &kept {
                for root in &roots {
                    let found = fs::read(root.join(name)).unwrap();
                    assert!(found == data[..*len], "{name}: {} of {len}", found.len());
                }
            }
        });
        restarted_clean(&mut cluster, 2);
    });
}

/// A copy that does not fit: the first error, if any, of a write or of the sync at its end.
fn copy(path: &Path, chunks: usize) -> io::Result<()> {
    let mut how = File::options();
    let file = how.write(true).create(true).truncate(false).open(path)?;
    for number in 0..chunks {
        file.write_all_at(&chunk(9, number), (number * MIB) as u64)?;
    }
    file.sync_all()
}

/// The file begins with what was written, and has no more than that.
fn holds_what_fit(path: &Path) -> usize {
    let data = fs::read(path).unwrap();
    assert_eq!(data.len() as u64, fs::metadata(path).unwrap().len());
    for (number, data) in data.chunks(MIB).enumerate() {
        let wanted = chunk(9, number);
        let wrong = first_difference(data, &wanted);
        assert_eq!(wrong, None, "of chunk {number}, of {} bytes", data.len());
    }
    data.len() / MIB
}

/// Bytes behind those that had no space found some, since several messages are on their way at once.
#[test]
fn a_file_that_does_not_fit_ends_where_the_space_did() {
    on_small_disks(DISK, |disk| {
        let mut cluster = Cluster::start_at(&[(None, "mgs,mdt"), (Some(disk.path()), "ost")]);
        let roots = [0, 1].map(|_| {
            let number = cluster.mount();
            cluster.root(number).to_owned()
        });
        for round in 0..3 {
            let [here, there] = roots.each_ref().map(|root| root.join(format!("{round}")));
            cluster.timed_for(MAKING_SPACE, "a copy", || {
                // What the round before had removed takes space for a moment.
                succeeds_soon("a part of a copy", || copy(&here, 32));
                let refused = copy(&here, 100);
                let is_refused = refused.as_ref().is_err_and(is_full);
                assert!(is_refused, "{refused:?}");
                let fit = holds_what_fit(&here);
                assert!((16..64).contains(&fit), "{fit} MiB");
                assert_eq!(holds_what_fit(&there), fit);
                fs::remove_file(&there).unwrap();
                succeeds_soon("a small file", || write_synced(&there, &chunk(9, 0)));
                fs::remove_file(&here).unwrap();
            });
        }
        restarted_clean(&mut cluster, 2);
    });
}

#[test]
fn a_full_mdt_says_so_and_goes_on_when_there_is_space() {
    on_small_disks(DISK / 4, |disk| {
        let mut cluster = Cluster::start_at(&[(Some(disk.path()), "mgs,mdt"), (None, "ost")]);
        let mount = cluster.mount();
        let root = cluster.root(mount).to_owned();
        let name = |number: usize| root.join(format!("{number:08}{}", "x".repeat(200)));
        let made = cluster.timed_for(Duration::from_secs(120), "making names", || {
            (0..).find_map(|number| {
                File::create(name(number))
                    .err()
                    .map(|error| (number, error))
            })
        });
        let (made, error) = made.unwrap();
        assert!(is_full(&error), "{error}");
        assert!(made > 1000, "only {made} names fit");
        cluster.timed_for(MAKING_SPACE, "making space", || {
            assert_eq!(fs::read_dir(&root).unwrap().count(), made);
            (0..made / 2).for_each(|number| fs::remove_file(name(number)).unwrap());
            let again = root.join("again");
            succeeds_soon("making a name", || write_synced(&again, b"again"));
        });
        let last = restarted_clean(&mut cluster, 1);
        let root = cluster.root(last);
        cluster.timed("the last look", || {
            assert_eq!(fs::read(root.join("again")).unwrap(), b"again");
            let left = fs::read_dir(root).unwrap().count();
            assert_eq!(left, made - made / 2 + 1);
        });
    });
}

/// Fills the disk to its last byte beside the targets, as other programs do.
fn take_all(disk: &SmallDisk) -> PathBuf {
    let path = disk.path().join("others");
    let file = File::create(&path).unwrap();
    let (mut offset, mut piece) = (0, MIB);
    while piece > 0 {
        match file.write_at(&vec![1; piece], offset) {
            Ok(written) if written > 0 => offset += written as u64,
            _ => piece /= 2,
        }
    }
    path
}

/// Writes until the OST on the disk has its reserve again. Without it others may take the last space that its
/// records need, as long as they like. The disk may free what was removed some seconds later.
fn wait_for_reserve(disk: &SmallDisk, root: &Path) {
    let (reserve, start) = (disk.path().join("targets1/ost0/reserve"), Instant::now());
    while !reserve.exists() {
        assert!(start.elapsed() < MAKING_SPACE, "no reserve is set aside");
        // Without space yet there is none for these bytes either.
        let _ = write_synced(&root.join("small"), b"a few bytes");
        sleep(Duration::from_millis(50));
    }
}

/// Of many files with losses, too, those that were removed are not told of.
#[test]
fn what_is_lost_of_files_that_are_gone_is_not_told() {
    const FILES: usize = 40;
    const LOST: &str = "could not be written";
    on_small_disks(DISK, |disk| {
        let mut cluster = Cluster::start_at(&[(None, "mgs,mdt"), (Some(disk.path()), "ost")]);
        let mount = cluster.mount();
        cluster.set_param(mount, "dirty_age_ms", 60_000);
        let root = cluster.root(mount).to_owned();
        for kept in [0, 1] {
            let path = |number: usize| root.join(format!("{kept}.{number}"));
            (0..FILES).for_each(|number| fs::write(path(number), &chunk(1, 0)[..50_000]).unwrap());
            let others = take_all(&disk);
            cluster.set_param(mount, "dirty_age_ms", 10);
            // Those that come first may find space that was given out before.
            let lost = || cluster.said(mount).matches(LOST).count();
            let start = Instant::now();
            while lost() < (kept + 1) * (FILES - 10) {
                assert!(start.elapsed() < MAKING_SPACE, "{} files are lost", lost());
                sleep(Duration::from_millis(10));
            }
            (0..FILES - kept).for_each(|number| fs::remove_file(path(number)).unwrap());
            let synced = Command::new(glint())
                .args(["fs", "sync"])
                .arg(&root)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&synced.stderr);
            assert_eq!(synced.status.success(), kept == 0, "{said}");
            assert_eq!(said.contains("1 file is lost"), kept == 1, "{said}");
            assert_eq!(said.contains("1.39 (no space left)"), kept == 1, "{said}");
            fs::remove_file(others).unwrap();
            cluster.set_param(mount, "dirty_age_ms", 60_000);
            wait_for_reserve(&disk, &root);
        }
        restarted_clean(&mut cluster, 1);
    });
}

/// Everything is on one disk, and others take the last byte of it. Changes go on, from the space
/// that is set aside, also those of a server that was killed and starts again.
#[test]
fn a_disk_that_others_fill_stops_nothing() {
    on_small_disks(DISK, |disk| {
        let mut cluster = Cluster::start_at(&[(Some(disk.path()), "mgs,mdt,ost")]);
        let mount = cluster.mount();
        let root = cluster.root(mount).to_owned();
        let names = (0..50).map(|number| root.join(format!("{number}")));
        let names: Vec<_> = names.collect();
        cluster.timed("writing files", || {
            names.iter().enumerate().for_each(|(number, path)| {
                write_synced(path, &chunk(number as u8, 0)[..100_000]).unwrap();
            });
        });
        let others = take_all(&disk);
        cluster.timed("what goes on", || {
            let refused = write_synced(&names[0], &chunk(1, 0));
            assert!(refused.is_err_and(|error| is_full(&error)));
            for path in &names[1..10] {
                let file = File::options().write(true).open(path).unwrap();
                file.set_len(10).unwrap();
                file.sync_all().unwrap();
            }
            names[10..20]
                .iter()
                .for_each(|path| fs::remove_file(path).unwrap());
            File::open(&root).unwrap().sync_all().unwrap();
        });
        // A start may need the reserve, which others must leave room for: see `wait_for_reserve`.
        let (reserve, start) = (disk.path().join("targets0/ost0/reserve"), Instant::now());
        while !reserve.exists() {
            assert!(start.elapsed() < MAKING_SPACE, "no reserve is set aside");
            let taken = File::options().write(true).open(&others).unwrap();
            let length = taken.metadata().unwrap().len();
            taken.set_len(length.saturating_sub(1 << 20)).unwrap();
            let _ = write_synced(&names[49], b"a few bytes");
            sleep(Duration::from_millis(200));
        }
        take_all(&disk);
        cluster.kill_server();
        take_all(&disk);
        cluster.restart_server();
        cluster.timed("what goes on after a crash", || {
            names[20..30]
                .iter()
                .for_each(|path| fs::remove_file(path).unwrap());
            File::open(&root).unwrap().sync_all().unwrap();
        });
        fs::remove_file(others).unwrap();
        cluster.timed_for(MAKING_SPACE, "making space", || {
            let again = root.join("again");
            succeeds_soon("writing", || write_synced(&again, b"again"));
        });
        let last = restarted_clean(&mut cluster, 1);
        let root = cluster.root(last);
        cluster.timed("the last look", || {
            let found = fs::read_dir(root).unwrap().count();
            assert_eq!(found, 31);
            for number in 1..10 {
                let path = root.join(format!("{number}"));
                assert_eq!(fs::read(path).unwrap(), chunk(number, 0)[..10]);
            }
            let kept = fs::read(root.join("40")).unwrap();
            assert!(kept == chunk(40, 0)[..100_000]);
        });
    });
}

/// Names and data meet on one small disk.
#[test]
fn names_and_data_fill_one_disk_together() {
    on_small_disks(DISK, |disk| {
        let mut cluster = Cluster::start_at(&[(Some(disk.path()), "mgs,mdt,ost")]);
        let mount = cluster.mount();
        let root = cluster.root(mount).to_owned();
        let first = cluster.timed("filling", || fill(&root.join("data"), 5));
        assert!(first >= 16, "{first} MiB fit");
        cluster.timed("names on a full disk", || {
            (0..100).for_each(|number| fs::create_dir(root.join(format!("{number}"))).unwrap());
            (0..100).for_each(|number| fs::remove_dir(root.join(format!("{number}"))).unwrap());
            check(&root.join("data"), 5, first);
            fs::remove_file(root.join("data")).unwrap();
            succeeds_soon("writing", || write_synced(&root.join("more"), &chunk(6, 0)));
        });
        let last = restarted_clean(&mut cluster, 1);
        cluster.timed("the last look", || {
            check(&cluster.root(last).join("more"), 6, 1);
        });
    });
}

/// Others take the last bytes again and again, and give them back; the server is killed in the midst of
/// commits that found no space. All that was acknowledged as durable is there, and once there is space all
/// goes on by itself.
#[test]
fn kills_on_a_disk_that_is_now_full_and_now_not() {
    on_small_disks(DISK, |disk| {
        let mut cluster = Cluster::start_at(&[(Some(disk.path()), "mgs,mdt,ost")]);
        let mount = cluster.mount();
        let root = cluster.root(mount).to_owned();
        let others = disk.path().join("others");
        let (mut durable, mut refused) = (Vec::new(), 0);
        for round in 0..4_usize {
            cluster.timed_for(Duration::from_secs(120), "files on a full disk", || {
                for number in 0..30_usize {
                    if number == 5 {
                        take_all(&disk);
                    }
                    if number == 25 {
                        fs::remove_file(&others).unwrap();
                    }
                    let path = root.join(format!("{round}.{number}"));
                    let data = chunk(number as u8, round)[..50_000].to_vec();
                    match write_synced(&path, &data) {
                        Ok(()) => durable.push((path, data)),
                        Err(error) if is_full(&error) => refused += 1,
                        Err(error) => panic!("{}: {error}", path.display()),
                    }
                }
            });
            take_all(&disk);
            let unsynced = root.join(format!("{round}.unsynced"));
            // Its commit finds no space, or has not begun.
            let _ = fs::create_dir(&unsynced);
            cluster.kill_server();
            fs::remove_file(&others).unwrap();
            cluster.restart_server();
        }
        assert!(refused > 0, "the disk was never full");
        cluster.timed_for(MAKING_SPACE, "making space", || {
            let again = root.join("again");
            succeeds_soon("writing", || write_synced(&again, b"again"));
        });
        let last = restarted_clean(&mut cluster, 1);
        let new = cluster.root(last).to_owned();
        cluster.timed("the last look", || {
            for (path, data) in &durable {
                let kept = fs::read(new.join(path.file_name().unwrap())).unwrap();
                assert!(kept == *data, "{} is not what was written", path.display());
            }
        });
    });
}

/// The one writer of `a_small_ost_that_is_full_answers`: files are written and replaced in parts, cut, and
/// removed. How many calls were refused.
fn write_at_random(root: &Path, seed: u64, steps: usize) -> usize {
    let (mut rng, mut refused) = (SeededRng::new(seed), 0);
    for _ in 0..steps {
        let path = root.join(format!("{}", rng.below(12)));
        let len = [5_000, 70_000, 700_000, 2_000_000][rng.below(4) as usize];
        let (at, is_synced) = (rng.below(1_500_000), rng.below(10) < 6);
        let done = match rng.below(100) {
            0..12 => fs::remove_file(&path),
            12..20 => File::options()
                .write(true)
                .open(&path)
                .and_then(|file| file.set_len(at / 3)),
            _ => File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .and_then(|file| {
                    file.write_all_at(&vec![7; len], at)?;
                    if is_synced { file.sync_all() } else { Ok(()) }
                }),
        };
        match done {
            Err(error) if is_full(&error) => refused += 1,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}"),
            Ok(()) => {}
        }
    }
    refused
}

/// Of a disk of 16 MiB, a few hundred KiB decide whether bytes and records find space.
#[test]
fn a_small_ost_that_is_full_answers() {
    on_small_disks(16 << 20, |disk| {
        let mut cluster = Cluster::start_at(&[(None, "mgs,mdt"), (Some(disk.path()), "ost")]);
        let mount = cluster.mount();
        let mut refused = 0;
        for seed in 1..5 {
            let root = cluster.root(mount).to_owned();
            cluster.timed_for(MAKING_SPACE, "writing at random", || {
                refused += write_at_random(&root, seed, 60);
            });
            let space = nix::sys::statvfs::statvfs(disk.path()).unwrap();
            let [total, left] = [space.blocks(), space.blocks_available()];
            // The records of the OST may have some of what its data must leave.
            assert!(left >= total / 32, "{left} blocks of {total} are left");
        }
        assert!(refused > 0, "the disk was never full");
        restarted_clean(&mut cluster, 1);
    });
}
