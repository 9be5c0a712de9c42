//! Calls by names that another mount has just given to other files, before this kernel could forget them.
// SEMANTICS: op.readlink, op.link, op.rename, cache.names

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use mounted::{Cluster, Work};
use nix::fcntl::{AT_FDCWD, AtFlags, RenameFlags, renameat2};
use nix::unistd::{linkat, truncate};
use rustix::fs::{XattrFlags, getxattr, setxattr};

const MDT: &str = "mdt.glint-MDT0";
/// Until a call is known to wait in the kernel or at the server.
const BEGUN: Duration = Duration::from_millis(300);
/// For how long mounts get into each other's way.
const ATTACK: Duration = Duration::from_secs(3);

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

/// Two names change places.
fn exchange(dir: &Path, one: &str, other: &str) {
    let [one, other] = [one, other].map(|name| dir.join(name));
    let flags = RenameFlags::RENAME_EXCHANGE;
    renameat2(AT_FDCWD, &one, AT_FDCWD, &other, flags).unwrap();
}

/// Replaces a symlink by one to `target`.
fn replace_link(dir: &Path, target: &str) {
    symlink(target, dir.join("fresh")).unwrap();
    fs::rename(dir.join("fresh"), dir.join("link")).unwrap();
}

fn is_read_as(dir: &Path, target: &str) -> bool {
    fs::read_link(dir.join("link")).unwrap() == Path::new(target)
}

/// Two mounts, and a directory where calls of the first one keep its kernel from forgetting names. Each takes
/// a second, all three seconds.
struct Held {
    cluster: Cluster,
    here: PathBuf,
    there: PathBuf,
}

impl Held {
    /// The files `one` and `other`, which are called by their content, and a symlink to the first. All are
    /// known to the kernel of the first mount.
    fn prepare() -> Held {
        let cluster = Cluster::with_mounts(2);
        let [here, there] = [0, 1].map(|mount| cluster.root(mount).join("dir"));
        cluster.timed("preparing", || {
            fs::create_dir(&there).unwrap();
            fs::create_dir(cluster.root(1).join("beside")).unwrap();
            for name in ["one", "other"] {
                fs::write(there.join(name), name).unwrap();
                inode(&here.join(name));
            }
            symlink("one", there.join("link")).unwrap();
            assert!(is_read_as(&here, "one"));
            assert_eq!(fs::read(here.join("link")).unwrap(), b"one");
        });
        Held {
            cluster,
            here,
            there,
        }
    }

    fn beside(&self) -> PathBuf {
        self.cluster.root(0).join("beside")
    }

    /// Does `work` while the directory is held.
    fn during(&self, work: impl FnOnce()) {
        let Held { cluster, here, .. } = self;
        cluster.rule(MDT, "start slow opcode={create} rate=1 burst=1");
        thread::scope(|scope| {
            let making = scope.spawn(|| {
                let made = |number| here.join(format!("made{number}"));
                (0..3).for_each(|number| drop(File::create(made(number)).unwrap()));
            });
            thread::sleep(BEGUN);
            cluster.timed("calls", work);
            making.join().unwrap();
        });
        cluster.rule(MDT, "stop slow");
    }
}

#[test]
fn a_replaced_symlink_leads_to_its_new_target_at_once() {
    let held = Held::prepare();
    held.during(|| {
        replace_link(&held.there, "other");
        assert_eq!(fs::read(held.here.join("link")).unwrap(), b"other");
        replace_link(&held.there, "one");
        assert!(is_read_as(&held.here, "one"));
    });
}

#[test]
fn a_file_is_linked_by_the_name_that_another_mount_has_given_to_it() {
    let held = Held::prepare();
    let number = inode(&held.there.join("other"));
    held.during(|| {
        exchange(&held.there, "one", "other");
        fs::hard_link(held.here.join("one"), held.here.join("new")).unwrap();
    });
    assert_eq!(inode(&held.there.join("new")), number);
}

/// What of a file is open, and its path.
fn descriptor(path: &Path) -> (File, PathBuf) {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_PATH).open(path);
    let file = file.unwrap();
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    (file, path)
}

#[test]
fn a_descriptor_leads_to_its_file_while_another_mount_moves_the_name() {
    let held = Held::prepare();
    let number = inode(&held.there.join("one"));
    let (file, by_number) = descriptor(&held.here.join("one"));
    let linked = |name: &str| assert_eq!(inode(&held.beside().join(name)), number, "{name}");
    held.during(|| {
        exchange(&held.there, "one", "other");
        let new = held.beside().join("empty");
        linkat(&file, "", AT_FDCWD, &new, AtFlags::AT_EMPTY_PATH).unwrap();
        linked("empty");
        let new = held.beside().join("by_number");
        let follow = AtFlags::AT_SYMLINK_FOLLOW;
        linkat(AT_FDCWD, &by_number, AT_FDCWD, &new, follow).unwrap();
        linked("by_number");
        assert_eq!(fs::read(&by_number).unwrap(), b"one");
        assert_eq!(fs::metadata(&by_number).unwrap().ino(), number);
        fs::set_permissions(&by_number, PermissionsExt::from_mode(0o640)).unwrap();
    });
    let mode = fs::metadata(held.there.join("other")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o640);
}

