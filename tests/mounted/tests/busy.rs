//! Effects of one mount's calls that another mount sees at once. A file's ctime, the end of a use for writing
//! or execution, and space after a removal.
// SEMANTICS: op.stat, op.open, op.exec, op.statfs, op.write, op.truncate

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use mounted::{Cluster, SmallDisk, own_descriptors};
use nix::sys::statvfs::statvfs;

const PROGRAMS: usize = 25;

fn ctime(path: &Path) -> (i64, i64) {
    let found = fs::metadata(path).unwrap();
    (found.ctime(), found.ctime_nsec())
}

/// What may move a ctime that is decided: none of it is a change.
fn look_and_settle(name: &str, file: &File, other: &Path) {
    match name {
        "fsync" => file.sync_all().unwrap(),
        "open" => drop(File::open(other).unwrap()),
        "read" => drop(fs::read(other).unwrap()),
        _ => {}
    }
}

#[test]
fn a_ctime_is_decided_by_the_change_and_the_same_on_every_mount() {
    let cluster = Cluster::with_mounts(2);
    for name in ["stat", "fsync", "open", "read"] {
        for round in 0..4 {
            let dir = format!("{name}{round}");
            fs::create_dir(cluster.root(0).join(&dir)).unwrap();
            let [one, two] = [0, 1].map(|number| cluster.root(number).join(&dir).join("file"));
            let file = File::create(&one).unwrap();
            file.write_all_at(b"bytes", 0).unwrap();
            if round % 2 == 1 {
                file.set_permissions(fs::Permissions::from_mode(0o600))
                    .unwrap();
                file.write_all_at(b"more", 2).unwrap();
            }
            let decided = ctime(&one);
            thread::sleep(Duration::from_millis(50));
            look_and_settle(name, &file, &two);
            assert_eq!(ctime(&two), decided, "{dir}, elsewhere");
            assert_eq!(ctime(&one), decided, "{dir}, here");
            drop(file);
            thread::sleep(Duration::from_millis(50));
            let again = File::open(&one).unwrap();
            again.sync_all().unwrap();
            drop(fs::read(&two).unwrap());
            assert_eq!(ctime(&two), decided, "{dir}, elsewhere when it is closed");
            assert_eq!(ctime(&one), decided, "{dir}, here when it is closed");
        }
    }
}

fn write_program(path: &Path) {
    fs::copy("/bin/true", path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn what_another_mount_has_just_written_runs_and_what_has_just_run_is_written() {
    own_descriptors();
    let cluster = Cluster::with_mounts(2);
    let [one, two] = [0, 1].map(|number| cluster.root(number).to_owned());
    for number in 0..PROGRAMS {
        let name = format!("program{number}");
        write_program(&one.join(&name));
        let status = Command::new(two.join(&name)).status();
        assert!(status.unwrap().success(), "{name}");
        // It has ended, so it may be written elsewhere.
        let written = OpenOptions::new().write(true).open(one.join(&name));
        drop(written.unwrap());
        let status = Command::new(two.join(&name)).status();
        assert!(status.unwrap().success(), "{name} again");
    }
}

fn is_busy<T: std::fmt::Debug>(result: io::Result<T>) {
    assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::ETXTBSY));
}

#[test]
fn what_is_written_does_not_run_elsewhere_and_what_runs_is_not_written() {
    own_descriptors();
    let cluster = Cluster::with_mounts(2);
    let [one, two] = [0, 1].map(|number| cluster.root(number).join("program"));
    fs::copy("/bin/cat", &one).unwrap();
    fs::set_permissions(&one, fs::Permissions::from_mode(0o755)).unwrap();
    let writer = OpenOptions::new().write(true).open(&one).unwrap();
    is_busy(Command::new(&two).spawn());
    drop(writer);
    let mut running = Command::new(&two);
    let mut running = running.stdin(Stdio::piped()).spawn().unwrap();
    is_busy(OpenOptions::new().write(true).open(&one));
    drop(running.stdin.take());
    assert!(running.wait().unwrap().success());
    drop(OpenOptions::new().write(true).open(&one).unwrap());
}

/// Requests about one use of a file that `mount` has sent.
fn opens_and_closes(cluster: &Cluster, mount: usize) -> u64 {
    let stats = cluster.stats(mount);
    let sent = |name: &str| stats["requests"][name].as_u64().unwrap_or(0);
    sent("open") + sent("close")
}

