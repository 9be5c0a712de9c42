//! A lock: who holds which part of which resource, and how.

use std::fmt;

use base::{ByteRange, ClientId, LockHandle};

use crate::bits::Bits;
use crate::mode::Mode;

/// What can be locked. Opaque here; the owner of the table gives each kind of thing a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId {
    /// Which kind of thing.
    pub space: u8,
    /// Which one of its kind.
    pub id: u64,
}

/// An operation of the server, as its owner names it. Not reused while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// The part of a resource that a lock is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cover {
    /// Inode bits.
    Bits(Bits),
    /// Bytes.
    Range(ByteRange),
}

impl Cover {
    /// Shares a part with `other`. Bits and bytes share nothing.
    pub fn overlaps(self, other: Cover) -> bool {
        match (self, other) {
            (Cover::Bits(a), Cover::Bits(b)) => a.overlaps(b),
            (Cover::Range(a), Cover::Range(b)) => a.overlaps(b),
            _ => false,
        }
    }

    /// Holds every part of `other`.
    pub fn contains(self, other: Cover) -> bool {
        match (self, other) {
            (Cover::Bits(a), Cover::Bits(b)) => a.contains(b),
            (Cover::Range(a), Cover::Range(b)) => a.contains(b),
            _ => false,
        }
    }

    /// Covers nothing, so that a lock on it has no meaning.
    pub fn is_empty(self) -> bool {
        match self {
            Cover::Bits(bits) => bits.is_empty(),
            Cover::Range(range) => range.is_empty(),
        }
    }

    /// The inode bits; none where the cover is bytes.
    pub fn bits(self) -> Bits {
        match self {
            Cover::Bits(bits) => bits,
            Cover::Range(_) => Bits::NONE,
        }
    }
}

impl fmt::Display for Cover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cover::Bits(bits) => fmt::Display::fmt(bits, f),
            Cover::Range(range) => fmt::Display::fmt(range, f),
        }
    }
}

impl fmt::Debug for Cover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `(mode, cover)` pairs of two parties that may not be held at once.
pub(crate) fn conflict(a: (Mode, Cover), b: (Mode, Cover)) -> bool {
    !a.0.compatible(b.0) && a.1.overlaps(b.1)
}

/// A granted lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    /// Its name on the wire.
    pub handle: LockHandle,
    /// Who holds it.
    pub client: ClientId,
    /// What it is on.
    pub resource: ResourceId,
    /// What the holder may do.
    pub mode: Mode,
    /// Which part it is about.
    pub cover: Cover,
}

impl Lock {
    /// An update of `cover` in `mode` on `resource` is allowed to the client that holds this lock.
    pub fn allows(&self, resource: ResourceId, mode: Mode, cover: Cover) -> bool {
        self.resource == resource && self.mode.covers(mode) && self.cover.contains(cover)
    }
}

/// What a client is told of a lock it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The lock's name.
    pub handle: LockHandle,
    /// What it is on.
    pub resource: ResourceId,
    /// The mode granted, which is the mode asked.
    pub mode: Mode,
    /// What it covers: at least what was asked, less the optional bits that were not free.
    pub cover: Cover,
    /// The table's version at the grant: only state read at it or later is covered.
    pub version: u64,
    /// Entries that a lease in `cover` does not cover, because their withdrawal is under way.
    pub withdrawn: Vec<(u64, Bits)>,
}

/// What remains of a lock when its holder gives the rest back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Nothing: the lock is cancelled.
    Nothing,
    /// Only these inode bits, for reading where the lock allowed that.
    Bits(Bits),
    /// All of its cover, in a weaker mode.
    Mode(Mode),
}

impl Keep {
    /// The mode in which what stays of a lock in `mode` is held, at both ends.
    pub(crate) fn mode_of(self, mode: Mode) -> Mode {
        match self {
            Keep::Bits(_) if mode.covers(Mode::PR) => Mode::PR,
            Keep::Mode(kept) => kept,
            _ => mode,
        }
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Keep::Nothing => f.write_str("nothing"),
            Keep::Bits(bits) => fmt::Display::fmt(bits, f),
            Keep::Mode(mode) => fmt::Display::fmt(mode, f),
        }
    }
}
