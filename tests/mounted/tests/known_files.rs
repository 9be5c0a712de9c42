//! Files that were there before: a mount removes them and changes their attributes by itself, and reports
//! that later.
// SEMANTICS: op.unlink, op.rmdir, op.setattr, op.fsync, cache.names, crash.server, crash.eviction

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File, FileTimes};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, fchown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use mounted::{Cluster, output, run};
use rustix::fs::XattrFlags;

/// So many directories, and so many files in each.
const MANY: (usize, usize) = (50, 100);
const AGE: u64 = 600_000;

/// A tree of two mounts that the first one has not seen yet. It changes by itself, and reports when it must.
fn cold(mut cluster: Cluster, make: &str) -> Cluster {
    run(cluster.root(0), make);
    cluster.unmount(0);
    cluster.mount_again(0).unwrap();
    cluster.set_param(0, "wbc", 1);
    cluster.set_param(0, "writeback_age_ms", AGE);
    cluster
}

fn tree() -> String {
    format!(
        "mkdir t; for d in $(seq {}); do mkdir t/d$d; for f in $(seq {}); do echo $f > t/d$d/f$f; done; done",
        MANY.0, MANY.1
    )
}

fn sync(dir: &Path) {
    let mut sync = Command::new(mounted::glint());
    let status = sync.args(["fs", "sync"]).arg(dir).status();
    assert!(status.unwrap().success());
}

fn is_at_rest(mut cluster: Cluster) {
    (0..2).for_each(|mount| cluster.unmount(mount));
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}

fn of(cluster: &Cluster, kind: &str) -> u64 {
    cluster.stats(0)["requests"][kind].as_u64().unwrap_or(0)
}

#[test]
fn a_cold_tree_is_removed_with_a_few_requests() {
    let cluster = cold(Cluster::with_mounts(2), &tree());
    let root = cluster.root(0).to_owned();
    let used = || rustix::fs::statvfs(cluster.root(1)).unwrap().f_ffree;
    let before = used();
    let frames = cluster.requests(0, "a cold tree is removed", || {
        run(&root, "rm -r t");
    });
    // The other mount has the directory above.
    assert!(of(&cluster, "unlink") <= 1);
    println!("{frames} frames: {}", cluster.stats(0)["requests"]);
    assert!(frames <= 48, "{frames} frames");
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
    let frames = cluster.requests(0, "it is reported", || sync(&root));
    assert!(frames <= 12, "{frames} frames");
    assert_eq!(fs::read_dir(cluster.root(1)).unwrap().count(), 0);
    cluster.timed("space comes back", || {
        while used() < before + (MANY.0 * MANY.1) as u64 {
            thread::sleep(Duration::from_millis(50));
        }
    });
    is_at_rest(cluster);
}

#[test]
fn attributes_of_a_cold_tree_change_with_a_few_requests() {
    let cluster = cold(Cluster::with_mounts(2), &tree());
    let (root, there) = (cluster.root(0).to_owned(), cluster.root(1).to_owned());
    let change =
        "chmod -R u=rwX,go= t; chown -R 7:8 t; find t -type f | xargs touch -h -d '2001-02-03 UTC'";
    let look = "find t | LC_ALL=C sort | xargs stat -c '%n %A %u %g %s'; find t -type f | xargs stat -c %Y | sort -u";
    let frames = cluster.requests(0, "attributes change", || run(&root, change));
    assert_eq!(of(&cluster, "setattr"), 0);
    println!("{frames} frames: {}", cluster.stats(0)["requests"]);
    assert!(frames <= 68, "{frames} frames");
    let seen = output(&root, look);
    let frames = cluster.requests(0, "they are reported", || sync(&root));
    assert!(frames <= 12, "{frames} frames");
    assert_eq!(output(&there, look), seen);
    assert!(
        seen.ends_with("\n981158400\n"),
        "{}",
        &seen[seen.len() - 40..]
    );
    is_at_rest(cluster);
}

