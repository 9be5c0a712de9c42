//! What a store of objects on extents knows besides its rows: objects that changed, and its disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use allocator::{Block, Extent, Group, Io, Length, Owner, Want};
use base::Tick;

use super::backing::{Backed, TRIED_MAX};
use crate::disk::Disk;
use crate::error::{Result, StorageError};
use crate::extents::changed::{Object, Part};
use crate::extents::device::ExtentDisk;
use crate::extents::geometry::{STEP_BLOCKS, steps_of};
use crate::extents::segment::{Named, Piece, SEGMENT_BLOCKS};
use crate::objects::ObjectId;

/// Objects that changed, and the disk below.
#[derive(Debug)]
pub struct State {
    pub device: ExtentDisk<Arc<dyn Disk>>,
    pub changed: BTreeMap<ObjectId, Object>,
    /// Blocks that the next commit frees.
    freed_blocks: u64,
    /// Reads under way.
    reads: u64,
    backed: Backed,
}

/// Which object a run of blocks is for, and how long that will be.
#[derive(Debug, Clone, Copy)]
pub struct For {
    pub id: ObjectId,
    /// The first block, of the object.
    pub logical: u64,
    pub length: Length,
    /// Behind the block before.
    pub goal: Option<Block>,
}

fn owner(id: ObjectId) -> Owner {
    Owner(u128::from(id.fid.0) << 32 | u128::from(id.stripe))
}

impl State {
    pub fn new(device: ExtentDisk<Arc<dyn Disk>>) -> State {
        let groups = 0..device.geometry().groups();
        let backed = Backed::new(device.groups_in_use(), groups);
        State {
            device,
            changed: BTreeMap::new(),
            freed_blocks: 0,
            reads: 0,
            backed,
        }
    }

    /// Blocks that can be had now.
    pub fn free_blocks(&mut self) -> u64 {
        let allocator = self.device.allocator();
        allocator.free_blocks() + allocator.reserved_blocks()
    }

    /// Blocks that were freed, and wait for a commit or for reads.
    pub fn pending_blocks(&self) -> u64 {
        self.freed_blocks + self.device.pending_blocks()
    }

    /// Blocks that are free, or will be when asked for.
    pub fn room(&mut self) -> u64 {
        self.free_blocks() + self.pending_blocks()
    }

    /// A read is under way.
    pub fn is_read(&self) -> bool {
        self.reads > 0
    }

    /// A read begins.
    pub fn begin_read(&mut self) -> Io {
        self.reads += 1;
        self.device.begin_io()
    }

    /// It has ended.
    pub fn end_read(&mut self, io: Io) {
        self.reads -= 1;
        self.device.end_io(io);
    }

    /// All that was freed is part of commits.
    pub fn committed_frees(&mut self, blocks: u64) {
        self.freed_blocks -= blocks;
    }

    /// Blocks for the first ones of `blocks`.
    pub fn place(&mut self, wanted: For, blocks: u32) -> Result<Extent> {
        let want = Want {
            owner: owner(wanted.id),
            logical: wanted.logical,
            blocks,
            length: wanted.length,
            goal: wanted.goal,
        };
        if !self.is_full_below()? {
            let place = self.device.place(Tick(0), &want)?;
            if let Some(place) = self.keep_backed(place)? {
                return Ok(place);
            }
        }
        let found = self.place_backed(blocks)?;
        found.ok_or_else(|| StorageError::NoSpace {
            at: "the disk below the extents".to_owned(),
        })
    }

    /// Space was not to be had from the file system below, and there is no more now.
    pub fn is_full_below(&mut self) -> Result<bool> {
        self.backed.is_full_below(&self.device)
    }

    /// How often blocks became free.
    pub fn frees(&self) -> u64 {
        self.device.frees()
    }

    /// The last bytes of the file system below may be taken, which are kept for records else.
    pub fn take_last_bytes(&mut self) {
        self.backed.take_last_bytes();
    }

    /// The first blocks of `place` that have space below; the others are given back. None: no block has.
    fn keep_backed(&mut self, place: Extent) -> Result<Option<Extent>> {
        let backed = self.backed.take(&self.device, place)?;
        if backed == place.blocks {
            return Ok(Some(place));
        }
        let (first, rest) = place.split(backed);
        self.device.give_back(rest)?;
        Ok((backed > 0).then_some(first))
    }

    /// Free blocks whose space was taken from below before: nothing more can be had there. The search goes on
    /// where the last one ended. None: there are none, and none is looked for before a block becomes free.
    fn place_backed(&mut self, blocks: u32) -> Result<Option<Extent>> {
        let frees = self.device.frees();
        if self.backed.has_searched(frees) {
            return Ok(None);
        }
        // What is reserved has its space too, and nobody can have more now.
        self.device.allocator().release_all();
        let (groups, from) = (self.device.geometry().groups(), self.backed.search_from());
        let mut tries = TRIED_MAX;
        for behind in 0..=groups {
            let group = Group((from.group().0 + behind) % groups);
            if !self.device.was_in_use(group) && !self.backed.has_any(group) {
                continue;
            }
            let first = if behind == 0 { from.in_group() } else { 0 };
            if let Some(place) = self.place_backed_in(group, first, blocks, &mut tries)? {
                self.backed.note_found(place.end());
                return Ok(Some(place));
            }
        }
        self.backed.note_searched(frees);
        Ok(None)
    }

