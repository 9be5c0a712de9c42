//! Mounts that hang while they hold locks that other mounts need.
// SEMANTICS: crash.eviction

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use mounted::{Cluster, Layout, Mapping, Work, in_own_network};
use nix::sys::signal::Signal;

const FILES: usize = 40;
const TIMEOUT: Duration = Duration::from_secs(3);
/// Half as long again for names, that long for bytes, and somebody else may be using the machine.
const GONE_MAX: Duration = Duration::from_secs(15);
/// What a mount says then.
const BY_MDT: &str = "Mdt evicted this mount";
const BY_OST: &str = "Ost(TargetIndex(0)) evicted this mount";
const EVICTED: &str = "evicted this mount";
/// What it says when it has dropped all that it had of one of them.
const DROPPED: &str = "caches dropped after the eviction";

fn names(dir: &Path) -> Vec<String> {
    let listed = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = listed
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn others_go_on_without_a_mount_that_hangs_and_it_comes_back() {
    let mut cluster = Cluster::that_evicts_after(TIMEOUT, 2);
    let (one, two) = (cluster.root(0).to_owned(), cluster.root(1).to_owned());
    // What is written stays in the mount until somebody wants it.
    cluster.set_param(0, "dirty_age_ms", 60_000);
    let writer = cluster.timed("preparing", || {
        fs::create_dir(one.join("dir")).unwrap();
        for name in ["written", "read", "removed"] {
            let mut file = File::create(one.join("dir").join(name)).unwrap();
            file.write_all(b"old").unwrap();
            file.sync_all().unwrap();
        }
        let writer = File::options().write(true).open(one.join("dir/written"));
        let writer = writer.unwrap();
        writer.write_all_at(b"new", 0).unwrap();
        assert_eq!(names(&one.join("dir")), ["read", "removed", "written"]);
        assert_eq!(fs::read(one.join("dir/read")).unwrap(), b"old");
        writer
    });
    let reader = File::open(one.join("dir/read")).unwrap();
    cluster.freeze_mount(0);

    let start = Instant::now();
    cluster.timed("going on alone", || {
        assert_eq!(fs::read(two.join("dir/written")).unwrap(), b"old");
        assert!(start.elapsed() >= TIMEOUT, "nobody held anything");
        fs::write(two.join("dir/written"), "theirs").unwrap();
        fs::write(two.join("dir/read"), "theirs").unwrap();
        fs::remove_file(two.join("dir/removed")).unwrap();
        fs::write(two.join("dir/added"), "theirs").unwrap();
    });

    cluster.thaw_mount(0);
    cluster.wait_for_log(0, BY_MDT);
    cluster.timed("what it lost and what it sees", || {
        let lost = writer.sync_all().unwrap_err();
        assert_eq!(lost.raw_os_error(), Some(libc::EIO));
        drop(writer);
        assert_eq!(names(&one.join("dir")), ["added", "read", "written"]);
        for name in ["added", "read", "written"] {
            let path = one.join("dir").join(name);
            assert_eq!(fs::read(&path).unwrap(), b"theirs", "{name}");
            assert_eq!(fs::metadata(&path).unwrap().len(), 6, "{name}");
        }
        let mut bytes = [0; 6];
        reader.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"theirs");
        drop(reader);
    });
    cluster.timed("working as before", || {
        fs::write(one.join("dir/written"), "ours again").unwrap();
        assert_eq!(fs::read(two.join("dir/written")).unwrap(), b"ours again");
        fs::rename(one.join("dir/written"), one.join("dir/renamed")).unwrap();
        assert_eq!(names(&two.join("dir")), ["added", "read", "renamed"]);
        fs::remove_dir_all(two.join("dir")).unwrap();
        assert!(!one.join("dir").exists());
    });
    assert_eq!(
        cluster.said(0).matches(BY_MDT).count(),
        1,
        "it is said once"
    );
    (0..2).for_each(|mount| cluster.unmount(mount));
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}

/// Its link alone is cut, for longer than it is waited for: others go on by then. It is told when the
/// link is back; what it had not sent is lost, and does not come later.
#[test]
fn a_mount_that_is_cut_off_alone_is_given_up_and_comes_back() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can make a network to be cut");
        return;
    }
    in_own_network(cut_off_and_come_back);
}

