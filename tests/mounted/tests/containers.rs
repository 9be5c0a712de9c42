//! Mounts and user namespaces: whose ids are whose, and who has access.
// SEMANTICS: who.containers

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use mounted::{Cluster, Container, glint};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// What 0 inside a container is outside.
const FIRST: u32 = 100_000;
/// Who has no name in a namespace.
const NOBODY: u32 = 65_534;

/// One mount, which others than root can reach.
fn reachable() -> (Cluster, PathBuf) {
    let cluster = Cluster::with_mounts(1);
    let root = cluster.root(0).to_owned();
    for dir in [&root, root.parent().unwrap()] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    (cluster, root)
}

fn make(path: &Path, owner: u32, mode: u32) {
    fs::write(path, "content").unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    chown(path, Some(owner), Some(owner)).unwrap();
}

#[test]
fn in_a_namespace_below_everybody_appears_by_the_mapping() {
    let (cluster, root) = reachable();
    make(&root.join("root's"), 0, 0o600);
    make(&root.join("theirs"), FIRST, 0o600);
    make(&root.join("user's"), FIRST + 1000, 0o644);
    fs::create_dir(root.join("dir")).unwrap();
    chown(root.join("dir"), Some(FIRST), Some(FIRST)).unwrap();
    let container = Container::new(FIRST);
    let path = root.display();
    cluster.timed("inside", || {
        let owners = container.says(&format!("cd {path}; stat --format %u:%g *"));
        let nobody = format!("{NOBODY}:{NOBODY}");
        assert_eq!(owners, format!("0:0\n{nobody}\n0:0\n1000:1000"));
        assert_eq!(container.says(&format!("cat {path}/theirs")), "content");
        let refused = container.says(&format!("cat \"{path}/root's\""));
        assert!(refused.ends_with("Permission denied"), "{refused}");
        let made = container.says(&format!(
            "cd {path}/dir; echo made > made; stat --format %u made; chown 1000:7 made"
        ));
        assert_eq!(made, "0");
    });
    let made = fs::metadata(root.join("dir/made")).unwrap();
    assert_eq!((made.uid(), made.gid()), (FIRST + 1000, FIRST + 7));
}

#[test]
fn who_has_no_mapping_is_nobody_and_who_he_was() {
    let (cluster, root) = reachable();
    make(&root.join("root's"), 0, 0o600);
    make(&root.join("another's"), FIRST, 0o600);
    let script = format!("cd {}; stat --format %u *; cat *", root.display());
    let output = cluster.timed("without any mapping", || {
        let mut unshare = std::process::Command::new("unshare");
        unshare.args(["--user", "sh", "-c", &script]);
        unshare.output().unwrap()
    });
    let said = String::from_utf8(output.stdout).unwrap();
    // Root outside owns the one, and has no power over the other inside.
    assert_eq!(said, format!("{NOBODY}\n{NOBODY}\ncontent"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("Permission denied"), "{said}");
}

#[test]
fn a_mount_made_in_a_namespace_has_its_ids_and_serves_nobody_outside() {
    let (cluster, root) = reachable();
    let beside = root.parent().unwrap();
    let (program, key, point) = (
        beside.join("glint"),
        beside.join("key"),
        beside.join("inner"),
    );
    fs::copy(glint(), &program).unwrap();
    fs::copy(cluster.target_dirs()[0].join("key"), &key).unwrap();
    fs::create_dir(&point).unwrap();
    for path in [&key, &point] {
        chown(path, Some(FIRST), Some(FIRST)).unwrap();
    }
    let container = Container::new(FIRST);
    let log = File::create(beside.join("inner.log")).unwrap();
    let mut mount = container
        .shell(&format!(
            "mount -t tmpfs none /run; exec {} mount {} {} --key {}",
            program.display(),
            cluster.address(),
            point.display(),
            key.display()
        ))
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    let said = || fs::read_to_string(beside.join("inner.log")).unwrap();
    cluster.timed("mounting inside", || {
        while !said().contains("mounted at ") {
            assert!(mount.try_wait().unwrap().is_none(), "{}", said());
        }
    });
    let inner = point.display();
    cluster.timed("inside", || {
        let made = container.says(&format!(
            "cd {inner}; echo made > made; stat --format %u made"
        ));
        assert_eq!(made, "0");
    });
    // What was 0 there is 0 on the file system, not what 0 there is here.
    let made = cluster.timed("from outside", || fs::metadata(root.join("made")));
    assert_eq!(made.unwrap().uid(), 0);
    let from_outside = container.root().join(point.strip_prefix("/").unwrap());
    let refused = cluster.timed("root outside", || fs::read(from_outside.join("made")));
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EACCES));
    kill(Pid::from_raw(mount.id() as i32), Signal::SIGTERM).unwrap();
    let ended = cluster.timed("unmounting inside", || mount.wait().unwrap());
    assert!(ended.success(), "{}", said());
}
