//! The move of a target's objects from files to extents, for `glint upgrade`. It may be cut off at any time:
//! a file goes only when its object is durable on extents. docs/disk.md, "From files to extents".

use std::ops::ControlFlow;
use std::sync::Arc;

use base::ByteRange;

use crate::error::{Result, StorageError};
use crate::extents::ExtentObjects;
use crate::kv::{Batch, KeyRange, Kv, TableId};
use crate::objects::{ObjectId, ObjectStore, SealedObjects, sealed_ends};

/// Bytes read at once, and those of which a sum tells whether they are damaged.
const PART_BYTES: u64 = 4 << 20;
const BLOCK_BYTES: u64 = 4096;
/// Rows of sums that are deleted in one batch.
const ROWS_AT_ONCE: usize = 4096;

/// How much is moved between two syncs.
#[derive(Debug, Clone, Copy)]
pub struct Pieces {
    /// Bytes of objects.
    pub bytes: u64,
    /// Objects.
    pub objects: usize,
}

impl Default for Pieces {
    fn default() -> Pieces {
        Pieces {
            bytes: 16 << 20,
            objects: 1024,
        }
    }
}

/// The objects that are files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Survey {
    /// Those that there are, in the order in which they were made.
    pub objects: Vec<ObjectId>,
    /// Those of which only sums are left: all their bytes are damaged.
    pub lost: Vec<ObjectId>,
    /// The space that all of them take, in bytes.
    pub bytes: u64,
    /// The space of the largest one.
    pub largest_bytes: u64,
}

/// What there is to say while objects are moved.
#[derive(Debug)]
pub enum Event<'a> {
    /// So many objects were moved since the last event, with so much space. Their files are gone.
    Moved {
        /// How many.
        objects: usize,
        /// The space, in bytes.
        bytes: u64,
    },
    /// These bytes of an object are damaged: reads of them fail before and afterwards.
    Damaged(ObjectId, ByteRange),
    /// The system cannot read an object's file, which stays.
    Unread(ObjectId, &'a StorageError),
}

