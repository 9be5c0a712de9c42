//! Servers that are made weak by rules: which calls wait, for how long, and which never do.
// SEMANTICS: crash.eviction

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use mounted::{Cluster, PATIENCE, run};

const MDT: &str = "mdt.glint-MDT0";
const OST: &str = "ost.glint-OST0";

/// Files in a directory, each with its own number as bytes.
fn make_files(dir: &Path, count: usize) {
    fs::create_dir(dir).unwrap();
    for number in 0..count {
        fs::write(dir.join(format!("file{number}")), number.to_string()).unwrap();
    }
}

/// A mount that asks for each file alone: its number.
fn mount_without_prefetch(cluster: &mut Cluster) -> usize {
    let number = cluster.mount();
    cluster.set_param(number, "statahead_max", 0);
    number
}

/// A count of a rule, from the line that tells all of them.
fn counted(cluster: &Cluster, target: &str, count: &str) -> u64 {
    let lines = cluster.server_param(&format!("{target}.nrs_tbf_stats"));
    let words = lines[0].split(' ');
    let mut found = words.filter_map(|word| word.split_once('='));
    let (_, value) = found.find(|(name, _)| *name == count).unwrap();
    value.parse().unwrap()
}

/// The UUID of the only mount, once it is there and those before are gone.
fn only_client(cluster: &Cluster) -> String {
    let began = Instant::now();
    loop {
        let clients = cluster.server_param(&format!("{MDT}.exports"));
        let uuids: Vec<&str> = clients.iter().filter_map(|c| c.split(' ').nth(1)).collect();
        if let [uuid] = uuids[..] {
            return uuid.to_owned();
        }
        assert!(began.elapsed() < PATIENCE, "{clients:?}");
    }
}

/// How long `work` takes.
fn time(cluster: &Cluster, what: &str, work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    cluster.timed(what, work);
    began.elapsed()
}

#[test]
fn a_rule_makes_a_cold_listing_slow_and_its_end_makes_it_quick() {
    const FILES: usize = 300;
    let mut cluster = Cluster::with_mounts(1);
    cluster.timed("making files", || {
        make_files(&cluster.root(0).join("dir"), FILES);
    });
    cluster.unmount(0);
    cluster.rule(MDT, "start slow opcode={getattr,lookup} rate=100");
    let cold = mount_without_prefetch(&mut cluster);
    let list = |number| run(cluster.root(number), "test $(ls -l dir | wc -l) = 301");
    let slow = time(&cluster, "ls -l, slow", || list(cold));
    assert!(slow >= Duration::from_millis(2900), "{slow:?}");
    assert!(counted(&cluster, MDT, "requests") >= FILES as u64);
    assert!(counted(&cluster, MDT, "held") > 0);
    assert_eq!(counted(&cluster, MDT, "waiting"), 0);
    let warm = time(&cluster, "ls -l, warm", || list(cold));
    assert!(warm < slow, "{warm:?}: nothing is asked");

    cluster.rule(MDT, "stop slow");
    let rules = cluster.server_param(&format!("{MDT}.nrs_tbf_rule"));
    assert_eq!(rules, [""]);
    let cold = mount_without_prefetch(&mut cluster);
    let quick = time(&cluster, "ls -l, without the rule", || {
        run(cluster.root(cold), "test $(ls -l dir | wc -l) = 301");
    });
    assert!(quick < slow, "{quick:?} without the rule, {slow:?} with it");
}

#[test]
fn a_batch_costs_as_many_tokens_as_it_has_requests() {
    const FILES: usize = 200;
    let mut cluster = Cluster::with_mounts(1);
    cluster.timed("making files", || {
        make_files(&cluster.root(0).join("dir"), FILES);
    });
    cluster.unmount(0);
    cluster.rule(OST, "start slow opcode=ost_read rate=100");
    let cold = cluster.mount();
    let read = time(&cluster, "grep", || {
        run(cluster.root(cold), "test $(grep -r . dir | wc -l) = 200");
    });
    assert!(counted(&cluster, OST, "requests") >= FILES as u64);
    assert!(read >= Duration::from_millis(1900), "{read:?}");
    assert_eq!(counted(&cluster, OST, "overdue"), 0);
}

