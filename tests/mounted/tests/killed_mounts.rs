//! Mount processes that are killed with work in hand.
// SEMANTICS: crash.mount

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::{Duration, Instant};

use mounted::{Cluster, PATIENCE};

const TIMEOUT: Duration = Duration::from_secs(2);
/// More than one message carries.
const BYTES: usize = 6 << 20;

fn bytes() -> Vec<u8> {
    (0..BYTES).map(|i| (i / 7) as u8).collect()
}

#[test]
fn what_it_had_sent_stays_and_others_go_on() {
    let mut cluster = Cluster::that_evicts_after(TIMEOUT, 2);
    let (one, two) = (cluster.root(0).to_owned(), cluster.root(1).to_owned());
    let open = cluster.timed("work", || {
        fs::create_dir(one.join("dir")).unwrap();
        let mut synced = File::create(one.join("dir/synced")).unwrap();
        synced.write_all(&bytes()).unwrap();
        synced.sync_all().unwrap();
        let mut closed = File::create(one.join("closed")).unwrap();
        closed.write_all(&bytes()).unwrap();
        drop(closed);
        fs::rename(one.join("closed"), one.join("dir/closed")).unwrap();
        let mut unsynced = File::create(one.join("dir/unsynced")).unwrap();
        unsynced.write_all(&bytes()).unwrap();
        (synced, unsynced)
    });
    cluster.kill_mount(0);
    let gone = fs::metadata(one.join("dir")).unwrap_err();
    assert_eq!(gone.raw_os_error(), Some(libc::ENOTCONN));

    cluster.timed("going on", || {
        assert_eq!(fs::read(two.join("dir/synced")).unwrap(), bytes());
        for name in ["dir/closed", "dir/unsynced"] {
            // Pieces are sent in any order; what did not come reads as zeros.
            let read = fs::read(two.join(name)).unwrap();
            let mut both = read.iter().zip(bytes());
            assert!(both.all(|(is, was)| *is == was || *is == 0), "{name}");
        }
        assert_eq!(fs::read_dir(two.join("dir")).unwrap().count(), 3);
        for name in ["synced", "closed", "unsynced"] {
            fs::write(two.join("dir").join(name), "theirs").unwrap();
            assert_eq!(fs::read(two.join("dir").join(name)).unwrap(), b"theirs");
        }
    });
    drop(open);
    cluster.mount_again(0).unwrap();
    cluster.timed("after it", || {
        for name in ["synced", "closed", "unsynced"] {
            let read = fs::read(one.join("dir").join(name)).unwrap();
            assert_eq!(read, b"theirs", "{name}");
        }
    });
    cluster.unmount(0);
    cluster.unmount(1);
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}

#[test]
fn a_mode_that_was_changed_a_second_before_stays() {
    let mut cluster = Cluster::that_evicts_after(TIMEOUT, 2);
    let (one, two) = (cluster.root(0).join("file"), cluster.root(1).join("file"));
    let sent = |cluster: &Cluster| {
        let sent = &cluster.stats(0)["requests"]["setattr"];
        sent.as_u64().unwrap_or(0)
    };
    let open = cluster.timed("work", || {
        let mut open = File::create(&one).unwrap();
        open.write_all(b"bytes").unwrap();
        open.sync_all().unwrap();
        let before = sent(&cluster);
        open.set_permissions(PermissionsExt::from_mode(0o600))
            .unwrap();
        while sent(&cluster) == before {
            thread::sleep(Duration::from_millis(20));
        }
        open.sync_all().unwrap();
        assert_eq!(sent(&cluster), before + 1, "it is sent once");
        open
    });
    cluster.kill_mount(0);
    cluster.timed("looking", || {
        let mode = fs::metadata(&two).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
    });
    drop(open);
}

#[test]
fn files_that_only_it_had_open_are_removed() {
    let mut cluster = Cluster::that_evicts_after(TIMEOUT, 2);
    let root = cluster.root(0).to_owned();
    let objects = |cluster: &Cluster| cluster.stored_objects(BYTES as u64);
    let _open = cluster.timed("an open file without a name", || {
        let mut file = File::create(root.join("removed")).unwrap();
        file.write_all(&bytes()).unwrap();
        file.sync_all().unwrap();
        fs::remove_file(root.join("removed")).unwrap();
        file
    });
    assert_eq!(objects(&cluster), 1, "it is open");
    cluster.kill_mount(0);
    // Nobody asks for anything it held: it ends as a session that does not come back.
    let killed = Instant::now();
    while objects(&cluster) > 0 {
        assert!(killed.elapsed() < PATIENCE, "its space does not come back");
        thread::sleep(Duration::from_millis(50));
    }
    cluster.unmount(1);
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}
