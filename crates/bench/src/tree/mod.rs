//! Source trees to work on: a real one from Debian, or a generated one of the same shape, as tar files
//! in a cache directory.

mod debian;
mod generated;
mod shape;
mod source_tree;

use std::path::Path;

use crate::error::{BenchError, Result};
use crate::interrupt::StopFlag;
use crate::progress::{Event, Progress};

pub use shape::KERNEL_ENTRIES;
pub(crate) use shape::{Sizes, directory_sizes};
pub use source_tree::{ABSENT_WORD, SourceTree, TreeCount};

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
}
