//! Mount processes that are killed with unsent changes, under a supervisor: another process goes on, and
//! programs see a pause.
// SEMANTICS: crash.mount

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use base::{Rng, SeededRng};
use mounted::deaths::{Victims, kill_process, nothing_is_committed, taken_over, wait_for_another};
use mounted::{
    Cluster, Mapping, Work, count, make_source_tree, output, pack_source_tree, run, seed, unpack,
};

/// Of the trees that are made.
const DIRECTORIES: u64 = 20;
const SUPERVISED: &[&str] = &["--supervisor"];
/// How long work may take whose mount dies again and again.
const LONG: Duration = Duration::from_secs(300);

fn supervised() -> Cluster {
    let mut cluster = Cluster::with_mounts_of(1, SUPERVISED);
    cluster.mount();
    cluster
}

/// Lists a tree, and keeps files and directories open.
fn list_under_kills(kills: u64) {
    let mut cluster = supervised();
    let mut rng = SeededRng::new(seed());
    let root = cluster.root(0).join("tree");
    make_source_tree(&root, DIRECTORIES, &mut rng);
    let truth = fs::read(root.join("d0/e0/f3.c")).unwrap();
    let listing = Work::start(move |goes_on| {
        let open = File::open(root.join("d0/e0/f3.c")).unwrap();
        let mut rounds = 0;
        while goes_on() {
            run(&root, "test $(find . -type f | wc -l) = 401");
            let mut bytes = vec![0; truth.len() + 1];
            let len = open.read_at(&mut bytes, 0).unwrap();
            assert!(bytes[..len] == truth[..], "what is open is read");
            rounds += 1;
        }
        rounds
    });
    Victims::Process.die(&mut cluster, &mut rng, kills);
    cluster.timed_for(LONG, "listing", || assert!(listing.end() > 0));
}

/// Unpacks an archive again and again.
fn unpack_under_kills(victims: Victims, kills: u64) {
    let mut cluster = supervised();
    let mut rng = SeededRng::new(seed());
    let local = cluster.local();
    let archive = pack_source_tree(&local, DIRECTORIES, &mut rng);
    let unpacking = unpack_in(cluster.root(0).to_owned(), archive);
    victims.die(&mut cluster, &mut rng, kills);
    cluster.timed_for(LONG, "unpacking", || {
        compare_copies(&cluster, &local, unpacking.end());
    });
}

/// Unpacks `archive` below `root` until it is enough; where to.
fn unpack_in(root: PathBuf, archive: PathBuf) -> Work<Vec<PathBuf>> {
    Work::start(move |goes_on| {
        let mut made: Vec<PathBuf> = Vec::new();
        while goes_on() {
            let dir = root.join(format!("copy{}", made.len()));
            unpack(&archive, &dir);
            made.push(dir);
        }
        made
    })
}

/// What was unpacked is what is in `local`, on both mounts.
fn compare_copies(cluster: &Cluster, local: &Path, made: Vec<PathBuf>) {
    for copy in made {
        let there = cluster.root(1).join(copy.file_name().unwrap());
        for copy in [copy, there] {
            let theirs = copy.join("tree");
            let diff = format!("diff -r --no-dereference tree {}", theirs.display());
            run(local, &diff);
        }
    }
}

/// A change of a file, by the dice.
type Change = fn(&mut SeededRng) -> Box<dyn Fn(&File)>;

/// Writes a block somewhere.
fn a_write(rng: &mut SeededRng) -> Box<dyn Fn(&File)> {
    const BLOCK: u64 = 5_000;
    let (at, len) = (rng.below(400) * BLOCK, 1 + rng.below(3 * BLOCK));
    let bytes = vec![rng.below(256) as u8; len as usize];
    Box::new(move |file| file.write_all_at(&bytes, at).unwrap())
}

