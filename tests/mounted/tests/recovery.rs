//! Acknowledged changes outlive the server, also without a sync: their mounts repeat them.
// SEMANTICS: crash.server

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use base::{Rng, SeededRng};
use mounted::{Cluster, Pulses, Work, count, pack_source_tree, run, seed, unpack};

const DIRECTORIES: u64 = 40;
/// What takes seconds has taken too long then.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long an archive may take to unpack while its server dies again and again.
const LONG: Duration = Duration::from_secs(300);

/// Before another mount reads bytes, no matter which process wrote them has them made durable; what
/// nobody else looks at costs nothing.
#[test]
fn what_another_mount_reads_is_durable_by_then() {
    let cluster = Cluster::with_mounts(2);
    let (writing, reading) = (cluster.root(0), cluster.root(1));
    // No commit comes by itself while this looks.
    cluster.set_server_param("ost.*.commit_ms", "60000");
    let syncs = || {
        let stats = cluster.stats(0);
        stats["requests"]["ost_sync"].as_u64().unwrap_or(0)
    };
    let none = syncs();
    fs::write(writing.join("shared"), "one").unwrap();
    fs::write(writing.join("own"), "one").unwrap();
    assert_eq!(syncs(), none, "nobody has looked");
    for text in ["one", "two", "three"] {
        fs::write(writing.join("shared"), text).unwrap();
        let before = syncs();
        let read = cluster.timed("reading", || fs::read_to_string(reading.join("shared")));
        assert_eq!(read.unwrap(), text);
        assert_eq!(syncs(), before + 1, "{text}");
    }
    fs::read_to_string(reading.join("shared")).unwrap();
    assert_eq!(fs::read_to_string(writing.join("own")).unwrap(), "one");
    assert_eq!(syncs(), none + 3);
}

/// Files written over and over on one mount, none of it synced, are read on another at once after
/// each crash. What a write there has returned for is what is read here.
#[test]
fn nobody_reads_what_was_before_a_write_while_a_server_comes_back() {
    const FILES: u64 = 30;
    const ROUNDS: u64 = 3;
    let mut cluster = Cluster::with_mounts(2);
    let (writing, reading) = (cluster.root(0).to_owned(), cluster.root(1).to_owned());
    let name = |file: u64| format!("f{file}");
    let bytes = |file: u64, round: u64| format!("file {file}, round {round:5} ").repeat(400);
    // Made, and seen elsewhere: from here on the writer's right is a lock of the OST.
    for file in 0..FILES {
        fs::write(writing.join(name(file)), bytes(file, 0)).unwrap();
        fs::read(reading.join(name(file))).unwrap();
    }
    // They stay open over the restarts.
    let open = (0..FILES).map(|file| File::open(reading.join(name(file))).unwrap());
    let open: Arc<Vec<File>> = Arc::new(open.collect());
    for round in 1..=ROUNDS {
        for file in 0..FILES {
            let open = File::options().write(true).open(writing.join(name(file)));
            open.unwrap()
                .write_all(bytes(file, round).as_bytes())
                .unwrap();
        }
        // The writer comes back last.
        cluster.freeze_mount(0);
        cluster.kill_server();
        cluster.restart_server();
        let reader = {
            let open = open.clone();
            thread::spawn(move || read_all(&open))
        };
        thread::sleep(Duration::from_millis(500));
        cluster.thaw_mount(0);
        let read = cluster.timed("reading after a restart", || reader.join().unwrap());
        for (file, read) in (0..FILES).zip(read) {
            let start = String::from_utf8_lossy(&read[..read.len().min(30)]);
            let right = read == bytes(file, round).as_bytes();
            assert!(right, "{} after round {round}: {start:?}", name(file));
        }
    }
}

fn read_all(open: &[File]) -> Vec<Vec<u8>> {
    let read = open.iter().map(|file| {
        let mut bytes = vec![0; 100_000];
        let len = file.read_at(&mut bytes, 0).unwrap();
        bytes.truncate(len);
        bytes
    });
    read.collect()
}

