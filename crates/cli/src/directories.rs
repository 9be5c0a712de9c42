//! The directories of targets that a command names: none of them twice, and no target in two.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use storage::{State, Superblock, TargetDir};

/// Says which directory is named twice, however it is spelt, or which target is in two of them. One
/// is a copy, and which one is the right one only a person can say.
pub fn refuse_twice(dirs: &[PathBuf]) -> Result<(), String> {
    let mut seen: Vec<((u64, u64), &Path)> = Vec::new();
    let mut targets: Vec<(Superblock, &Path)> = Vec::new();
    for dir in dirs {
        // A directory that is not there, or not whole, is reported when it is opened.
        let (Ok(found), Ok(state)) = (std::fs::metadata(dir), TargetDir::inspect(dir)) else {
            continue;
        };
        let identity = (found.dev(), found.ino());
        if let Some((_, first)) = seen.iter().find(|(known, _)| *known == identity) {
            return Err(format!(
                "{} is named twice, first as {}; name each directory once",
                dir.display(),
                first.display()
            ));
        }
        seen.push((identity, dir));
        let State::Targets { superblocks, .. } = state else {
            continue;
        };
        for superblock in superblocks {
            let is_it = |known: &Superblock| {
                known.fs_uuid == superblock.fs_uuid && known.target == superblock.target
            };
            if let Some((_, first)) = targets.iter().find(|(known, _)| is_it(known)) {
                return Err(format!(
                    "{} of the file system {} is in {} and in {}; name the one that is right, and \
                     put the other away",
                    superblock.target,
                    superblock.fs_name,
                    first.display(),
                    dir.display()
                ));
            }
            targets.push((superblock, dir));
        }
    }
    Ok(())
}
