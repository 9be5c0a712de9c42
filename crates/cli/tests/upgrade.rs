//! `glint upgrade` moves objects from files to extents. All are as before, also where the move was cut off.
//! Nothing serves the target before that is done.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use support::served::{Mounted, Place};
use support::{Killed, eventually, glint, needs_root, program, shell};

/// Sizes around those at which something changes.
const FILES: &str = "for n in 0 1 4095 4096 65535 65536 65537 9437184; do \
     head -c $n /dev/urandom > tree/of$n; done; \
     head -c 5000 /dev/urandom > tree/sparse; truncate -s 20M tree/sparse; \
     printf end >> tree/sparse; mkdir tree/many; \
     for n in $(seq 300); do echo $n > tree/many/$n; done; touch -d 2001-02-03 tree/of1";

/// A file system on files with a tree in it, which nobody serves any more. `tree` has the same files.
fn with_files(at: &Path) {
    shell(at, &format!("mkdir mnt tree && {FILES}")).worked();
    glint(at, &["format", "D", "--store", "files"]).worked();
    served(at, |at| {
        shell(
            at,
            "cp -a tree mnt/ && sync mnt/tree/* && cp tree/of1 mnt/gone && rm mnt/gone",
        )
        .worked();
    });
}

/// Serves `D` and mounts it at `mnt` while `work` is done. Both end cleanly.
fn served(at: &Path, work: impl FnOnce(&Path)) {
    let mounted = Mounted::start(at);
    work(at);
    mounted.end();
}

#[track_caller]
fn is_sound(at: &Path) {
    let said = glint(at, &["fsck", "D"]);
    let parts = ["OST0: 0 errors, 0 warnings", "MDT0: 0 errors, 0 warnings"];
    parts
        .iter()
        .for_each(|part| assert!(said.worked().contains(part), "{said:?}"));
}

#[track_caller]
fn is_as_before(at: &Path) {
    assert!(!at.join("D/ost0/objects").exists());
    is_sound(at);
    served(at, |at| {
        shell(at, "diff -r tree mnt/tree && cp -r mnt/tree mnt/more").worked();
        let time = "stat -c %Y tree/of1 mnt/tree/of1 | uniq | wc -l";
        assert_eq!(shell(at, time).worked().trim(), "1");
        // Holes are holes.
        let blocks = shell(at, "stat -c %b mnt/tree/sparse");
        assert!(blocks.worked().trim().parse::<u64>().unwrap() <= 24);
        assert!(!at.join("mnt/gone").exists());
    });
    is_sound(at);
}

#[test]
fn files_move_to_extents_and_are_as_before() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    with_files(at);
    // While it is served nothing moves.
    let mut server = Place::new(at).serve();
    glint(at, &["upgrade", "D"]).failed_saying(&["is in use by process"]);
    server.signal(Signal::SIGTERM);
    server.ended();
    // Nor where it is not known what is to become of a file.
    std::fs::write(at.join("D/ost0/objects/07/notes"), "mine").unwrap();
    glint(at, &["upgrade", "D"]).failed_saying(&["objects/07/notes is no object of Glint's"]);
    std::fs::remove_file(at.join("D/ost0/objects/07/notes")).unwrap();
    assert!(!at.join("D/ost0/extents").exists());
    is_sound(at);
    let said = glint(at, &["upgrade", "D"]);
    assert!(
        said.worked()
            .contains("OST0 in D upgraded: 308 objects moved"),
        "{said:?}"
    );
    is_as_before(at);
    let again = glint(at, &["upgrade", "D"]);
    assert_eq!(
        again.worked().trim(),
        "OST0 in D has its objects on extents already"
    );
}

/// The OST's superblock is that of a target whose objects are on their way.
fn is_moving(at: &Path) -> bool {
    std::fs::read(at.join("D/ost0/superblock")).is_ok_and(|bytes| bytes[8] == 2)
}

