//! A server that is killed and started again under active mounts.
// SEMANTICS: crash.server, op.fsync, op.sync, wait.hard, wait.interrupt

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mounted::{Cluster, Signalled};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{Mode, fstatat};

/// Bytes that tell which file and version they are.
fn bytes(number: usize, version: u8) -> Vec<u8> {
    (0..10_000)
        .map(|i| (i as u8) ^ (number as u8).wrapping_mul(31) ^ version)
        .collect()
}

fn make(root: &Path, name: &str, number: usize, durable: bool) {
    let mut file = File::create(root.join(name)).unwrap();
    file.write_all(&bytes(number, 0)).unwrap();
    if durable {
        file.sync_all().unwrap();
    }
}

#[test]
fn what_was_written_is_there_after_a_kill_and_the_mount_goes_on() {
    let mut cluster = Cluster::with_mounts(2);
    let root = cluster.root(0).to_owned();
    for number in 0..20 {
        cluster.timed("making a file", || {
            make(&root, &format!("synced{number}"), number, true)
        });
        cluster.timed("making a file", || {
            make(&root, &format!("not{number}"), number, false)
        });
    }
    cluster.kill_server();
    cluster.restart_server();
    for mount in [0, 1] {
        let root = cluster.root(mount);
        for number in 0..20 {
            let read = |name: String| cluster.timed(&name, || fs::read(root.join(&name)));
            let synced = read(format!("synced{number}")).unwrap();
            assert_eq!(synced, bytes(number, 0), "synced{number} on mount {mount}");
            // The mount does again, and sends again, what nobody had synced.
            let not = read(format!("not{number}")).unwrap();
            assert_eq!(not, bytes(number, 0), "not{number} on mount {mount}");
        }
    }
    cluster.timed("going on", || {
        make(cluster.root(0), "later", 1, true);
        assert_eq!(
            fs::read(cluster.root(1).join("later")).unwrap(),
            bytes(1, 0)
        );
        fs::remove_file(cluster.root(1).join("later")).unwrap();
        assert!(!cluster.root(0).join("later").exists());
    });
}

#[test]
fn calls_wait_for_the_server_and_then_succeed() {
    let mut cluster = Cluster::with_mounts(1);
    let root = cluster.root(0).to_owned();
    cluster.timed("mkdir", || fs::create_dir(root.join("d")).unwrap());
    cluster.timed("fsync", || {
        File::open(root.join("d")).unwrap().sync_all().unwrap()
    });
    cluster.kill_server();
    let waiting = {
        let root = root.clone();
        thread::spawn(move || File::create(root.join("d/waited")).map(|_| ()))
    };
    thread::sleep(Duration::from_millis(500));
    assert!(
        !waiting.is_finished(),
        "it could not know and answered: {:?}",
        waiting.join()
    );
    cluster.restart_server();
    let made = cluster.timed("the call that waited", || waiting.join().unwrap());
    made.unwrap();
    assert!(cluster.timed("stat", || root.join("d/waited").exists()));
}

/// Names of a directory, opened as `path` from `at`, and their files' sizes.
fn listed(at: &OwnedFd, path: &str) -> Result<BTreeMap<String, u64>, String> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut dir =
        Dir::openat(at, path, flags, Mode::empty()).map_err(|e| format!("open {path}: {e}"))?;
    let mut names = Vec::new();
    for entry in dir.iter() {
        let name = entry.map_err(|e| format!("list {path}: {e}"))?;
        let name = name.file_name().to_str().unwrap().to_owned();
        if !name.starts_with('.') {
            names.push(name);
        }
    }
    let sized = names.into_iter().map(|name| {
        let told = fstatat(&dir, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
        let told = told.map_err(|e| format!("stat {name}: {e}"))?;
        Ok((name, told.st_size as u64))
    });
    sized.collect()
}

