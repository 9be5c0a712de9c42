//! The objects of a target: their bytes in an [`ObjectStore`], what else is known of them in a [`Kv`], and
//! the tombstones of those removed. Records change in memory and go to the store with the next sync: a crash
//! loses at most the times of writes whose bytes could be lost as well.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use base::limits::FILE_BYTES_MAX;
use base::{ByteRange, Fid, FsError, Timestamp, Transno};
use bytes::Bytes;
use layout::ObjectId;
use storage::{Batch, KeyRange, Kv, ObjectMap, ObjectStat, ObjectStore, StorageError};
use wire::mdt::{Space, WriteTicket};
use wire::ost::{AllocateMode, ObjectAttr};

use crate::failure::{Failure, Outcome};
use crate::records::{
    HISTORY_KEY, History, META, OBJECTS, ObjectRecord, TOMBSTONES, Tombstone, object_key,
    object_of_key,
};
use crate::room::{Room, above_floor};
use crate::work::Touched;

/// How long a tombstone is kept. Far longer than a client that lost its right to write keeps
/// unwritten data and than any message is under way. File ids are never reused, so all that a write
/// after this could do is leave an orphan, which fsck finds.
pub const TOMBSTONE_AGE: Duration = Duration::from_secs(3600);
/// Changed records kept in memory. Beyond: they go to the store without waiting for a sync.
const CHANGED_RECORDS_MAX: usize = 65_536;
/// A store has space for whole blocks.
const BLOCK_BYTES: u64 = 4096;
/// From so many bytes on, copying them out of memory takes longer than another thread takes to
/// wake up.
const SLOW_BYTES_MIN: usize = 64 << 10;
/// Objects whose bytes wait to be removed. Beyond: they are removed at once, and all wait for it.
const DYING_MAX: usize = 65_536;
/// Tombstones looked at in one step of their ageing.
const AGEING_ROWS_MAX: usize = 1000;
/// Numbers of modifications set aside for one boot of the target: more than it can make.
const TRANSNOS_PER_BOOT: u64 = 1 << 32;

/// The objects of one target.
#[derive(Debug)]
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    kv: Arc<Kv>,
    /// Records newer than the store's.
    changed: BTreeMap<ObjectId, ObjectRecord>,
    /// Some of them went to the store since the last sync began.
    saved_early: bool,
    /// They have a tombstone; their bytes are still there, and are no longer served.
    dying: BTreeSet<ObjectId>,
    /// Those of them that nobody was asked to remove yet.
    condemned: Vec<ObjectId>,
    /// Removed since the last sync began.
    removed: Vec<ObjectId>,
    /// Removed before the running sync began.
    removing: Vec<ObjectId>,
    /// Where the ageing of tombstones goes on.
    ageing: Vec<u8>,
    room: Room,
}

impl Objects {
    /// Opens the objects in `store` and `kv`, finishing removals that a crash interrupted. Also
    /// returns the target's history as the last boot left it, and as this one continues it, with
    /// numbers for its modifications set aside durably.
    pub fn open(
        store: Arc<dyn ObjectStore>,
        kv: Arc<Kv>,
    ) -> Result<(Objects, History, History), StorageError> {
        let objects = Objects {
            store,
            kv,
            changed: BTreeMap::new(),
            saved_early: false,
            dying: BTreeSet::new(),
            condemned: Vec::new(),
            removed: Vec::new(),
            removing: Vec::new(),
            ageing: Vec::new(),
            room: Room::default(),
        };
        finish_removals(&*objects.store, &objects.kv)?;
        let before = objects.history()?;
        let next = History {
            committed: before.committed,
            reserved: Transno(before.reserved.0.saturating_add(TRANSNOS_PER_BOOT)),
        };
        let mut batch = Batch::new();
        batch.put(META, HISTORY_KEY, next.encode());
        objects.kv.wait_durable(objects.kv.commit(batch)?)?;
        Ok((objects, before, next))
    }

