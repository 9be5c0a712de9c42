//! Whether names may still come: a target refuses in time what would take the space that removals
//! and its other records need.
//!
//! Records that are removed leave pages free inside the database, which the local file system
//! does not see. So once the disk is full, there may be as many files as there were then: each
//! that is removed makes room for one, however little of the disk comes back.

use std::time::Duration;

use base::Tick;
use storage::Kv;

use crate::store::Failure;

/// Between two looks at the disk. What comes meanwhile is far less than is kept free.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// What is known of the disk below a target's records.
#[derive(Debug, Default)]
pub(crate) struct Room {
    next_look: Option<Tick>,
    /// Files there were when the disk was found full; `None`: it is not.
    files_max: Option<u64>,
}

impl Room {
    /// Whether nothing may come, where there are `files` files.
    pub fn is_full(&mut self, now: Tick, kv: &Kv, files: u64) -> Result<bool, Failure> {
        if self.next_look.is_none_or(|due| due <= now) {
            self.next_look = Some(now.after(LOOK_INTERVAL));
            self.files_max = match kv.space_left()? {
                Some(0) => Some(self.files_max.unwrap_or(files)),
                _ => None,
            };
        }
        Ok(self.files_max.is_some_and(|max| files >= max))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use storage::{KvOptions, MemDisk, SpaceStat};

    use super::*;
    use crate::store::tables;

    /// So many bytes are available.
    #[derive(Debug)]
    struct Available(AtomicU64);

    impl storage::Room for Available {
        fn space(&self) -> storage::Result<SpaceStat> {
            Ok(SpaceStat {
                total: 64 << 20,
                available: self.0.load(Ordering::Relaxed),
                ..SpaceStat::default()
            })
        }

        fn make(&self, _: u32) -> bool {
            false
        }

        fn restock(&self) {}
    }

    #[test]
    fn removals_make_room_although_the_disk_stays_full() {
        let (disk, available) = (MemDisk::new(), Arc::new(Available(AtomicU64::new(8 << 20))));
        Kv::create(disk.clone()).expect("a fresh disk");
        let options = KvOptions {
            room: Some(available.clone()),
            ..KvOptions::new("MDT0").manual()
        };
        let kv = Kv::open(disk, &tables(), options).expect("a fresh store");
        let (mut room, mut now) = (Room::default(), Tick(0));
        let mut is_full = |files| {
            now = now.after(LOOK_INTERVAL);
            room.is_full(now, &kv, files).expect("the store runs")
        };
        assert!(!is_full(1000));
        // Half of the floor.
        available.0.store(2 << 20, Ordering::Relaxed);
        assert!(is_full(1100) && is_full(1101));
        assert!(!is_full(1099) && is_full(1100));
        available.0.store(3 << 20, Ordering::Relaxed);
        assert!(!is_full(1100));
    }
}
