//! What is known of one directory under its lease.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;

use base::{Fid, Name};

use wire::FileKind;
use wire::mdt::WalkOrder;

use crate::statahead::tree::WalkId;

/// Absent names remembered per directory; beyond, all are forgotten.
const ABSENT_MAX: usize = 1024;

/// A name and what it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Named {
    pub fid: Fid,
    /// Its place in the listing; zero where only a lookup has told of it.
    pub cookie: u64,
}

/// An entry of the listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub name: Name,
    pub fid: Fid,
    pub kind: FileKind,
}

/// Names (valid under NAMES) and their list (valid under LIST).
#[derive(Debug, Default)]
pub(crate) struct Directory {
    names: HashMap<Name, Named>,
    absent: HashSet<Name>,
    listing: BTreeMap<u64, Listed>,
    /// The listing holds every entry whose cookie is at most this.
    covered: u64,
    /// The state's stamp when something was withdrawn last: a reply asked for before may be older
    /// than that withdrawal, so it is used once and teaches nothing (hazard 26).
    pub withdrawn: u64,
    /// A walk of a tree brought the list, and nobody has read it yet.
    pub ahead: Option<WalkId>,
    /// Counts losses of the CHILD bit: children covered under an earlier count are not covered.
    pub child_epoch: u64,
    /// Counts losses of the list.
    pub list_epoch: u64,
    /// The list epoch of all pages the kernel may hold; `None` when mixed or none.
    pub kernel_pages: Option<u64>,
}

/// The value of `covered` for a listing that holds all entries.
const COMPLETE: u64 = u64::MAX;

impl Directory {
    /// What `name` leads to, if known.
    pub fn get(&self, name: &Name) -> Option<Named> {
        self.names.get(name).copied()
    }

    /// `name` is known not to exist: told so, or missing from a complete list.
    pub fn is_absent(&self, name: &Name) -> bool {
        self.absent.contains(name) || (self.covered == COMPLETE && !self.names.contains_key(name))
    }

    /// A reply said in so many words that there is no such name.
    pub fn was_told_absent(&self, name: &Name) -> bool {
        self.absent.contains(name)
    }

    /// Entries of the list that are known.
    pub fn listed(&self) -> u64 {
        self.listing.len() as u64
    }

    /// Where the list has the subdirectory `fid`, and in which order it is the first.
    pub fn find_subdirectory(&self, fid: Fid) -> Option<(u64, Option<WalkOrder>)> {
        let is_directory = |(_, entry): &(&u64, &Listed)| entry.kind == FileKind::Directory;
        let mut directories = self.listing.iter().filter(is_directory);
        let (first, _) = directories.clone().next()?;
        let by_name = directories.clone().map(|(_, entry)| &entry.name).min()?;
        let (cookie, entry) = directories.find(|(_, entry)| entry.fid == fid)?;
        let order = match cookie == first {
            true => Some(WalkOrder::Cookie),
            false => (entry.name == *by_name).then_some(WalkOrder::Name),
        };
        Some((*cookie, order))
    }

    /// The whole list is known.
    pub fn is_complete(&self) -> bool {
        self.covered == COMPLETE
    }

    /// A reply told of a name without its place.
    pub fn learn(&mut self, name: &Name, fid: Fid) {
        self.absent.remove(name);
        match self.names.get_mut(name) {
            Some(named) if named.fid == fid => {}
            known => {
                // A list that does not have it so is not the truth: it must be read again.
                if known.is_some() || self.is_complete() {
                    self.forget_list();
                }
                self.names.insert(name.clone(), Named { fid, cookie: 0 });
            }
        }
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

    /// An operation of this client made a name.
    pub fn insert(&mut self, cookie: u64, entry: Listed) {
        self.absent.remove(&entry.name);
        self.remove(&entry.name);
        self.names.insert(
            entry.name.clone(),
            Named {
                fid: entry.fid,
                cookie,
            },
        );
        if cookie <= self.covered {
            self.listing.insert(cookie, entry);
        }
    }

    /// A page of the directory in cookie order, read from just after `from`.
    pub fn extend(&mut self, from: u64, page: impl Iterator<Item = (u64, Listed)>, end: bool) {
        let contiguous = from <= self.covered;
        let mut last = from;
        for (cookie, entry) in page {
            last = cookie;
            self.absent.remove(&entry.name);
            self.names.insert(
                entry.name.clone(),
                Named {
                    fid: entry.fid,
                    cookie,
                },
            );
            if contiguous {
                self.listing.insert(cookie, entry);
            }
        }
        if contiguous {
            self.covered = self.covered.max(if end { COMPLETE } else { last });
        }
    }

    /// The name is gone or leads elsewhere.
    pub fn remove(&mut self, name: &Name) -> Option<Named> {
        let named = self.names.remove(name)?;
        self.listing.remove(&named.cookie);
        Some(named)
    }

    /// What is known of one name is valid no more, be it that it exists or that it does not.
    pub fn forget_name(&mut self, name: &Name) -> Option<Named> {
        self.absent.remove(name);
        self.remove(name)
    }

    /// Whether there is such a name, and what it leads to, is not known any more.
    pub fn make_unknown(&mut self, name: &Name) {
        self.forget_name(name);
        // A complete list would still tell.
        if self.is_complete() {
            self.forget_list();
        }
    }

    /// This client made a name, or moved it here. `current`: a lease covers that.
    pub fn made(&mut self, cookie: u64, entry: Listed, current: bool) {
        match current {
            true => self.insert(cookie, entry),
            false => self.make_unknown(&entry.name),
        }
    }

    /// This client removed a name, or moved it away.
    pub fn removed(&mut self, name: Name, current: bool) {
        if !current {
            return self.make_unknown(&name);
        }
        self.remove(&name);
        self.mark_absent(name);
    }

    /// The list is valid no more; single names still are.
    pub fn forget_list(&mut self) {
        self.listing.clear();
        self.covered = 0;
        self.list_epoch += 1;
    }

    /// Nothing is valid any more.
    pub fn forget_all(&mut self) {
        self.forget_list();
        self.names.clear();
        self.absent.clear();
        self.child_epoch += 1;
    }

    /// Every name known, in no order.
    pub fn names(&self) -> impl Iterator<Item = (&Name, Named)> {
        self.names.iter().map(|(name, named)| (name, *named))
    }

    /// The entries after `cookie` as far as the list is known without a gap, and whether the end
    /// of the directory is among what is known.
    pub fn after(&self, cookie: u64) -> (impl Iterator<Item = (u64, &Listed)>, bool) {
        let range = (Bound::Excluded(cookie), Bound::Unbounded);
        (
            self.listing
                .range(range)
                .map(|(cookie, entry)| (*cookie, entry)),
            self.is_complete(),
        )
    }

    /// The entry after `cookie` is known, or it is known that there is none.
    pub fn knows_after(&self, cookie: u64) -> bool {
        self.covered > cookie
    }

    /// The last cookie up to which the list is known.
    pub fn covered(&self) -> u64 {
        self.covered
    }
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
        // Once each a file, in a table and a tree of which a third and more is empty.
        assert!(size_of::<(Name, Named)>() <= 40);
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
    fn a_gap_teaches_names_but_no_list() {
        let mut dir = Directory::default();
        dir.extend(50, [(60, listed("z", 9))].into_iter(), true);
        assert!(!dir.is_complete() && !dir.knows_after(0));
        assert_eq!(dir.get(&name("z")).map(|n| n.fid), Some(Fid(9)));
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
