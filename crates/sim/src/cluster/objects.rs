//! Objects of a machine whose power may fail: one life's way to them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::ByteRange;
use storage::{ObjectId, ObjectMemory, ObjectStat, ObjectStore, Result, SpaceStat, StorageError};

/// As the memory, until the power fails.
#[derive(Debug, Clone)]
pub(super) struct Powered {
    memory: ObjectMemory,
    off: Arc<AtomicBool>,
}

impl Powered {
    pub(super) fn new(memory: ObjectMemory) -> Powered {
        Powered {
            memory,
            off: Arc::default(),
        }
    }

    /// What was not synced is gone, and this life reaches nothing any more.
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
        self.on()?.read(id, offset, buffer)
    }

    fn write(&self, id: ObjectId, offset: u64, data: &[u8]) -> Result<()> {
        self.on()?.write(id, offset, data)
    }

    fn truncate(&self, id: ObjectId, size: u64) -> Result<()> {
        self.on()?.truncate(id, size)
    }

    fn stat(&self, id: ObjectId) -> Result<Option<ObjectStat>> {
        self.on()?.stat(id)
    }

    fn punch(&self, id: ObjectId, range: ByteRange) -> Result<()> {
        self.on()?.punch(id, range)
    }

    fn allocate(&self, id: ObjectId, range: ByteRange, keep_size: bool) -> Result<()> {
        self.on()?.allocate(id, range, keep_size)
    }

    fn zero(&self, id: ObjectId, range: ByteRange, keep_size: bool) -> Result<()> {
        self.on()?.zero(id, range, keep_size)
    }

    fn seek_data(&self, id: ObjectId, offset: u64) -> Result<Option<u64>> {
        self.on()?.seek_data(id, offset)
    }

    fn seek_hole(&self, id: ObjectId, offset: u64) -> Result<Option<u64>> {
        self.on()?.seek_hole(id, offset)
    }

    fn remove(&self, id: ObjectId) -> Result<bool> {
        self.on()?.remove(id)
    }

    fn sync_all(&self) -> Result<()> {
        self.on()?.sync_all()
    }

    fn sync(&self, id: ObjectId) -> Result<()> {
        self.on()?.sync(id)
    }

    fn statfs(&self) -> Result<SpaceStat> {
        self.on()?.statfs()
    }

    fn list(&self, visit: &mut dyn FnMut(ObjectId)) -> Result<()> {
        self.on()?.list(visit)
    }
}
