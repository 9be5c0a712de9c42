//! Files that a mount makes by itself and tells the MDT of later.
// SEMANTICS: op.create, op.mkdir, op.unlink, op.rmdir, op.fsync, cache.names

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use mounted::{Cluster, own_descriptors};
use rustix::fs::{CWD, RenameFlags, XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;

const FILES: usize = 300;
const TIMEOUT: Duration = Duration::from_secs(2);

/// Two mounts; the first makes files by itself, and tells of them when it must.
fn cluster() -> Cluster {
    own_descriptors();
    let cluster = Cluster::with_mounts(2);
    cluster.set_param(0, "wbc", 1);
    cluster.set_param(0, "writeback_age_ms", 600_000);
    cluster
}

fn make(dir: &Path) {
    for number in 0..FILES {
        let below = dir.join(format!("d{}", number % 7));
        if number < 7 {
            fs::create_dir(&below).unwrap();
        }
        let file = below.join(format!("f{number}"));
        fs::write(&file, format!("words {number}")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("f0", below.join(format!("s{number}"))).unwrap();
    }
}

/// A directory that was there before: it has so many names.
fn existing(cluster: &Cluster) -> PathBuf {
    cluster.set_param(0, "wbc", 0);
    let dir = cluster.root(0).join("old");
    fs::create_dir(&dir).unwrap();
    for number in 0..1000 {
        std::os::unix::fs::symlink("x", dir.join(format!("old{number}"))).unwrap();
    }
    File::open(&dir).unwrap().sync_all().unwrap();
    cluster.set_param(0, "wbc", 1);
    dir
}

fn look(dir: &Path) -> String {
    let script = "find . -printf '%p %y %m %s %l\\n' | sort; find . -type f | sort | xargs cat";
    let mut command = Command::new("sh");
    let output = command
        .args(["-c", script])
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_new_tree_is_made_without_a_request_and_seen_by_all() {
    let mut cluster = cluster();
    let dir = cluster.root(0).join("tree");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("first"), "so that there are ids").unwrap();
    let sent = || {
        let mut requests = cluster.stats(0)["requests"].clone();
        // The lock that the write lease has made needless goes when there is time for it.
        requests.as_object_mut().unwrap().remove("cancel");
        requests
    };
    let before = sent();
    cluster.timed("a tree is made", || make(&dir));
    assert_eq!(sent(), before);
    let here = look(&dir);
    let local = cluster.local().join("tree");
    fs::create_dir_all(&local).unwrap();
    fs::write(local.join("first"), "so that there are ids").unwrap();
    make(&local);
    // Their directories have sizes of their own.
    let plain = |text: &str| {
        let lines = text.lines().filter(|line| !line.contains(" d "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(plain(&here), plain(&look(&local)));
    let there = cluster.root(1).join("tree");
    let seen = cluster.timed("the other mount looks", || look(&there));
    assert_eq!(seen, here);
    let again = look(&dir);
    assert_eq!(again, here);
    (0..2).for_each(|mount| cluster.unmount(mount));
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}

// SEMANTICS: op.open
#[test]
fn a_program_that_nobody_has_heard_of_runs_as_soon_as_it_is_written() {
    let cluster = cluster();
    let roots = [0, 1].map(|number| cluster.root(number).join("tree"));
    fs::create_dir(&roots[0]).unwrap();
    for number in 0..25 {
        let name = format!("program{number}");
        fs::copy("/bin/true", roots[0].join(&name)).unwrap();
        for root in &roots {
            let status = Command::new(root.join(&name)).status();
            assert!(status.unwrap().success(), "{name}");
        }
    }
}

/// What a large tree may take on a busy machine.
const MAKING: Duration = Duration::from_secs(240);
/// So many directories, and so many files in each.
const MANY: (usize, usize) = (200, 100);

/// A large tree that nobody has heard of, but for its top.
fn large_tree(cluster: &Cluster) -> PathBuf {
    let dir = cluster.root(0).join("tree");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("first"), "so that there are ids").unwrap();
    File::open(dir.join("first")).unwrap().sync_all().unwrap();
    cluster.timed_for(MAKING, "a large tree is made", || {
        for number in 0..MANY.0 {
            let below = dir.join(format!("d{number}"));
            fs::create_dir(&below).unwrap();
            for number in 0..MANY.1 {
                File::create(below.join(format!("f{number}"))).unwrap();
            }
        }
    });
    dir
}

/// The changes that the first mount has sent in sets, and the sets.
fn reported(cluster: &Cluster) -> (u64, u64) {
    let stats = cluster.stats(0);
    let of = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
    (
        of(&stats["update_changes"]),
        of(&stats["requests"]["update"]),
    )
}

#[test]
fn fsync_reports_a_file_and_what_leads_to_it_and_nothing_beside_it() {
    let mut cluster = Cluster::that_evicts_after(TIMEOUT, 2);
    cluster.set_param(0, "wbc", 1);
    cluster.set_param(0, "writeback_age_ms", 600_000);
    let dir = large_tree(&cluster);
    let below = dir.join("d7/deep/deeper");
    fs::create_dir_all(&below).unwrap();
    let mut file = File::create(below.join("file")).unwrap();
    file.write_all(b"words").unwrap();
    let before = reported(&cluster);
    let frames = cluster.requests(0, "fsync of one file", || file.sync_all().unwrap());
    let after = reported(&cluster);
    assert_eq!(after.0 - before.0, 4, "the file and three directories");
    assert!(frames <= 4, "{frames} frames");
    // Of a directory what is in it goes, and nothing below that.
    let frames = cluster.requests(0, "fsync of a directory", || {
        File::open(&dir).unwrap().sync_all().unwrap();
    });
    assert_eq!(reported(&cluster).0 - after.0, MANY.0 as u64 - 1);
    assert!(frames <= 3, "{frames} frames");
    drop(file);
    cluster.kill_mount(0);
    let there = cluster.root(1).join("tree");
    cluster.timed("the other mount looks", || {
        assert_eq!(fs::read_dir(&there).unwrap().count(), MANY.0 + 1);
        let file = there.join("d7/deep/deeper/file");
        assert_eq!(fs::read(file).unwrap(), b"words");
        assert_eq!(fs::read_dir(there.join("d7")).unwrap().count(), 1);
    });
}

#[test]
fn a_visitor_waits_for_the_entries_of_one_directory() {
    let cluster = cluster();
    let dir = large_tree(&cluster);
    let there = cluster.root(1).join("tree");
    let steps = [
        (there.clone(), MANY.0 + 1, MANY.0),
        (there.join("d5"), MANY.1, MANY.1),
    ];
    for (dir, names, most) in steps {
        let before = reported(&cluster);
        let count = cluster.timed("a first look", || fs::read_dir(dir).unwrap().count());
        let after = reported(&cluster);
        assert_eq!(count, names);
        assert_eq!(after.0 - before.0, most as u64);
        assert!(after.1 - before.1 <= 1, "{} sets", after.1 - before.1);
    }
    assert_eq!(fs::read_dir(dir.join("d5")).unwrap().count(), MANY.1);
}

#[test]
fn what_comes_and_goes_leaves_nothing() {
    let cluster = cluster();
    let dir = cluster.root(0).join("tree");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("first"), "").unwrap();
    File::open(&dir).unwrap().sync_all().unwrap();
    let all = cluster.requests(0, "a tree comes and goes", || {
        make(&dir);
        for number in 0..7 {
            fs::remove_dir_all(dir.join(format!("d{number}"))).unwrap();
        }
    });
    assert_eq!(all, 0, "requests");
    let before = reported(&cluster).0;
    let all = cluster.requests(0, "fsync", || {
        File::open(&dir).unwrap().sync_all().unwrap();
    });
    // When names in the directory changed last, and that it is to be durable.
    assert!(all <= 2, "{all} requests");
    assert_eq!(reported(&cluster).0 - before, 1);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    assert_eq!(
        fs::read_dir(cluster.root(1).join("tree")).unwrap().count(),
        1
    );
}

/// A year in which nothing on the mount changed by itself.
const LONG_AGO: &str = "touch -d '2001-02-03 UTC' .";

#[test]
fn a_directory_shows_when_it_lost_names_that_nobody_had_heard_of() {
    let cluster = cluster();
    let dir = new_tree(&cluster);
    let changes = ["touch a; rm a", "mkdir a; rmdir a", "touch a; mv a /SUB/a"];
    for (number, change) in changes.into_iter().enumerate() {
        let (here, sub) = (dir.join(format!("d{number}")), dir.join("sub"));
        fs::create_dir_all(&sub).unwrap();
        fs::create_dir(&here).unwrap();
        File::open(&here).unwrap().sync_all().unwrap();
        run(&here, LONG_AGO);
        run(&here, &change.replace("/SUB", sub.to_str().unwrap()));
        let seen = fs::metadata(&here).unwrap();
        let there = cluster.root(1).join("tree").join(format!("d{number}"));
        let there = cluster.timed("the other mount looks", || fs::metadata(&there).unwrap());
        let times = |seen: &fs::Metadata| (seen.mtime(), seen.mtime_nsec());
        assert!(seen.mtime() > 1_600_000_000, "{change}: {}", seen.mtime());
        assert_eq!(times(&there), times(&seen), "{change}");
    }
}

#[test]
fn a_time_that_a_program_has_set_outlasts_names_that_changed_before_it_and_are_reported_later() {
    let cluster = cluster();
    let dir = new_tree(&cluster);
    let changes = [
        "touch a",
        "mkdir a",
        "touch a; ln a b; rm a",
        "touch a; mv a SUB",
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let (here, sub) = (
            dir.join(format!("d{number}")),
            dir.join(format!("sub{number}")),
        );
        for dir in [&here, &sub] {
            fs::create_dir(dir).unwrap();
        }
        run(&here, &change.replace("SUB", sub.to_str().unwrap()));
        for dir in [here, sub] {
            run(&dir, LONG_AGO);
            let seen = fs::metadata(&dir).unwrap();
            let there = cluster.root(1).join("tree").join(dir.file_name().unwrap());
            let there = cluster.timed("the other mount looks", || fs::metadata(&there).unwrap());
            assert!(seen.mtime() < 1_000_000_000, "{change}: {}", seen.mtime());
            assert_eq!(there.mtime(), seen.mtime(), "{change} in {dir:?}");
        }
    }
}

#[test]
fn a_new_file_without_bytes_shows_when_it_lost_them() {
    let cluster = cluster();
    let dir = new_tree(&cluster);
    run(
        &dir,
        "mkdir a; cd a; echo words > f; touch -d '2001-02-03 UTC' f; : > f",
    );
    let [seen, there] = [0, 1].map(|mount| {
        let file = cluster.root(mount).join("tree/a/f");
        cluster.timed("a mount looks", || fs::metadata(file).unwrap())
    });
    assert!(seen.mtime() > 1_600_000_000, "{}", seen.mtime());
    for seen_later in [there, fs::metadata(dir.join("a/f")).unwrap()] {
        let times = |seen: &fs::Metadata| (seen.mtime(), seen.mtime_nsec());
        assert_eq!(times(&seen_later), times(&seen));
    }
}

#[test]
fn files_are_made_in_a_directory_that_was_there_without_a_request() {
    let cluster = cluster();
    let dir = existing(&cluster);
    let count = cluster.requests(0, "1,000 files more", || {
        for number in 0..1000 {
            File::create_new(dir.join(format!("new{number}"))).unwrap();
        }
    });
    assert!(count <= 5, "{count} requests");
    for there_already in ["old7", "new7"] {
        let again = File::create_new(dir.join(there_already));
        assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists);
    }
    let there = cluster.root(1).join("old");
    assert_eq!(look(&there), look(&dir));
    assert_eq!(fs::read_dir(&there).unwrap().count(), 2000);
    // The lease is gone, and both make files.
    fs::write(there.join("theirs"), "theirs").unwrap();
    fs::write(dir.join("ours"), "ours").unwrap();
    assert_eq!(look(&there), look(&dir));
}

#[test]
fn a_file_that_another_mount_has_open_stays_outside_the_lease() {
    let cluster = cluster();
    let dir = existing(&cluster);
    let elsewhere = cluster.root(1).join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("file"), b"words").unwrap();
    let theirs = File::open(elsewhere.join("file")).unwrap();
    let ours = dir.join("file");
    fs::rename(cluster.root(0).join("elsewhere/file"), &ours).unwrap();
    File::create_new(dir.join("first")).unwrap();
    let made = || {
        for number in 0..100 {
            File::create_new(dir.join(format!("new{number}"))).unwrap();
        }
    };
    assert!(cluster.requests(0, "the lease is there", made) <= 5);
    let mode = || fs::metadata(&ours).unwrap().permissions().mode() & 0o777;
    for bits in [0o600, 0o640, 0o604] {
        let permissions = fs::Permissions::from_mode(bits);
        theirs.set_permissions(permissions).unwrap();
        assert_eq!(mode(), bits);
    }
    assert_eq!(fs::read(&ours).unwrap(), b"words");
    fs::remove_file(&ours).unwrap();
    assert_eq!(theirs.metadata().unwrap().len(), 5);
    assert_eq!(theirs.metadata().unwrap().nlink(), 0);
}

/// What programs do with names in a tree that they have just made.
const NAMES: &str = "
set -e
mkdir -p src/deep empty
for i in $(seq 40); do echo words $i > src/f$i; done
mv src/f1 src/g1
mv src/f2 src/deep/f2
mv -f src/f3 src/g1
mv src/deep moved
mv -T moved empty
ln src/f4 src/g4
ln src/f7 empty/f7
rm src/f7
cp -al src links
rsync -a src/ synced
rm links/f9 links/f10
mv -n src/f5 src/f6 2> /dev/null || true
";

fn run(dir: &Path, script: &str) {
    let output = Command::new("sh")
        .args(["-c", script])
        .current_dir(dir)
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// A new tree of the first mount, of which the MDT has heard, and ids for files in it.
fn new_tree(cluster: &Cluster) -> PathBuf {
    let dir = cluster.root(0).join("tree");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("first"), "so that there are ids").unwrap();
    dir
}

/// What the first mount has sent so far, by kind.
fn sent(cluster: &Cluster) -> serde_json::Value {
    let mut requests = cluster.stats(0)["requests"].clone();
    let kinds = requests.as_object_mut().unwrap();
    for kind in ["cancel", "statfs", "ost_statfs"] {
        kinds.remove(kind);
    }
    requests
}

fn is_at_rest(cluster: &mut Cluster) {
    (0..2).for_each(|mount| cluster.unmount(mount));
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}

/// Names, kinds, modes, link counts and bytes, but not the sizes of directories.
fn look_at_names(dir: &Path) -> String {
    let script = "find . -printf '%p %y %m %n %l\n' | sort; find . -type f | sort | xargs cat";
    let mut command = Command::new("sh");
    let output = command.args(["-c", script]).current_dir(dir).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn names_in_a_new_tree_move_and_multiply_without_a_request() {
    let mut cluster = cluster();
    let dir = new_tree(&cluster);
    let before = sent(&cluster);
    cluster.timed("names change", || run(&dir, NAMES));
    assert_eq!(sent(&cluster), before);
    let local = cluster.local().join("tree");
    fs::create_dir_all(&local).unwrap();
    fs::write(local.join("first"), "so that there are ids").unwrap();
    run(&local, NAMES);
    let expected = look_at_names(&local);
    assert_eq!(look_at_names(&dir), expected);
    let there = cluster.root(1).join("tree");
    let seen = cluster.timed("the other mount looks", || look_at_names(&there));
    assert_eq!(seen, expected);
    assert_eq!(look_at_names(&dir), expected);
    is_at_rest(&mut cluster);
}

#[test]
fn names_are_swapped_or_left_as_they_are_without_a_request() {
    let mut cluster = cluster();
    let dir = new_tree(&cluster);
    let before = sent(&cluster);
    let at = |name: &str| dir.join(name);
    let rename =
        |from: &str, to: &str, flags| rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags);
    fs::create_dir_all(at("a/inner")).unwrap();
    fs::create_dir(at("b")).unwrap();
    fs::write(at("a/file"), "of a").unwrap();
    fs::write(at("b/file"), "of b").unwrap();
    rename("a/file", "b/file", RenameFlags::EXCHANGE).unwrap();
    rename("a/inner", "b/file", RenameFlags::EXCHANGE).unwrap();
    let taken = rename("a/file", "b/file", RenameFlags::NOREPLACE);
    assert_eq!(taken, Err(Errno::EXIST));
    let none = rename("a/file", "b/none", RenameFlags::EXCHANGE);
    assert_eq!(none, Err(Errno::NOENT));
    rename("a/file", "a/moved", RenameFlags::NOREPLACE).unwrap();
    rename("a", "b/file/a", RenameFlags::empty()).unwrap();
    assert_eq!(sent(&cluster), before);
    let full = rename("b/file", "b", RenameFlags::empty());
    assert_eq!(full, Err(Errno::NOTEMPTY));
    let seen = |root: &Path| {
        let root = root.join("tree");
        assert_eq!(fs::read(root.join("b/file/a/moved")).unwrap(), b"of b");
        assert_eq!(fs::read(root.join("b/file/a/inner")).unwrap(), b"of a");
        assert_eq!(fs::read_dir(root.join("b")).unwrap().count(), 1);
        assert_eq!(fs::metadata(root.join("b")).unwrap().nlink(), 3);
        assert_eq!(fs::metadata(root.join("b/file/a")).unwrap().nlink(), 2);
    };
    (0..2).for_each(|mount| seen(cluster.root(mount)));
    is_at_rest(&mut cluster);
}

#[test]
fn extended_attributes_of_new_files_cost_nothing_until_they_are_reported() {
    let mut cluster = cluster();
    let dir = new_tree(&cluster);
    let before = sent(&cluster);
    let (file, inner) = (dir.join("file"), dir.join("inner"));
    fs::write(&file, "words").unwrap();
    fs::create_dir(&inner).unwrap();
    for path in [&file, &inner] {
        setxattr(path, "user.one", b"1", XattrFlags::empty()).unwrap();
        setxattr(path, "user.two", b"2", XattrFlags::CREATE).unwrap();
        let again = setxattr(path, "user.two", b"3", XattrFlags::CREATE);
        assert_eq!(again, Err(Errno::EXIST));
        setxattr(path, "user.two", b"4", XattrFlags::REPLACE).unwrap();
        removexattr(path, "user.one").unwrap();
        assert_eq!(removexattr(path, "user.one"), Err(Errno::NODATA));
    }
    let value = |path: &Path| {
        let mut value = [0; 9];
        let len = getxattr(path, "user.two", &mut value[..]).unwrap();
        value[..len].to_vec()
    };
    assert_eq!(value(&file), b"4");
    assert_eq!(sent(&cluster), before);
    let there = cluster.root(1).join("tree");
    for root in [&there, &dir] {
        assert_eq!(value(&root.join("file")), b"4");
        assert_eq!(value(&root.join("inner")), b"4");
        let gone = getxattr(root.join("file"), "user.one", &mut [0; 9][..]);
        assert_eq!(gone, Err(Errno::NODATA));
    }
    is_at_rest(&mut cluster);
}

/// The kernel ends the use of a file late where it was read from the mount, and not from the kernel's pages.
#[test]
fn a_file_that_was_just_read_is_replaced_or_removed_without_a_request() {
    let mut cluster = cluster();
    let dir = new_tree(&cluster);
    let before = sent(&cluster);
    let (file, new) = (dir.join("file"), dir.join("file.lock"));
    fs::write(&file, "words").unwrap();
    for round in 0..300 {
        fs::write(&new, format!("words of round {round}")).unwrap();
        let mut reader = File::open(&file).unwrap();
        rustix::fs::fadvise(&reader, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        reader.read_to_string(&mut String::new()).unwrap();
        drop(reader);
        match round % 2 {
            0 => fs::rename(&new, &file).unwrap(),
            _ => {
                fs::remove_file(&file).unwrap();
                fs::rename(&new, &file).unwrap();
            }
        }
    }
    assert_eq!(sent(&cluster), before);
    is_at_rest(&mut cluster);
}

/// Linked objects, renamed references and a lock file for each: git does all that. Where something else on
/// the machine empties the kernel's caches meanwhile, some is read again, and costs requests: then once more.
#[test]
fn a_repository_is_made_without_a_request() {
    let mut cluster = cluster();
    let dir = new_tree(&cluster);
    let script = |repo: &str| {
        format!(
            "
set -e
git init -q -b main {repo}
cd {repo}
git config core.fsync none
git config user.name me
git config user.email me@example.org
for i in $(seq 50); do mkdir -p dir$((i % 7)); echo content $i > dir$((i % 7))/file$i; done
git add .
git commit -q -m first
"
        )
    };
    let repos = ["one", "two", "three", "four"];
    let free = repos.into_iter().find(|repo| {
        let before = sent(&cluster);
        cluster.timed("a repository is made", || run(&dir, &script(repo)));
        let after = sent(&cluster);
        println!("{repo}: before {before}, after {after}");
        after == before
    });
    let free = free.expect("none of four was made without a request");
    let there = cluster.root(1).join("tree");
    cluster.timed("the other mount checks it", || {
        run(
            &there,
            &format!("git -c safe.directory='*' -C {free} fsck --full"),
        );
    });
    is_at_rest(&mut cluster);
}

#[test]
fn a_copied_tree_is_reported_in_sets_with_its_sizes() {
    let mut cluster = cluster();
    let dir = new_tree(&cluster);
    let source = cluster.local().join("source");
    for number in 0..10 {
        let below = source.join(format!("d{number}"));
        fs::create_dir_all(&below).unwrap();
        for number in 0..100 {
            fs::write(below.join(format!("f{number}")), format!("{number} words")).unwrap();
        }
    }
    let (before, reported_before) = (sent(&cluster), reported(&cluster).0);
    let frames = cluster.requests(0, "a tree is copied and synced", || {
        run(&dir, &format!("cp -r {} copy", source.display()));
        let sync = Command::new(mounted::glint())
            .args(["fs", "sync"])
            .arg(&dir)
            .status();
        assert!(sync.unwrap().success());
    });
    // Closes go when all is durable.
    let (names, files) = (1 + 10 + 1000 + 1, 1000 + 1);
    cluster.timed("all is closed", || {
        while reported(&cluster).0 < reported_before + names + files {
            thread::sleep(Duration::from_millis(50));
        }
    });
    let after = sent(&cluster);
    println!("{frames} frames; before {before}, after {after}");
    for kind in ["create", "open", "setattr", "close"] {
        assert_eq!(after[kind], before[kind], "{kind}");
    }
    assert!(frames <= 16, "{frames} frames");
    let expected = look(&source);
    let there = cluster.root(1).join("tree/copy");
    let files = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.contains(" d "));
        lines.map(str::to_owned).collect()
    };
    let seen = cluster.timed("the other mount looks", || look(&there));
    assert_eq!(files(&seen), files(&expected));
    assert_eq!(files(&look(&dir.join("copy"))), files(&expected));
    is_at_rest(&mut cluster);
}
