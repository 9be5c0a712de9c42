//! What a file is to become: shorter, longer, or with other space. [`Request::Truncate`] and
//! [`Request::Allocate`] ask an OST for that.

use base::limits::FILE_BYTES_MAX;
use base::{BootEpoch, ByteRange, FsError, LockHandle, Timestamp};
use layout::ObjectId;
use serde::{Deserialize, Serialize};

use crate::mdt::WriteTicket;
use crate::ost::{AllocateMode, Request};

/// What a file is to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// So many bytes long.
    Size(u64),
    /// With a range reserved, freed or zeroed.
    Range(ByteRange, AllocateMode),
}

impl Shape {
    /// What can be done of it: a hole reaches to the greatest file at most. `Invalid`: an empty range;
    /// `FileTooBig`: a range behind that.
    pub fn checked(self) -> Result<Shape, FsError> {
        let Shape::Range(mut range, mode) = self else {
            return Ok(self);
        };
        if mode == AllocateMode::PunchHole {
            // A hole may reach to the end of file and beyond.
            range.end = range.end.min(FILE_BYTES_MAX);
        }
        if range.is_empty() {
            return Err(FsError::Invalid);
        }
        if range.end > FILE_BYTES_MAX {
            return Err(FsError::FileTooBig);
        }
        Ok(Shape::Range(range, mode))
    }

    /// Of a file of `size` bytes, all that changes. The bytes cut off or zeroed, the zeros that
    /// come, and everything after them where the size may change.
    pub fn touches(self, size: u64) -> ByteRange {
        match self {
            Shape::Size(new) => ByteRange::from(new.min(size)),
            Shape::Range(range, AllocateMode::Extend | AllocateMode::Zero) => {
                ByteRange::from(range.start)
            }
            Shape::Range(range, _) => range,
        }
    }

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
            Shape::Range(..) => self.reaches().map_or(size, |end| size.max(end)),
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

    /// Nothing is left of what `earlier` did, which need not be done again before it.
    pub fn undoes(self, earlier: Shape) -> bool {
        match (self, earlier) {
            (Shape::Size(size), Shape::Size(before)) => size <= before,
            (Shape::Size(size), Shape::Range(range, _)) => size <= range.start,
            (Shape::Range(..), _) => false,
        }
    }

    /// The request that makes it so. `under`: the lock held over what changes, and the boot of the OST that
    /// the request is meant for.
    pub fn request(
        self,
        object: ObjectId,
        (ticket, mtime): (WriteTicket, Timestamp),
        (under, boot_epoch): (LockHandle, BootEpoch),
    ) -> Request {
        match self {
            Shape::Size(size) => Request::Truncate {
                object,
                size,
                ticket,
                mtime,
                under,
                boot_epoch,
            },
            Shape::Range(range, mode) => Request::Allocate {
                object,
                range,
                mode,
                ticket,
                mtime,
                under,
                boot_epoch,
            },
        }
    }
}

/// A request for a shape, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResizeRequest {
    /// The object that is to change.
    pub object: ObjectId,
    /// What it is to become.
    pub shape: Shape,
    /// The right to write.
    pub ticket: WriteTicket,
    /// The time of the change.
    pub mtime: Timestamp,
    /// The lock held over what changes, or zero.
    pub under: LockHandle,
    /// The boot of the OST that the request is meant for; zero: any.
    pub boot_epoch: BootEpoch,
}

impl ResizeRequest {
    /// The opposite of [`Shape::request`]. None: it is another kind of request.
    pub fn of(request: &Request) -> Option<ResizeRequest> {
        let (object, shape, ticket, mtime, under, boot_epoch) = match *request {
            Request::Truncate {
                object,
                size,
                ticket,
                mtime,
                under,
                boot_epoch,
            } => (object, Shape::Size(size), ticket, mtime, under, boot_epoch),
            Request::Allocate {
                object,
                range,
                mode,
                ticket,
                mtime,
                under,
                boot_epoch,
            } => {
                let shape = Shape::Range(range, mode);
                (object, shape, ticket, mtime, under, boot_epoch)
            }
            _ => return None,
        };
        Some(ResizeRequest {
            object,
            shape,
            ticket,
            mtime,
            under,
            boot_epoch,
        })
    }
}

#[cfg(test)]
mod tests {
    use base::Fid;

    use super::*;

    #[test]
    fn a_request_for_a_shape_is_taken_apart_as_it_was_made() {
        let resize = |shape| ResizeRequest {
            object: ObjectId {
                fid: Fid::new(0x400, 1),
                stripe: 2,
            },
            shape,
            ticket: WriteTicket {
                layout_generation: 3,
                open_epoch: 4,
            },
            mtime: Timestamp::default(),
            under: LockHandle(5),
            boot_epoch: BootEpoch(6),
        };
        for shape in [Shape::Size(7), range(8, 9, AllocateMode::Zero)] {
            let asked = resize(shape);
            let right = (asked.ticket, asked.mtime);
            let request = shape.request(asked.object, right, (asked.under, asked.boot_epoch));
            assert_eq!(ResizeRequest::of(&request), Some(asked));
        }
        assert_eq!(ResizeRequest::of(&Request::Sync), None);
    }

    fn range(start: u64, end: u64, mode: AllocateMode) -> Shape {
        Shape::Range(ByteRange::new(start, end), mode)
    }

    #[test]
    fn a_range_must_be_within_the_greatest_file_and_a_hole_is_cut_off_there() {
        let beyond = |mode| range(7, FILE_BYTES_MAX + 1, mode).checked();
        assert_eq!(beyond(AllocateMode::Extend), Err(FsError::FileTooBig));
        let cut = range(7, FILE_BYTES_MAX, AllocateMode::PunchHole);
        assert_eq!(beyond(AllocateMode::PunchHole), Ok(cut));
        let empty = range(7, 7, AllocateMode::Zero).checked();
        assert_eq!(empty, Err(FsError::Invalid));
        assert_eq!(Shape::Size(0).checked(), Ok(Shape::Size(0)));
    }

    #[test]
    fn what_a_shape_removes_it_touches_and_the_end_too_where_the_size_changes() {
        use AllocateMode::{Extend, KeepSize, PunchHole, Zero, ZeroKeepSize};
        for size in [0, 5, 50] {
            for mode in [Extend, KeepSize, PunchHole, Zero, ZeroKeepSize] {
                let (shape, here) = (range(10, 20, mode), ByteRange::new(0, size));
                let removed = shape.removes().intersection(here);
                let touched = shape.touches(size);
                assert!(removed.is_none_or(|removed| touched.contains(removed)));
                let changes_size = shape.size_after(size) != size;
                assert!(!changes_size || touched.end == u64::MAX, "{mode:?}");
                assert_eq!(
                    shape.size_after(size),
                    size.max(shape.reaches().unwrap_or(0))
                );
            }
            assert_eq!(Shape::Size(7).touches(size).start, size.min(7));
        }
    }

    #[test]
    fn only_a_file_that_is_cut_off_before_it_undoes_a_shape() {
        let hole = range(10, 20, AllocateMode::PunchHole);
        assert!(Shape::Size(10).undoes(hole) && !Shape::Size(11).undoes(hole));
        assert!(Shape::Size(3).undoes(Shape::Size(3)) && !hole.undoes(hole));
    }
}