/// Writes, cuts or grows.
fn a_write_or_cut(rng: &mut SeededRng) -> Box<dyn Fn(&File)> {
    const BYTES: u64 = 100_000;
    let (at, len) = (rng.below(BYTES), 1 + rng.below(BYTES / 10));
    let bytes = vec![rng.below(256) as u8; len as usize];
    match rng.below(2) {
        0 => Box::new(move |file| file.set_len(at).unwrap()),
        _ => Box::new(move |file| file.write_all_at(&bytes, at).unwrap()),
    }
}

/// Changes a file over and over without a sync, and beside it a local one in the same way.
fn change_under_kills(victims: Victims, kills: u64, change: Change) {
    let mut cluster = supervised();
    let mut rng = SeededRng::new(seed());
    let (ours, theirs) = (cluster.root(0).join("file"), cluster.local().join("file"));
    let other = cluster.root(1).join("file");
    let (seed, paths) = (rng.next_u64(), [ours.clone(), theirs.clone()]);
    let changing = Work::start(move |goes_on| {
        let mut rng = SeededRng::new(seed);
        let files = paths.map(|path| File::create(path).unwrap());
        let (mut changes, mut longest) = (0_u64, Duration::ZERO);
        while goes_on() {
            let change = change(&mut rng);
            let began = Instant::now();
            files.iter().for_each(&change);
            longest = longest.max(began.elapsed());
            changes += 1;
        }
        (changes, longest)
    });
    victims.die(&mut cluster, &mut rng, kills);
    cluster.timed_for(LONG, "changing", || {
        let (changes, longest) = changing.end();
        println!("{changes} changes, the longest took {longest:?}");
        let truth = fs::read(&theirs).unwrap();
        assert!(fs::read(&ours).unwrap() == truth, "here");
        assert!(fs::read(&other).unwrap() == truth, "elsewhere");
    });
}

/// One mount writes numbers that grow, through its own end again and again. Another reads them:
/// none it reads is older than what a write had returned for before.
fn read_elsewhere_under_kills(kills: u64) {
    const FILES: u64 = 8;
    let mut cluster = supervised();
    let mut rng = SeededRng::new(seed());
    let written: Arc<Vec<AtomicU64>> = Arc::new((0..FILES).map(|_| AtomicU64::new(0)).collect());
    let (root, there) = (cluster.root(0).to_owned(), cluster.root(1).to_owned());
    for file in 0..FILES {
        fs::write(root.join(format!("n{file}")), format!("{:020}", 0)).unwrap();
    }
    let told = written.clone();
    let writing = Work::start(move |goes_on| {
        let open = |file| {
            File::options()
                .write(true)
                .open(root.join(format!("n{file}")))
        };
        let files: Vec<File> = (0..FILES).map(|file| open(file).unwrap()).collect();
        let mut number = 0;
        while goes_on() {
            number += 1;
            let file = (number % FILES) as usize;
            files[file]
                .write_all_at(format!("{number:020}").as_bytes(), 0)
                .unwrap();
            told[file].store(number, Ordering::SeqCst);
        }
        number
    });
    let reading = Work::start(move |goes_on| {
        let mut reads = 0;
        while goes_on() {
            for (file, written) in (0..FILES).zip(&*written) {
                let least = written.load(Ordering::SeqCst);
                let text = fs::read_to_string(there.join(format!("n{file}"))).unwrap();
                let read: u64 = text.parse().unwrap();
                assert!(read >= least, "n{file}: {read} is older than {least}");
                reads += 1;
            }
        }
        reads
    });
    Victims::Process.die(&mut cluster, &mut rng, kills);
    cluster.timed_for(LONG, "writing here and reading there", || {
        let (numbers, reads) = (writing.end(), reading.end());
        println!("{numbers} numbers written, {reads} read");
        assert!(numbers > 0 && reads > 0);
    });
}

/// Programs that each write a file, close it, move it over another, and look at once at what is there.
fn replace_under_kills(kills: u64) {
    let mut cluster = supervised();
    let mut rng = SeededRng::new(seed());
    let replacing: Vec<Work<u64>> = (0..3)
        .map(|program| {
            let dir = cluster.root(0).join(format!("p{program}"));
            let rng = SeededRng::new(rng.next_u64());
            Work::start(move |goes_on| replace_in(&dir, rng, goes_on))
        })
        .collect();
    Victims::Process.die(&mut cluster, &mut rng, kills);
    cluster.timed_for(LONG, "replacing", || {
        replacing
            .into_iter()
            .for_each(|work| assert!(work.end() > 0));
    });
}