#[test]
fn a_program_that_ran_before_runs_without_a_request_until_it_is_written() {
    own_descriptors();
    let cluster = Cluster::with_mounts(2);
    let [one, two] = [0, 1].map(|number| cluster.root(number).join("program"));
    write_program(&one);
    let run = |path: &Path| assert!(Command::new(path).status().unwrap().success());
    let write = |path: &Path| OpenOptions::new().write(true).open(path).unwrap();
    run(&two);
    let before = opens_and_closes(&cluster, 1);
    for _ in 0..PROGRAMS {
        run(&two);
    }
    assert_eq!(opens_and_closes(&cluster, 1), before);
    drop(write(&one));
    run(&two);
    // Nor does what stays on record exclude this mount itself.
    drop(write(&two));
    run(&two);
    // It would keep the file when its last name is gone.
    let before = opens_and_closes(&cluster, 1);
    fs::remove_file(&one).unwrap();
    let patience = Instant::now() + Duration::from_secs(20);
    while opens_and_closes(&cluster, 1) == before {
        assert!(Instant::now() < patience, "the program stays on record");
        thread::sleep(Duration::from_millis(20));
    }
}

/// What ran there, or was written, is on record of a process that is gone: others wait for the next one.
#[test]
fn what_ran_on_a_mount_whose_process_is_killed_may_be_written_at_once() {
    own_descriptors();
    let cluster = Cluster::with_mounts_of(2, &["--supervisor"]);
    let [one, two] = [0, 1].map(|number| cluster.root(number).to_owned());
    for number in 0..4 {
        let name = format!("program{number}");
        write_program(&one.join(&name));
        assert!(Command::new(two.join(&name)).status().unwrap().success());
        assert!(cluster.kill_worker(1));
        let written = OpenOptions::new().write(true).open(one.join(&name));
        drop(written.unwrap());
        assert!(cluster.kill_worker(0));
        assert!(Command::new(two.join(&name)).status().unwrap().success());
    }
}

#[test]
fn without_an_open_cache_each_execution_is_reported() {
    own_descriptors();
    let cluster = Cluster::with_mounts(2);
    cluster.set_param(1, "opencache", 0);
    let [one, two] = [0, 1].map(|number| cluster.root(number).join("program"));
    write_program(&one);
    let before = opens_and_closes(&cluster, 1);
    for _ in 0..PROGRAMS {
        assert!(Command::new(&two).status().unwrap().success());
    }
    assert!(opens_and_closes(&cluster, 1) >= before + PROGRAMS as u64);
    drop(OpenOptions::new().write(true).open(&one).unwrap());
}

#[test]
fn what_runs_is_not_written_after_a_restart_of_the_mdt_either() {
    own_descriptors();
    let mut cluster = Cluster::with_mounts(2);
    let [one, two] = [0, 1].map(|number| cluster.root(number).join("program"));
    fs::copy("/bin/sleep", &one).unwrap();
    let mut running = Command::new(&one).arg("600").spawn().unwrap();
    let write = |path: &Path| OpenOptions::new().write(true).open(path);
    let before = write(&two);
    cluster.kill_server();
    cluster.restart_server();
    // An open waits until the MDT has heard of everything that was open.
    let after = [write(&two), write(&one)];
    running.kill().unwrap();
    running.wait().unwrap();
    is_busy(before);
    after.into_iter().for_each(is_busy);
    drop(write(&two).unwrap());
}

fn used(path: &Path) -> u64 {
    let space = statvfs(path).unwrap();
    (space.blocks() - space.blocks_free()) * space.fragment_size()
}

#[test]
fn space_of_a_removed_file_comes_back_at_once_although_it_is_asked_for_before() {
    const BYTES: u64 = 100 << 20;
    /// Less than an answer would be believed for.
    const COMES_BACK: Duration = Duration::from_secs(15);
    let disk = SmallDisk::in_memory(512 << 20);
    let mut cluster = Cluster::start_at(&[(None, "mgs,mdt"), (Some(disk.path()), "ost")]);
    let (one, two) = (cluster.mount(), cluster.mount());
    let roots = [one, two].map(|number| cluster.root(number).to_owned());
    let path = roots[0].join("big");
    let file = File::create(&path).unwrap();
    for mib in 0..100 {
        file.write_all_at(&vec![1; 1 << 20], mib << 20).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    let mut first = [0; 10];
    File::open(roots[1].join("big"))
        .unwrap()
        .read_exact(&mut first)
        .unwrap();
    for root in &roots {
        assert!(used(root) >= BYTES, "{}", root.display());
    }
    fs::remove_file(&path).unwrap();
    let removed = Instant::now();
    for root in &roots {
        while used(root) >= BYTES {
            assert!(removed.elapsed() < COMES_BACK, "{}", root.display());
            thread::sleep(Duration::from_millis(20));
        }
    }
}
