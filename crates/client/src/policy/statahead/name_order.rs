//! Statahead for names that are asked for in name order without a listing, as `git status` and `make` do
//! (ADR 8). At the third missed name in order the directory's list is fetched, a short page at first. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use base::limits::PAGE_ENTRIES_MAX;
use base::{Fid, Name, Tick};

use super::flat::Fetch;
use crate::executor::{Oneshot, WaitList};
use crate::policy::statahead::report::{Pattern, WalkReport};
use crate::policy::statahead::tree::ENTRY_BYTES;

/// Directories remembered. Beyond: the one asked for longest ago is forgotten.
const DIRS_MAX: usize = 64;
/// Runs of one directory. Beyond: the one that went on longest ago is forgotten.
const RUNS_MAX: usize = 4;
/// Names of a run before the one for which the list is fetched.
const FOUND_MIN: u32 = 2;
/// Entries of the first page.
const ENTRIES_FIRST: u32 = 64;
/// Entries that may be fetched for each name missed.
const MISS_ENTRIES: u64 = 64;
/// Entries of the first page of a directory at the first of its names, at most.
const ENTRIES_BELOW_MAX: u32 = 1024;
/// Directories below one in a row of whose lists little was used, before that is gone through no more.
const UNUSED_MAX: u8 = 32;
/// Lists of one directory that were lost again, before there are no more.
const LOST_MAX: u8 = 3;
/// After so long a directory is forgotten.
const IDLE: Duration = Duration::from_secs(30);

/// How a call asks for a name that is not cached.
pub(crate) enum Step {
    /// Ask for it alone.
    Alone,
    /// A page of the list is on its way.
    Wait(Oneshot<()>),
    /// Fetch a page of the list instead, after what is known.
    List(Page),
}

/// A page to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Page {
    pub fetch: Fetch,
    /// The directory is one of several below another that are gone through by name.
    pub of_tree: bool,
}

/// What is known of a directory's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Entries known.
    pub listed: u64,
    /// Up to this cookie; `u64::MAX`: all of it.
    pub covered: u64,
}

/// The directories whose names are asked for in name order.
#[derive(Default)]
pub(crate) struct NameOrder {
    dirs: Vec<Directory>,
}

struct Directory {
    fid: Fid,
    /// The one above, if that is gone through, too.
    above: Option<Fid>,
    /// Went on longest ago first.
    runs: VecDeque<Run>,
    /// A page is on its way.
    fetching: bool,
    waiters: WaitList,
    pages: u64,
    fetched: u64,
    used: u64,
    missed: u64,
    /// A good part of what came was asked for.
    is_used: bool,
    /// How large the first page of a directory below may be.
    below: u32,
    /// Directories below in a row of whose lists little was used.
    unused: u8,
    lost: u8,
    seen: Tick,
}

/// Names that exist, each greater than the one before.
struct Run {
    last: Name,
    found: u32,
}

impl NameOrder {
    /// `name` of `dir`, which is below `above`, is asked for and not at hand; of the list of `dir`
    /// there is `known`.
    pub fn missed(
        &mut self,
        (above, dir): (Fid, Fid),
        name: &Name,
        known: Extent,
        now: Tick,
    ) -> Step {
        self.dirs
            .retain(|one| one.fetching || now.since(one.seen) < IDLE);
        let entered = self.find(above).filter(|above| above.is_followed());
        let below = entered.map_or(0, |above| above.below);
        let one = self.touch(dir, now);
        if one.fetching {
            return Step::Wait(one.waiters.wait());
        }
        one.missed += 1;
        let entries = one.wanted(name, known, below);
        if entries == 0 {
            return Step::Alone;
        }
        let of_tree = below > 0 && one.pages == 0;
        one.above = of_tree.then_some(above);
        (one.fetching, one.pages) = (true, one.pages + 1);
        if let Some(above) = self.find(above).filter(|_| of_tree) {
            above.unused = above.unused.saturating_add(1);
        }
        let fetch = Fetch {
            cookie: known.covered,
            entries,
            attrs: entries,
        };
        Step::List(Page { fetch, of_tree })
    }

    /// The page came, or will not come: the list is known as far as `known` tells.
    pub fn came(&mut self, dir: Fid, known: Extent) {
        if let Some(one) = self.find(dir) {
            one.fetching = false;
            one.waiters.wake_all();
            one.fetched = one.fetched.max(known.listed);
            if known.covered == 0 {
                one.lose();
            }
        }
    }

    /// A name that was asked for alone exists, or does not.
    pub fn answered(&mut self, dir: Fid, name: &Name, exists: bool) {
        if let Some(one) = self.find(dir) {
            match exists {
                true => one.go_on(name),
                false => one.runs.clear(),
            }
        }
    }