/// Opens directories by relative and absolute paths, lists them and looks at their files, while a server is
/// killed and comes back. Durable files are there, each time.
#[test]
fn listing_goes_on_while_a_server_comes_back() {
    const FILES: usize = 56;
    const ROUNDS: usize = 20;
    let mut cluster = Cluster::with_mounts(1);
    let root = cluster.root(0).to_owned();
    let dir = root.join("dir");
    let expected: BTreeMap<String, u64> = (0..FILES)
        .map(|number| (format!("f{number}"), number as u64 + 1))
        .collect();
    cluster.timed("making files", || {
        fs::create_dir(&dir).unwrap();
        for (name, size) in &expected {
            let mut file = File::create(dir.join(name)).unwrap();
            file.write_all(&vec![7; *size as usize]).unwrap();
            file.sync_all().unwrap();
        }
    });
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let listers: Vec<_> = [(&dir, "."), (&root, "dir")]
            .into_iter()
            .map(|(at, path)| {
                let (stop, expected) = (&stop, &expected);
                let at = OwnedFd::from(File::open(at).unwrap());
                scope.spawn(move || {
                    let mut count = 0;
                    while !stop.load(Ordering::Relaxed) {
                        count += 1;
                        match listed(&at, path) {
                            Ok(names) if names == *expected => {}
                            other => return Err(format!("listing {count}: {other:?}")),
                        }
                    }
                    Ok(count)
                })
            })
            .collect();
        for _ in 0..ROUNDS {
            thread::sleep(Duration::from_millis(200));
            cluster.kill_server();
            cluster.restart_server();
        }
        thread::sleep(Duration::from_millis(500));
        stop.store(true, Ordering::Relaxed);
        for lister in listers {
            let count = cluster.timed("a listing", || lister.join().unwrap());
            println!("{} listings", count.unwrap());
        }
    });
}

/// How long a call may take to end: it goes on for a second where the signal does not kill.
const ENDING_MAX: Duration = Duration::from_secs(3);
/// Programs that wait for the server. What each changes is done once or not at all.
const PROGRAMS: [&str; 3] = ["mkdir", "touch", "stat"];

/// The calls of those programs.
fn call(program: &str, path: &Path) -> nix::Result<()> {
    let mode = Mode::from_bits_truncate(0o755);
    match program {
        "mkdir" => nix::unistd::mkdir(path, mode),
        "touch" => {
            let made = nix::fcntl::open(path, OFlag::O_CREAT | OFlag::O_WRONLY, mode);
            made.map(drop)
        }
        _ => nix::sys::stat::stat(path).map(drop),
    }
}

/// For each program a directory, which its call holds fast, and the name in it that it is about. What
/// is looked at another mount has made.
fn places(cluster: &Cluster, who: &str) -> Vec<(&'static str, PathBuf)> {
    let [one, two] = [0, 1].map(|mount| cluster.root(mount));
    let place = |program| {
        let dir = format!("{program}.{who}");
        fs::create_dir(one.join(&dir)).unwrap();
        if program == "stat" {
            fs::write(two.join(&dir).join("name"), "").unwrap();
        }
        (program, one.join(dir).join("name"))
    };
    cluster.timed("making directories", || PROGRAMS.map(place).to_vec())
}

/// Begins calls that wait, and ends them: some by a signal that kills, others by one that is handled.
fn end_what_waits(cluster: &Cluster, killed: &[(&str, PathBuf)], handled: &[(&str, PathBuf)]) {
    let mut programs: Vec<Child> = killed
        .iter()
        .map(|(program, path)| Command::new(program).arg(path).spawn().unwrap())
        .collect();
    let calls: Vec<_> = handled
        .iter()
        .map(|(program, path)| {
            let (program, path) = (program.to_string(), path.clone());
            Signalled::start(move || call(&program, &path))
        })
        .collect();
    thread::sleep(Duration::from_millis(500));
    for child in &mut programs {
        assert!(child.try_wait().unwrap().is_none(), "answered by nobody");
    }
    assert!(
        !calls.iter().any(Signalled::has_ended),
        "answered by nobody"
    );
    let start = Instant::now();
    cluster.timed_for(ENDING_MAX, "killed programs", || {
        for child in &mut programs {
            child.kill().unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        }
    });
    println!("killed programs ended after {:?}", start.elapsed());
    let start = Instant::now();
    cluster.timed_for(ENDING_MAX, "interrupted calls", || {
        calls.iter().for_each(Signalled::interrupt);
        for call in calls {
            assert_eq!(call.end(), Err(Errno::EINTR));
        }
    });
    println!("interrupted calls ended after {:?}", start.elapsed());
}

