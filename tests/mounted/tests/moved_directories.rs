//! Directories that another mount has moved, looked for where they are by calls of every kind.
// SEMANTICS: op.rename, op.lookup, cache.side_effects

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::cell::RefCell;
use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use mounted::Cluster;

const MDT: &str = "mdt.glint-MDT0";
/// Until a call is known to wait at the server.
const BEGUN: Duration = Duration::from_millis(300);

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

/// `[a]` and `[b]` of two mounts, with `a/moved/below/file`; the first mount's kernel knows all of it.
fn prepare(cluster: &Cluster) -> [[PathBuf; 2]; 2] {
    let [here, there] = [0, 1].map(|mount| ["a", "b"].map(|dir| cluster.root(mount).join(dir)));
    cluster.timed("preparing", || {
        fs::create_dir_all(there[0].join("moved/below")).unwrap();
        fs::create_dir(&there[1]).unwrap();
        File::create(there[0].join("moved/below/file")).unwrap();
        inode(&here[0].join("moved/below/file"));
        inode(&here[1]);
    });
    [here, there]
}

/// Does `work` while a rename between two directories of the first mount waits for the server.
fn beside_a_rename(cluster: &Cluster, work: impl FnOnce()) {
    let root = cluster.root(0);
    let [one, other] = ["one", "other"].map(|dir| root.join(dir));
    cluster.timed("preparing a rename", || {
        fs::create_dir(&one).unwrap();
        fs::create_dir(&other).unwrap();
        (0..4).for_each(|name| fs::write(one.join(name.to_string()), "").unwrap());
    });
    cluster.rule(MDT, "start slow opcode={rename} rate=1 burst=1");
    thread::scope(|scope| {
        let moving = scope.spawn(|| {
            for name in 0..4 {
                let name = name.to_string();
                fs::rename(one.join(&name), other.join(&name)).unwrap();
            }
        });
        thread::sleep(BEGUN);
        cluster.timed("calls", work);
        assert!(!moving.is_finished(), "nothing holds the kernel's lock");
        moving.join().unwrap();
    });
    cluster.rule(MDT, "stop slow");
}

/// The other mount moves the directory.
fn move_there(cluster: &Cluster, there: &[PathBuf; 2]) {
    cluster.timed("the other mount", || {
        fs::rename(there[0].join("moved"), there[1].join("moved")).unwrap();
    });
}

#[test]
fn a_moved_directory_is_found_beside_a_rename_between_directories() {
    let cluster = Cluster::with_mounts(2);
    let [here, there] = prepare(&cluster);
    let number = inode(&here[0].join("moved"));
    let moved = here[1].join("moved");
    move_there(&cluster, &there);
    beside_a_rename(&cluster, || {
        assert_eq!(inode(&moved), number);
        File::open(moved.join("below/file")).unwrap();
        assert!(!here[0].join("moved").exists());
    });
}

#[test]
fn a_name_of_a_moved_directory_is_taken_beside_a_rename_between_directories() {
    for make in [
        |path: &Path| fs::create_dir(path),
        |path: &Path| File::create_new(path).map(drop),
        |path: &Path| fs::hard_link(path.with_file_name("file"), path),
        |path: &Path| std::os::unix::fs::symlink("file", path),
    ] {
        let cluster = Cluster::with_mounts(2);
        let [here, there] = prepare(&cluster);
        File::create(there[1].join("file")).unwrap();
        move_there(&cluster, &there);
        beside_a_rename(&cluster, || {
            let made = make(&here[1].join("moved"));
            assert_eq!(made.unwrap_err().kind(), ErrorKind::AlreadyExists);
        });
    }
}

#[test]
fn a_moved_directory_moves_on_without_a_look_before() {
    let cluster = Cluster::with_mounts(2);
    let [here, there] = prepare(&cluster);
    cluster.timed("moving", || {
        move_there(&cluster, &there);
        fs::rename(here[1].join("moved"), here[0].join("again")).unwrap();
        assert!(there[0].join("again/below/file").exists());
        assert!(here[0].join("again/below/file").exists());
        assert!(!here[1].join("moved").exists());
    });
}

