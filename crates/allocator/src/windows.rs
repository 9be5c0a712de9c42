//! Blocks that are reserved for objects which grow, in the order in which they will be written.

use std::collections::{BTreeMap, BTreeSet};

use base::Tick;

use crate::places::{Block, Extent, Owner};

/// Windows of one owner. Beyond: its oldest one is given back.
const PER_OWNER_MAX: usize = 8;

/// Blocks of the disk for blocks of an object. Blocks that were handed out are no part of it any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The object's block that the first one is for.
    pub logical: u64,
    /// Where.
    pub place: Extent,
}

impl Window {
    fn end(&self) -> u64 {
        self.logical + u64::from(self.place.blocks)
    }
}

#[derive(Debug)]
struct Owned {
    windows: Vec<Window>,
    /// When one was made or used last, and a count that orders equal times.
    used: (Tick, u64),
}

/// All windows.
#[derive(Debug, Default)]
pub struct Windows {
    owners: BTreeMap<Owner, Owned>,
    by_use: BTreeSet<((Tick, u64), Owner)>,
    uses: u64,
    blocks: u64,
}

impl Windows {
    /// Blocks in all windows.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Owners that have any.
    pub fn owners(&self) -> usize {
        self.owners.len()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Window> {
        self.owners.values().flat_map(|owned| &owned.windows)
    }

    fn touch(&mut self, now: Tick, owner: Owner) -> &mut Owned {
        self.uses += 1;
        let used = (now, self.uses);
        let blank = || Owned {
            windows: Vec::new(),
            used,
        };
        let owned = self.owners.entry(owner).or_insert_with(blank);
        self.by_use.remove(&(owned.used, owner));
        owned.used = used;
        self.by_use.insert((used, owner));
        owned
    }

    /// Takes up to `blocks` from `owner`'s windows, for its block `logical` on. `Err`: no window has that
    /// block. One begins so many blocks later, if any does.
    pub fn take(
        &mut self,
        now: Tick,
        owner: Owner,
        logical: u64,
        blocks: u32,
    ) -> Result<Extent, Option<u64>> {
        let windows = self.owners.get(&owner).map(|owned| &owned.windows[..]);
        let windows = windows.unwrap_or_default();
        let inside = |window: &Window| (window.logical..window.end()).contains(&logical);
        let Some(at) = windows.iter().position(inside) else {
            let starts = windows.iter().map(|window| window.logical);
            let later = starts.filter(|start| *start > logical).min();
            return Err(later.map(|start| start - logical));
        };
        let owned = self.touch(now, owner);
        let window = owned.windows.remove(at);
        let (before, rest) = window.place.split((logical - window.logical) as u32);
        let (taken, behind) = rest.split(blocks);
        let left = [
            (window.logical, before),
            (logical + u64::from(taken.blocks), behind),
        ];
        let left = left.into_iter().filter(|(_, place)| place.blocks > 0);
        owned
            .windows
            .extend(left.map(|(logical, place)| Window { logical, place }));
        let is_empty = owned.windows.is_empty();
        self.blocks -= u64::from(taken.blocks);
        if is_empty {
            self.give_back(owner);
        }
        Ok(taken)
    }

    /// Puts a window of `owner` here; says what is given back for it.
    #[must_use]
    pub fn put(&mut self, now: Tick, owner: Owner, window: Window) -> Option<Extent> {
        self.blocks += u64::from(window.place.blocks);
        let owned = self.touch(now, owner);
        owned.windows.push(window);
        let oldest = (owned.windows.len() > PER_OWNER_MAX).then(|| owned.windows.remove(0));
        let given = oldest.map(|window| window.place);
        self.blocks -= given.map_or(0, |place| u64::from(place.blocks));
        given
    }

    /// Where bytes before block `logical` of `owner` may end: the window that begins there or nearest.
    pub fn near(&self, owner: Owner, logical: u64) -> Option<Block> {
        let windows = &self.owners.get(&owner)?.windows;
        let near = windows
            .iter()
            .min_by_key(|window| window.logical.abs_diff(logical))?;
        Some(near.place.start)
    }

    /// Gives all windows of `owner` back.
    #[must_use]
    pub fn release(&mut self, owner: Owner) -> Vec<Extent> {
        let windows = self.give_back(owner);
        windows.into_iter().map(|window| window.place).collect()
    }

    fn give_back(&mut self, owner: Owner) -> Vec<Window> {
        let Some(owned) = self.owners.remove(&owner) else {
            return Vec::new();
        };
        self.by_use.remove(&(owned.used, owner));
        let blocks = owned
            .windows
            .iter()
            .map(|window| u64::from(window.place.blocks));
        self.blocks -= blocks.sum::<u64>();
        owned.windows
    }

    /// The owner whose windows were used longest ago, and when.
    pub fn oldest(&self) -> Option<(Owner, Tick)> {
        self.by_use
            .first()
            .map(|((tick, _), owner)| (*owner, *tick))
    }
}