fn cut_off_and_come_back() {
    let mut cluster = Cluster::of(Layout {
        timeout: Some(TIMEOUT),
        has_links: true,
        ..Layout::default()
    });
    let [one, two] = [cluster.mount(), cluster.mount()].map(|n| cluster.root(n).to_owned());
    cluster.set_param(0, "dirty_age_ms", 60_000);
    let (told, is_written) = mpsc::channel();
    let root = one.clone();
    // The caller starts processes while nobody answers the mount.
    let writing = Work::start(move |goes_on| {
        let mut own = File::create(root.join("own")).unwrap();
        own.write_all(b"sent").unwrap();
        own.sync_all().unwrap();
        own.write_all_at(b"lost", 0).unwrap();
        let files = written(&root);
        told.send(()).unwrap();
        while goes_on() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let files = files.iter().chain([&own]);
        files
            .map(|file| [synced(file), synced(file)])
            .collect::<Vec<_>>()
    });
    cluster.timed("writing", || is_written.recv().unwrap());
    cluster.cut_off(0);
    let start = Instant::now();
    cluster.timed("theirs", || overwrite(&two));
    let waited = start.elapsed();
    println!("others went on after {waited:?}");
    assert!(waited >= TIMEOUT, "{waited:?}: nobody held anything");
    assert!(waited < GONE_MAX, "{waited:?}");
    cluster.mend(0);
    cluster.wait_for_log(0, BY_MDT);
    let told = cluster.timed("what it lost", || writing.end());
    for (number, told) in told.into_iter().enumerate() {
        assert_eq!(told, [Err(Some(libc::EIO)), Ok(())], "{}", name(number));
    }
    cluster.timed("what is there", || {
        for root in [&one, &two] {
            assert_eq!(fs::read(root.join("own")).unwrap(), b"sent");
            assert_eq!(names(&root.join("dir")).len(), FILES);
            for number in 0..FILES {
                let read = fs::read(root.join("dir").join(name(number))).unwrap();
                assert_eq!(read, b"theirs", "{}", name(number));
            }
        }
    });
    cluster.timed("working as before", || {
        fs::write(one.join("own"), "ours again").unwrap();
        assert_eq!(fs::read(two.join("own")).unwrap(), b"ours again");
        fs::remove_dir_all(two.join("dir")).unwrap();
        assert_eq!(names(&one), ["own"]);
    });
    let said = cluster.said(0);
    assert_eq!(said.matches(BY_MDT).count(), 1, "{said}");
    (0..2).for_each(|mount| cluster.unmount(mount));
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}

/// What a call on an open file says.
type Told = Result<(), Option<i32>>;
const LOST: Told = Err(Some(libc::EIO));
/// Files of which bytes go with an eviction. The first has not been there before.
const LOSING: [&str; 4] = ["made", "written", "asked", "shared"];

fn closed(file: File) -> Told {
    nix::unistd::close(file).map_err(|error| Some(error as i32))
}

fn overwritten(path: &Path, bytes: &str) -> File {
    let mut options = File::options();
    let file = options.write(true).create(true).open(path).unwrap();
    file.write_all_at(bytes.as_bytes(), 0).unwrap();
    file
}

/// Writes to files, and closes them when it is told to. What each call said, and what it should.
fn close_all(
    dir: &Path,
    goes_on: &dyn Fn() -> bool,
    told: &mpsc::Sender<()>,
) -> Vec<(&'static str, Told, Told)> {
    let [made, written, asked, shared] = LOSING.map(|name| overwritten(&dir.join(name), "ours"));
    let synced_before = overwritten(&dir.join("synced"), "ours");
    synced_before.sync_all().unwrap();
    let reader = File::open(dir.join("read")).unwrap();
    told.send(()).unwrap();
    while goes_on() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let copy = shared.try_clone().unwrap();
    vec![
        ("close of a file made here", closed(made), LOST),
        ("close of a file of before", closed(written), LOST),
        ("fsync", synced(&asked), LOST),
        ("close after it", closed(asked), Ok(())),
        ("close of a copy", closed(copy), LOST),
        ("fsync after that", synced(&shared), LOST),
        ("fsync again", synced(&shared), Ok(())),
        ("close after all that", closed(shared), Ok(())),
        ("close of what was synced", closed(synced_before), Ok(())),
        ("close of what was read", closed(reader), Ok(())),
    ]
}

