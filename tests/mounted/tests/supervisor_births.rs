//! Files that a mount makes by itself while the process that serves it is killed, its servers with it or not.
// SEMANTICS: crash.mount, crash.server, op.create, op.unlink

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use base::{Rng, SeededRng};
use mounted::deaths::{kill_all, kill_process};
use mounted::{Cluster, Work, count, output, pack_source_tree, run, run_for, seed, unpack};

/// How long work may take whose mount dies again and again.
const LONG: Duration = Duration::from_secs(300);
const DIRECTORIES: u64 = 40;
/// Files of which the MDT has not heard.
const FILES: usize = 3000;
const LOOK: &str = "
find t | LC_ALL=C sort; find t -type f | LC_ALL=C sort | xargs cat
find t -type f | LC_ALL=C sort | xargs stat -c '%n %A %s'; stat -c '%n %y' t/d3/f33; readlink t/d2/s9 t/d2/s9b
";

/// A supervised mount that makes files by itself, and another.
fn supervised() -> Cluster {
    let mut cluster = Cluster::with_mounts_of(1, &["--supervisor"]);
    cluster.mount();
    makes_files(&cluster);
    cluster
}

fn makes_files(cluster: &Cluster) {
    cluster.set_param(0, "wbc", 1);
    cluster.set_param(0, "writeback_age_ms", 600_000);
}

fn make(root: &Path) {
    run(root, "mkdir t; echo so that there are ids > t/first");
    for number in 0..FILES {
        let dir = root.join(format!("t/d{}", number % 30));
        if number < 30 {
            fs::create_dir(&dir).unwrap();
        }
        let mut file = File::create(dir.join(format!("f{number}"))).unwrap();
        file.write_all(format!("words {number}").as_bytes())
            .unwrap();
    }
    run_for(
        LONG,
        root,
        "for i in $(seq 30 30 300); do rm t/d0/f$i; ln -s f$i t/d2/s$((i / 30)); done; ln -s f t/d2/s9b
         ln -sf f9 t/d2/s9; chmod 2640 t/d1/f1 t/d1/f31; : > t/d1/f61; mkdir t/d4/gone; rmdir t/d4/gone
         mv t/d6/f6 t/d8/moved; mv t/d6/f36 t/d6/f66; mkdir t/d9/sub; mv t/d9/sub t/d8/sub2; echo x > t/d8/sub2/x
         mv t/d10 t/renamed; mv t/d8/sub2/x t/d8/x; echo y > t/d6/y; mv t/d6/y t/d6/f66; mkfifo t/d4/fifo; touch -d '2001-02-03 UTC' t/d3/f33; truncate -s 3 t/d5/f5",
    );
}

fn die_with_thousands(with_servers: bool) {
    let mut cluster = supervised();
    let (root, local) = (cluster.root(0).to_owned(), cluster.local());
    [&root, &local].into_iter().for_each(|dir| make(dir));
    let mut open = File::create(root.join("t/d7/open")).unwrap();
    fs::write(local.join("t/d7/open"), "12").unwrap();
    open.write_all(b"1").unwrap();
    assert!(cluster.stats(0)["requests"]["rename"].is_null());
    let _watch = cluster.watch(LONG, "a process goes on");
    match with_servers {
        true => drop(kill_all(&mut cluster, true)),
        false => drop(kill_process(&cluster)),
    }
    let said = cluster.said(0);
    let words = "files that the MDT did not know";
    assert!(
        said.contains(words) && !said.contains(" 0 files that the MDT"),
        "{said}"
    );
    open.write_all(b"2").unwrap();
    drop(open);
    let seen = output(&local, LOOK);
    assert_eq!(output(&root, LOOK), seen);
    assert_eq!(output(cluster.root(1), LOOK), seen, "elsewhere");
    (0..2).for_each(|mount| cluster.unmount(mount));
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}

#[test]
fn thousands_that_the_mdt_does_not_know_outlive_their_process() {
    die_with_thousands(false);
}

