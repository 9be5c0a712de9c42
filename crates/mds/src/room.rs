//! Room for new names: a target refuses in time those that would take the space which removals and other
//! records need. Removed records leave free pages inside the database, which the local file system does not
//! see: on a full disk each removal makes room for one file (docs/disk.md).

use std::time::Duration;

use base::Tick;
use storage::Kv;

use crate::store::Failure;

/// Between two looks at the disk. What comes meanwhile is far less than is kept free.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// With so many bytes there is room again, or with an eighth fewer files than when the disk was
/// full, if that is so many. What was told of a full disk is told again.
const ROOM_AGAIN_BYTES: u64 = 1 << 20;
const ROOM_AGAIN_FILES_MIN: u64 = 64;

/// What is known of the disk below a target's records.
#[derive(Debug, Default)]
pub(crate) struct Room {
    next_look: Option<Tick>,
    /// Files there were when the disk was found full; `None`: it is not.
    files_max: Option<u64>,
    /// That it is full was told, and there was no room since.
    is_told: bool,
}

impl Room {
    /// Whether nothing may come, where there are `files` files.
    pub fn is_full(&mut self, now: Tick, kv: &Kv, files: u64) -> Result<bool, Failure> {
        if self.next_look.is_none_or(|due| due <= now) {
            self.next_look = Some(now.after(LOOK_INTERVAL));
            let left = kv.space_left()?;
            self.is_told &= left.is_some_and(|left| left < ROOM_AGAIN_BYTES);
            self.files_max = match left {
                Some(0) => Some(self.files_max.unwrap_or(files)),
                _ => None,
            };
        }
        self.is_told &= self.files_max.is_none_or(|max| {
            let fewer = (max / 8).max(ROOM_AGAIN_FILES_MIN);
            files + fewer > max
        });
        Ok(self.files_max.is_some_and(|max| files >= max))
    }

    /// A request was refused for want of space; true if that is to be told, which it is once until
    /// there is room again. Not where the disk is not full: then the request itself is too large.
    pub fn refuse(&mut self) -> bool {
        self.files_max.is_some() && !std::mem::replace(&mut self.is_told, true)
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

    /// As available bytes: names are refused.
    const HALF_THE_FLOOR: u64 = 2 << 20;

    struct World {
        kv: Kv,
        available: Arc<Available>,
        room: Room,
        now: Tick,
    }

    impl World {
        fn new() -> World {
            let (disk, available) = (MemDisk::new(), Arc::new(Available(AtomicU64::new(8 << 20))));
            Kv::create(disk.clone()).expect("a fresh disk");
            let options = KvOptions {
                room: Some(available.clone()),
                ..KvOptions::new("MDT0").manual()
            };
            World {
                kv: Kv::open(disk, &tables(), options).expect("a fresh store"),
                available,
                room: Room::default(),
                now: Tick(0),
            }
        }

        fn available(&self, bytes: u64) {
            self.available.0.store(bytes, Ordering::Relaxed);
        }

        fn is_full(&mut self, files: u64) -> bool {
            self.now = self.now.after(LOOK_INTERVAL);
            let looked = self.room.is_full(self.now, &self.kv, files);
            looked.expect("the store runs")
        }
    }

    #[test]
    fn removals_make_room_although_the_disk_stays_full() {
        let mut world = World::new();
        assert!(!world.is_full(1000));
        world.available(HALF_THE_FLOOR);
        assert!(world.is_full(1100) && world.is_full(1101));
        assert!(!world.is_full(1099) && world.is_full(1100));
        world.available(3 << 20);
        assert!(!world.is_full(1100));
    }

    #[test]
    fn a_refusal_is_told_once_until_there_is_room_again() {
        let mut world = World::new();
        assert!(!world.is_full(1000) && !world.room.refuse(), "too large");
        for _ in 0..2 {
            world.available(HALF_THE_FLOOR);
            assert!(world.is_full(1100) && world.room.refuse());
            assert!(world.is_full(1100) && !world.room.refuse());
            // A little less full is not room again.
            world.available(HALF_THE_FLOOR + 4096);
            assert!(!world.is_full(1099));
            world.available(HALF_THE_FLOOR);
            assert!(world.is_full(1100) && !world.room.refuse());
            world.available(8 << 20);
            assert!(!world.is_full(1100));
        }
        world.available(HALF_THE_FLOOR);
        assert!(world.is_full(1100) && world.room.refuse());
        assert!(!world.is_full(900) && world.is_full(1100));
        assert!(world.room.refuse(), "many were removed meanwhile");
    }
}