/// How often files were replaced in `dir` until it is enough.
fn replace_in(dir: &Path, mut rng: SeededRng, goes_on: &dyn Fn() -> bool) -> u64 {
    fs::create_dir(dir).unwrap();
    let new = dir.join("new");
    let mut rounds = 0;
    while goes_on() {
        let name = dir.join(format!("f{}", rng.below(20)));
        let bytes = vec![rounds as u8; 1 + rng.below(20_000) as usize];
        fs::write(&new, &bytes).unwrap();
        fs::rename(&new, &name).unwrap();
        let mut open = File::open(&name).unwrap();
        let len = open.metadata().unwrap().len();
        let mut read = Vec::new();
        open.read_to_end(&mut read).unwrap();
        let seen = (len, read.len(), fs::metadata(&name).unwrap().len());
        let wanted = bytes.len();
        assert_eq!(seen, (wanted as u64, wanted, wanted as u64), "{name:?}");
        assert!(read == bytes, "{name:?} is what was written");
        rounds += 1;
    }
    rounds
}

#[test]
fn lists_and_open_files_outlive_the_process() {
    list_under_kills(5);
}

#[test]
fn an_archive_is_unpacked_whole_although_the_process_dies() {
    unpack_under_kills(Victims::Process, 5);
}

#[test]
fn bytes_that_nobody_synced_outlive_the_process() {
    change_under_kills(Victims::Process, 5, a_write);
}

#[test]
fn files_that_replace_others_outlive_the_process() {
    replace_under_kills(12);
}

#[test]
fn files_that_are_cut_outlive_the_process() {
    change_under_kills(Victims::Process, 5, a_write_or_cut);
}

/// The kernel keeps locks of files, and a process that goes on takes none from who has them.
#[test]
fn locks_of_files_outlive_the_process() {
    let cluster = supervised();
    let root = cluster.root(0);
    let file = File::create(root.join("file")).unwrap();
    file.lock().unwrap();
    let tries = format!("flock --nonblock {} true", root.join("file").display());
    cluster.timed("locking", || {
        kill_process(&cluster);
        run(root, &format!("! {tries}"));
        file.unlock().unwrap();
        run(root, &tries);
    });
}

