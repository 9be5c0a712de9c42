//! Names and attributes that are changed while the mount's process and its servers are killed. The result is
//! that of the same changes on the local file system.
// SEMANTICS: crash.mount, crash.server

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::Path;
use std::time::Duration;

use base::{Rng, SeededRng};
use mounted::deaths::{Victims, kill_all, nothing_is_committed};
use mounted::{Cluster, Work, count, output, run, seed};
use rustix::fs::{
    AtFlags, CWD, RenameFlags, Timespec, Timestamps, XattrFlags, lremovexattr, lsetxattr,
    renameat_with, utimensat,
};

/// How long work may take whose mount dies again and again.
const LONG: Duration = Duration::from_secs(300);

fn supervised() -> Cluster {
    let mut cluster = Cluster::with_mounts_of(1, &["--supervisor"]);
    cluster.mount();
    cluster
}

/// Each kind of change.
const CHANGES: &str = "
mkdir -p d/e d/i; for i in $(seq 50); do echo $i > d/f$i; done; for i in 1 2 3; do rm d/f$i; done
mv d/f4 d/e/moved; mv d/f5 d/f6; ln d/f7 d/e/hard; ln -s nowhere d/soft; chmod 640 d/f8
touch -d '2001-02-03 UTC' d/f9; chown 7:8 d/f10
echo new > d/f11; mkdir d/gone; rmdir d/gone; mkfifo d/fifo
truncate -s 1 d/f13; truncate -s 9000 d/f14; fallocate -l 5000 d/f15; fallocate -p -l 1 d/f16
setfattr -n user.one -v value d/f17; setfattr -n trusted.two -v 0x000102 d/f17
for n in a b c; do setfattr -n user.$n -v $n d/i; done; setfattr -x user.b d/i
setfattr -n user.one -v old d/f18; setfattr -n user.one -v new d/f18
chmod 6755 d/f19; chown 1000 d/f19; chown :1001 d/i; chmod 3777 d/i
ln -s f20 d/linked; chown -h 9:10 d/linked; touch -h -d '1969-07-20 20:17:40.123456789 UTC' d/linked
touch -a -d '2002-03-04 05:06:07.89 UTC' d/f21; touch -m -d '2003-04-05 06:07:08.9 UTC' d/f21
touch -d '2004-05-06 UTC' d/e/moved d/i; cp -p d/f21 d/kept
";
/// What can be seen of it. Times that nobody set are the clock's.
const LOOK: &str = "
find d | LC_ALL=C sort; find d -type f | LC_ALL=C sort | xargs cat
stat -c '%n %A %u:%g %h' d d/* d/*/*; find d -type f | LC_ALL=C sort | xargs stat -c '%n %s'
stat -c '%n %y' d/f9 d/linked d/f21 d/*/moved d/i
readlink d/soft d/linked; find d -type f -o -type d | LC_ALL=C sort | xargs getfattr -d -m '^(user|trusted)'
";

fn exchange(dir: &Path, one: &str, two: &str) -> rustix::io::Result<()> {
    renameat_with(
        CWD,
        dir.join(one),
        CWD,
        dir.join(two),
        RenameFlags::EXCHANGE,
    )
}

/// Makes them, here and on the local file system.
fn change(dirs: [&Path; 2]) {
    for dir in dirs {
        run(dir, CHANGES);
        exchange(dir, "d/f22", "d/f23").unwrap();
        exchange(dir, "d/f24", "d/e").unwrap();
        exchange(dir, "d/soft", "d/e").unwrap();
    }
}

/// Each kind of change, then the death of everybody who knew of it.
fn change_and_kill_all(worker_first: bool) {
    let mut cluster = supervised();
    let (root, local) = (cluster.root(0).to_owned(), cluster.local());
    nothing_is_committed(&cluster);
    change([&root, &local]);
    let seen = output(&local, LOOK);
    assert!(seen.contains("2001-02-03"), "{seen}");
    assert_eq!(output(&root, LOOK), seen, "before");
    kill_all(&mut cluster, worker_first);
    cluster.timed_for(LONG, "looking again", || {
        assert_eq!(output(&root, LOOK), seen);
        assert_eq!(output(cluster.root(1), LOOK), seen, "elsewhere");
    });
    // What it had done again is durable some time, and known as such: the next death finds the rest.
    for dir in [&root, &local] {
        run(
            dir,
            "mkdir d/later; echo more >> d/f12; setfattr -n user.one -v later d/f17",
        );
        exchange(dir, "d/f22", "d/later").unwrap();
    }
    let seen = output(&local, LOOK);
    kill_all(&mut cluster, !worker_first);
    cluster.timed_for(LONG, "looking once more", || {
        assert_eq!(output(&root, LOOK), seen);
    });
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
    cluster.restart_server();
}

#[test]
fn changes_that_nobody_synced_outlive_both_the_process_and_its_servers() {
    change_and_kill_all(false);
}

#[test]
fn they_do_also_where_the_process_dies_first() {
    change_and_kill_all(true);
}

/// A change of one of a few names in a directory, or of two.
#[derive(Debug)]
enum Change {
    MakeFile(String),
    MakeDirectory(String),
    MakeSymlink(String, String),
    Remove(String),
    Rename(String, String),
    Exchange(String, String),
    Own(String, u32, u32),
    Mode(String, u32),
    Times(String, Timestamps),
    SetXattr(String, String, Vec<u8>),
    RemoveXattr(String, String),
}

impl Change {
    /// By the dice.
    fn new(rng: &mut SeededRng) -> Change {
        let name = a_name(rng);
        let xattr = ["user.one", "user.two", "trusted.three"][rng.below(3) as usize].to_owned();
        match rng.below(14) {
            0..=1 => Change::MakeFile(name),
            2 => Change::MakeDirectory(name),
            3 => Change::MakeSymlink(a_name(rng), name),
            4 => Change::Remove(name),
            5 => Change::Rename(name, a_name(rng)),
            6..=7 => Change::Exchange(name, a_name(rng)),
            8 => Change::Own(name, rng.below(5) as u32, rng.below(5) as u32),
            9 => Change::Mode(name, rng.below(0o10000) as u32),
            10 => Change::Times(name, times(rng)),
            11..=12 => {
                let value = vec![rng.below(256) as u8; rng.below(300) as usize];
                Change::SetXattr(name, xattr, value)
            }
            _ => Change::RemoveXattr(name, xattr),
        }
    }

    fn make(&self, dir: &Path) -> io::Result<()> {
        let at = |name: &str| dir.join(name);
        match self {
            Change::MakeFile(name) => {
                File::options()
                    .write(true)
                    .create_new(true)
                    .open(at(name))?;
                set_times(&at(name), &made())
            }
            Change::MakeDirectory(name) => fs::create_dir(at(name)),
            Change::MakeSymlink(target, name) => {
                symlink(target, at(name))?;
                set_times(&at(name), &made())
            }
            Change::Remove(name) if at(name).symlink_metadata()?.is_dir() => {
                fs::remove_dir(at(name))
            }
            Change::Remove(name) => fs::remove_file(at(name)),
            Change::Rename(one, two) => fs::rename(at(one), at(two)),
            Change::Exchange(one, two) => Ok(exchange(dir, one, two)?),
            Change::Own(name, user, group) => lchown(at(name), Some(*user), Some(*group)),
            Change::Mode(name, mode) => {
                fs::set_permissions(at(name), Permissions::from_mode(*mode))
            }
            Change::Times(name, times) => set_times(&at(name), times),
            Change::SetXattr(name, xattr, value) => {
                Ok(lsetxattr(at(name), xattr, value, XattrFlags::empty())?)
            }
            Change::RemoveXattr(name, xattr) => Ok(lremovexattr(at(name), xattr)?),
        }
    }
}

fn a_name(rng: &mut SeededRng) -> String {
    format!("n{}", rng.below(12))
}

fn times(rng: &mut SeededRng) -> Timestamps {
    let mut time = || Timespec {
        tv_sec: rng.below(1 << 31) as i64 - (1 << 30),
        tv_nsec: rng.below(1_000_000_000) as i64,
    };
    Timestamps {
        last_access: time(),
        last_modification: time(),
    }
}

/// Of what has just been made, since clocks differ.
fn made() -> Timestamps {
    let time = Timespec {
        tv_sec: 1_000_000_000,
        tv_nsec: 1,
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

fn set_times(path: &Path, times: &Timestamps) -> io::Result<()> {
    Ok(utimensat(CWD, path, times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// What can be seen of them; the times of directories are the clock's, and locally a link says when it was
/// followed.
const LOOK_AT_NAMES: &str = "
names=$(ls | LC_ALL=C sort); stat -c '%n %F %a %u:%g %h' $names
find . ! -type d -printf '%P %T@ %l\\n' | LC_ALL=C sort
find . -type f -printf '%P %A@\\n' | LC_ALL=C sort
for name in $names; do getfattr -h -d -m '^(user|trusted)' $name; done
";

/// Changes names and attributes over and over without a sync, and local ones in the same way: what is
/// refused is refused here and there.
fn change_under_kills(victims: Victims, kills: u64) {
    let mut cluster = supervised();
    let mut rng = SeededRng::new(seed());
    let dirs = [cluster.root(0).to_owned(), cluster.local()].map(|root| root.join("dir"));
    dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let ([ours, theirs], there) = (dirs.clone(), cluster.root(1).join("dir"));
    if let Victims::All = victims {
        nothing_is_committed(&cluster);
    }
    let seed = rng.next_u64();
    let changing = Work::start(move |goes_on| {
        let mut rng = SeededRng::new(seed);
        let (mut done, mut refused) = (0, 0);
        while goes_on() {
            let change = Change::new(&mut rng);
            let results = dirs.each_ref().map(|dir| {
                let result = change.make(dir).map_err(|error| error.raw_os_error());
                result.err().flatten()
            });
            assert_eq!(results[0], results[1], "{change:?}");
            match results[0] {
                None => done += 1,
                Some(_) => refused += 1,
            }
        }
        (done, refused)
    });
    victims.die(&mut cluster, &mut rng, kills);
    cluster.timed_for(LONG, "changing", || {
        let (done, refused) = changing.end();
        println!("{done} changes, {refused} refused");
        let truth = output(&theirs, LOOK_AT_NAMES);
        assert_eq!(output(&ours, LOOK_AT_NAMES), truth, "here");
        assert_eq!(output(&there, LOOK_AT_NAMES), truth, "elsewhere");
    });
}

#[test]
fn names_and_attributes_outlive_the_process() {
    change_under_kills(Victims::Process, 5);
}

#[test]
fn names_and_attributes_outlive_the_process_and_its_servers() {
    change_under_kills(Victims::All, 3);
}

#[test]
#[ignore = "minutes; `make soak`"]
fn soak_names_and_attributes_under_killed_processes() {
    change_under_kills(Victims::Process, count("KILLS", 50));
}

#[test]
#[ignore = "minutes; `make soak`"]
fn soak_names_and_attributes_while_processes_and_servers_die() {
    change_under_kills(Victims::All, count("KILLS", 30));
}
