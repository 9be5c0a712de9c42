//! Names: a plain map of them gives every answer that was given.

use std::collections::BTreeMap;
use std::time::Duration;

use base::{Fid, FsError};

use crate::check::order::{self, Verdict};

use crate::excuses::Excuse;
use crate::history::{Call, Entry, Seen, Slot};

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Node {
    is: Is,
    known: Known,
}

/// Of which kind it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Is {
    File,
    Directory,
    /// A symbolic link, to there.
    Link(u64),
}

/// Which file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Known {
    As(Fid),
    /// Made by that call, which did not learn its id.
    By(usize),
}

impl Node {
    fn is_directory(self) -> bool {
        self.is == Is::Directory
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
/// done or not, but as done before it returned; what its own programs saw meanwhile does not count. All
/// that came before a call of the same client that made it durable counts as ever. A call that returned
/// after the loss may have been sent again after it, so that it is there without what came before it.
pub fn without_undone(history: &[Entry], programs: u32, undone: &[Excuse]) -> Vec<Entry> {
    let loss_of = |entry: &Entry| {
        let client = entry.caller / programs;
        let mut losses = undone.iter();
        let loss = losses.position(|excuse| excuse.covers(client, entry.start, entry.end))?;
        let is_safe = || is_synced(history, programs, entry, undone[loss].until);
        (entry.call.subject().is_none() && !is_safe()).then_some(loss)
    };
    let kept = |number: usize, entry: &Entry| match (loss_of(entry), &entry.seen) {
        (None, seen) => Some(seen.clone()),
        (_, Seen::Unknown) => Some(Seen::Unknown),
        (_, Seen::Failed(_)) => None,
        _ if entry.call.is_read() => None,
        (Some(loss), seen) => {
            let outlasts = entry.end > undone[loss].until;
            let group = if outlasts {
                undone.len() + number
            } else {
                loss
            };
            Some(Seen::Fleeting(Box::new(seen.clone()), group))
        }
    };
    let entries = history.iter().enumerate();
    let entries = entries.filter_map(|(number, entry)| {
        let seen = kept(number, entry)?;
        Some(Entry {
            seen,
            ..entry.clone()
        })
    });
    entries.collect()
}

/// Its client made all durable after that, and was told so before `loss`.
fn is_synced(history: &[Entry], programs: u32, entry: &Entry, loss: Duration) -> bool {
    let mut later = history.iter().filter(|other| {
        let is_own = other.caller / programs == entry.caller / programs;
        is_own && other.start >= entry.end && other.end <= loss
    });
    later.any(Entry::has_synced)
}

/// The map after `entry`, if it can have been done on `map` with what it saw.
fn apply(map: &Map, entry: &Entry, caller: usize) -> Option<Map> {
    let found = |map: &Map, slot: &Slot| map.get(slot).copied();
    let seen = match &entry.seen {
        Seen::Fleeting(seen, _) => seen,
        seen => seen,
    };
    match (&entry.call, seen) {
        (Call::Lookup(slot) | Call::Open(slot, _), Seen::File(fid)) => {
            bound(map, found(map, slot)?, *fid)
        }
        (Call::Lookup(slot) | Call::Open(slot, _), Seen::Failed(FsError::NotFound)) => {
            same(map, found(map, slot).is_none())
        }
        (Call::ReadLink(slot), Seen::Failed(FsError::NotFound)) => {
            same(map, found(map, slot).is_none())
        }
        (Call::ReadLink(slot), seen) => {
            let node = found(map, slot)?;
            match (node.is, seen) {
                (Is::Link(there), Seen::Link(fid, to)) if there == *to => bound(map, node, *fid),
                (Is::File | Is::Directory, Seen::File(fid)) => bound(map, node, *fid),
                _ => None,
            }
        }
        (Call::List(dir), Seen::Names(names)) => listed(map, *dir, names),
        (Call::List(_), Seen::Parts) => Some(map.clone()),
        (Call::Lookup(_) | Call::Open(..) | Call::List(_), Seen::Unknown) => None,
        (_, Seen::Failed(error)) => match effect(map, &entry.call, Known::By(caller)) {
            Err(errors) => same(map, errors.contains(error)),
            Ok(_) => None,
        },
        (Call::Create(_) | Call::Mkdir(_) | Call::Symlink(..), Seen::File(fid)) => {
            let is_new = !map.values().any(|node| node.known == Known::As(*fid));
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
    match node.known {
        Known::As(known) => same(map, known == fid),
        Known::By(_) if map.values().any(|other| other.known == Known::As(fid)) => None,
        Known::By(_) => {
            let mut map = map.clone();
            for other in map.values_mut().filter(|other| **other == node) {
                other.known = Known::As(fid);
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
    let mut make = |slot: &Slot, is| match map.contains_key(slot) {
        true => Err(vec![FsError::Exists]),
        false => {
            after.insert(*slot, Node { is, known: made });
            Ok(())
        }
    };
    match call {
        Call::Create(slot) => make(slot, Is::File)?,
        Call::Mkdir(slot) => make(slot, Is::Directory)?,
        Call::Symlink(slot, to) => make(slot, Is::Link(*to))?,
        Call::Unlink(slot) => match map.get(slot) {
            None => return Err(vec![FsError::NotFound]),
            Some(node) if node.is_directory() => return Err(vec![FsError::IsDirectory]),
            Some(_) => drop(after.remove(slot)),
        },
        Call::Rmdir(slot) => match map.get(slot) {
            None => return Err(vec![FsError::NotFound]),
            Some(node) if !node.is_directory() => return Err(vec![FsError::NotDirectory]),
            Some(_) => drop(after.remove(slot)),
        },
        Call::Rename(from, to) => return renamed(after, from, to),
        Call::RenameNew(from, to) if map.contains_key(from) && map.contains_key(to) => {
            return Err(vec![FsError::Exists]);
        }
        Call::RenameNew(from, to) => return renamed(after, from, to),
        Call::Exchange(one, other) => return exchanged(after, one, other),
        Call::Link(fid, slot) => drop(after.insert(*slot, linked(map, *fid, slot)?)),
        // Nothing of names is changed.
        _ => return Err(Vec::new()),
    }
    Ok(after)
}

/// What a new name of that file is, if it can have one.
fn linked(map: &Map, fid: Fid, slot: &Slot) -> Result<Node, Vec<FsError>> {
    let mut errors = Vec::new();
    let file = map.values().find(|node| node.known == Known::As(fid));
    match file {
        None => errors.extend([FsError::NotFound, FsError::Stale, FsError::NotPermitted]),
        Some(node) if node.is_directory() => errors.push(FsError::NotPermitted),
        Some(_) => {}
    }
    if map.contains_key(slot) {
        errors.push(FsError::Exists);
    }
    match (file, errors.is_empty()) {
        (Some(node), true) => Ok(*node),
        _ => Err(errors),
    }
}

fn exchanged(mut map: Map, one: &Slot, other: &Slot) -> Result<Map, Vec<FsError>> {
    let there = |slot| map.get(slot).copied().ok_or(vec![FsError::NotFound]);
    let nodes = (there(one)?, there(other)?);
    map.insert(*one, nodes.1);
    map.insert(*other, nodes.0);
    Ok(map)
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
