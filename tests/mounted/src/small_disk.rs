//! A local file system that is soon full.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// A file system that holds little; only root can make one.
pub struct SmallDisk {
    // Unmounted before its directory, with the file it is in, goes.
    point: tempfile::TempDir,
    _file: Option<tempfile::TempDir>,
}

impl SmallDisk {
    /// In memory, with room for `bytes`.
    pub fn in_memory(bytes: u64) -> SmallDisk {
        let point = tempfile::tempdir().expect("a directory can be made");
        let options = format!("size={bytes}");
        mount(
            Some("small"),
            point.path(),
            Some("tmpfs"),
            MsFlags::empty(),
            Some(options.as_str()),
        )
        .expect("root can mount");
        SmallDisk { point, _file: None }
    }

    /// A real ext4 in a file of `bytes`, behind a loop device that the kernel gives back when it is
    /// unmounted. With a journal, blocks that are allocated late, and errors that come with
    /// `fsync`.
    pub fn ext4(bytes: u64) -> SmallDisk {
        let point = tempfile::tempdir().expect("a directory can be made");
        let directory = tempfile::tempdir().expect("another one, too");
        let image = directory.path().join("image");
        let file = File::create(&image).expect("a file for the disk");
        file.set_len(bytes).expect("room for the disk");
        // Root may not use more than others, so that full is full.
        let format = ["-q", "-F", "-m", "0", "-b", "4096"];
        succeed(Command::new("mkfs.ext4").args(format).arg(&image));
        let mut mount = Command::new("mount");
        mount.args(["-t", "ext4", "-o", "loop"]);
        succeed(mount.arg(&image).arg(point.path()));
        SmallDisk {
            point,
            _file: Some(directory),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.point.path()
    }
}

/// Runs a command that root can run.
fn succeed(command: &mut Command) {
    let done = command.output();
    let done = done.unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {said}");
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = umount2(self.point.path(), MntFlags::MNT_DETACH);
    }
}
