//! Walks of trees are begun, and their chunks made and sent.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use base::limits::{PAGE_ENTRIES_MAX, WALKS_PER_CLIENT_MAX};
use base::{Fid, FsError, Tick, Timestamp};
use storage::KeyRange;
use wire::mdt::{DirEntry, Lease, Page, Reply, Request, WalkOrder};
use wire::{Cover, FileKind};

use super::Mds;
use crate::event::{Call, Output};
use crate::keys::{self, Spot, Table};
use crate::ops::getattr::target;
use crate::ops::readdir::{ReadDir, entry_bytes};
use crate::records::{Dirent, Inode};
use crate::request::reply;
use crate::sharing::shown;
use crate::store::{Failure, Store, missing};
use crate::txn::Txn;

use crate::walks::chains::{Ask, Chain, Cursor};
use crate::walks::{ALL, CHUNK_BYTES, DIRECTORY_BYTES, LOOK_BYTES, LOOK_MAX, Level, MET_MAX, Walk};

impl Mds {
    /// A client wants a walk; its first chunk is made at once, unless it follows one under way.
    pub(crate) fn start_walk(&mut self, call: Call, request: &Request, out: &mut Vec<Output>) {
        let Request::Walk {
            walk,
            levels,
            order,
            bytes_max,
            instead_of,
        } = request
        else {
            return reply(out, call, Err(FsError::Invalid));
        };
        let chain = |walk| Chain {
            client: call.client,
            walk,
        };
        let ask = Ask {
            call,
            chain: chain(*walk),
            bytes_max: *bytes_max,
        };
        let from = Cursor {
            levels: levels.clone(),
            order: *order,
        };
        if *instead_of != 0 {
            self.cut_short(chain(*instead_of), out);
        }
        if let Err(refused) = self.begin_walk(ask, from, out) {
            reply(out, call, Err(refused));
        }
    }

    fn begin_walk(&mut self, ask: Ask, from: Cursor, out: &mut Vec<Output>) -> Result<(), FsError> {
        let follows = from.levels.is_empty();
        if (follows && ask.chain.walk == 0) || !from.is_sound() {
            return Err(FsError::Invalid);
        }
        if self.walks.count(ask.call.client) >= WALKS_PER_CLIENT_MAX {
            return Err(FsError::TryAgain);
        }
        if follows && self.walks.is_running(ask.chain) {
            self.walks.chains.follow(ask);
            return Ok(());
        }
        let from = match follows {
            false => from,
            true => {
                let end = self.walks.chains.end_of(ask.chain);
                end.ok_or(FsError::TryAgain)?
            }
        };
        let walk = Walk::new(ask, &from);
        let alone = self.walks.running.is_empty();
        self.walk_on(walk, out);
        if alone && !self.walks.running.is_empty() {
            out.push(Output::GoOn);
        }
        Ok(())
    }

    /// Goes on with a walk, where there is one.
    pub fn go_on(&mut self, now: Tick, wall: Timestamp, out: &mut Vec<Output>) {
        self.set_time(now, wall);
        if let Some(walk) = self.walks.running.pop_front() {
            self.walk_on(walk, out);
        }
        if !self.walks.running.is_empty() {
            out.push(Output::GoOn);
        }
    }

    fn walk_on(&mut self, mut walk: Walk, out: &mut Vec<Output>) {
        match self.chunk(&mut walk) {
            Ok(ControlFlow::Continue(())) => self.walks.running.push_back(walk),
            Ok(ControlFlow::Break(())) => self.answer_walk(walk, out),
            Err(failure) => {
                for ask in self.walks.chains.broken(walk.chain) {
                    reply(out, ask.call, Err(FsError::TryAgain));
                }
                self.fail(walk.call, failure, out);
            }
        }
    }