/// Before a change of owner or size the kernel asks for capabilities, and goes on where that fails.
#[test]
fn owner_and_size_change_by_a_descriptor_while_another_mount_moves_the_name() {
    let held = Held::prepare();
    let (_file, by_number) = descriptor(&held.here.join("one"));
    held.during(|| {
        exchange(&held.there, "one", "other");
        chown(&by_number, Some(1), Some(2)).unwrap();
        truncate(&by_number, 2).unwrap();
    });
    let changed = fs::metadata(held.there.join("other")).unwrap();
    assert_eq!((changed.uid(), changed.gid(), changed.len()), (1, 2, 2));
}

/// A change of what a path leads to.
type Change = fn(&Path);

const CHANGES: &[Change] = &[
    |path| fs::set_permissions(path, PermissionsExt::from_mode(0o640)).unwrap(),
    |path| chown(path, Some(1), Some(2)).unwrap(),
    |path| truncate(path, 2).unwrap(),
    |path| setxattr(path, "user.changed", b"yes", XattrFlags::empty()).unwrap(),
];

/// What the changes may change.
fn changeable(path: &Path) -> (u32, u32, u64, bool) {
    let stat = fs::metadata(path).unwrap();
    let is_marked = getxattr(path, "user.changed", &mut [0; 8]).is_ok();
    (stat.mode(), stat.uid(), stat.len(), is_marked)
}

/// The file that has lost the name stays as it was, and the one that has got the name is changed.
fn is_change_of_the_new_file(held: &Held, change: impl FnOnce(&Path)) {
    let [before, unchanged] = ["one", "other"].map(|name| changeable(&held.there.join(name)));
    change(&held.here.join("one"));
    assert_eq!(changeable(&held.there.join("other")), before);
    assert_ne!(changeable(&held.there.join("one")), unchanged);
}

#[test]
fn a_change_by_path_of_an_open_file_is_of_the_file_that_has_the_name() {
    for change in CHANGES {
        let held = Held::prepare();
        let open = File::open(held.here.join("one")).unwrap();
        is_change_of_the_new_file(&held, |path| {
            held.during(|| {
                exchange(&held.there, "one", "other");
                change(path);
            });
        });
        drop(open);
    }
}

/// Meanwhile the kernel forgets the name by which the call came.
#[test]
fn a_change_by_path_that_waits_for_the_file_is_of_the_file_that_has_the_name() {
    for change in CHANGES {
        let held = Held::prepare();
        let mark = |path: &Path| setxattr(path, "user.mark", b"", XattrFlags::empty()).unwrap();
        let others: Vec<PathBuf> = (0..5).map(|n| held.beside().join(n.to_string())).collect();
        others.iter().for_each(|path| fs::write(path, "").unwrap());
        is_change_of_the_new_file(&held, |path| {
            held.cluster
                .rule(MDT, "start marks opcode={setxattr} rate=1 burst=1");
            thread::scope(|scope| {
                for path in &others {
                    scope.spawn(|| mark(path));
                }
                thread::sleep(BEGUN);
                let marking = scope.spawn(|| mark(path));
                thread::sleep(BEGUN);
                held.during(|| {
                    exchange(&held.there, "one", "other");
                    scope.spawn(|| change(path));
                });
                assert!(!marking.is_finished(), "nothing holds the file's lock");
            });
            held.cluster.rule(MDT, "stop marks");
        });
    }
}

/// Makes and removes names in `dir`, and keeps processors busy.
fn crowd(dir: &Path) -> Vec<Work<()>> {
    let makers = (0..3).map(|number| {
        let name = dir.join(format!("busy{number}"));
        Work::start(move |goes_on: &dyn Fn() -> bool| {
            while goes_on() {
                File::create(&name).unwrap();
                fs::remove_file(&name).unwrap();
            }
        })
    });
    makers.chain(circles()).collect()
}

/// Keeps processors busy.
fn circles() -> Vec<Work<()>> {
    let circle = |_| Work::start(|goes_on: &dyn Fn() -> bool| while goes_on() {});
    (0..4).map(circle).collect()
}

/// Does `call` over and over while the first mount's directory is crowded. It says whether it was right.
fn attack(held: &Held, mut call: impl FnMut(usize) -> bool) {
    let crowd = crowd(&held.here);
    let end = Instant::now() + ATTACK;
    let (mut calls, mut wrong) = (0, 0);
    while Instant::now() < end {
        wrong += usize::from(!held.cluster.timed("a call", || call(calls)));
        calls += 1;
    }
    crowd.into_iter().for_each(Work::end);
    println!("{wrong} of {calls} were wrong");
    assert_eq!(wrong, 0, "of {calls}");
}

#[test]
fn a_replaced_symlink_is_never_seen_in_a_crowded_directory() {
    let held = Held::prepare();
    attack(&held, |round| {
        let target = ["one", "other"][round / 2 % 2];
        replace_link(&held.there, target);
        match round % 2 {
            0 => is_read_as(&held.here, target),
            _ => fs::read(held.here.join("link")).unwrap() == target.as_bytes(),
        }
    });
}

#[test]
fn a_link_leads_to_the_file_that_has_the_name_in_a_crowded_directory() {
    let held = Held::prepare();
    let mut numbers = ["one", "other"].map(|name| inode(&held.there.join(name)));
    attack(&held, |_| {
        exchange(&held.there, "one", "other");
        numbers.reverse();
        let new = held.here.join("new");
        fs::hard_link(held.here.join("one"), &new).unwrap();
        let linked = inode(&held.there.join("new"));
        fs::remove_file(&new).unwrap();
        linked == numbers[0]
    });
}