    /// A name is at hand.
    pub fn hit(&mut self, dir: Fid, now: Tick) {
        let Some(one) = self.find(dir).filter(|one| one.pages > 0) else {
            return;
        };
        one.seen = now;
        one.used += 1;
        if one.is_used || 4 * one.used < one.fetched {
            return;
        }
        one.is_used = true;
        if let Some(above) = one.above.and_then(|above| self.find(above)) {
            above.unused = 0;
            above.below = (above.below * 2).min(ENTRIES_BELOW_MAX);
        }
    }

    pub fn reports(&self) -> impl Iterator<Item = WalkReport> {
        let fetched = |one: &&Directory| one.pages > 0;
        self.dirs.iter().filter(fetched).map(Directory::report)
    }

    fn find(&mut self, dir: Fid) -> Option<&mut Directory> {
        self.dirs.iter_mut().find(|one| one.fid == dir)
    }

    /// The directory, of which a name is asked for.
    fn touch(&mut self, dir: Fid, now: Tick) -> &mut Directory {
        let known = self.dirs.iter().position(|one| one.fid == dir);
        let at = known.unwrap_or_else(|| {
            if self.dirs.len() >= DIRS_MAX {
                let seen = |at: &usize| self.dirs[*at].seen;
                let oldest = (0..self.dirs.len()).min_by_key(seen);
                oldest.map(|at| self.dirs.swap_remove(at));
            }
            self.dirs.push(Directory::new(dir));
            self.dirs.len() - 1
        });
        self.dirs[at].seen = now;
        &mut self.dirs[at]
    }
}

impl Directory {
    fn new(fid: Fid) -> Directory {
        Directory {
            fid,
            above: None,
            runs: VecDeque::new(),
            fetching: false,
            waiters: WaitList::default(),
            pages: 0,
            fetched: 0,
            used: 0,
            missed: 0,
            is_used: false,
            below: ENTRIES_FIRST,
            unused: 0,
            lost: 0,
            seen: Tick(0),
        }
    }

    /// Lists of directories below are worth being fetched at once.
    fn is_followed(&self) -> bool {
        self.pages > 0 && !self.has_ended() && self.unused < UNUSED_MAX
    }

    fn has_ended(&self) -> bool {
        self.lost >= LOST_MAX
    }

    /// How many entries to fetch instead of `name`; zero: none.
    fn wanted(&mut self, name: &Name, known: Extent, below: u32) -> u32 {
        // Somebody else has it all, so the name is new or its attributes are being changed.
        if self.has_ended() || known.covered == u64::MAX {
            return 0;
        }
        if self.pages > 0 && known.covered == 0 {
            self.lose();
        }
        let found = self.run(name).map_or(0, |at| self.runs[at].found);
        if known.covered == 0 {
            let first = if self.lost > 0 { 0 } else { below };
            let in_order = if found >= FOUND_MIN { ENTRIES_FIRST } else { 0 };
            return first.max(in_order);
        }
        let left = known.length().saturating_sub(known.listed).max(1);
        let earned = MISS_ENTRIES * u64::from(found.saturating_sub(FOUND_MIN));
        match earned >= left {
            // An estimate: the end should not take one more request.
            true => {
                (left + left / 2).clamp(u64::from(ENTRIES_FIRST), PAGE_ENTRIES_MAX as u64) as u32
            }
            false => 0,
        }
    }

    /// What came of the list is not there any more.
    fn lose(&mut self) {
        (self.pages, self.lost) = (0, self.lost + 1);
        self.runs.clear();
    }

    /// The run that `name` goes on with: of those before it the last.
    fn run(&self, name: &Name) -> Option<usize> {
        let before = |at: &usize| self.runs[*at].last < *name;
        let runs = (0..self.runs.len()).filter(before);
        runs.max_by_key(|at| &self.runs[*at].last)
    }

    fn go_on(&mut self, name: &Name) {
        let found = match self.run(name).and_then(|at| self.runs.remove(at)) {
            Some(run) => run.found.saturating_add(1),
            None => 1,
        };
        if self.runs.len() >= RUNS_MAX {
            self.runs.pop_front();
        }
        let last = name.clone();
        self.runs.push_back(Run { last, found });
    }

    fn report(&self) -> WalkReport {
        WalkReport {
            pattern: Pattern::NameOrder,
            dir: self.fid,
            requests: self.pages,
            fetched: self.fetched,
            used: self.used,
            missed: self.missed,
            window: u64::from(self.below),
            bytes: self.fetched * ENTRY_BYTES,
            bytes_unused: self.fetched.saturating_sub(self.used) * ENTRY_BYTES,
            ended: self.has_ended(),
        }
    }
}

impl Extent {
    /// About how many entries there are: cookies are hashes of 63 bits.
    fn length(&self) -> u64 {
        let whole = u128::from(self.listed) << 63;
        let length = whole / u128::from(self.covered.max(1));
        u64::try_from(length).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
#[path = "name_order_tests.rs"]
mod tests;
