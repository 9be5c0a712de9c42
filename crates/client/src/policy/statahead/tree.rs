//! Statahead over trees (ADR 8). From the first directory below a listed one on, the MDT is asked for
//! stretches in the reader's order, each four times as large while the last was read. A walk follows its
//! reader, depth first or breadth first, and ends where guesses stay wrong. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use base::limits::WALK_BYTES_MAX;
use base::{Fid, Tick};
use wire::mdt::{WalkLevel, WalkOrder};

use super::access_pattern::AccessPattern;
use crate::cache::ahead::WalkId;
use crate::executor::{Oneshot, WaitList};
use crate::policy::statahead::report::{Pattern, WalkReport};

/// Walks remembered. Beyond: the one that was begun first is forgotten.
const WALKS_MAX: usize = 16;
/// Directories remembered of which one below was entered. Beyond: the first of them is forgotten.
const ENTERED_MAX: usize = 64;
/// Bytes of a walk's first stretch, for which the reader waits.
const STRETCH_BYTES_FIRST: u32 = 64 << 10;
/// Stretches up to this size come over the control lane, in order with everything else; larger
/// ones do not hold anything else up.
const CONTROL_BYTES_MAX: u32 = 64 << 10;
/// How much larger each next stretch is.
const GROWTH: u32 = 4;
/// About how many bytes an entry takes in an answer.
pub(crate) const ENTRY_BYTES: u64 = 170;
/// Turns in a row after which most of what came had not been read, before a walk is not followed
/// any more.
const WRONG_MAX: u8 = 3;
/// Stretches of one walk under way at once. A long round trip is filled with what a reader reads
/// meanwhile; what is ahead is bounded beside that.
const IN_FLIGHT_MAX: u32 = 3;
/// Entries ahead of a reader with which it is never late where the line is not long.
const NEAR_ENTRIES_MAX: u64 = 1 << 16;
/// Stretches under way at once where the server is far away, so that a reader reads as much as the link can
/// carry.
const IN_FLIGHT_FAR_MAX: u32 = 6;
/// Entries that a reader reads in a second.
const ENTRIES_PER_SECOND: u64 = 200_000;
/// How many round trips of reading are to be at hand or on their way. What is asked for comes one
/// later, and more where a connection is new and slow.
const LINES_AHEAD: u64 = 2;
/// A round trip in which a reader reads more than the first stretches bring.
const FAR: Duration = Duration::from_millis(15);
/// How many times as much as was read may have been asked for, where a long line is not full.
const TRUST: u64 = 64;
/// Directories needed in a row that a walk under way does not bring, before it is given up.
const STRAYS_MAX: u32 = 2;
/// After so long without its reader a walk is forgotten.
const IDLE: Duration = Duration::from_secs(30);

/// A part of a tree to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub walk: WalkId,
    /// Its name at the MDT since the last turn; see [`wire::mdt::Request::Walk`].
    pub chain: u64,
    /// Which one of these.
    pub number: u32,
    /// From here on; empty: where the one before ends.
    pub levels: Vec<WalkLevel>,
    pub order: WalkOrder,
    /// Bytes of answer at most.
    pub bytes: u32,
    /// What the walk was called before it turned; zero: it did not.
    pub instead_of: u64,
    /// It comes beside other replies, whatever its size: another follows it there.
    pub aside: bool,
}

/// What a walk begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The stretch with the directory that is needed.
    pub needed: Stretch,
    /// What comes after it, to be asked for right behind it. Far away, who goes on reading would
    /// wait for a round trip more than who does not can lose.
    pub beyond: Option<Stretch>,
}

/// A part of a tree that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreePart {
    /// Directories that were not at hand before.
    pub directories: u32,
    /// Entries of them.
    pub entries: u64,
    /// Where the tree goes on; empty at its end.
    pub next: Vec<WalkLevel>,
    /// In this order.
    pub order: WalkOrder,
}

