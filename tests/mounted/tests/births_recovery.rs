//! Files that a mount makes by itself while servers die, or give up on it.
// SEMANTICS: crash.server, crash.eviction, op.fsync

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use mounted::{Cluster, output, run};

/// Directories below each other with files, symlinks and what was changed, moved and removed since.
const MAKE: &str = "
mkdir -p t/a/b/c t/e; for i in $(seq 200); do echo words $i > t/a/f$i; ln -s f$i t/a/b/s$i; done
for i in $(seq 40); do mkdir t/e/d$i; echo $i > t/e/d$i/f; chmod 640 t/e/d$i/f; rm t/a/f$i; done
mkfifo t/a/b/c/fifo; : > t/a/b/c/empty; touch -d '2001-02-03 UTC' t/a/f100; chmod 2750 t/a/b
";
const LOOK: &str = "
find t | LC_ALL=C sort; find t -type f | LC_ALL=C sort | xargs cat; stat -c '%n %y' t/a/f100
find t -type f -o -type p | LC_ALL=C sort | xargs stat -c '%n %A %s'; readlink t/a/b/s77
";

/// Two mounts; the first makes files by itself, and tells of them when it must.
fn of(mut cluster: Cluster) -> Cluster {
    while cluster.mount_count() < 2 {
        cluster.mount();
    }
    cluster.set_param(0, "wbc", 1);
    cluster.set_param(0, "writeback_age_ms", 600_000);
    cluster
}

/// A directory in which the first mount makes files by itself.
fn begin(root: &Path) {
    run(root, "mkdir t; echo so that there are ids > t/first");
}

fn end(mut cluster: Cluster) {
    (0..2).for_each(|mount| cluster.unmount(mount));
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}

#[test]
fn files_that_the_mdt_did_not_know_outlive_its_restarts() {
    let mut cluster = of(Cluster::with_mounts(2));
    let (root, local) = (cluster.root(0).to_owned(), cluster.local());
    cluster.set_server_param("mdt.*.commit_ms", "60000");
    for dir in [&root, &local] {
        begin(dir);
        run(dir, MAKE);
    }
    let mut open = File::create(root.join("t/a/open")).unwrap();
    fs::write(local.join("t/a/open"), "12").unwrap();
    open.write_all(b"1").unwrap();
    for round in 0..3 {
        cluster.kill_server();
        cluster.restart_server();
        // Some of it is known to the next boot, and not durable.
        for dir in [&root, &local] {
            run(
                dir,
                &format!("echo {round} > t/a/b/known{round}; mkdir t/later{round}"),
            );
        }
        let known = root.join(format!("t/a/b/known{round}"));
        cluster.timed("a rename makes a file known", || {
            fs::rename(&known, root.join(format!("t/renamed{round}"))).unwrap();
        });
        run(&local, &format!("mv t/a/b/known{round} t/renamed{round}"));
    }
    open.write_all(b"2").unwrap();
    drop(open);
    let seen = output(&local, LOOK);
    cluster.timed("looking", || assert_eq!(output(&root, LOOK), seen));
    cluster.timed("looking elsewhere", || {
        assert_eq!(output(cluster.root(1), LOOK), seen);
    });
    end(cluster);
}

/// The set names the lease of a life that is over by then, and nobody else is waited for.
#[test]
fn what_is_reported_while_the_server_is_away_is_taken_by_its_next_life() {
    let mut cluster = Cluster::with_mounts(1);
    cluster.set_param(0, "wbc", 1);
    cluster.set_param(0, "writeback_age_ms", 600_000);
    let (root, local) = (cluster.root(0).to_owned(), cluster.local());
    for dir in [&root, &local] {
        begin(dir);
        run(dir, MAKE);
    }
    run(&root, "sync t/a/b/c t/first");
    for round in 0..3 {
        for dir in [&root, &local] {
            run(
                dir,
                &format!("cp -r t/a t/copy{round}; touch t/a/b/c/f{round}"),
            );
        }
        let file = File::open(root.join(format!("t/copy{round}/f100"))).unwrap();
        let beside = File::open(root.join(format!("t/a/b/c/f{round}"))).unwrap();
        cluster.kill_server();
        let syncing = thread::spawn(move || {
            file.sync_all().unwrap();
            beside.sync_all().unwrap();
        });
        thread::sleep(Duration::from_millis(300));
        cluster.restart_server();
        cluster.timed("fsync", || syncing.join().unwrap());
    }
    let seen = output(&local, LOOK);
    cluster.timed("looking", || assert_eq!(output(&root, LOOK), seen));
    cluster.unmount(0);
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}

#[test]
fn nobody_enters_before_the_holder_has_its_write_leases_again() {
    let mut cluster = of(Cluster::with_mounts(2));
    let (root, local) = (cluster.root(0).to_owned(), cluster.local());
    for dir in [&root, &local] {
        begin(dir);
        run(dir, MAKE);
    }
    let seen = output(&local, LOOK);
    cluster.freeze_mount(0);
    cluster.kill_server();
    cluster.restart_server();
    let there = cluster.root(1).to_owned();
    let looking = thread::spawn(move || output(&there, LOOK));
    thread::sleep(Duration::from_secs(1));
    assert!(!looking.is_finished(), "the holder has not come");
    cluster.thaw_mount(0);
    let found = cluster.timed("looking elsewhere", || looking.join().unwrap());
    assert_eq!(found, seen);
    end(cluster);
}

#[test]
fn a_mount_that_missed_the_window_says_what_it_has_lost() {
    let mut cluster = of(Cluster::that_evicts_after(Duration::from_secs(4), 2));
    let (root, there) = (cluster.root(0).to_owned(), cluster.root(1).to_owned());
    begin(&root);
    File::open(root.join("t")).unwrap().sync_all().unwrap();
    run(&root, MAKE);
    // Another process has the file open: one that is started closes what this one has, and that would wait.
    let mut writer = Command::new("sh");
    writer.args([
        "-c",
        "exec 3> t/a/open; printf lost >&3; read go; printf more >&3",
    ]);
    let mut writer = writer
        .current_dir(&root)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    while !root.join("t/a/open").exists() {
        thread::sleep(Duration::from_millis(10));
    }
    cluster.freeze_mount(0);
    cluster.kill_server();
    cluster.restart_server();
    cluster.timed("others go on", || {
        fs::write(there.join("t/other"), "here").unwrap();
    });
    assert_eq!(output(&there, "ls t"), "first\nother\n");
    cluster.thaw_mount(0);
    cluster.wait_for_log(0, "are lost with the eviction");
    cluster.wait_for_log(0, "/a/b/s77");
    writeln!(writer.stdin.take().unwrap(), "go").unwrap();
    let wrote = cluster.timed("a write to what is lost", || writer.wait().unwrap());
    assert!(!wrote.success(), "{wrote}");
    cluster.timed("going on", || {
        assert_eq!(output(&root, "ls t"), "first\nother\n");
        run(&root, MAKE);
        assert_eq!(output(&there, "cat t/a/f100"), "words 100\n");
    });
    end(cluster);
}
