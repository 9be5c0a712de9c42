//! Files that are made without a name, get one or go, and whiteouts that renames leave.
// SEMANTICS: op.tmpfile, op.rename, op.link, op.mknod

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mounted::deaths::taken_over;
use mounted::{Cluster, Layout};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use rustix::fs::{CWD, RenameFlags};

/// How soon what nobody uses is gone: the close is told when the bytes are durable.
const SOON: Duration = Duration::from_secs(60);

fn nameless(dir: &Path, flags: i32) -> io::Result<File> {
    let mut how = OpenOptions::new();
    how.read(true).write(true).mode(0o640);
    how.custom_flags(libc::O_TMPFILE | flags).open(dir)
}

/// `linkat` by way of /proc, which needs no privilege.
fn name(file: &File, path: &Path) -> nix::Result<()> {
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    let follow = AtFlags::AT_SYMLINK_FOLLOW;
    nix::unistd::linkat(AT_FDCWD, open.as_str(), AT_FDCWD, path, follow)
}

/// The same by the descriptor alone.
fn name_by_descriptor(file: &File, path: &Path) -> nix::Result<()> {
    nix::unistd::linkat(file, "", AT_FDCWD, path, AtFlags::AT_EMPTY_PATH)
}

/// Files there are; what a mount was told of that is forgotten when it makes something.
fn files_at(root: &Path) -> u64 {
    let probe = root.join("probe");
    fs::create_dir(&probe).unwrap();
    fs::remove_dir(&probe).unwrap();
    let space = nix::sys::statvfs::statvfs(root).unwrap();
    space.files() - space.files_free()
}

/// Ends the server, whose mounts have ended.
fn assert_sound(cluster: &mut Cluster) {
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}

/// Ends everything.
fn end_soundly(mut cluster: Cluster, mounts: usize) {
    (0..mounts).for_each(|mount| cluster.unmount(mount));
    assert_sound(&mut cluster);
}

#[test]
fn a_nameless_file_is_nowhere_until_it_is_named() {
    let cluster = Cluster::with_mounts(2);
    cluster.timed("nameless files", || {
        let (here, there) = (cluster.root(0), cluster.root(1));
        for (number, link) in [name, name_by_descriptor].into_iter().enumerate() {
            let (path, other) = (
                here.join(format!("f{number}")),
                there.join(format!("f{number}")),
            );
            let file = nameless(here, 0).unwrap();
            file.write_all_at(b"content", 0).unwrap();
            assert_eq!(file.metadata().unwrap().nlink(), 0);
            for root in [here, there] {
                assert_eq!(fs::read_dir(root).unwrap().count(), number);
            }
            link(&file, &path).unwrap();
            assert_eq!(fs::read(&other).unwrap(), b"content");
            let stat = fs::metadata(&other).unwrap();
            assert_eq!((stat.nlink(), stat.mode() & 0o7777), (1, 0o640));
            assert_eq!(file.metadata().unwrap().ino(), stat.ino());
            // It is a file like any other now: it cannot come back.
            assert_eq!(link(&file, &path), Err(Errno::EEXIST));
            link(&file, &here.join("second")).unwrap();
            assert_eq!(fs::metadata(there.join("second")).unwrap().nlink(), 2);
            fs::remove_file(there.join("second")).unwrap();
            fs::remove_file(&other).unwrap();
            assert_eq!(link(&file, &path), Err(Errno::ENOENT));
            file.write_all_at(b"goes on", 0).unwrap();
            drop(file);
            fs::write(&path, "another").unwrap();
        }
    });
    end_soundly(cluster, 2);
}

#[test]
fn an_exclusive_one_gets_no_name() {
    let cluster = Cluster::with_mounts(1);
    cluster.timed("O_EXCL", || {
        let file = nameless(cluster.root(0), libc::O_EXCL).unwrap();
        file.write_all_at(b"mine", 0).unwrap();
        assert_eq!(name(&file, &cluster.root(0).join("f")), Err(Errno::ENOENT));
        let missing = nameless(&cluster.root(0).join("none"), 0);
        assert_eq!(missing.unwrap_err().raw_os_error(), Some(libc::ENOENT));
        let of_file = File::create(cluster.root(0).join("plain"));
        of_file.unwrap();
        let inside = nameless(&cluster.root(0).join("plain"), 0);
        assert_eq!(inside.unwrap_err().raw_os_error(), Some(libc::ENOTDIR));
    });
}

#[test]
fn what_was_never_named_goes_with_its_last_use() {
    let cluster = Cluster::with_mounts(1);
    cluster.timed("files that go", || {
        let root = cluster.root(0);
        let before = files_at(root);
        let files: Vec<File> = (0..20).map(|_| nameless(root, 0).unwrap()).collect();
        for file in &files {
            file.write_all_at(&[7; 5000], 0).unwrap();
            file.sync_all().unwrap();
        }
        assert_eq!(files_at(root), before + 20);
        drop(files);
        let start = Instant::now();
        while files_at(root) > before {
            assert!(start.elapsed() < SOON, "{} files", files_at(root));
            thread::sleep(Duration::from_millis(200));
        }
    });
    end_soundly(cluster, 1);
}

