//! Names: is there an order of all calls, each at a moment between its start and its end, in which
//! a plain map of names gives every answer that was given? The search goes depth first through
//! "how far each caller has come, and the map then", and enters no such place twice.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::time::Duration;

use base::{Fid, FsError};

use crate::history::{Call, Entry, Seen, Slot};

/// Places looked at. Beyond: the search gives up.
const PLACES_MAX: usize = 1_000_000;

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Node {
    File(Known),
    Directory(Known),
}

/// Which file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Known {
    As(Fid),
    /// Made by that call, which did not learn its id.
    By(usize),
}

impl Node {
    fn known(self) -> Known {
        match self {
            Node::File(known) | Node::Directory(known) => known,
        }
    }

    fn with(self, known: Known) -> Node {
        match self {
            Node::File(_) => Node::File(known),
            Node::Directory(_) => Node::Directory(known),
        }
    }

    fn is_directory(self) -> bool {
        matches!(self, Node::Directory(_))
    }
}

type Map = BTreeMap<Slot, Node>;

/// What came of the search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// There is such an order.
    Possible,
    /// There is none; where the longest attempt ended.
    Impossible(String),
    /// There are too many places to look at.
    TooMany,
}

/// Looks for an order. At the start all names are free.
pub fn check(history: &[Entry]) -> Verdict {
    Search::new(history).run()
}

/// A place of the search.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Place {
    /// How many calls of each caller are done.
    done: Vec<u32>,
    map: Map,
}

struct Search<'a> {
    /// The calls of each caller in their order; one whose end nobody knows is a caller of its own.
    callers: Vec<Vec<&'a Entry>>,
    seen: HashSet<Place>,
    furthest: (u32, Option<Place>),
}

