//! What could not be written in the background is told by who makes everything durable: `glint fs
//! sync`, and the end of a mount.
// SEMANTICS: op.sync, crash.full
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use support::ports::free_address;
use support::{Staying, eventually, finish, glint, needs_root, shell};

/// Servers whose second targets are on a disk of 16 MiB.
struct Disk {
    server: Staying,
    address: String,
    dir: tempfile::TempDir,
}

impl Disk {
    fn of(large: &str, small: &str) -> Disk {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        shell(at, "mkdir mnt E && mount -t tmpfs -o size=16m none E").worked();
        glint(at, &["format", "D", "--role", large]).worked();
        glint(at, &["format", "E", "--role", small, "--join", "D"]).worked();
        let address = free_address();
        let server = Staying::start(at, &["serve", "D", "E", "--listen", &address]);
        Disk {
            server,
            address,
            dir,
        }
    }

    fn mounted(self, words: &[&str]) -> Full {
        let Disk {
            server,
            address,
            dir,
        } = self;
        let at = dir.path();
        let mount = [&["mount", &address, "mnt", "--key", "D/key"], words].concat();
        let mount = Staying::start(at, &mount);
        let late = "llite.*.dirty_age_ms=60000";
        glint(at, &["param", "set", late, "--mount", "mnt"]).worked();
        Full {
            mount,
            server,
            disk: at.join("E"),
            dir,
        }
    }
}

/// A mount whose OST is on a disk of 16 MiB, which sends what was written when it is asked to.
struct Full {
    mount: Staying,
    server: Staying,
    disk: PathBuf,
    dir: tempfile::TempDir,
}

impl Full {
    fn new(words: &[&str]) -> Full {
        Full::of("mgs,mdt", "ost", words)
    }

    /// The second of these targets are on the small disk.
    fn of(large: &str, small: &str, words: &[&str]) -> Full {
        Disk::of(large, small).mounted(words)
    }

    fn at(&self) -> &Path {
        self.dir.path()
    }
    /// Writes and closes these files. When they are sent somebody else has taken the space.
    fn write_too_much(&self, names: &[&str]) {
        fs::create_dir_all(self.at().join("mnt/dir")).unwrap();
        for name in names {
            fs::write(self.at().join("mnt").join(name), vec![7; 2 << 20]).unwrap();
        }
        // The last bytes, too.
        shell(self.at(), "cat /dev/zero > E/taken; true").worked();
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let _ = finish(Command::new("umount").arg("-l").arg(self.at().join("mnt")));
        let _ = finish(Command::new("umount").arg("-l").arg(&self.disk));
    }
}

#[test]
fn a_sync_says_of_which_files_something_is_lost_and_says_it_once() {
    if needs_root() {
        return;
    }
    let full = Full::new(&[]);
    full.write_too_much(&["dir/a", "b"]);
    let ran = glint(full.at(), &["fs", "sync", "mnt"]);
    ran.failed_saying(&[
        "written to 2 files is lost",
        "dir/a (no space left)",
        "b (no",
    ]);
    glint(full.at(), &["fs", "sync", "mnt"]).worked();
    glint(full.at(), &["umount", "mnt"]).worked();
}

#[test]
fn an_unmount_takes_the_mount_off_and_says_what_is_lost() {
    if needs_root() {
        return;
    }
    for verb in ["umount", "down"] {
        let mut full = Full::new(&[]);
        full.write_too_much(&["dir/a"]);
        let ran = glint(full.at(), &[verb, "mnt"]);
        let parts = [
            "mnt is unmounted, but",
            "written to 1 file is lost",
            "dir/a (no space",
        ];
        ran.failed_saying(&parts);
        assert!(!full.at().join("mnt/dir").exists(), "it is off");
        assert_eq!(full.mount.ended(), Some(1), "{}", full.mount.said());
    }
}

#[test]
fn what_is_gone_again_or_was_told_to_its_program_is_not_lost() {
    if needs_root() {
        return;
    }
    let mut full = Full::new(&[]);
    full.write_too_much(&["gone", "known"]);
    let known = fs::File::options()
        .write(true)
        .open(full.at().join("mnt/known"))
        .unwrap();
    assert!(known.sync_all().is_err());
    drop(known);
    fs::remove_file(full.at().join("mnt/gone")).unwrap();
    full.mount.signal(Signal::SIGTERM);
    assert_eq!(full.mount.ended(), Some(0), "{}", full.mount.said());
}

#[test]
fn a_full_ost_says_so_in_the_servers_log_once_until_there_is_room() {
    if needs_root() {
        return;
    }
    let full = Full::new(&[]);
    for (before, names) in [["a", "b"], ["c", "d"]].iter().enumerate() {
        full.write_too_much(names);
        glint(full.at(), &["fs", "sync", "mnt"]).failed_saying(&["2 files"]);
        let said = full.server.said();
        let line = "OST0: no space left for data; free some or add a target";
        assert_eq!(said.matches(line).count(), before + 1, "{said}");
        let room = format!(
            "rm E/taken && dd status=none if=/dev/zero bs=2M count=1 of=mnt/{before} conv=fsync"
        );
        shell(full.at(), &room).worked();
    }
}

