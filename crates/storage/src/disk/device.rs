//! The calls of a disk.

use std::fmt;
use std::sync::Arc;

use base::ByteRange;

use crate::error::Result;
use crate::space::SpaceStat;

/// The space below a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backing {
    /// What the disk has of it, in bytes.
    pub taken: u64,
    /// The space of the file system that the disk is in.
    pub space: SpaceStat,
}

/// One file, block device or piece of memory, addressed in bytes. Any thread may call it.
///
/// What was written is read back at once, but is certain to survive a power cut only after a
/// [`Disk::sync`] that began after it. Unsynced writes may survive in any subset and order.
#[allow(clippy::len_without_is_empty)]
pub trait Disk: fmt::Debug + Send + Sync {
    /// Its length in bytes.
    fn len(&self) -> Result<u64>;
    /// Fills `buffer` from `offset` on. Reading past the end is an error.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;
    /// Writes all of `data` at `offset`, growing the disk where it ends before that.
    fn write(&self, offset: u64, data: &[u8]) -> Result<()>;
    /// Makes everything written so far, and the length, durable.
    fn sync(&self) -> Result<()>;
    /// Cuts or grows it to `len` bytes; new bytes are zero.
    fn set_len(&self, len: u64) -> Result<()>;
    /// Lets go of it. No call follows.
    fn close(&self) -> Result<()>;
    /// Takes the space of `len` bytes from `offset` on, which the disk has: writes to them do not fail for
    /// want of it later.
    fn reserve(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }
    /// Gives back the space of `len` bytes from `offset` on, where that was taken. What they hold then is not
    /// known.
    fn discard(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }
    /// The space below, where that is taken as the disk is written.
    fn backing(&self) -> Result<Option<Backing>> {
        Ok(None)
    }
    /// The parts of `range` that may hold something else than zeros, in order. Where nobody knows: all of it.
    fn written(&self, range: ByteRange) -> Result<Vec<ByteRange>> {
        Ok(vec![range])
    }
    /// A read there has to wait for a device. Where nobody knows: no.
    fn is_cold(&self, _offset: u64, _len: u64) -> bool {
        false
    }
}

impl<D: Disk + ?Sized> Disk for Arc<D> {
    fn len(&self) -> Result<u64> {
        (**self).len()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        (**self).read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        (**self).write(offset, data)
    }

    fn sync(&self) -> Result<()> {
        (**self).sync()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        (**self).set_len(len)
    }

    fn close(&self) -> Result<()> {
        (**self).close()
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        (**self).reserve(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        (**self).discard(offset, len)
    }

    fn backing(&self) -> Result<Option<Backing>> {
        (**self).backing()
    }

    fn written(&self, range: ByteRange) -> Result<Vec<ByteRange>> {
        (**self).written(range)
    }

    fn is_cold(&self, offset: u64, len: u64) -> bool {
        (**self).is_cold(offset, len)
    }
}
