//! A local file system that is soon full.

use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// A file system in memory that holds little; only root can make one.
pub struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    /// Room for `bytes`.
    pub fn new(bytes: u64) -> SmallDisk {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let options = format!("size={bytes}");
        mount(
            Some("small"),
            dir.path(),
            Some("tmpfs"),
            MsFlags::empty(),
            Some(options.as_str()),
        )
        .expect("root can mount");
        SmallDisk { dir }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = umount2(self.dir.path(), MntFlags::MNT_DETACH);
    }
}