    /// The same in one group, from a block of it on. `tries` steps may turn out to have no space.
    fn place_backed_in(
        &mut self,
        group: Group,
        first: u32,
        blocks: u32,
        tries: &mut u32,
    ) -> Result<Option<Extent>> {
        let mut first = first;
        while *tries > 0 {
            let Some(stretch) = self.backed_stretch(group, first, blocks)? else {
                return Ok(None);
            };
            let confirmed = self.confirmed(stretch)?;
            if confirmed > 0 {
                let (stretch, _) = stretch.split(confirmed);
                return self.device.place_in(stretch, blocks);
            }
            *tries -= 1;
            first = (stretch.start.in_group() / STEP_BLOCKS + 1) * STEP_BLOCKS;
        }
        Ok(None)
    }

    /// At most `blocks` free blocks of a group in a row whose space was taken before: the next ones from
    /// block `first` of it on. A step with a block that is in use has its space whole.
    fn backed_stretch(&mut self, group: Group, first: u32, blocks: u32) -> Result<Option<Extent>> {
        let backed = &self.backed;
        let is_backed = |step, is_used| is_used || backed.has(step);
        self.device.next_free(group, first, blocks, is_backed)
    }

    /// How many of these blocks, from the first one on, have their space for certain.
    fn confirmed(&mut self, stretch: Extent) -> Result<u32> {
        let mut confirmed = 0;
        for step in steps_of(stretch) {
            if !self.backed.confirm(&self.device, step.start)? {
                break;
            }
            confirmed += step.blocks;
        }
        Ok(confirmed)
    }

    /// Gives space of one group back to the file system below. `false`: there is nothing to look at. The
    /// group that grows comes last.
    pub fn shrink(&mut self) -> Result<bool> {
        self.backed.add_loose(self.device.take_freed());
        let last = self.device.allocator().cursors().stream;
        let Some(group) = self.backed.take_loose(last) else {
            return Ok(false);
        };
        for place in self.device.discard_free(group, STEP_BLOCKS)? {
            self.backed.forget(place);
        }
        Ok(true)
    }

    /// The object as it is here, which must have been looked up: one that was made up here would take the
    /// place of its rows.
    pub fn object(&mut self, id: ObjectId) -> Result<&mut Object> {
        let known = self.changed.get_mut(&id);
        known.ok_or_else(|| StorageError::refused(format!("object {id}"), "it was not looked up"))
    }

    /// Changes the blocks of a segment that is known here.
    pub fn change(
        &mut self,
        id: ObjectId,
        number: u64,
        change: impl FnOnce(&mut Part),
    ) -> Result<()> {
        match self.object(id)?.change(number, change) {
            true => Ok(()),
            false => Err(StorageError::refused(
                format!("segment {number} of object {id}"),
                "it was not looked up",
            )),
        }
    }

    /// Frees blocks `range` of a segment that is known here.
    pub fn free(&mut self, id: ObjectId, number: u64, range: std::ops::Range<u32>) -> Result<()> {
        let has_any = self.object(id)?.part(number);
        if has_any.is_none_or(|segment| segment.parts(&range).is_empty()) {
            return Ok(());
        }
        let (mut unnamed, mut freed_blocks) = (Vec::new(), 0);
        self.change(id, number, |part| {
            for piece in part.segment.take(&range) {
                if piece.named == Named::Not {
                    unnamed.push(piece.place);
                } else {
                    freed_blocks += u64::from(piece.place.blocks);
                    part.freed.push(piece.place);
                }
            }
        })?;
        self.freed_blocks += freed_blocks;
        if !unnamed.is_empty() {
            self.device.drop_unnamed(unnamed);
        }
        Ok(())
    }

    /// Puts a piece where nothing is.
    pub fn put(&mut self, id: ObjectId, number: u64, piece: Piece) -> Result<()> {
        self.change(id, number, |part| part.segment.put(piece))
    }

    /// What is reserved for the object to grow is free again.
    pub fn release(&mut self, id: ObjectId) {
        self.device.allocator().release(owner(id));
    }

    /// Where blocks of the object before block `block` of a segment end, if they are known.
    pub fn goal(&mut self, id: ObjectId, number: u64, block: u32) -> Option<Block> {
        let object = self.changed.get(&id)?;
        let (number, before) = match block {
            0 => (number.checked_sub(1)?, SEGMENT_BLOCKS - 1),
            block => (number, block - 1),
        };
        let piece = object.part(number)?.at(before)?;
        Some(piece.place_of(before).after(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::MemDisk;
    use crate::extents::device::Opened;
    use crate::extents::geometry::{Geometry, StoreId};

    #[test]
    fn an_object_that_was_not_looked_up_is_not_made_up() {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        let geometry = Geometry::new(StoreId([1; 16]), 1 << 20, 16).unwrap();
        ExtentDisk::create(&disk, &geometry).unwrap();
        let opened = ExtentDisk::open(disk, "OST0", allocator::Options::default());
        let Opened { store, .. } = opened.unwrap();
        let mut state = State::new(store);
        let id = ObjectId::new(base::Fid::new(0x400, 1), 0);
        let error = state.object(id).unwrap_err();
        assert!(
            error.to_string().contains("it was not looked up"),
            "{error}"
        );
        assert!(state.change(id, 0, |_| ()).is_err());
        assert!(state.changed.is_empty());
        state.changed.insert(id, Object::default());
        assert!(state.object(id).is_ok());
        let error = state.change(id, 3, |_| ()).unwrap_err();
        assert!(error.to_string().contains("segment 3 of object"), "{error}");
    }
}
