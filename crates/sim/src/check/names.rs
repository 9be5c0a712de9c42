//! Names: a plain map of them gives every answer that was given.

use std::collections::BTreeMap;
use std::time::Duration;

use base::{Fid, FsError};

use crate::check::order::{self, Verdict};

use crate::excuses::Excuse;
use crate::history::{Call, Entry, Seen, Slot};

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

/// Looks for an order. At the start all names are free.
pub fn check(history: &[Entry]) -> Verdict {
    let names: Vec<&Entry> = history
        .iter()
        .filter(|entry| entry.call.subject().is_none() && !entry.call.shows_nothing())
        .collect();
    order::check(&names, Map::new(), apply)
}

/// What is left to check where changes of a client may have been undone. Such a change counts as
/// done or not, but as done before it returned; what its own programs saw meanwhile does not count. One
/// that the client made durable by a sync of its directories is there.
pub fn without_undone(history: &[Entry], programs: u32, undone: &[Excuse]) -> Vec<Entry> {
    let loss_of = |entry: &Entry| {
        let client = entry.caller / programs;
        let mut losses = undone.iter();
        let loss = losses.position(|excuse| excuse.covers(client, entry.start, entry.end))?;
        let is_safe = || is_synced(history, programs, entry, undone[loss].until);
        (entry.call.subject().is_none() && !is_safe()).then_some(loss)
    };
    let kept = |entry: &Entry| match (loss_of(entry), &entry.seen) {
        (None, seen) => Some(seen.clone()),
        (_, Seen::Unknown) => Some(Seen::Unknown),
        (_, Seen::Failed(_)) => None,
        _ if entry.call.is_read() => None,
        (Some(loss), seen) => Some(Seen::Fleeting(Box::new(seen.clone()), loss)),
    };
    let entries = history.iter();
    let entries = entries.filter_map(|entry| {
        let seen = kept(entry)?;
        Some(Entry {
            seen,
            ..entry.clone()
        })
    });
    entries.collect()
}

/// Its client changed names, and synced each of their directories after that and before `loss`.
fn is_synced(history: &[Entry], programs: u32, entry: &Entry, loss: Duration) -> bool {
    let syncs = |other: &Entry, dir: u8| {
        let is_own = other.caller / programs == entry.caller / programs;
        let in_time = other.start >= entry.end && other.end <= loss;
        is_own && in_time && other.seen == Seen::Done && other.call == Call::SyncDir(dir)
    };
    let dirs = entry.call.dirs();
    let is_change = !dirs.is_empty() && !entry.seen.is_unknown();
    is_change
        && dirs
            .into_iter()
            .all(|dir| history.iter().any(|other| syncs(other, dir)))
}

/// The map after `entry`, if it can have been done on `map` with what it saw.
fn apply(map: &Map, entry: &Entry, caller: usize) -> Option<Map> {
    let found = |map: &Map, slot: &Slot| map.get(slot).copied();
    let seen = match &entry.seen {
        Seen::Fleeting(seen, _) => seen,
        seen => seen,
    };
    match (&entry.call, seen) {
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
        // Nothing of names is changed.
        _ => return Err(Vec::new()),
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