/// What programs do with files that were there.
const MAKE: &str = "
mkdir -p t/a/b/c t/e; for i in $(seq 60); do echo words $i > t/a/f$i; ln -s f$i t/a/b/s$i; done
for i in $(seq 20); do mkdir t/e/d$i; echo $i > t/e/d$i/f; done; ln t/a/f1 t/e/linked; mkfifo t/a/b/c/fifo
";
const CHANGE: &str = "
rm t/a/f2 t/a/f3; echo anew > t/a/f3; rm -r t/e/d1; echo file > t/e/d1; rm t/a/f4; mkdir t/a/f4; echo x > t/a/f4/x
rm t/a/f1; chmod 600 t/a/f5; rm t/a/f5; chmod 640 t/a/f6; echo more >> t/a/f6; rm t/a/b/s1 t/a/b/s2; ln -s new t/a/b/s2
rm -r t/a/b/c; mkdir t/a/b/c; chmod 2750 t/a/b; touch -d '2001-02-03 UTC' t/a/f7; mv t/a/f8 t/a/f9; rm t/a/f9
for i in $(seq 2 9); do rm -r t/e/d$i; mkdir t/e/d$i; done; echo 1 > t/a/tmp; mv t/a/tmp t/a/f10; chmod 700 t/e
rm t/a/f11; echo 2 > t/a/f11; rm t/a/f11; rm t/a/f12; echo 3 > t/a/f12; ln t/a/f12 t/a/f13x; rm t/a/f12
";
const LOOK: &str = "
find t | LC_ALL=C sort; find t -type f | LC_ALL=C sort | xargs cat; stat -c '%n %y' t/a/f7
find t | LC_ALL=C sort | xargs stat -c '%n %A %h'; find t -type f | LC_ALL=C sort | xargs stat -c '%n %s'
find t -type l | LC_ALL=C sort | xargs -n 1 readlink
";

#[test]
fn known_files_go_and_change_as_on_a_local_file_system() {
    let cluster = cold(Cluster::with_mounts(2), MAKE);
    let (root, local) = (cluster.root(0).to_owned(), cluster.local());
    run(&local, MAKE);
    for dir in [&root, &local] {
        run(dir, CHANGE);
    }
    let seen = output(&local, LOOK);
    assert_eq!(output(&root, LOOK), seen);
    assert_eq!(output(cluster.root(1), LOOK), seen);
    assert_eq!(output(&root, LOOK), seen);
    is_at_rest(cluster);
}

/// Each of them is reported by what must see it, and nothing else of it.
#[test]
fn others_see_at_once_what_went_and_what_changed() {
    let cluster = cold(Cluster::with_mounts(2), MAKE);
    let (root, there) = (cluster.root(0).to_owned(), cluster.root(1).to_owned());
    let mode = |path: PathBuf| fs::metadata(path).unwrap().mode() & 0o7777;
    fs::remove_file(root.join("t/a/f2")).unwrap();
    assert!(!there.join("t/a/f2").exists());
    fs::set_permissions(root.join("t/a/f5"), fs::Permissions::from_mode(0o604)).unwrap();
    assert_eq!(mode(there.join("t/a/f5")), 0o604);
    fs::set_permissions(root.join("t/e"), fs::Permissions::from_mode(0o711)).unwrap();
    assert_eq!(mode(there.join("t/e")), 0o711);
    fs::remove_dir_all(root.join("t/e/d3")).unwrap();
    assert_eq!(fs::read_dir(there.join("t/e")).unwrap().count(), 20);
    fs::remove_dir_all(there.join("t/e")).unwrap();
    assert!(!root.join("t/e").exists());
    let open = File::open(there.join("t/a/f6")).unwrap();
    fs::remove_file(root.join("t/a/f6")).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    drop(open);
    let open = File::open(root.join("t/a/f7")).unwrap();
    fs::remove_file(root.join("t/a/f7")).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    let mut words = String::new();
    (&open).read_to_string(&mut words).unwrap();
    assert_eq!(words, "words 7\n");
    drop(open);
    let open = File::open(root.join("t/a/b/c")).unwrap();
    fs::remove_file(root.join("t/a/b/c/fifo")).unwrap();
    fs::remove_dir(root.join("t/a/b/c")).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    drop(open);
    is_at_rest(cluster);
}

