//! One power supply for the records and the objects of a target. It fails at any write of either,
//! and what was not synced survives as a test says.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod target;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::{ByteRange, Rng, SeededRng};
use oss::records::{EXTENTS, SEALS};
use storage::extents::{ExtentDisk, ExtentObjects, Geometry, Options, StoreId};
use storage::{
    Disk, FaultyDisk, Kv, MemDisk, ObjectId, ObjectMemory, ObjectStat, ObjectStore, Result,
    SealedObjects, SpaceStat, StorageError, Survivors,
};

/// Counts what is changed below a target, in the order in which it happens.
#[derive(Debug, Clone, Default)]
pub struct Power(Arc<Mutex<Supply>>);

#[derive(Debug, Default)]
struct Supply {
    changes: u64,
    cut_after: Option<u64>,
    off: bool,
}

/// What becomes of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    /// The power fails with it.
    InFlight,
}

fn off() -> StorageError {
    StorageError::refused("power supply", "it is off")
}

impl Power {
    // Changed by code that cannot panic half way: poisoning adds nothing.
    fn supply(&self) -> MutexGuard<'_, Supply> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The power fails with change `count + 1`.
    pub fn cut_after(&self, count: u64) {
        self.supply().cut_after = Some(count);
    }

    pub fn changes(&self) -> u64 {
        self.supply().changes
    }

    fn check(&self) -> Result<()> {
        match self.supply().off {
            true => Err(off()),
            false => Ok(()),
        }
    }

    fn change(&self) -> Result<Fate> {
        self.check()?;
        let mut supply = self.supply();
        supply.changes += 1;
        supply.off = supply.cut_after.is_some_and(|cut| supply.changes > cut);
        Ok(match supply.off {
            true => Fate::InFlight,
            false => Fate::Done,
        })
    }
}

/// The disk of the records; with extents, that of the objects is another.
#[derive(Debug, Clone)]
pub struct Records {
    power: Power,
    disk: FaultyDisk,
}

impl Records {
    pub fn new(disk: MemDisk, power: &Power) -> Records {
        Records {
            power: power.clone(),
            disk: FaultyDisk::new(disk),
        }
    }

    /// What a restart finds.
    pub fn power_cut(&self, survivors: Survivors) {
        self.power.supply().off = true;
        self.disk.power_cut(survivors).expect("memory");
    }

    /// The disk below fails with the change that comes now, if the power does.
    fn change(&self) -> Result<()> {
        if self.power.change()? == Fate::InFlight {
            self.disk.cut_after(self.disk.changes());
        }
        Ok(())
    }
}

impl Disk for Records {
    fn len(&self) -> Result<u64> {
        self.power.check()?;
        self.disk.len()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.power.check()?;
        self.disk.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.change()?;
        self.disk.write(offset, data)
    }

    fn sync(&self) -> Result<()> {
        self.change()?;
        self.disk.sync()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.change()?;
        self.disk.set_len(len)
    }

    fn close(&self) -> Result<()> {
        self.disk.close()
    }
}

/// A change of one object.
#[derive(Debug, Clone)]
enum Op {
    Write(u64, Vec<u8>),
    Truncate(u64),
    Punch(ByteRange),
    Allocate(ByteRange, bool),
    Zero(ByteRange, bool),
    Remove,
}

impl Op {
    fn apply(&self, memory: &ObjectMemory, id: ObjectId) -> Result<()> {
        match self {
            Op::Write(offset, data) => memory.write(id, *offset, data),
            Op::Truncate(size) => memory.truncate(id, *size),
            Op::Punch(range) => memory.punch(id, *range),
            Op::Allocate(range, keep_size) => memory.allocate(id, *range, *keep_size),
            Op::Zero(range, keep_size) => memory.zero(id, *range, *keep_size),
            Op::Remove => memory.remove(id).map(drop),
        }
    }

    /// The part of it that is done after so many bytes.
    fn torn(&self, bytes: usize) -> Op {
        match self {
            Op::Write(offset, data) => Op::Write(*offset, data[..bytes.min(data.len())].to_vec()),
            other => other.clone(),
        }
    }
}

/// What holds the bytes of objects, and outlives a target.
#[derive(Debug, Clone)]
pub enum Kept {
    Memory(ObjectMemory),
    Extents(MemDisk),
}

const LOG_BLOCKS: u64 = 64;
const DATA_BLOCKS: u64 = 512;

impl Kept {
    /// An empty one, of the kind that the test program runs with.
    pub fn new() -> Kept {
        if !crate::OVER_EXTENTS {
            return Kept::Memory(ObjectMemory::new(1 << 30));
        }
        let disk = MemDisk::new();
        let blocks = DATA_BLOCKS + LOG_BLOCKS + 2 + 4 + 2;
        let geometry = Geometry::new(StoreId([7; 16]), blocks * 4096, LOG_BLOCKS);
        ExtentDisk::create(&disk, &geometry.expect("room for data")).expect("memory");
        Kept::Extents(disk)
    }
}

/// The bytes of objects of a target.
#[derive(Debug, Clone)]
pub enum Bytes {
    Memory(Objects),
    /// The disk is one that fails as that of the records does.
    Extents(Records),
}

