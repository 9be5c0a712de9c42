//! Loop devices: files that the kernel serves as disks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::output;

/// Where the kernel lists disks.
const DISKS: &str = "/sys/block";
/// What the kernel says behind the name of a file that was removed.
const REMOVED: &str = " (deleted)";

/// Devices whose files are, or were, below a directory, by their paths in /dev. `directory` has no
/// links in it.
pub(crate) fn attached_below(directory: &Path) -> Vec<PathBuf> {
    let disks = fs::read_dir(DISKS).into_iter().flatten().flatten();
    disks
        .filter(|disk| {
            let file = fs::read_to_string(disk.path().join("loop/backing_file"));
            file.is_ok_and(|file| is_below(&file, directory))
        })
        .map(|disk| Path::new("/dev").join(disk.file_name()))
        .collect()
}

fn is_below(file: &str, directory: &Path) -> bool {
    let file = file.strip_suffix('\n').unwrap_or(file);
    Path::new(file.strip_suffix(REMOVED).unwrap_or(file)).starts_with(directory)
}

/// Takes its file away; as soon as nobody uses it, if somebody does.
pub(crate) fn detach(device: &Path) {
    // Without permission it stays: the next one to come tries again.
    let _ = output(Command::new("losetup").arg("--detach").arg(device));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_below_count() {
        let below = |file: &str| is_below(file, Path::new("/a/b"));
        assert!(below("/a/b/image\n"));
        assert!(below("/a/b/c/image (deleted)\n"));
        assert!(!below("/a/bc/image\n"));
        assert!(!below("/c/a/b/image\n"));
        assert!(!below("\n"));
    }
}
