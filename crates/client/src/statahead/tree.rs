//! Statahead over trees: the directories a walker comes to next, fetched before it is there (ADR 8).
//!
//! A walk is seen where a directory is entered whose parent has been listed: the first one below
//! it, or a second one. From there on the MDT is asked for stretches of the tree in the order of a
//! depth-first reader, each four times as large as the one before while what came is read. Where the
//! walker turns elsewhere, the walk follows it; where most of what came was not read it tries the
//! other order, and after several such turns it ends for good.
//!
//! Pure: told of what is read and what came, says what to ask for.

use std::collections::VecDeque;
use std::time::Duration;

use base::limits::WALK_BYTES_MAX;
use base::{Fid, Tick};
use wire::mdt::{WalkLevel, WalkOrder};

use crate::executor::{Oneshot, WaitList};

/// Walks remembered. Beyond: the one that was begun first is forgotten.
const WALKS_MAX: usize = 16;
/// Directories remembered of which one below was entered. Beyond: the first of them is forgotten.
const ENTERED_MAX: usize = 64;
/// Bytes of a walk's first stretch, for which the walker waits.
const STRETCH_BYTES_FIRST: u32 = 64 << 10;
/// How much larger each next stretch is.
const GROWTH: u32 = 4;
/// About how many bytes an entry takes in an answer.
const ENTRY_BYTES: u64 = 170;
/// Turns in a row after which most of what came had not been read, before a walk is not followed
/// any more.
const WRONG_MAX: u8 = 3;
/// After so long without its walker a walk is forgotten.
const IDLE: Duration = Duration::from_secs(30);

/// Names a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WalkId(u64);

/// A part of a tree to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub walk: WalkId,
    /// From here on; see [`wire::mdt::Request::Walk`].
    pub levels: Vec<WalkLevel>,
    pub order: WalkOrder,
    /// Bytes of answer at most.
    pub bytes: u32,
}

/// What whoever needs a directory that is not at hand is to do.
pub(crate) enum Step {
    /// Ask for it alone.
    Alone,
    /// It is on its way.
    Wait(Oneshot<()>),
    /// Ask for it with what comes after it.
    Ask(Stretch),
}

/// Where a directory is that is needed now.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// From the outermost directory above it whose list is known down to itself.
    pub levels: Vec<WalkLevel>,
    /// The order in which it is the first directory of its parent.
    pub is_first: Option<WalkOrder>,
}

/// All walks of a mount.
#[derive(Default)]
pub(crate) struct Trees {
    last: u64,
    walks: VecDeque<Walk>,
    /// Directories listed of which one below was entered.
    entered: VecDeque<Fid>,
}

struct Walk {
    id: WalkId,
    root: Fid,
    order: WalkOrder,
    /// Where the next stretch begins; empty at the end.
    next: Vec<WalkLevel>,
    bytes: u32,
    in_flight: bool,
    /// Entries that came and were not read yet.
    ahead: u64,
    /// Directories that came since the last turn, and of these read.
    came: u32,
    read: u32,
    wrong: u8,
    seen: Tick,
    waiters: WaitList,
}

impl Trees {
    /// `place` is needed now and not at hand. Up to `ahead_max` entries may be fetched ahead.
    pub fn missed(&mut self, place: Place, ahead_max: u64, now: Tick) -> Step {
        self.walks
            .retain(|walk| walk.in_flight || now.since(walk.seen) < IDLE);
        let (Some(here), true) = (place.levels.last().copied(), ahead_max > 0) else {
            return Step::Alone;
        };
        let within = |walk: &&mut Walk| place.levels.iter().any(|level| level.dir == walk.root);
        if let Some(walk) = self.walks.iter_mut().rev().find(within) {
            walk.seen = now;
            return walk.missed(&place.levels, here);
        }
        let [.., parent, _] = place.levels[..] else {
            return Step::Alone;
        };
        let order = place.is_first.unwrap_or(WalkOrder::Cookie);
        let begins = place.is_first.is_some() || self.enters_again(parent.dir);
        match here.cookie == 0 && begins {
            true => self.begin(parent, here, order, now),
            false => Step::Alone,
        }
    }

    /// Whether another directory below `parent` was entered before.
    fn enters_again(&mut self, parent: Fid) -> bool {
        if self.entered.contains(&parent) {
            return true;
        }
        if self.entered.len() >= ENTERED_MAX {
            self.entered.pop_front();
        }
        self.entered.push_back(parent);
        false
    }

