//! Entries at small stable numbers, threaded on doubly linked lists, behind handles that are never reused.

use base::LockHandle;

/// No slot.
pub(crate) const NIL: u32 = u32::MAX;
const CHUNK: usize = 1024;

struct Slot<T> {
    generation: u32,
    content: Content<T>,
}

enum Content<T> {
    Taken(T),
    Free { next: u32 },
}

/// Entries by slot number and by handle. Slots lie in chunks, so growth copies nothing and a million locks
/// waste no doubled vector. A handle is a slot number and the slot's generation; a slot whose generations are
/// used up is retired.
pub(crate) struct Slab<T> {
    chunks: Vec<Vec<Slot<T>>>,
    free: u32,
    len: usize,
    /// What slots that were never taken begin with.
    first_generation: u32,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab {
            chunks: Vec::new(),
            free: NIL,
            len: 0,
            first_generation: 1,
        }
    }
}

impl<T> Slab<T> {
    /// An empty one of that boot of its owner. Handles of boots that follow each other are never
    /// the same: their generations lie a billion and more apart.
    pub fn of_boot(boot_epoch: u64) -> Slab<T> {
        let distance = u32::from((boot_epoch as u8).reverse_bits()) << 24;
        Slab {
            first_generation: distance | 1,
            ..Slab::default()
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Stores what `make` builds from its handle, and returns its slot.
    pub fn insert(&mut self, make: impl FnOnce(LockHandle) -> T) -> u32 {
        if self.free == NIL {
            self.grow();
        }
        let index = self.free;
        let slot = self.slot_mut(index);
        let content = Content::Taken(make(handle_of(index, slot.generation)));
        let Content::Free { next } = std::mem::replace(&mut slot.content, content) else {
            unreachable!("a taken slot is on the free list");
        };
        self.free = next;
        self.len += 1;
        index
    }

    /// Takes the entry out; its handle is void for ever.
    pub fn remove(&mut self, index: u32) -> Option<T> {
        let free = self.free;
        let slot = self.slot_mut(index);
        let Content::Taken(entry) =
            std::mem::replace(&mut slot.content, Content::Free { next: free })
        else {
            return None;
        };
        let reusable = slot.generation < u32::MAX;
        slot.generation = slot.generation.saturating_add(1);
        if reusable {
            self.free = index;
        }
        self.len -= 1;
        Some(entry)
    }

    /// The slot that `handle` names, if its entry is still there.
    pub fn find(&self, handle: LockHandle) -> Option<u32> {
        let (index, generation) = (handle.0 as u32, (handle.0 >> 32) as u32);
        let slot = self
            .chunks
            .get(index as usize / CHUNK)?
            .get(index as usize % CHUNK)?;
        let taken = matches!(slot.content, Content::Taken(_));
        (taken && slot.generation == generation).then_some(index)
    }

    /// The entry in a taken slot.
    pub fn at(&self, index: u32) -> &T {
        match &self.chunks[index as usize / CHUNK][index as usize % CHUNK].content {
            Content::Taken(entry) => entry,
            Content::Free { .. } => unreachable!("slot {index} is on a list but free"),
        }
    }

    /// The entry in a taken slot, to change.
    pub fn at_mut(&mut self, index: u32) -> &mut T {
        match &mut self.slot_mut(index).content {
            Content::Taken(entry) => entry,
            Content::Free { .. } => unreachable!("slot {index} is on a list but free"),
        }
    }

    /// Every taken slot.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let slots = self.chunks.iter().flatten().enumerate();
        slots.filter_map(|(index, slot)| match &slot.content {
            Content::Taken(entry) => Some((index as u32, entry)),
            Content::Free { .. } => None,
        })
    }

    fn slot_mut(&mut self, index: u32) -> &mut Slot<T> {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    fn grow(&mut self) {
        let first = (self.chunks.len() * CHUNK) as u32;
        let mut chunk = Vec::with_capacity(CHUNK);
        for offset in 0..CHUNK as u32 {
            let next = if offset + 1 == CHUNK as u32 {
                NIL
            } else {
                first + offset + 1
            };
            chunk.push(Slot {
                generation: self.first_generation,
                content: Content::Free { next },
            });
        }
        self.chunks.push(chunk);
        self.free = first;
    }
}

fn handle_of(index: u32, generation: u32) -> LockHandle {
    LockHandle(u64::from(generation) << 32 | u64::from(index))
}

/// Neighbours of an entry on one list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    prev: u32,
    next: u32,
}

impl Default for Link {
    fn default() -> Link {
        Link {
            prev: NIL,
            next: NIL,
        }
    }
}

/// An entry that can be on `N` lists at once, one of each kind.
pub(crate) trait Linked {
    /// Its neighbours on the list of kind `kind`.
    fn link(&self, kind: usize) -> &Link;
    /// Its neighbours on the list of kind `kind`, to change.
    fn link_mut(&mut self, kind: usize) -> &mut Link;
}

/// The ends of a list threaded through a [`Slab`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct List {
    /// The oldest member.
    pub head: u32,
    tail: u32,
    /// How many members.
    pub len: u32,
}