/// A directory that a walk brought and that is read now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visit {
    pub dir: Fid,
    pub parent: Fid,
    pub has_subdirectories: bool,
    /// Entries that are at hand.
    pub entries: u64,
}

/// What a call that needs a directory that is not at hand is to do.
pub(crate) enum Step {
    /// Ask for it alone.
    Alone,
    /// It is on its way.
    Wait(Oneshot<()>),
    /// Ask for it with what comes after it.
    Ask(Asked),
}

/// Where a directory is that is needed now.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// From the outermost directory above it whose list is known down to itself.
    pub levels: Vec<WalkLevel>,
    /// The order in which it is the first directory of its parent.
    pub is_first: Option<WalkOrder>,
}

/// How far a walk may be ahead of its reader.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach {
    /// Entries at most; zero: none is.
    pub entries_max: u64,
    /// How long a request and its answer are on their way to the server and back.
    pub round_trip: Duration,
}

impl Reach {
    /// A reader waits for longer than it takes it to read the first stretches.
    fn is_far(self) -> bool {
        self.round_trip >= FAR
    }

    fn bytes_max(self) -> u64 {
        self.entries_max * ENTRY_BYTES
    }

    /// Bytes ahead of the reader below which it would come to wait for the line; none close by.
    fn line_bytes(self) -> u64 {
        if !self.is_far() {
            return 0;
        }
        let micros = u64::try_from(self.round_trip.as_micros()).unwrap_or(u64::MAX);
        let entries = micros.saturating_mul(LINES_AHEAD * ENTRIES_PER_SECOND) / 1_000_000;
        entries.saturating_mul(ENTRY_BYTES)
    }
}

/// All walks of a mount.
#[derive(Default)]
pub(crate) struct Trees {
    last: u64,
    last_chain: u64,
    walks: VecDeque<Walk>,
    /// Directories listed of which one below was entered.
    entered: VecDeque<Fid>,
}

struct Walk {
    id: WalkId,
    root: Fid,
    order: WalkOrder,
    access_pattern: AccessPattern,
    /// Its name at the MDT; another one after each turn.
    chain: u64,
    /// Stretches asked for under this name.
    asked: u32,
    /// Of these, what came last.
    last_came: u32,
    /// Where the next stretch begins of what came; empty at the end.
    next: Vec<WalkLevel>,
    bytes: u32,
    /// Stretches under way, and their bytes.
    in_flight: u32,
    bytes_in_flight: u64,
    /// Directories needed in a row that are in none of them.
    strays: u32,
    /// Entries that came and were not read yet.
    ahead: u64,
    /// Entries that were read since the last turn.
    entries_read: u64,
    /// Directories that came since the last turn, and of these read.
    came: u32,
    read: u32,
    wrong: u8,
    seen: Tick,
    waiters: WaitList,
    total: Total,
}

/// What a walk has done in all.
#[derive(Debug, Default, Clone, Copy)]
struct Total {
    stretches: u64,
    directories: u64,
    read: u64,
    missed: u64,
    entries: u64,
    entries_read: u64,
}

