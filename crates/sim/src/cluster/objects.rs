//! Objects of a machine whose power may fail, and of which a bit may not be as it was written: one
//! boot's way to them.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use base::{ByteRange, Rng, SeededRng};
use oss::records::{EXTENTS, SEALS};
use storage::extents::{ExtentDisk, ExtentObjects, Geometry, Options, StoreId};
use storage::{
    FaultyDisk, Kv, MemDisk, ObjectId, ObjectMemory, ObjectStat, ObjectStore, Result,
    SealedObjects, SpaceStat, StorageError, Survivors,
};

use super::rot::{Rot, Rotten};
use super::syncs::Syncs;

/// Room for objects in memory.
const BYTES_MAX: u64 = 1 << 30;
/// The disk of a store of extents, and the blocks of its log. A small log is often full.
const DISK_BYTES: u64 = 64 << 20;
const LOG_BLOCKS: u64 = 256;

/// What holds the bytes of a machine's objects. They outlive its boots.
#[derive(Debug, Clone)]
pub(super) enum Kept {
    Memory(ObjectMemory, WrongBit),
    Extents(MemDisk),
}

/// One boot's way to them.
pub(super) enum Reached {
    Memory(Powered),
    Extents(FaultyDisk, OnceLock<Arc<dyn ObjectStore>>),
}

impl Kept {
    pub fn in_memory() -> Kept {
        Kept::Memory(ObjectMemory::new(BYTES_MAX), WrongBit::default())
    }

    pub fn on_extents() -> Result<Kept> {
        let disk = MemDisk::new();
        let geometry = Geometry::new(StoreId([7; 16]), DISK_BYTES, LOG_BLOCKS)?;
        ExtentDisk::create(&disk, &geometry)?;
        Ok(Kept::Extents(disk))
    }

    /// The way of a boot that begins.
    pub fn reach(&self, syncs: &Syncs) -> Reached {
        match self {
            Kept::Memory(memory, wrong) => {
                let powered = Powered::new(memory.clone(), wrong.clone(), syncs.clone());
                Reached::Memory(powered)
            }
            Kept::Extents(disk) => Reached::Extents(FaultyDisk::new(disk.clone()), OnceLock::new()),
        }
    }

    /// To look at while nothing serves them, with the target's records.
    pub fn at_rest(&self, kv: Arc<Kv>) -> Result<Arc<dyn ObjectStore>> {
        Ok(match self {
            Kept::Memory(memory, wrong) => {
                let (memory, wrong) = (memory.clone(), wrong.clone());
                Arc::new(Powered::new(memory, wrong, Syncs::default()))
            }
            Kept::Extents(disk) => {
                let disk = Arc::new(disk.clone());
                Arc::new(ExtentObjects::open(disk, kv, EXTENTS, Options::default())?)
            }
        })
    }
}

impl Reached {
    /// As a target serves them.
    pub fn open(&self, kv: Arc<Kv>, syncs: &Syncs) -> Result<Arc<dyn ObjectStore>> {
        Ok(match self {
            Reached::Memory(powered) => {
                Arc::new(SealedObjects::new(Arc::new(powered.clone()), kv, SEALS))
            }
            Reached::Extents(disk, open) => {
                let disk = Arc::new(Rotten {
                    name: "extents".to_owned(),
                    disk: disk.clone(),
                    rot: Rot::default(),
                    syncs: syncs.clone(),
                });
                let store = ExtentObjects::open(disk, kv, EXTENTS, Options::default())?;
                open.get_or_init(|| Arc::new(store)).clone()
            }
        })
    }

    /// All objects that there are while it serves them.
    pub fn stored(&self) -> Result<Vec<ObjectId>> {
        let mut found = Vec::new();
        match self {
            Reached::Memory(powered) => powered.list(&mut |id| found.push(id))?,
            Reached::Extents(_, open) => {
                let list = |store: &Arc<dyn ObjectStore>| store.list(&mut |id| found.push(id));
                open.get().map_or(Ok(()), list)?;
            }
        }
        Ok(found)
    }

    /// What was not synced is gone but for the survivors, and this boot reaches nothing any more.
    pub fn power_cut(&self, survivors: Survivors) -> Result<()> {
        match self {
            Reached::Memory(powered) => powered.power_cut(),
            Reached::Extents(disk, _) => disk.power_cut(survivors)?,
        }
        Ok(())
    }
}

/// A bit of an object that is wrong in what is read, until somebody writes that byte, or it is cured.
/// Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct WrongBit(Arc<Mutex<Option<Flip>>>);

#[derive(Debug, Clone, Copy)]
struct Flip {
    object: ObjectId,
    at: u64,
    mask: u8,
}

