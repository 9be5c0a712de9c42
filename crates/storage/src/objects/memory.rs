//! Objects in memory, for tests and the simulator: with a bound, and with power cuts.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::ByteRange;
use base::limits::FILE_BYTES_MAX;

use super::store::{ObjectId, ObjectStat, ObjectStore};
use crate::error::{Result, StorageError};
use crate::space::SpaceStat;

const PAGE: u64 = 4096;
type Page = Arc<[u8; PAGE as usize]>;

/// Objects in memory. Clones share them: drop what ran on one, start anew on another, and it has
/// rebooted.
#[derive(Debug, Clone)]
pub struct ObjectMemory {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    live: BTreeMap<ObjectId, Arc<Object>>,
    /// What a power cut leaves.
    durable: BTreeMap<ObjectId, Arc<Object>>,
    pages: u64,
    pages_max: u64,
}

#[derive(Debug, Clone, Default)]
struct Object {
    size: u64,
    pages: BTreeMap<u64, Page>,
}

impl ObjectMemory {
    /// Room for about `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> ObjectMemory {
        let state = State {
            live: BTreeMap::new(),
            durable: BTreeMap::new(),
            pages: 0,
            pages_max: bytes_max / PAGE,
        };
        ObjectMemory {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Everything not synced is gone.
    pub fn power_cut(&self) {
        let mut state = self.state();
        state.live = state.durable.clone();
        let held = state.live.values().map(|object| object.pages.len() as u64);
        state.pages = held.sum();
    }

    // Changed by code that cannot panic half way: poisoning adds nothing.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn at(id: ObjectId) -> String {
    format!("memory object {id}")
}

/// The pages that `range` touches.
fn pages_of(range: ByteRange) -> Range<u64> {
    match range.is_empty() {
        true => 0..0,
        false => range.start / PAGE..range.end.div_ceil(PAGE),
    }
}

/// The part of page number `page` that is in `range`.
fn part_of(page: u64, range: ByteRange) -> Range<usize> {
    let base = page * PAGE;
    let start = range.start.saturating_sub(base).min(PAGE);
    let end = range.end.saturating_sub(base).min(PAGE);
    start as usize..end as usize
}

impl State {
    fn object(&mut self, id: ObjectId) -> &mut Object {
        Arc::make_mut(self.live.entry(id).or_default())
    }

    /// Gives `id` every page of `range`.
    fn back(&mut self, id: ObjectId, range: ByteRange) -> Result<()> {
        let missing = pages_of(range);
        let object = self.object(id);
        let present = object.pages.range(missing.clone()).count() as u64;
        let wanted = missing.end - missing.start - present;
        if self.pages + wanted > self.pages_max {
            return Err(StorageError::NoSpace { at: at(id) });
        }
        let object = self.object(id);
        for page in missing {
            let blank = || Arc::new([0; PAGE as usize]);
            object.pages.entry(page).or_insert_with(blank);
        }
        self.pages += wanted;
        Ok(())
    }

    /// Zeros `range`, and lets go of the pages that lie in it whole.
    fn unback(&mut self, id: ObjectId, range: ByteRange) {
        let object = self.object(id);
        let touched = pages_of(range);
        let touched: Vec<u64> = object.pages.range(touched).map(|(page, _)| *page).collect();
        let mut freed = 0;
        for page in touched {
            let part = part_of(page, range);
            if part.len() as u64 == PAGE {
                object.pages.remove(&page);
                freed += 1;
            } else if let Some(bytes) = object.pages.get_mut(&page) {
                Arc::make_mut(bytes)[part].fill(0);
            }
        }
        self.pages -= freed;
    }

    fn check_end(id: ObjectId, end: Option<u64>) -> Result<u64> {
        match end {
            Some(end) if end <= FILE_BYTES_MAX => Ok(end),
            _ => Err(StorageError::FileTooBig { at: at(id) }),
        }
    }
}

impl ObjectStore for ObjectMemory {
    fn read(&self, id: ObjectId, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let state = self.state();
        let Some(object) = state.live.get(&id).filter(|object| offset < object.size) else {
            return Ok(0);
        };
        let count = (object.size - offset).min(buffer.len() as u64) as usize;
        buffer[..count].fill(0);
        let range = ByteRange::new(offset, offset + count as u64);
        for (page, bytes) in object.pages.range(pages_of(range)) {
            let part = part_of(*page, range);
            let to = (page * PAGE + part.start as u64 - offset) as usize;
            buffer[to..to + part.len()].copy_from_slice(&bytes[part]);
        }
        Ok(count)
    }