fn count_files(at: &Path) -> usize {
    let said = shell(at, "find D/ost0/objects -type f | wc -l");
    said.worked().trim().parse().unwrap()
}

#[test]
fn what_is_killed_on_the_way_is_gone_on_with() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    with_files(at);
    let files = count_files(at);
    for _ in 0..8 {
        let mut upgrade = Command::new(program());
        upgrade
            .args(["upgrade", "D"])
            .current_dir(at)
            .stdout(Stdio::null());
        let mut upgrade = Killed(upgrade.spawn().unwrap());
        let began = is_moving(at);
        eventually("it is on its way, or has ended", || {
            began || is_moving(at) || upgrade.0.try_wait().unwrap().is_some()
        });
        upgrade.0.kill().unwrap();
        upgrade.0.wait().unwrap();
        if !is_moving(at) {
            continue;
        }
        let words = [
            "an upgrade of OST0 was interrupted",
            "go on with it first: glint upgrade ",
        ];
        glint(at, &["serve", "D"]).failed_saying(&words);
        glint(at, &["fsck", "D"]).failed_saying(&words);
    }
    assert!(is_moving(at) || count_files(at) < files);
    glint(at, &["upgrade", "D"]).worked();
    is_as_before(at);
}

#[test]
fn where_there_is_no_room_for_the_largest_object_nothing_changes() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    shell(
        at,
        "truncate -s 320M disk && mkfs.ext4 -q disk && mkdir small mnt",
    )
    .worked();
    shell(at, "mount -o loop disk small").worked();
    let ran = std::panic::catch_unwind(|| {
        glint(at, &["format", "small/D", "--store", "files"]).worked();
        shell(at, "ln -s small/D D").worked();
        served(at, |at| {
            shell(
                at,
                "head -c 150M /dev/zero > mnt/large && head -c 9M /dev/zero > mnt/other",
            )
            .worked();
        });
        glint(at, &["upgrade", "D"]).failed_saying(&["bytes are free, and an upgrade needs"]);
        assert!(!is_moving(at) && !at.join("D/ost0/extents.new").exists());
        // It can be served, and so room can be made.
        served(at, |at| {
            shell(at, "rm mnt/large").worked();
            // The server removes its bytes a little later.
            eventually("the file of the object is gone", || {
                let large = shell(at, "find D/ost0/objects -size +100M");
                large.worked().is_empty()
            });
            shell(at, "sync small").worked();
        });
        glint(at, &["upgrade", "D"]).worked();
        is_sound(at);
        served(at, |at| {
            shell(at, "cmp -n 9437184 mnt/other /dev/zero").worked();
        });
    });
    shell(at, "umount -l small");
    ran.unwrap();
}

/// The largest file of an object.
fn largest(at: &Path) -> PathBuf {
    let said = shell(at, "find D/ost0/objects -type f -size +8M -size -10M");
    at.join(said.worked().trim())
}

#[test]
fn damaged_bytes_are_named_and_reads_of_them_fail_as_before() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    with_files(at);
    let file = std::fs::File::options()
        .write(true)
        .open(largest(at))
        .unwrap();
    file.write_all_at(b"rot", 5_000_000).unwrap();
    let said = glint(at, &["upgrade", "D"]);
    said.worked();
    let words = "bytes 4997120 to 5001216 are not what was written";
    assert!(said.err.contains(words), "{said:?}");
    let said = glint(at, &["fsck", "D"]);
    said.failed_saying(&["one error"]);
    assert!(said.out.contains(words), "{said:?}");
    served(at, |at| {
        let read = shell(at, "cat mnt/tree/of9437184 > /dev/null");
        assert!(read.err.contains("Input/output error"), "{read:?}");
        shell(at, "cmp -n 4997120 tree/of9437184 mnt/tree/of9437184").worked();
        shell(at, "diff tree/of65537 mnt/tree/of65537").worked();
    });
}