/// Files take names of others: of known ones and new ones, one after the other, and names that others left.
const REPLACE: &str = "
cd t/a; for i in $(seq 2 9); do echo new $i > tmp; mv tmp f$i; done
for i in 1 2 3 4; do echo round $i > f10.lock; mv f10.lock f10; chmod 60$i f10; done; mv f11 f12; mv f13 left; mv left f14
echo x > tmp; mv tmp f15; rm f15; echo y > f15; mv f16 f17; rm f17; mv f18 f17; echo 1 > f18; mv f19 f18; echo 2 > tmp
mv tmp f20; mv f20 f21; : > tmp; mv tmp f22; ln -s there tmp; mv -T tmp f23; echo more >> f24; mv f24 f25; echo end >> f25
echo held > tmp; exec 5>> tmp; mv tmp f26; echo later >&5; exec 5>&-; mv b/s1 b/s2; rm -f b/s2; rm f27; mv f28 f27
touch -d '2001-02-03 UTC' f7
";

#[test]
fn files_take_names_of_known_files_without_a_request() {
    let cluster = cold(Cluster::with_mounts(2), MAKE);
    let (root, local) = (cluster.root(0).to_owned(), cluster.local());
    run(&local, MAKE);
    for dir in [&root, &local] {
        run(dir, "rm t/a/f60 t/a/b/s60; echo > t/a/ids; rm t/a/ids");
    }
    for dir in [&root, &local] {
        run(dir, REPLACE);
    }
    // What has moved and is not reported moves once more.
    let renames = of(&cluster, "rename");
    assert!(renames <= 3, "{}", cluster.stats(0)["requests"]);
    let seen = output(&local, LOOK);
    assert_eq!(output(&root, LOOK), seen);
    assert_eq!(output(cluster.root(1), LOOK), seen);
    sync(&root);
    assert_eq!(output(&root, LOOK), seen);
    assert_eq!(output(cluster.root(1), LOOK), seen);
    is_at_rest(cluster);
}

/// What is done to a directory, by its path and open, before it goes.
type Before = fn(&Path, &File);

const BEFORE: [Before; 5] = [
    |path, _| chown(path, Some(7), Some(77)).unwrap(),
    |path, _| fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap(),
    |_, open| set_old(open).unwrap(),
    |path, open| {
        set_old(open).unwrap();
        fs::write(path.join("new"), "").unwrap();
        fs::remove_file(path.join("new")).unwrap();
    },
    |_, _| {},
];

fn set_old(open: &File) -> std::io::Result<()> {
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(981_158_400);
    open.set_times(FileTimes::new().set_modified(old))
}

/// What is seen of an open directory while its name goes, and of changes of it afterwards.
fn goes_while_it_is_open(path: &Path, before: Before, is_known: bool) -> Vec<String> {
    let open = File::open(path).unwrap();
    if is_known {
        // The MDT hears of the use by the attempt.
        let full = path.with_file_name("b").join("full");
        assert!(fs::rename(path, full).is_err());
    }
    before(path, &open);
    let changed = open.metadata().unwrap();
    let look = || {
        let now = open.metadata().unwrap();
        let is_set = (now.mtime() < 1_000_000_000).then_some(now.mtime());
        let has_moved = (now.ctime(), now.ctime_nsec()) > (changed.ctime(), changed.ctime_nsec());
        let owner = (now.uid(), now.gid());
        format!(
            "{:o} {owner:?} {} {is_set:?} {has_moved}",
            now.mode(),
            now.nlink()
        )
    };
    let mut seen = vec![look()];
    thread::sleep(Duration::from_millis(20));
    fs::remove_dir(path).unwrap();
    seen.push(look());
    open.sync_all().unwrap();
    seen.push(look());
    let attribute = |name| {
        let mut value = [0_u8; 9];
        rustix::fs::fgetxattr(&open, name, &mut value).map(|len| value[..len].to_vec())
    };
    seen.push(format!("{:?}", attribute("user.a")));
    open.set_permissions(fs::Permissions::from_mode(0o751))
        .unwrap();
    fchown(&open, Some(8), Some(9)).unwrap();
    seen.push(look());
    set_old(&open).unwrap();
    rustix::fs::fsetxattr(&open, "user.a", b"value", XattrFlags::CREATE).unwrap();
    let again = rustix::fs::fsetxattr(&open, "user.a", b"value", XattrFlags::CREATE);
    seen.extend([look(), format!("{again:?} {:?}", attribute("user.a"))]);
    rustix::fs::fremovexattr(&open, "user.a").unwrap();
    seen.extend([format!("{:?}", attribute("user.a")), look()]);
    seen
}