    fn write(&self, id: ObjectId, offset: u64, data: &[u8]) -> Result<()> {
        let end = State::check_end(id, offset.checked_add(data.len() as u64))?;
        let range = ByteRange::new(offset, end);
        let mut state = self.state();
        state.back(id, range)?;
        let object = state.object(id);
        for (page, bytes) in object.pages.range_mut(pages_of(range)) {
            let part = part_of(*page, range);
            let from = (page * PAGE + part.start as u64 - offset) as usize;
            let len = part.len();
            Arc::make_mut(bytes)[part].copy_from_slice(&data[from..from + len]);
        }
        if !range.is_empty() {
            object.size = object.size.max(end);
        }
        Ok(())
    }

    fn truncate(&self, id: ObjectId, size: u64) -> Result<()> {
        let size = State::check_end(id, Some(size))?;
        let mut state = self.state();
        state.unback(id, ByteRange::new(size, FILE_BYTES_MAX));
        state.object(id).size = size;
        Ok(())
    }

    fn stat(&self, id: ObjectId) -> Result<Option<ObjectStat>> {
        let state = self.state();
        Ok(state.live.get(&id).map(|object| ObjectStat {
            size: object.size,
            blocks_512: object.pages.len() as u64 * (PAGE / 512),
        }))
    }

    fn punch(&self, id: ObjectId, range: ByteRange) -> Result<()> {
        let mut state = self.state();
        if state.live.contains_key(&id) {
            let end = range.end.min(FILE_BYTES_MAX);
            state.unback(id, ByteRange::new(range.start.min(end), end));
        }
        Ok(())
    }

    fn allocate(&self, id: ObjectId, range: ByteRange, keep_size: bool) -> Result<()> {
        let end = State::check_end(id, Some(range.end))?;
        let mut state = self.state();
        state.back(id, range)?;
        let object = state.object(id);
        if !keep_size && !range.is_empty() {
            object.size = object.size.max(end);
        }
        Ok(())
    }

    fn zero(&self, id: ObjectId, range: ByteRange, keep_size: bool) -> Result<()> {
        State::check_end(id, Some(range.end))?;
        self.state().unback(id, range);
        self.allocate(id, range, keep_size)
    }

    fn seek_data(&self, id: ObjectId, offset: u64) -> Result<Option<u64>> {
        let state = self.state();
        let Some(object) = state.live.get(&id) else {
            return Ok(None);
        };
        let next = object.pages.range(offset / PAGE..).next();
        let found = next.map(|(page, _)| offset.max(page * PAGE));
        Ok(found.filter(|found| *found < object.size))
    }

    fn seek_hole(&self, id: ObjectId, offset: u64) -> Result<Option<u64>> {
        let state = self.state();
        let Some(object) = state.live.get(&id).filter(|object| offset < object.size) else {
            return Ok(None);
        };
        let mut page = offset / PAGE;
        while object.pages.contains_key(&page) {
            page += 1;
        }
        Ok(Some(offset.max(page * PAGE).min(object.size)))
    }

    fn remove(&self, id: ObjectId) -> Result<bool> {
        let mut state = self.state();
        let removed = state.live.remove(&id);
        state.pages -= removed
            .as_ref()
            .map_or(0, |object| object.pages.len() as u64);
        Ok(removed.is_some())
    }

    fn sync_all(&self) -> Result<()> {
        let mut state = self.state();
        state.durable = state.live.clone();
        Ok(())
    }

    fn sync(&self, id: ObjectId) -> Result<()> {
        let mut state = self.state();
        match state.live.get(&id).cloned() {
            Some(object) => state.durable.insert(id, object),
            None => state.durable.remove(&id),
        };
        Ok(())
    }

    fn statfs(&self) -> Result<SpaceStat> {
        let state = self.state();
        let free = (state.pages_max - state.pages) * PAGE;
        Ok(SpaceStat {
            total: state.pages_max * PAGE,
            free,
            available: free,
            objects_total: 0,
            objects_free: 0,
            object_bytes_max: FILE_BYTES_MAX,
            disk: 0,
        })
    }

    fn list(&self, visit: &mut dyn FnMut(ObjectId)) -> Result<()> {
        let ids: Vec<ObjectId> = self.state().live.keys().copied().collect();
        ids.into_iter().for_each(visit);
        Ok(())
    }
}
