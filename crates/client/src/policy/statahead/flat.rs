//! Statahead over one directory (FLAT, Xfast). A reader of the listing gets attributes with the names, in
//! pages that double. A process that stats names in listing order has the next ones fetched in a window that
//! doubles on hits, halves on misses, and stops where guesses stay wrong. Pure.

use base::limits::PAGE_ENTRIES_MAX;
use base::{Fid, Name};

use super::report::{Pattern, WalkReport};
use super::tree::ENTRY_BYTES;
use crate::executor::{Oneshot, WaitList};

/// Entries of the first page.
const PAGE_ENTRIES_FIRST: u32 = 512;
/// Entries of a page where nothing is fetched ahead.
const PAGE_ENTRIES_BARE: u32 = 1024;
/// Stats in listing order before a batch is worth it.
const RUN_MIN: u32 = 2;
/// Misses before the ratio counts (Lustre's figure).
const MISSES_MIN: u64 = 32;

/// A page to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fetch {
    /// Entries after this one.
    pub cookie: u64,
    /// How many.
    pub entries: u32,
    /// Of these with attributes.
    pub attrs: u32,
}

/// Batches in a row of which most could not be kept, before there are no more.
const USELESS_MAX: u8 = 2;

/// One open directory's walk.
#[derive(Default)]
pub(crate) struct Statahead {
    page: u32,
    fetching: Option<u64>,
    waiters: WaitList,
    closed: bool,
    /// The cookie of the last name that was stat'ed in listing order.
    last: u64,
    run: u32,
    window: u32,
    hits: u64,
    misses: u64,
    wrong: bool,
    useless: u8,
    in_flight: Vec<Name>,
    /// In all: pages and batches, and entries in them.
    requests: u64,
    fetched: u64,
}

impl std::fmt::Debug for Statahead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Statahead")
            .field("page", &self.page)
            .field("window", &self.window)
            .field("hits", &self.hits)
            .field("misses", &self.misses)
            .finish_non_exhaustive()
    }
}

impl Statahead {
    pub fn new() -> Statahead {
        Statahead::default()
    }

    /// The directory is closed: nothing is started for it any more.
    pub fn close(&mut self) {
        self.closed = true;
        self.waiters.wake_all();
    }

    /// Something was fetched ahead.
    pub fn has_fetched(&self) -> bool {
        self.fetched > 0
    }

    /// Guesses were wrong too often.
    pub fn is_wrong(&self) -> bool {
        self.wrong
    }

    /// A page is on its way already: wait for it.
    pub fn wait_for_page(&mut self) -> Option<Oneshot<()>> {
        self.fetching.is_some().then(|| self.waiters.wait())
    }

    /// The reader needs the page after `cookie` now. `window`: entries fetched ahead at most, zero
    /// for none.
    pub fn page_wanted(&mut self, cookie: u64, window: u32, buffer: u32) -> Fetch {
        let fetch = self.next_page(cookie, window, buffer);
        self.fetching = Some(cookie);
        self.requests += 1;
        self.fetched += u64::from(fetch.attrs);
        fetch
    }

    /// The reader took entries; `left` known ones follow, the list is known up to `covered`. A
    /// page to fetch meanwhile, if it will soon want one.
    pub fn page_taken(
        &mut self,
        covered: u64,
        complete: bool,
        left: u32,
        window: u32,
    ) -> Option<Fetch> {
        let enough = left > self.page / 2;
        if self.closed || complete || enough || window == 0 || self.fetching.is_some() {
            return None;
        }
        Some(self.page_wanted(covered, window, 0))
    }

    /// A page came, or will not come.
    pub fn page_came(&mut self, fetch: &Fetch) {
        if self.fetching == Some(fetch.cookie) {
            self.fetching = None;
        }
        self.waiters.wake_all();
    }

    /// The page could not be kept. What its reader did not take of it is fetched again, so the next is
    /// as small as the first.
    pub fn page_lost(&mut self) {
        self.page = 0;
    }

    fn next_page(&mut self, cookie: u64, window: u32, buffer: u32) -> Fetch {
        if window == 0 {
            return Fetch {
                cookie,
                entries: PAGE_ENTRIES_BARE.max(buffer),
                attrs: 0,
            };
        }
        let limit = window.min(PAGE_ENTRIES_MAX as u32);
        self.page = match self.page {
            0 => PAGE_ENTRIES_FIRST,
            page => page.saturating_mul(2),
        };
        let entries = self.page.min(limit);
        self.page = entries;
        Fetch {
            cookie,
            entries,
            attrs: entries,
        }
    }

    /// A name at `cookie` was stat'ed and its attributes were at hand.
    pub fn hit(&mut self, cookie: u64, window_max: u32) {
        self.hits += 1;
        self.step_to(cookie);
        self.window = self.window.saturating_mul(2).min(window_max);
    }

    /// A name at `cookie` was stat'ed and its attributes were not at hand. How many entries from
    /// it on to fetch in a batch; zero: just this one.
    pub fn miss(&mut self, cookie: u64, window_min: u32, window_max: u32) -> u32 {
        self.misses += 1;
        let in_order = self.step_to(cookie);
        if !in_order {
            self.window /= 2;
        }
        let mostly_wrong = self.misses > MISSES_MIN && self.hits < 4 * self.misses;
        if mostly_wrong && !in_order {
            self.wrong = true;
        }
        if self.closed || self.wrong || window_max == 0 || self.run < RUN_MIN {
            return 0;
        }
        self.window = self.window.clamp(window_min.min(window_max), window_max);
        self.window
    }

