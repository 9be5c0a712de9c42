//! What is known of one directory under its lease.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::{Bound, RangeInclusive};

use base::{Fid, Name};
use hashbrown::HashTable;

use wire::mdt::{DirEntry, WalkOrder};
use wire::{Attr, FileKind, SizeState};

use crate::cache::kernel_list::KernelList;
use crate::cache::known::{END, Known};
use crate::cache::list_prefetch::ListPrefetch;
use crate::cache::listed::Listed;
use crate::cache::local_changes::{LocalChange, NameChange};
use crate::cache::withdrawn::Entries;

/// Absent names remembered per directory; beyond, all are forgotten.
const ABSENT_MAX: usize = 1024;

/// A name and what it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Named {
    pub fid: Fid,
    /// Its place in the listing; zero where only a lookup has told of it.
    pub cookie: u64,
}

/// Names (valid under NAMES) and their list (valid under LIST).
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// Names whose place is known, by cookie.
    entries: BTreeMap<u64, Listed>,
    /// Their cookies, by name. A table of names would take four times the memory.
    by_name: HashTable<u64>,
    hasher: RandomState,
    /// Names that only lookups have told of.
    placeless: HashMap<Name, Fid>,
    absent: HashSet<Name>,
    /// Between which cookies no entry is missing from `entries`.
    known: Known,
    /// How far a sweep for what readers have passed has come, where it was not done.
    swept: u64,
    /// What was withdrawn lately, by the state's stamps. A reply asked for before may be older than a
    /// withdrawal, and teaches nothing of that entry.
    pub withdrawn: Entries,
    /// Counts losses of the CHILD bit: children covered under an earlier count are not covered.
    child_epoch: u64,
    /// Children that other clients used when this mount got the write lease, which does not cover them.
    pub outside: HashSet<Fid>,
    /// Files whose size the MDT did not know when it listed them, though nobody had them to itself:
    /// their OSTs know it. By cookie.
    sizeless: BTreeMap<u64, Fid>,
    /// Whether the list was fetched ahead.
    pub prefetch: ListPrefetch,
    /// Which list the kernel shows.
    pub in_kernel: KernelList,
}

impl Directory {
    /// What `name` leads to, if known.
    pub fn get(&self, name: &Name) -> Option<Named> {
        let listed = self.find(self.hasher.hash_one(name), name);
        let named = |cookie| {
            let fid = self.entries.get(&cookie)?.fid;
            Some(Named { fid, cookie })
        };
        let placeless = || {
            let fid = *self.placeless.get(name)?;
            Some(Named { fid, cookie: 0 })
        };
        listed.and_then(named).or_else(placeless)
    }

    /// The place of a name that hashes to `hash`.
    fn find(&self, hash: u64, name: &Name) -> Option<u64> {
        let is_it = |cookie: &u64| self.has_at(*cookie, name);
        self.by_name.find(hash, is_it).copied()
    }

    fn has_at(&self, cookie: u64, name: &Name) -> bool {
        let entry = self.entries.get(&cookie);
        entry.is_some_and(|entry| entry.name == *name)
    }

    /// `name` is known not to exist: told so, or missing from a complete list.
    pub fn is_absent(&self, name: &Name) -> bool {
        self.absent.contains(name) || (self.is_complete() && self.get(name).is_none())
    }

    /// A reply said in so many words that there is no such name.
    pub fn was_told_absent(&self, name: &Name) -> bool {
        self.absent.contains(name)
    }

    /// The entry at that place, if known.
    pub fn at(&self, cookie: u64) -> Option<&Listed> {
        self.entries.get(&cookie)
    }