impl Trees {
    /// `place` is needed now and not at hand.
    pub fn missed(&mut self, place: Place, reach: Reach, now: Tick) -> Step {
        self.walks
            .retain(|walk| walk.in_flight > 0 || now.since(walk.seen) < IDLE);
        let (Some(here), true) = (place.levels.last().copied(), reach.entries_max > 0) else {
            return Step::Alone;
        };
        let within = |walk: &&mut Walk| place.levels.iter().any(|level| level.dir == walk.root);
        if let Some(walk) = self.walks.iter_mut().rev().find(within) {
            walk.seen = now;
            return walk.missed(&place.levels, here, &mut self.last_chain);
        }
        let [.., parent, _] = place.levels[..] else {
            return Step::Alone;
        };
        let order = place.is_first.unwrap_or(WalkOrder::Cookie);
        let begins = place.is_first.is_some() || self.enters_again(parent.dir);
        match here.cookie == 0 && begins {
            true => Step::Ask(self.begin(parent, here, (order, reach), now)),
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

    fn begin(
        &mut self,
        parent: WalkLevel,
        here: WalkLevel,
        (order, reach): (WalkOrder, Reach),
        now: Tick,
    ) -> Asked {
        self.last += 1;
        self.last_chain += 1;
        if self.walks.len() >= WALKS_MAX {
            self.walks.pop_front();
        }
        let mut walk = Walk {
            id: WalkId(self.last),
            root: parent.dir,
            order,
            access_pattern: AccessPattern::default(),
            chain: self.last_chain,
            asked: 0,
            last_came: 0,
            next: vec![parent, here],
            bytes: STRETCH_BYTES_FIRST,
            in_flight: 0,
            bytes_in_flight: 0,
            strays: 0,
            ahead: 0,
            entries_read: 0,
            came: 0,
            read: 0,
            wrong: 0,
            seen: now,
            waiters: WaitList::default(),
            total: Total::default(),
        };
        walk.access_pattern.step(here.dir, parent.dir);
        let mut needed = walk.ask(0);
        needed.aside = reach.is_far() && u64::from(walk.larger()) <= reach.bytes_max();
        let beyond = needed.aside.then(|| {
            walk.bytes = walk.larger();
            walk.ask(0)
        });
        self.walks.push_back(walk);
        Asked { needed, beyond }
    }

    /// A directory that a walk brought is read. What to ask for meanwhile.
    pub fn read(&mut self, id: WalkId, visit: Visit, reach: Reach, now: Tick) -> Option<Stretch> {
        let walk = self.walk(id)?;
        walk.seen = now;
        walk.visit(visit);
        // The first was asked for; those after it are what the walk guessed.
        let guessed_right = walk.read > 1 && walk.wrong < WRONG_MAX && walk.is_in_step();
        if !guessed_right || walk.next.is_empty() || !walk.wants_more(reach) {
            return None;
        }
        let more = walk.larger();
        walk.bytes = more;
        Some(walk.ask(0))
    }

    /// A reader is in the middle of `dir`, whose rest a walk brings; `left` entries of it are at hand
    /// and not read. What to ask for meanwhile.
    pub fn within(&mut self, dir: Fid, left: u64, reach: Reach, now: Tick) -> Option<Stretch> {
        let walk = self.walks.iter_mut().find(|walk| walk.lists(dir))?;
        walk.seen = now;
        let (more, unread) = (walk.larger(), left * ENTRY_BYTES);
        let enough = walk.in_flight > 0 || unread > u64::from(walk.bytes);
        let too_much = unread + u64::from(more) > reach.bytes_max();
        if enough || too_much || walk.wrong >= WRONG_MAX {
            return None;
        }
        walk.bytes = more;
        Some(walk.ask(0))
    }

    /// A stretch came.
    pub fn came(&mut self, stretch: &Stretch, came: TreePart) {
        let Some(walk) = self.walk(stretch.walk) else {
            return;
        };
        walk.waiters.wake_all();
        walk.total.directories += u64::from(came.directories);
        walk.total.entries += came.entries;
        if !walk.ends(stretch) {
            return;
        }
        walk.came += came.directories;
        walk.ahead += came.entries;
        // Two answers may be taken in at the same time.
        if walk.last_came < stretch.number {
            (walk.last_came, walk.next) = (stretch.number, came.next);
            walk.order = came.order;
        }
    }

    /// A stretch will not come.
    pub fn failed(&mut self, stretch: &Stretch) {
        let Some(walk) = self.walk(stretch.walk) else {
            return;
        };
        walk.waiters.wake_all();
        // Where those that follow another would have begun is not known here.
        if walk.ends(stretch) && !stretch.levels.is_empty() {
            walk.next = Vec::new();
        }
    }

    /// A walk brings the rest of this directory's list.
    pub fn lists(&self, dir: Fid) -> bool {
        self.walks.iter().any(|walk| walk.lists(dir))
    }

    pub fn reports(&self) -> impl Iterator<Item = WalkReport> {
        self.walks.iter().map(Walk::report)
    }

    fn walk(&mut self, id: WalkId) -> Option<&mut Walk> {
        self.walks.iter_mut().find(|walk| walk.id == id)
    }
}

impl Walk {
    fn missed(&mut self, levels: &[WalkLevel], here: WalkLevel, last_chain: &mut u64) -> Step {
        self.total.missed += 1;
        if let [.., parent, _] = levels {
            self.access_pattern.step(here.dir, parent.dir);
        }
        if self.wrong >= WRONG_MAX {
            return Step::Alone;
        }
        let is_next = self.comes_to(levels, here);
        if self.in_flight > 0 {
            if is_next {
                return Step::Wait(self.waiters.wait());
            }
            self.strays += 1;
            if self.strays < STRAYS_MAX {
                return Step::Alone;
            }
        }
        if here.cookie != 0 && !is_next {
            return Step::Alone;
        }
        self.turn(levels, is_next, last_chain)
    }

    /// The reader is where nothing of what came is.
    fn turn(&mut self, levels: &[WalkLevel], is_next: bool, last_chain: &mut u64) -> Step {
        let mostly_read = 2 * self.read >= self.came;
        self.wrong = match mostly_read {
            true => 0,
            false => self.wrong + 1,
        };
        if self.wrong >= WRONG_MAX {
            return Step::Alone;
        }
        self.bytes = match is_next && mostly_read && self.is_in_step() {
            true => self.larger(),
            false => STRETCH_BYTES_FIRST >> self.wrong,
        };
        (self.came, self.read) = (0, 0);
        (self.ahead, self.entries_read) = (0, 0);
        self.next = self.below_root(levels).to_vec();
        self.order = self.order_from_here(mostly_read);
        let before = match self.in_flight {
            0 => 0,
            _ => self.chain,
        };
        *last_chain += 1;
        (self.chain, self.asked, self.last_came) = (*last_chain, 0, 0);
        (self.in_flight, self.bytes_in_flight, self.strays) = (0, 0, 0);
        Step::Ask(Asked {
            needed: self.ask(before),
            beyond: None,
        })
    }

    /// The order in which the walk goes on from `next`, whose last directory is needed.
    fn order_from_here(&self, was_right: bool) -> WalkOrder {
        let depth = u8::try_from(self.next.len().saturating_sub(1)).unwrap_or(u8::MAX);
        let stays = was_right && self.goes_by_depth();
        match (self.order, was_right) {
            // Others of this depth, which may have some below them, were read already.
            _ if stays || self.access_pattern.is_breadth() => WalkOrder::Breadth {
                depth,
                deeper: true,
            },
            (order, true) => order,
            (WalkOrder::Cookie, false) => WalkOrder::Name,
            (_, false) => WalkOrder::Cookie,
        }
    }

    fn goes_by_depth(&self) -> bool {
        matches!(self.order, WalkOrder::Breadth { .. })
    }

    /// The reader goes as the walk does.
    fn is_in_step(&self) -> bool {
        self.goes_by_depth() == self.access_pattern.is_breadth()
    }

    fn visit(&mut self, visit: Visit) {
        self.access_pattern.step(visit.dir, visit.parent);
        if visit.has_subdirectories {
            self.access_pattern.finds_subdirectories();
        }
        self.strays = 0;
        self.read += 1;
        self.total.read += 1;
        self.entries_read += visit.entries;
        self.total.entries_read += visit.entries;
        self.ahead = self.ahead.saturating_sub(visit.entries);
    }

    fn below_root<'l>(&self, levels: &'l [WalkLevel]) -> &'l [WalkLevel] {
        let root = levels.iter().position(|level| level.dir == self.root);
        &levels[root.unwrap_or(0)..]
    }

