//! What goes into a lock table and what comes out.

use std::fmt;
use std::time::Duration;

use base::{ByteRange, ClientId, LockHandle, Xid, limits};

use crate::bits::Bits;
use crate::contention::ContentionRule;
use crate::lock::{Cover, Grant, Keep, OpId, ResourceId};
use crate::mode::Mode;

/// What a client's lock request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Inode bits: all of `bits`, and those of `try_bits` that happen to be free.
    Inode {
        /// Waited for.
        bits: Bits,
        /// Dropped rather than waited for.
        try_bits: Bits,
    },
    /// At least the bytes in `range`; more where nobody is in the way.
    Extent {
        /// Waited for.
        range: ByteRange,
    },
}

/// What an operation needs before it may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Want {
    /// A lock of the server's own for the operation's time. Locks of the requesting client do not
    /// stand in its way: the reply tells that client the news.
    Lock {
        /// On what.
        resource: ResourceId,
        /// To do what.
        mode: Mode,
        /// Which part.
        cover: Cover,
    },
    /// One name in a directory, against other operations only.
    Name {
        /// The directory.
        resource: ResourceId,
        /// The name's hash.
        hash: u64,
        /// To do what.
        mode: Mode,
    },
    /// Every other client's lock with any of `bits` ceases to cover the entry `key`.
    Withdraw {
        /// The directory.
        resource: ResourceId,
        /// Of which lease bits the entry is part.
        bits: Bits,
        /// Which entry: a name's hash or a child's id.
        key: u64,
    },
    /// The current values of every other client that holds any of `bits` in PW or EX.
    Glimpse {
        /// The inode.
        resource: ResourceId,
        /// Which values matter.
        bits: Bits,
    },
    /// The current values of every other client that holds an extent in PW or EX.
    GlimpseExtent {
        /// The object.
        resource: ResourceId,
        /// Ask nobody: just say whether somebody would have to be asked.
        speculative: bool,
    },
    /// Every other client that holds CR on bytes has heard what its owner tells it.
    Tell {
        /// The object.
        resource: ResourceId,
    },
}

impl Want {
    /// A server-local lock on inode bits.
    pub fn bits(resource: ResourceId, mode: Mode, bits: Bits) -> Want {
        let cover = Cover::Bits(bits);
        Want::Lock {
            resource,
            mode,
            cover,
        }
    }

    /// A server-local lock on bytes.
    pub fn range(resource: ResourceId, mode: Mode, range: ByteRange) -> Want {
        let cover = Cover::Range(range);
        Want::Lock {
            resource,
            mode,
            cover,
        }
    }
}

/// An event for [`super::LockTable::step`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A client wants a lock and waits for it.
    Enqueue {
        /// Who.
        client: ClientId,
        /// Its name for the request; not reused while it waits.
        request: Xid,
        /// On what.
        resource: ResourceId,
        /// To do what.
        mode: Mode,
        /// Which part.
        kind: Kind,
        /// Refuse rather than wait, and disturb nobody.
        nonblock: bool,
    },
    /// The client no longer waits for that request. A lock granted meanwhile is the client's to
    /// cancel.
    Abandon {
        /// Who.
        client: ClientId,
        /// Which request.
        request: Xid,
    },
    /// An operation declares what it needs.
    Begin {
        /// Its name; never reused.
        op: OpId,
        /// For whom; `None` for the server's own.
        client: Option<ClientId>,
        /// All it needs; order and repetition do not matter.
        wants: Vec<Want>,
    },
    /// The operation has run.
    End {
        /// Which.
        op: OpId,
    },
    /// The operation will not run.
    Abort {
        /// Which.
        op: OpId,
    },
    /// The client waits for nothing any more: another process has taken its place, which knows of no
    /// request. Its locks stay.
    Succeed {
        /// Whose place.
        client: ClientId,
    },
    /// A client gives locks back. Handles it does not hold are passed over: cancels cross
    /// evictions.
    Cancel {
        /// Who.
        client: ClientId,
        /// Which locks.
        handles: Vec<LockHandle>,
    },
    /// A client gives part of a lock back.
    Convert {
        /// Who.
        client: ClientId,
        /// Which lock.
        handle: LockHandle,
        /// What remains.
        keep: Keep,
    },
    /// A client no longer relies on a withdrawn entry.
    WithdrawAck {
        /// Who.
        client: ClientId,
        /// Under which lock.
        handle: LockHandle,
        /// As the callback said.
        version: u64,
    },
    /// A client's answer to a glimpse, or that it has heard what it was told.
    GlimpseReply {
        /// Who.
        client: ClientId,
        /// Under which lock.
        handle: LockHandle,
        /// Its current values; opaque here.
        value: Vec<u8>,
    },
    /// The client is gone: its locks, waiting requests and waiting operations go too.
    Evict {
        /// Who.
        client: ClientId,
    },
    /// Time has passed.
    Tick,
}

/// Why a request was not granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It would have had to wait, and said not to.
    WouldBlock,
    /// The resource is fought over: no lease on it for a while.
    Contended,
    /// The client holds as many locks as it may.
    TooManyLocks,
    /// Too many requests wait.
    TooManyWaiting,
    /// It asks for nothing.
    Invalid,
}

/// One holder's answer to a glimpse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glimpsed {
    /// On what.
    pub resource: ResourceId,
    /// Who answered.
    pub client: ClientId,
    /// What it said; opaque here.
    pub value: Vec<u8>,
}

