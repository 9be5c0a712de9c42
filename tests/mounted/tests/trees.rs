//! Walks of trees: their number of requests, and that they are current whatever happens meanwhile.
// SEMANTICS: op.walk, op.readdir, op.rename, op.rmdir, wait.hard

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use base::{Rng, SeededRng};
use mounted::{Cluster, glint, run, seed};

const TOPS: u64 = 8;
const DIRS: u64 = 25;
const FILES: u64 = 20;
const DIRECTORIES: u64 = 1 + TOPS * (DIRS + 1);
const ENTRIES: u64 = DIRECTORIES + TOPS * DIRS * FILES + TOPS;

fn top(root: &Path, number: u64) -> PathBuf {
    root.join(format!("top{number}"))
}

fn make_tree(root: &Path) {
    for number in 0..TOPS * DIRS {
        let path = top(root, number % TOPS).join(format!("dir{number}"));
        fs::create_dir_all(&path).unwrap();
        for file in 0..FILES {
            fs::write(path.join(format!("file{file}")), "").unwrap();
        }
    }
    for number in 0..TOPS {
        symlink("somewhere", top(root, number).join("link")).unwrap();
    }
}

/// A cluster with the tree, durable, and a mount that knows nothing of it: its number.
fn with_tree() -> (Cluster, usize) {
    let mut cluster = Cluster::with_mounts(1);
    cluster.timed("making a tree", || make_tree(cluster.root(0)));
    cluster.unmount(0);
    let cold = cluster.mount();
    (cluster, cold)
}

