//! Programs that say which names they will ask for get them ahead, and the truth.
// SEMANTICS: op.advise

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::{self, sleep};
use std::time::Duration;

use base::{Rng, SeededRng};
use mounted::hint::{Hint, give, give_unknown};
use mounted::{Cluster, glint, run};
use nix::errno::Errno;
use nix::unistd::{Uid, geteuid, setfsuid};
use rustix::fs::{AtFlags, statat};

const FILES: u64 = 10_000;
/// A number that is not the last one of the name, so that no series is seen in them.
const TEXT: &[u8] = b"img\0.v2.mp4";
const DOCUMENT: &str = include_str!("../../../docs/advise.md");

fn name(number: u64) -> String {
    format!("img{number:06}.v2.mp4")
}

fn range(last: u64) -> Hint<'static> {
    Hint {
        kind: 1,
        width: 6,
        numbers: [0, last, 1],
        text: TEXT,
        ..Hint::default()
    }
}

/// A cluster with a directory of `count` files, durable, and a mount that knows nothing of them.
fn with_files(count: u64, name: impl Fn(u64) -> String) -> (Cluster, usize) {
    let mut cluster = Cluster::with_mounts(1);
    cluster.timed("making files", || {
        let dir = cluster.root(0).join("dir");
        fs::create_dir(&dir).unwrap();
        (0..count).for_each(|n| drop(File::create(dir.join(name(n))).unwrap()));
    });
    cluster.unmount(0);
    let cold = cluster.mount();
    (cluster, cold)
}

fn dir_of(cluster: &Cluster, mount: usize) -> PathBuf {
    cluster.root(mount).join("dir")
}

fn counted(cluster: &Cluster, mount: usize, name: &str) -> u64 {
    cluster.stats(mount)[name].as_u64().unwrap()
}

fn exist(dir: &Path, names: impl Iterator<Item = String>) -> u64 {
    names.filter(|name| dir.join(name).exists()).count() as u64
}

/// What is fetched for hints.
fn advised(cluster: &Cluster, mount: usize) -> Vec<serde_json::Value> {
    let walks = cluster.walks(mount).into_iter();
    walks.filter(|walk| walk["pattern"] == "advise").collect()
}

/// Of names that were advised, all there, nearly all were fetched before they were asked for, without
/// a listing and in few requests.
fn assert_fetched_ahead(cluster: &Cluster, mount: usize, sent: u64) {
    assert!(sent <= FILES / 100, "{sent} requests for {FILES} names");
    let hits = counted(cluster, mount, "statahead_advise_hit");
    assert!(hits > FILES * 99 / 100, "{hits} of {FILES} were ahead");
    assert_eq!(counted(cluster, mount, "readdir"), 0);
    assert_eq!(counted(cluster, mount, "statahead_wrong"), 0);
    assert!(counted(cluster, mount, "statahead_advise_total") > 0);
    let walks = advised(cluster, mount);
    let [walk] = &walks[..] else {
        panic!("one walk: {walks:?}");
    };
    assert_eq!(walk["dir"], "/dir");
    assert_eq!(
        (&walk["fetched"], &walk["used"]),
        (&FILES.into(), &hits.into())
    );
}

#[test]
fn names_of_a_range_and_of_a_list_come_ahead_without_a_listing() {
    let (mut cluster, cold) = with_files(FILES, name);
    let dir = dir_of(&cluster, cold);
    let open = File::open(&dir).unwrap();
    let sent = cluster.requests(cold, "a range", || {
        range(FILES - 1).give(&open).unwrap();
        assert_eq!(exist(&dir, (0..FILES).map(name)), FILES);
    });
    assert_fetched_ahead(&cluster, cold, sent);

    let mount = cluster.mount();
    let dir = dir_of(&cluster, mount);
    let open = File::open(&dir).unwrap();
    let names = shuffled((0..FILES).map(name).collect());
    let sent = cluster.requests(mount, "a list in no order", || {
        for part in names.chunks(200) {
            give_list(&open, part, 1).unwrap();
        }
        assert_eq!(exist(&dir, names.iter().cloned()), FILES);
    });
    assert_fetched_ahead(&cluster, mount, sent);
}

fn shuffled(mut names: Vec<String>) -> Vec<String> {
    let mut rng = SeededRng::new(5);
    for n in 1..names.len() {
        names.swap(n, rng.below(n as u64 + 1) as usize);
    }
    names
}

fn give_list(dir: &File, names: &[String], flags: u32) -> Result<(), Errno> {
    let text = names.join("\0");
    let list = Hint {
        kind: 2,
        flags,
        text: text.as_bytes(),
        ..Hint::default()
    };
    list.give(dir)
}

