//! How much data may still grow: a target refuses in time what would take the space that its records
//! need.

use base::FsError;
use storage::{ObjectStore, SpaceStat};

use crate::failure::Outcome;

/// Bytes given out between two looks at the disk, which others fill, too: less than what records
/// have set aside and give up when it is full, so that data does not take that.
const ALLOWANCE_BYTES_MAX: u64 = 256 << 10;

/// What may be written before the disk is looked at again.
#[derive(Debug, Default)]
pub(crate) struct Room {
    allowance: u64,
}

impl Room {
    /// Takes `bytes` of the room that `store` has above its floor; `NoSpace` where there is less.
    pub fn take(&mut self, store: &dyn ObjectStore, bytes: u64) -> Outcome<()> {
        if bytes > self.allowance {
            let left = above_floor(&store.statfs()?);
            let rest = left.checked_sub(bytes).ok_or(FsError::NoSpace)?;
            // Half: what was given out meanwhile to others is as much at most.
            self.allowance = bytes + (rest / 2).min(ALLOWANCE_BYTES_MAX);
        }
        self.allowance -= bytes;
        Ok(())
    }
}

/// Bytes that data may still take.
pub(crate) fn above_floor(space: &SpaceStat) -> u64 {
    space.available.saturating_sub(space.floor())
}

#[cfg(test)]
mod tests {
    use base::Fid;
    use storage::{ObjectId, ObjectMemory};

    use super::*;
    use crate::failure::Failure;

    #[test]
    fn the_floor_stays_free() {
        let store = ObjectMemory::new(16 << 20);
        let mut room = Room::default();
        let is_full = |taken: Outcome<()>| matches!(taken, Err(Failure::Refused(FsError::NoSpace)));
        assert!(is_full(room.take(&store, (15 << 20) + 1)));
        let id = ObjectId::new(Fid::new(0x400, 1), 0);
        let mib = vec![1; 1 << 20];
        for number in 0..15 {
            room.take(&store, 1 << 20).expect("above the floor");
            store.write(id, number << 20, &mib).expect("there is space");
        }
        assert!(is_full(room.take(&store, 1)));
        store.remove(id).expect("it is there");
        room.take(&store, 1).expect("free again");
    }
}
