//! A store of extents on a [`Disk`]: writes what the state says, syncs, and hands out blocks. Rows are its
//! caller's, who drains them to tables.

use std::collections::{BTreeSet, VecDeque};

use allocator::{
    Allocator, Block, Cursors, Extent, GROUP_BLOCKS, GROUP_WORDS, Group, Io, Options, Refused,
    Reuse, Want,
};
use base::Tick;

use super::commit::Commit;
use super::gathered::Gathered;
use super::geometry::{Geometry, STEP_BLOCKS, SUPERBLOCKS, steps_of};
use super::log::{BLOCK_BYTES, Piece};
use super::maps::Maps;
use super::recovery::{Recovered, Replayed, first_table, read_map, recover};
use super::state::{Checkpoint, Refusal, State};
use crate::disk::Disk;
use crate::error::{Result, StorageError};

/// So many bitmaps are looked at in one go for those that can be forgotten.
const FORGOTTEN_MAX: usize = 64;

/// Blocks, commits of them, and checkpoints. After an error of the disk it does nothing more.
#[derive(Debug)]
pub struct ExtentDisk<D> {
    disk: D,
    name: String,
    state: State,
    allocator: Allocator,
    reuse: Reuse,
    gathered: Gathered,
    /// Groups in which blocks became free since somebody asked.
    freed: BTreeSet<Group>,
    /// How often blocks became free.
    frees: u64,
    /// Groups whose bitmaps are in memory, the one that was read first first.
    loaded: VecDeque<Group>,
    loaded_max: usize,
    stopped: Option<StorageError>,
}

/// A store that was opened.
#[derive(Debug)]
pub struct Opened<D> {
    /// The store.
    pub store: ExtentDisk<D>,
    /// Rows that may not be in their tables yet, in order.
    pub replayed: Vec<Replayed>,
}

impl<D: Disk> ExtentDisk<D> {
    /// Makes an empty store on `disk`, forgetting what it held. Durable when this returns.
    pub fn create(disk: &D, geometry: &Geometry) -> Result<()> {
        let bytes = geometry.blocks * BLOCK_BYTES;
        if disk.len()? < bytes {
            disk.set_len(bytes)?;
        }
        // No superblock names what is half made.
        for copy in 0..SUPERBLOCKS {
            disk.write(copy * BLOCK_BYTES, &[0; BLOCK_BYTES as usize])?;
        }
        disk.sync()?;
        let table = first_table(geometry).encode(geometry);
        disk.write(geometry.table_offset(0), &vec![0; table.bytes.len()])?;
        disk.write(table.offset, &table.bytes)?;
        disk.sync()?;
        for copy in 0..SUPERBLOCKS {
            disk.write(copy * BLOCK_BYTES, &geometry.encode())?;
        }
        disk.sync()
    }

    /// Opens the store on `disk`, which messages call `name`. Nothing is written where it is damaged.
    pub fn open(disk: D, name: &str, options: Options) -> Result<Opened<D>> {
        let recovered = recover(&disk, name)?;
        let Recovered {
            state,
            replayed,
            cursors,
            restores_superblock,
        } = recovered;
        let loaded_max = options.loaded_max;
        let allocator = allocator_of(&state, cursors, options);
        let loaded = groups_of(&state).filter(|group| state.maps().map(group.0).is_some());
        let mut store = ExtentDisk {
            disk,
            name: name.to_owned(),
            loaded: loaded.collect(),
            state,
            allocator,
            reuse: Reuse::default(),
            gathered: Gathered::default(),
            freed: BTreeSet::new(),
            frees: 0,
            loaded_max,
            stopped: None,
        };
        if restores_superblock {
            for copy in 0..SUPERBLOCKS {
                store
                    .disk
                    .write(copy * BLOCK_BYTES, &store.state.geometry().encode())?;
            }
        }
        // What was read may be in the system's memory only, if a process was killed.
        store.disk.sync()?;
        let (_, pieces) = store
            .state
            .begin_life()
            .map_err(|refusal| store.refused(refusal))?;
        store.write_pieces(&pieces)?;
        store.sync()?;
        Ok(Opened { store, replayed })
    }