impl Bytes {
    pub fn new(kept: &Kept, power: &Power) -> Bytes {
        match kept {
            Kept::Memory(memory) => Bytes::Memory(Objects::new(memory.clone(), power)),
            Kept::Extents(disk) => Bytes::Extents(Records::new(disk.clone(), power)),
        }
    }

    /// As a target has them, whose records are in `kv`: as it is checked, and as clients use it.
    pub fn open(&self, kv: &Arc<Kv>) -> Result<(Arc<dyn ObjectStore>, Arc<dyn ObjectStore>)> {
        match self {
            Bytes::Memory(objects) => {
                let objects = Arc::new(objects.clone());
                let sealed = SealedObjects::new(objects.clone(), kv.clone(), SEALS);
                Ok((objects, Arc::new(sealed)))
            }
            Bytes::Extents(disk) => {
                let disk = Arc::new(disk.clone());
                let store = ExtentObjects::open(disk, kv.clone(), EXTENTS, Options::default());
                let store = Arc::new(store?);
                Ok((store.clone(), store))
            }
        }
    }

    /// What a restart finds.
    pub fn power_cut(&self, survivors: Survivors) {
        match self {
            Bytes::Memory(objects) => objects.power_cut(survivors),
            Bytes::Extents(disk) => disk.power_cut(survivors),
        }
    }
}

/// The objects' bytes, in memory.
#[derive(Clone)]
pub struct Objects {
    power: Power,
    memory: ObjectMemory,
    unsynced: Arc<Mutex<Vec<(ObjectId, Op)>>>,
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Objects({:?})", self.power)
    }
}

impl Objects {
    pub fn new(memory: ObjectMemory, power: &Power) -> Objects {
        Objects {
            power: power.clone(),
            memory,
            unsynced: Arc::default(),
        }
    }

    // As above.
    fn unsynced(&self) -> MutexGuard<'_, Vec<(ObjectId, Op)>> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, id: ObjectId, op: Op) -> Result<()> {
        let fate = self.power.change()?;
        op.apply(&self.memory, id)?;
        self.unsynced().push((id, op));
        match fate {
            Fate::Done => Ok(()),
            Fate::InFlight => Err(off()),
        }
    }

    /// What a restart finds.
    pub fn power_cut(&self, survivors: Survivors) {
        self.power.supply().off = true;
        self.memory.power_cut();
        let mut ops = std::mem::take(&mut *self.unsynced());
        match survivors {
            Survivors::Nothing => ops.clear(),
            Survivors::Last => ops = ops.pop().into_iter().collect(),
            Survivors::Torn { torn_bytes } => {
                if let Some((_, last)) = ops.last_mut() {
                    *last = last.torn(torn_bytes);
                }
            }
            Survivors::Random { seed } => {
                let mut coin = SeededRng::new(seed);
                ops.retain(|_| coin.below(2) == 0);
            }
        }
        for (id, op) in ops {
            op.apply(&self.memory, id).expect("room");
        }
        self.memory.sync_all().expect("memory");
    }
}

impl ObjectStore for Objects {
    fn read(&self, id: ObjectId, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.power.check()?;
        self.memory.read(id, offset, buffer)
    }

    fn write(&self, id: ObjectId, offset: u64, data: &[u8]) -> Result<()> {
        self.change(id, Op::Write(offset, data.to_vec()))
    }

    fn truncate(&self, id: ObjectId, size: u64) -> Result<()> {
        self.change(id, Op::Truncate(size))
    }

    fn stat(&self, id: ObjectId) -> Result<Option<ObjectStat>> {
        self.power.check()?;
        self.memory.stat(id)
    }

    fn punch(&self, id: ObjectId, range: ByteRange) -> Result<()> {
        self.change(id, Op::Punch(range))
    }

    fn allocate(&self, id: ObjectId, range: ByteRange, keep_size: bool) -> Result<()> {
        self.change(id, Op::Allocate(range, keep_size))
    }

    fn zero(&self, id: ObjectId, range: ByteRange, keep_size: bool) -> Result<()> {
        self.change(id, Op::Zero(range, keep_size))
    }

    fn seek_data(&self, id: ObjectId, offset: u64) -> Result<Option<u64>> {
        self.memory.seek_data(id, offset)
    }

    fn seek_hole(&self, id: ObjectId, offset: u64) -> Result<Option<u64>> {
        self.memory.seek_hole(id, offset)
    }

    fn remove(&self, id: ObjectId) -> Result<bool> {
        let was_there = self.memory.stat(id)?.is_some();
        self.change(id, Op::Remove)?;
        Ok(was_there)
    }

    fn sync_all(&self) -> Result<()> {
        if self.power.change()? == Fate::InFlight {
            return Err(off());
        }
        self.unsynced().clear();
        self.memory.sync_all()
    }

    fn sync(&self, id: ObjectId) -> Result<()> {
        if self.power.change()? == Fate::InFlight {
            return Err(off());
        }
        self.unsynced().retain(|(other, _)| *other != id);
        self.memory.sync(id)
    }

    fn statfs(&self) -> Result<SpaceStat> {
        self.memory.statfs()
    }

    fn list(&self, visit: &mut dyn FnMut(ObjectId)) -> Result<()> {
        self.memory.list(visit)
    }
}
