//! Times, holes and groups of files, as programs see them on one mount and from another.
// SEMANTICS: op.atime, op.lseek, who.groups

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use mounted::Cluster;
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Whence, lseek};

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
