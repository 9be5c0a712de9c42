//! How much memory the bytes of files take, and who waits for some of it.

use crate::cache::pages::PageCache;
use crate::executor::{Oneshot, WaitList};

/// The bytes of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Held {
    dirty: u64,
    /// Space that the dirty bytes will take.
    space: u64,
    cached: u64,
}

impl Held {
    /// What the file holds now.
    pub fn by(pages: &PageCache) -> Held {
        Held {
            dirty: pages.dirty_bytes(),
            space: pages.unsent_space(),
            cached: pages.cached_bytes(),
        }
    }
}

/// The bytes of all files.
#[derive(Default)]
pub(crate) struct Memory {
    held: Held,
    /// Writers that wait until less is unsent.
    room: WaitList,
}

impl Memory {
    /// A file held `before` and holds `after`.
    pub fn change(&mut self, before: Held, after: Held) {
        self.held.dirty = self.held.dirty + after.dirty - before.dirty;
        self.held.space = self.held.space + after.space - before.space;
        self.held.cached = self.held.cached + after.cached - before.cached;
    }

    /// Bytes written here and not yet sent.
    pub fn dirty_bytes(&self) -> u64 {
        self.held.dirty
    }

    /// Space that these will take at most.
    pub fn unsent_space(&self) -> u64 {
        self.held.space
    }

    /// Memory that bytes of files take here.
    pub fn cached_bytes(&self) -> u64 {
        self.held.cached
    }

    /// Resolves when there may be fewer than `max` unsent bytes. None: there are no more now.
    pub fn wait_for_room(&mut self, max: u64) -> Option<Oneshot<()>> {
        (self.held.dirty > max).then(|| self.room.wait())
    }

    /// Bytes were sent.
    pub fn make_room(&mut self) {
        self.room.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use base::{ByteRange, Tick};

    use super::*;
    use crate::executor::block_on;

    #[test]
    fn a_writer_waits_while_too_much_is_unsent() {
        let (mut memory, mut pages) = (Memory::default(), PageCache::default());
        assert!(memory.wait_for_room(0).is_none());
        let before = Held::by(&pages);
        pages.write(0, b"unsent", Tick(0));
        memory.change(before, Held::by(&pages));
        assert_eq!(memory.dirty_bytes(), 6);
        assert!(memory.cached_bytes() >= 6 && memory.wait_for_room(6).is_none());
        let wait = memory.wait_for_room(5).expect("too much");
        let before = Held::by(&pages);
        pages.discard(ByteRange::ALL);
        memory.change(before, Held::by(&pages));
        memory.make_room();
        block_on(wait);
        assert_eq!((memory.dirty_bytes(), memory.cached_bytes()), (0, 0));
    }
}
