//! Trees of small files on a target: written whole, replaced a few at a time, read back in a walk's order.

use allocator::{Extent, is_better, is_scattered};
use base::{Rng, SeededRng};

use super::jobs::Moved;
use super::medium::{BLOCK_BYTES, Direction, Medium};
use super::target::{FileId, Target};
use crate::error::Result;
use crate::tree::Sizes;

/// Small files are packed together up to this many blocks, as the allocator's options say.
const SMALL_BLOCKS: u64 = 256;

/// Directories in the order of a walk, each with its files.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    directories: Vec<Vec<FileId>>,
}

/// What one change does: so many files of one directory are replaced, some added, some removed.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    /// Which directory.
    pub directory: usize,
    /// Files that get other bytes.
    pub replaced: u64,
    /// New ones.
    pub added: u64,
    /// Those that go.
    pub removed: u64,
}

/// Blocks of a file of so many bytes.
pub fn blocks_of(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES)
}

impl Tree {
    /// Writes one, all at once.
    pub fn write(target: &mut Target, directories: &[Vec<u64>]) -> Result<Tree> {
        let mut tree = Tree::default();
        for sizes in directories {
            let blocks: Vec<u64> = sizes.iter().map(|bytes| blocks_of(*bytes)).collect();
            tree.directories.push(write_batch(target, &blocks)?);
        }
        Ok(tree)
    }

    /// Directories.
    pub fn directories(&self) -> usize {
        self.directories.len()
    }

    /// Files of all directories.
    pub fn files(&self) -> u64 {
        self.directories
            .iter()
            .map(|files| files.len() as u64)
            .sum()
    }

    /// Makes a change as one batch, and says how many files it wrote. What goes is free again when the new
    /// bytes are durable: after it.
    pub fn change(
        &mut self,
        target: &mut Target,
        change: Change,
        sizes: &mut Sizes,
        rng: &mut SeededRng,
    ) -> Result<u64> {
        let directory = &mut self.directories[change.directory];
        let mut gone = Vec::new();
        let mut places = Vec::new();
        let mut blocks = Vec::new();
        for _ in 0..change.replaced.min(directory.len() as u64) {
            let at = rng.below(directory.len() as u64) as usize;
            if places.contains(&at) {
                continue;
            }
            // The same size, or up to a tenth more.
            let old = target.file(directory[at])?.blocks();
            blocks.push((old + old * rng.below(3) / 20).max(1));
            gone.push(directory[at]);
            places.push(at);
        }
        for _ in 0..change.added {
            places.push(directory.len());
            directory.push(FileId(u64::MAX));
            blocks.push(blocks_of(sizes.next()));
        }
        let new = write_batch(target, &blocks)?;
        let written = new.len() as u64;
        for (at, file) in places.into_iter().zip(new) {
            directory[at] = file;
        }
        for _ in 0..change.removed {
            if directory.len() > 1 {
                let at = rng.below(directory.len() as u64) as usize;
                gone.push(directory.remove(at));
            }
        }
        gone.into_iter().try_for_each(|file| target.remove(file))?;
        Ok(written)
    }

    /// Reads all files in the order of a walk, `together` of them at a time, sorted by their places.
    pub fn read(&self, target: &Target, medium: &mut dyn Medium, together: usize) -> Result<Moved> {
        let files: Vec<FileId> = self.directories.iter().flatten().copied().collect();
        let mut blocks = 0;
        for batch in files.chunks(together) {
            let mut extents: Vec<Extent> = Vec::new();
            for file in batch {
                let file = target.file(*file)?;
                extents.extend(file.extents());
                blocks += file.blocks();
            }
            medium.batch(Direction::Read, &extents)?;
        }
        Ok(Moved {
            bytes: blocks * BLOCK_BYTES,
            seconds: medium.drain()?,
        })
    }