/// What of a change was done, if it was, can be seen of all, and nothing else.
fn is_done_once_or_not(cluster: &Cluster, program: &str, path: &Path) {
    let [one, two] = [0, 1].map(|mount| cluster.root(mount));
    let theirs = two.join(path.strip_prefix(one).unwrap());
    let is_sound = |path: &Path| {
        let dir = path.parent().unwrap();
        let names = || -> Vec<_> {
            let names = fs::read_dir(dir).unwrap();
            names.map(|entry| entry.unwrap().file_name()).collect()
        };
        // The call that was ended may be done just now: it is there from one of these looks on.
        let (before, links, after) = (names(), fs::metadata(dir).unwrap().nlink(), names());
        let dirs = [&before, &after].map(|names| match program {
            "mkdir" => names.len() as u64,
            _ => 0,
        });
        assert!(
            (2 + dirs[0]..=2 + dirs[1]).contains(&links),
            "{before:?} {links} {after:?}"
        );
        assert!(after.is_empty() || after == ["name"], "{after:?}");
        after.len()
    };
    let made = is_sound(path);
    let again = call(program, path);
    match (program, made) {
        ("mkdir", 1) => assert_eq!(again, Err(Errno::EEXIST)),
        // The call that was ended may be done just now, behind the look.
        ("mkdir", _) => assert!(matches!(again, Ok(()) | Err(Errno::EEXIST)), "{again:?}"),
        _ => assert_eq!(again, Ok(())),
    }
    assert_eq!([is_sound(path), is_sound(&theirs)], [1, 1], "{program}");
}

fn calls_can_be_ended(send_away: impl FnOnce(&mut Cluster), bring_back: impl FnOnce(&mut Cluster)) {
    let mut cluster = Cluster::with_mounts(2);
    let [killed, handled] = ["killed", "handled"].map(|who| places(&cluster, who));
    send_away(&mut cluster);
    end_what_waits(&cluster, &killed, &handled);
    bring_back(&mut cluster);
    // Comes after all that was asked before it.
    cluster.timed("syncing", || {
        File::open(cluster.root(0)).unwrap().sync_all().unwrap()
    });
    for (program, path) in killed.iter().chain(&handled) {
        cluster.timed(program, || is_done_once_or_not(&cluster, program, path));
    }
    // Of a file that was opened for nobody, nothing is left.
    let start = Instant::now();
    while cluster.open_count(0) > 0 {
        assert!(start.elapsed() < mounted::PATIENCE, "files stay open");
        thread::sleep(Duration::from_millis(20));
    }
    (0..2).for_each(|mount| cluster.unmount(mount));
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}

#[test]
fn calls_that_wait_for_a_dead_server_can_be_ended() {
    calls_can_be_ended(Cluster::kill_server, Cluster::restart_server);
}

/// It has what it was asked, and does it when it goes on.
#[test]
fn calls_that_wait_for_a_server_that_stands_still_can_be_ended() {
    calls_can_be_ended(Cluster::freeze_server, Cluster::thaw_server);
}