impl WrongBit {
    fn bit(&self) -> MutexGuard<'_, Option<Flip>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Flips a bit of byte `at` of `object`.
    pub fn begin(&self, object: ObjectId, at: u64, numbers: &mut SeededRng) {
        let mask = 1 << numbers.below(8);
        *self.bit() = Some(Flip { object, at, mask });
    }

    /// Everything is as it was written.
    pub fn cure(&self) {
        *self.bit() = None;
    }

    /// The object of which a bit is wrong.
    pub fn object(&self) -> Option<ObjectId> {
        self.bit().map(|flip| flip.object)
    }

    /// These bytes of `id` are others now.
    fn changed(&self, id: ObjectId, range: ByteRange) {
        let mut bit = self.bit();
        let is_other =
            |flip: &Flip| flip.object != id || !(range.start..range.end).contains(&flip.at);
        *bit = bit.filter(is_other);
    }

    fn read(&self, id: ObjectId, offset: u64, buffer: &mut [u8]) {
        if let Some(Flip { object, at, mask }) = *self.bit()
            && object == id
            && let Some(byte) = at.checked_sub(offset)
            && let Some(byte) = buffer.get_mut(byte as usize)
        {
            *byte ^= mask;
        }
    }
}

/// As the memory, until the power fails.
#[derive(Debug, Clone)]
pub(super) struct Powered {
    memory: ObjectMemory,
    wrong: WrongBit,
    syncs: Syncs,
    off: Arc<AtomicBool>,
}

impl Powered {
    pub(super) fn new(memory: ObjectMemory, wrong: WrongBit, syncs: Syncs) -> Powered {
        Powered {
            memory,
            wrong,
            syncs,
            off: Arc::default(),
        }
    }

    /// What was not synced is gone, and this boot reaches nothing any more.
    pub(super) fn power_cut(&self) {
        self.off.store(true, Ordering::SeqCst);
        self.memory.power_cut();
    }

    fn on(&self) -> Result<&ObjectMemory> {
        match self.off.load(Ordering::SeqCst) {
            false => Ok(&self.memory),
            true => {
                let error = io::Error::other("the power is off");
                Err(StorageError::from_io("objects", "reach them", &error))
            }
        }
    }
}

impl ObjectStore for Powered {
    fn read(&self, id: ObjectId, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let count = self.on()?.read(id, offset, buffer)?;
        self.wrong.read(id, offset, &mut buffer[..count]);
        Ok(count)
    }

    fn write(&self, id: ObjectId, offset: u64, data: &[u8]) -> Result<()> {
        self.on()?.write(id, offset, data)?;
        let range = ByteRange::new(offset, offset + data.len() as u64);
        self.wrong.changed(id, range);
        Ok(())
    }

    fn truncate(&self, id: ObjectId, size: u64) -> Result<()> {
        self.on()?.truncate(id, size)?;
        self.wrong.changed(id, ByteRange::from(size));
        Ok(())
    }

    fn stat(&self, id: ObjectId) -> Result<Option<ObjectStat>> {
        self.on()?.stat(id)
    }

    fn punch(&self, id: ObjectId, range: ByteRange) -> Result<()> {
        self.on()?.punch(id, range)?;
        self.wrong.changed(id, range);
        Ok(())
    }

    fn allocate(&self, id: ObjectId, range: ByteRange, keep_size: bool) -> Result<()> {
        self.on()?.allocate(id, range, keep_size)
    }

    fn zero(&self, id: ObjectId, range: ByteRange, keep_size: bool) -> Result<()> {
        self.on()?.zero(id, range, keep_size)?;
        self.wrong.changed(id, range);
        Ok(())
    }

    fn seek_data(&self, id: ObjectId, offset: u64) -> Result<Option<u64>> {
        self.on()?.seek_data(id, offset)
    }

    fn seek_hole(&self, id: ObjectId, offset: u64) -> Result<Option<u64>> {
        self.on()?.seek_hole(id, offset)
    }

    fn remove(&self, id: ObjectId) -> Result<bool> {
        self.wrong.changed(id, ByteRange::ALL);
        self.on()?.remove(id)
    }

    fn sync_all(&self) -> Result<()> {
        self.syncs.wait();
        self.on()?.sync_all()
    }

    fn sync(&self, id: ObjectId) -> Result<()> {
        self.syncs.wait();
        self.on()?.sync(id)
    }

    fn statfs(&self) -> Result<SpaceStat> {
        self.on()?.statfs()
    }

    fn list(&self, visit: &mut dyn FnMut(ObjectId)) -> Result<()> {
        self.on()?.list(visit)
    }
}