#[test]
fn a_directory_that_goes_while_it_is_open_keeps_its_attributes_and_takes_new_ones() {
    let make =
        "mkdir -p p/b/full p/b/full/sub; for i in 0 1 2 3 4; do mkdir p/known$i p/unknown$i; done";
    let cluster = cold(Cluster::with_mounts(2), make);
    let (root, local) = (cluster.root(0).to_owned(), cluster.local());
    run(&local, make);
    for wbc in [1, 0] {
        cluster.set_param(0, "wbc", wbc);
        // It has ids for new files, and write leases.
        run(
            &root,
            "ls -lR p; for d in p p/*; do : > $d/new; rm $d/new; done",
        );
        for (number, before) in BEFORE.into_iter().enumerate() {
            for (name, is_known) in [("known", true), ("unknown", false)] {
                let name = format!("p/{name}{number}");
                sync(&root);
                let [here, there] = [&root, &local]
                    .map(|dir| goes_while_it_is_open(&dir.join(&name), before, is_known));
                assert_eq!(here, there, "wbc {wbc}: {name}");
                for dir in [&root, &local] {
                    fs::create_dir(dir.join(&name)).unwrap();
                }
            }
        }
        let work =
            "cd p/known0; rmdir ../known0; chmod 700 .; chown 3:4 .; stat -c '%a %u %g %h' .";
        let [here, there] = [&root, &local].map(|dir| output(dir, work));
        assert_eq!(here, there, "wbc {wbc}");
        for dir in [&root, &local] {
            fs::create_dir(dir.join("p/known0")).unwrap();
        }
    }
    is_at_rest(cluster);
}

#[test]
fn what_was_changed_of_known_files_outlives_restarts_of_the_mdt() {
    let cluster = Cluster::with_mounts(2);
    let mut cluster = cold(cluster, MAKE);
    let (root, local) = (cluster.root(0).to_owned(), cluster.local());
    run(&local, MAKE);
    cluster.set_server_param("mdt.*.commit_ms", "60000");
    for dir in [&root, &local] {
        run(dir, CHANGE);
    }
    for round in 2..5 {
        cluster.kill_server();
        cluster.restart_server();
        for dir in [&root, &local] {
            run(
                dir,
                &format!("rm t/a/f2{round}; chmod 600 t/a/f3{round}; rm -r t/e/d1{round}"),
            );
        }
    }
    let seen = output(&local, LOOK);
    cluster.timed("looking", || assert_eq!(output(&root, LOOK), seen));
    cluster.timed("looking elsewhere", || {
        assert_eq!(output(cluster.root(1), LOOK), seen)
    });
    let said = cluster.said(0);
    assert!(!said.contains("evicted this mount"), "{said}");
    is_at_rest(cluster);
}

/// Removals are reported all the time, and the server dies meanwhile.
#[test]
fn a_tree_is_removed_although_the_server_dies() {
    let mut cluster = cold(Cluster::with_mounts(2), &tree());
    let root = cluster.root(0).to_owned();
    cluster.set_param(0, "writeback_age_ms", 50);
    cluster.set_server_param("mdt.*.commit_ms", "60000");
    let removing = thread::spawn(move || run(&root, "rm -r t/d[1-9]* && rmdir t"));
    for _ in 0..6 {
        thread::sleep(Duration::from_millis(700));
        cluster.kill_server();
        cluster.restart_server();
    }
    cluster.timed("removing", || removing.join().unwrap());
    let root = cluster.root(0).to_owned();
    sync(&root);
    for mount in 0..2 {
        assert_eq!(fs::read_dir(cluster.root(mount)).unwrap().count(), 0);
    }
    assert!(!cluster.said(0).contains("lost"), "{}", cluster.said(0));
    is_at_rest(cluster);
}