    /// Entries whose place is known.
    pub fn listed(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Where the list has the subdirectory `fid`, and in which order it is the first.
    pub fn find_subdirectory(&self, fid: Fid) -> Option<(u64, Option<WalkOrder>)> {
        let list = || self.after(0).0;
        let directories = || list().filter(|(_, entry)| entry.kind == FileKind::Directory);
        let (first, _) = directories().next()?;
        let by_name = directories().map(|(_, entry)| &entry.name).min()?;
        let (cookie, entry) = directories().find(|(_, entry)| entry.fid == fid)?;
        let order = match cookie == first {
            true => Some(WalkOrder::Cookie),
            false => (entry.name == *by_name).then_some(WalkOrder::Name),
        };
        Some((cookie, order))
    }

    /// The whole list is known.
    pub fn is_complete(&self) -> bool {
        self.known.is_complete()
    }

    /// A reply told of a name without its place.
    pub fn learn(&mut self, name: &Name, fid: Fid) {
        self.absent.remove(name);
        let known = self.get(name);
        if known.is_some_and(|named| named.fid == fid) {
            return;
        }
        // A list that does not have it so is not the truth: it must be read again.
        if known.is_some() || self.is_complete() {
            self.forget_list();
        }
        self.remove(name);
        self.placeless.insert(name.clone(), fid);
    }

    /// An operation of this client removed the name.
    pub fn mark_absent(&mut self, name: Name) {
        if !self.is_complete() {
            self.learn_absent(name);
        }
    }

    /// A reply told that there is no such name.
    pub fn learn_absent(&mut self, name: Name) {
        self.remove(&name);
        if self.absent.len() >= ABSENT_MAX {
            self.absent.clear();
        }
        self.absent.insert(name);
    }

    /// An operation of this client made a name, or the list has told of it.
    pub fn insert(&mut self, cookie: u64, entry: Listed) {
        if !self.absent.is_empty() {
            self.absent.remove(&entry.name);
        }
        if !self.placeless.is_empty() {
            self.placeless.remove(&entry.name);
        }
        let hash = self.hasher.hash_one(&entry.name);
        match self.find(hash, &entry.name) {
            Some(place) if place == cookie => {
                self.entries.insert(cookie, entry);
                return;
            }
            Some(place) => drop(self.remove_at(hash, place)),
            None => {}
        }
        if self.by_name.len() == self.by_name.capacity() {
            self.grow();
        }
        if let Some(other) = self.entries.insert(cookie, entry) {
            let hash = self.hasher.hash_one(&other.name);
            self.forget_place(hash, cookie);
        }
        let (entries, hasher) = (&self.entries, &self.hasher);
        let rehash = |cookie: &u64| hasher.hash_one(&entries[cookie].name);
        self.by_name.insert_unique(hash, cookie, rehash);
    }

    /// Takes away the entry at `cookie`, whose name hashes to `hash`.
    fn remove_at(&mut self, hash: u64, cookie: u64) -> Option<Listed> {
        self.forget_place(hash, cookie);
        self.entries.remove(&cookie)
    }

    fn forget_place(&mut self, hash: u64, cookie: u64) {
        if let Ok(place) = self.by_name.find_entry(hash, |place| *place == cookie) {
            place.remove();
        }
    }

    /// Makes room for as many names again. In the order of the list: in that of the table finding
    /// each name would take ten times as long.
    fn grow(&mut self) {
        let mut grown = HashTable::with_capacity(2 * self.entries.len());
        for (cookie, entry) in &self.entries {
            let hash = self.hasher.hash_one(&entry.name);
            grown.insert_unique(hash, *cookie, |cookie| {
                self.hasher.hash_one(&self.entries[cookie].name)
            });
        }
        self.by_name = grown;
    }

    /// A page of the directory in cookie order, read from just after `from`.
    pub fn extend(&mut self, from: u64, page: impl Iterator<Item = (u64, Listed)>, end: bool) {
        let mut last = from;
        for (cookie, entry) in page {
            last = cookie;
            self.insert(cookie, entry);
        }
        self.known.learn(from, if end { END } else { last });
    }

    /// Takes these entries away, which are in the list's order: nothing is known of them any more.
    pub fn forget_entries(&mut self, cookies: &[u64]) {
        let (Some(first), Some(last)) = (cookies.first(), cookies.last()) else {
            return;
        };
        for cookie in cookies {
            self.sizeless.remove(cookie);
            if let Some(entry) = self.entries.get(cookie) {
                let hash = self.hasher.hash_one(&entry.name);
                self.remove_at(hash, *cookie);
            }
        }
        let before = self.entries.range(..first).next_back();
        self.known
            .forget(before.map_or(0, |(cookie, _)| *cookie), *last);
        // Who reads the kernel's pages would ask for each file alone.
        self.in_kernel.spoil();
    }

    /// The cookies `count` entries before and behind `cookie`; those at the ends if there are fewer.
    pub fn around(&self, cookie: u64, count: usize) -> RangeInclusive<u64> {
        let first = self.entries.range(..=cookie).rev().nth(count);
        let last = self.entries.range(cookie..).nth(count);
        first.map_or(0, |(cookie, _)| *cookie)..=last.map_or(END, |(cookie, _)| *cookie)
    }

    /// Entries known after `cookie`, whatever is missing between them.
    pub fn placed_after(&self, cookie: u64) -> impl Iterator<Item = (u64, &Listed)> {
        let range = (Bound::Excluded(cookie), Bound::Unbounded);
        let entries = self.entries.range(range);
        entries.map(|(cookie, entry)| (*cookie, entry))
    }

    /// The name is gone or leads elsewhere.
    pub fn remove(&mut self, name: &Name) -> Option<Named> {
        if let Some(fid) = self.placeless.remove(name) {
            return Some(Named { fid, cookie: 0 });
        }
        let hash = self.hasher.hash_one(name);
        let cookie = self.find(hash, name)?;
        let fid = self.remove_at(hash, cookie)?.fid;
        Some(Named { fid, cookie })
    }

    /// What is known of one name is valid no more, be it that it exists or that it does not.
    pub fn forget_name(&mut self, name: &Name) -> Option<Named> {
        self.absent.remove(name);
        let named = self.remove(name)?;
        if named.cookie != 0 {
            // The list without it would say that there is no such name.
            let before = self.entries.range(..named.cookie).next_back();
            let before = before.map_or(0, |(cookie, _)| *cookie);
            self.known.forget(before, named.cookie);
        }
        Some(named)
    }

    /// Whether there is such a name, and what it leads to, is not known any more.
    pub fn make_unknown(&mut self, name: &Name) {
        // A complete list would still tell.
        let tells = self.is_complete();
        self.forget_name(name);
        if tells {
            self.forget_list();
        }
    }

    /// This client changed a name.
    pub fn changed(&mut self, change: LocalChange) {
        match (change.name_change, change.current) {
            (NameChange::Made { cookie, entry }, true) => self.insert(cookie, entry),
            (NameChange::Removed(name), true) => {
                self.remove(&name);
                self.mark_absent(name);
            }
            (NameChange::Made { entry, .. }, false) => self.make_unknown(&entry.name),
            (NameChange::Removed(name), false) => self.make_unknown(&name),
        }
    }

    /// Notes whose sizes the MDT does not know, of a page that became part of the list.
    pub fn note_sizes(&mut self, page: &[DirEntry]) {
        for entry in page {
            let node = entry.node.as_ref().filter(|node| is_sizeless(&node.attr));
            match node {
                Some(node) => drop(self.sizeless.insert(entry.cookie, node.fid)),
                None if self.sizeless.is_empty() => {}
                None => drop(self.sizeless.remove(&entry.cookie)),
            }
        }
    }

    /// Files listed after `cookie` whose size the MDT did not know then.
    pub fn sizeless_after(&self, cookie: u64) -> impl Iterator<Item = (u64, Fid)> {
        let range = (Bound::Excluded(cookie), Bound::Unbounded);
        let files = self.sizeless.range(range).map(|(at, fid)| (*at, *fid));
        // Another file may have that place by now.
        let is_there = |(at, fid): &(u64, Fid)| self.entries.get(at).is_some_and(|e| e.fid == *fid);
        files.filter(is_there)
    }

    /// The list is valid no more; single names still are.
    pub fn forget_list(&mut self) {
        self.known.forget_all();
        self.sizeless.clear();
        self.in_kernel.list_lost();
    }

    /// CHILD of the lease is gone: no child is covered by it.
    pub fn children_lost(&mut self) {
        self.child_epoch += 1;
    }

    /// How often that was so.
    pub fn child_epoch(&self) -> u64 {
        self.child_epoch
    }

    /// A sweep has come as far as `cookie`; zero: it was done, or starts anew.
    pub fn swept_to(&mut self, cookie: u64) {
        self.swept = cookie;
    }

    /// Where a sweep goes on.
    pub fn swept(&self) -> u64 {
        self.swept
    }

    /// Nothing is valid any more.
    pub fn forget_all(&mut self) {
        self.forget_list();
        self.entries = BTreeMap::new();
        self.by_name = HashTable::new();
        self.placeless = HashMap::new();
        self.absent = HashSet::new();
        self.children_lost();
    }

    /// Every name known, in no order.
    pub fn names(&self) -> impl Iterator<Item = (&Name, Named)> {
        let placed = self.entries.iter().map(|(cookie, entry)| {
            let (fid, cookie) = (entry.fid, *cookie);
            (&entry.name, Named { fid, cookie })
        });
        let named = |(name, fid): (_, &Fid)| {
            let (fid, cookie) = (*fid, 0);
            (name, Named { fid, cookie })
        };
        placed.chain(self.placeless.iter().map(named))
    }

    /// The entries after `cookie` as far as the list is known without a gap, and whether the whole
    /// list is.
    pub fn after(&self, cookie: u64) -> (impl Iterator<Item = (u64, &Listed)>, bool) {
        let last = self.known.until(cookie);
        let range = (Bound::Excluded(cookie), Bound::Included(last));
        (
            self.entries
                .range(range)
                .map(|(cookie, entry)| (*cookie, entry)),
            self.is_complete(),
        )
    }

    /// The entry after `cookie` is known, or it is known that there is none.
    pub fn knows_after(&self, cookie: u64) -> bool {
        self.known.until(cookie) > cookie
    }

    /// What is known after `cookie` ends where a name was withdrawn, or others have not read on yet.
    pub fn is_torn_after(&self, cookie: u64) -> bool {
        self.known.is_torn_after(cookie)
    }

    /// How far the list is known from `cookie` on.
    pub fn known_until(&self, cookie: u64) -> u64 {
        self.known.until(cookie)
    }
}

fn is_sizeless(attr: &Attr) -> bool {
    attr.kind == FileKind::Regular && attr.size_state == SizeState::Ask
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::try_from(text).expect("valid")
    }

