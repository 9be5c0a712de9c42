//! Renames of the same names by several mounts at once. The MDT puts them in an order, and each caller is
//! told what its own rename did in that order.
// SEMANTICS: op.rename

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use mounted::{Cluster, count};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

/// For all rounds of a test.
const LIMIT: Duration = Duration::from_secs(200);

fn rounds() -> u64 {
    count("RIVAL_ROUNDS", 150)
}

fn inode(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).map(|stat| stat.ino()).ok()
}

fn rename(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
    Ok(renameat2(AT_FDCWD, from, AT_FDCWD, to, flags)?)
}

/// One rename of two names.
struct Contest {
    names: [&'static str; 2],
    flags: RenameFlags,
    /// Each mount has looked at both names before.
    is_known: bool,
}

impl Contest {
    fn new(flags: RenameFlags) -> Contest {
        Contest {
            names: ["x", "y"],
            flags,
            is_known: true,
        }
    }

    fn places(&self, root: &Path) -> [PathBuf; 2] {
        self.names.map(|name| root.join("dir").join(name))
    }

    /// Each mount renames once, all at the same moment. What came of it.
    fn hold(&self, cluster: &Cluster) -> Vec<Option<i32>> {
        let start = Barrier::new(cluster.mount_count());
        let rival = |mount: usize| {
            let [from, to] = self.places(cluster.root(mount));
            if self.is_known {
                let _ = (inode(&from), inode(&to));
            }
            start.wait();
            let renamed = rename(&from, &to, self.flags);
            renamed.err().map(|error| error.raw_os_error().unwrap())
        };
        thread::scope(|scope| {
            let mounts = 0..cluster.mount_count();
            let rivals: Vec<_> = mounts
                .map(|mount| scope.spawn(move || rival(mount)))
                .collect();
            let ends = rivals.into_iter().map(|rival| rival.join().unwrap());
            ends.collect()
        })
    }
}

/// Rounds in which not just one rival was successful, or another one had another error than `ENOENT`.
fn wrong_rounds(cluster: &Cluster, contest: &Contest, prepare: impl Fn(&[PathBuf; 2])) -> u64 {
    let mut wrong = 0;
    for round in 0..rounds() {
        let places = contest.places(cluster.root(round as usize % cluster.mount_count()));
        prepare(&places);
        let number = inode(&places[0]);
        let mut ends = contest.hold(cluster);
        ends.sort();
        let is_right = ends[0].is_none() && ends[1..].iter().all(|end| *end == Some(libc::ENOENT));
        if !is_right {
            println!("round {round}: {ends:?}");
        }
        wrong += u64::from(!is_right);
        for mount in 0..cluster.mount_count() {
            let [from, to] = contest.places(cluster.root(mount));
            assert_eq!((inode(&from), inode(&to)), (None, number), "round {round}");
        }
    }
    wrong
}

fn clear(path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(stat) if stat.is_dir() => fs::remove_dir(path).unwrap(),
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

/// Two and three mounts in one contest after the other.
fn contests(contest: &Contest, prepare: impl Fn(&[PathBuf; 2])) {
    for mounts in [2, 3] {
        let cluster = Cluster::with_mounts(mounts);
        fs::create_dir_all(cluster.root(0).join("dir/below")).unwrap();
        cluster.timed_for(LIMIT, "all rounds", || {
            let wrong = wrong_rounds(&cluster, contest, |places| {
                places.iter().for_each(|place| clear(place));
                prepare(places);
            });
            println!("{mounts} mounts: {wrong} of {} rounds were wrong", rounds());
            assert_eq!(wrong, 0, "{mounts} mounts, of {} rounds", rounds());
        });
    }
}

fn file(path: &Path) {
    drop(File::create(path).unwrap());
}

#[test]
fn a_file_is_renamed_by_one_mount_only() {
    contests(&Contest::new(RenameFlags::empty()), |[from, _]| file(from));
}

#[test]
fn a_file_that_no_mount_has_looked_at_is_renamed_by_one_mount_only() {
    let contest = Contest {
        is_known: false,
        ..Contest::new(RenameFlags::empty())
    };
    contests(&contest, |[from, _]| file(from));
}

#[test]
fn a_file_takes_the_place_of_another_for_one_mount_only() {
    let contest = Contest::new(RenameFlags::empty());
    contests(&contest, |places| {
        places.iter().for_each(|place| file(place))
    });
}

#[test]
fn a_directory_is_renamed_by_one_mount_only() {
    let contest = Contest::new(RenameFlags::empty());
    contests(&contest, |[from, _]| fs::create_dir(from).unwrap());
}

#[test]
fn a_file_goes_to_another_directory_under_its_name_for_one_mount_only() {
    let contest = Contest {
        names: ["x", "below/x"],
        ..Contest::new(RenameFlags::empty())
    };
    contests(&contest, |[from, _]| file(from));
}

#[test]
fn a_file_is_renamed_to_a_free_name_by_one_mount_only() {
    contests(&Contest::new(RenameFlags::RENAME_NOREPLACE), |[from, _]| {
        file(from)
    });
}

/// Each exchange counts: after an even number of them the names lead where they led before.
#[test]
fn every_exchange_of_two_names_happens() {
    for mounts in [2, 3] {
        let cluster = Cluster::with_mounts(mounts);
        let contest = Contest::new(RenameFlags::RENAME_EXCHANGE);
        fs::create_dir(cluster.root(0).join("dir")).unwrap();
        let places = contest.places(cluster.root(0));
        places.iter().for_each(|place| file(place));
        let mut numbers = [0, 1].map(|place| inode(&places[place]));
        let mut wrong = 0;
        cluster.timed_for(LIMIT, "all rounds", || {
            for round in 0..rounds() {
                let ends = contest.hold(&cluster);
                assert!(ends.iter().all(Option::is_none), "round {round}: {ends:?}");
                if mounts % 2 == 1 {
                    numbers.reverse();
                }
                let found = (0..mounts).map(|mount| contest.places(cluster.root(mount)));
                let found: Vec<_> = found
                    .map(|places| [0, 1].map(|n| inode(&places[n])))
                    .collect();
                assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
                wrong += u64::from(found[0] != numbers);
                numbers = found[0];
            }
        });
        println!("{mounts} mounts: {wrong} of {} rounds were wrong", rounds());
        assert_eq!(wrong, 0, "{mounts} mounts, of {} rounds", rounds());
    }
}

/// Of two names of one file neither goes, whichever mounts rename the one to the other.
#[test]
fn two_names_of_a_file_stay_where_one_is_renamed_to_the_other() {
    let cluster = Cluster::with_mounts(2);
    let contest = Contest::new(RenameFlags::empty());
    fs::create_dir(cluster.root(0).join("dir")).unwrap();
    let [from, to] = contest.places(cluster.root(0));
    file(&from);
    fs::hard_link(&from, &to).unwrap();
    let number = inode(&from);
    cluster.timed_for(LIMIT, "all rounds", || {
        for round in 0..rounds() / 3 {
            let names = [["x", "y"], ["y", "x"]][round as usize % 2];
            let contest = Contest {
                names,
                is_known: round % 3 > 0,
                ..Contest::new(RenameFlags::empty())
            };
            assert_eq!(contest.hold(&cluster), [None, None], "round {round}");
            for mount in 0..2 {
                for place in contest.places(cluster.root(mount)) {
                    assert_eq!(inode(&place), number, "round {round}, {}", place.display());
                }
            }
            let [one, other] = contest.places(cluster.root(0));
            rename(&one, &other, RenameFlags::RENAME_EXCHANGE).unwrap();
            let taken = rename(&one, &other, RenameFlags::RENAME_NOREPLACE);
            assert_eq!(taken.unwrap_err().raw_os_error(), Some(libc::EEXIST));
        }
    });
}