/// To take a directory there the kernel would have to move it below itself.
#[test]
fn a_directory_is_found_below_what_was_below_it() {
    let cluster = Cluster::with_mounts(2);
    let [here, there] = prepare(&cluster);
    cluster.timed("turning around", || {
        fs::rename(there[0].join("moved/below"), there[1].join("below")).unwrap();
        fs::rename(there[0].join("moved"), there[1].join("below/moved")).unwrap();
        let below = here[1].join("below");
        assert_eq!(
            inode(&below.join("moved")),
            inode(&there[1].join("below/moved"))
        );
        assert!(!here[0].join("moved").exists());
    });
}

#[test]
fn who_stands_in_a_moved_directory_is_where_that_is() {
    let cluster = Cluster::with_mounts(2);
    let [here, there] = prepare(&cluster);
    let moved = here[1].join("moved");
    let mut cat = Command::new("cat");
    let cat = cat.current_dir(here[0].join("moved")).stdin(Stdio::piped());
    let mut inside = cat.spawn().unwrap();
    let stands = PathBuf::from(format!("/proc/{}/cwd", inside.id()));
    move_there(&cluster, &there);
    cluster.timed("looking", || {
        inode(&moved);
        assert_eq!(fs::read_link(&stands).unwrap(), moved);
        assert_eq!(inode(&stands.join("..")), inode(&here[1]));
    });
    drop(inside.stdin.take());
    inside.wait().unwrap();
}

/// The kernel has the directory twice then: both lead to the same.
#[test]
fn what_is_open_of_a_directory_that_the_kernel_could_not_move_is_that_directory() {
    let cluster = Cluster::with_mounts(2);
    let [here, there] = prepare(&cluster);
    let open = File::open(here[0].join("moved")).unwrap();
    let moved = here[1].join("moved");
    let by_number =
        |name: &str| PathBuf::from(format!("/proc/self/fd/{}/{name}", open.as_raw_fd()));
    move_there(&cluster, &there);
    beside_a_rename(&cluster, || {
        inode(&moved);
    });
    cluster.timed("by both", || {
        assert_eq!(open.metadata().unwrap().ino(), inode(&moved));
        fs::write(by_number("made"), "there").unwrap();
        assert_eq!(fs::read(moved.join("made")).unwrap(), b"there");
        // What another mount changes is seen by both.
        fs::write(there[1].join("moved/elsewhere"), "").unwrap();
        assert!(by_number("elsewhere").exists() && moved.join("elsewhere").exists());
        fs::remove_file(there[1].join("moved/elsewhere")).unwrap();
        assert!(!by_number("elsewhere").exists() && !moved.join("elsewhere").exists());
        fs::set_permissions(there[1].join("moved"), Permissions::from_mode(0o711)).unwrap();
        for stat in [open.metadata(), fs::metadata(&moved)] {
            assert_eq!(stat.unwrap().mode() & 0o777, 0o711);
        }
        fs::rename(by_number("below"), moved.join("renamed")).unwrap();
        assert!(moved.join("renamed/file").exists() && by_number("renamed/file").exists());
        let error = fs::rename(&moved, by_number("renamed/under")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "below itself");
        fs::rename(there[1].join("moved"), there[0].join("back")).unwrap();
        assert_eq!(inode(&here[0].join("back")), open.metadata().unwrap().ino());
    });
}

#[test]
fn another_process_of_the_mount_knows_the_directory_by_both() {
    let mut cluster = Cluster::start();
    cluster.mount_with(&["--supervisor"]);
    cluster.mount();
    let [here, there] = prepare(&cluster);
    let open = File::open(here[0].join("moved")).unwrap();
    let again = File::open(here[0].join("moved")).unwrap();
    let moved = here[1].join("moved");
    move_there(&cluster, &there);
    let found = RefCell::new(None);
    beside_a_rename(&cluster, || {
        drop(found.replace(Some(File::open(&moved).unwrap())))
    });
    cluster.timed("the next process", || {
        assert!(cluster.kill_worker(0));
        for one in [&open, &again, found.borrow().as_ref().unwrap()] {
            let path = format!("/proc/self/fd/{}/below/file", one.as_raw_fd());
            assert!(Path::new(&path).exists(), "{path}");
        }
        assert!(moved.join("below/file").exists());
    });
}
