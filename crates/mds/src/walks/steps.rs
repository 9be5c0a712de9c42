//! Walks are begun, and their chunks made and answered, a step at a time.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use base::limits::WALKS_PER_CLIENT_MAX;
use base::{Fid, FsError};
use storage::KeyRange;
use wire::mdt::{DirEntry, Lease, Page, Reply, WalkOrder};
use wire::{Cover, FileKind};

use crate::effect::Effect;
use crate::event::{Call, Halted, Output};
use crate::keys::{self, Spot, Table};
use crate::ops::getattr::target;
use crate::ops::readdir::entry_bytes;
use crate::records::{Dirent, Inode};
use crate::request::reply_of;
use crate::store::{Failure, Store, missing};

use super::chains::{Ask, Chain, Cursor};
use super::{ALL, CHUNK_BYTES, DIRECTORY_BYTES, LOOK_BYTES, LOOK_MAX, Level, MET_MAX, Walk, Walks};

/// What walks read.
pub(crate) trait Pages {
    /// The tables.
    fn store(&self) -> &Store;
    /// A page with its locks; without a lease where it cannot have one now.
    fn page(
        &mut self,
        call: Call,
        dir: Fid,
        cookie: u64,
        bytes_max: usize,
    ) -> Result<Page, Failure>;
}

/// What happens to walks.
#[derive(Debug)]
pub(crate) enum Event {
    /// A client wants a walk from there on, or what follows one, where that says no place.
    Asked {
        ask: Ask,
        from: Cursor,
        /// A walk that the client does not want any more.
        instead_of: Option<Chain>,
    },
    /// Others had their turn.
    GoOn,
}

impl Walks {
    /// What is to be done about the event. A new walk's first chunk is made at once, unless it follows
    /// one under way.
    pub fn step(&mut self, pages: &mut impl Pages, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        let goes_on = match event {
            Event::Asked {
                ask,
                from,
                instead_of,
            } => {
                if let Some(chain) = instead_of {
                    self.cut_short(chain, &mut effects);
                }
                let alone = self.running.is_empty();
                match self.begin(pages, ask, from, &mut effects) {
                    Ok(()) => alone,
                    Err(refused) => {
                        effects.push(Effect::Say(reply_of(ask.call, Err(refused))));
                        false
                    }
                }
            }
            Event::GoOn => {
                if let Some(walk) = self.running.pop_front() {
                    self.walk_on(pages, walk, &mut effects);
                }
                true
            }
        };
        if goes_on && !self.running.is_empty() {
            effects.push(Effect::Say(Output::GoOn));
        }
        effects
    }

    fn begin(
        &mut self,
        pages: &mut impl Pages,
        ask: Ask,
        from: Cursor,
        effects: &mut Vec<Effect>,
    ) -> Result<(), FsError> {
        let follows = from.levels.is_empty();
        if (follows && ask.chain.walk == 0) || !from.is_sound() {
            return Err(FsError::Invalid);
        }
        if self.count(ask.call.client) >= WALKS_PER_CLIENT_MAX {
            return Err(FsError::TryAgain);
        }
        if follows && self.is_running(ask.chain) {
            self.chains.follow(ask);
            return Ok(());
        }
        let from = match follows {
            false => from,
            true => {
                let end = self.chains.end_of(ask.chain);
                end.ok_or(FsError::TryAgain)?
            }
        };
        self.walk_on(pages, Walk::new(ask, &from), effects);
        Ok(())
    }

    fn walk_on(&mut self, pages: &mut impl Pages, mut walk: Walk, effects: &mut Vec<Effect>) {
        match Walks::chunk(pages, &mut walk) {
            Ok(ControlFlow::Continue(())) => self.running.push_back(walk),
            Ok(ControlFlow::Break(())) => self.answer(walk, effects),
            Err(failure) => {
                self.end_chain(walk.chain, effects);
                let (error, cause) = match failure {
                    Failure::Refused(error) => (error, None),
                    Failure::Broken(cause) => (FsError::Io, Some(cause)),
                };
                effects.push(Effect::Say(reply_of(walk.call, Err(error))));
                effects.extend(cause.map(|cause| Effect::Halt(Halted(cause))));
            }
        }
    }