    /// Moves files together that are read together and lie apart, once through the tree, as a target does in
    /// idle time. Says how many blocks were moved; `medium` takes the time.
    pub fn tidy(
        &mut self,
        target: &mut Target,
        medium: &mut dyn Medium,
        together: usize,
    ) -> Result<u64> {
        let mut places: Vec<(usize, usize)> = Vec::new();
        for (directory, files) in self.directories.iter().enumerate() {
            places.extend((0..files.len()).map(|file| (directory, file)));
        }
        let mut moved = 0;
        for batch in places.chunks(together) {
            moved += self.tidy_batch(target, medium, batch)?;
        }
        Ok(moved)
    }

    fn tidy_batch(
        &mut self,
        target: &mut Target,
        medium: &mut dyn Medium,
        batch: &[(usize, usize)],
    ) -> Result<u64> {
        let (mut small, mut blocks, mut old) = (Vec::new(), Vec::new(), Vec::new());
        for (directory, file) in batch {
            let found = target.file(self.directories[*directory][*file])?;
            if found.blocks() < SMALL_BLOCKS {
                small.push((*directory, *file));
                blocks.push(found.blocks());
                old.extend(found.extents().to_vec());
            }
        }
        if !is_scattered(&old) {
            return Ok(0);
        }
        let files = write_batch(target, &blocks)?;
        let mut new = Vec::new();
        for file in &files {
            new.extend(target.file(*file)?.extents().to_vec());
        }
        if !is_better(&new, &old) {
            files.into_iter().try_for_each(|file| target.remove(file))?;
            return Ok(0);
        }
        medium.batch(Direction::Read, &old)?;
        medium.batch(Direction::Write, &new)?;
        for ((directory, file), moved) in small.into_iter().zip(files) {
            let before = std::mem::replace(&mut self.directories[directory][file], moved);
            target.remove(before)?;
        }
        Ok(blocks.iter().sum())
    }

    /// The same tree, written anew on an empty target.
    pub fn copy(&self, from: &Target, to: &mut Target) -> Result<Tree> {
        let mut tree = Tree::default();
        for directory in &self.directories {
            let blocks = directory.iter().map(|file| Ok(from.file(*file)?.blocks()));
            let blocks = blocks.collect::<Result<Vec<u64>>>()?;
            tree.directories.push(write_batch(to, &blocks)?);
        }
        Ok(tree)
    }
}

/// Writes files of so many blocks, which reach the target together.
fn write_batch(target: &mut Target, blocks: &[u64]) -> Result<Vec<FileId>> {
    let small = blocks.iter().filter(|blocks| **blocks < SMALL_BLOCKS);
    target.prepare_small(small.sum())?;
    let files = blocks.iter().map(|blocks| target.write_whole(*blocks));
    files.collect()
}

#[cfg(test)]
mod tests {
    use allocator::Options;

    use super::super::array::Array;
    use super::super::parameters::Parameters;
    use super::*;
    use crate::tree::directory_sizes;

    fn seconds(tree: &Tree, target: &Target) -> f64 {
        let mut array = Array::new(Parameters::default());
        tree.read(target, &mut array, 512).unwrap().seconds
    }

    #[test]
    fn a_tree_that_was_changed_reads_slower_than_its_copy() {
        let mut target = Target::empty(4, Options::default());
        let mut rng = SeededRng::new(1);
        let mut sizes = Sizes::new(&mut rng);
        let mut tree = Tree::write(&mut target, &directory_sizes(1, 2000)).unwrap();
        let files = tree.files();
        let first = seconds(&tree, &target);
        for _ in 0..200 {
            let change = Change {
                directory: rng.below(tree.directories() as u64) as usize,
                replaced: 2,
                added: 1,
                removed: 1,
            };
            tree.change(&mut target, change, &mut sizes, &mut rng)
                .unwrap();
        }
        assert!(tree.files() >= files);
        let mut other = Target::empty(4, Options::default());
        let copy = tree.copy(&target, &mut other).unwrap();
        assert_eq!(copy.files(), tree.files());
        let used = |target: &Target| target.files().map(|file| file.blocks()).sum::<u64>();
        assert_eq!(used(&target), used(&other));
        let (aged, fresh) = (seconds(&tree, &target), seconds(&copy, &other));
        assert!(aged > 1.2 * fresh && fresh < 1.5 * first, "{aged} {fresh}");
    }
}
