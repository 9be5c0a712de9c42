//! A [`Disk`] in memory that outlives what runs on it.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use super::device::Disk;
use crate::error::{Result, StorageError};

/// Bytes shared by every clone: drop what ran on one, start anew on another, and it has rebooted.
#[derive(Clone, Default)]
pub struct MemDisk {
    bytes: Arc<RwLock<Vec<u8>>>,
}

impl MemDisk {
    /// An empty disk.
    pub fn new() -> MemDisk {
        MemDisk::default()
    }

    /// A disk that holds `bytes`.
    pub fn from_bytes(bytes: Vec<u8>) -> MemDisk {
        MemDisk {
            bytes: Arc::new(RwLock::new(bytes)),
        }
    }

    /// A copy of what it holds.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.shared().clone()
    }

    // A panicking writer leaves whole bytes behind, as a crash would: poisoning adds nothing.
    fn shared(&self) -> std::sync::RwLockReadGuard<'_, Vec<u8>> {
        self.bytes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn exclusive(&self) -> std::sync::RwLockWriteGuard<'_, Vec<u8>> {
        self.bytes.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemDisk({} bytes)", self.shared().len())
    }
}

fn span(offset: u64, len: usize) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    Some(start..start.checked_add(len)?)
}

impl Disk for MemDisk {
    fn len(&self) -> Result<u64> {
        Ok(self.shared().len() as u64)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let bytes = self.shared();
        let found = span(offset, buffer.len()).and_then(|span| bytes.get(span));
        let Some(found) = found else {
            return Err(StorageError::refused("memory disk", "read past its end"));
        };
        buffer.copy_from_slice(found);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let Some(span) = span(offset, data.len()) else {
            return Err(StorageError::FileTooBig {
                at: "memory disk".to_owned(),
            });
        };
        let mut bytes = self.exclusive();
        if bytes.len() < span.end {
            bytes.resize(span.end, 0);
        }
        bytes[span].copy_from_slice(data);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let Ok(len) = usize::try_from(len) else {
            return Err(StorageError::FileTooBig {
                at: "memory disk".to_owned(),
            });
        };
        self.exclusive().resize(len, 0);
        Ok(())
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}