    /// The requests that waited to go on with the walk do so no more.
    fn end_chain(&mut self, chain: Chain, effects: &mut Vec<Effect>) {
        let refused = self.chains.broken(chain).into_iter();
        let refused = refused.map(|ask| reply_of(ask.call, Err(FsError::TryAgain)));
        effects.extend(refused.map(Effect::Say));
    }

    /// Answers with what the walk has brought, and starts the request that follows.
    fn answer(&mut self, walk: Walk, effects: &mut Vec<Effect>) {
        let Walk {
            call,
            chain,
            order,
            levels,
            pages,
            targets,
            ..
        } = walk;
        let levels = levels.into_iter().map(|level| level.at).collect();
        let next = Cursor { levels, order };
        let follower = match chain.walk {
            0 => None,
            _ => self.chains.ended(chain, &next),
        };
        if let Some(ask) = follower {
            self.running.push_back(Walk::new(ask, &next));
        }
        let walked = Reply::Walked {
            pages,
            targets,
            next: next.levels,
            order,
        };
        effects.push(Effect::Say(reply_of(call, Ok(walked))));
    }

    /// A walk whose reader has turned: what was asked of it is answered with what there is, for
    /// that has locks.
    fn cut_short(&mut self, chain: Chain, effects: &mut Vec<Effect>) {
        self.end_chain(chain, effects);
        let running = std::mem::take(&mut self.running);
        let (cut, others): (VecDeque<Walk>, _) =
            running.into_iter().partition(|walk| walk.chain == chain);
        self.running = others;
        for walk in cut {
            self.answer(walk, effects);
        }
    }

