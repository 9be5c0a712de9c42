//! `mount -t glint`, `umount`, and what mounts are like.
// SEMANTICS: who.rights
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{
    Ran, Staying, as_nobody, directory_of_nobody, finish, glint, needs_root, program, shell,
};

/// A served file system, a mount point, and the program under the names of helpers.
struct Place {
    dir: tempfile::TempDir,
    address: String,
    _server: Staying,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("mnt")).unwrap();
        for name in ["mount.glint", "mount.fuse.glint", "umount.fuse.glint"] {
            symlink(program(), dir.path().join(name)).unwrap();
        }
        glint(dir.path(), &["format", "D", "--role", "mgs,mdt,ost"]).worked();
        let server = Staying::start(dir.path(), &["serve", "D", "--listen", "127.0.0.1:0"]);
        let address = server.address();
        Place {
            dir,
            address,
            _server: server,
        }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn helper(&self, name: &str, words: &[&str]) -> Ran {
        let mut helper = Command::new(self.path().join(name));
        finish(helper.args(words).current_dir(self.path()))
    }

    /// Options and source of what is mounted on `mnt`, as the kernel has them.
    fn entry(&self) -> Option<(Vec<String>, String)> {
        let point = fs::canonicalize(self.path()).unwrap().join("mnt");
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mut lines = table
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>());
        let fields = lines.find(|fields| Some(fields[4]) == point.to_str())?;
        let kind = fields.iter().position(|field| *field == "-").unwrap() + 1;
        assert_eq!(fields[kind], "fuse.glint");
        let options = fields[5].split(',').map(str::to_owned).collect();
        Some((options, fields[kind + 1].to_owned()))
    }

    fn has(&self, wanted: &[&str], unwanted: &[&str]) {
        let (options, _) = self.entry().expect("it is mounted");
        let has = |word: &&&str| options.iter().any(|option| option == **word);
        assert!(wanted.iter().all(|word| has(&word)), "{options:?}");
        assert!(!unwanted.iter().any(|word| has(&word)), "{options:?}");
    }
}

#[test]
fn what_tables_of_mounts_say_mounts_changes_and_unmounts() {
    if needs_root() {
        return;
    }
    let place = Place::new();
    let source = format!("{}:/glint", place.address);
    let options = "rw,nosuid,nodev,noexec,noatime,_netdev,defaults,x-systemd.automount,key=D/key,\
                   log=mount.log";
    let mounted = place.helper("mount.glint", &[&source, "mnt", "-o", options]);
    assert_eq!(mounted.worked(), "");
    place.has(&["rw", "nosuid", "nodev", "noexec", "noatime"], &[]);
    assert_eq!(place.entry().unwrap().1, source);
    let df = shell(place.path(), "df --output=source mnt | tail -1");
    assert_eq!(df.worked().trim(), source);
    fs::write(place.path().join("mnt/file"), "words").unwrap();
    // As it is listed now, and read-only.
    place
        .helper(
            "mount.fuse.glint",
            &[&source, "mnt", "-o", "remount,ro,nosuid,nodev,user_id=0"],
        )
        .worked();
    place.has(&["ro", "nosuid", "nodev"], &["noexec", "noatime"]);
    let refused = fs::write(place.path().join("mnt/file"), "more").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    place
        .helper("mount.glint", &[&source, "mnt", "-o", "remount,rw"])
        .worked();
    fs::write(place.path().join("mnt/file"), "more").unwrap();
    place.helper("umount.fuse.glint", &["mnt"]).worked();
    assert_eq!(place.entry(), None);
}

#[test]
fn mount_and_umount_find_the_helpers() {
    if needs_root() {
        return;
    }
    let place = Place::new();
    // Where they look, in a mount namespace of this test's.
    let script = format!(
        "cp -a /sbin/. sbin/ && cp -P mount.glint umount.fuse.glint sbin/ && mount --bind sbin /sbin &&
         mount -t glint {0}:/ mnt -o key=D/key,ro,log=log,x-systemd.automount,_netdev &&
         findmnt -n -o SOURCE,FSTYPE,OPTIONS mnt && umount mnt && ! findmnt mnt",
        place.address
    );
    fs::create_dir(place.path().join("sbin")).unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-euc", &script])
        .current_dir(place.path());
    let ran = finish(&mut command);
    let said: Vec<&str> = ran.worked().split_whitespace().collect();
    assert_eq!(
        said[..2],
        [&*format!("{}:/glint", place.address), "fuse.glint"],
        "{ran:?}"
    );
    assert!(said[2].starts_with("ro,nosuid,nodev,"), "{ran:?}");
}

#[test]
fn what_is_not_understood_or_not_there_is_said() {
    if needs_root() {
        return;
    }
    let place = Place::new();
    let source = |name: &str| format!("{}:/{name}", place.address);
    let any = source("");
    let unknown = place.helper("mount.glint", &[&any, "mnt", "-o", "ro,acl,key=D/key"]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(
        unknown.err.contains("there is no option 'acl'"),
        "{unknown:?}"
    );
    let other = source("other");
    let key = "key=D/key,log=log";
    let named = place.helper("mount.glint", &[&other, "mnt", "-o", key]);
    assert_eq!(named.code, Some(32), "{named:?}");
    assert!(
        named.err.contains("is called 'glint', not 'other'"),
        "{named:?}"
    );
    assert_eq!(place.entry(), None);
    // Passed over where it was said so; and nothing is done where that was said.
    place
        .helper(
            "mount.glint",
            &[&any, "mnt", "-s", "-o", &format!("acl,{key}")],
        )
        .worked();
    place.helper("umount.fuse.glint", &["mnt"]).worked();
    place
        .helper("mount.glint", &[&any, "mnt", "-f", "-o", key])
        .worked();
    assert_eq!(place.entry(), None);
}

#[test]
fn rights_of_other_users_and_devices_are_given_only_where_asked_for() {
    if needs_root() {
        return;
    }
    let place = Place::new();
    let mount = |words: &[&str]| {
        let words = [&["mount", &place.address, "mnt", "--key", "D/key"], words].concat();
        Staying::start(place.path(), &words)
    };
    let mut usual = mount(&[]);
    place.has(&["nosuid", "nodev"], &["noexec", "ro"]);
    glint(place.path(), &["umount", "mnt"]).worked();
    assert_eq!(usual.ended(), Some(0));
    let _wide = mount(&["-o", "suid,dev"]);
    place.has(&[], &["nosuid", "nodev"]);
    glint(place.path(), &["umount", "mnt"]).worked();
    let (_dir, copy): (_, PathBuf) = directory_of_nobody();
    let words = ["mount", &place.address, "mnt", "-o", "suid"];
    let ran = finish(as_nobody(&copy).args(words).current_dir("/"));
    ran.failed_saying(&["only root can mount with suid or dev"]);
}
