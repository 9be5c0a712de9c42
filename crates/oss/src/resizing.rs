//! Changes of where an object has bytes, as they are asked for.

use base::limits::FILE_BYTES_MAX;
use base::{BootEpoch, ByteRange, FsError, LockHandle};
use layout::ObjectId;
use wire::ost::{AllocateMode, Request, UNDER_MDT};

use crate::objects::Change;

/// What is to become of it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    /// So many bytes.
    Size(u64),
    /// A range reserved, freed or zeroed.
    Range(ByteRange, AllocateMode),
}

/// One change of an object's shape, and by which right.
#[derive(Debug)]
pub(crate) struct Resize {
    pub object: ObjectId,
    pub shape: Shape,
    pub change: Change,
    /// A lock that is held over what changes; none: the target takes one of its own.
    pub under: Option<LockHandle>,
    /// The boot it is meant for; zero: any.
    pub boot_epoch: BootEpoch,
}

impl Resize {
    /// What is asked, where that can be done.
    pub fn of(request: &Request) -> Result<Resize, FsError> {
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
            } => (
                object,
                Shape::Range(range, mode),
                ticket,
                mtime,
                under,
                boot_epoch,
            ),
            _ => return Err(FsError::NotSupported),
        };
        Ok(Resize {
            object,
            shape: shape.checked()?,
            change: Change::by(ticket, mtime)?,
            under: Some(under).filter(|under| !matches!(*under, LockHandle(0) | UNDER_MDT)),
            boot_epoch,
        })
    }
}

impl Shape {
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

    /// Of an object of `size` bytes, all that changes. The bytes cut off or zeroed, the zeros that
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
}