    fn begin(&mut self, parent: WalkLevel, here: WalkLevel, order: WalkOrder, now: Tick) -> Step {
        self.last += 1;
        if self.walks.len() >= WALKS_MAX {
            self.walks.pop_front();
        }
        let mut walk = Walk {
            id: WalkId(self.last),
            root: parent.dir,
            order,
            next: vec![parent, here],
            bytes: STRETCH_BYTES_FIRST,
            in_flight: false,
            ahead: 0,
            came: 0,
            read: 0,
            wrong: 0,
            seen: now,
            waiters: WaitList::default(),
        };
        let stretch = walk.ask();
        self.walks.push_back(walk);
        Step::Ask(stretch)
    }

    /// A directory that a walk brought, with `entries`, is read. What to ask for meanwhile.
    pub fn read(&mut self, id: WalkId, entries: u64, ahead_max: u64, now: Tick) -> Option<Stretch> {
        let walk = self.walk(id)?;
        walk.seen = now;
        walk.read += 1;
        walk.ahead = walk.ahead.saturating_sub(entries);
        // The first was asked for; those after it are what the walk guessed.
        let guessed_right = walk.read > 1 && walk.wrong < WRONG_MAX;
        if walk.in_flight || walk.next.is_empty() || !guessed_right {
            return None;
        }
        let more = walk.larger();
        let enough = walk.ahead * ENTRY_BYTES > u64::from(walk.bytes);
        if enough || walk.ahead + u64::from(more) / ENTRY_BYTES > ahead_max {
            return None;
        }
        walk.bytes = more;
        Some(walk.ask())
    }

    /// A stretch came with so many directories and entries that were not at hand before.
    pub fn came(&mut self, id: WalkId, directories: u32, entries: u64, next: Vec<WalkLevel>) {
        if let Some(walk) = self.walk(id) {
            walk.in_flight = false;
            walk.came += directories;
            walk.ahead += entries;
            walk.next = next;
            walk.waiters.wake_all();
        }
    }

    /// A stretch will not come.
    pub fn failed(&mut self, id: WalkId) {
        self.came(id, 0, 0, Vec::new());
    }

    /// A walk brings the rest of this directory's list.
    pub fn lists(&self, dir: Fid) -> bool {
        let lists = |walk: &Walk| {
            walk.next
                .last()
                .is_some_and(|level| level.dir == dir && !level.listed)
        };
        self.walks.iter().any(lists)
    }

    fn walk(&mut self, id: WalkId) -> Option<&mut Walk> {
        self.walks.iter_mut().find(|walk| walk.id == id)
    }
}

impl Walk {
    fn missed(&mut self, levels: &[WalkLevel], here: WalkLevel) -> Step {
        if self.wrong >= WRONG_MAX {
            return Step::Alone;
        }
        let is_next = self.comes_to(levels, here);
        if self.in_flight {
            return match is_next {
                true => Step::Wait(self.waiters.wait()),
                false => Step::Alone,
            };
        }
        if here.cookie != 0 && !is_next {
            return Step::Alone;
        }
        self.turn(levels, here, is_next)
    }

    /// The walker is where nothing of what came is.
    fn turn(&mut self, levels: &[WalkLevel], here: WalkLevel, is_next: bool) -> Step {
        let mostly_read = 2 * self.read >= self.came;
        if mostly_read {
            self.wrong = 0;
        } else {
            self.wrong += 1;
            self.order = other(self.order);
        }
        if self.wrong >= WRONG_MAX {
            return Step::Alone;
        }
        self.bytes = match is_next && mostly_read {
            true => self.larger(),
            false => STRETCH_BYTES_FIRST >> self.wrong,
        };
        (self.came, self.read, self.ahead) = (0, 0, 0);
        if here.cookie == 0 {
            let from_root = levels.iter().skip_while(|level| level.dir != self.root);
            self.next = from_root.copied().collect();
        }
        Step::Ask(self.ask())
    }

    /// The walk has the directory still before it.
    fn comes_to(&self, levels: &[WalkLevel], here: WalkLevel) -> bool {
        let [.., parent, _] = *levels else {
            return false;
        };
        self.next.iter().any(|level| match level.dir {
            dir if dir == here.dir => !level.listed && level.cookie <= here.cookie,
            // Which names come first is not known here.
            dir if self.order == WalkOrder::Name => dir == parent.dir,
            dir => dir == parent.dir && (!level.listed || level.cookie < parent.cookie),
        })
    }

    fn larger(&self) -> u32 {
        (self.bytes * GROWTH).min(WALK_BYTES_MAX as u32)
    }

    fn ask(&mut self) -> Stretch {
        self.in_flight = true;
        Stretch {
            walk: self.id,
            levels: self.next.clone(),
            order: self.order,
            bytes: self.bytes,
        }
    }
}

fn other(order: WalkOrder) -> WalkOrder {
    match order {
        WalkOrder::Cookie => WalkOrder::Name,
        WalkOrder::Name => WalkOrder::Cookie,
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