    /// Size, space and time of an object; all zero where there is none.
    pub fn attr(&self, id: ObjectId) -> Outcome<ObjectAttr> {
        let Some(stat) = self.stat(id)? else {
            return Ok(ObjectAttr::default());
        };
        let mtime = self.record(id)?.unwrap_or_default().mtime;
        Ok(ObjectAttr {
            size: stat.size,
            blocks: stat.blocks_512,
            mtime,
        })
    }

    /// The object's size; zero where there is none.
    pub fn size(&self, id: ObjectId) -> Outcome<u64> {
        Ok(self.stat(id)?.map_or(0, |stat| stat.size))
    }

    /// The objects of files of one sequence, in their order, from `from` on, at most `limit`. Those
    /// of which there is a record, changed a moment ago or long since.
    pub fn of_sequence(&self, from: ObjectId, limit: usize) -> Outcome<Vec<ObjectId>> {
        let last = ObjectId {
            fid: Fid::new(from.fid.sequence(), Fid::OBJECT_MAX),
            stripe: u32::MAX,
        };
        let changed = self.changed.range(from..last).take(limit);
        let mut found: BTreeSet<ObjectId> = changed.map(|(id, _)| *id).collect();
        let (mut rows, mut damage) = (0, None);
        let range = KeyRange::new(object_key(from), object_key(last));
        self.kv.scan(OBJECTS, &range, |key, _| {
            match object_of_key(key) {
                Ok(id) => found.insert(id),
                Err(error) => damage.replace(error).is_none(),
            };
            rows += 1;
            match rows < limit && damage.is_none() {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        if let Some(damage) = damage {
            return Err(damage.into());
        }
        Ok(found.into_iter().take(limit).collect())
    }

    fn stat(&self, id: ObjectId) -> Outcome<Option<ObjectStat>> {
        match self.dying.contains(&id) {
            true => Ok(None),
            false => Ok(self.store.stat(stored(id))?),
        }
    }

    /// Up to `len` bytes at `offset`; fewer at the end of the object.
    pub fn read(&self, id: ObjectId, offset: u64, len: u32) -> Outcome<Bytes> {
        let rest = self.size(id)?.saturating_sub(offset);
        match rest.min(u64::from(len)) as usize {
            0 => Ok(Bytes::new()),
            len => Ok(self.store.read_shared(stored(id), offset, len)?),
        }
    }

    /// Reading `len` bytes at `offset` takes its time: they are many, or have to come from a disk.
    pub fn is_slow(&self, id: ObjectId, offset: u64, len: usize) -> Outcome<bool> {
        Ok(len >= SLOW_BYTES_MIN || self.store.is_cold(stored(id), offset, len)?)
    }

    /// The ticket gives the right to change the object. It is of the current layout, and where
    /// there is no object, of an open, and a later one than any that the object's removal put an
    /// end to.
    pub fn admit(&self, id: ObjectId, ticket: WriteTicket) -> Outcome<()> {
        let refused = match self.record(id)? {
            Some(record) => ticket.layout_generation < record.layout_generation,
            None => {
                let ended = self.tombstone(id)?.map_or(0, |stone| stone.epoch);
                ticket.open_epoch <= ended
            }
        };
        match (refused, self.dying.contains(&id)) {
            (true, _) => Err(FsError::Stale.into()),
            // A later open may bring it back, once the old bytes are gone.
            (false, true) => Err(FsError::TryAgain.into()),
            (false, false) => Ok(()),
        }
    }

    /// The highest open epoch that it was changed under; zero for one that never was.
    pub fn open_epoch(&self, id: ObjectId) -> Outcome<u64> {
        Ok(self.record(id)?.map_or(0, |record| record.open_epoch))
    }

    /// There is room for `range` to take space: `NoSpace` where that would leave too little for the
    /// records. An object that has the space already needs no more.
    pub fn admit_growth(&mut self, id: ObjectId, range: ByteRange) -> Outcome<()> {
        match self.room.take(&*self.store, space_of(range)) {
            Err(Failure::Refused(FsError::NoSpace)) if self.has_space_for(id, range)? => Ok(()),
            Err(Failure::Refused(FsError::NoSpace)) => {
                if self.room.refuse(range.len()) {
                    let target = self.kv.name();
                    tracing::warn!("{target}: no space left for data; free some or add a target");
                }
                Err(FsError::NoSpace.into())
            }
            taken => taken,
        }
    }

    /// The object has as many bytes on the disk as it would have without a hole up to the end of
    /// `range`.
    fn has_space_for(&self, id: ObjectId, range: ByteRange) -> Outcome<bool> {
        let stat = self.stat(id)?.unwrap_or_default();
        Ok(stat.blocks_512 * 512 >= stat.size.max(range.end))
    }

    /// Writes; the object comes into being where it was not.
    pub fn write(&mut self, id: ObjectId, offset: u64, data: &[u8], by: Change) -> Outcome<()> {
        self.note(id, by)?;
        Ok(self.store.write(stored(id), offset, data)?)
    }

    /// Sets the size.
    pub fn truncate(&mut self, id: ObjectId, size: u64, by: Change) -> Outcome<()> {
        self.note(id, by)?;
        Ok(self.store.truncate(stored(id), size)?)
    }

    /// Reserves, frees or zeroes a range.
    pub fn allocate(
        &mut self,
        id: ObjectId,
        range: ByteRange,
        mode: AllocateMode,
        by: Change,
    ) -> Outcome<()> {
        self.note(id, by)?;
        let id = stored(id);
        match mode {
            AllocateMode::Extend => self.store.allocate(id, range, false)?,
            AllocateMode::KeepSize => self.store.allocate(id, range, true)?,
            AllocateMode::Zero => self.store.zero(id, range, false)?,
            AllocateMode::ZeroKeepSize => self.store.zero(id, range, true)?,
            AllocateMode::PunchHole => match self.store.stat(id)? {
                Some(_) => self.store.punch(id, range)?,
                // It exists from its first change on, even if that one frees what was not there.
                None => self.store.truncate(id, 0)?,
            },
        }
        Ok(())
    }

    /// The next data or hole at or after `offset`.
    pub fn seek(&self, id: ObjectId, offset: u64, hole: bool) -> Outcome<u64> {
        if self.dying.contains(&id) {
            return Err(FsError::NoData.into());
        }
        let found = match hole {
            true => self.store.seek_hole(stored(id), offset)?,
            false => self.store.seek_data(stored(id), offset)?,
        };
        found.ok_or(Failure::Refused(FsError::NoData))
    }

    /// Where it lies on the disk from `offset` on; about `limit` extents at most.
    pub fn map(&self, id: ObjectId, offset: u64, limit: usize) -> Outcome<ObjectMap> {
        if self.dying.contains(&id) {
            return Err(FsError::Stale.into());
        }
        let found = self.store.map(stored(id), offset, limit)?;
        found.ok_or(Failure::Refused(FsError::NotSupported))
    }

    /// Removes an object; tickets up to `epoch` cannot bring it back. Its bytes go a little later:
    /// see [`Objects::take_condemned`].
    pub fn destroy(&mut self, id: ObjectId, epoch: u64, wall: Timestamp) -> Outcome<()> {
        let epoch = self
            .tombstone(id)?
            .map_or(epoch, |stone| stone.epoch.max(epoch));
        self.changed.remove(&id);
        let mut batch = Batch::new();
        condemn(&mut batch, id, epoch, wall);
        let condemned = self.kv.commit(batch)?;
        if self.dying.len() >= DYING_MAX {
            // See `Syncer::remove`.
            self.kv.wait_durable(condemned)?;
            self.store.remove(stored(id))?;
            self.removed.push(id);
        } else if self.dying.insert(id) {
            self.condemned.push(id);
        }
        Ok(())
    }

    /// The objects whose bytes are to be removed now, outside: that takes its time.
    pub fn take_condemned(&mut self) -> Vec<ObjectId> {
        std::mem::take(&mut self.condemned)
    }

    /// Their bytes are gone.
    pub fn removed(&mut self, objects: &[ObjectId]) {
        for id in objects.iter().filter(|id| self.dying.remove(id)) {
            self.removed.push(*id);
        }
    }

    /// Looks at the disk again, which others fill, too.
    pub fn look_at_room(&mut self) -> Outcome<()> {
        self.room.look(&*self.store)
    }

    /// Bytes that data may still take, as of the last look.
    pub fn room_left(&self) -> u64 {
        self.room.left()
    }

    /// The target's space. What is kept free for records is not available.
    pub fn space(&self) -> Outcome<Space> {
        let space = self.store.statfs()?;
        Ok(Space {
            bytes_total: space.total,
            bytes_free: space.free,
            bytes_available: above_floor(&space),
            files_total: space.objects_total,
            files_free: space.objects_free,
            object_bytes_max: space.object_bytes_max,
            disk: space.disk,
            unsent_max: 0,
            settling: !self.dying.is_empty(),
        })
    }

    /// A sync begins now: hands everything kept in memory to the store, and says which objects the
    /// sync is about.
    pub fn before_sync(&mut self) -> Outcome<Touched> {
        let objects = self.changed.keys().chain(&self.removed);
        let touched = match self.saved_early {
            true => Touched::Many,
            false => Touched::of(objects.copied()),
        };
        self.save()?;
        self.saved_early = false;
        self.removing.append(&mut self.removed);
        Ok(touched)
    }

    /// That sync is done: removals made before it began are final.
    pub fn after_sync(&mut self) -> Outcome<()> {
        let mut batch = Batch::new();
        for id in std::mem::take(&mut self.removing) {
            if let Some(stone) = self.tombstone(id)? {
                let stone = Tombstone {
                    pending: false,
                    ..stone
                };
                batch.put(TOMBSTONES, object_key(id), stone.encode());
            }
        }
        self.kv.commit(batch)?;
        Ok(())
    }

    /// Drops old tombstones, a bounded number of rows a call, round and round.
    pub fn age_tombstones(&mut self, wall: Timestamp) -> Outcome<()> {
        let cutoff = wall.secs.saturating_sub(TOMBSTONE_AGE.as_secs() as i64);
        let from = KeyRange::from(std::mem::take(&mut self.ageing));
        let (mut batch, mut rows) = (Batch::new(), 0);
        let mut damage = None;
        self.kv.scan(TOMBSTONES, &from, |key, value| {
            rows += 1;
            if rows > AGEING_ROWS_MAX {
                self.ageing = key.to_vec();
                return ControlFlow::Break(());
            }
            match Tombstone::decode(value) {
                Ok(stone) if stone.pending || stone.removed > cutoff => {}
                Ok(_) => {
                    batch.delete(TOMBSTONES, key);
                }
                Err(error) => {
                    damage = Some(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        if let Some(damage) = damage {
            return Err(damage.into());
        }
        self.kv.commit(batch)?;
        Ok(())
    }

    /// Sees to it that a change by a writer is remembered.
    fn note(&mut self, id: ObjectId, by: Change) -> Outcome<()> {
        let before = self.record(id)?.unwrap_or_default();
        let record = ObjectRecord {
            // Write-outs of one file come in any order; its time never goes back for that.
            mtime: before.mtime.later(by.mtime),
            layout_generation: before.layout_generation.max(by.ticket.layout_generation),
            open_epoch: before.open_epoch.max(by.ticket.open_epoch),
        };
        self.changed.insert(id, record);
        if self.changed.len() > CHANGED_RECORDS_MAX {
            self.saved_early = true;
            self.save()?;
        }
        Ok(())
    }

    fn save(&mut self) -> Outcome<()> {
        let mut batch = Batch::new();
        for (id, record) in std::mem::take(&mut self.changed) {
            batch.put(OBJECTS, object_key(id), record.encode());
        }
        self.kv.commit(batch)?;
        Ok(())
    }

    fn record(&self, id: ObjectId) -> Outcome<Option<ObjectRecord>> {
        if let Some(record) = self.changed.get(&id) {
            return Ok(Some(*record));
        }
        let found = self
            .kv
            .get_with(OBJECTS, &object_key(id), ObjectRecord::decode)?;
        Ok(found.transpose()?)
    }

    fn tombstone(&self, id: ObjectId) -> Outcome<Option<Tombstone>> {
        let found = self
            .kv
            .get_with(TOMBSTONES, &object_key(id), Tombstone::decode)?;
        Ok(found.transpose()?)
    }

    fn history(&self) -> Result<History, StorageError> {
        history(&self.kv)
    }
}

/// How far the target in `kv` has come.
pub(crate) fn history(kv: &Kv) -> Result<History, StorageError> {
    let found = kv.get_with(META, HISTORY_KEY, History::decode)?;
    let history = found.transpose().map_err(|damage| damaged(&damage))?;
    Ok(history.unwrap_or_default())
}

/// Adds the removal of an object to `batch`: no write up to `epoch` brings it back, and
/// [`finish_removals`] takes its bytes unless somebody does before.
pub(crate) fn condemn(batch: &mut Batch, id: ObjectId, epoch: u64, wall: Timestamp) {
    let stone = Tombstone {
        epoch,
        removed: wall.secs,
        pending: true,
    };
    batch.put(TOMBSTONES, object_key(id), stone.encode());
    batch.delete(OBJECTS, object_key(id));
}

/// Removes again what was being removed when the target went down: everything with a pending
/// tombstone.
pub(crate) fn finish_removals(store: &dyn ObjectStore, kv: &Kv) -> Result<(), StorageError> {
    let (mut pending, mut damage) = (Vec::new(), None);
    kv.scan(TOMBSTONES, &KeyRange::all(), |key, value| {
        let row = object_of_key(key).and_then(|id| Ok((id, Tombstone::decode(value)?)));
        match row {
            Ok((id, stone)) if stone.pending => pending.push((id, stone)),
            Ok(_) => {}
            Err(error) => {
                damage = Some(error);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    })?;
    if let Some(damage) = damage {
        return Err(damaged(&damage));
    }
    for (id, _) in &pending {
        store.remove(stored(*id))?;
    }
    if pending.is_empty() {
        return Ok(());
    }
    store.sync_all()?;
    let mut batch = Batch::new();
    for (id, stone) in pending {
        let stone = Tombstone {
            pending: false,
            ..stone
        };
        batch.put(TOMBSTONES, object_key(id), stone.encode());
    }
    kv.commit(batch)?;
    Ok(())
}

/// Who changes an object, and when.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    /// The right to.
    pub ticket: WriteTicket,
    /// When the application did it.
    pub mtime: Timestamp,
}

impl Change {
    /// A change that an object's record can tell of.
    pub fn by(ticket: WriteTicket, mtime: Timestamp) -> Result<Change, FsError> {
        let record = ObjectRecord {
            mtime,
            layout_generation: ticket.layout_generation,
            open_epoch: ticket.open_epoch,
        };
        record.check().map_err(|_| FsError::Invalid)?;
        Ok(Change { ticket, mtime })
    }
}

/// `len` bytes at `offset`, if a file may have bytes there.
pub fn file_range(offset: u64, len: u64) -> Result<ByteRange, FsError> {
    ByteRange::at(offset, len)
        .filter(|range| range.end <= FILE_BYTES_MAX)
        .ok_or(FsError::FileTooBig)
}

/// The space that bytes at `range` may take: that of the blocks they are in.
fn space_of(range: ByteRange) -> u64 {
    let end = range.end.checked_next_multiple_of(BLOCK_BYTES);
    match range.is_empty() {
        true => 0,
        false => end.unwrap_or(u64::MAX) - range.start / BLOCK_BYTES * BLOCK_BYTES,
    }
}

/// The object's name in the store.
pub fn stored(id: ObjectId) -> storage::ObjectId {
    storage::ObjectId::new(id.fid, id.stripe)
}

/// Damage of one of the target's records.
pub(crate) fn damaged(damage: &base::Damage) -> StorageError {
    StorageError::damaged("OST", damage.record.clone(), damage.reason.clone())
}