#[test]
fn what_makes_no_sense_is_refused_and_others_ioctls_are_not_ours() {
    let (cluster, cold) = with_files(2, name);
    let dir = dir_of(&cluster, cold);
    let open = File::open(&dir).unwrap();
    let file = File::open(dir.join(name(0))).unwrap();
    let fine = range(9).bytes();
    assert_eq!(give(&file, &fine), Err(Errno::ENOTTY));
    assert_eq!(give_unknown(&file, &fine), Err(Errno::ENOTTY));
    assert_eq!(give_unknown(&open, &fine), Err(Errno::ENOTTY));
    // First: an unknown version, and what is reserved.
    for (at, byte) in [(0, 2), (44, 1), (4095, 1)] {
        let mut bytes = fine;
        bytes[at] = byte;
        assert_eq!(give(&open, &bytes), Err(Errno::EINVAL), "byte {at}");
    }
    let with = |change: fn(&mut Hint)| {
        let mut hint = range(9);
        change(&mut hint);
        hint
    };
    let wrong = [
        with(|hint| hint.kind = 9),
        with(|hint| hint.flags = 1),
        with(|hint| hint.width = 19),
        with(|hint| hint.numbers = [2, 1, 1]),
        with(|hint| hint.numbers = [0, 9, 0]),
        with(|hint| hint.numbers = [0, u64::MAX, 1]),
        with(|hint| hint.numbers = [0, 1 << 31, 1]),
        with(|hint| hint.text = b"a/\0b"),
        with(|hint| hint.text = b"a"),
        Hint {
            kind: 2,
            ..Hint::default()
        },
        Hint {
            kind: 2,
            text: b"a\0\0b",
            ..Hint::default()
        },
        Hint {
            kind: 2,
            text: b"..",
            ..Hint::default()
        },
        Hint {
            kind: 3,
            text: b"a",
            ..Hint::default()
        },
    ];
    for hint in wrong {
        assert_eq!(hint.give(&open), Err(Errno::EINVAL), "{hint:?}");
    }
    assert_eq!(counted(&cluster, cold, "statahead_advise_total"), 0);
}

#[test]
fn one_hint_at_a_time_and_none_where_nothing_is_fetched_ahead() {
    let (cluster, cold) = with_files(2000, name);
    let dir = dir_of(&cluster, cold);
    let [open, other] = [(); 2].map(|()| File::open(&dir).unwrap());
    range(1999).give(&open).unwrap();
    let tree = Hint {
        kind: 3,
        ..Hint::default()
    };
    assert_eq!(range(1999).give(&open), Err(Errno::EALREADY));
    assert_eq!(tree.give(&open), Err(Errno::EALREADY));
    let long: Vec<String> = (0..100_000).map(|n| format!("other{n}")).collect();
    let full = long
        .chunks(200)
        .find_map(|part| give_list(&other, part, 1).err());
    assert_eq!(full, Some(Errno::EAGAIN));
    assert_eq!(give_list(&other, &long[..9], 0), Err(Errno::EALREADY));

    cluster.set_param(cold, "statahead_max", 0);
    let off = File::open(&dir).unwrap();
    let sent = cluster.requests(cold, "hints", || {
        range(1999).give(&off).unwrap();
        range(1999).give(&off).unwrap();
        tree.give(&off).unwrap();
    });
    assert_eq!(sent, 0);
}

#[test]
fn a_range_ends_with_the_directory_that_it_was_said_of() {
    let (cluster, cold) = with_files(2000, name);
    let dir = dir_of(&cluster, cold);
    let fetched = || counted(&cluster, cold, "statahead_entries");
    let open = File::open(&dir).unwrap();
    range(1999).give(&open).unwrap();
    assert_eq!(exist(&dir, (0..10).map(name)), 10);
    assert_eq!((fetched(), advised(&cluster, cold).len()), (256, 1));
    drop(open);
    // RELEASEDIR is on its way; nobody waits for it.
    while !advised(&cluster, cold).is_empty() {
        sleep(Duration::from_millis(5));
    }
    assert_eq!(exist(&dir, (0..500).map(name)), 500);
    assert_eq!(fetched(), 256);
}

#[test]
fn a_name_that_was_not_there_when_it_was_fetched_is_seen_when_it_is_made() {
    let (mut cluster, cold) = with_files(60, |n| name(2 * n));
    let other = cluster.mount();
    let [here, there] = [cold, other].map(|mount| dir_of(&cluster, mount));
    let open = File::open(&here).unwrap();
    range(119).give(&open).unwrap();
    let sent = cluster.requests(cold, "those there, and those not", || {
        assert_eq!(exist(&here, (0..120).map(name)), 60);
    });
    assert!(sent <= 3, "{sent} requests: absence is known ahead as well");
    cluster.timed("changes elsewhere", || {
        for n in 0..120 {
            let (seen, made) = (here.join(name(n)), there.join(name(n)));
            match n % 2 {
                0 => fs::remove_file(&made).unwrap(),
                _ => drop(File::create(&made).unwrap()),
            }
            assert_eq!(seen.exists(), n % 2 == 1, "{n}");
        }
    });
}