impl Default for List {
    fn default() -> List {
        List {
            head: NIL,
            tail: NIL,
            len: 0,
        }
    }
}

impl List {
    /// Appends `index`, which is on no list of this kind.
    pub fn push<T: Linked>(&mut self, slab: &mut Slab<T>, kind: usize, index: u32) {
        *slab.at_mut(index).link_mut(kind) = Link {
            prev: self.tail,
            next: NIL,
        };
        match self.tail {
            NIL => self.head = index,
            tail => slab.at_mut(tail).link_mut(kind).next = index,
        }
        self.tail = index;
        self.len += 1;
    }

    /// Unlinks `index`, which is on this list.
    pub fn remove<T: Linked>(&mut self, slab: &mut Slab<T>, kind: usize, index: u32) {
        let Link { prev, next } = std::mem::take(slab.at_mut(index).link_mut(kind));
        match prev {
            NIL => self.head = next,
            prev => slab.at_mut(prev).link_mut(kind).next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => slab.at_mut(next).link_mut(kind).prev = prev,
        }
        self.len -= 1;
    }

    /// The members, oldest first.
    pub fn iter<T: Linked>(self, slab: &Slab<T>, kind: usize) -> impl Iterator<Item = u32> {
        let step = |index: u32| (index != NIL).then_some(index);
        std::iter::successors(step(self.head), move |index| {
            step(slab.at(*index).link(kind).next)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Entry(LockHandle, [Link; 1]);

    impl Linked for Entry {
        fn link(&self, kind: usize) -> &Link {
            &self.1[kind]
        }
        fn link_mut(&mut self, kind: usize) -> &mut Link {
            &mut self.1[kind]
        }
    }

    fn add(slab: &mut Slab<Entry>, list: &mut List) -> u32 {
        let index = slab.insert(|handle| Entry(handle, [Link::default()]));
        list.push(slab, 0, index);
        index
    }

    #[test]
    fn handles_of_removed_entries_stay_void() {
        let (mut slab, mut list) = (Slab::default(), List::default());
        let slots: Vec<u32> = (0..3000).map(|_| add(&mut slab, &mut list)).collect();
        let old = slab.at(slots[7]).0;
        list.remove(&mut slab, 0, slots[7]);
        slab.remove(slots[7]);
        assert_eq!(slab.find(old), None);
        let reused = add(&mut slab, &mut list);
        assert_eq!(reused, slots[7]);
        assert_ne!(slab.at(reused).0, old);
        assert_eq!((slab.len(), slab.find(LockHandle(u64::MAX))), (3000, None));
    }

    #[test]
    fn boots_that_follow_each_other_have_no_handle_in_common() {
        let first = |boot_epoch| {
            let mut slab = Slab::of_boot(boot_epoch);
            let slot = slab.insert(|handle| Entry(handle, [Link::default()]));
            slab.at(slot).0.0 >> 32
        };
        for boot_epoch in 0..600 {
            let (before, after) = (first(boot_epoch), first(boot_epoch + 1));
            assert!(
                before.abs_diff(after) >= 1 << 30,
                "{boot_epoch}: {before} {after}"
            );
        }
    }

    #[test]
    fn a_slot_out_of_generations_is_retired() {
        let (mut slab, mut list) = (Slab::<Entry>::default(), List::default());
        let index = add(&mut slab, &mut list);
        slab.slot_mut(index).generation = u32::MAX;
        list.remove(&mut slab, 0, index);
        slab.remove(index);
        let next = add(&mut slab, &mut list);
        assert_ne!(next, index);
    }

    #[test]
    fn lists_keep_their_order_through_removals() {
        let (mut slab, mut list) = (Slab::default(), List::default());
        let slots: Vec<u32> = (0..5).map(|_| add(&mut slab, &mut list)).collect();
        for gone in [slots[0], slots[2], slots[4]] {
            list.remove(&mut slab, 0, gone);
        }
        assert_eq!(
            list.iter(&slab, 0).collect::<Vec<_>>(),
            [slots[1], slots[3]]
        );
        assert_eq!(list.len, 2);
    }
}
