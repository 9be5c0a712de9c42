//! The space of a store of extents, and of the file system below. That gets back what objects no longer need,
//! in idle time and where it has little left.

use allocator::Block;
use base::limits::FILE_BYTES_MAX;

use super::ExtentObjects;
use super::backing::STEP_BYTES;
use crate::disk::Backing;
use crate::error::Result;
use crate::extents::log::BLOCK_BYTES;
use crate::space::SpaceStat;

/// Bytes that are kept for the next objects, though nothing needs them now.
const KEPT_BYTES_MAX: u64 = 256 << 20;
/// No more of the file system below than this part.
const KEPT_PART: u64 = 64;
/// Groups of which space is given back between two looks of the caller.
const GROUPS_AT_ONCE: usize = 16;
/// Bytes that are not promised: what replaces bytes takes other places first, and less than a step is not
/// taken from below.
const UNPROMISED_BYTES: u64 = 2 * STEP_BYTES;

impl ExtentObjects {
    fn total(&self) -> u64 {
        self.geometry.data_blocks * BLOCK_BYTES
    }

    fn free(&self) -> u64 {
        self.state().room() * BLOCK_BYTES
    }

    /// Bytes that were taken from below, and that nothing needs: new objects can have them.
    fn surplus(&self, below: &Backing, free: u64) -> u64 {
        let needed = self.geometry.data_offset(Block(0)) + self.total() - free;
        below.taken.saturating_sub(needed)
    }

    /// The space there is: no more than the store has, and no more than the file system below.
    pub(super) fn space(&self) -> Result<SpaceStat> {
        let (total, free) = (self.total(), self.free());
        let own = SpaceStat {
            total,
            free,
            available: free,
            object_bytes_max: FILE_BYTES_MAX,
            ..SpaceStat::default()
        };
        let Some(below) = self.disk.backing()? else {
            return Ok(own);
        };
        let surplus = self.surplus(&below, free);
        let is_below_less = below.space.total < total;
        let found = SpaceStat {
            total: total.min(below.space.total),
            free: free.min(surplus + below.space.free),
            // A store that can have all of that disk has no space of its own.
            disk: if is_below_less { below.space.disk } else { 0 },
            ..own
        };
        // Space that was taken may be used up, but what is kept free below is not to be taken.
        let takeable = below.space.available.saturating_sub(below.space.floor());
        let usable = (surplus + takeable).saturating_sub(UNPROMISED_BYTES);
        Ok(SpaceStat {
            available: free.min(found.floor() + usable),
            ..found
        })
    }

    /// Gives space back as long as nobody reads or writes, until little is left that nothing needs.
    pub(super) fn shrink_in_idle_time(&self, is_idle: &dyn Fn() -> bool) -> Result<()> {
        let shrunk = self.shrink(|below, surplus| {
            let kept = KEPT_BYTES_MAX.min(below.space.total / KEPT_PART);
            is_idle() && surplus > kept
        });
        shrunk.map(drop)
    }

    /// Gives space back where the file system below has little left, which others need. True: there may be
    /// more.
    pub(super) fn shrink_where_tight(&self) -> Result<bool> {
        self.shrink(|below, surplus| {
            let is_tight = below.space.available < 2 * below.space.floor();
            is_tight && surplus > 0
        })
    }

    fn shrink(&self, is_wanted: impl Fn(&Backing, u64) -> bool) -> Result<bool> {
        for _ in 0..GROUPS_AT_ONCE {
            let Some(below) = self.disk.backing()? else {
                return Ok(false);
            };
            let surplus = self.surplus(&below, self.free());
            if !is_wanted(&below, surplus) || !self.state().shrink()? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
