//! Times, holes and groups of files, as programs see them on one mount and from another.
// SEMANTICS: op.atime, op.lseek, op.setattr, op.stat, who.groups

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use mounted::Cluster;
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Whence, lseek};
use rustix::fs::XattrFlags;

#[test]
fn an_access_time_is_what_was_set_exactly() {
    let cluster = Cluster::with_mounts(2);
    cluster.timed("access times", || {
        let (here, there) = (cluster.root(0).join("f"), cluster.root(1).join("f"));
        fs::write(&here, "read me").unwrap();
        let (atime, mtime) = (TimeSpec::new(12_345, 678_901_234), TimeSpec::new(-7, 9));
        let follow = UtimensatFlags::FollowSymlink;
        utimensat(nix::fcntl::AT_FDCWD, &here, &atime, &mtime, follow).unwrap();
        for path in [&here, &there] {
            assert_eq!(fs::read(path).unwrap(), b"read me");
            let stat = fs::metadata(path).unwrap();
            assert_eq!((stat.atime(), stat.atime_nsec()), (12_345, 678_901_234));
            assert_eq!((stat.mtime(), stat.mtime_nsec()), (-7, 9));
        }
    });
}

/// Times are told later, an extended attribute is set at once.
#[test]
fn what_is_told_later_sets_no_ctime_back() {
    let cluster = Cluster::with_mounts(2);
    cluster.timed("changes of one file", || {
        let (here, there) = (cluster.root(0).join("f"), cluster.root(1).join("f"));
        let file = File::create(&here).unwrap();
        file.write_all_at(b"bytes", 0).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        file.set_modified(time).unwrap();
        rustix::fs::fsetxattr(&file, "user.a", b"x", XattrFlags::empty()).unwrap();
        let changed = file.metadata().unwrap();
        // What is known here only goes out by then.
        std::thread::sleep(Duration::from_millis(1200));
        assert_eq!(fs::read(&there).unwrap(), b"bytes");
        for stat in [fs::metadata(&there).unwrap(), file.metadata().unwrap()] {
            let ctime = |stat: &fs::Metadata| (stat.ctime(), stat.ctime_nsec());
            assert_eq!(ctime(&stat), ctime(&changed));
            assert_eq!(stat.modified().unwrap(), time);
        }
    });
}

#[test]
fn a_directory_keeps_its_capability_when_its_owner_changes() {
    let cluster = Cluster::with_mounts(1);
    let dir = cluster.root(0).join("d");
    fs::create_dir(&dir).unwrap();
    // Version 2, no capability permitted (capabilities(7)).
    let value = [1, 0, 0, 2].into_iter().chain([0; 16]).collect::<Vec<u8>>();
    let name = "security.capability";
    rustix::fs::setxattr(&dir, name, &value, XattrFlags::empty()).unwrap();
    for (uid, gid) in [(Some(1001), Some(2001)), (None, None)] {
        chown(&dir, uid, gid).unwrap();
        let mut found = [0; 64];
        let length = rustix::fs::getxattr(&dir, name, &mut found[..]).unwrap();
        assert_eq!(found[..length], value);
    }
}

#[test]
fn holes_are_found_where_nothing_was_written() {
    let cluster = Cluster::with_mounts(2);
    cluster.timed("holes", || {
        let file = File::create(cluster.root(0).join("sparse")).unwrap();
        file.write_all_at(b"begin", 0).unwrap();
        file.write_all_at(b"end", 1 << 20).unwrap();
        let other = File::open(cluster.root(1).join("sparse")).unwrap();
        for file in [&file, &other] {
            let seek = |from, whence| lseek(file, from, whence).unwrap();
            assert_eq!(seek(0, Whence::SeekData), 0);
            let hole = seek(0, Whence::SeekHole);
            assert!((5..1 << 20).contains(&hole), "a hole at {hole}");
            let data = seek(hole, Whence::SeekData);
            assert!((hole + 1..=1 << 20).contains(&data), "data at {data}");
            assert_eq!(seek(data, Whence::SeekHole), (1 << 20) + 3);
        }
    });
}

fn read_as(path: &Path, uid: u32, groups: &[u32]) -> bool {
    let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
    let mut cat = Command::new("setpriv");
    cat.args(["--reuid", &uid.to_string(), "--regid", &uid.to_string()]);
    cat.args(["--groups", &groups.join(","), "cat"]).arg(path);
    cat.output().unwrap().status.success()
}

#[test]
fn supplementary_groups_count_all_of_them() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "needs root: takes on other users"
    );
    let cluster = Cluster::with_mounts(1);
    cluster.timed("groups", || {
        let path = cluster.root(0).join("of-the-group");
        fs::write(&path, "ours").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        fs::set_permissions(cluster.root(0), Permissions::from_mode(0o755)).unwrap();
        chown(&path, Some(0), Some(70_039)).unwrap();
        let many: Vec<u32> = (70_000..70_040).collect();
        assert!(
            read_as(&path, 4321, &many),
            "in the group by the last of 40"
        );
        assert!(!read_as(&path, 4321, &many[..39]), "not in the group");
    });
}
