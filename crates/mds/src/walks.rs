//! `op.walk`: walks of trees, each answered with the directories that a depth-first or breadth-first reader
//! enters next (ADR 8). A walk runs a chunk at a time between other requests, and waits for nothing: an entry
//! that cannot be covered at once is left to the reader.

pub(crate) mod chains;
pub(crate) mod steps;

use std::collections::VecDeque;

use base::limits::{WALK_BYTES_MAX, WALK_DEPTH_MAX};
use base::{ClientId, Fid, Name};
use wire::mdt::{Page, WalkLevel, WalkOrder};

use crate::event::Call;

use chains::{Ask, Chain, Chains, Cursor};

/// Bytes of pages made before others have their turn.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;
/// What entering a directory counts for, beside its entries: one that is empty costs too.
const DIRECTORY_BYTES: usize = 256;
/// Entries looked at in one go for subdirectories, and what each counts for.
const LOOK_MAX: usize = 256;
const LOOK_BYTES: usize = 64;
/// How much of that a breadth-first walk does for one answer: a depth may be far, and empty.
const LOOKS_BYTES_MAX: usize = 4 << 20;
/// Subdirectories of one directory that are remembered. Beyond: none of it is entered.
const MET_MAX: usize = 1 << 16;

/// What clients want to walk through.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    /// Under way, in turn.
    running: VecDeque<Walk>,
    chains: Chains,
}

/// One of them.
#[derive(Debug)]
struct Walk {
    call: Call,
    chain: Chain,
    order: WalkOrder,
    levels: Vec<Level>,
    pages: Vec<(u64, Page)>,
    targets: Vec<(Fid, Vec<u8>)>,
    bytes_left: usize,
    /// What may still be spent on directories that are not listed.
    looks_left: usize,
}

#[derive(Debug)]
struct Level {
    at: WalkLevel,
    /// Subdirectories met so far and not entered yet.
    met: VecDeque<Subdirectory>,
    /// The directory was looked through for them up to this cookie; at the end: to [`ALL`].
    seen: u64,
}

/// A directory was looked through to its end.
const ALL: u64 = u64::MAX;

#[derive(Debug)]
struct Subdirectory {
    cookie: u64,
    name: Name,
    dir: Fid,
}

impl Level {
    /// Where a walk in `order` goes on.
    fn new(at: WalkLevel, order: WalkOrder) -> Level {
        Level {
            at,
            met: VecDeque::new(),
            seen: match (at.listed, order) {
                (true, WalkOrder::Cookie | WalkOrder::Breadth { .. }) => at.cookie,
                // Those before by name may be behind by cookie.
                _ => 0,
            },
        }
    }

    fn meet(&mut self, cookie: u64, name: &Name, dir: Fid) {
        let name = name.clone();
        self.met.push_back(Subdirectory { cookie, name, dir });
    }

    /// All subdirectories are met: those that were entered before by name are left out.
    fn sort(&mut self) {
        let entered = self.met.iter().find(|met| met.cookie == self.at.cookie);
        if let Some(entered) = entered.map(|met| met.name.clone()) {
            self.met.retain(|met| met.name > entered);
        }
        self.met
            .make_contiguous()
            .sort_by(|a, b| a.name.cmp(&b.name));
    }
}

impl Walk {
    fn new(ask: Ask, cursor: &Cursor) -> Walk {
        let levels = cursor.levels.iter();
        Walk {
            call: ask.call,
            chain: ask.chain,
            order: cursor.order,
            levels: levels.map(|at| Level::new(*at, cursor.order)).collect(),
            pages: Vec::new(),
            targets: Vec::new(),
            bytes_left: (ask.bytes_max as usize).min(WALK_BYTES_MAX),
            looks_left: match cursor.order {
                WalkOrder::Breadth { .. } => LOOKS_BYTES_MAX,
                // They do not list those alone that they begin in.
                WalkOrder::Cookie | WalkOrder::Name => usize::MAX,
            },
        }
    }

    /// What is below the innermost directory comes later.
    fn is_lowest(&self) -> bool {
        matches!(self.order, WalkOrder::Breadth { depth, .. } if self.levels.len() > depth.into())
    }

    /// What is in the innermost directory is only gone through.
    fn passes(&self) -> bool {
        matches!(self.order, WalkOrder::Breadth { depth, .. } if self.levels.len() < depth.into())
    }

    fn enter(&mut self, dir: Fid) {
        let at = WalkLevel {
            dir,
            cookie: 0,
            listed: self.passes(),
        };
        if self.levels.len() < WALK_DEPTH_MAX {
            self.levels.push(Level::new(at, self.order));
        }
    }

    /// The innermost directory is done with.
    fn leave(&mut self) {
        let (order, last) = (&mut self.order, WALK_DEPTH_MAX as u8 - 1);
        let (WalkOrder::Breadth { depth, deeper }, [root]) = (order, &mut self.levels[..]) else {
            self.levels.pop();
            return;
        };
        if !*deeper || *depth >= last {
            self.levels.clear();
            return;
        }
        (*depth, *deeper) = (*depth + 1, false);
        let at = WalkLevel {
            dir: root.at.dir,
            cookie: 0,
            listed: true,
        };
        *root = Level::new(at, self.order);
    }
}

impl Walks {
    /// The requests whose walks end here unanswered.
    pub fn end_all(&mut self) -> impl Iterator<Item = Call> + use<> {
        let running = std::mem::take(&mut self.running);
        running
            .into_iter()
            .map(|walk| walk.call)
            .chain(self.chains.end_all())
    }

    pub fn end_client(&mut self, client: ClientId) {
        self.running.retain(|walk| walk.call.client != client);
        self.chains.end_client(client);
    }

    fn count(&self, client: ClientId) -> usize {
        let of_client = |walk: &&Walk| walk.call.client == client;
        self.running.iter().filter(of_client).count() + self.chains.waiting(client)
    }

    fn is_running(&self, chain: Chain) -> bool {
        self.running.iter().any(|walk| walk.chain == chain)
    }
}