    /// What lies where.
    pub fn geometry(&self) -> &Geometry {
        self.state.geometry()
    }

    /// The disk.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Which blocks the records name, of all groups: reads the maps that are not in memory.
    pub fn all_maps(&mut self) -> Result<&Maps> {
        for group in groups_of(&self.state) {
            self.read_map(group)?;
        }
        Ok(self.state.maps())
    }

    /// Groups whose bitmaps are in memory.
    pub fn loaded(&self) -> usize {
        self.loaded.len()
    }

    /// Which blocks of a group are in use: has them in memory, for the allocator too.
    fn load(&mut self, group: Group) -> Result<()> {
        self.read_map(group)?;
        if !self.allocator.is_loaded(group) {
            let unused = [0; GROUP_WORDS];
            let map = self.state.maps().map(group.0).unwrap_or(&unused);
            self.allocator.load(group, map);
            self.note_loaded(group);
        }
        Ok(())
    }

    /// Reads a group's map, if there is one that is not in memory. A damaged one stops the store.
    fn read_map(&mut self, group: Group) -> Result<()> {
        if !self.state.maps().is_away(group.0) {
            return Ok(());
        }
        let Some(source) = self.state.map_source(group) else {
            return Ok(());
        };
        let read = read_map(&self.disk, &self.name, group, source);
        let map = read.inspect_err(|error| self.stopped = Some(error.clone()))?;
        self.state.put_map(group, map);
        self.note_loaded(group);
        Ok(())
    }

    fn note_loaded(&mut self, group: Group) {
        if !self.loaded.contains(&group) {
            self.loaded.push_back(group);
        }
    }

    /// Forgets the bitmaps that were read first, until there are no more than may be. Those that differ from
    /// what the last checkpoint has stay.
    fn forget_some(&mut self) {
        let looked_at = self.loaded.len().min(FORGOTTEN_MAX);
        for _ in 0..looked_at {
            if self.loaded.len() <= self.loaded_max {
                return;
            }
            let Some(group) = self.loaded.pop_front() else {
                return;
            };
            if !self.forget(group) {
                self.loaded.push_back(group);
            }
        }
    }

    fn forget(&mut self, group: Group) -> bool {
        let unused = [0; GROUP_WORDS];
        let map = self.state.maps().map(group.0).unwrap_or(&unused);
        let is_changed = self.state.maps().changed().contains(&group.0);
        !is_changed && self.allocator.unload(group, map) && self.state.forget_map(group)
    }

    /// Free blocks, and what is reserved of them.
    pub fn allocator(&mut self) -> &mut Allocator {
        &mut self.allocator
    }

    /// Which life of the store this is.
    pub fn life(&self) -> u64 {
        self.state.life()
    }

    /// The last commit.
    pub fn last(&self) -> u64 {
        self.state.last()
    }

    /// Every commit up to this one is durable.
    pub fn durable(&self) -> u64 {
        self.state.durable()
    }

    /// The log fills: a checkpoint is due.
    pub fn wants_checkpoint(&self) -> bool {
        self.state.wants_checkpoint(self.loaded_max / 2)
    }

    /// Blocks that will be free when their commits are durable, and all I/O of before has ended.
    pub fn pending_blocks(&self) -> u64 {
        self.reuse.blocks()
    }

    /// A read or write of blocks begins: none that is freed meanwhile is given to another.
    pub fn begin_io(&mut self) -> Io {
        self.reuse.begin()
    }

    /// It has ended.
    pub fn end_io(&mut self, io: Io) {
        self.reuse.end(io);
        self.collect();
    }