    fn listed(text: &str, fid: u64) -> Listed {
        Listed {
            name: name(text),
            fid: Fid(fid),
            kind: FileKind::Regular,
        }
    }

    #[test]
    fn an_entry_takes_little_memory() {
        // Once a file, in a tree of which nearly half is empty.
        assert!(size_of::<(u64, Listed)>() <= 48);
    }

    #[test]
    fn pages_join_into_a_complete_list_that_proves_absence() {
        let mut dir = Directory::default();
        dir.extend(
            0,
            [(10, listed("a", 1)), (20, listed("b", 2))].into_iter(),
            false,
        );
        assert!(!dir.is_absent(&name("c")) && dir.knows_after(10) && !dir.knows_after(20));
        dir.extend(20, [(30, listed("c", 3))].into_iter(), true);
        assert!(dir.is_complete() && dir.is_absent(&name("d")));
        let names: Vec<_> = dir.after(10).0.map(|(_, e)| e.name.clone()).collect();
        assert_eq!(names, [name("b"), name("c")]);
    }

    #[test]
    fn a_list_does_not_tell_of_a_name_that_was_forgotten() {
        let mut dir = Directory::default();
        let entries = [
            (10, listed("a", 1)),
            (20, listed("b", 2)),
            (30, listed("c", 3)),
        ];
        dir.extend(0, entries.into_iter(), true);
        assert_eq!(dir.forget_name(&name("b")).map(|n| n.fid), Some(Fid(2)));
        assert!(!dir.is_complete() && !dir.is_absent(&name("b")));
        assert!(dir.knows_after(0) && !dir.knows_after(10) && dir.knows_after(20));
        assert!(dir.get(&name("a")).is_some() && dir.get(&name("c")).is_some());
    }