/// Every path below `root`, as a reader of the tree finds them.
fn found(root: &Path) -> BTreeSet<String> {
    let output = Command::new("find").arg(".").current_dir(root).output();
    let output = output.unwrap();
    print!("{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_cold_walk_costs_requests_by_its_size_and_not_by_its_directories() {
    let walks = [
        "find . -uid 1",
        "du -s . > /dev/null",
        "LC_ALL=C ls -lR > /dev/null",
        "tar -cf /dev/null --exclude='file*' .",
    ];
    for walk in walks {
        let (cluster, cold) = with_tree();
        let root = cluster.root(cold);
        let first = cluster.requests(cold, walk, || run(root, walk));
        // The mount's own first questions among them.
        let most = ENTRIES / 4000 + 8;
        assert!(first <= most, "{walk}: {first} requests, at most {most}");
        for again in walks {
            assert_eq!(cluster.requests(cold, again, || run(root, again)), 0);
        }
    }
}

#[test]
fn a_cold_walk_stands_still_a_few_times_and_a_warm_one_never() {
    let (cluster, cold) = with_tree();
    let root = cluster.root(cold);
    let stalls = || cluster.stats(cold)["walk_stalls"].as_u64().unwrap();
    let walk = |what: &str| {
        let before = stalls();
        cluster.timed(what, || run(root, "find . -uid 1"));
        stalls() - before
    };
    let first = walk("a cold walk");
    println!("{first} stalls");
    assert!((1..=8).contains(&first), "{first} stalls");
    assert_eq!(walk("a warm walk"), 0);
    let other = cluster.stats(cold);
    assert!(other["requests"]["walk"].as_u64().unwrap() >= 1);
}

#[test]
fn of_each_walk_it_is_told_what_was_fetched_and_used() {
    let (cluster, cold) = with_tree();
    let root = cluster.root(cold);
    cluster.timed("a walk", || run(root, "find . -uid 1"));
    let walks = cluster.walks(cold);
    println!("{walks:?}");
    let [walk] = &walks[..] else {
        panic!("one walk");
    };
    assert_eq!(
        (&walk["pattern"], &walk["dir"]),
        (&"dfs".into(), &"/".into())
    );
    assert_eq!(walk["ended"], false);
    let number = |key: &str| walk[key].as_u64().unwrap();
    assert_eq!(number("fetched"), DIRECTORIES - 1);
    assert_eq!(
        (number("used"), number("bytes_unused")),
        (DIRECTORIES - 1, 0)
    );
    // Three bring it all; two may be on their way by then, for the end is not known before it comes.
    assert!(number("requests") <= 5);
}

#[test]
fn what_was_fetched_on_demand_is_walked_for_nothing() {
    let (cluster, cold) = with_tree();
    let root = cluster.root(cold);
    let fetch = || {
        let mut prefetch = Command::new(glint());
        prefetch.args(["fs", "prefetch", "--json"]).arg(root);
        let output = prefetch.output().unwrap();
        let came: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(came["directories"], DIRECTORIES);
        assert_eq!(came["entries"], ENTRIES - 1);
    };
    let first = cluster.requests(cold, "prefetch", fetch);
    assert!(first <= 5, "{first} requests");
    let walk = || run(root, "find . -uid 1; LC_ALL=C ls -lR > /dev/null");
    assert_eq!(cluster.requests(cold, "walks", walk), 0);
}

#[test]
fn who_reads_directories_in_no_order_pays_no_more_than_without_prefetch() {
    let mut counts = Vec::new();
    for off in [true, false] {
        let (cluster, cold) = with_tree();
        if off {
            cluster.set_param(cold, "statahead_tree_max", 0);
        }
        let mut rng = SeededRng::new(7);
        let read = || {
            for _ in 0..300 {
                let number = rng.below(TOPS * DIRS);
                let dir = top(cluster.root(cold), number % TOPS).join(format!("dir{number}"));
                assert_eq!(fs::read_dir(dir).unwrap().count() as u64, FILES);
            }
        };
        counts.push(cluster.requests(cold, "directories in no order", read));
    }
    assert!(counts[1] <= counts[0], "{counts:?}");
}

#[test]
fn a_reader_that_stops_soon_has_asked_for_little() {
    let (cluster, cold) = with_tree();
    let root = cluster.root(cold);
    run(root, "find . -quit; find . -maxdepth 1; ls -l top0");
    let ahead = cluster.stats(cold)["statahead_tree_total"]
        .as_u64()
        .unwrap();
    assert!(
        ahead < DIRECTORIES / 4,
        "{ahead} of {DIRECTORIES} directories"
    );
}

/// One change somewhere in the tree; may fail for what is there or not.
fn change(root: &Path, rng: &mut SeededRng) {
    let dir = |rng: &mut SeededRng| {
        let number = rng.below(TOPS * DIRS);
        top(root, rng.below(TOPS)).join(format!("dir{number}"))
    };
    let (one, other) = (dir(rng), dir(rng));
    let file = format!("file{}", rng.below(FILES + 5));
    let _ = match rng.below(6) {
        0 => fs::create_dir(one),
        1 => fs::rename(one, other),
        2 => fs::write(one.join(file), ""),
        3 => fs::remove_file(one.join(file)),
        4 => fs::rename(one.join(&file), other.join(file)),
        _ => fs::remove_dir_all(one),
    };
}

#[test]
fn walks_see_what_another_mount_has_changed() {
    let (mut cluster, cold) = with_tree();
    let other = cluster.mount();
    let mut rng = SeededRng::new(seed());
    let [ours, theirs] = [cold, other].map(|mount| cluster.root(mount).to_path_buf());
    for round in 0..40 {
        cluster.timed("changes and walks", || {
            let (changer, reader) = match round % 2 {
                0 => (&theirs, &ours),
                _ => (&ours, &theirs),
            };
            (0..30).for_each(|_| change(changer, &mut rng));
            assert_eq!(found(reader), found(changer), "round {round}");
        });
    }
}

/// A long answer to a walk may be older than a change whose own reply has overtaken it.
#[test]
fn what_a_mount_changed_while_it_walked_is_not_undone_by_the_walk() {
    for round in 0..5 {
        let (mut cluster, cold) = with_tree();
        let root = cluster.root(cold).to_path_buf();
        cluster.timed("names moved during a walk", || {
            let walked = root.clone();
            let walk = thread::spawn(move || found(&walked));
            for number in 0..TOPS * DIRS {
                let dir = top(&root, number % TOPS).join(format!("dir{number}"));
                fs::write(dir.join("new"), "").unwrap();
                fs::rename(dir.join("new"), dir.join("file0")).unwrap();
                fs::rename(dir.join("file1"), dir.join("moved")).unwrap();
            }
            walk.join().unwrap();
        });
        for number in 0..TOPS * DIRS {
            let dir = top(&root, number % TOPS).join(format!("dir{number}"));
            for gone in ["new", "file1"].map(|name| dir.join(name)) {
                assert!(!gone.exists(), "round {round}: {}", gone.display());
            }
            assert!(dir.join("moved").exists());
        }
        let other = cluster.mount();
        assert_eq!(found(&root), found(cluster.root(other)));
    }
}

#[test]
fn walks_under_change_find_what_stays_and_end() {
    let (mut cluster, cold) = with_tree();
    let other = cluster.mount();
    let [ours, theirs] = [cold, other].map(|mount| cluster.root(mount).to_path_buf());
    // The even ones are moved about, the odd ones stay.
    let stays: BTreeSet<String> = found(&ours)
        .into_iter()
        .filter(|path| {
            let dir = path
                .split('/')
                .nth(2)
                .and_then(|name| name.strip_prefix("dir"));
            dir.is_none_or(|number| number.parse::<u64>().unwrap() % 2 == 1)
        })
        .collect();
    cluster.timed("walks under change", || {
        let changes = thread::spawn(move || {
            let mut rng = SeededRng::new(seed());
            for _ in 0..2000 {
                let number = rng.below(TOPS * DIRS / 2) * 2;
                let [from, to] = [rng.below(TOPS), rng.below(TOPS)]
                    .map(|place| top(&theirs, place).join(format!("dir{number}")));
                let _ = fs::rename(from, to);
            }
        });
        while !changes.is_finished() {
            let found = found(&ours);
            let missing: Vec<_> = stays.difference(&found).collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
        changes.join().unwrap();
    });
    assert_eq!(found(&ours), found(cluster.root(other)));
}

#[test]
fn a_walk_goes_on_when_the_server_was_killed_in_its_middle() {
    let (mut cluster, cold) = with_tree();
    let root = cluster.root(cold).to_path_buf();
    let walk = thread::spawn(move || found(&root));
    thread::sleep(Duration::from_millis(3));
    cluster.kill_server();
    thread::sleep(Duration::from_millis(100));
    cluster.restart_server();
    let found = cluster.timed("a walk over a restart", || walk.join().unwrap());
    assert_eq!(found.len() as u64, ENTRIES);
}
