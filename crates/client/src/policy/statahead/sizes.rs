//! Statahead over sizes (AGL, ADR 8): a process that stats files whose size only their OSTs know has the next
//! ones asked for in batches. Locks are only tried for, so writers are not disturbed. Refusals shrink the
//! batches and end them. Pure.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use base::{Fid, TargetIndex, Tick};

use super::report::{Pattern, WalkReport};

/// Files of one request.
pub(crate) const BATCH_FILES_MAX: usize = 256;
/// Requests to one OST under way at once. Beyond: those files are asked for when one has come.
const BATCHES_UNDER_WAY_MAX: usize = 2;
/// Walks remembered. Beyond: the one that was begun first is forgotten.
const WALKS_MAX: usize = 8;
/// Stats in order that begin a walk.
const RUN_MIN: u32 = 2;
/// How often that is doubled at most, where what came is not used.
const DOUBLINGS_MAX: u32 = 8;
/// Batches in a row of which most is refused, before a walk ends for good.
const REFUSED_MAX: u8 = 2;
/// After so long without its reader a walk is forgotten.
const IDLE: Duration = Duration::from_secs(30);
/// What one size takes in a reply, about.
const SIZE_BYTES: u64 = 64;

/// Sizes to ask for: of `count` files of `dir` at most, those in its list after `after`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ask {
    pub dir: Fid,
    pub after: u64,
    pub count: usize,
}

/// All walks of a mount.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    walks: VecDeque<Walk>,
    /// How often in a row what came was not used.
    unused: u32,
    /// Requests under way; OSTs without any are not in it.
    under_way: Vec<(TargetIndex, usize)>,
}

#[derive(Debug)]
struct Walk {
    dir: Fid,
    /// The cookie of the file that was wanted last.
    last: u64,
    /// Files in order that were not at hand.
    run: u32,
    /// Files that may be ahead.
    window: usize,
    /// Cookies of files that were asked for and not wanted yet.
    ahead: BTreeSet<u64>,
    /// Up to where files were asked for.
    asked_to: u64,
    /// Used since the last request.
    used: usize,
    refused: u8,
    seen: Tick,
    total: Total,
    /// What of that was judged already.
    judged: Total,
}

/// What a walk has done in all.
#[derive(Debug, Default, Clone, Copy)]
struct Total {
    requests: u64,
    files: u64,
    used: u64,
    missed: u64,
}

impl Sizes {
    /// No walk is known.
    pub fn is_empty(&self) -> bool {
        self.walks.is_empty()
    }

    /// No walk is known in `dir`: nothing that is used there counts.
    pub fn is_idle(&self, dir: Fid) -> bool {
        self.walks.iter().all(|walk| walk.dir != dir)
    }

    /// The cookie of the file of `dir` that was wanted last; zero where none was.
    pub fn last(&self, dir: Fid) -> u64 {
        let walk = self.walks.iter().find(|walk| walk.dir == dir);
        walk.map_or(0, |walk| walk.last)
    }

    /// The size of the file of `dir` at `cookie` is wanted and not at hand. `window`: files ahead at
    /// first, and at most. What to ask for meanwhile.
    pub fn missed(
        &mut self,
        (dir, cookie): (Fid, u64),
        window: (usize, usize),
        now: Tick,
    ) -> Option<Ask> {
        self.walks.retain(|walk| now.since(walk.seen) < IDLE);
        if self.is_idle(dir) {
            self.begin(dir, window.0.min(window.1), now);
        }
        let begins = self.run_min(dir);
        let walk = self.walk(dir)?;
        walk.seen = now;
        // The kernel asks for some things twice.
        if cookie == walk.last {
            return None;
        }
        walk.total.missed += 1;
        if cookie < walk.last {
            let unused = walk.turn(cookie);
            self.note(unused);
            return None;
        }
        walk.run += 1;
        walk.pass(cookie);
        if walk.asked_to < cookie {
            walk.asked_to = cookie;
        }
        match walk.run >= begins {
            true => walk.more(window.1),
            false => None,
        }
    }

    /// The size of the file of `dir` at `cookie`, which was asked for ahead, is wanted. What to ask
    /// for meanwhile.
    pub fn hit(&mut self, (dir, cookie): (Fid, u64), window_max: usize, now: Tick) -> Option<Ask> {
        let walk = self.walk(dir)?;
        walk.seen = now;
        walk.used += 1;
        walk.total.used += 1;
        walk.ahead.remove(&cookie);
        if cookie > walk.last {
            walk.pass(cookie);
        }
        walk.more(window_max)
    }

    /// How many files of this OST may be asked for at this moment.
    pub fn room(&self, target: TargetIndex) -> usize {
        let here = self.under_way.iter().find(|(other, _)| *other == target);
        let batches = here.map_or(0, |(_, count)| *count);
        BATCHES_UNDER_WAY_MAX.saturating_sub(batches) * BATCH_FILES_MAX
    }

