//! The record of one resource: small while it only has holders, more while it is fought over.

use std::collections::VecDeque;

use base::{ByteRange, ClientId, Tick, Xid};

use crate::bits::Bits;
use crate::contention::Contention;
use crate::interval::IntervalTree;
use crate::lock::{Cover, Lock, OpId, conflict};
use crate::mode::{MODES, Mode};
use crate::rangeset::RangeSet;
use crate::slab::List;

/// A resource with a lock, an operation or a memory of contention.
#[derive(Default)]
pub(super) struct Resource {
    /// Its granted locks, oldest first.
    pub granted: List,
    /// What most resources never need.
    pub extra: Option<Box<Extra>>,
}

/// The rare part of a resource's record.
#[derive(Default)]
pub(super) struct Extra {
    /// For resources with many locks.
    pub index: Option<Box<Index>>,
    /// Server-local locks of operations that hold them already.
    pub running: Vec<Running>,
    /// First come, first served.
    pub waiting: VecDeque<Waiter>,
    /// Withdrawals whose operation has not ended.
    pub inflight: Vec<Inflight>,
    /// How often holders were disturbed lately.
    pub contention: Contention,
    /// When the table will look whether the contention is over.
    pub cooling: Option<Tick>,
}

impl Extra {
    /// Nothing in here is needed any more.
    pub fn is_idle(&self) -> bool {
        self.index.is_none()
            && self.running.is_empty()
            && self.waiting.is_empty()
            && self.inflight.is_empty()
            && self.cooling.is_none()
    }

    /// Waiters that have not been served in the pass that is going on.
    pub fn still_waiting(&self) -> impl Iterator<Item = &Waiter> {
        self.waiting.iter().filter(|waiter| !waiter.served)
    }
}

/// A server-local lock that an operation holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Running {
    pub op: OpId,
    pub mode: Mode,
    pub cover: Cover,
}

/// Who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Party {
    Request {
        client: ClientId,
        request: Xid,
        try_bits: Bits,
    },
    Operation {
        op: OpId,
        client: Option<ClientId>,
    },
}

impl Party {
    /// Whose granted locks are not in the way.
    pub fn client(self) -> Option<ClientId> {
        match self {
            Party::Request { client, .. } => Some(client),
            Party::Operation { client, .. } => client,
        }
    }

    /// Whose server-local locks are not in the way.
    pub fn op(self) -> Option<OpId> {
        match self {
            Party::Request { .. } => None,
            Party::Operation { op, .. } => Some(op),
        }
    }
}

/// A request or an operation's want in the queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiter {
    pub party: Party,
    pub mode: Mode,
    pub cover: Cover,
    /// Served in the pass that is going on, and about to leave the queue.
    pub served: bool,
}

impl Waiter {
    /// This waiter and a lock of `mode` on `cover` cannot be held together.
    pub fn conflicts(&self, mode: Mode, cover: Cover) -> bool {
        conflict((self.mode, self.cover), (mode, cover))
    }
}

/// A withdrawal whose operation has not ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inflight {
    pub op: OpId,
    pub key: u64,
    pub bits: Bits,
}

/// Granted locks of one resource by what they conflict with.
pub(super) struct Index {
    /// How many locks of each mode have each bit.
    counts: [[u32; 32]; MODES],
    /// The extents of each mode.
    trees: [IntervalTree; MODES],
}

impl Default for Index {
    fn default() -> Index {
        Index {
            counts: [[0; 32]; MODES],
            trees: Default::default(),
        }
    }
}

impl Index {
    pub fn insert(&mut self, lock: &Lock, slot: u32) {
        match lock.cover {
            Cover::Bits(bits) => {
                let counts = &mut self.counts[lock.mode.index()];
                bits.positions().for_each(|position| counts[position] += 1);
            }
            Cover::Range(range) => self.trees[lock.mode.index()].insert(range, lock.client, slot),
        }
    }

    pub fn remove(&mut self, lock: &Lock, slot: u32) {
        match lock.cover {
            Cover::Bits(bits) => {
                let counts = &mut self.counts[lock.mode.index()];
                bits.positions().for_each(|position| counts[position] -= 1);
            }
            Cover::Range(range) => self.trees[lock.mode.index()].remove(range, slot),
        }
    }

    /// Some granted lock has one of `bits` in a mode that conflicts with `mode`.
    pub fn has_conflicting_bits(&self, mode: Mode, bits: Bits) -> bool {
        let mut modes = mode.conflicts().iter();
        modes.any(|held| {
            bits.positions()
                .any(|bit| self.counts[held.index()][bit] > 0)
        })
    }

    /// The extents of each mode that conflicts with `mode`.
    pub fn conflicting_trees(&self, mode: Mode) -> impl Iterator<Item = &IntervalTree> {
        mode.conflicts()
            .iter()
            .map(|held| &self.trees[held.index()])
    }
}

/// What the waiters looked at so far in a pass ask for, in one place.
#[derive(Default)]
pub(super) struct Ahead {
    bits: [Bits; MODES],
    ranges: [RangeSet; MODES],
}

impl Ahead {
    pub fn add(&mut self, waiter: &Waiter) {
        match waiter.cover {
            Cover::Bits(bits) => self.bits[waiter.mode.index()] |= bits,
            Cover::Range(range) => self.ranges[waiter.mode.index()].insert(range),
        }
    }

    pub fn blocks(&self, waiter: &Waiter) -> bool {
        let mut modes = waiter.mode.conflicts().iter().map(Mode::index);
        match waiter.cover {
            Cover::Bits(bits) => modes.any(|mode| self.bits[mode].overlaps(bits)),
            Cover::Range(range) => modes.any(|mode| self.ranges[mode].overlaps(range)),
        }
    }
}

/// Bounds of the free room around a range that is about to be granted.
pub(super) struct Room {
    range: ByteRange,
    from: u64,
    to: u64,
}

impl Room {
    pub fn around(range: ByteRange) -> Room {
        Room {
            range,
            from: 0,
            to: u64::MAX,
        }
    }

    /// `taken` belongs to somebody else; what overlaps the range itself leaves no room at all.
    pub fn exclude(&mut self, taken: ByteRange) {
        if taken.overlaps(self.range) {
            (self.from, self.to) = (self.range.start, self.range.end);
        } else if taken.end <= self.range.start {
            self.from = self.from.max(taken.end);
        } else {
            self.to = self.to.min(taken.start);
        }
    }

    /// The room, its ends moved inwards to multiples of `align` but never into the range.
    pub fn aligned(&self, align: u64) -> ByteRange {
        let from = self
            .from
            .checked_next_multiple_of(align)
            .unwrap_or(u64::MAX);
        let to = match self.to {
            u64::MAX => u64::MAX,
            to => to - to % align,
        };
        ByteRange::new(from.min(self.range.start), to.max(self.range.end))
    }
}