    fn step_to(&mut self, cookie: u64) -> bool {
        let in_order = cookie > self.last;
        self.run = if in_order { self.run + 1 } else { 0 };
        self.last = cookie;
        in_order
    }

    /// What was asked for alone cannot be kept. Those after it are not asked for with it before one
    /// of them was kept: who lists what others write to pays for one question each.
    pub fn refused(&mut self) {
        self.run = 0;
    }

    /// These names are being fetched.
    pub fn started(&mut self, names: &[Name]) {
        self.in_flight.extend_from_slice(names);
        self.requests += 1;
        self.fetched += names.len() as u64;
    }

    pub fn report(&self, dir: Fid) -> WalkReport {
        WalkReport {
            pattern: Pattern::List,
            dir,
            requests: self.requests,
            fetched: self.fetched,
            used: self.hits,
            missed: self.misses,
            window: u64::from(self.page.max(self.window)),
            bytes: self.fetched * ENTRY_BYTES,
            bytes_unused: self.fetched.saturating_sub(self.hits) * ENTRY_BYTES,
            ended: self.wrong,
        }
    }

    /// They came, or will not come; `kept` of them can be used later. What others write to cannot:
    /// it has to be asked for anew each time.
    pub fn ended(&mut self, names: &[Name], kept: usize) {
        self.in_flight.retain(|name| !names.contains(name));
        self.waiters.wake_all();
        if 2 * kept >= names.len() {
            self.useless = 0;
            return;
        }
        self.window /= 2;
        self.useless += 1;
        self.wrong |= self.useless >= USELESS_MAX;
    }

    /// `name` is being fetched: wait for it.
    pub fn wait_for_name(&mut self, name: &Name) -> Option<Oneshot<()>> {
        self.in_flight.contains(name).then(|| self.waiters.wait())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_double_up_to_the_window_and_carry_attributes_throughout() {
        let mut walk = Statahead::new();
        let sizes: Vec<u32> = (0..4)
            .map(|page| {
                let fetch = walk.page_wanted(page, 2000, 100);
                assert_eq!(fetch.attrs, fetch.entries);
                walk.page_came(&fetch);
                fetch.entries
            })
            .collect();
        assert_eq!(sizes, [512, 1024, 2000, 2000]);
        assert_eq!(walk.page_wanted(9, 0, 100).attrs, 0);
        walk.page_lost();
        assert_eq!(walk.page_wanted(9, 2000, 100).entries, 512);
    }

    #[test]
    fn the_next_page_is_fetched_when_half_of_this_one_is_taken_and_only_once() {
        let mut walk = Statahead::new();
        let first = walk.page_wanted(0, 8192, 100);
        walk.page_came(&first);
        assert_eq!(walk.page_taken(99, false, 400, 8192), None);
        let next = walk.page_taken(99, false, 200, 8192).expect("soon wanted");
        assert_eq!((next.cookie, next.entries), (99, 1024));
        assert_eq!(walk.page_taken(99, false, 100, 8192), None);
        assert!(walk.wait_for_page().is_some());
        walk.page_came(&next);
        assert_eq!(walk.page_taken(u64::MAX, true, 0, 8192), None);
    }

    #[test]
    fn stats_in_listing_order_get_batches_that_grow_with_hits() {
        let mut walk = Statahead::new();
        assert_eq!(walk.miss(10, 8, 64), 0);
        assert_eq!(walk.miss(20, 8, 64), 8);
        (3..9).for_each(|n| walk.hit(n * 10, 64));
        assert_eq!(walk.miss(100, 8, 64), 64);
    }

    #[test]
    fn a_window_that_may_not_be_as_large_as_it_begins_is_smaller() {
        let mut walk = Statahead::new();
        walk.miss(10, 8, 4);
        assert_eq!(walk.miss(20, 8, 4), 4);
    }

    #[test]
    fn stats_in_no_order_stop_it_for_good() {
        let mut walk = Statahead::new();
        for n in (1..100).rev() {
            assert_eq!(walk.miss(n, 8, 64), 0);
        }
        assert!(walk.is_wrong());
        assert_eq!(walk.miss(1000, 8, 64), 0);
        assert_eq!(walk.miss(1001, 8, 64), 0);
    }

    #[test]
    fn batches_of_what_others_write_to_end_soon() {
        let name = |n: u64| Name::try_from(&*format!("f{n}")).expect("valid");
        let names: Vec<Name> = (0..8).map(name).collect();
        let mut walk = Statahead::new();
        let mut batches = 0;
        for n in 1..100 {
            if walk.miss(n, 8, 64) > 0 {
                batches += 1;
                walk.started(&names);
                walk.ended(&names, if batches == 1 { 7 } else { 3 });
            }
        }
        assert_eq!((batches, walk.is_wrong()), (3, true));
    }

    #[test]
    fn what_cannot_be_kept_is_asked_for_alone_until_something_can() {
        let mut walk = Statahead::new();
        for n in 1..100 {
            assert_eq!(walk.miss(n, 8, 64), 0);
            walk.refused();
        }
        assert_eq!(walk.miss(100, 8, 64), 0);
        assert!(walk.miss(101, 8, 64) > 0);
    }

    #[test]
    fn a_closed_directory_starts_nothing() {
        let mut walk = Statahead::new();
        let fetch = walk.page_wanted(0, 100, 10);
        walk.close();
        walk.page_came(&fetch);
        assert_eq!(walk.page_taken(5, false, 0, 100), None);
        walk.miss(1, 8, 64);
        walk.miss(2, 8, 64);
        assert_eq!(walk.miss(3, 8, 64), 0);
    }
}