/// Hears of each event.
pub type Listener<'a> = &'a mut dyn FnMut(Event<'_>);

/// The objects of a target that is not served, as files and with their sums.
#[derive(Debug)]
pub struct FilesToMove {
    files: Arc<dyn ObjectStore>,
    sealed: SealedObjects,
    kv: Arc<Kv>,
    seals: TableId,
    pieces: Pieces,
}

/// Objects on extents that are not durable there, or whose files are still there.
#[derive(Default)]
struct Pending {
    objects: Vec<ObjectId>,
    damaged: Vec<(ObjectId, ByteRange)>,
    /// Written since the last sync.
    unsynced_bytes: u64,
    /// Space of the objects.
    bytes: u64,
}

impl FilesToMove {
    /// Those of `files`, with their sums in table `seals` of `kv`.
    pub fn new(
        files: Arc<dyn ObjectStore>,
        kv: Arc<Kv>,
        seals: TableId,
        pieces: Pieces,
    ) -> FilesToMove {
        FilesToMove {
            sealed: SealedObjects::new(files.clone(), kv.clone(), seals),
            files,
            kv,
            seals,
            pieces,
        }
    }

    /// Their files, with sums: what a server would use.
    pub fn sealed(&self) -> &SealedObjects {
        &self.sealed
    }

    /// Looks at all of them, and changes nothing. An object `is_elsewhere` where nobody misses its file.
    pub fn survey(&self, is_elsewhere: &dyn Fn(ObjectId) -> Result<bool>) -> Result<Survey> {
        let mut survey = Survey::default();
        self.files.list(&mut |id| survey.objects.push(id))?;
        survey.objects.sort_unstable();
        for (id, end) in sealed_ends(&self.kv, self.seals)? {
            let is_file = survey.objects.binary_search(&id).is_ok();
            if end > 0 && !is_file && !is_elsewhere(id)? {
                survey.lost.push(id);
            }
        }
        for id in survey.objects.iter().chain(&survey.lost) {
            let bytes = self.space(*id)?;
            survey.bytes += bytes;
            survey.largest_bytes = survey.largest_bytes.max(bytes);
        }
        Ok(survey)
    }

    /// The space that an object takes, in bytes, and that of what it has lost at its end.
    fn space(&self, id: ObjectId) -> Result<u64> {
        let stored = self.files.stat(id)?.unwrap_or_default();
        let size = self.sealed.stat(id)?.unwrap_or_default().size;
        Ok(stored.blocks_512 * 512 + size.saturating_sub(stored.size))
    }

    /// Moves what `survey` found to `extents`. Then the sums of files go. False: files are left that cannot
    /// be read, and so are all sums.
    pub fn move_to(
        &self,
        extents: &ExtentObjects,
        survey: Survey,
        told: Listener<'_>,
    ) -> Result<bool> {
        let Survey {
            mut objects, lost, ..
        } = survey;
        for id in &lost {
            // From now on it is an object that has lost all of its bytes.
            self.files.truncate(*id, 0)?;
            self.files.sync(*id)?;
        }
        objects.extend(lost);
        self.drop_begun(extents, &objects)?;
        let (mut pending, mut is_all) = (Pending::default(), true);
        for id in objects {
            match self.copy(extents, id, &mut pending) {
                Err(error @ StorageError::Io { .. }) if self.is_unreadable(id) => {
                    told(Event::Unread(id, &error));
                    extents.remove(id)?;
                    pending.damaged.retain(|(of, _)| *of != id);
                    is_all = false;
                }
                copied => {
                    pending.bytes += copied?;
                    pending.objects.push(id);
                }
            }
            let is_full = pending.objects.len() >= self.pieces.objects;
            if is_full || pending.bytes >= self.pieces.bytes {
                self.finish(extents, std::mem::take(&mut pending), told)?;
            }
        }
        self.finish(extents, pending, told)?;
        if is_all {
            self.forget_seals(extents)?;
        }
        Ok(is_all)
    }

    /// An object whose file is there was not moved whole: what there is of it goes.
    fn drop_begun(&self, extents: &ExtentObjects, objects: &[ObjectId]) -> Result<()> {
        let mut is_any = false;
        for id in objects {
            is_any |= extents.remove(*id)?;
        }
        match is_any {
            true => extents.sync_all(),
            false => Ok(()),
        }
    }

    /// The file of an object has bytes that the system cannot read.
    fn is_unreadable(&self, id: ObjectId) -> bool {
        let size = self.files.stat(id).ok().flatten().unwrap_or_default().size;
        let parts = (0..size).step_by(PART_BYTES as usize);
        let mut read = parts.map(|at| self.files.read_shared(id, at, PART_BYTES as usize));
        read.any(|read| read.is_err())
    }

    /// Copies an object, its holes included. The space that it takes.
    fn copy(&self, extents: &ExtentObjects, id: ObjectId, pending: &mut Pending) -> Result<u64> {
        let size = self.sealed.stat(id)?.unwrap_or_default().size;
        let stored = self.files.stat(id)?.unwrap_or_default().size.min(size);
        let mut at = 0;
        while let Some(start) = self.files.seek_data(id, at)?.filter(|at| *at < stored) {
            let end = self.files.seek_hole(id, start)?.unwrap_or(stored);
            at = end.min(stored);
            self.copy_range(extents, (id, ByteRange::new(start, at)), pending)?;
        }
        // What it has lost at its end.
        self.copy_range(extents, (id, ByteRange::new(stored, size)), pending)?;
        extents.truncate(id, size)?;
        self.space(id)
    }

    fn copy_range(
        &self,
        extents: &ExtentObjects,
        (id, range): (ObjectId, ByteRange),
        pending: &mut Pending,
    ) -> Result<()> {
        for part in parts_of(range, PART_BYTES) {
            self.copy_part(extents, (id, part), pending)?;
            pending.unsynced_bytes += part.len();
            if pending.unsynced_bytes >= self.pieces.bytes {
                extents.sync_all()?;
                pending.unsynced_bytes = 0;
            }
        }
        Ok(())
    }

    /// Copies bytes that are what was written. Damaged ones are copied as they are, and noted.
    fn copy_part(
        &self,
        extents: &ExtentObjects,
        (id, part): (ObjectId, ByteRange),
        pending: &mut Pending,
    ) -> Result<()> {
        let len = part.len() as usize;
        match self.sealed.read_shared(id, part.start, len) {
            Ok(bytes) if bytes.is_empty() => Ok(()),
            Ok(bytes) => extents.write(id, part.start, &bytes),
            Err(StorageError::DamagedBytes { .. }) if part.len() > BLOCK_BYTES => {
                let mut blocks = parts_of(part, BLOCK_BYTES);
                blocks.try_for_each(|block| self.copy_part(extents, (id, block), pending))
            }
            Err(StorageError::DamagedBytes { .. }) => {
                let mut bytes = vec![0; len];
                self.files.read(id, part.start, &mut bytes)?;
                extents.write(id, part.start, &bytes)?;
                match pending.damaged.last_mut() {
                    Some((of, last)) if *of == id && last.end == part.start => last.end = part.end,
                    _ => pending.damaged.push((id, part)),
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Makes objects durable on extents, and removes their files.
    fn finish(&self, extents: &ExtentObjects, pending: Pending, told: Listener<'_>) -> Result<()> {
        extents.sync_all()?;
        if !pending.damaged.is_empty() {
            // Only now: a commit of new blocks that are not what their sums say is none after a power cut.
            for (id, range) in &pending.damaged {
                extents.mark_damaged(*id, *range)?;
                told(Event::Damaged(*id, *range));
            }
            extents.sync_all()?;
        }
        if pending.objects.is_empty() {
            return Ok(());
        }
        for id in &pending.objects {
            self.files.remove(*id)?;
        }
        self.files.sync_all()?;
        told(Event::Moved {
            objects: pending.objects.len(),
            bytes: pending.bytes,
        });
        Ok(())
    }

    /// Deletes the sums of all files, durably.
    fn forget_seals(&self, extents: &ExtentObjects) -> Result<()> {
        let mut rest = KeyRange::all();
        loop {
            let (mut batch, mut last) = (Batch::new(), Vec::new());
            self.kv.scan(self.seals, &rest, |key, _| {
                batch.delete(self.seals, key);
                last = key.to_vec();
                match batch.len() < ROWS_AT_ONCE {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            })?;
            if batch.is_empty() {
                extents.sync_all()?;
                return self.kv.wait_durable(self.kv.committed());
            }
            self.kv.commit(batch)?;
            extents.sync_all()?;
            rest = KeyRange::from(last.clone()).after(&last);
        }
    }
}

/// The parts of a range that are in one aligned piece of `bytes` each.
fn parts_of(range: ByteRange, bytes: u64) -> impl Iterator<Item = ByteRange> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let start = at;
        at = (start - start % bytes).saturating_add(bytes).min(range.end);
        (start < range.end).then(|| ByteRange::new(start, at))
    })
}