#[test]
fn what_others_wait_for_is_never_held() {
    let mut cluster = Cluster::with_mounts(1);
    cluster.timed("making files", || {
        make_files(&cluster.root(0).join("dir"), 40);
    });
    cluster.unmount(0);
    let weak = cluster.mount();
    let uuid = only_client(&cluster);
    let (dir, theirs) = (cluster.root(weak).join("dir"), cluster.mount());
    let theirs = cluster.root(theirs).join("dir");
    // It holds the directory's lease and locks on bytes, and keeps what it wrote.
    cluster.set_param(weak, "dirty_age_ms", 60_000);
    let open: Vec<File> = cluster.timed("holding much", || {
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 40);
        let names = (0..40).map(|number| dir.join(format!("file{number}")));
        let opened = names.map(|path| {
            fs::read(&path).unwrap();
            let file = File::options().write(true).open(path).unwrap();
            file.write_all_at(b"mine", 0).unwrap();
            file
        });
        let made = (0..20).map(|number| {
            let mut file = File::create(dir.join(format!("made{number}"))).unwrap();
            file.write_all(b"made").unwrap();
            file.sync_all().unwrap();
            file
        });
        opened.chain(made).collect()
    });
    for target in [MDT, OST] {
        let rule = format!("start weak client={uuid} rate=1 burst=1");
        cluster.rule(target, &rule);
    }
    // Of what it sends now the server has tokens for one write a second.
    cluster.set_param(weak, "dirty_age_ms", 10);
    let began = Instant::now();
    while counted(&cluster, OST, "waiting") == 0 {
        assert!(began.elapsed() < PATIENCE, "it writes nothing");
    }
    let others = time(&cluster, "others go on", || {
        assert_eq!(fs::read(theirs.join("file7")).unwrap(), b"mine");
        fs::write(theirs.join("file8"), "theirs").unwrap();
        fs::write(theirs.join("added"), "theirs").unwrap();
        fs::remove_file(theirs.join("file9")).unwrap();
        fs::create_dir(theirs.join("below")).unwrap();
        for number in 0..20 {
            // The process that made a file holds all of it, as long as it is open there.
            let made = theirs.join(format!("made{number}"));
            fs::set_permissions(made, Permissions::from_mode(0o600)).unwrap();
        }
        assert_eq!(fs::read_dir(&theirs).unwrap().count(), 61);
    });
    assert!(others < Duration::from_secs(10), "{others:?}");
    drop(open);
    for target in [MDT, OST] {
        cluster.rule(target, "stop weak");
    }
    cluster.timed("both see the same", || {
        assert_eq!(fs::read(dir.join("file8")).unwrap(), b"theirs");
        assert_eq!(fs::read(dir.join("added")).unwrap(), b"theirs");
        assert!(!dir.join("file9").exists());
        assert_eq!(fs::read(theirs.join("file39")).unwrap(), b"mine");
    });
    assert_eq!(cluster.stats(weak)["recoveries"], 0);
}

#[test]
fn rules_evict_nobody() {
    // Nothing is held for more than a second then.
    let cluster = Cluster::that_evicts_after(Duration::from_secs(5), 2);
    for target in [MDT, OST] {
        cluster.rule(target, "start weak each=client rate=1 burst=1");
    }
    let (one, two) = (cluster.root(0), cluster.root(1));
    cluster.timed_for(Duration::from_secs(120), "working together", || {
        fs::create_dir(one.join("dir")).unwrap();
        let words = |mount: &Path| fs::read(mount.join("dir/file")).unwrap_or_default();
        for (mount, other) in [(one, two), (two, one)] {
            let more = [&words(mount)[..], b"word "].concat();
            fs::write(mount.join("dir/file"), &more).unwrap();
            assert_eq!(words(other), more);
        }
    });
    assert!(counted(&cluster, MDT, "held") > 0);
    for number in [0, 1] {
        assert_eq!(cluster.stats(number)["recoveries"], 0, "mount {number}");
        assert!(!cluster.said(number).contains("evicted"));
    }
}
