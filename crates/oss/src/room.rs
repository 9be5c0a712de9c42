//! How much data may still grow: a target refuses in time what would take the space that its records
//! need.

use base::FsError;
use storage::{ObjectStore, SpaceStat};

use crate::failure::Outcome;

/// Bytes given out between two looks at the disk, which others fill, too. Less than what records
/// have set aside and give up when it is full, so that data does not take that.
const ALLOWANCE_BYTES_MAX: u64 = 256 << 10;

/// With so many bytes there is room again, whatever was refused: it may have been more than there
/// ever is.
const ROOM_AGAIN_BYTES: u64 = 4 << 20;

/// What may be written before the disk is looked at again.
#[derive(Debug, Default)]
pub(crate) struct Room {
    allowance: u64,
    /// Bytes above the floor at the last look, without what was given out since.
    left: u64,
    /// The most that was refused since there was room for it.
    refused: Option<u64>,
}

impl Room {
    /// Takes `bytes` of the room that `store` has above its floor; `NoSpace` where there is less.
    pub fn take(&mut self, store: &dyn ObjectStore, bytes: u64) -> Outcome<()> {
        if bytes > self.allowance {
            self.look(store)?;
            let left = self.left;
            // Where there is less, smaller writes look again: nothing is given out of what was there before.
            self.allowance = 0;
            let rest = left.checked_sub(bytes).ok_or(FsError::NoSpace)?;
            self.refused = self.refused.filter(|refused| *refused > left);
            // Half: what was given out meanwhile to others is as much at most.
            self.allowance = bytes + (rest / 2).min(ALLOWANCE_BYTES_MAX);
        }
        self.allowance -= bytes;
        self.left = self.left.saturating_sub(bytes);
        Ok(())
    }

    /// Looks at the disk, which others fill, too.
    pub fn look(&mut self, store: &dyn ObjectStore) -> Outcome<()> {
        self.left = above_floor(&store.statfs()?);
        Ok(())
    }

    /// Bytes that data may still take, as of the last look.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// `bytes` were refused; true if that is to be told, which it is once until there is room again.
    pub fn refuse(&mut self, bytes: u64) -> bool {
        let is_known = self.refused.is_some();
        self.refused = self.refused.max(Some(bytes.min(ROOM_AGAIN_BYTES)));
        !is_known
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

    /// A client that was refused a large write tries smaller ones.
    #[test]
    fn no_allowance_is_left_where_a_look_found_too_little() {
        let store = ObjectMemory::new(16 << 20);
        let mut room = Room::default();
        room.take(&store, 1).expect("all is free");
        let id = ObjectId::new(Fid::new(0x400, 1), 0);
        store
            .write(id, 0, &vec![1; 15 << 20])
            .expect("others fill it");
        for bytes in [1 << 20, 64 << 10, 4 << 10] {
            room.take(&store, bytes).expect_err("beyond the floor");
        }
    }

    #[test]
    fn a_refusal_is_told_once_until_there_is_room_again() {
        let store = ObjectMemory::new(16 << 20);
        let mut room = Room::default();
        let id = ObjectId::new(Fid::new(0x400, 1), 0);
        store.write(id, 0, &vec![1; 14 << 20]).expect("it fits");
        // What is smaller is not room again.
        for is_told in [true, false] {
            room.take(&store, 2 << 20).expect_err("beyond the floor");
            assert_eq!(room.refuse(2 << 20), is_told);
            room.take(&store, 512 << 10).expect("it is smaller");
        }
        store.remove(id).expect("it is there");
        room.take(&store, 512 << 10).expect("free again");
        assert!(room.refuse(1 << 40));
        room.take(&store, 512 << 10).expect("there is room");
        assert!(
            room.refuse(1 << 40),
            "more than there ever is hides nothing"
        );
    }
}
