//! Source trees to work on: a real one from Debian, or a generated one of the same shape, as tar files
//! in a cache directory.

mod debian;
mod generated;
mod shape;

use std::fs::File;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use tar::{Archive, EntryType};

use crate::error::{BenchError, During, Result};
use crate::interrupt::StopFlag;
use crate::progress::{Event, Progress};

/// Entries of the kernel tree that the generated one is modelled on.
pub const KERNEL_ENTRIES: u64 = 83_732;
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
    /// Debian's kernel source: from the cache, from /usr/src, or from apt, which takes a minute.
    pub fn debian(cache: &Path, stop: &StopFlag, progress: &mut Progress) -> Result<SourceTree> {
        debian::obtain(cache, stop, progress)
    }

    /// A tree of that many entries in the shape of a kernel tree, the same for the same seed.
    pub fn generated(
        cache: &Path,
        seed: u64,
        entries: u64,
        stop: &StopFlag,
        progress: &mut Progress,
    ) -> Result<SourceTree> {
        generated::obtain(cache, seed, entries, stop, progress)
    }

    /// [`debian`](Self::debian), or where that cannot be had a generated tree of the same size.
    pub fn kernel(cache: &Path, stop: &StopFlag, progress: &mut Progress) -> Result<SourceTree> {
        match SourceTree::debian(cache, stop, progress) {
            Err(BenchError::Interrupted) => Err(BenchError::Interrupted),
            Err(error) => {
                progress(Event::Line(format!(
                    "no Debian kernel source ({error}); generating a tree of the same shape"
                )));
                SourceTree::generated(cache, 1, KERNEL_ENTRIES, stop, progress)
            }
            tree => tree,
        }
    }

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