    /// Blocks for the first part of `want`: to be written, and named by a commit, or given back.
    pub fn place(&mut self, now: Tick, want: &Want) -> Result<Extent> {
        self.check_running()?;
        loop {
            match self.allocator.place(now, want) {
                Ok(extent) => {
                    self.forget_some();
                    return Ok(extent);
                }
                Err(Refused::Away(group)) => self.load(group)?,
                Err(Refused::Full | Refused::OutOfRange) => {
                    let at = self.name.clone();
                    return Err(StorageError::NoSpace { at });
                }
            }
        }
    }

    /// Free blocks of `range`, which lies in one group: at most `blocks` in a row. None: there are none.
    pub fn place_in(&mut self, range: Extent, blocks: u32) -> Result<Option<Extent>> {
        self.check_running()?;
        let group = range.start.group();
        if self.allocator.summary(group).free == 0 {
            return Ok(None);
        }
        self.load(group)?;
        let placed = self.allocator.place_in(range, blocks);
        placed.map_err(|error| StorageError::refused(&self.name, format!("{range}: {error}")))
    }

    /// At most `blocks` free blocks in a row that lie in `wanted` steps: the next ones of a group. The search
    /// begins at block `first` of the group. `wanted` is asked with a step's first block, and whether a
    /// commit names a block of the step.
    pub fn next_free(
        &mut self,
        group: Group,
        mut first: u32,
        blocks: u32,
        wanted: impl Fn(Block, bool) -> bool,
    ) -> Result<Option<Extent>> {
        self.check_running()?;
        if self.allocator.summary(group).free == 0 {
            return Ok(None);
        }
        self.load(group)?;
        let is_wanted = |first: u32| {
            let step = first / STEP_BLOCKS * STEP_BLOCKS;
            let is_used = self.state.maps().has_used_beside(group.0, step);
            wanted(group.block(step), is_used)
        };
        while let Some(free) = self.allocator.next_free(group, first, blocks) {
            let steps = steps_of(free).take_while(|step| is_wanted(step.start.in_group()));
            let found = steps.map(|step| step.blocks).sum();
            if found > 0 {
                return Ok(Some(free.split(found).0));
            }
            first = (free.start.in_group() / STEP_BLOCKS + 1) * STEP_BLOCKS;
            if first >= GROUP_BLOCKS {
                break;
            }
        }
        Ok(None)
    }

    /// The next `blocks` of small objects will lie in a row, where there is such a run: how long it is.
    pub fn prepare_small(&mut self, blocks: u32) -> Result<u32> {
        self.check_running()?;
        loop {
            match self.allocator.prepare_small(blocks) {
                Err(Refused::Away(group)) => self.load(group)?,
                _ => return Ok(self.allocator.small_region()),
            }
        }
    }

    /// Groups of which a block was in use at some time.
    pub fn groups_in_use(&self) -> Vec<Group> {
        let groups = groups_of(&self.state);
        groups.filter(|group| self.was_in_use(*group)).collect()
    }

    /// The group is one of these.
    pub fn was_in_use(&self, group: Group) -> bool {
        let is_here = self.state.maps().map(group.0).is_some();
        is_here || self.state.map_source(group).is_some()
    }

    /// How often blocks became free since the store was opened.
    pub fn frees(&self) -> u64 {
        self.frees
    }

    /// Groups in which blocks became free since this was last asked.
    pub fn take_freed(&mut self) -> BTreeSet<Group> {
        std::mem::take(&mut self.freed)
    }

    /// Gives the space of free blocks of a group back to the disk, in whole aligned parts of `part` blocks.
    /// Says which blocks have none now.
    pub fn discard_free(&mut self, group: Group, part: u32) -> Result<Vec<Extent>> {
        self.check_running()?;
        if self.allocator.summary(group).free == 0 {
            return Ok(Vec::new());
        }
        self.load(group)?;
        let free = self.allocator.free_stretches(group, part);
        let free = free.unwrap_or_default();
        for stretch in &free {
            let offset = self.state.geometry().data_offset(stretch.start);
            let bytes = u64::from(stretch.blocks) * BLOCK_BYTES;
            self.disk.discard(offset, bytes)?;
        }
        self.forget_some();
        Ok(free)
    }