#[test]
fn an_eviction_says_what_it_took_and_shows_what_is_there() {
    let cluster = Cluster::that_evicts_after(Duration::from_secs(4), 2);
    let mut cluster = cold(cluster, MAKE);
    let (root, there) = (cluster.root(0).to_owned(), cluster.root(1).to_owned());
    run(
        &root,
        "ls -lR t > /dev/null; echo so that there are ids > ids; rm t/a/f2 t/a/f3; rm -r t/e/d1; chmod 604 t/a/f5; echo new > t/a/f3",
    );
    let open = File::open(root.join("t/a/f5")).unwrap();
    cluster.freeze_mount(0);
    cluster.timed("others go on", || {
        fs::write(there.join("t/a/other"), "here").unwrap()
    });
    cluster.thaw_mount(0);
    cluster.wait_for_log(
        0,
        "changes of names and attributes are lost with the eviction",
    );
    // They are said one after the other.
    for name in ["f2", "d1"] {
        cluster.wait_for_log(0, name);
    }
    let lost = File::open(root.join("t/a")).unwrap().sync_all();
    assert!(lost.is_err(), "the directory has lost changes");
    assert!(open.sync_all().is_err(), "the file has lost changes");
    drop(open);
    cluster.timed("looking", || {
        let seen = output(&there, LOOK);
        assert_eq!(output(&root, LOOK), seen);
        assert!(
            seen.contains("t/a/f2\n") && seen.contains("t/e/d1/f\n"),
            "{seen}"
        );
    });
    run(&root, CHANGE);
    let seen = output(&root, LOOK);
    assert_eq!(output(&there, LOOK), seen);
    is_at_rest(cluster);
}

/// So many files are emptied and written anew.
const REWRITTEN: u64 = 100;

/// An open beside the lock on the bytes, a truncation, and the bytes. Closes go many in a message.
#[test]
fn files_are_written_anew_with_an_open_and_a_truncation_each() {
    let cluster = cold(Cluster::with_mounts(2), &tree());
    let (root, there) = (cluster.root(0).to_owned(), cluster.root(1).to_owned());
    run(
        &root,
        "find t -type f | xargs cat > /dev/null; chmod g+w t/d1",
    );
    let paths = || (1..=REWRITTEN).map(|number| format!("t/d1/f{number}"));
    let requests = cluster.requests(0, "files are written anew", || {
        for path in paths() {
            fs::write(root.join(&path), format!("anew {path}")).unwrap();
            let length = fs::metadata(root.join(&path)).unwrap().len();
            assert_eq!(length, 5 + path.len() as u64);
        }
    });
    println!("{}", cluster.stats(0)["requests"]);
    for kind in ["getattr", "getxattr", "setattr"] {
        assert!(of(&cluster, kind) <= 3, "{kind}");
    }
    assert!(of(&cluster, "open") <= REWRITTEN + 2);
    assert!(requests <= 4 * REWRITTEN + 60, "{requests} frames");
    let open = File::create(root.join("t/d1/f1")).unwrap();
    let emptied = fs::metadata(root.join("t/d1/f1")).unwrap();
    let seen = fs::metadata(there.join("t/d1/f1")).unwrap();
    assert_eq!((seen.len(), seen.mtime()), (0, emptied.mtime()));
    drop(open);
    for path in paths().skip(1) {
        let text = fs::read_to_string(there.join(&path)).unwrap();
        assert_eq!(text, format!("anew {path}"));
    }
    sync(&root);
    let look = "stat -c '%n %s %y %z' t/d1/f*";
    assert_eq!(output(&there, look), output(&root, look));
    is_at_rest(cluster);
}
