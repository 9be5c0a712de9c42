//! Block devices that are files.

use std::path::{Path, PathBuf};

use super::shell;

/// A loop device, for as long as the test runs.
pub struct Loop {
    /// The device.
    pub path: String,
    file: PathBuf,
}

impl Loop {
    #[track_caller]
    pub fn new(at: &Path, name: &str, size: &str) -> Loop {
        let file = at.join(name);
        shell(at, &format!("truncate -s {size} {name}")).worked();
        let made = shell(at, &format!("losetup --find --show {name}"));
        let path = made.worked().trim().to_owned();
        Loop { path, file }
    }

    /// The file has `size` from now on, and so has the device.
    #[track_caller]
    pub fn resize(&self, size: &str) {
        let (dir, file) = (self.file.parent().expect("it has one"), self.file.display());
        shell(
            dir,
            &format!("truncate -s {size} {file} && losetup -c {}", self.path),
        )
        .worked();
    }

    /// What the device holds.
    #[track_caller]
    pub fn sum(&self) -> String {
        let dir = self.file.parent().expect("it has one");
        let said = shell(dir, &format!("sync && sha256sum < {}", self.path));
        said.worked().to_owned()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let dir = self.file.parent().expect("it has one");
        shell(dir, &format!("losetup --detach {}", self.path));
    }
}
