//! Names that move while the kernel must still forget the files behind them.
// SEMANTICS: op.rename, cache.names

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use base::{Rng, SeededRng};
use mounted::{Cluster, Work, seed};
use nix::unistd::{chown, getegid, geteuid};

const MDT: &str = "mdt.glint-MDT0";
/// Until a call is known to wait in the kernel or at the server.
const BEGUN: Duration = Duration::from_millis(300);

fn inode(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).map(|stat| stat.ino()).ok()
}

/// Moves `moved` to `target` on one mount, after another mount has replaced `moved`. Meanwhile a call that
/// waits for the server holds the kernel's lock on their directory, so that the kernel cannot forget the old
/// `moved`.
fn move_what_was_replaced(directories: bool) {
    let cluster = Cluster::with_mounts(2);
    let [here, there] = [0, 1].map(|mount| cluster.root(mount).join("dir"));
    let make = |path: &Path| match directories {
        true => fs::create_dir(path),
        false => File::create(path).map(drop),
    };
    cluster.timed("preparing", || {
        fs::create_dir(&there).unwrap();
        make(&there.join("moved")).unwrap();
        make(&there.join("other")).unwrap();
        if !directories {
            // It stays a file, whatever becomes of this name.
            fs::hard_link(there.join("moved"), there.join("kept")).unwrap();
        }
        assert!(inode(&here.join("moved")).is_some());
    });
    let other = inode(&there.join("other"));
    cluster.rule(MDT, "start slow opcode={create} rate=1 burst=1");
    thread::scope(|scope| {
        let creating = scope.spawn(|| {
            for number in 0..3 {
                File::create(here.join(format!("made{number}"))).unwrap();
            }
        });
        thread::sleep(BEGUN);
        let moving = scope.spawn(|| fs::rename(here.join("moved"), here.join("target")));
        thread::sleep(BEGUN);
        cluster.timed("the other mount", || {
            fs::rename(there.join("other"), there.join("moved")).unwrap();
        });
        creating.join().unwrap();
        moving.join().unwrap().unwrap();
    });
    cluster.rule(MDT, "stop slow");
    cluster.timed("looking", || {
        for dir in [&here, &there] {
            assert_eq!(inode(&dir.join("target")), other, "{}", dir.display());
            assert_eq!(inode(&dir.join("moved")), None, "{}", dir.display());
        }
    });
}

#[test]
fn a_file_that_came_in_place_of_another_is_what_has_moved() {
    move_what_was_replaced(false);
}

#[test]
fn a_directory_that_came_in_place_of_another_is_what_has_moved() {
    move_what_was_replaced(true);
}

/// What is open needs no name, and a name that is forgotten late and leads where it did has not moved.
#[test]
fn an_open_file_has_attributes_while_its_name_is_forgotten() {
    let cluster = Cluster::with_mounts(2);
    let [here, there] = [0, 1].map(|mount| cluster.root(mount).join("dir"));
    fs::create_dir(&there).unwrap();
    fs::write(there.join("file"), "bytes").unwrap();
    let open = File::open(here.join("file")).unwrap();
    assert_eq!(open.metadata().unwrap().len(), 5);
    cluster.rule(MDT, "start slow opcode={create} rate=1 burst=1");
    thread::scope(|scope| {
        let creating = scope.spawn(|| {
            for number in 0..4 {
                File::create(here.join(format!("made{number}"))).unwrap();
            }
        });
        thread::sleep(BEGUN);
        cluster.timed("the other mount", || {
            fs::rename(there.join("file"), there.join("away")).unwrap();
            fs::rename(there.join("away"), there.join("file")).unwrap();
        });
        cluster.timed("attributes", || {
            assert!(!creating.is_finished(), "nothing holds the directory");
            while !creating.is_finished() {
                assert_eq!(open.metadata().unwrap().len(), 5);
            }
        });
        creating.join().unwrap();
    });
    cluster.rule(MDT, "stop slow");
}

/// A name of a file that has another one is removed by another mount. A thread that was told before to look
/// names up once more does not believe it either.
#[test]
fn a_link_that_another_mount_removed_leads_nowhere() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 100;
    let cluster = Cluster::with_mounts(2);
    let roots = [0, 1].map(|mount| cluster.root(mount).to_owned());
    let works: Vec<_> = (0..THREADS)
        .map(|number| {
            let (roots, mut rng) = (roots.clone(), SeededRng::new(seed() + number));
            Work::start(move |_| {
                let (name, link) = (format!("file{number}"), format!("link{number}"));
                File::create(roots[0].join(&name)).unwrap();
                let mut root = || &roots[rng.below(2) as usize];
                for round in 0..ROUNDS {
                    for _ in 0..2 {
                        chown(&root().join(&name), Some(geteuid()), Some(getegid())).unwrap();
                    }
                    let [here, there] = [root(), root()];
                    fs::hard_link(here.join(&name), here.join(&link)).unwrap();
                    fs::remove_file(there.join(&link)).unwrap();
                    let found = inode(&here.join(&link));
                    assert_eq!(found, None, "of thread {number} in round {round}");
                }
            })
        })
        .collect();
    cluster.timed_for(Duration::from_secs(120), "all rounds", || {
        works.into_iter().for_each(Work::end);
    });
}