/// Who comes later has lost nothing. But bytes of others may be among those that he has synced.
fn later_is_told_by_no_close(dir: &Path) {
    for name in LOSING.into_iter().chain(["synced", "read"]) {
        let path = dir.join(name);
        assert_eq!(closed(File::open(&path).unwrap()), Ok(()), "{name}");
        assert_eq!(closed(overwritten(&path, "anew")), Ok(()), "{name}");
        let file = overwritten(&path, "anew");
        let told = synced(&file);
        assert!([Ok(()), LOST].contains(&told), "{name}: {told:?}");
        assert_eq!([synced(&file), closed(file)], [Ok(()); 2], "{name}");
    }
}

/// `evict` has mount 0 evicted by both targets.
fn closes_tell_what_is_lost(evict: impl FnOnce(&mut Cluster)) {
    let mut cluster = Cluster::that_evicts_after(TIMEOUT, 2);
    let [one, two] = [0, 1].map(|mount| cluster.root(mount).join("dir"));
    cluster.set_param(0, "dirty_age_ms", 60_000);
    cluster.timed("preparing", || {
        fs::create_dir(&two).unwrap();
        for name in LOSING[1..].iter().chain(&["synced", "read"]) {
            fs::write(two.join(name), "old").unwrap();
        }
    });
    let (told, is_written) = mpsc::channel();
    let dir = one.clone();
    // The caller starts processes while nobody answers the mount.
    let closing = Work::start(move |goes_on| close_all(&dir, goes_on, &told));
    cluster.timed("writing", || is_written.recv().unwrap());
    evict(&mut cluster);
    for by in [BY_MDT, BY_OST] {
        cluster.wait_for_log(0, by);
    }
    for (what, told, expected) in cluster.timed("closing", || closing.end()) {
        assert_eq!(told, expected, "{what}");
    }
    cluster.timed("who comes later", || later_is_told_by_no_close(&one));
    for name in ["made", "synced"] {
        let read = cluster.timed("reading", || fs::read(two.join(name)).unwrap());
        assert_eq!(&read[..4], b"anew", "{name}");
    }
}

// SEMANTICS: op.close
#[test]
fn who_does_not_sync_is_told_by_close_what_an_eviction_took() {
    closes_tell_what_is_lost(|cluster| {
        let two = cluster.root(1).join("dir");
        cluster.freeze_mount(0);
        cluster.timed("theirs", || {
            for name in LOSING {
                fs::write(two.join(name), "theirs").unwrap();
            }
        });
        cluster.thaw_mount(0);
    });
}

#[test]
fn who_is_evicted_by_hand_is_told_by_close_as_well() {
    closes_tell_what_is_lost(|cluster| {
        let exports = cluster.server_param("mdt.glint-MDT0.exports");
        // The first that came.
        let uuid = exports[0].split(' ').nth(1).unwrap();
        for target in ["mdt.glint-MDT0", "ost.glint-OST0"] {
            cluster.set_server_param(&format!("{target}.evict_client"), uuid);
        }
    });
}

#[test]
fn a_mount_that_hangs_in_nobodys_way_loses_nothing() {
    let mut cluster = Cluster::that_evicts_after(TIMEOUT, 2);
    let (one, two) = (cluster.root(0).to_owned(), cluster.root(1).to_owned());
    let mut file = cluster.timed("preparing", || {
        fs::create_dir(two.join("other")).unwrap();
        fs::create_dir(one.join("dir")).unwrap();
        let mut file = File::create(one.join("dir/file")).unwrap();
        file.write_all(b"first").unwrap();
        file
    });
    cluster.freeze_mount(0);
    cluster.timed("elsewhere", || {
        let until = Instant::now() + 2 * TIMEOUT;
        for round in 0.. {
            fs::write(two.join("other").join(round.to_string()), "x").unwrap();
            if Instant::now() > until {
                break;
            }
        }
    });
    cluster.thaw_mount(0);
    cluster.timed("going on", || {
        file.write_all(b", second").unwrap();
        file.sync_all().unwrap();
        assert_eq!(fs::read(two.join("dir/file")).unwrap(), b"first, second");
    });
}

