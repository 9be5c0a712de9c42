//! Supervised mounts under worse faults: evicted while no process serves them, short of memory, killed again
//! and again, without their supervisor.
// SEMANTICS: crash.mount, wait.hard

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mounted::deaths::{TAKEN_OVER, kill_process};
use mounted::{Cluster, Mapping, PATIENCE, Work};
use nix::sys::signal::Signal;

const SUPERVISED: &[&str] = &["--supervisor"];
const TIMEOUT: Duration = Duration::from_secs(3);

fn errno(result: std::io::Result<()>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// Nobody serves the mount while others wait for it and go on without it. The process that serves
/// it then says so, once for each open file, and so does the next.
#[test]
fn a_mount_that_is_evicted_while_nobody_serves_it_is_told() {
    let mut cluster = Cluster::start_that_evicts_after(TIMEOUT);
    cluster.mount_with(SUPERVISED);
    cluster.mount();
    let (one, two) = (cluster.root(0).to_owned(), cluster.root(1).to_owned());
    cluster.set_param(0, "dirty_age_ms", 60_000);
    let (writer, second, third) = cluster.timed("preparing", || {
        fs::write(one.join("file"), "old").unwrap();
        File::open(one.join("file")).unwrap().sync_all().unwrap();
        let open = || File::options().write(true).open(one.join("file")).unwrap();
        let files = (open(), open(), open());
        files.0.write_all_at(b"new", 0).unwrap();
        files
    });
    cluster.freeze_mount(0);
    assert!(cluster.kill_worker(0), "no process serves the mount");
    cluster.timed("going on alone", || {
        fs::write(two.join("file"), "theirs").unwrap();
    });
    cluster.thaw_mount(0);
    cluster.wait_for_log(0, TAKEN_OVER);
    cluster.wait_for_log(0, "evicted this mount");
    cluster.timed("what it lost", || {
        assert_eq!(errno(writer.sync_all()), Some(libc::EIO));
        assert_eq!(errno(writer.sync_all()), None, "once");
        kill_process(&cluster);
        assert_eq!(errno(writer.sync_all()), None, "also to the next process");
        assert_eq!(errno(second.sync_all()), Some(libc::EIO), "nor less");
        kill_process(&cluster);
        // A process that is killed as it says it may not have noted that.
        let _ = second.sync_all();
        assert_eq!(errno(second.sync_all()), None, "not for ever");
        assert_eq!(errno(third.sync_all()), Some(libc::EIO));
    });
    cluster.timed("working as before", || {
        assert_eq!(fs::read(one.join("file")).unwrap(), b"theirs");
        fs::write(one.join("file"), "ours again").unwrap();
        assert_eq!(fs::read(two.join("file")).unwrap(), b"ours again");
    });
}

/// More is written and changed than the supervisor's memory holds, and nothing becomes durable by
/// itself: it is made durable where it can't be remembered.
#[test]
fn what_the_memory_cannot_hold_is_made_durable_first() {
    const FILES: usize = 40;
    const BYTES: usize = 1 << 20;
    let mut cluster = Cluster::start();
    cluster.mount_with(&["--supervisor", "--supervisor-mib", "16"]);
    for target in ["mdt", "ost"] {
        cluster.set_server_param(&format!("{target}.*.commit_ms"), "60000");
    }
    let root = cluster.root(0).to_owned();
    let bytes = |file: usize| vec![file as u8 + 1; BYTES];
    cluster.timed("writing", || {
        for file in 0..FILES {
            fs::write(root.join(format!("f{file}")), bytes(file)).unwrap();
        }
    });
    let unremembered = cluster.stats(0)["unremembered"].as_u64().unwrap();
    assert!(
        unremembered > 0,
        "{unremembered} of them were not remembered"
    );
    cluster.kill_server();
    assert!(cluster.kill_worker(0), "no process serves the mount");
    cluster.restart_server();
    cluster.wait_for_log(0, TAKEN_OVER);
    cluster.timed("reading", || {
        for file in 0..FILES {
            let read = fs::read(root.join(format!("f{file}"))).unwrap();
            assert!(read == bytes(file), "f{file}");
        }
    });
}

/// Each process is killed before it has taken over, as its server is away.
#[test]
fn a_mount_whose_processes_all_die_is_given_up() {
    let mut cluster = Cluster::start();
    cluster.mount_with(SUPERVISED);
    let root = cluster.root(0).to_owned();
    let mut open = cluster.timed("preparing", || {
        fs::write(root.join("synced"), "synced").unwrap();
        File::open(root.join("synced")).unwrap().sync_all().unwrap();
        File::create(root.join("open")).unwrap()
    });
    cluster.kill_server();
    let began = Instant::now();
    while !cluster.has_ended(0) {
        assert!(began.elapsed() < PATIENCE, "it goes on for ever");
        cluster.kill_worker(0);
        thread::sleep(Duration::from_millis(20));
    }
    let said = cluster.said(0);
    assert!(
        said.contains("times in a row") && said.contains("giving up"),
        "{said}"
    );
    let error = fs::metadata(root.join("synced")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
    let written = open.write_all(b"more");
    assert_eq!(errno(written), Some(libc::ENOTCONN));
    drop(open);
    cluster.restart_server();
    for target in ["mdt", "ost"] {
        cluster.set_server_param(&format!("{target}.*.recovery_status"), "end");
    }
    cluster.mount_again(0).unwrap();
    cluster.timed("mounted anew", || {
        assert_eq!(fs::read(root.join("synced")).unwrap(), b"synced");
    });
}

/// The worker goes on without its supervisor, and says that nobody would go on after it.
#[test]
fn a_mount_without_its_supervisor_says_so() {
    let mut cluster = Cluster::start();
    cluster.mount_with(SUPERVISED);
    let root = cluster.root(0).to_owned();
    let supervised = "supervised: another process goes on";
    assert!(
        cluster.status(0).contains(supervised),
        "{}",
        cluster.status(0)
    );
    let workers = cluster.worker_pids(0);
    cluster.kill_supervisor(0);
    cluster.timed("going on", || {
        fs::write(root.join("file"), "written").unwrap();
        assert_eq!(fs::read(root.join("file")).unwrap(), b"written");
    });
    let status = cluster.status(0);
    assert!(status.contains("no longer supervised"), "{status}");
    cluster.timed("unmounting", || {
        nix::mount::umount(&root).unwrap();
    });
    // It has yet to write, for which it would wait for its server.
    let is_there = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
    cluster.timed("ending", || {
        while workers.iter().any(is_there) {
            thread::sleep(Duration::from_millis(5));
        }
    });
}

/// The process that is asked to end: what was written is the server's then, and nothing is mounted.
fn end_by(ask: impl FnOnce(&mut Cluster)) {
    let mut cluster = Cluster::with_mounts_of(1, SUPERVISED);
    cluster.mount();
    let (one, two) = (cluster.root(0).to_owned(), cluster.root(1).to_owned());
    cluster.set_param(0, "dirty_age_ms", 60_000);
    cluster.timed("writing", || {
        fs::write(one.join("first"), "of one").unwrap();
        kill_process(&cluster);
        fs::write(one.join("second"), "of the next").unwrap();
    });
    ask(&mut cluster);
    wait_for_the_end(&mut cluster);
    cluster.timed("looking elsewhere", || {
        assert_eq!(fs::read(two.join("first")).unwrap(), b"of one");
        assert_eq!(fs::read(two.join("second")).unwrap(), b"of the next");
    });
    assert_eq!(fs::read_dir(&one).unwrap().count(), 0, "nothing is mounted");
    assert_eq!(cluster.said(0).matches(TAKEN_OVER).count(), 1);
}

#[test]
fn a_supervisor_that_is_asked_to_end_unmounts() {
    end_by(|cluster| cluster.ask_mount_to_end(0));
}

#[test]
fn a_process_that_is_asked_to_end_unmounts_and_is_not_replaced() {
    end_by(|cluster| assert!(cluster.signal_worker(0, Signal::SIGTERM)));
}

/// What a process says that was asked to end and waits for servers.
const LEAVING: &str = "stop it once more";

/// A supervised mount with bytes that its servers do not have, and the open file.
/// Its next process waits for the servers.
fn that_waits_to_take_over() -> (Cluster, File) {
    let mut cluster = Cluster::start();
    cluster.mount_with(SUPERVISED);
    cluster.set_param(0, "dirty_age_ms", 60_000);
    let path = cluster.root(0).join("file");
    let file = cluster.timed("writing", || {
        let mut file = File::create(path).unwrap();
        file.write_all(b"written").unwrap();
        file
    });
    cluster.kill_server();
    assert!(cluster.kill_worker(0), "no process serves the mount");
    let began = Instant::now();
    while !cluster.status(0).contains("OST0: waiting") {
        assert!(began.elapsed() < PATIENCE, "no process goes on");
        thread::sleep(Duration::from_millis(20));
    }
    (cluster, file)
}

fn wait_for_the_end(cluster: &mut Cluster) {
    let began = Instant::now();
    while !cluster.has_ended(0) {
        assert!(began.elapsed() < PATIENCE, "{}", cluster.said(0));
        thread::sleep(Duration::from_millis(5));
    }
}

/// Asked once it unmounts, and waits for the servers; asked again it does not.
#[test]
fn a_takeover_that_waits_for_servers_ends_when_it_is_asked_twice() {
    let by_the_supervisor = |cluster: &mut Cluster| cluster.ask_mount_to_end(0);
    let by_the_process = |cluster: &mut Cluster| assert!(cluster.signal_worker(0, Signal::SIGTERM));
    for ask in [by_the_supervisor as fn(&mut Cluster), by_the_process] {
        let (mut cluster, file) = that_waits_to_take_over();
        drop(file);
        ask(&mut cluster);
        cluster.wait_for_log(0, LEAVING);
        let root = cluster.root(0).to_owned();
        cluster.timed("looking", || {
            assert_eq!(fs::read_dir(&root).unwrap().count(), 0, "it is mounted");
        });
        ask(&mut cluster);
        wait_for_the_end(&mut cluster);
        let goes_on = cluster.said(0).matches("another goes on").count();
        assert_eq!(goes_on, 1, "{}", cluster.said(0));
    }
}

/// Asked to end, it unmounts when the servers have what was written.
#[test]
fn a_takeover_that_is_asked_to_end_unmounts_and_loses_nothing() {
    let (mut cluster, file) = that_waits_to_take_over();
    drop(file);
    cluster.ask_mount_to_end(0);
    cluster.wait_for_log(0, LEAVING);
    cluster.restart_server();
    wait_for_the_end(&mut cluster);
    cluster.mount();
    let file = cluster.root(1).join("file");
    cluster.timed("looking elsewhere", || {
        assert_eq!(fs::read(file).unwrap(), b"written");
    });
}

/// A mount in use stays, and is taken over.
#[test]
fn a_takeover_that_is_asked_to_end_goes_on_where_the_mount_is_in_use() {
    let (mut cluster, file) = that_waits_to_take_over();
    cluster.ask_mount_to_end(0);
    cluster.wait_for_log(0, "still mounted");
    cluster.restart_server();
    cluster.wait_for_log(0, TAKEN_OVER);
    drop(file);
    let path = cluster.root(0).join("file");
    cluster.timed("going on", || {
        assert_eq!(fs::read(path).unwrap(), b"written");
    });
}

/// Nobody is left: calls fail, and do not wait, until it is mounted anew.
#[test]
fn a_mount_whose_processes_are_all_killed_is_mounted_anew() {
    // Until then it keeps its locks.
    let mut cluster = Cluster::start_that_evicts_after(TIMEOUT);
    cluster.mount_with(SUPERVISED);
    let root = cluster.root(0).to_owned();
    let file = cluster.timed("preparing", || {
        let mut file = File::create(root.join("file")).unwrap();
        file.write_all(b"synced").unwrap();
        file.sync_all().unwrap();
        file
    });
    // It must not start another in between.
    cluster.freeze_mount(0);
    assert!(cluster.kill_worker(0), "no process serves the mount");
    cluster.kill_supervisor(0);
    cluster.timed("failing", || {
        let error = fs::metadata(root.join("file")).unwrap_err();
        // The kernel may have passed it on just before.
        let under_way = error.raw_os_error() == Some(libc::ECONNABORTED);
        assert!(under_way || error.raw_os_error() == Some(libc::ENOTCONN));
        assert_eq!(errno(file.sync_all()), Some(libc::ENOTCONN));
    });
    drop(file);
    cluster.mount_again(0).unwrap();
    cluster.timed("mounted anew", || {
        assert_eq!(fs::read(root.join("file")).unwrap(), b"synced");
    });
}

/// Bytes far behind those that are read when the process dies.
const BEHIND: u64 = 6 << 20;

/// Two mounts, the first of them supervised, and for each the path of a file of 8 MiB.
fn with_a_file() -> (Cluster, [PathBuf; 2]) {
    let mut cluster = Cluster::start();
    cluster.mount_with(SUPERVISED);
    cluster.mount();
    let paths = [0, 1].map(|mount| cluster.root(mount).join("file"));
    cluster.timed("preparing", || {
        fs::write(&paths[1], vec![1; 8 << 20]).unwrap()
    });
    (cluster, paths)
}

/// Kills the process while `read` is on its way, and waits for the next one. Just before, `meanwhile` has the
/// other mount write as soon as it can.
fn kill_during<T: Send + 'static>(
    cluster: &mut Cluster,
    read: impl FnOnce() -> T + Send + 'static,
    meanwhile: impl FnOnce() -> JoinHandle<()>,
) -> (JoinHandle<T>, JoinHandle<()>) {
    let reads = cluster.stats(0)["read"].as_u64();
    cluster.freeze_server();
    let reading = thread::spawn(read);
    let began = Instant::now();
    while cluster.stats(0)["read"].as_u64() <= reads {
        assert!(began.elapsed() < PATIENCE, "the read never comes");
        thread::sleep(Duration::from_millis(1));
    }
    let writing = meanwhile();
    assert!(cluster.kill_worker(0), "no process serves the mount");
    cluster.thaw_server();
    cluster.wait_for_log(0, TAKEN_OVER);
    (reading, writing)
}

/// A read was on its way when the process died, and holds up what the kernel has cached of the file
/// behind it. Who writes that elsewhere waits until it is forgotten.
#[test]
fn what_a_read_on_its_way_holds_up_is_forgotten_before_others_write_it() {
    const BLOCK: usize = 4096;
    let (mut cluster, [here, there]) = with_a_file();
    let file = File::open(&here).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    let file = Arc::new(file);
    let read = |file: &File, at| {
        let mut block = [0; BLOCK];
        file.read_exact_at(&mut block, at).map(|()| block)
    };
    cluster.timed("reading", || read(&file, BEHIND).unwrap());
    let asked = file.clone();
    let other = File::options().write(true).open(&there).unwrap();
    let write = || thread::spawn(move || other.write_all_at(&[2; BLOCK], BEHIND).unwrap());
    let (reading, writing) = kill_during(&mut cluster, move || read(&asked, 0), write);
    cluster.timed("writing elsewhere", || writing.join().unwrap());
    cluster.timed("reading again", || {
        assert!(
            read(&file, BEHIND).unwrap() == [2; BLOCK],
            "what was before"
        );
        assert!(reading.join().unwrap().unwrap() == [1; BLOCK]);
    });
}

/// A page was stored into and not synced. The kernel can write that back only after the read on its way.
/// Others write when it has.
#[test]
fn what_was_stored_behind_a_read_on_its_way_comes_before_what_others_write() {
    let (mut cluster, [here, there]) = with_a_file();
    let [mapping, loaded] = [(); 2].map(|()| Mapping::new(&here, 8 << 20).unwrap());
    // To open it elsewhere makes the kernel write back what was stored.
    let other = File::options().read(true).write(true).open(&there);
    let other = other.unwrap();
    let at = BEHIND as usize;
    // From now on a store needs no answer.
    cluster.timed("storing", || mapping.store_word(at, 1));
    let written = other.try_clone().unwrap();
    let meanwhile = || {
        mapping.store_word(at, 2);
        mapping.store_word(at + 8, 2);
        thread::spawn(move || written.write_all_at(&3u64.to_le_bytes(), BEHIND).unwrap())
    };
    let (reading, writing) = kill_during(&mut cluster, move || loaded.load_word(0), meanwhile);
    cluster.timed("writing elsewhere", || writing.join().unwrap());
    cluster.timed("the read", || reading.join().unwrap());
    // What the kernel has yet to write back it does by then.
    thread::sleep(Duration::from_secs(1));
    cluster.timed("looking", || {
        let mut words = [0; 16];
        other.read_exact_at(&mut words, BEHIND).unwrap();
        let word = |at: usize| u64::from_le_bytes(words[at..at + 8].try_into().unwrap());
        assert_eq!((word(0), word(8)), (3, 2));
        assert_eq!((mapping.load_word(at), mapping.load_word(at + 8)), (3, 2));
    });
}

/// The kernel forgets pages for the process and waits for a read that this very process would answer:
/// killed, it cannot end. Another goes on all the same, and so the read is answered, and it ends.
#[test]
fn a_process_that_cannot_end_is_taken_over_from() {
    const BLOCK: usize = 4096;
    let mut cluster = Cluster::start();
    cluster.mount_with(SUPERVISED);
    cluster.mount();
    let [here, there] = [0, 1].map(|mount| cluster.root(mount).join("file"));
    cluster.timed("preparing", || {
        fs::write(&there, vec![1; 8 << 20]).unwrap();
        File::open(&there).unwrap().sync_all().unwrap();
        // Its close could take the pages back that the other mount has read by then.
        while cluster.open_count(1) > 0 {
            thread::sleep(Duration::from_millis(1));
        }
    });
    let (cached, is_cached) = mpsc::channel();
    let reading = Work::start(move |goes_on| {
        let file = File::open(&here).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
        let mut block = vec![0; BLOCK];
        file.read_exact_at(&mut block, 6 << 20).unwrap();
        cached.send(()).unwrap();
        while goes_on() {
            thread::sleep(Duration::from_millis(1));
        }
        file.read_exact_at(&mut block, 0).map(|()| block)
    });
    cluster.timed("reading", || is_cached.recv().unwrap());
    let reads = cluster.stats(0)["read"].as_u64();
    cluster.freeze_server();
    reading.is_enough();
    let began = Instant::now();
    while cluster.stats(0)["read"].as_u64() <= reads {
        assert!(began.elapsed() < PATIENCE, "the read never comes");
        thread::sleep(Duration::from_millis(1));
    }
    // As long as this one is away the server that lives anew answers no read.
    cluster.freeze_mount(1);
    cluster.kill_server();
    cluster.restart_server();
    cluster.wait_for_log(0, "Ost(TargetIndex(0)) restarted");
    let began = Instant::now();
    while !cluster.worker_is_stuck(0) {
        assert!(began.elapsed() < PATIENCE, "it waits for nothing");
    }
    assert!(cluster.kill_worker(0), "no process serves the mount");
    cluster.wait_for_log(0, "another goes on");
    cluster.thaw_mount(1);
    cluster.wait_for_log(0, TAKEN_OVER);
    let read = cluster.timed("the read", || reading.end());
    assert_eq!(read.unwrap(), [1; BLOCK]);
}
