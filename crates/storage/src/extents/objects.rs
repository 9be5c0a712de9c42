//! An [`ObjectStore`] on extents of one disk (docs/adr/0020-extents.md): its rows are in a [`Kv`], and its
//! log makes them durable before they are there.

mod ahead;
mod backing;
mod damaging;
mod examining;
mod fetching;
mod mapping;
mod moving;
mod reading;
mod records;
mod scattered;
mod shaping;
mod space;
mod state;
mod syncing;
mod tuning;
mod writing;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError};

use allocator::Options;
use base::ByteRange;
use base::limits::FILE_BYTES_MAX;
use bytes::Bytes;
use threads::{Condvar, Mutex, MutexGuard};

use super::device::{ExtentDisk, Opened};
use super::geometry::Geometry;
use super::log::BLOCK_BYTES;
use super::rows::{ExtentTables, LogPlace};
use crate::disk::Disk;
use crate::error::{Result, StorageError};
use crate::kv::{Batch, Kv};
use crate::objects::{Flaw, ObjectId, ObjectMap, ObjectStat, ObjectStore, Wanted};
use crate::space::SpaceStat;
use ahead::Ahead;
use records::Records;
use scattered::Scattered;
use state::State;

/// A call that finds no room is done so often, with a commit in between each time. Where blocks are replaced,
/// each commit frees the places of some for the next ones.
const ATTEMPTS_MAX: u32 = 32;

/// Objects that are extents of one disk. Every byte is checked when it is read.
#[derive(Debug)]
pub struct ExtentObjects {
    disk: Arc<dyn Disk>,
    geometry: Geometry,
    records: Records,
    state: Mutex<State>,
    /// A read has ended, which freed blocks may have waited for.
    read_ended: Condvar,
    /// What reads are going to ask for.
    ahead: Mutex<Ahead>,
    /// What idle time can mend.
    scattered: Mutex<Scattered>,
    /// Reads and writes so far, and how many there were when idle time was last looked for.
    work: AtomicU64,
    work_seen: AtomicU64,
    /// One sync at a time.
    turn: Mutex<()>,
}

impl ExtentObjects {
    /// Opens the store on `disk`, which `ExtentDisk::create` made, with its rows in `tables` of `kv`. Rows
    /// that a crash kept from them are there when this returns.
    pub fn open(
        disk: Arc<dyn Disk>,
        kv: Arc<Kv>,
        tables: ExtentTables,
        options: Options,
    ) -> Result<ExtentObjects> {
        let records = Records::new(kv, tables);
        let Opened { store, replayed } = ExtentDisk::open(disk.clone(), records.name(), options)?;
        let geometry = *store.geometry();
        records.check_mark(geometry.id, store.last())?;
        let last = LogPlace {
            life: store.life(),
            ticket: store.last(),
        };
        records.restore(replayed, geometry.id, last)?;
        Ok(ExtentObjects {
            disk,
            geometry,
            records,
            state: Mutex::new(State::new(store)),
            read_ended: Condvar::new(),
            ahead: Mutex::default(),
            scattered: Mutex::default(),
            work: AtomicU64::new(0),
            work_seen: AtomicU64::new(0),
            turn: Mutex::default(),
        })
    }

    // A panic under it leaves a change done in part, as a write that fails does: poisoning adds nothing.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What messages call an object.
    fn at(&self, id: ObjectId) -> String {
        format!("{}: object {id}", self.records.name())
    }

    fn check_end(&self, id: ObjectId, end: Option<u64>) -> Result<u64> {
        match end {
            Some(end) if end <= FILE_BYTES_MAX => Ok(end),
            _ => Err(StorageError::FileTooBig { at: self.at(id) }),
        }
    }

    /// Does `work`, again when blocks became free for which it found no room, up to [`ATTEMPTS_MAX`] times.
    fn with_room<T>(&self, mut work: impl FnMut(&mut State) -> Result<T>) -> Result<T> {
        let mut attempts = 1;
        loop {
            let result = work(&mut self.state());
            let is_full = matches!(result, Err(StorageError::NoSpace { .. }));
            if !is_full || attempts == ATTEMPTS_MAX || !self.free_pending()? {
                return result;
            }
            attempts += 1;
        }
    }

