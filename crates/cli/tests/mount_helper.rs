//! `mount -t glint`, `umount`, and what mounts are like.
// SEMANTICS: who.rights
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;

use support::{
    Killed, Ran, Staying, as_nobody, directory_of_nobody, eventually, finish, glint, needs_root,
    program, shell,
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

    /// Runs `script` in a mount namespace of its own, beside `sbin`, a copy of `/sbin`. The script may add
    /// helpers to the copy and bind it over the original.
    fn finish_apart(&self, script: &str) -> Ran {
        fs::create_dir(self.path().join("sbin")).unwrap();
        let script = format!("cp -a /sbin/. sbin/\n{script}");
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-euc", &script])
            .current_dir(self.path());
        finish(&mut command)
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
    let script = format!(
        "cp -P mount.glint umount.fuse.glint sbin/ && mount --bind sbin /sbin &&
         mount -t glint {0}:/ mnt -o key=D/key,ro,log=log,x-systemd.automount,_netdev &&
         findmnt -n -o SOURCE,FSTYPE,OPTIONS mnt && umount mnt && ! findmnt mnt",
        place.address
    );
    let ran = place.finish_apart(&script);
    let said: Vec<&str> = ran.worked().split_whitespace().collect();
    assert_eq!(
        said[..2],
        [&*format!("{}:/glint", place.address), "fuse.glint"],
        "{ran:?}"
    );
    assert!(said[2].starts_with("ro,nosuid,nodev,"), "{ran:?}");
}

#[test]
fn remount_changes_what_it_names_and_nothing_else() {
    if needs_root() {
        return;
    }
    let place = Place::new();
    let changes = [
        // By mount(8), which lists what is mounted and may leave out the words that say what is usual.
        ("mount -o remount,suid,dev mnt", "rw,relatime"),
        ("mount -o remount,rw mnt", "rw,relatime"),
        ("mount -o remount,ro mnt", "ro,relatime"),
        ("mount -o remount,rw mnt", "rw,relatime"),
        ("mount -o remount,nosuid mnt", "rw,nosuid,relatime"),
        ("mount -o remount,noexec mnt", "rw,nosuid,noexec,relatime"),
        ("mount -o remount,suid mnt", "rw,noexec,relatime"),
        ("mount -o remount,noatime mnt", "rw,noexec,noatime"),
        // By a line of a table, which says nothing of what is mounted.
        (
            "./mount.glint any mnt -o remount,rw,key=D/key",
            "rw,noexec,noatime",
        ),
        (
            "./mount.glint any mnt -o remount,ro,nodev",
            "ro,nodev,noexec,noatime",
        ),
        ("./mount.glint any mnt -o remount,rw,exec,dev", "rw,noatime"),
        (
            "./mount.glint any mnt -o remount,nosuid,nodev,atime",
            "rw,nosuid,nodev,relatime",
        ),
    ];
    let mut script = format!(
        "cp -P mount.fuse.glint sbin/ && mount --bind sbin /sbin
         ./mount.glint {}:/ mnt -o key=D/key,log=log; trap './umount.fuse.glint mnt' EXIT\n",
        place.address
    );
    for (change, _) in changes {
        script += &format!("{change} && findmnt -n -o VFS-OPTIONS mnt\n");
    }
    let ran = place.finish_apart(&script);
    for ((change, wanted), options) in changes.iter().zip(ran.worked().lines()) {
        assert_eq!(options, *wanted, "{change}: {ran:?}");
    }
    assert_eq!(ran.out.lines().count(), changes.len());
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

#[test]
fn umount_does_not_name_its_own_helpers() {
    if needs_root() {
        return;
    }
    let place = Place::new();
    let source = format!("{}:/", place.address);
    let key = "key=D/key,log=log";
    place
        .helper("mount.glint", &[&source, "mnt", "-o", key])
        .worked();
    let busy = shell(
        place.path(),
        "cd mnt && ../umount.fuse.glint \"$PWD\"; exit $?",
    );
    assert_eq!(busy.code, Some(32), "{busy:?}");
    assert_eq!(busy.err.matches("  pid ").count(), 1, "{busy:?}");
    assert!(busy.err.contains("(sh) works in "), "{busy:?}");
    shell(place.path(), "cd mnt && exec ../umount.fuse.glint \"$PWD\"").worked();
    assert_eq!(place.entry(), None);
}

/// A process with a mount namespace of its own, in which all is mounted that is now. It works in `dir`.
fn bystander(dir: &Path) -> Killed {
    let mut bystander = Command::new("unshare")
        .args(["--mount", "sh", "-c", "echo ready; read end"])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let said = bystander.stdout.take().unwrap();
    BufReader::new(said).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    Killed(bystander)
}

#[test]
fn a_mount_namespace_that_does_not_use_a_mount_does_not_hold_up_its_end() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mnt = dir.path().join("mnt");
    fs::create_dir(&mnt).unwrap();
    for more in [&[][..], &["--supervisor"]] {
        for end in ["signal", "glint umount", "umount"] {
            let words = [&["up", "--dir", "D", "--mount", "mnt"], more].concat();
            let mut up = Staying::start(dir.path(), &words);
            fs::write(mnt.join("file"), end).unwrap();
            let bystander = bystander(dir.path());
            match end {
                "signal" => up.signal(Signal::SIGTERM),
                "glint umount" => drop(glint(dir.path(), &["umount", "mnt"]).worked()),
                _ => drop(shell(dir.path(), "umount -i mnt").worked()),
            }
            assert_eq!(up.ended(), Some(0), "{end} {more:?}");
            // What it still has fails, and does not show what is below.
            let there = format!("/proc/{}/root{}", bystander.0.id(), mnt.display());
            let error = fs::read_dir(there).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::NotConnected, "{end}");
        }
    }
}

#[test]
fn a_thread_in_a_mount_namespace_of_its_own_does_not_hold_up_the_end_of_a_mount() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("mnt")).unwrap();
    let mut up = Staying::start(dir.path(), &["up", "--dir", "D", "--mount", "mnt"]);
    let ((ready, is_ready), (end, is_over)) = (mpsc::channel(), mpsc::channel::<()>());
    // As the last thread of a killed process that waits for another mount: its first is none of theirs.
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).unwrap();
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
        ready.send(()).unwrap();
        let _ = is_over.recv();
    });
    is_ready.recv().unwrap();
    up.signal(Signal::SIGTERM);
    assert_eq!(up.ended(), Some(0));
    drop(end);
    thread.join().unwrap();
}

#[test]
fn a_mount_namespace_that_uses_a_mount_keeps_it_and_is_named() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mnt = dir.path().join("mnt");
    fs::create_dir(&mnt).unwrap();
    let mut up = Staying::start(dir.path(), &["up", "--dir", "D", "--mount", "mnt"]);
    let bystander = bystander(&mnt);
    up.signal(Signal::SIGTERM);
    let named = format!(
        "still used in the mount namespace of pid {}",
        bystander.0.id()
    );
    eventually("it is named", || up.said().contains(&named));
    drop(bystander);
    assert_eq!(up.ended(), Some(0));
}