    /// Breaks where the answer is full, or the walk at its end.
    fn chunk(pages: &mut impl Pages, walk: &mut Walk) -> Result<ControlFlow<()>, Failure> {
        let mut made = 0;
        while let Some(level) = walk.levels.last_mut() {
            if made >= CHUNK_BYTES {
                return Ok(ControlFlow::Continue(()));
            }
            let (cost, is_enough) = match level.at.listed {
                true => {
                    let cost = Walks::enter(pages, walk)?;
                    walk.looks_left = walk.looks_left.saturating_sub(cost);
                    (cost, walk.looks_left == 0)
                }
                // Also where what was listed is left out: an answer costs no more than it may bring.
                false => (Walks::list(pages, walk)?, walk.bytes_left == 0),
            };
            made += cost;
            if is_enough {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Break(()))
    }

    /// Lists on in the innermost directory. What that cost, as bytes of pages.
    fn list(pages: &mut impl Pages, walk: &mut Walk) -> Result<usize, Failure> {
        let lowest = walk.is_lowest();
        let Some(level) = walk.levels.last_mut() else {
            return Ok(0);
        };
        let from = level.at.cookie;
        let bytes_max = walk.bytes_left.min(CHUNK_BYTES);
        let page = match pages.page(walk.call, level.at.dir, from, bytes_max) {
            Ok(page) => page,
            Err(Failure::Refused(_)) => {
                walk.levels.pop();
                return Ok(DIRECTORY_BYTES);
            }
            Err(broken) => return Err(broken),
        };
        let is_directory = |entry: &&DirEntry| entry.kind == FileKind::Directory;
        let subdirectories = || page.entries.iter().filter(is_directory);
        match &mut walk.order {
            WalkOrder::Breadth { deeper, .. } if lowest => {
                *deeper |= subdirectories().next().is_some();
            }
            _ if level.seen == from => {
                subdirectories().for_each(|entry| level.meet(entry.cookie, &entry.name, entry.fid));
            }
            _ => {}
        }
        let last = page.entries.last().map_or(from, |entry| entry.cookie);
        if level.seen == from {
            level.seen = if page.end { ALL } else { last };
        }
        (level.at.cookie, level.at.listed) = match page.end {
            true => (0, true),
            false => (last, false),
        };
        if level.seen == ALL && walk.order == WalkOrder::Name {
            level.sort();
        }
        let bytes = page
            .entries
            .iter()
            .map(|entry| entry_bytes(&entry.name, entry.node.is_some()));
        let cost = DIRECTORY_BYTES + bytes.sum::<usize>();
        walk.bytes_left = walk.bytes_left.saturating_sub(cost);
        if !carries_locks(&page) {
            return Ok(cost);
        }
        let before = walk.targets.len();
        for entry in &page.entries {
            if entry.kind == FileKind::Symlink {
                let target = target(pages.store(), entry.fid)?;
                walk.targets.push((entry.fid, target));
            }
        }
        let targets = walk.targets[before..].iter();
        let targets = targets.map(|(_, target)| target.len()).sum();
        walk.bytes_left = walk.bytes_left.saturating_sub(targets);
        walk.pages.push((from, page));
        Ok(cost + targets)
    }

    /// Enters the next subdirectory of the innermost directory, or leaves it. What that cost.
    fn enter(pages: &impl Pages, walk: &mut Walk) -> Result<usize, Failure> {
        let (order, lowest) = (walk.order, walk.is_lowest());
        let Some(level) = walk.levels.last_mut() else {
            return Ok(0);
        };
        let enough = order != WalkOrder::Name && !level.met.is_empty();
        if level.seen != ALL && !enough && !lowest {
            return look_on(pages.store(), level, order);
        }
        let next = level.met.pop_front();
        let Some(next) = next.filter(|_| !lowest) else {
            walk.leave();
            return Ok(0);
        };
        level.at.cookie = next.cookie;
        if walk.passes() && !has_subdirectories(pages.store(), next.dir)? {
            return Ok(DIRECTORY_BYTES);
        }
        walk.enter(next.dir);
        Ok(0)
    }
}

/// A page without any is of no use; one with some must come to its client, which holds them.
fn carries_locks(page: &Page) -> bool {
    let mut nodes = page.entries.iter().filter_map(|entry| entry.node.as_ref());
    page.lease != Lease::None || nodes.any(|node| matches!(node.cover, Cover::Own(_)))
}

/// Looks for more subdirectories in a directory that was listed in an answer before, or is not to
/// be. What that cost.
fn look_on(store: &Store, level: &mut Level, order: WalkOrder) -> Result<usize, Failure> {
    let dir = level.at.dir;
    let first = Spot {
        dir,
        cookie: level.seen + 1,
    };
    let range = KeyRange::new(keys::dirent(first), keys::fid(Fid(dir.0 + 1)));
    let (mut looked, mut seen) = (0, ALL);
    store.scan(Table::Dirents, &range, |key, dirent: Dirent| {
        let spot = keys::parse_dirent(key).ok_or_else(|| missing("cookie", dir))?;
        if dirent.kind == FileKind::Directory {
            level.meet(spot.cookie, &dirent.name, dirent.fid);
        }
        looked += 1;
        if looked < LOOK_MAX {
            return Ok(ControlFlow::Continue(()));
        }
        seen = spot.cookie;
        Ok(ControlFlow::Break(()))
    })?;
    level.seen = seen;
    if level.met.len() > MET_MAX {
        // The client that comes there asks for it.
        level.met.clear();
        level.seen = ALL;
    }
    match order {
        WalkOrder::Name if level.seen == ALL => level.sort(),
        // An answer may end here.
        WalkOrder::Breadth { .. } if level.met.is_empty() && seen != ALL => level.at.cookie = seen,
        _ => {}
    }
    Ok(DIRECTORY_BYTES + looked * LOOK_BYTES)
}

/// False where the directory is gone, too.
fn has_subdirectories(store: &Store, dir: Fid) -> Result<bool, Failure> {
    let inode: Option<Inode> = store.get(Table::Inodes, &keys::fid(dir))?;
    Ok(inode.is_some_and(|inode| inode.nlink > 2))
}

#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;