    /// A stretch is under way no more. False: the walk has turned since it was asked for.
    fn ends(&mut self, stretch: &Stretch) -> bool {
        let is_of_now = stretch.chain == self.chain;
        if is_of_now {
            self.in_flight -= 1;
            self.bytes_in_flight -= u64::from(stretch.bytes);
        }
        is_of_now
    }

    /// The next stretch is due.
    fn wants_more(&self, reach: Reach) -> bool {
        let (more, unread) = (u64::from(self.larger()), self.ahead * ENTRY_BYTES);
        let ahead = unread + self.bytes_in_flight;
        let fits = |entries_max: u64| ahead + more <= entries_max * ENTRY_BYTES;
        if !fits(reach.entries_max) {
            return false;
        }
        let asked = self.entries_read * ENTRY_BYTES + ahead + more;
        let is_trusted = asked <= TRUST * self.entries_read * ENTRY_BYTES;
        if ahead < reach.line_bytes() && is_trusted && self.in_flight < IN_FLIGHT_FAR_MAX {
            return true;
        }
        let enough = self.in_flight == 0 && unread > u64::from(self.bytes);
        fits(NEAR_ENTRIES_MAX) && !enough && self.in_flight < self.in_flight_max()
    }

    /// How many stretches may be under way: one more for each third of what came that was read.
    fn in_flight_max(&self) -> u32 {
        let thirds = 3 * self.read / self.came.max(1);
        (1 + thirds).min(IN_FLIGHT_MAX)
    }

