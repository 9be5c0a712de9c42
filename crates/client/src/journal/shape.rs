//! Changes of a file's size and of where it has space.

use base::{BootEpoch, ByteRange, LockHandle, Timestamp};
use layout::ObjectId;
use serde::{Deserialize, Serialize};
use wire::mdt::WriteTicket;
use wire::ost::{AllocateMode, Request};

/// What a file is to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Shape {
    /// So many bytes.
    Size(u64),
    /// A range reserved, freed or zeroed.
    Range(ByteRange, AllocateMode),
}

impl Shape {
    /// What goes of the bytes that were there.
    pub fn removes(self) -> ByteRange {
        match self {
            Shape::Size(size) => ByteRange::from(size),
            Shape::Range(_, AllocateMode::Extend | AllocateMode::KeepSize) => ByteRange::new(0, 0),
            Shape::Range(range, _) => range,
        }
    }

    /// The size of a file that had `size` bytes.
    pub fn size_after(self, size: u64) -> u64 {
        match self {
            Shape::Size(new) => new,
            Shape::Range(range, AllocateMode::Extend | AllocateMode::Zero) => size.max(range.end),
            Shape::Range(..) => size,
        }
    }

    /// Where the file ends at least, if it may be longer than before.
    pub fn reaches(self) -> Option<u64> {
        match self {
            Shape::Size(size) => Some(size),
            Shape::Range(range, AllocateMode::Extend | AllocateMode::Zero) => Some(range.end),
            Shape::Range(..) => None,
        }
    }

    /// The OST's request that makes it so.
    pub fn request(
        self,
        object: ObjectId,
        (ticket, mtime): (WriteTicket, Timestamp),
        (under, life): (LockHandle, BootEpoch),
    ) -> Request {
        match self {
            Shape::Size(size) => Request::Truncate {
                object,
                size,
                ticket,
                mtime,
                under,
                boot_epoch: life,
            },
            Shape::Range(range, mode) => Request::Allocate {
                object,
                range,
                mode,
                ticket,
                mtime,
                under,
                boot_epoch: life,
            },
        }
    }

    /// Nothing is left of what `earlier` did, which need not be done again before it.
    pub fn undoes(self, earlier: Shape) -> bool {
        match (self, earlier) {
            (Shape::Size(size), Shape::Size(before)) => size <= before,
            (Shape::Size(size), Shape::Range(range, _)) => size <= range.start,
            (Shape::Range(..), _) => false,
        }
    }
}