    #[test]
    fn a_gap_teaches_names_but_no_list() {
        let mut dir = Directory::default();
        dir.extend(50, [(60, listed("z", 9))].into_iter(), true);
        assert!(!dir.is_complete() && !dir.knows_after(0));
        assert_eq!(dir.get(&name("z")).map(|n| n.fid), Some(Fid(9)));
    }

    #[test]
    fn a_list_that_is_forgotten_keeps_its_names_and_is_read_again() {
        let mut dir = Directory::default();
        dir.extend(
            0,
            [(10, listed("a", 1)), (30, listed("c", 3))].into_iter(),
            true,
        );
        dir.forget_list();
        assert!(!dir.is_absent(&name("b")) && dir.after(0).0.next().is_none());
        assert_eq!(dir.get(&name("c")).map(|n| n.cookie), Some(30));
        dir.extend(
            0,
            [(10, listed("a", 1)), (20, listed("b", 2))].into_iter(),
            false,
        );
        assert_eq!(dir.after(0).0.map(|(c, _)| c).collect::<Vec<_>>(), [10, 20]);
        dir.extend(20, [(30, listed("d", 4))].into_iter(), true);
        assert_eq!(dir.get(&name("c")), None, "its place is another's now");
        assert_eq!(dir.names().count(), 3);
    }