/// Every name below `dir`, with all that `tar` keeps of it.
fn described(dir: &Path) -> BTreeSet<String> {
    let output = Command::new("find")
        .arg(dir)
        .args([
            "-mindepth",
            "1",
            "(",
            "-type",
            "d",
            "-printf",
            "%P %y %m\n",
            "-o",
            "-printf",
        ])
        .args(["%P %y %m %s %T@ %n %l\n", ")"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Unpacks an archive again and again on a mount while the server is killed `kills` times. Compares all of it
/// there and on another mount. No call waits for longer than is promised. `wbc`: the mount makes files by
/// itself.
fn unpack_under_kills(kills: u64, wbc: u64) {
    let mut cluster = Cluster::with_mounts(2);
    cluster.set_param(0, "wbc", wbc);
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
    let watch = cluster.watch(LONG * (1 + kills as u32 / 20), "unpacking");
    let pulses = Pulses::begin(&cluster);
    let mut back = Vec::new();
    for _ in 0..kills {
        thread::sleep(Duration::from_millis(rng.below(400)));
        if unpacking.has_ended() {
            break;
        }
        cluster.kill_server();
        cluster.restart_server();
        back.push(Instant::now());
    }
    let made = unpacking.end();
    drop(watch);
    println!("{} copies", made.len());
    pulses.end(&back);
    let expected = described(&tree);
    for dir in made {
        let name = dir.file_name().unwrap();
        for mount in [0, 1] {
            let copy = cluster.root(mount).join(name).join("tree");
            cluster.timed_for(LONG, "comparing", || {
                let (copy, tree) = (copy.display(), tree.display());
                run(&local, &format!("diff -r --no-dereference {tree} {copy}"));
            });
            let told = cluster.timed_for(LONG, "looking", || described(&copy));
            let wrong: Vec<&String> = told.symmetric_difference(&expected).take(10).collect();
            assert!(
                wrong.is_empty(),
                "{} on mount {mount}: {wrong:#?}",
                copy.display()
            );
        }
    }
    (0..2).for_each(|mount| cluster.unmount(mount));
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}

#[test]
fn unpacking_an_archive_outlives_the_server() {
    unpack_under_kills(count("GLINT_KILLS", 12), 0);
}

#[test]
fn unpacking_an_archive_under_write_leases_outlives_the_server() {
    unpack_under_kills(count("GLINT_KILLS", 12), 1);
}

/// So often, at random moments, for a release.
#[test]
#[ignore = "soak: 200 kills"]
fn soak_unpacking_outlives_the_server_two_hundred_times() {
    unpack_under_kills(200, 0);
    unpack_under_kills(200, 1);
}

/// In the stats of the mount and of the servers; it goes when the change is durable.
#[test]
fn what_is_kept_for_a_server_that_dies_is_told() {
    let cluster = Cluster::with_mounts(1);
    let root = cluster.root(0).to_owned();
    for target in ["mdt", "ost"] {
        cluster.set_server_param(&format!("{target}.*.commit_ms"), "60000");
    }
    cluster.set_param(0, "dirty_age_ms", 60_000);
    let kept = |name: &str| cluster.stats(0)[name].as_u64().unwrap();
    let file = File::create(root.join("file")).unwrap();
    file.write_all_at(&[1; 10_000], 0).unwrap();
    assert!(kept("replay_frames") > 0 && kept("replay_bytes") > 100);
    assert_eq!((kept("unsent_bytes"), kept("undurable_bytes")), (10_000, 0));
    let stored = cluster.server_param("mdt.glint-MDT0.stored_replies");
    let (answers, bytes) = stored[0].split_once(' ').unwrap();
    assert!(answers != "answers=0" && bytes != "bytes=0", "{stored:?}");
    file.sync_all().unwrap();
    let all = [
        "replay_frames",
        "replay_bytes",
        "unsent_bytes",
        "undurable_bytes",
    ];
    assert_eq!(all.map(kept), [0; 4]);
}

/// Who does not come back in time has lost what was not durable, is told so, and goes on; nobody else
/// waits for longer.
#[test]
fn who_does_not_come_back_is_given_up() {
    let mut cluster = Cluster::that_evicts_after(Duration::from_secs(4), 2);
    let (away, here) = (cluster.root(0).to_owned(), cluster.root(1).to_owned());
    cluster.timed("changes", || {
        fs::create_dir(here.join("seen")).unwrap();
        File::open(&here).unwrap().sync_all().unwrap();
        fs::create_dir(away.join("synced")).unwrap();
        File::open(&away).unwrap().sync_all().unwrap();
        fs::create_dir(away.join("unsynced")).unwrap();
    });
    cluster.freeze_mount(0);
    cluster.kill_server();
    let began = Instant::now();
    cluster.restart_server();
    cluster.timed("a change by who came back", || {
        fs::create_dir(here.join("later")).unwrap();
    });
    let waited = began.elapsed();
    assert!(
        waited > Duration::from_secs(3),
        "{waited:?}: nobody was waited for"
    );
    assert!(waited < Duration::from_secs(20), "{waited:?}");
    cluster.timed("what there is", || {
        assert!(here.join("synced").exists() && here.join("seen").exists());
        assert!(!here.join("unsynced").exists());
    });
    cluster.thaw_mount(0);
    cluster.wait_for_log(0, "Mdt evicted this mount");
    cluster.timed("going on", || {
        // The OST may have given it up as well. What is written before that is heard would go with it.
        let _ = nix::sys::statvfs::statvfs(&away);
        assert!(!away.join("unsynced").exists() && away.join("later").exists());
        let mut file = File::create(away.join("unsynced")).unwrap();
        file.write_all(b"anew").unwrap();
        file.sync_all().unwrap();
        assert_eq!(fs::read(here.join("unsynced")).unwrap(), b"anew");
    });
}

/// Makes a file on a mount that is given up when its server lives anew, so that nobody is left to make
/// it again. What `use_it` says of the file, which is open there all the while, once that mount knows.
fn with_a_lost_file<T: Send + 'static>(
    use_it: impl Fn(&File) -> T + Send + 'static,
) -> (Cluster, T) {
    let mut cluster = Cluster::that_evicts_after(Duration::from_secs(4), 2);
    let (away, here) = (cluster.root(0).to_owned(), cluster.root(1).to_owned());
    cluster.set_server_param("mdt.*.commit_ms", "60000");
    let (opened, is_open) = mpsc::channel();
    let using = Work::start(move |goes_on| {
        let mut options = File::options();
        options.create_new(true).read(true).write(true);
        let mut file = options.open(away.join("lost")).unwrap();
        file.write_all(b"lost").unwrap();
        opened.send(()).unwrap();
        while goes_on() {
            thread::sleep(Duration::from_millis(5));
        }
        use_it(&file)
    });
    cluster.timed("opening", || is_open.recv().unwrap());
    cluster.freeze_mount(0);
    cluster.kill_server();
    cluster.restart_server();
    cluster.timed("waiting in vain", || {
        fs::write(here.join("new"), "theirs").unwrap();
    });
    cluster.thaw_mount(0);
    cluster.wait_for_log(0, "evicted this mount");
    cluster.wait_for_log(0, "is lost: stale file id");
    let said = cluster.timed("using it", || using.end());
    (cluster, said)
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// The process that has it open is told, and sees no other file.
#[test]
fn a_file_that_is_lost_with_a_server_is_stale_to_who_has_it_open() {
    let (cluster, said) = with_a_lost_file(|file| {
        let mode = Permissions::from_mode(0o600);
        let fsync = errno(file.sync_all());
        let calls = [errno(file.metadata()), errno(file.set_permissions(mode))];
        (fsync, calls)
    });
    // What it had written was lost before.
    assert_eq!(said, (Some(libc::EIO), [Some(libc::ESTALE); 2]));
    cluster.timed("looking", || {
        for root in [0, 1].map(|mount| cluster.root(mount)) {
            assert_eq!(errno(fs::read(root.join("lost"))), Some(libc::ENOENT));
            assert_eq!(fs::read(root.join("new")).unwrap(), b"theirs");
        }
    });
}

/// It has no bytes any more, rather than none.
#[test]
fn bytes_of_a_file_that_is_lost_with_a_server_are_stale() {
    let (_cluster, said) = with_a_lost_file(|file| errno(file.read_at(&mut [0; 4], 0)));
    assert_eq!(said, Some(libc::ESTALE));
}

/// Nothing that is written to it can go anywhere.
#[test]
fn who_writes_to_a_file_that_is_lost_with_a_server_is_told() {
    let (_cluster, said) = with_a_lost_file(|file| {
        let _ = file.sync_all();
        let written = file.write_all_at(b"anew", 0);
        errno(written.and_then(|()| file.sync_all()))
    });
    assert!(
        [Some(libc::ESTALE), Some(libc::EIO)].contains(&said),
        "{said:?}"
    );
}

/// Who knows that a mount is gone for good need not wait for it.
#[test]
fn waiting_can_be_seen_and_ended() {
    const STATUS: &str = "mdt.glint-MDT0.recovery_status";
    let mut cluster = Cluster::with_mounts(2);
    let (gone, here) = (cluster.root(0).to_owned(), cluster.root(1).to_owned());
    cluster.timed("changes", || {
        fs::create_dir(gone.join("one")).unwrap();
        fs::create_dir(here.join("two")).unwrap();
    });
    assert_eq!(cluster.server_param(STATUS)[0], "status=complete");
    cluster.freeze_mount(0);
    cluster.kill_server();
    cluster.restart_server();
    let waits = thread::spawn(move || fs::create_dir(here.join("two/below")));
    thread::sleep(Duration::from_secs(1));
    let told = cluster.server_param(STATUS);
    assert!(
        told[0].starts_with("status=recovering seconds_left="),
        "{told:?}"
    );
    assert!(
        told[2].starts_with("awaited=") && told.len() == 3,
        "{told:?}"
    );
    // It has written nothing; the OST waits for it all the same.
    let of_ost = cluster.server_param("ost.glint-OST0.recovery_status");
    assert!(
        of_ost[0].starts_with("status=recovering") && of_ost[1..] == told[2..],
        "{of_ost:?}"
    );
    assert!(!waits.is_finished());
    cluster.set_server_param(STATUS, "end");
    cluster.timed("going on", || waits.join().unwrap().unwrap());
    assert_eq!(cluster.server_param(STATUS)[0], "status=complete");
    cluster.thaw_mount(0);
    cluster.wait_for_log(0, "evicted this mount");
}

/// A server that has nobody to wait for keeps nothing for anybody.
#[test]
fn space_of_removed_files_comes_back_at_once_where_nobody_was_there_before() {
    let mut cluster = Cluster::with_mounts(1);
    fs::write(cluster.root(0).join("file"), [7; 100_000]).unwrap();
    cluster.unmount(0);
    cluster.stop_server();
    cluster.restart_server();
    let mount = cluster.mount();
    assert_eq!(cluster.stored_objects(100_000), 1);
    let file = cluster.root(mount).join("file");
    cluster.timed("removing", || fs::remove_file(file).unwrap());
    wait_for_objects(&cluster, 0);
}

fn wait_for_objects(cluster: &Cluster, count: u64) {
    let began = Instant::now();
    while cluster.stored_objects(100_000) > count {
        let waited = began.elapsed();
        assert!(waited < PATIENCE / 2, "its bytes are still there");
        thread::sleep(Duration::from_millis(50));
    }
}

/// One that has keeps it until they have told what they have open, and no longer.
#[test]
fn space_of_removed_files_comes_back_when_all_have_told_what_they_have_open() {
    let mut cluster = Cluster::with_mounts(2);
    let root = cluster.root(0).to_owned();
    let reader = cluster.timed("files", || {
        fs::write(root.join("open"), [7; 100_000]).unwrap();
        fs::write(root.join("file"), [7; 100_000]).unwrap();
        let reader = File::open(cluster.root(1).join("open")).unwrap();
        fs::remove_file(root.join("open")).unwrap();
        reader
    });
    cluster.kill_server();
    cluster.restart_server();
    cluster.timed("removing", || fs::remove_file(root.join("file")).unwrap());
    wait_for_objects(&cluster, 1);
    cluster.timed("who has it open", || {
        let mut bytes = vec![0; 100_000];
        reader.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == [7; 100_000]);
        drop(reader);
    });
    wait_for_objects(&cluster, 0);
}

/// Both lose a new file, its mount and the MDT, when an OST has what was written to it. Nobody is
/// left to make the file again.
#[test]
fn of_a_file_that_is_lost_with_its_mount_no_bytes_stay() {
    let mut cluster = Cluster::with_mounts(1);
    let root = cluster.root(0).to_owned();
    let write = |name: &str| {
        let mut file = File::create(root.join(name)).unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        file
    };
    cluster.timed("a file", || write("kept").sync_all().unwrap());
    // No commit of the MDT comes by itself.
    cluster.set_server_param("mdt.*.commit_ms", "60000");
    drop(write("lost"));
    let objects = |cluster: &Cluster| cluster.stored_objects(100_000);
    let began = Instant::now();
    while objects(&cluster) < 2 {
        assert!(began.elapsed() < PATIENCE, "it is not sent");
        thread::sleep(Duration::from_millis(50));
    }
    // The OST commits each second; of one more file nothing but the bytes is there.
    thread::sleep(Duration::from_secs(3));
    drop(write("newest"));
    while objects(&cluster) < 3 {
        assert!(began.elapsed() < PATIENCE, "it is not sent");
        thread::sleep(Duration::from_millis(1));
    }
    cluster.kill_server();
    cluster.kill_mount(0);
    cluster.restart_server();
    for target in ["mdt", "ost"] {
        cluster.set_server_param(&format!("{target}.*.recovery_status"), "end");
    }
    let began = Instant::now();
    while objects(&cluster) > 1 {
        assert!(began.elapsed() < PATIENCE, "it stays");
        thread::sleep(Duration::from_millis(50));
    }
    cluster.mount_again(0).unwrap();
    cluster.timed("what is left", || {
        let names = fs::read_dir(&root).unwrap().map(|e| e.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["kept"]);
        assert_eq!(fs::read(root.join("kept")).unwrap(), [7; 100_000]);
    });
    cluster.unmount(0);
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}

/// A mount is in the copy, and does not come back: to the copy all that it made since is lost.
#[test]
fn an_older_copy_of_an_mdt_takes_no_bytes() {
    let mut cluster = Cluster::with_mounts(1);
    let root = cluster.root(0).to_owned();
    let write = |name: &str| {
        let mut file = File::create(root.join(name)).unwrap();
        file.write_all(name.as_bytes()).unwrap();
        file.sync_all().unwrap();
    };
    let (dir, local) = (cluster.target_dirs()[0].clone(), cluster.local());
    cluster.timed("a file", || write("old"));
    // As it is after a power cut.
    run(&local, &format!("cp -a {}/mdt0 copy", dir.display()));
    cluster.timed("newer files", || {
        write("new");
        write("removed");
        fs::remove_file(root.join("removed")).unwrap();
        File::open(&root).unwrap().sync_all().unwrap();
    });
    let began = Instant::now();
    while cluster.stored_objects(1) > 2 {
        assert!(began.elapsed() < PATIENCE, "it stays");
        thread::sleep(Duration::from_millis(50));
    }
    cluster.unmount(0);
    cluster.stop_server();
    run(
        &local,
        &format!("rm -r {0}/mdt0; cp -a copy {0}/mdt0", dir.display()),
    );
    cluster.restart_server();
    cluster.set_server_param("mdt.*.recovery_status", "end");
    let said = cluster.server_gives_up();
    assert!(said.contains("was restored from an older copy"), "{said}");
    // How many objects there are is asked of a server.
    cluster.restart_server();
    assert_eq!(cluster.stored_objects(1), 2);
}

/// When all come back, nobody waits for long.
#[test]
fn the_window_ends_when_all_are_back() {
    let mut cluster = Cluster::with_mounts(2);
    let roots = [0, 1].map(|mount| cluster.root(mount).to_owned());
    cluster.timed("changes", || {
        for root in &roots {
            let name = root.file_name().unwrap();
            fs::create_dir(root.join(name)).unwrap();
        }
    });
    cluster.kill_server();
    cluster.restart_server();
    let began = Instant::now();
    cluster.timed("a change", || {
        for root in &roots {
            let name = root.file_name().unwrap();
            fs::create_dir(root.join(name).join("below")).unwrap();
        }
    });
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(20), "{waited:?}");
}