/// With the usual limits a minute is no reason to give a mount up: others wait for it.
#[test]
#[ignore = "soak: a minute"]
fn soak_a_mount_that_hangs_for_a_minute_is_waited_for() {
    const MINUTE: Duration = Duration::from_secs(60);
    let mut cluster = Cluster::with_mounts(2);
    let (one, two) = (cluster.root(0).to_owned(), cluster.root(1).to_owned());
    cluster.set_param(0, "dirty_age_ms", 60_000);
    let mut file = File::create(one.join("file")).unwrap();
    file.write_all(b"first, ").unwrap();
    fs::create_dir(one.join("dir")).unwrap();
    cluster.freeze_mount(0);
    let start = Instant::now();
    let theirs = std::thread::spawn(move || {
        let mut file = File::options().append(true).open(two.join("file")).unwrap();
        file.write_all(b"second").unwrap();
        file.sync_all().unwrap();
        fs::write(two.join("dir/theirs"), "words").unwrap();
        (start.elapsed(), fs::read(two.join("file")).unwrap())
    });
    std::thread::sleep(MINUTE);
    cluster.thaw_mount(0);
    let (waited, read) = cluster.timed("theirs", || theirs.join().unwrap());
    assert!(waited >= MINUTE, "{waited:?}");
    assert_eq!(read, b"first, second");
    cluster.timed("ours", || {
        file.sync_all().unwrap();
        assert_eq!(fs::read(one.join("file")).unwrap(), b"first, second");
        assert_eq!(names(&one.join("dir")), ["theirs"]);
    });
    assert_eq!(cluster.said(0).matches(EVICTED).count(), 0);
}

fn name(number: usize) -> String {
    format!("file{number:02}")
}

/// Files in a new directory `dir`, not synced.
fn written(mount: &Path) -> Vec<File> {
    fs::create_dir(mount.join("dir")).unwrap();
    let files = (0..FILES).map(|number| {
        let mut file = File::create(mount.join("dir").join(name(number))).unwrap();
        file.write_all(b"too late").unwrap();
        file
    });
    files.collect()
}

/// Writes to those files from another mount.
fn overwrite(mount: &Path) {
    for number in 0..FILES {
        let mut file = File::create(mount.join("dir").join(name(number))).unwrap();
        file.write_all(b"theirs").unwrap();
        file.sync_all().unwrap();
    }
}

/// What `fsync` says.
fn synced(file: &File) -> Told {
    file.sync_all().map_err(|error| error.raw_os_error())
}

/// It made the files and so holds them alone: what it sends carries no lock of the OST.
#[test]
fn what_an_evicted_mount_still_sends_does_not_arrive() {
    let mut cluster = Cluster::that_evicts_after(TIMEOUT, 2);
    let (one, two) = (cluster.root(0).to_owned(), cluster.root(1).to_owned());
    let writers = cluster.timed("writing", || written(&one));
    cluster.freeze_mount(0);
    cluster.timed("theirs", || overwrite(&two));
    // With its locks gone nothing here tells that somebody else has written.
    cluster.unmount(1);
    // By now it is late with all it holds back, and begins with that.
    cluster.thaw_mount(0);
    cluster.wait_for_log(0, BY_MDT);
    // Closes its copies of the descriptors here, which takes no error away from the fsyncs below.
    assert!(Command::new("true").status().unwrap().success());
    cluster.timed("what is there", || {
        for (number, writer) in writers.iter().enumerate() {
            assert_eq!(synced(writer), Err(Some(libc::EIO)), "{}", name(number));
            let read = fs::read(one.join("dir").join(name(number))).unwrap();
            assert_eq!(read, b"theirs", "{}", name(number));
            assert_eq!(synced(writer), Ok(()), "told once: {}", name(number));
        }
    });
}

