//! A tree as source code has it: small files, some empty, some larger, links, modes and times.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base::{Rng, SeededRng};

use crate::program::run;

/// Files in each directory.
const FILES: u64 = 20;

/// Makes one of so many directories, at least five, below `root`.
pub fn make_source_tree(root: &Path, directories: u64, rng: &mut SeededRng) {
    for dir in 0..directories {
        let path = root.join(format!("d{}/e{dir}", dir % 5));
        fs::create_dir_all(&path).expect("a directory");
        for number in 0..FILES {
            let length = match rng.below(8) {
                0 => 0,
                1 => rng.below(200_000),
                _ => rng.below(8_000),
            };
            let bytes: Vec<u8> = (0..length).map(|i| (i * 7 + number + dir) as u8).collect();
            fs::write(path.join(format!("f{number}.c")), bytes).expect("a file");
        }
        std::os::unix::fs::symlink("f0.c", path.join("link")).expect("a link");
    }
    run(
        root,
        "chmod 755 d1/e1/f1.c; chmod 600 d2/e2/f2.c; touch -d 2001-02-03 d3/e3/*; ln d4/e4/f4.c d0/hard",
    );
}

/// The same in `local`/tree; and the archive of it.
pub fn pack_source_tree(local: &Path, directories: u64, rng: &mut SeededRng) -> PathBuf {
    let tree = local.join("tree");
    fs::create_dir_all(&tree).expect("a directory");
    make_source_tree(&tree, directories, rng);
    run(local, "tar --format=posix -cf tree.tar tree");
    local.join("tree.tar")
}

/// Unpacks an archive in the new directory `dir`: `tar` has nothing to complain of.
pub fn unpack(archive: &Path, dir: &Path) {
    fs::create_dir(dir).expect("a directory");
    let mut tar = Command::new("tar");
    let tar = tar.arg("-xf").arg(archive).current_dir(dir).output();
    let tar = tar.expect("tar runs");
    let said = String::from_utf8_lossy(&tar.stderr);
    assert!(tar.status.success() && said.is_empty(), "tar: {said}");
}