    /// Files of `dir` at these cookies are asked for, in one request to each of `targets` each;
    /// those up to `to` were looked at.
    pub fn asked(&mut self, dir: Fid, cookies: &[u64], to: u64, targets: &[TargetIndex]) {
        for target in targets {
            match self.under_way.iter_mut().find(|(other, _)| other == target) {
                Some((_, count)) => *count += 1,
                None => self.under_way.push((*target, 1)),
            }
        }
        let Some(walk) = self.walk(dir) else {
            return;
        };
        walk.asked_to = walk.asked_to.max(to);
        if cookies.is_empty() {
            return;
        }
        walk.used = 0;
        walk.ahead.extend(cookies);
        walk.total.requests += targets.len() as u64;
        walk.total.files += cookies.len() as u64;
    }

    /// A request is answered: of `count` files those at `refused` did not come. What to ask for.
    pub fn came(
        &mut self,
        (dir, target): (Fid, TargetIndex),
        count: usize,
        refused: &[u64],
        window_max: usize,
    ) -> Option<Ask> {
        for (_, count) in self.under_way.iter_mut().filter(|(t, _)| *t == target) {
            *count -= 1;
        }
        self.under_way.retain(|(_, count)| *count > 0);
        let walk = self.walk(dir)?;
        walk.total.files = walk.total.files.saturating_sub(refused.len() as u64);
        for cookie in refused {
            walk.ahead.remove(cookie);
        }
        let mostly = 2 * refused.len() > count;
        if mostly {
            walk.window = (walk.window / 2).max(RUN_MIN as usize);
            walk.refused += 1;
        } else {
            walk.refused = 0;
        }
        let ask = walk.more(window_max);
        if mostly {
            self.note(Some(true));
        }
        // A refused batch is followed by the next one when the reader is there.
        ask.filter(|_| !mostly)
    }

    pub fn reports(&self) -> impl Iterator<Item = WalkReport> {
        self.walks.iter().map(Walk::report)
    }

    fn begin(&mut self, dir: Fid, window: usize, now: Tick) {
        let unused = self.walks.back_mut().and_then(Walk::judge);
        self.note(unused);
        if self.walks.len() >= WALKS_MAX {
            self.walks.pop_front();
        }
        self.walks.push_back(Walk {
            dir,
            last: 0,
            run: 0,
            window,
            ahead: BTreeSet::new(),
            asked_to: 0,
            used: 0,
            refused: 0,
            seen: now,
            total: Total::default(),
            judged: Total::default(),
        });
    }

    /// What came was not used, or was; `None`: nothing came.
    fn note(&mut self, unused: Option<bool>) {
        self.unused = match unused {
            Some(true) => (self.unused + 1).min(DOUBLINGS_MAX),
            Some(false) => 0,
            None => self.unused,
        };
    }

    /// Stats in order that begin the walk of `dir`: one where the walk before it was followed.
    fn run_min(&self, dir: Fid) -> u32 {
        let mut others = self.walks.iter().rev().filter(|walk| walk.dir != dir);
        let followed = others.next().is_some_and(|walk| walk.total.used > 0);
        match self.unused {
            0 if followed => 1,
            unused => RUN_MIN << unused,
        }
    }

    fn walk(&mut self, dir: Fid) -> Option<&mut Walk> {
        self.walks.iter_mut().find(|walk| walk.dir == dir)
    }
}

impl Walk {
    /// The reader is at `cookie`: what it passed by it will hardly want.
    fn pass(&mut self, cookie: u64) {
        self.last = cookie;
        if self.ahead.first().is_some_and(|first| *first <= cookie) {
            self.ahead = self.ahead.split_off(&cookie.saturating_add(1));
        }
    }

    /// The reader has turned back. As [`Walk::judge`].
    fn turn(&mut self, cookie: u64) -> Option<bool> {
        (self.last, self.asked_to, self.run) = (cookie, cookie, 1);
        self.ahead.clear();
        self.judge()
    }

    /// Whether most of what came since this was asked last was not used; `None` if nothing came.
    fn judge(&mut self) -> Option<bool> {
        let files = self.total.files.saturating_sub(self.judged.files);
        let used = self.total.used - self.judged.used;
        self.judged = self.total;
        (files > 0).then_some(2 * used < files)
    }

    /// What to ask for, where less than half of what may be is ahead.
    fn more(&mut self, window_max: usize) -> Option<Ask> {
        let window = self.window.min(window_max);
        if self.refused >= REFUSED_MAX || 2 * self.ahead.len() > window || window_max == 0 {
            return None;
        }
        self.window = match self.used > 0 && self.refused == 0 {
            true => (2 * window).min(window_max),
            false => window,
        };
        Some(Ask {
            dir: self.dir,
            after: self.asked_to,
            count: self.window - self.ahead.len(),
        })
    }

    fn report(&self) -> WalkReport {
        let total = &self.total;
        WalkReport {
            pattern: Pattern::Sizes,
            dir: self.dir,
            requests: total.requests,
            fetched: total.files,
            used: total.used,
            missed: total.missed,
            window: self.window as u64,
            bytes: total.files * SIZE_BYTES,
            bytes_unused: total.files.saturating_sub(total.used) * SIZE_BYTES,
            ended: self.refused >= REFUSED_MAX,
        }
    }
}

#[cfg(test)]
#[path = "sizes_tests.rs"]
mod tests;