/// What the table wants done; the order matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Tell the client that it has the lock.
    Granted {
        /// Whom.
        client: ClientId,
        /// Its request.
        request: Xid,
        /// What it got.
        grant: Grant,
    },
    /// Tell the client that it will not get it.
    Refused {
        /// Whom.
        client: ClientId,
        /// Its request.
        request: Xid,
        /// Why.
        why: Refusal,
    },
    /// Everything the operation wanted is held: run it now, then `End` it.
    Ready {
        /// Which.
        op: OpId,
        /// The answers to its glimpses; holders that let go meanwhile said nothing.
        glimpses: Vec<Glimpsed>,
        /// A speculative glimpse would have had to ask somebody.
        busy: bool,
    },
    /// Too many operations wait, or this one makes no sense: it was not begun.
    OpRefused {
        /// Which.
        op: OpId,
    },
    /// The operation's client was evicted while it waited: it is gone.
    Aborted {
        /// Which.
        op: OpId,
    },
    /// Ask the client to give back what conflicts with `mode` on `cover`.
    Blocking {
        /// Whom.
        client: ClientId,
        /// Which lock.
        handle: LockHandle,
        /// On what.
        resource: ResourceId,
        /// What somebody wants to do.
        mode: Mode,
        /// With which part: of bits all that are wanted so far.
        cover: Cover,
    },
    /// Ask the client to forget one entry under a lease it keeps.
    Withdraw {
        /// Whom.
        client: ClientId,
        /// Which lock.
        handle: LockHandle,
        /// The directory.
        resource: ResourceId,
        /// Which entry.
        key: u64,
        /// For which lease bits.
        bits: Bits,
        /// To be returned with the acknowledgement.
        version: u64,
    },
    /// Ask the client for its current values; it keeps its lock.
    Glimpse {
        /// Whom.
        client: ClientId,
        /// Which lock.
        handle: LockHandle,
        /// On what.
        resource: ResourceId,
    },
    /// Tell the client what these operations have to say to those who watch the object. It answers
    /// as it does to a glimpse, and keeps its lock.
    Tell {
        /// Whom.
        client: ClientId,
        /// Which lock.
        handle: LockHandle,
        /// On what.
        resource: ResourceId,
        /// For which operations.
        ops: Vec<OpId>,
    },
    /// The client left a callback unanswered for too long: evict it. Said once.
    EvictionDue {
        /// Whom.
        client: ClientId,
    },
    /// The client nears its bound: ask it to cancel idle locks.
    ShrinkYourLocks {
        /// Whom.
        client: ClientId,
    },
    /// The client sent what no correct client sends; nothing was changed.
    Misuse {
        /// Who.
        client: ClientId,
        /// What.
        reason: &'static str,
    },
}

/// A request answered on the spot, inside an operation or outside.
#[derive(Debug, Clone, Copy)]
pub struct TryGrant {
    /// The running operation it is part of: that one's own locks are not in its way.
    pub op: Option<OpId>,
    /// For whom.
    pub client: ClientId,
    /// On what.
    pub resource: ResourceId,
    /// To do what.
    pub mode: Mode,
}

/// Entries that a lease covers again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readmitted {
    /// Under which lock.
    pub handle: LockHandle,
    /// For which bits.
    pub bits: Bits,
    /// Only state read at this version or later may be used.
    pub version: u64,
}

/// The bounds of a table; the defaults are those of `base::limits`.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Locks held and awaited by one client. Beyond: refused, and the client is asked to shrink.
    pub locks_per_client: usize,
    /// Requests and operations that wait. Beyond: refused.
    pub waiting: usize,
    /// Requests of one client that wait. Beyond: refused.
    pub waiting_per_client: usize,
    /// How long a callback may stay unanswered. Beyond: eviction is due.
    pub callback_deadline: Duration,
    /// Withdrawn entries remembered for one lock. Beyond: the bits are revoked.
    pub lease_withdrawn: usize,
    /// When a directory is too busy for leases.
    pub lease_contention: ContentionRule,
    /// When an object is too busy for extents to be grown.
    pub extent_contention: ContentionRule,
    /// Grown extents end at multiples of this.
    pub extent_align: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            locks_per_client: limits::LOCKS_PER_CLIENT_MAX,
            waiting: limits::LOCK_WAITERS_MAX,
            waiting_per_client: limits::LOCK_WAITERS_PER_CLIENT_MAX,
            callback_deadline: limits::CALLBACK_DEADLINE,
            lease_withdrawn: limits::LEASE_WITHDRAWN_MAX,
            lease_contention: ContentionRule {
                max: limits::LEASE_CONTENTION_MAX,
                window: limits::LEASE_CONTENTION_WINDOW,
                hold: limits::LEASE_CONTENTION_HOLD,
            },
            extent_contention: ContentionRule {
                max: limits::EXTENT_CONTENTION_MAX,
                window: limits::EXTENT_CONTENTION_WINDOW,
                hold: limits::EXTENT_CONTENTION_HOLD,
            },
            extent_align: limits::EXTENT_ALIGN,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::WouldBlock => "would have to wait",
            Refusal::Contended => "contended",
            Refusal::TooManyLocks => "too many locks",
            Refusal::TooManyWaiting => "too many waiting",
            Refusal::Invalid => "asks for nothing",
        })
    }
}
