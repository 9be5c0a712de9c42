//! Checks a listing beside changes: could a file system have given it that fetches nothing ahead and caches
//! nothing? Calls take effect at an unknown moment between begin and end, so a name or attribute has a set of
//! possible values at each moment. Directories are known by inode number, which is never reused.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// From the begin of a call to its end, in ticks of a counter that only grows. Before the first call
/// it is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Taken before the call.
    pub begin: u64,
    /// Taken after it returned.
    pub end: u64,
}

impl Span {
    /// Before everything else.
    pub const START: Span = Span { begin: 0, end: 0 };
}

/// What was done to a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The name led to the file from then on, or to nothing.
    Name {
        /// Inode number of the directory.
        dir: u64,
        /// The name.
        name: String,
        /// Inode number of what it leads to.
        leads_to: Option<u64>,
    },
    /// The file's kind and permissions, as `st_mode`.
    Mode(u64, u32),
    /// The file's size.
    Size(u64, u64),
}

/// A name as a listing gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// `d_ino`.
    pub ino: u64,
    /// When it had been read.
    pub read_by: u64,
}

/// A whole directory, read once from its start to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Inode number of the directory.
    pub dir: u64,
    /// From the begin of its opening to the end of the read that told its end.
    pub span: Span,
    /// In the order they came, without `.` and `..`.
    pub entries: Vec<Entry>,
}

/// One `stat` of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Inode number of the directory.
    pub dir: u64,
    /// The name.
    pub name: String,
    /// From its begin to its end.
    pub span: Span,
    /// None: no such file or directory.
    pub found: Option<Found>,
}

/// What a `stat` told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// `st_ino`.
    pub ino: u64,
    /// `st_mode`.
    pub mode: u32,
    /// `st_size`; None where it means nothing.
    pub size: Option<u64>,
}

/// Why something cannot have been seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Impossible {
    /// It was there all the time and is not listed.
    Missing(String),
    /// It is listed twice and was there all the time.
    Twice(String),
    /// It led there at no moment of the listing.
    NeverThere(Entry),
    /// It did not lead there, or to nothing, at any moment of the look.
    Leads(Look),
    /// The file did not have that mode at any moment of the look.
    Mode(Look),
    /// The file did not have that size at any moment of the look.
    Size(Look),
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Impossible::Missing(name) => write!(f, "{name} was there all the time, but not listed"),
            Impossible::Twice(name) => write!(f, "{name} is listed twice"),
            Impossible::NeverThere(entry) => write!(f, "listed, but never there: {entry:?}"),
            Impossible::Leads(look) => write!(f, "the name never led there: {look:?}"),
            Impossible::Mode(look) => write!(f, "the file never had that mode: {look:?}"),
            Impossible::Size(look) => write!(f, "the file never had that size: {look:?}"),
        }
    }
}

impl std::error::Error for Impossible {}

/// The values of one thing, by the changes that gave them. Changes that overlap may have been made
/// in either order.
#[derive(Debug, Clone)]
struct Timeline<T>(Vec<(Span, T)>);

impl<T: PartialEq> Timeline<T> {
    /// The value may have been there at some moment of `during`.
    fn could_be(&self, value: &T, during: Span) -> bool {
        let given = self.0.iter().filter(|(_, given)| given == value);
        given.into_iter().any(|(by, _)| {
            let over = self.over(*by);
            by.begin <= during.end && over.is_none_or(|over| over >= during.begin)
        })
    }

    /// From when on the value that the change `by` gave is gone for certain.
    fn over(&self, by: Span) -> Option<u64> {
        let later = self.0.iter().filter(|(other, _)| other.begin > by.end);
        later.map(|(other, _)| other.end).min()
    }
}

impl<T> Default for Timeline<T> {
    fn default() -> Timeline<T> {
        Timeline(Vec::new())
    }
}

/// All that was done to a tree.
#[derive(Debug, Clone, Default)]
pub struct History {
    names: BTreeMap<u64, BTreeMap<String, Timeline<Option<u64>>>>,
    modes: BTreeMap<u64, Timeline<u32>>,
    sizes: BTreeMap<u64, Timeline<u64>>,
}

impl History {
    /// Nothing was done yet: there is nothing.
    pub fn new() -> History {
        History::default()
    }

    /// A call that took `span` made `change`. A call that may have failed, or that a crash may have
    /// undone, is recorded as two: there and back in the same span.
    pub fn record(&mut self, span: Span, change: Change) {
        match change {
            Change::Name {
                dir,
                name,
                leads_to,
            } => {
                let names = self.names.entry(dir).or_default();
                let absent = || Timeline(vec![(Span::START, None)]);
                let timeline = names.entry(name).or_insert_with(absent);
                if span == Span::START {
                    timeline.0.clear();
                }
                timeline.0.push((span, leads_to));
            }
            Change::Mode(ino, mode) => self.modes.entry(ino).or_default().0.push((span, mode)),
            Change::Size(ino, size) => self.sizes.entry(ino).or_default().0.push((span, size)),
        }
    }

    /// Names are complete, and none is too many.
    pub fn check_listing(&self, listing: &Listing) -> Result<(), Impossible> {
        let mut listed = BTreeSet::new();
        for entry in &listing.entries {
            let until = listing.span.end.min(entry.read_by);
            let during = Span {
                end: until,
                ..listing.span
            };
            if !self.could_lead(listing.dir, &entry.name, Some(entry.ino), during) {
                return Err(Impossible::NeverThere(entry.clone()));
            }
            let again = !listed.insert(entry.name.as_str());
            if again && !self.could_lead(listing.dir, &entry.name, None, listing.span) {
                return Err(Impossible::Twice(entry.name.clone()));
            }
        }
        let stayed = self.names.get(&listing.dir).into_iter().flatten();
        let mut stayed = stayed.filter(|(_, leads)| !leads.could_be(&None, listing.span));
        match stayed.find(|(name, _)| !listed.contains(name.as_str())) {
            Some((name, _)) => Err(Impossible::Missing(name.clone())),
            None => Ok(()),
        }
    }

    /// What was seen of one name was so at some moment of the look.
    pub fn check_look(&self, look: &Look) -> Result<(), Impossible> {
        let leads_to = look.found.map(|found| found.ino);
        if !self.could_lead(look.dir, &look.name, leads_to, look.span) {
            return Err(Impossible::Leads(look.clone()));
        }
        let Some(found) = look.found else {
            return Ok(());
        };
        let mode = self.modes.get(&found.ino);
        if !mode.is_some_and(|mode| mode.could_be(&found.mode, look.span)) {
            return Err(Impossible::Mode(look.clone()));
        }
        let size = self.sizes.get(&found.ino);
        let is_right = |told| size.is_some_and(|size| size.could_be(&told, look.span));
        match found.size.is_none_or(is_right) {
            true => Ok(()),
            false => Err(Impossible::Size(look.clone())),
        }
    }

    fn could_lead(&self, dir: u64, name: &str, to: Option<u64>, during: Span) -> bool {
        match self.names.get(&dir).and_then(|names| names.get(name)) {
            Some(leads) => leads.could_be(&to, during),
            None => to.is_none(),
        }
    }
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