    /// Blocks that no commit will name.
    pub fn give_back(&mut self, extent: Extent) -> Result<()> {
        let given = self.allocator.free(extent);
        given.map_err(|error| StorageError::refused(&self.name, format!("{extent}: {error}")))
    }

    /// Writes whole blocks. Small writes to blocks in a row are gathered: they are on the disk with the next
    /// commit.
    pub fn write(&mut self, start: Block, bytes: &[u8]) -> Result<()> {
        self.check_running()?;
        if self.gathered.add(start, bytes) {
            return Ok(());
        }
        self.write_gathered()?;
        match self.gathered.add(start, bytes) {
            true => Ok(()),
            false => self.write_now(start, bytes),
        }
    }

    fn write_now(&mut self, start: Block, bytes: &[u8]) -> Result<()> {
        let offset = self.state.geometry().data_offset(start);
        let written = self.disk.write(offset, bytes);
        self.stop_on(written)
    }

    /// Writes what was gathered.
    fn write_gathered(&mut self) -> Result<()> {
        match self.gathered.take() {
            Some((start, bytes)) => self.write_now(start, &bytes),
            None => Ok(()),
        }
    }

    /// The disk has all bytes of these blocks: they may be read.
    pub fn make_readable(&mut self, place: Extent) -> Result<()> {
        match self.gathered.overlaps(place) {
            true => self.write_gathered(),
            false => Ok(()),
        }
    }

    /// Reads whole blocks.
    pub fn read(&mut self, start: Block, buffer: &mut [u8]) -> Result<()> {
        self.make_readable(Extent::new(
            start,
            (buffer.len() as u64 / BLOCK_BYTES) as u32,
        ))?;
        self.disk
            .read(self.state.geometry().data_offset(start), buffer)
    }

    /// Makes a commit, durable with the next sync. What it frees is free later.
    pub fn commit(&mut self, commit: &Commit) -> Result<u64> {
        self.check_running()?;
        // What is free only after the commit is not free for the allocator before.
        let groups = commit.places().flat_map(Extent::by_groups);
        for group in groups.map(|part| part.start.group()) {
            if self.state.geometry().has(group) {
                self.load(group)?;
            }
        }
        self.write_gathered()?;
        let appended = self.state.commit(commit);
        let (ticket, pieces) = appended.map_err(|refusal| self.refused(refusal))?;
        self.write_pieces(&pieces)?;
        if !commit.freed.is_empty() {
            self.reuse.freed(ticket, commit.freed.clone());
        }
        self.forget_some();
        Ok(ticket)
    }

    /// The same, but `None` where a checkpoint must make room in the log first.
    pub fn commit_if_fits(&mut self, commit: &Commit) -> Result<Option<u64>> {
        self.check_running()?;
        match self.state.has_room_for(commit) {
            true => self.commit(commit).map(Some),
            false => Ok(None),
        }
    }

    /// Blocks that no commit names: free again when what reads them now has ended.
    pub fn drop_unnamed(&mut self, extents: Vec<Extent>) {
        self.reuse.unnamed(extents);
        self.collect();
    }

    /// Makes everything written and committed so far durable: one flush.
    pub fn sync(&mut self) -> Result<u64> {
        let ticket = self.begin_sync()?;
        let synced = self.disk.sync();
        self.end_sync(ticket, synced)?;
        Ok(ticket)
    }

    /// A sync in three steps, for a caller that does the second without a lock: the disk's own sync.
    pub fn begin_sync(&self) -> Result<u64> {
        self.check_running()?;
        Ok(self.state.last())
    }