#[test]
fn they_outlive_process_and_servers() {
    die_with_thousands(true);
}

/// The directory is known to the MDT, and the file that went is not.
#[test]
fn when_a_directory_lost_a_name_is_known_to_the_next_process() {
    let mut cluster = supervised();
    let dir = cluster.root(0).join("dir");
    fs::create_dir(&dir).unwrap();
    run(
        &dir,
        "touch first; sync .; touch -d '2001-02-03 UTC' .; touch a; rm a",
    );
    let look = "stat -c '%y %n' dir; ls dir";
    let seen = output(cluster.root(0), look);
    assert!(!seen.starts_with("2001"), "{seen}");
    for with_servers in [false, true] {
        match with_servers {
            true => drop(kill_all(&mut cluster, true)),
            false => drop(kill_process(&cluster)),
        }
        assert_eq!(output(cluster.root(0), look), seen);
        assert_eq!(output(cluster.root(1), look), seen, "elsewhere");
    }
}

/// What programs do with files that were there.
const KNOWN: &str = "
mkdir -p k/e; for d in $(seq 20); do mkdir k/d$d; for f in $(seq 30); do echo $d $f > k/d$d/f$f; done; done
for f in $(seq 20); do echo $f > k/e/f$f; done
";
const CHANGE: &str = "
for d in $(seq 10); do rm -r k/d$d; done; rm -r k/e; mkdir k/d1; echo anew > k/d1/f1; rm k/d11/f1 k/d11/f2
echo anew > k/d11/f1; chmod 600 k/d12/*; chmod 2750 k/d12; chmod 640 k/d13/f1; rm k/d13/f1 k/d13/f2
touch -d '2001-02-03 UTC' k/d14/f1 k/d14; rm k/d14/f2; rm k/d15/f1; mkdir k/d15/f1; echo x > k/d15/f1/x
chown 7:8 k/d16/f*; chmod 400 k/d16/f1; rm k/d17/f1; ln -s f2 k/d17/f1; touch k/d18/new; rm k/d18/new k/d18/f1
";
const LOOK_AT_KNOWN: &str = "
find k | LC_ALL=C sort; find k -type f | LC_ALL=C sort | xargs cat; readlink k/d17/f1; stat -c '%n %y' k/d14/f1
find k | LC_ALL=C sort | xargs stat -c '%n %A %u %g %h'
";
const TIMES: &str = "stat -c '%n %y' k k/d11 k/d13 k/d14 k/d18";

fn die_with_changes(with_servers: bool) {
    let mut cluster = supervised();
    let (root, local) = (cluster.root(0).to_owned(), cluster.local());
    cluster.set_param(0, "wbc", 0);
    [&root, &local].into_iter().for_each(|dir| run(dir, KNOWN));
    cluster.set_param(0, "wbc", 1);
    [&root, &local].into_iter().for_each(|dir| run(dir, CHANGE));
    let requests = cluster.stats(0)["requests"].clone();
    let of = |kind: &str| requests[kind].as_u64().unwrap_or(0);
    assert!(of("unlink") <= 2 && of("setattr") <= 2, "{requests}");
    let times = output(&root, TIMES);
    let _watch = cluster.watch(LONG, "a process goes on");
    match with_servers {
        true => drop(kill_all(&mut cluster, true)),
        false => drop(kill_process(&cluster)),
    }
    let said = cluster.said(0);
    let words = "changes of others";
    assert!(
        said.contains(words) && !said.contains(" 0 changes"),
        "{said}"
    );
    assert!(!said.contains("lost: "), "{said}");
    let seen = output(&local, LOOK_AT_KNOWN);
    assert_eq!(output(&root, LOOK_AT_KNOWN), seen);
    assert_eq!(output(&root, TIMES), times);
    assert_eq!(output(cluster.root(1), LOOK_AT_KNOWN), seen, "elsewhere");
    (0..2).for_each(|mount| cluster.unmount(mount));
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}

#[test]
fn changes_of_known_files_outlive_their_process() {
    die_with_changes(false);
}

#[test]
fn changes_of_known_files_outlive_process_and_servers() {
    die_with_changes(true);
}

const WORK: &str = "
chmod -R g-w k; rm -r k/d1* k/e; chmod 700 k/d2/*; rm -r k; mkdir n
for f in $(seq 60); do echo $f > n/.new; mv n/.new n/f$((f / 2)); done
test $(ls n | wc -l) = 31; test $(cat n/f30) = 60; for f in $(seq 29); do test $(cat n/f$f) = $((f * 2 + 1)); done
rm -r n
";

/// The process dies again and again while a tree is removed and changed and files
/// are renamed, now and then as it reports that.
#[test]
fn a_tree_that_is_removed_while_processes_die_is_gone() {
    let cluster = supervised();
    let root = cluster.root(0).to_owned();
    cluster.set_param(0, "writeback_age_ms", 50);
    let mut rng = SeededRng::new(seed());
    let _watch = cluster.watch(LONG, "trees go");
    for round in 0..4 {
        run(&root, KNOWN);
        let dir = root.clone();
        let work = Work::start(move |_| {
            run_for(LONG, &dir, WORK);
        });
        while !work.has_ended() {
            thread::sleep(Duration::from_millis(rng.below(400)));
            kill_process(&cluster);
        }
        work.end();
        assert_eq!(output(&root, "ls"), "", "round {round}");
        assert_eq!(
            output(cluster.root(1), "ls"),
            "",
            "round {round}, elsewhere"
        );
    }
    assert!(!cluster.said(0).contains("lost: "), "{}", cluster.said(0));
}

/// Those that were set before it began to end, and after it ended once.
#[test]
fn tunables_that_were_set_hold_for_the_processes_to_come() {
    let cluster = supervised();
    let params = ["wbc", "writeback_age_ms", "batch_max"];
    let values = || params.map(|name| cluster.mount_param(0, name));
    assert_eq!(values(), [1, 600_000, 256]);
    kill_process(&cluster);
    assert_eq!(values(), [1, 600_000, 256]);
    cluster.set_param(0, "batch_max", 100);
    cluster.set_param(0, "writeback_age_ms", 500);
    for _ in 0..2 {
        kill_process(&cluster);
    }
    assert_eq!(values(), [1, 500, 100]);
}

/// Unpacks an archive again and again while the process dies every half a second, now and then with all
/// servers. Each copy is there as a whole, on both mounts.
#[test]
fn an_archive_that_is_unpacked_while_processes_die_is_whole() {
    let mut cluster = supervised();
    let mut rng = SeededRng::new(seed());
    let local = cluster.local();
    let archive = pack_source_tree(&local, DIRECTORIES, &mut rng);
    let (root, tree) = (cluster.root(0).to_owned(), local.join("tree"));
    let unpacking = Work::start(move |goes_on| {
        let mut made: Vec<PathBuf> = Vec::new();
        while made.is_empty() || goes_on() {
            let dir = root.join(format!("copy{}", made.len()));
            unpack(&archive, &dir);
            made.push(dir);
        }
        made
    });
    let watch = cluster.watch(LONG, "unpacking");
    for kill in 0..count("GLINT_KILLS", 12) {
        thread::sleep(Duration::from_millis(500));
        match kill % 4 {
            3 => drop(kill_all(&mut cluster, rng.below(2) == 0)),
            _ => drop(kill_process(&cluster)),
        }
    }
    let made = unpacking.end();
    drop(watch);
    println!("{} copies", made.len());
    for dir in made {
        let name = dir.file_name().unwrap();
        for mount in [0, 1] {
            let copy = cluster.root(mount).join(name).join("tree");
            cluster.timed_for(LONG, "comparing", || {
                let (copy, tree) = (copy.display(), tree.display());
                run(&local, &format!("diff -r --no-dereference {tree} {copy}"));
            });
        }
    }
    (0..2).for_each(|mount| cluster.unmount(mount));
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}