#[test]
fn who_may_not_search_the_directory_is_told_nothing() {
    if !geteuid().is_root() {
        println!("not tested: only root can be another user");
        return;
    }
    let (cluster, cold) = with_files(50, name);
    let dir = dir_of(&cluster, cold);
    let open = File::open(&dir).unwrap();
    let look = |mode: u32| {
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
        let as_nobody = || {
            // Of this thread alone, and with it go root's rights to pass.
            setfsuid(Uid::from_raw(65_534));
            let given = range(49).give(&open);
            let found = statat(&open, name(7), AtFlags::empty());
            (given, found.map(drop))
        };
        thread::scope(|scope| scope.spawn(as_nobody).join().unwrap())
    };
    assert_eq!(look(0o744), (Ok(()), Err(rustix::io::Errno::ACCESS)));
    assert_eq!(look(0o755).1, Ok(()));
}

#[test]
fn a_tree_is_fetched_behind_the_call() {
    let (mut cluster, warm) = with_files(1, name);
    cluster.timed("making directories", || {
        for dir in (0..40).map(|n| dir_of(&cluster, warm).join(format!("below{n}"))) {
            fs::create_dir(&dir).unwrap();
            (0..10).for_each(|n| drop(File::create(dir.join(name(n))).unwrap()));
        }
    });
    cluster.unmount(warm);
    let cold = cluster.mount();
    let dir = dir_of(&cluster, cold);
    let open = File::open(&dir).unwrap();
    let tree = Hint {
        kind: 3,
        ..Hint::default()
    };
    tree.give(&open).unwrap();
    // It is over when another one is taken.
    while tree.give(&open) == Err(Errno::EALREADY) {
        sleep(Duration::from_millis(5));
    }
    // Without it each directory costs a request from here on.
    cluster.set_param(cold, "statahead_max", 0);
    let walk = || run(&dir, "find . -size +1");
    let sent = cluster.requests(cold, "a walk", walk);
    assert!(
        sent <= 1,
        "{sent} requests; a second tree may be on its way"
    );
}

#[test]
fn a_range_is_fetched_by_command_too() {
    let (cluster, cold) = with_files(1000, |n| name(2 * n));
    let dir = dir_of(&cluster, cold);
    let prefetch = |words: &[&str]| -> Output {
        let mut command = Command::new(glint());
        command.args(["fs", "prefetch", "--json", "--range"]);
        command.args(words).output().unwrap()
    };
    let path = dir.to_str().unwrap();
    let pattern = "img%06d.v2.mp4";
    let fetch = |step: &str, entries: u64| {
        let output = prefetch(&[pattern, "0", "1999", "--step", step, path]);
        let came: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(came["entries"], entries, "{output:?}");
    };
    let sent = cluster.requests(cold, "by command", || fetch("1", 1000));
    assert!(sent <= 4 + 2000 / 256, "{sent} requests");
    let sent = cluster.requests(cold, "again", || fetch("4", 500));
    assert_eq!(sent, 0, "all of it is at hand");
    let look = || assert_eq!(exist(&dir, (0..2000).map(name)), 1000);
    // Only so many absent names are remembered.
    assert_eq!(cluster.requests(cold, "looks", look), 0);
    for (words, said) in [
        (["img", "0", "9", path], "%04d"),
        ([pattern, "9", "0", path], "names go up"),
        (
            [pattern, "0", "9", &format!("{path}/{}", name(0))],
            "not a directory",
        ),
        ([pattern, "0", "9", "/proc"], "/proc"),
    ] {
        let output = prefetch(&words);
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && wrong.contains(said), "{wrong}");
    }
}

/// The code of all blocks of the document in this language.
fn documented(language: &str) -> String {
    let start = format!("```{language}\n");
    let blocks = DOCUMENT.split(&start).skip(1);
    let code = blocks.filter_map(|block| block.split("```").next());
    code.collect()
}

#[test]
fn what_the_document_shows_works() {
    let (mut cluster, cold) = with_files(240, |n| format!("shot{:04}.exr", n + 1));
    let local = cluster.local();
    fs::write(local.join("advise.py"), documented("python")).unwrap();
    fs::write(local.join("advise.c"), documented("c")).unwrap();
    run(&local, "cc -Wall -Wextra -Werror -o advise advise.c");
    let second = cluster.mount();
    let programs = [
        (cold, "./advise", 240, 1),
        (second, "python3 advise.py", 240, 2),
    ];
    for (mount, program, hits, hints) in programs {
        let dir = dir_of(&cluster, mount);
        let sent = cluster.requests(mount, program, || {
            run(&local, &format!("{program} {}", dir.display()));
        });
        assert!(sent <= 4, "{sent} requests of {program}");
        assert_eq!(counted(&cluster, mount, "statahead_advise_hit"), hits);
        assert_eq!(counted(&cluster, mount, "statahead_advise_total"), hints);
    }
}