/// After a restart no lock covers the bytes that a mount has yet to send. It sees them all the same.
#[test]
fn what_was_not_sent_yet_is_seen_after_a_kill() {
    let mut cluster = Cluster::with_mounts(1);
    let root = cluster.root(0).to_owned();
    for kill in 0..KILLS {
        let names: Vec<String> = (0..100).map(|file| format!("kill{kill}.{file}")).collect();
        cluster.timed("making files", || {
            names
                .iter()
                .for_each(|name| fs::write(root.join(name), name).unwrap());
            File::open(&root).unwrap().sync_all().unwrap();
        });
        cluster.kill_server();
        cluster.restart_server();
        for name in &names {
            let (len, data) = cluster.timed("reading", || {
                let len = fs::metadata(root.join(name)).unwrap().len();
                (len, fs::read(root.join(name)).unwrap())
            });
            assert_eq!((len, data), (name.len() as u64, name.as_bytes().to_vec()));
        }
    }
}

const KILLS: usize = 3;

/// Each round overwrites a file and syncs it, and makes one that nobody syncs: no kill takes any.
#[test]
fn a_writer_lives_through_several_kills() {
    let mut cluster = Cluster::with_mounts(2);
    let root = cluster.root(0).to_owned();
    let stop = AtomicBool::new(false);
    let _watch = cluster.watch(Duration::from_secs(60), "a writer and kills");
    let rounds = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut rounds = 0u32;
            let file = File::create(root.join("counter")).unwrap();
            while !stop.load(Ordering::SeqCst) {
                rounds += 1;
                file.write_all_at(&rounds.to_le_bytes(), 0).unwrap();
                file.sync_all().unwrap();
                let name = format!("round{rounds}");
                fs::write(root.join(name), rounds.to_le_bytes()).unwrap();
            }
            rounds
        });
        for _ in 0..KILLS {
            thread::sleep(Duration::from_millis(700));
            cluster.kill_server();
            thread::sleep(Duration::from_millis(200));
            cluster.restart_server();
        }
        thread::sleep(Duration::from_millis(500));
        stop.store(true, Ordering::SeqCst);
        cluster.timed("the writer's end", || writer.join().unwrap())
    });
    assert!(rounds > 3, "only {rounds} rounds");
    for mount in [0, 1] {
        let root = cluster.root(mount);
        let counter = cluster
            .timed("reading", || fs::read(root.join("counter")))
            .unwrap();
        assert_eq!(counter, rounds.to_le_bytes(), "on mount {mount}");
        for round in 1..=rounds {
            let name = format!("round{round}");
            let data = cluster.timed("reading", || fs::read(root.join(&name)).unwrap());
            assert_eq!(data, round.to_le_bytes(), "{name} on mount {mount}");
        }
    }
}

#[test]
fn after_a_clean_unmount_and_stop_everything_is_there() {
    let mut cluster = Cluster::with_mounts(1);
    let root = cluster.root(0).to_owned();
    cluster.timed("making", || {
        (0..50).for_each(|number| make(&root, &format!("file{number}"), number, false));
        fs::remove_file(root.join("file0")).unwrap();
    });
    cluster.unmount(0);
    cluster.stop_server();
    cluster.restart_server();
    let root = {
        let number = cluster.mount();
        cluster.root(number).to_owned()
    };
    assert_eq!(
        cluster.timed("list", || fs::read_dir(&root).unwrap().count()),
        49
    );
    for number in 1..50 {
        let data = cluster.timed("read", || fs::read(root.join(format!("file{number}"))));
        assert_eq!(data.unwrap(), bytes(number, 0));
    }
}

#[test]
fn a_mount_without_its_server_ends_when_told_so_twice() {
    let mut cluster = Cluster::with_mounts(1);
    let path = cluster.root(0).join("file");
    cluster.timed("making a file", || fs::write(&path, "not synced").unwrap());
    cluster.kill_server();
    cluster.ask_mount_to_end(0);
    cluster.wait_for_log(0, "still waiting for servers to take");
    let said = cluster.said(0);
    assert!(said.contains("MDT0 is away"), "{said}");
    cluster.ask_mount_to_end(0);
    cluster.wait_for_end(0);
    assert!(!path.exists(), "nothing stays mounted");
    cluster.restart_server();
}
