//! Mounts that fall silent while no other mount needs their locks.
// SEMANTICS: crash.eviction

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use base::limits::{KEEPALIVE_DEAD, KEEPALIVE_IDLE};
use mounted::{Cluster, Layout, Work, in_own_network, run};
use nix::unistd::geteuid;

const TIMEOUT: Duration = Duration::from_secs(3);
/// A connection is over by then; half as long again as the timeout later its mount is given up.
const SILENT_MAX: Duration = KEEPALIVE_DEAD.saturating_add(Duration::from_secs(20));
/// It is asked whether it lives, and does not answer.
const BRIEF: Duration = KEEPALIVE_IDLE.saturating_mul(2);
/// What each target says of that, in the log of a mount.
const EVICTED: [&str; 2] = [
    "Mdt evicted this mount",
    "Ost(TargetIndex(0)) evicted this mount",
];

const FROZEN: usize = 0;
const CUT: usize = 1;
const BRIEFLY: usize = 2;
const SILENT: [usize; 3] = [FROZEN, CUT, BRIEFLY];
const OTHER: usize = 3;

/// What `fsync` says, twice.
type Told = [Result<(), Option<i32>>; 2];

fn synced_twice(file: &File) -> Told {
    [(); 2].map(|()| file.sync_all().map_err(|error| error.raw_os_error()))
}

/// Leaves bytes unsent in a file of its own and in one that another has made, and says when. In the end
/// what is told of them.
fn start_writing(root: PathBuf) -> Work<[Told; 2]> {
    let (told, is_written) = mpsc::channel();
    let writing = Work::start(move |goes_on| {
        let made = File::create(root.join("made")).unwrap();
        let given = File::options().write(true).open(root.join("given"));
        let files = [made, given.unwrap()];
        for file in &files {
            file.write_all_at(b"unsent", 0).unwrap();
        }
        told.send(()).unwrap();
        while goes_on() {
            sleep(Duration::from_millis(5));
        }
        [synced_twice(&files[0]), synced_twice(&files[1])]
    });
    is_written.recv().unwrap();
    writing
}

/// How many each target knows.
fn known(cluster: &Cluster) -> [usize; 2] {
    let exports = |target: &str| format!("{target}.glint-{}0.exports", target.to_uppercase());
    ["mdt", "ost"].map(|target| cluster.server_param(&exports(target)).len())
}

fn wait_until_given_up(cluster: &Cluster, before: [usize; 2], start: Instant) {
    while known(cluster) != before.map(|count| count - 2) {
        let waited = start.elapsed();
        assert!(waited < SILENT_MAX, "{before:?}, now {:?}", known(cluster));
        sleep(Duration::from_millis(100));
    }
    println!("given up after {:?}", start.elapsed());
}

/// Changes made by another mount in `dir`: none of them waits for who is given up.
fn change_at_once(cluster: &Cluster, dir: &Path) {
    let start = Instant::now();
    cluster.timed("theirs", || {
        for name in ["made", "given"] {
            fs::write(dir.join(name), "theirs").unwrap();
        }
        fs::rename(dir.join("old"), dir.join("moved")).unwrap();
        fs::write(dir.join("added"), "added").unwrap();
    });
    let took = start.elapsed();
    assert!(took < TIMEOUT, "{took:?}: somebody was waited for");
}

fn is_same(cluster: &Cluster, mount: usize) {
    let [one, other] = [mount, OTHER].map(|number| cluster.root(number).display().to_string());
    cluster.timed("comparing", || {
        run(Path::new("/"), &format!("diff -r {one} {other}"))
    });
}

/// One stands still and one is cut off for too long, one stands still for a while only.
#[test]
fn who_is_silent_for_too_long_is_given_up_and_told_though_nobody_waits() {
    if !geteuid().is_root() {
        println!("skipped: only root can make a network to be cut");
        return;
    }
    in_own_network(silent_and_back);
}

fn dir_of(cluster: &Cluster, mount: usize, seen_by: usize) -> PathBuf {
    cluster.root(seen_by).join(format!("of{mount}"))
}

/// Mounts, each with a directory in which files of another are.
fn prepared() -> Cluster {
    let mut cluster = Cluster::of(Layout {
        timeout: Some(TIMEOUT),
        has_links: true,
        ..Layout::default()
    });
    (0..=OTHER).for_each(|_| {
        cluster.mount();
    });
    cluster.timed("preparing", || {
        for mount in SILENT {
            let dir = dir_of(&cluster, mount, OTHER);
            fs::create_dir(&dir).unwrap();
            for name in ["given", "old"] {
                let file = File::create(dir.join(name)).unwrap();
                file.write_all_at(b"synced", 0).unwrap();
                file.sync_all().unwrap();
            }
        }
    });
    cluster
}

fn silent_and_back() {
    let mut cluster = prepared();
    let writing = SILENT.map(|mount| {
        cluster.set_param(mount, "dirty_age_ms", 60_000);
        let dir = dir_of(&cluster, mount, mount);
        cluster.timed("writing", || start_writing(dir))
    });
    let (before, start) = (known(&cluster), Instant::now());
    cluster.freeze_mount(FROZEN);
    cluster.freeze_mount(BRIEFLY);
    cluster.cut_off(CUT);
    sleep(BRIEF);
    cluster.thaw_mount(BRIEFLY);
    wait_until_given_up(&cluster, before, start);
    for mount in [FROZEN, CUT] {
        change_at_once(&cluster, &dir_of(&cluster, mount, OTHER));
    }
    cluster.thaw_mount(FROZEN);
    cluster.mend(CUT);
    for (mount, words) in [FROZEN, CUT]
        .into_iter()
        .flat_map(|mount| EVICTED.map(|by| (mount, by)))
    {
        cluster.wait_for_log(mount, words);
    }
    let told = cluster.timed("what is lost", || writing.map(Work::end));
    let lost = [[Err(Some(libc::EIO)), Ok(())]; 2];
    assert_eq!(told, [lost, lost, [[Ok(()); 2]; 2]]);
    for (mount, bytes, times) in [
        (FROZEN, "theirs", 1),
        (CUT, "theirs", 1),
        (BRIEFLY, "unsent", 0),
    ] {
        sees_all(&cluster, mount, bytes);
        for words in EVICTED {
            let said = cluster.said(mount);
            assert_eq!(said.matches(words).count(), times, "{words}: {said}");
        }
        works_as_before(&cluster, mount);
    }
    (0..=OTHER).for_each(|mount| cluster.unmount(mount));
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}

/// What all others see, with these bytes in the files that it wrote to.
fn sees_all(cluster: &Cluster, mount: usize, bytes: &str) {
    is_same(cluster, mount);
    for name in ["made", "given"] {
        let path = dir_of(cluster, mount, mount).join(name);
        let read = cluster.timed("reading", || fs::read_to_string(path).unwrap());
        assert_eq!(read, bytes, "{name} of mount {mount}");
    }
}

fn works_as_before(cluster: &Cluster, mount: usize) {
    let dir = dir_of(cluster, mount, mount);
    cluster.timed("working as before", || {
        fs::create_dir(dir.join("new")).unwrap();
        fs::write(dir.join("new/file"), "new").unwrap();
        fs::write(dir.join("made"), "ours again").unwrap();
        fs::remove_file(dir.join("given")).unwrap();
    });
    is_same(cluster, mount);
}