/// What a process has taken over and written is the server's: another mount writes over it, and no
/// later process brings it back.
#[test]
fn bytes_taken_over_never_come_back_over_newer_ones() {
    let mut cluster = supervised();
    let (one, two) = (cluster.root(0).to_owned(), cluster.root(1).to_owned());
    nothing_is_committed(&cluster);
    cluster.timed("writing here, then there", || {
        fs::write(one.join("file"), "oldestfirst").unwrap();
        kill_process(&cluster);
        let file = File::options().write(true).open(two.join("file")).unwrap();
        file.write_all_at(b"theirs", 0).unwrap();
        file.sync_all().unwrap();
    });
    cluster.freeze_mount(0);
    assert!(cluster.kill_worker(0), "no process serves the mount");
    cluster.kill_server();
    cluster.restart_server();
    cluster.thaw_mount(0);
    cluster.timed_for(LONG, "looking again", || {
        while taken_over(&cluster) < 2 {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(fs::read(one.join("file")).unwrap(), b"theirsfirst");
        assert_eq!(fs::read(two.join("file")).unwrap(), b"theirsfirst");
    });
}

#[test]
fn nobody_elsewhere_reads_what_was_before_a_write() {
    read_elsewhere_under_kills(5);
}

#[test]
#[ignore = "minutes; `make soak`"]
fn soak_archives_under_killed_processes() {
    unpack_under_kills(Victims::Process, count("KILLS", 50));
}

#[test]
#[ignore = "minutes; `make soak`"]
fn soak_writes_under_killed_processes() {
    change_under_kills(Victims::Process, count("KILLS", 50), a_write);
}

#[test]
#[ignore = "minutes; `make soak`"]
fn soak_cuts_under_killed_processes() {
    change_under_kills(Victims::Process, count("KILLS", 50), a_write_or_cut);
}

#[test]
#[ignore = "minutes; `make soak`"]
fn soak_readers_elsewhere_under_killed_processes() {
    read_elsewhere_under_kills(count("KILLS", 50));
}

#[test]
fn an_archive_is_unpacked_whole_although_the_process_and_its_servers_die() {
    unpack_under_kills(Victims::All, 3);
}

#[test]
#[ignore = "minutes; `make soak`"]
fn soak_archives_while_processes_and_servers_die() {
    unpack_under_kills(Victims::All, count("KILLS", 30));
}

#[test]
fn files_that_are_cut_outlive_the_process_and_its_servers() {
    change_under_kills(Victims::All, 3, a_write_or_cut);
}

#[test]
#[ignore = "minutes; `make soak`"]
fn soak_cuts_while_processes_and_servers_die() {
    change_under_kills(Victims::All, count("KILLS", 30), a_write_or_cut);
}

/// Mode and bytes of each of the files, no matter which process has to be waited for.
fn look_at(root: PathBuf, files: u32) -> Work<Vec<(u32, String)>> {
    Work::start(move |_| {
        let look = |number| {
            let path = root.join(format!("n{number}"));
            let bytes = fs::read_to_string(&path).unwrap();
            let mode = fs::metadata(path).unwrap().permissions().mode() & 0o777;
            (mode, bytes)
        };
        // Those first that are told of last.
        let mut seen: Vec<_> = (0..files).rev().map(look).collect();
        seen.reverse();
        seen
    })
}

/// Files that a mount has to itself, with bytes and modes that only it knows of, when it dies
/// together with the servers. Who asks for them elsewhere in that moment waits until those are
/// there.
#[test]
fn nobody_elsewhere_sees_what_was_before_a_change_that_died_with_all() {
    const FILES: u32 = 200;
    let mut cluster = supervised();
    let (root, there) = (cluster.root(0).to_owned(), cluster.root(1).to_owned());
    nothing_is_committed(&cluster);
    cluster.set_param(0, "dirty_age_ms", 60_000);
    for worker_first in [false, true] {
        let dir = format!("all{worker_first}");
        let (root, there) = (root.join(&dir), there.join(&dir));
        fs::create_dir(&root).unwrap();
        let (made, is_made) = mpsc::channel();
        let holding = Work::start(move |goes_on| {
            let make = |number| {
                let mut file = File::create(root.join(format!("n{number}"))).unwrap();
                write!(file, "bytes of {number}").unwrap();
                let mode = Permissions::from_mode(0o600 + number % 0o100);
                file.set_permissions(mode).unwrap();
                file
            };
            let open: Vec<File> = (0..FILES).map(make).collect();
            made.send(()).unwrap();
            while goes_on() {
                thread::sleep(Duration::from_millis(5));
            }
            drop(open);
        });
        cluster.timed("making files", || is_made.recv().unwrap());
        let lives = taken_over(&cluster);
        if worker_first {
            assert!(cluster.kill_worker(0), "no process serves the mount");
        }
        cluster.kill_server();
        let looking = look_at(there, FILES);
        if !worker_first {
            assert!(cluster.kill_worker(0), "no process serves the mount");
        }
        cluster.restart_server();
        wait_for_another(&cluster, lives);
        let seen = cluster.timed_for(LONG, "looking there", || looking.end());
        for (number, seen) in (0..).zip(seen) {
            let truth = (0o600 + number % 0o100, format!("bytes of {number}"));
            assert_eq!(seen, truth, "n{number} in {dir}");
        }
        cluster.timed("closing files", || holding.end());
    }
}

/// The process that goes on is killed as well, while the servers, which died too, wait for it. The
/// next one goes on, and does not keep them waiting.
#[test]
fn a_process_that_is_killed_as_it_takes_over_is_taken_over_from() {
    const SOON: Duration = Duration::from_secs(20);
    let mut cluster = supervised();
    let mut rng = SeededRng::new(seed());
    let (root, there) = (cluster.root(0).to_owned(), cluster.root(1).to_owned());
    nothing_is_committed(&cluster);
    cluster.set_param(0, "dirty_age_ms", 60_000);
    for round in 0..8 {
        cluster.timed("writing", || {
            for number in 0..50 {
                let path = root.join(format!("r{round}n{number}"));
                let mut file = File::create(path).unwrap();
                write!(file, "{number}").unwrap();
                file.set_permissions(Permissions::from_mode(0o640)).unwrap();
            }
        });
        let lives = taken_over(&cluster);
        cluster.kill_server();
        assert!(cluster.kill_worker(0), "no process serves the mount");
        cluster.restart_server();
        let began = Instant::now();
        thread::sleep(Duration::from_millis(rng.below(120)));
        // It may be between two processes.
        cluster.kill_worker(0);
        wait_for_another(&cluster, lives);
        let script = format!("cat r{round}n* | tr -d 0-9; ls -l r{round}n* | grep -c ^-rw-r-----");
        cluster.timed_for(LONG, "looking there", || {
            assert_eq!(output(&there, &script), "50\n", "round {round}");
        });
        let paused = began.elapsed();
        assert!(paused < SOON, "{paused:?} in round {round}");
    }
    cluster.timed_for(LONG, "looking at all", || {
        let sum = "cat r*n* | wc -c; ls | wc -l";
        let seen = format!("{}\n{}\n", 8 * 90, 8 * 50);
        assert_eq!(output(&root, sum), seen);
        assert_eq!(output(&there, sum), seen);
    });
}

/// What programs ask for while nobody serves the mount is done once. No append is there twice, and
/// nothing that was done is refused for having been done.
#[test]
fn calls_that_nobody_served_are_done_once() {
    const CALLERS: u64 = 12;
    let mut cluster = supervised();
    let mut rng = SeededRng::new(seed());
    let root = cluster.root(0).to_owned();
    let start = |caller: u64| {
        let root = root.join(format!("caller{caller}"));
        fs::create_dir(&root).unwrap();
        Work::start(move |goes_on| {
            let log = File::options()
                .append(true)
                .create(true)
                .open(root.join("log"));
            let (mut log, mut calls) = (log.unwrap(), 0_u64);
            while goes_on() {
                let name = |name: &str| root.join(format!("{name}{calls}"));
                match calls % 4 {
                    0 => fs::create_dir(name("dir")).unwrap(),
                    1 => fs::rename(root.join(format!("dir{}", calls - 1)), name("moved")).unwrap(),
                    2 => fs::remove_dir(root.join(format!("moved{}", calls - 1))).unwrap(),
                    _ => log.write_all(format!("{calls:06}\n").as_bytes()).unwrap(),
                }
                calls += 1;
            }
            calls
        })
    };
    let callers: Vec<Work<u64>> = (0..CALLERS).map(start).collect();
    Victims::Process.die(&mut cluster, &mut rng, count("KILLS", 8));
    cluster.timed_for(LONG, "the last calls", || {
        for (caller, calls) in callers.into_iter().map(Work::end).enumerate() {
            let log = cluster.root(1).join(format!("caller{caller}/log"));
            let truth = (0..calls).filter(|call| call % 4 == 3);
            let truth: String = truth.map(|call| format!("{call:06}\n")).collect();
            let seen = fs::read_to_string(log).unwrap();
            assert!(
                seen == truth,
                "{caller}: {} of {} bytes",
                seen.len(),
                truth.len()
            );
        }
    });
}

/// A file without a name that is open stays.
#[test]
fn a_removed_file_stays_open_over_the_end_of_the_process() {
    let cluster = supervised();
    let path = cluster.root(0).join("nameless");
    let mut file = File::options()
        .create_new(true)
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    file.write_all(b"before").unwrap();
    fs::remove_file(&path).unwrap();
    cluster.timed("going on", || {
        for _ in 0..2 {
            kill_process(&cluster);
        }
        file.write_all(b" and after").unwrap();
        let mut bytes = [0; 16];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"before and after");
    });
}