impl<'a> Search<'a> {
    fn new(history: &'a [Entry]) -> Search<'a> {
        let mut callers: BTreeMap<u32, Vec<&Entry>> = BTreeMap::new();
        let mut alone = Vec::new();
        for entry in history {
            match entry.seen {
                Seen::Unknown => alone.push(vec![entry]),
                _ => callers.entry(entry.caller).or_default().push(entry),
            }
        }
        let mut callers: Vec<_> = callers.into_values().collect();
        for calls in &mut callers {
            calls.sort_by_key(|entry| entry.start);
        }
        callers.extend(alone);
        Search {
            callers,
            seen: HashSet::new(),
            furthest: (0, None),
        }
    }

    fn run(mut self) -> Verdict {
        let first = Place {
            done: vec![0; self.callers.len()],
            map: Map::new(),
        };
        let mut stack = vec![first];
        while let Some(place) = stack.pop() {
            if self.is_over(&place) {
                return Verdict::Possible;
            }
            if self.seen.len() >= PLACES_MAX {
                return Verdict::TooMany;
            }
            let count = place.done.iter().sum();
            if count >= self.furthest.0 {
                self.furthest = (count, Some(place.clone()));
            }
            for next in self.next(&place) {
                if self.seen.insert(next.clone()) {
                    stack.push(next);
                }
            }
        }
        Verdict::Impossible(self.explain())
    }

    fn pending(&self, place: &Place) -> impl Iterator<Item = (usize, &'a Entry)> {
        let next = |(caller, calls): (usize, &Vec<&'a Entry>)| {
            Some((caller, *calls.get(place.done[caller] as usize)?))
        };
        self.callers
            .iter()
            .enumerate()
            .filter_map(next)
            .collect::<Vec<_>>()
            .into_iter()
    }

    fn is_over(&self, place: &Place) -> bool {
        let mut pending = self.pending(place);
        pending.all(|(_, entry)| entry.seen == Seen::Unknown)
    }

    /// The latest moment at which the next call can have been done.
    fn horizon(&self, place: &Place) -> Duration {
        let known = self.pending(place);
        let ends = known.filter(|(_, entry)| entry.seen != Seen::Unknown);
        ends.map(|(_, entry)| entry.end)
            .min()
            .unwrap_or(Duration::MAX)
    }

    fn next(&self, place: &Place) -> Vec<Place> {
        let horizon = self.horizon(place);
        let mut found = Vec::new();
        let mut pending: Vec<_> = self.pending(place).collect();
        // The one that ended first is tried first: it goes on the stack last.
        pending
            .sort_by_key(|(_, entry)| std::cmp::Reverse((entry.seen == Seen::Unknown, entry.end)));
        for (caller, entry) in pending {
            if entry.start > horizon {
                continue;
            }
            if let Some(map) = apply(&place.map, entry, caller) {
                let mut done = place.done.clone();
                done[caller] += 1;
                found.push(Place { done, map });
            }
        }
        found
    }

    fn explain(&self) -> String {
        let Some(place) = &self.furthest.1 else {
            return "no call could be the first".to_owned();
        };
        let mut text = format!("after {} calls the names are\n", self.furthest.0);
        for (slot, node) in &place.map {
            // A string takes whatever is written to it.
            let _ = writeln!(text, "  {slot} = {node:?}");
        }
        text.push_str("and none of these can be next:\n");
        let horizon = self.horizon(place);
        for (caller, entry) in self.pending(place) {
            let before = (place.done[caller] as usize).checked_sub(1);
            if let Some(before) = before.and_then(|at| self.callers[caller].get(at)) {
                let _ = writeln!(text, "         ({before})");
            }
            let late = if entry.start > horizon {
                " (not yet begun)"
            } else {
                ""
            };
            let _ = writeln!(text, "  {entry}{late}");
        }
        text
    }
}

/// The map after `entry`, if it can have been done on `map` with what it saw.
fn apply(map: &Map, entry: &Entry, caller: usize) -> Option<Map> {
    let found = |map: &Map, slot: &Slot| map.get(slot).copied();
    match (&entry.call, &entry.seen) {
        (Call::Lookup(slot), Seen::File(fid)) => bound(map, found(map, slot)?, *fid),
        (Call::Lookup(slot), Seen::Failed(FsError::NotFound)) => {
            same(map, found(map, slot).is_none())
        }
        (Call::List(dir), Seen::Names(names)) => listed(map, *dir, names),
        (Call::List(_), Seen::Parts) => Some(map.clone()),
        (Call::Lookup(_) | Call::List(_), Seen::Unknown) => None,
        (_, Seen::Failed(error)) => match effect(map, &entry.call, Known::By(caller)) {
            Err(errors) => same(map, errors.contains(error)),
            Ok(_) => None,
        },
        (Call::Create(_) | Call::Mkdir(_), Seen::File(fid)) => {
            let is_new = !map.values().any(|node| node.known() == Known::As(*fid));
            let made = effect(map, &entry.call, Known::As(*fid)).ok()?;
            is_new.then_some(made)
        }
        (_, Seen::Done | Seen::Unknown) => effect(map, &entry.call, Known::By(caller)).ok(),
        _ => None,
    }
}

fn same(map: &Map, possible: bool) -> Option<Map> {
    possible.then(|| map.clone())
}

/// The map in which `node` is `fid`, which is its only chance to be.
fn bound(map: &Map, node: Node, fid: Fid) -> Option<Map> {
    match node.known() {
        Known::As(known) => same(map, known == fid),
        Known::By(_) if map.values().any(|other| other.known() == Known::As(fid)) => None,
        Known::By(_) => {
            let mut map = map.clone();
            for other in map.values_mut().filter(|other| **other == node) {
                *other = other.with(Known::As(fid));
            }
            Some(map)
        }
    }
}

fn listed(map: &Map, dir: u8, names: &[(u8, Fid)]) -> Option<Map> {
    let count = map.keys().filter(|slot| slot.dir == dir).count();
    if count != names.len() {
        return None;
    }
    let mut map = map.clone();
    for (name, fid) in names {
        let node = *map.get(&Slot { dir, name: *name })?;
        map = bound(&map, node, *fid)?;
    }
    Some(map)
}

/// What `call` makes of `map`; or with which errors it may be refused.
fn effect(map: &Map, call: &Call, made: Known) -> Result<Map, Vec<FsError>> {
    let mut after = map.clone();
    match call {
        Call::Create(slot) | Call::Mkdir(slot) if map.contains_key(slot) => {
            return Err(vec![FsError::Exists]);
        }
        Call::Create(slot) => drop(after.insert(*slot, Node::File(made))),
        Call::Mkdir(slot) => drop(after.insert(*slot, Node::Directory(made))),
        Call::Unlink(slot) => match map.get(slot) {
            None => return Err(vec![FsError::NotFound]),
            Some(Node::Directory(_)) => return Err(vec![FsError::IsDirectory]),
            Some(Node::File(_)) => drop(after.remove(slot)),
        },
        Call::Rmdir(slot) => match map.get(slot) {
            None => return Err(vec![FsError::NotFound]),
            Some(Node::File(_)) => return Err(vec![FsError::NotDirectory]),
            Some(Node::Directory(_)) => drop(after.remove(slot)),
        },
        Call::Rename(from, to) => return renamed(after, from, to),
        Call::Link(fid, slot) => {
            let file = Node::File(Known::As(*fid));
            let mut errors = Vec::new();
            let directory = Node::Directory(Known::As(*fid));
            if map.values().any(|node| *node == directory) {
                errors.push(FsError::NotPermitted);
            } else if !map.values().any(|node| *node == file) {
                errors.extend([FsError::NotFound, FsError::Stale, FsError::NotPermitted]);
            }
            if map.contains_key(slot) {
                errors.push(FsError::Exists);
            }
            if !errors.is_empty() {
                return Err(errors);
            }
            after.insert(*slot, file);
        }
        Call::Lookup(_) | Call::List(_) => return Err(Vec::new()),
    }
    Ok(after)
}

fn renamed(mut map: Map, from: &Slot, to: &Slot) -> Result<Map, Vec<FsError>> {
    let Some(moved) = map.get(from).copied() else {
        return Err(vec![FsError::NotFound]);
    };
    match map.get(to).copied() {
        // Two names of one file, or one name: nothing happens.
        Some(there) if there == moved => return Ok(map),
        Some(there) if moved.is_directory() && !there.is_directory() => {
            return Err(vec![FsError::NotDirectory]);
        }
        Some(there) if !moved.is_directory() && there.is_directory() => {
            return Err(vec![FsError::IsDirectory]);
        }
        _ => {}
    }
    map.remove(from);
    map.insert(*to, moved);
    Ok(map)
}