/// What was stored into a mapping is the kernel's, which hands it over when it is to forget the page.
fn stores_of_an_evicted_mount_do_not_arrive(made_by: usize) {
    let mut cluster = Cluster::that_evicts_after(TIMEOUT, 2);
    let (one, two) = (cluster.root(0).to_owned(), cluster.root(1).to_owned());
    let maker = cluster.root(made_by).to_owned();
    // What is handed over before all this stays in the mount.
    cluster.set_param(0, "dirty_age_ms", 60_000);
    let (mapping, opened) = cluster.timed("storing", || {
        fs::create_dir(maker.join("dir")).unwrap();
        fs::write(maker.join("dir/file"), [b'.'; 8192]).unwrap();
        let file = File::open(maker.join("dir/file")).unwrap();
        file.sync_all().unwrap();
        let (path, mut options) = (one.join("dir/file"), File::options());
        let opened = options.read(true).write(true).open(&path).unwrap();
        let mapping = Mapping::new(&path, 8192).unwrap();
        mapping.store(0, b"too late");
        (mapping, opened)
    });
    cluster.freeze_mount(0);
    cluster.timed("theirs", || {
        let file = File::options().write(true).open(two.join("dir/file"));
        let file = file.unwrap();
        file.write_all_at(b"theirs, ", 0).unwrap();
        file.sync_all().unwrap();
    });
    cluster.thaw_mount(0);
    cluster.wait_for_log(0, DROPPED);
    cluster.timed("who does not sync is not told", || {
        let mut bytes = [0; 8];
        opened.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"theirs, ");
    });
    assert!(Command::new("true").status().unwrap().success());
    cluster.timed("what is there", || {
        assert_eq!([synced(&opened), synced(&opened)], [LOST, Ok(())]);
        let lost = mapping.sync().map_err(|error| error.raw_os_error());
        let there = fs::read(two.join("dir/file")).unwrap();
        assert_eq!(lost, Err(Some(libc::EIO)), "{:?}", &there[..9]);
        let loaded: Vec<u8> = (0..8).map(|at| mapping.load(at)).collect();
        assert_eq!(loaded, b"theirs, ");
        for root in [&one, &two] {
            let read = fs::read(root.join("dir/file")).unwrap();
            assert_eq!(&read[..9], b"theirs, .");
        }
        mapping.store(8192 - 4, b"ours");
        mapping.sync().unwrap();
        let read = fs::read(two.join("dir/file")).unwrap();
        assert_eq!(&read[8192 - 6..], b"..ours");
    });
}

/// The next process has not heard of the eviction when the kernel forgets: it is told along the way.
#[test]
fn stores_into_a_mapping_go_also_where_another_process_goes_on() {
    let mut cluster = Cluster::start_that_evicts_after(TIMEOUT);
    let supervised = cluster.mount_with(&["--supervisor"]);
    let other = cluster.mount();
    let (one, two) = (
        cluster.root(supervised).to_owned(),
        cluster.root(other).to_owned(),
    );
    cluster.set_param(supervised, "dirty_age_ms", 60_000);
    let mapping = cluster.timed("storing", || {
        fs::write(two.join("file"), [b'.'; 8192]).unwrap();
        File::open(two.join("file")).unwrap().sync_all().unwrap();
        let mapping = Mapping::new(&one.join("file"), 8192).unwrap();
        mapping.store(0, b"too late");
        mapping
    });
    cluster.signal_worker(supervised, Signal::SIGSTOP);
    cluster.timed("theirs", || {
        let file = File::options().write(true).open(two.join("file")).unwrap();
        file.write_all_at(b"theirs, ", 0).unwrap();
        file.sync_all().unwrap();
    });
    assert!(
        cluster.kill_worker(supervised),
        "no process serves the mount"
    );
    cluster.wait_for_log(supervised, "took over from a process");
    cluster.timed("what is there", || {
        let lost = mapping.sync().map_err(|error| error.raw_os_error());
        let there = fs::read(two.join("file")).unwrap();
        assert_eq!(lost, Err(Some(libc::EIO)), "{:?}", &there[..9]);
        let loaded: Vec<u8> = (0..8).map(|at| mapping.load(at)).collect();
        assert_eq!(loaded, b"theirs, ");
        assert_eq!(&fs::read(two.join("file")).unwrap()[..9], b"theirs, .");
        mapping.store(8192 - 4, b"ours");
        mapping.sync().unwrap();
        assert_eq!(&fs::read(two.join("file")).unwrap()[8192 - 6..], b"..ours");
    });
}

#[test]
fn stores_into_a_mapping_go_with_the_lock_on_its_bytes() {
    stores_of_an_evicted_mount_do_not_arrive(1);
}

#[test]
fn stores_into_a_mapping_go_with_the_lock_of_who_made_the_file() {
    stores_of_an_evicted_mount_do_not_arrive(0);
}
