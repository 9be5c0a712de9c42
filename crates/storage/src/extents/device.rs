//! A store of extents on a [`Disk`]: writes what the state says, syncs, and hands out blocks. Rows are its
//! caller's, who drains them to tables.

use allocator::{Allocator, Block, Cursors, Extent, GROUP_WORDS, Group, Io, Options, Reuse, Want};
use base::Tick;

use super::commit::Commit;
use super::geometry::{Geometry, SUPERBLOCKS};
use super::log::{BLOCK_BYTES, Piece};
use super::maps::Maps;
use super::recovery::{Recovered, Replayed, first_table, recover};
use super::state::{Checkpoint, Refusal, State};
use crate::disk::Disk;
use crate::error::{Result, StorageError};

/// Blocks, commits of them, and checkpoints. After an error of the disk it does nothing more.
#[derive(Debug)]
pub struct ExtentDisk<D> {
    disk: D,
    name: String,
    state: State,
    allocator: Allocator,
    reuse: Reuse,
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
        let allocator = allocator_of(&state, cursors, options);
        let mut store = ExtentDisk {
            disk,
            name: name.to_owned(),
            state,
            allocator,
            reuse: Reuse::default(),
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

    /// Which blocks the records name.
    pub fn maps(&self) -> &Maps {
        self.state.maps()
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
        self.state.wants_checkpoint()
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
        let placed = self.allocator.place(now, want);
        placed.map_err(|_| StorageError::NoSpace {
            at: self.name.clone(),
        })
    }

    /// Blocks that no commit will name.
    pub fn give_back(&mut self, extent: Extent) -> Result<()> {
        let given = self.allocator.free(extent);
        given.map_err(|error| StorageError::refused(&self.name, format!("{extent}: {error}")))
    }

    /// Writes whole blocks.
    pub fn write(&mut self, start: Block, bytes: &[u8]) -> Result<()> {
        self.check_running()?;
        let offset = self.state.geometry().data_offset(start);
        let written = self.disk.write(offset, bytes);
        self.stop_on(written)
    }

    /// Reads whole blocks.
    pub fn read(&self, start: Block, buffer: &mut [u8]) -> Result<()> {
        self.disk
            .read(self.state.geometry().data_offset(start), buffer)
    }

    /// Makes a commit, durable with the next sync. What it frees is free later.
    pub fn commit(&mut self, commit: &Commit) -> Result<u64> {
        self.check_running()?;
        let appended = self.state.commit(commit);
        let (ticket, pieces) = appended.map_err(|refusal| self.refused(refusal))?;
        self.write_pieces(&pieces)?;
        if !commit.freed.is_empty() {
            self.reuse.freed(ticket, commit.freed.clone());
        }
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
        Ok(())
    }

    fn collect(&mut self) {
        while let Some(extents) = self.reuse.ready() {
            for extent in extents {
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
    for group in 0..state.geometry().groups() {
        allocator.load(
            Group(group),
            state.maps().map(group).unwrap_or(&[0; GROUP_WORDS]),
        );
    }
    allocator
}