#[test]
fn a_full_mdt_is_named_once_until_there_is_room() {
    if needs_root() {
        return;
    }
    let full = Full::of("ost", "mgs,mdt", &[]);
    let mut names = 0;
    let mut is_made = || {
        names += 1;
        fs::create_dir(full.at().join(format!("mnt/{names}"))).is_ok()
    };
    for before in 0..2 {
        eventually("there is room", &mut is_made);
        // The last bytes, too.
        shell(full.at(), "cat /dev/zero > E/taken; true").worked();
        eventually("a name is refused", || !is_made());
        assert!(!(0..50).any(|_| is_made()));
        let said = full.server.said();
        let line = "MDT0: no space left for names and attributes, new ones are refused with ENOSPC; \
                    remove files, or free some of the disk that it is on";
        assert_eq!(said.matches(line).count(), before + 1, "{said}");
        fs::remove_file(full.disk.join("taken")).unwrap();
    }
}

#[test]
fn a_supervised_mount_that_lost_something_is_not_gone_on_with() {
    if needs_root() {
        return;
    }
    let mut full = Full::new(&["--supervisor"]);
    full.write_too_much(&["dir/a"]);
    let ran = glint(full.at(), &["umount", "mnt"]);
    ran.failed_saying(&["mnt is unmounted, but", "dir/a"]);
    assert_eq!(full.mount.ended(), Some(1), "{}", full.mount.said());
    assert!(
        !full.mount.said().contains("another goes on"),
        "{}",
        full.mount.said()
    );
}

#[test]
fn an_unmount_says_whom_it_waits_for_and_is_forced_meanwhile() {
    if needs_root() {
        return;
    }
    let mut full = Full::new(&[]);
    fs::write(full.at().join("mnt/file"), "words").unwrap();
    full.server.signal(Signal::SIGSTOP);
    let log = full.at().join("waiting");
    let mut first = Command::new(support::program())
        .args(["umount", "mnt"])
        .current_dir(full.at())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let said = || fs::read_to_string(&log).unwrap();
    eventually("it says that it waits", || said().contains("--force mnt"));
    assert!(said().contains("still writes what is left"), "{}", said());
    let forced = glint(full.at(), &["umount", "--force", "mnt"]);
    assert!(forced.worked().contains("is lost"), "{forced:?}");
    assert_eq!(first.wait().unwrap().code(), Some(1), "{}", said());
    assert!(
        said().contains("mnt is unmounted, but it was forced to end"),
        "{}",
        said()
    );
    assert_eq!(full.mount.ended(), Some(1), "{}", full.mount.said());
    full.server.signal(Signal::SIGCONT);
}

#[test]
fn what_is_unmounted_by_force_ends_although_its_servers_are_away() {
    if needs_root() {
        return;
    }
    let mut full = Full::new(&[]);
    fs::write(full.at().join("mnt/file"), "words").unwrap();
    full.server.signal(Signal::SIGSTOP);
    let forced = glint(full.at(), &["umount", "--force", "mnt"]);
    let again = glint(full.at(), &["umount", "--force", "mnt"]);
    full.server.signal(Signal::SIGCONT);
    assert!(forced.worked().contains("lost"), "{forced:?}");
    again.failed_saying(&["nothing of Glint is mounted on"]);
    assert_eq!(full.mount.ended(), Some(1), "{}", full.mount.said());
}

/// The kernel gives the number of a mount that is off to the next one. That one's process then listens at
/// the name that is made of it.
#[test]
fn what_ends_by_force_is_not_taken_for_the_mount_that_has_its_device_number() {
    if needs_root() {
        return;
    }
    let number = |point: &Path| fs::metadata(point).unwrap().dev();
    let mut had_number = false;
    // Other tests mount as well, and may have been first.
    for _ in 0..5 {
        let (mut full, other) = (Full::new(&[]), Disk::of("mgs,mdt", "ost"));
        fs::write(full.at().join("mnt/file"), "words").unwrap();
        let first = number(&full.at().join("mnt"));
        full.server.signal(Signal::SIGSTOP);
        let forced = ["umount", "--force", "mnt"];
        let mut forced = Command::new(support::program())
            .args(forced)
            .current_dir(full.at())
            .spawn()
            .unwrap();
        eventually("the first is off", || {
            number(&full.at().join("mnt")) != first
        });
        let mut other = other.mounted(&[]);
        fs::write(other.at().join("mnt/file"), "words").unwrap();
        had_number |= number(&other.at().join("mnt")) == first;
        assert!(forced.wait().unwrap().success());
        assert_eq!(full.mount.ended(), Some(1), "{}", full.mount.said());
        assert_eq!(fs::read(other.at().join("mnt/file")).unwrap(), b"words");
        full.server.signal(Signal::SIGCONT);
        other.mount.signal(Signal::SIGTERM);
        assert_eq!(other.mount.ended(), Some(0), "{}", other.mount.said());
        if had_number {
            return;
        }
    }
    panic!("the number was another's five times");
}
