//! A target without bytes: files as extents that the object store's allocator placed.

use std::collections::BTreeMap;

use allocator::{
    Allocator, Extent, GROUP_BLOCKS, Length, Options, Owner, PreallocTable, Refused, Want,
};
use base::Tick;

use super::medium::MIB_BLOCKS;
use crate::error::{BenchError, Result};

/// A file's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId(pub u64);

/// Where a file's blocks lie, neighbours joined.
#[derive(Debug, Clone, Default)]
pub struct File {
    extents: Vec<Extent>,
    blocks: u64,
}

impl File {
    /// In the order of the file.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// How many.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    fn push(&mut self, extent: Extent) {
        self.blocks += u64::from(extent.blocks);
        match self.extents.last_mut() {
            Some(last) if last.end() == extent.start => last.blocks += extent.blocks,
            _ => self.extents.push(extent),
        }
    }
}

/// Free space and files. The clock is the work done: each placement is a tick.
#[derive(Debug)]
pub struct Target {
    allocator: Allocator,
    files: BTreeMap<FileId, File>,
    next: u64,
    clock: u64,
}

fn refused(refused: Refused) -> BenchError {
    BenchError::Invalid(format!("the target: {refused}"))
}

impl Target {
    /// Of `groups` groups, all free.
    pub fn empty(groups: u32, options: Options) -> Target {
        let blocks = u64::from(groups) * u64::from(GROUP_BLOCKS);
        Target {
            allocator: Allocator::empty(blocks, options),
            files: BTreeMap::new(),
            next: 0,
            clock: 0,
        }
    }

    /// Its allocator.
    pub fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    /// From now on windows have these sizes.
    pub fn set_table(&mut self, table: PreallocTable) {
        self.allocator.set_table(table);
    }

    /// A new file without bytes.
    pub fn create(&mut self) -> FileId {
        let id = FileId(self.next);
        self.next += 1;
        self.files.insert(id, File::default());
        id
    }

    /// A file.
    pub fn file(&self, id: FileId) -> Result<&File> {
        let file = self.files.get(&id);
        file.ok_or_else(|| BenchError::Invalid(format!("no file {} on the target", id.0)))
    }

    /// All files.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.files.values()
    }

    /// Blocks that can be had, those reserved for others among them.
    pub fn free_blocks(&self) -> u64 {
        self.allocator.free_blocks() + self.allocator.reserved_blocks()
    }

    /// Makes a file longer by `blocks`. Returns where they lie, an extent for each placement. `known`: blocks
    /// that it will have, if its writer says so.
    pub fn append(&mut self, id: FileId, blocks: u64, known: Option<u64>) -> Result<Vec<Extent>> {
        let mut placed = Vec::new();
        let mut left = blocks;
        while left > 0 {
            let file = self.file(id)?;
            let logical = file.blocks();
            let want = Want {
                owner: Owner(u128::from(id.0)),
                logical,
                blocks: left.min(u64::from(GROUP_BLOCKS)) as u32,
                length: known.map_or(Length::Open(logical), Length::Known),
                goal: file.extents().last().map(|last| last.end()),
            };
            self.clock += 1;
            let extent = self.allocator.place(Tick(self.clock), &want);
            let extent = extent.map_err(refused)?;
            left -= u64::from(extent.blocks);
            if let Some(file) = self.files.get_mut(&id) {
                file.push(extent);
            }
            placed.push(extent);
        }
        Ok(placed)
    }

    /// The next small files, of so many blocks in all, come together.
    pub fn prepare_small(&mut self, blocks: u64) -> Result<()> {
        let blocks = blocks.min(u64::from(GROUP_BLOCKS)) as u32;
        self.allocator.prepare_small(blocks).map_err(refused)
    }

    /// A new file of known length, written at once.
    pub fn write_whole(&mut self, blocks: u64) -> Result<FileId> {
        let id = self.create();
        self.append(id, blocks, Some(blocks))?;
        self.close(id);
        Ok(id)
    }

    /// The writer closes it: what is reserved for it is free again.
    pub fn close(&mut self, id: FileId) {
        self.allocator.release(Owner(u128::from(id.0)));
    }

    /// Its blocks are free again.
    pub fn remove(&mut self, id: FileId) -> Result<()> {
        self.close(id);
        let file = self.files.remove(&id).unwrap_or_default();
        let mut extents = file.extents.into_iter();
        extents
            .try_for_each(|extent| self.allocator.free(extent))
            .map_err(refused)
    }

    /// The used part of each MiB, from 0 to 255.
    pub fn used_of_each_mib(&self) -> Vec<u8> {
        let mut used = vec![0_u64; (self.allocator.blocks() / MIB_BLOCKS) as usize];
        for extent in self.files().flat_map(File::extents) {
            for block in extent.start.0..extent.end().0 {
                used[(block / MIB_BLOCKS) as usize] += 1;
            }
        }
        let part = |blocks: u64| (blocks * 255 / MIB_BLOCKS) as u8;
        used.into_iter().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_removed_can_be_had_again() {
        let mut target = Target::empty(2, Options::default());
        let all = target.free_blocks();
        let file = target.create();
        target.append(file, all / 2, None).unwrap();
        assert_eq!(target.file(file).unwrap().blocks(), all / 2);
        let other = target.create();
        assert!(target.append(other, all, None).is_err());
        let used: u64 = target.used_of_each_mib().into_iter().map(u64::from).sum();
        assert_eq!(used, 256 * 255);
        target.remove(file).unwrap();
        target.remove(other).unwrap();
        assert_eq!(target.free_blocks(), all);
        assert!(target.file(file).is_err());
    }
}