    #[test]
    fn many_names_are_found_whatever_came_and_went() {
        let mut dir = Directory::default();
        for round in 0..3u64 {
            let page = (1..=1000).map(|n| (n * 10 + round, listed(&format!("f{n}"), n)));
            dir.extend(0, page, true);
            (1..=1000).step_by(3).for_each(|n| {
                dir.remove(&name(&format!("f{n}")));
            });
            for n in 1..=1000 {
                let found = dir.get(&name(&format!("f{n}")));
                let there = n % 3 != 1;
                let named = Named {
                    fid: Fid(n),
                    cookie: n * 10 + round,
                };
                assert_eq!(found, there.then_some(named), "f{n} in round {round}");
            }
        }
        assert_eq!(dir.names().count(), 666);
    }

    #[test]
    fn passed_entries_go_and_the_list_goes_on_behind_them() {
        let mut dir = Directory::default();
        let page = (1..=9).map(|n| (n * 10, listed(&format!("f{n}"), n)));
        dir.extend(0, page, true);
        dir.in_kernel.answered(0);
        assert_eq!(dir.around(50, 2), 30..=70);
        assert_eq!(dir.around(20, 7), 0..=90);
        dir.forget_entries(&[10, 20, 40]);
        let after = |dir: &Directory, cookie| dir.after(cookie).0.map(|(c, _)| c).next();
        assert_eq!([0, 10, 30].map(|cookie| after(&dir, cookie)), [None; 3]);
        assert_eq!(after(&dir, 40), Some(50));
        assert!(dir.get(&name("f2")).is_none() && !dir.is_absent(&name("f2")));
        assert!(dir.get(&name("f3")).is_some(), "some need it still");
        assert!(!dir.is_complete() && !dir.in_kernel.opened(true));
        let page = (1..=4).map(|n| (n * 10, listed(&format!("f{n}"), n)));
        dir.extend(0, page, false);
        assert!(dir.is_complete() && dir.names().count() == 9);
    }

    #[test]
    fn own_changes_keep_a_complete_list_complete() {
        let mut dir = Directory::default();
        dir.extend(0, [(10, listed("a", 1))].into_iter(), true);
        dir.insert(5, listed("n", 7));
        dir.remove(&name("a"));
        let names: Vec<_> = dir.after(0).0.map(|(c, e)| (c, e.fid)).collect();
        assert_eq!(names, [(5, Fid(7))]);
        assert!(dir.is_absent(&name("a")));
    }

    #[test]
    fn a_name_that_leads_elsewhere_ends_the_list() {
        let mut dir = Directory::default();
        dir.extend(0, [(10, listed("a", 1))].into_iter(), true);
        dir.learn(&name("a"), Fid(2));
        assert!(!dir.is_complete() && !dir.knows_after(0));
        assert_eq!(
            dir.get(&name("a")),
            Some(Named {
                fid: Fid(2),
                cookie: 0
            })
        );
    }
}