    /// Answers with what the walk has brought, and starts the request that follows.
    fn answer_walk(&mut self, walk: Walk, out: &mut Vec<Output>) {
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
            _ => self.walks.chains.ended(chain, &next),
        };
        if let Some(ask) = follower {
            self.walks.running.push_back(Walk::new(ask, &next));
        }
        let walked = Reply::Walked {
            pages,
            targets,
            next: next.levels,
            order,
        };
        reply(out, call, Ok(walked));
    }

    /// A walk whose walker has turned: what was asked of it is answered with what there is, for
    /// that has locks.
    fn cut_short(&mut self, chain: Chain, out: &mut Vec<Output>) {
        for ask in self.walks.chains.broken(chain) {
            reply(out, ask.call, Err(FsError::TryAgain));
        }
        let running = std::mem::take(&mut self.walks.running);
        let (cut, others): (VecDeque<Walk>, _) =
            running.into_iter().partition(|walk| walk.chain == chain);
        self.walks.running = others;
        for walk in cut {
            self.answer_walk(walk, out);
        }
    }

    /// Breaks where the answer is full, or the walk at its end.
    fn chunk(&mut self, walk: &mut Walk) -> Result<ControlFlow<()>, Failure> {
        let mut made = 0;
        while let Some(level) = walk.levels.last_mut() {
            if made >= CHUNK_BYTES {
                return Ok(ControlFlow::Continue(()));
            }
            let (cost, is_enough) = match level.at.listed {
                true => {
                    let cost = self.enter(walk)?;
                    walk.looks_left = walk.looks_left.saturating_sub(cost);
                    (cost, walk.looks_left == 0)
                }
                // Also where what was listed is left out: an answer costs no more than it may bring.
                false => (self.list(walk)?, walk.bytes_left == 0),
            };
            made += cost;
            if is_enough {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Break(()))
    }

    /// Lists on in the innermost directory. What that cost, as bytes of pages.
    fn list(&mut self, walk: &mut Walk) -> Result<usize, Failure> {
        let lowest = walk.is_lowest();
        let Some(level) = walk.levels.last_mut() else {
            return Ok(0);
        };
        let from = level.at.cookie;
        let bytes_max = walk.bytes_left.min(CHUNK_BYTES);
        let page = match self.walk_page(walk.call, level.at.dir, from, bytes_max) {
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
                let target = target(&self.store, entry.fid)?;
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
    fn enter(&self, walk: &mut Walk) -> Result<usize, Failure> {
        let (order, lowest) = (walk.order, walk.is_lowest());
        let Some(level) = walk.levels.last_mut() else {
            return Ok(0);
        };
        let enough = order != WalkOrder::Name && !level.met.is_empty();
        if level.seen != ALL && !enough && !lowest {
            return look_on(&self.store, level, order);
        }
        let next = level.met.pop_front();
        let Some(next) = next.filter(|_| !lowest) else {
            walk.leave();
            return Ok(0);
        };
        level.at.cookie = next.cookie;
        if walk.passes() && !has_subdirectories(&self.store, next.dir)? {
            return Ok(DIRECTORY_BYTES);
        }
        walk.enter(next.dir);
        Ok(0)
    }

    /// A page with its locks; without a lease where it cannot have one now.
    fn walk_page(
        &mut self,
        call: Call,
        dir: Fid,
        cookie: u64,
        bytes_max: usize,
    ) -> Result<Page, Failure> {
        let op = ReadDir {
            dir,
            cookie,
            attrs_max: u32::MAX,
            entries_max: PAGE_ENTRIES_MAX as u32,
            bytes_max: bytes_max as u32,
        };
        let txn = Txn::new(&self.store, self.hasher, self.state, self.wall);
        let page = op.page(&txn)?;
        let request = Request::ReadDir {
            dir,
            cookie,
            attrs_max: op.attrs_max,
            entries_max: op.entries_max,
            bytes_max: op.bytes_max,
        };
        let mut answer = Ok(Reply::Page(page));
        let sights = shown(self.hasher, &request, &answer);
        let durable = self.sharing.wait_for(call.client, &sights) <= self.committed;
        if let (true, Ok(answer)) = (durable, &mut answer) {
            self.cover(None, call, &request, None, answer);
        }
        match answer? {
            Reply::Page(page) => Ok(page),
            _ => Err(FsError::Invalid.into()),
        }
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
