//! What goes into a lock cache and what comes out.

use std::time::Duration;

use base::{LockHandle, limits};

use crate::bits::Bits;
use crate::lock::{Cover, Grant, Keep, ResourceId};
use crate::mode::Mode;

/// An event for [`super::LockCache::step`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheInput {
    /// The server gave a lock. If the cache does not hold it afterwards, the grant came too late:
    /// what came with it must not be kept, and a call that needs the lock asks again.
    Granted {
        /// What it said.
        grant: Grant,
        /// A call waits for it: it arrives in use, and is released like an acquired one.
        in_use: bool,
    },
    /// A reply brought a grant that cannot be believed: if the server still means it, it is given
    /// back at once.
    Refused {
        /// Which lock.
        handle: LockHandle,
    },
    /// The server wants part of a lock back.
    Blocking {
        /// Which lock.
        handle: LockHandle,
        /// What somebody wants to do.
        mode: Mode,
        /// With which part.
        cover: Cover,
    },
    /// The server withdraws one entry from a lease.
    Withdraw {
        /// Under which lock.
        handle: LockHandle,
        /// Which entry.
        key: u64,
        /// For which lease bits.
        bits: Bits,
        /// To be sent back.
        version: u64,
    },
    /// A call has ended that used the lock.
    Release {
        /// Which.
        handle: LockHandle,
    },
    /// The owner has flushed and invalidated what a `Drop` named.
    Dropped {
        /// Which lock.
        handle: LockHandle,
    },
    /// The same, and the owner keeps the lock in a weaker mode. If that is in nobody's way it stays, in
    /// use, until it is released; else all of it is given back.
    Kept {
        /// Which lock.
        handle: LockHandle,
        /// How.
        mode: Mode,
    },
    /// The owner has invalidated what a `Withdrawn` named.
    Withdrawn {
        /// Under which lock.
        handle: LockHandle,
        /// As the output said.
        version: u64,
    },
    /// A reply brought an entry's current state and the server's word that the lease covers it.
    Readmitted {
        /// Under which lock.
        handle: LockHandle,
        /// Which entry; `None`: all.
        key: Option<u64>,
        /// For which lease bits.
        bits: Bits,
        /// As the server said.
        version: u64,
    },
    /// The owner gives one lock up of its own accord.
    GiveUp {
        /// Which.
        handle: LockHandle,
    },
    /// The server asks for fewer locks.
    Shrink,
    /// The server has restarted or evicted us: every lock is void.
    NewEpoch,
    /// Time has passed.
    Tick,
}

/// Why a lock is being given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Somebody else wants it.
    Conflict,
    /// It was not used for long.
    Aged,
    /// There are too many.
    Crowded,
    /// The owner said so.
    Asked,
}

/// What the cache's owner must do; the order matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheOutput {
    /// Write back and invalidate what `cover` names, as far as `keep` does not still cover it;
    /// then say [`CacheInput::Dropped`].
    Drop {
        /// Which lock.
        handle: LockHandle,
        /// On what.
        resource: ResourceId,
        /// The part that goes. With `Keep::Mode` the part whose unwritten changes must go out.
        cover: Cover,
        /// What remains.
        keep: Keep,
        /// Why.
        reason: Reason,
    },
    /// Invalidate one entry; then say [`CacheInput::Withdrawn`].
    Withdrawn {
        /// Under which lock.
        handle: LockHandle,
        /// The directory.
        resource: ResourceId,
        /// Which entry.
        key: u64,
        /// For which lease bits.
        bits: Bits,
        /// To be sent back.
        version: u64,
    },
    /// Invalidate everything; nothing is to be said or sent.
    DropAll,
}

/// A message to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// `Input::Cancel` with this handle.
    Cancel(LockHandle),
    /// `Input::Convert`.
    Convert(LockHandle, Keep),
    /// `Input::WithdrawAck`.
    WithdrawAck(LockHandle, u64),
}

/// The bounds of a cache; the defaults are those of `base::limits`.
#[derive(Debug, Clone, Copy)]
pub struct CacheLimits {
    /// Idle locks kept. Beyond: the oldest are given up.
    pub lru_max: usize,
    /// How long an idle lock is kept.
    pub age_max: Duration,
    /// Locks given up in one step for count or age.
    pub batch: usize,
    /// Callbacks remembered for grants under way, and handles remembered as given up. Beyond: a
    /// callback for an unknown lock is not answered.
    pub early_max: usize,
    /// How long such a callback is remembered. Beyond: the lock is given up unseen.
    pub early_age: Duration,
    /// Own changes remembered. Beyond: older answers are not used.
    pub changes_max: usize,
    /// Bits of entries of one lease whose last change is remembered. Beyond: older pages are not
    /// used.
    pub withdrawn_max: usize,
}

impl Default for CacheLimits {
    fn default() -> CacheLimits {
        CacheLimits {
            lru_max: limits::LOCK_LRU_MAX,
            age_max: limits::LOCK_AGE_MAX,
            batch: limits::LOCK_LRU_BATCH,
            early_max: limits::EARLY_CALLBACKS_MAX,
            early_age: limits::CALLBACK_DEADLINE / 2,
            changes_max: limits::EARLY_CALLBACKS_MAX,
            withdrawn_max: 4 * limits::LEASE_WITHDRAWN_MAX,
        }
    }
}
