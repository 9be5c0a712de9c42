//! The trait of everything that holds objects, and the data of its calls.

use std::fmt;

use allocator::{Block, Extent};
use base::{ByteRange, Fid};
use bytes::Bytes;

use crate::error::Result;
use crate::kv::{Batch, Kv};
use crate::space::SpaceStat;

/// One stripe of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The file.
    pub fid: Fid,
    /// The stripe inside it, from zero.
    pub stripe: u32,
}

impl ObjectId {
    /// Stripe `stripe` of `fid`.
    pub fn new(fid: Fid, stripe: u32) -> ObjectId {
        ObjectId { fid, stripe }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.fid, self.stripe)
    }
}

/// Bytes of an object that somebody wants to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Which object.
    pub id: ObjectId,
    /// The first byte.
    pub offset: u64,
    /// How many, if it has so many.
    pub len: usize,
}

/// An object's size and space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectStat {
    /// One past its last byte.
    pub size: u64,
    /// Units of 512 bytes it takes.
    pub blocks_512: u64,
}

/// Bytes of an object that lie in a row on the store's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// The first of them, in the object.
    pub offset: u64,
    /// How many; whole blocks, also at the object's end.
    pub bytes: u64,
    /// The block of the disk where they begin.
    pub block: Block,
    /// They were written. Else the space is reserved, and reads give zeros.
    pub is_written: bool,
}

/// Where a part of an object lies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectMap {
    /// Ascending; between them are holes. Two that follow each other may lie in a row.
    pub extents: Vec<Placed>,
    /// From where on there may be more. None: these are all.
    pub next: Option<u64>,
}

/// What a store finds wrong with itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Bytes of an object are not those that were written.
    Bytes(ObjectId, ByteRange),
    /// Two objects, or parts of one, have these blocks.
    Twice(Extent),
    /// An object has these blocks, and one of them can be given to another.
    Free(Extent),
    /// These blocks are nobody's, and cannot be given to anybody.
    Leaked(Extent),
}

/// Holds objects. Any thread may call it; calls on one object that must not meet are the caller's
/// to order. What a call did is durable only after a sync that began after it.
///
/// A full target is [`crate::StorageError::NoSpace`], an offset past what can be stored
/// [`crate::StorageError::FileTooBig`]; a write that fails may have been done in part.
pub trait ObjectStore: fmt::Debug + Send + Sync {
    /// Reads at `offset`; says how many bytes: fewer than asked for at the end, none where there
    /// is no such object.
    fn read(&self, id: ObjectId, offset: u64, buffer: &mut [u8]) -> Result<usize>;
    /// Reads to memory of its own, by the way that suits place and size. A `len` beyond the object's end
    /// wastes memory.
    fn read_shared(&self, id: ObjectId, offset: u64, len: usize) -> Result<Bytes> {
        let mut data = vec![0; len];
        let count = self.read(id, offset, &mut data)?;
        data.truncate(count);
        Ok(data.into())
    }
    /// These bytes have to come from a disk. Where nobody knows: no.
    fn is_cold(&self, _id: ObjectId, _offset: u64, _len: usize) -> Result<bool> {
        Ok(false)
    }
    /// Writes all of `data` at `offset`. Creates the object.
    fn write(&self, id: ObjectId, offset: u64, data: &[u8]) -> Result<()>;
    /// Cuts or grows it to `size`; new bytes are zero and take no space. Creates the object.
    fn truncate(&self, id: ObjectId, size: u64) -> Result<()>;
    /// Its size and space; `None` where there is no such object.
    fn stat(&self, id: ObjectId) -> Result<Option<ObjectStat>>;
    /// Makes a hole: zeros that take no space. The size stays.
    fn punch(&self, id: ObjectId, range: ByteRange) -> Result<()>;
    /// Reserves space for `range`; grows the object to its end unless `keep_size`. Creates it.
    fn allocate(&self, id: ObjectId, range: ByteRange, keep_size: bool) -> Result<()>;
    /// The same, and what `range` held becomes zeros.
    fn zero(&self, id: ObjectId, range: ByteRange, keep_size: bool) -> Result<()>;
    /// The first byte at or after `offset` that is data; `None` where only a hole or the end is.
    fn seek_data(&self, id: ObjectId, offset: u64) -> Result<Option<u64>>;
    /// The first byte at or after `offset` that is in a hole; the end counts as one. `None`: `offset` is at
    /// or past the end.
    fn seek_hole(&self, id: ObjectId, offset: u64) -> Result<Option<u64>>;
    /// Where it lies on the disk from `offset` on; about `limit` extents at most. None: another file system
    /// decides that.
    fn map(&self, _id: ObjectId, _offset: u64, _limit: usize) -> Result<Option<ObjectMap>> {
        Ok(None)
    }
    /// Removes it; says whether it was there.
    fn remove(&self, id: ObjectId) -> Result<bool>;
    /// Makes everything done so far durable.
    fn sync_all(&self) -> Result<()>;
    /// Makes everything done so far to one object durable.
    fn sync(&self, id: ObjectId) -> Result<()>;
    /// Makes everything done so far durable, or all of these objects, and what was committed to `kv`. Then
    /// `batch`, which is not durable before the others are, and has no ranges.
    fn sync_with(&self, objects: Option<&[ObjectId]>, kv: &Kv, batch: Batch) -> Result<()> {
        match objects {
            Some(objects) => objects.iter().try_for_each(|id| self.sync(*id))?,
            None => self.sync_all()?,
        }
        kv.commit(batch)?;
        kv.wait_durable(kv.committed())
    }
    /// These bytes are about to be read, by reads of their own: may read them now, those together that lie
    /// together. It may come to nothing.
    fn read_ahead(&self, _wanted: &[Wanted]) -> Result<()> {
        Ok(())
    }
    /// These bytes are about to change: does what a change of them would wait for. It may come to
    /// nothing.
    fn foresee(&self, _changes: &[(ObjectId, ByteRange)]) -> Result<()> {
        Ok(())
    }
    /// Does what nobody waits for, and takes its time. Called every few seconds.
    fn settle(&self) -> Result<()> {
        Ok(())
    }
    /// Does all of that, at once. Called where nothing changes any more.
    fn settle_all(&self) -> Result<()> {
        self.settle()
    }
    /// Looks at everything that the store itself has sums or maps of, and changes nothing.
    fn find_flaws(&self, _visit: &mut dyn FnMut(Flaw)) -> Result<()> {
        Ok(())
    }
    /// Frees the blocks that are leaked, durably; says how many.
    fn free_leaked(&self) -> Result<u64> {
        Ok(0)
    }
    /// The space there is.
    fn statfs(&self) -> Result<SpaceStat>;
    /// Calls `visit` with every object, in no order. Objects that come or go meanwhile may be met
    /// or not.
    fn list(&self, visit: &mut dyn FnMut(ObjectId)) -> Result<()>;
}