    /// The third step: what the disk said, and what the first one did.
    pub fn end_sync(&mut self, ticket: u64, synced: Result<()>) -> Result<()> {
        self.stop_on(synced)?;
        self.state.made_durable(ticket);
        self.reuse.durable(ticket);
        self.collect();
        Ok(())
    }

    /// Makes room in the log. The caller has drained rows of all commits up to `drained`, durably.
    pub fn checkpoint(&mut self, drained: u64) -> Result<()> {
        if self.state.durable() < self.state.last() {
            self.sync()?;
        }
        let checkpoint = self.begin_checkpoint(drained)?;
        let written = checkpoint.write(&self.disk);
        self.end_checkpoint(checkpoint, written)
    }

    /// A checkpoint in three steps: the second, `Checkpoint::write`, needs no lock. All commits must be
    /// durable, and none may come before the third.
    pub fn begin_checkpoint(&self, drained: u64) -> Result<Checkpoint> {
        self.check_running()?;
        Ok(self.state.checkpoint(drained, self.allocator.cursors()))
    }

    /// The third step.
    pub fn end_checkpoint(&mut self, checkpoint: Checkpoint, written: Result<()>) -> Result<()> {
        self.stop_on(written)?;
        self.state.checkpointed(checkpoint);
        self.forget_some();
        Ok(())
    }

    fn collect(&mut self) {
        while let Some(extents) = self.reuse.ready() {
            for extent in extents {
                self.frees += 1;
                self.freed
                    .extend(extent.by_groups().map(|part| part.start.group()));
                if let Err(error) = self.allocator.free(extent) {
                    tracing::error!("{}: {extent} cannot be freed: {error}", self.name);
                }
            }
        }
    }

    fn write_pieces(&mut self, pieces: &[Piece]) -> Result<()> {
        for piece in pieces {
            let written = self.disk.write(piece.offset, &piece.bytes);
            self.stop_on(written)?;
        }
        Ok(())
    }

    /// Fails where an error has stopped it.
    pub fn check_running(&self) -> Result<()> {
        match &self.stopped {
            None => Ok(()),
            Some(cause) => Err(StorageError::Stopped {
                at: self.name.clone(),
                cause: cause.clone().into(),
            }),
        }
    }

    /// What the disk holds after an error is not known: no record follows.
    fn stop_on(&mut self, result: Result<()>) -> Result<()> {
        result.inspect_err(|error| self.stopped = Some(error.clone()))
    }

    fn refused(&self, refusal: Refusal) -> StorageError {
        let reason = match refusal {
            Refusal::LogFull => "the log is full; a checkpoint must be made first".to_owned(),
            Refusal::TooLarge => "the commit is too large for a record".to_owned(),
            Refusal::Unsound => "a key is too long, or a block has no sum".to_owned(),
            Refusal::OutOfRange(extent) => format!("{extent} are not on the disk"),
            Refusal::Away(group) => format!("the map of group {} is not in memory", group.0),
            Refusal::Contradiction(extent) => {
                format!("{extent} are taken although in use, or freed although free")
            }
        };
        StorageError::refused(&self.name, reason)
    }
}

impl Checkpoint {
    /// Writes it, durably.
    pub fn write(&self, disk: &dyn Disk) -> Result<()> {
        for map in &self.maps {
            disk.write(map.offset, &map.bytes)?;
        }
        disk.sync()?;
        disk.write(self.table.offset, &self.table.bytes)?;
        disk.sync()
    }
}

fn allocator_of(state: &State, cursors: Cursors, options: Options) -> Allocator {
    let mut allocator = Allocator::new(state.geometry().data_blocks, cursors, options);
    for group in groups_of(state) {
        allocator.summarize(group, state.summary(group));
    }
    allocator
}

fn groups_of(state: &State) -> impl Iterator<Item = Group> + use<> {
    (0..state.geometry().groups()).map(Group)
}