/// Nobody else is left that was told how far the targets had come.
#[test]
fn the_next_process_knows_an_older_copy() {
    let mut cluster = Cluster::with_mounts_of(1, SUPERVISED);
    let (root, local) = (cluster.root(0).to_owned(), cluster.local());
    let dir = cluster.target_dirs()[0].clone();
    let make = |name: &str| {
        fs::create_dir(root.join(name)).unwrap();
        File::open(&root).unwrap().sync_all().unwrap();
    };
    cluster.timed("early", || make("early"));
    cluster.stop_server();
    run(&local, &format!("cp -a {} copy", dir.display()));
    cluster.restart_server();
    cluster.timed("late", || make("late"));
    cluster.stop_server();
    assert!(cluster.kill_worker(0));
    run(&local, &format!("mv {0} newer; mv copy {0}", dir.display()));
    cluster.restart_server();
    // It refuses this mount; others, of whom there are none, it would serve.
    cluster.timed("the refusal", || {
        while !cluster
            .server_said()
            .contains("was restored from an older copy")
        {
            thread::sleep(Duration::from_millis(20));
        }
    });
    cluster.stop_server();
    run(&local, &format!("rm -r {0}; mv newer {0}", dir.display()));
    cluster.restart_server();
    // Calls fail until the mount has asked again.
    cluster.timed("looking", || {
        while !root.join("late").is_dir() {
            thread::sleep(Duration::from_millis(50));
        }
        assert!(root.join("early").is_dir());
    });
}

