//! A source tree as a tar file.

use std::fs::File;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use tar::{Archive, EntryType};

use crate::error::{BenchError, During, Result};

/// A word that no generated file holds, nor the kernel: what `grep -r` looks for in vain.
pub const ABSENT_WORD: &str = "qwxzjvkqpglint";

/// What a tree holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TreeCount {
    /// Directories, the top one included.
    pub directories: u64,
    /// Regular files.
    pub files: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Bytes in all files.
    pub bytes: u64,
}

impl TreeCount {
    /// Everything that has a name.
    pub fn entries(&self) -> u64 {
        self.directories + self.files + self.symlinks
    }
}

/// A tar file with one top directory.
#[derive(Debug, Clone)]
pub struct SourceTree {
    /// Where the tar file is. Not compressed, so that unpacking measures the file system.
    pub tar: PathBuf,
    /// The directory that holds everything in it.
    pub top: PathBuf,
    /// What it holds.
    pub count: TreeCount,
    /// What it is, for the report's title.
    pub origin: String,
}

impl SourceTree {
    /// Any tar file with one top directory.
    pub fn from_tar(tar: &Path, origin: impl Into<String>) -> Result<SourceTree> {
        let (top, count) = survey(tar)?;
        Ok(SourceTree {
            tar: tar.to_path_buf(),
            top,
            count,
            origin: origin.into(),
        })
    }
}

/// Reads every header of a tar file.
fn survey(tar: &Path) -> Result<(PathBuf, TreeCount)> {
    let doing = || format!("reading {}", tar.display());
    let mut archive = Archive::new(File::open(tar).during(doing)?);
    let (mut top, mut count) = (None, TreeCount::default());
    for entry in archive.entries_with_seek().during(doing)? {
        let entry = entry.during(doing)?;
        let path = entry.path().during(doing)?;
        match entry.header().entry_type() {
            EntryType::Directory => count.directories += 1,
            EntryType::Symlink => count.symlinks += 1,
            EntryType::Regular | EntryType::Link => {
                count.files += 1;
                count.bytes += entry.size();
            }
            EntryType::XGlobalHeader => continue,
            _ => {}
        }
        let first = first_component(&path).ok_or_else(|| several_tops(tar))?;
        if *top.get_or_insert_with(|| first.clone()) != first {
            return Err(several_tops(tar));
        }
    }
    let top = top.ok_or_else(|| BenchError::Invalid(format!("{} is empty", tar.display())))?;
    Ok((top, count))
}

fn first_component(path: &Path) -> Option<PathBuf> {
    let mut components = path.components().filter(|part| *part != Component::CurDir);
    match components.next()? {
        Component::Normal(name) => Some(PathBuf::from(name)),
        _ => None,
    }
}

fn several_tops(tar: &Path) -> BenchError {
    BenchError::Invalid(format!(
        "{} does not have one directory that holds everything",
        tar.display()
    ))
}