/// A server dies with a file that it had not made durable, or had; the mount still has it open.
#[test]
fn a_nameless_file_outlives_its_servers() {
    let mut cluster = Cluster::with_mounts(2);
    let root = cluster.root(0).to_owned();
    let files: Vec<File> = (0..4).map(|_| nameless(&root, 0).unwrap()).collect();
    for (number, file) in files.iter().enumerate() {
        file.write_all_at(format!("file {number}").as_bytes(), 0)
            .unwrap();
        if number % 2 == 0 {
            file.sync_all().unwrap();
        }
    }
    name(&files[3], &root.join("f3")).unwrap();
    cluster.kill_server();
    cluster.restart_server();
    cluster.timed("after the restart", || {
        for number in 0..3 {
            name(&files[number], &root.join(format!("f{number}"))).unwrap();
        }
        for number in 0..4 {
            let read = fs::read(cluster.root(1).join(format!("f{number}"))).unwrap();
            assert_eq!(read, format!("file {number}").as_bytes());
        }
    });
    drop(files);
    end_soundly(cluster, 2);
}

#[test]
fn a_nameless_file_outlives_the_process_of_a_supervised_mount() {
    let mut cluster = Cluster::with_mounts_of(1, &["--supervisor"]);
    cluster.mount();
    let root = cluster.root(0).to_owned();
    let file = nameless(&root, 0).unwrap();
    file.write_all_at(b"unsent", 0).unwrap();
    assert!(cluster.kill_worker(0));
    cluster.timed("another process", || {
        let mut content = [0; 6];
        file.read_exact_at(&mut content, 0).unwrap();
        assert_eq!(&content, b"unsent");
        name(&file, &root.join("f")).unwrap();
        assert_eq!(fs::read(cluster.root(1).join("f")).unwrap(), b"unsent");
    });
    assert!(taken_over(&cluster) > 0);
    drop(file);
    end_soundly(cluster, 2);
}

/// With the mount goes what it alone had open, as soon as it is given up.
#[test]
fn a_nameless_file_goes_with_its_mount() {
    let mut cluster = Cluster::of(Layout {
        timeout: Some(Duration::from_secs(2)),
        ..Layout::default()
    });
    let [dying, other] = [cluster.mount(), cluster.mount()];
    let file = nameless(cluster.root(dying), 0).unwrap();
    file.write_all_at(b"lost", 0).unwrap();
    file.sync_all().unwrap();
    let root = cluster.root(other).to_owned();
    let with_it = files_at(&root);
    cluster.kill_mount(dying);
    drop(file);
    let watch = cluster.watch(SOON, "the end of a mount");
    let start = Instant::now();
    while files_at(&root) >= with_it {
        assert!(start.elapsed() < SOON, "it is still there");
        thread::sleep(Duration::from_millis(200));
    }
    drop(watch);
    cluster.unmount(other);
    assert_sound(&mut cluster);
}

fn is_whiteout(path: &Path) -> bool {
    let stat = fs::symlink_metadata(path).unwrap();
    stat.file_type().is_char_device() && stat.rdev() == 0 && stat.mode() & 0o7777 == 0
}

#[test]
fn a_rename_leaves_a_whiteout_and_nobody_sees_neither() {
    let cluster = Cluster::with_mounts(2);
    let (here, there) = (cluster.root(0), cluster.root(1));
    let leave = |from: &Path, to: &Path, more| {
        rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::WHITEOUT | more)
    };
    cluster.timed("whiteouts", || {
        for (number, into) in ["", "sub/"].into_iter().enumerate() {
            fs::create_dir_all(here.join("sub")).unwrap();
            let (from, to) = (format!("from{number}"), format!("{into}to{number}"));
            fs::write(here.join(&from), "moved").unwrap();
            assert_eq!(fs::read(there.join(&from)).unwrap(), b"moved");
            leave(&here.join(&from), &here.join(&to), RenameFlags::empty()).unwrap();
            for root in [there, here] {
                assert!(is_whiteout(&root.join(&from)));
                assert_eq!(fs::read(root.join(&to)).unwrap(), b"moved");
            }
            let again = leave(&here.join(&to), &here.join(&from), RenameFlags::NOREPLACE);
            assert_eq!(again, Err(rustix::io::Errno::EXIST));
            let both = leave(&here.join(&to), &here.join(&from), RenameFlags::EXCHANGE);
            assert_eq!(both, Err(rustix::io::Errno::INVAL));
            // Over the whiteout, and back: a directory, too.
            leave(&there.join(&to), &there.join(&from), RenameFlags::empty()).unwrap();
            assert!(is_whiteout(&here.join(&to)));
            fs::remove_file(here.join(&to)).unwrap();
            assert!(!there.join(&to).exists());
        }
        fs::create_dir(here.join("dir")).unwrap();
        let links = fs::metadata(here).unwrap().nlink();
        leave(
            &here.join("dir"),
            &here.join("sub/dir"),
            RenameFlags::empty(),
        )
        .unwrap();
        assert!(is_whiteout(&there.join("dir")));
        assert_eq!(fs::metadata(there).unwrap().nlink(), links - 1);
    });
    let ends = AtomicBool::new(false);
    cluster.timed("watched renames", || {
        fs::write(here.join("a"), "").unwrap();
        thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    fs::symlink_metadata(there.join("a")).unwrap();
                }
            });
            for _ in 0..200 {
                leave(&here.join("a"), &here.join("b"), RenameFlags::empty()).unwrap();
                fs::rename(here.join("b"), here.join("a")).unwrap();
            }
            ends.store(true, Ordering::Relaxed);
            watcher.join().unwrap();
        });
    });
    end_soundly(cluster, 2);
}