    /// Makes blocks free that wait for a commit, or for reads, and gives space back that nothing needs.
    /// False: nothing can be had now that could not be had before.
    fn free_pending(&self) -> Result<bool> {
        let (frees, was_full) = {
            let mut state = self.state();
            (state.frees(), state.is_full_below()?)
        };
        self.sync_all()?;
        let may_shrink = self.shrink_where_tight()?;
        let mut state = self.state();
        loop {
            if state.frees() > frees || was_full && (may_shrink || !state.is_full_below()?) {
                return Ok(true);
            }
            if state.pending_blocks() == 0 || !state.is_read() {
                return Ok(false);
            }
            let waited = self.read_ended.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The last bytes of the file system below may be taken, which are kept for records else.
    pub fn take_last_bytes(&self) {
        self.state().take_last_bytes();
    }
}

impl ObjectStore for ExtentObjects {
    fn read(&self, id: ObjectId, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let found = self.read_shared(id, offset, buffer.len())?;
        buffer[..found.len()].copy_from_slice(&found);
        Ok(found.len())
    }

    fn read_shared(&self, id: ObjectId, offset: u64, len: usize) -> Result<Bytes> {
        self.note_work();
        self.read_checked(id, offset, len)
    }

    fn read_ahead(&self, wanted: &[Wanted]) -> Result<()> {
        self.note_work();
        self.fetch(wanted)
    }

    fn settle(&self) -> Result<()> {
        self.tidy()
    }

    fn settle_all(&self) -> Result<()> {
        self.checkpoint_all()
    }

    fn is_cold(&self, id: ObjectId, offset: u64, len: usize) -> Result<bool> {
        self.must_wait(id, offset, len)
    }

    fn write(&self, id: ObjectId, offset: u64, data: &[u8]) -> Result<()> {
        self.note_work();
        self.check_end(id, offset.checked_add(data.len() as u64))?;
        self.write_parts(id, offset, data)
    }

    fn truncate(&self, id: ObjectId, size: u64) -> Result<()> {
        self.check_end(id, Some(size))?;
        self.with_room(|state| self.set_size(state, id, size))
    }

    fn stat(&self, id: ObjectId) -> Result<Option<ObjectStat>> {
        let state = self.state();
        let stat = |(size, blocks): (u64, u64)| ObjectStat {
            size,
            blocks_512: blocks * (BLOCK_BYTES / 512),
        };
        Ok(self.shape(&state, id)?.map(stat))
    }

    fn punch(&self, id: ObjectId, range: ByteRange) -> Result<()> {
        let end = range.end.min(FILE_BYTES_MAX);
        let range = ByteRange::new(range.start.min(end), end);
        self.with_room(|state| match self.shape(state, id)? {
            Some(_) => self.make_hole(state, id, range),
            None => Ok(()),
        })
    }

    fn allocate(&self, id: ObjectId, range: ByteRange, keep_size: bool) -> Result<()> {
        self.check_end(id, Some(range.end))?;
        self.with_room(|state| self.take_space(state, id, range, keep_size))
    }

    fn zero(&self, id: ObjectId, range: ByteRange, keep_size: bool) -> Result<()> {
        self.check_end(id, Some(range.end))?;
        self.with_room(|state| self.make_hole(state, id, range))?;
        self.with_room(|state| self.take_space(state, id, range, keep_size))
    }

    fn seek_data(&self, id: ObjectId, offset: u64) -> Result<Option<u64>> {
        self.next_data(id, offset)
    }

    fn seek_hole(&self, id: ObjectId, offset: u64) -> Result<Option<u64>> {
        self.next_hole(id, offset)
    }

    fn map(&self, id: ObjectId, offset: u64, limit: usize) -> Result<Option<ObjectMap>> {
        self.map_from(id, offset, limit).map(Some)
    }

    fn remove(&self, id: ObjectId) -> Result<bool> {
        self.note_work();
        self.take_away(id)
    }

    fn sync_all(&self) -> Result<()> {
        self.make_durable(None)
    }

    fn sync(&self, id: ObjectId) -> Result<()> {
        self.make_durable(Some(id))
    }

    fn sync_with(&self, _objects: Option<&[ObjectId]>, _kv: &Kv, batch: Batch) -> Result<()> {
        self.make_all_durable(batch.rows())
    }

    fn find_flaws(&self, visit: &mut dyn FnMut(Flaw)) -> Result<()> {
        self.examine(visit)
    }

    fn free_leaked(&self) -> Result<u64> {
        self.free_leaks()
    }

    fn statfs(&self) -> Result<SpaceStat> {
        self.space()
    }

    fn list(&self, visit: &mut dyn FnMut(ObjectId)) -> Result<()> {
        self.objects()?.into_iter().for_each(visit);
        Ok(())
    }
}
