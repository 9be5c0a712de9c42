//! A disk whose free space a test says.

use std::sync::atomic::{AtomicU64, Ordering};

use storage::{Room, SpaceStat};

/// Bytes of the disk: its floor is 4 MiB.
const TOTAL: u64 = 64 << 20;

#[derive(Debug)]
pub struct Space(AtomicU64);

impl Default for Space {
    fn default() -> Space {
        Space(AtomicU64::new(TOTAL))
    }
}

impl Space {
    /// So many bytes are available from now on.
    pub fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }
}

impl Room for Space {
    fn space(&self) -> storage::Result<SpaceStat> {
        Ok(SpaceStat {
            total: TOTAL,
            available: self.0.load(Ordering::Relaxed),
            ..SpaceStat::default()
        })
    }

    fn make(&self, _: u32) -> bool {
        false
    }

    fn restock(&self) {}
}