/// It cannot begin, and ends by itself: that is no other end than by a signal.
#[test]
fn a_process_that_fails_leaves_all_to_the_next() {
    let cluster = supervised();
    let file = cluster.root(0).join("unsent");
    let key = cluster.target_dirs()[0].join("key");
    let aside = cluster.local().join("key");
    let mut written = File::create(&file).unwrap();
    cluster.timed("writing", || written.write_all(b"not sent yet").unwrap());
    fs::rename(&key, &aside).unwrap();
    assert!(cluster.kill_worker(0));
    cluster.wait_for_log(0, "the process that serves the mount ended: exit status: 1");
    fs::rename(&aside, &key).unwrap();
    cluster.timed("going on", || {
        written.sync_all().unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"not sent yet");
    });
    assert!(!cluster.said(0).contains("evicted this mount"));
}

/// The kernel has the only copy, and writes it back for the next process: before others may write there.
#[test]
fn what_was_stored_into_a_mapping_comes_before_what_others_write_after_a_takeover() {
    let cluster = supervised();
    let path = cluster.root(0).join("mapped");
    File::create(&path).unwrap().set_len(4096).unwrap();
    let mapping = Mapping::new(&path, 4096).unwrap();
    let other = File::options()
        .read(true)
        .write(true)
        .open(cluster.root(1).join("mapped"));
    let other = other.unwrap();
    for round in 0..10u64 {
        mapping.store_word(0, 2 * round + 1);
        mapping.store_word(8, round + 1);
        kill_process(&cluster);
        other
            .write_all_at(&(2 * round + 2).to_le_bytes(), 0)
            .unwrap();
        // What the kernel has yet to write back it does by then.
        thread::sleep(Duration::from_secs(1));
        let mut words = [0; 16];
        other.read_exact_at(&mut words, 0).unwrap();
        let word = |at: usize| u64::from_le_bytes(words[at..at + 8].try_into().unwrap());
        assert_eq!((word(0), word(8)), (2 * round + 2, round + 1));
        assert_eq!(
            (mapping.load_word(0), mapping.load_word(8)),
            (2 * round + 2, round + 1)
        );
    }
}