    fn lists(&self, dir: Fid) -> bool {
        let innermost = self.next.last();
        innermost.is_some_and(|level| level.dir == dir && !level.listed)
    }

    /// The walk has the directory still before it.
    fn comes_to(&self, levels: &[WalkLevel], here: WalkLevel) -> bool {
        if let WalkOrder::Breadth { depth, .. } = self.order {
            return self.comes_by_depth(self.below_root(levels), depth.into());
        }
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

    /// A walk that is at `depth` now has the last of these directories still before it. Each is below
    /// the one before.
    fn comes_by_depth(&self, levels: &[WalkLevel], depth: usize) -> bool {
        let (Some(needed), false) = (levels.last(), self.next.is_empty()) else {
            return false;
        };
        let below = levels.len() - 1;
        if below != depth {
            return below == depth + 1;
        }
        for (level, at) in levels.iter().zip(&self.next) {
            if level.dir != at.dir {
                return false;
            }
            if level.dir == needed.dir {
                return !at.listed && at.cookie <= needed.cookie;
            }
            if level.cookie != at.cookie {
                return level.cookie > at.cookie;
            }
        }
        false
    }

    fn report(&self) -> WalkReport {
        let total = &self.total;
        WalkReport {
            pattern: match self.order {
                WalkOrder::Cookie => Pattern::Dfs,
                WalkOrder::Name => Pattern::DfsName,
                WalkOrder::Breadth { .. } => Pattern::Bfs,
            },
            dir: self.root,
            requests: total.stretches,
            fetched: total.directories,
            used: total.read,
            missed: total.missed,
            window: u64::from(self.bytes),
            bytes: total.entries * ENTRY_BYTES,
            bytes_unused: total.entries.saturating_sub(total.entries_read) * ENTRY_BYTES,
            ended: self.wrong >= WRONG_MAX,
        }
    }

    fn larger(&self) -> u32 {
        (self.bytes * GROWTH).min(WALK_BYTES_MAX as u32)
    }

    fn ask(&mut self, instead_of: u64) -> Stretch {
        let levels = match self.in_flight {
            0 => self.next.clone(),
            _ => Vec::new(),
        };
        self.in_flight += 1;
        self.asked += 1;
        self.total.stretches += 1;
        self.bytes_in_flight += u64::from(self.bytes);
        Stretch {
            walk: self.id,
            chain: self.chain,
            number: self.asked,
            levels,
            order: self.order,
            bytes: self.bytes,
            instead_of,
            aside: self.bytes > CONTROL_BYTES_MAX,
        }
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "tree_reader_tests.rs"]
mod tree_readers;
