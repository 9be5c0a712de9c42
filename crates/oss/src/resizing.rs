//! Changes of where an object has bytes, as they are asked for.

use base::{BootEpoch, FsError, LockHandle};
use layout::ObjectId;
use wire::ost::{Request, UNDER_MDT};
use wire::shape::{ResizeRequest, Shape};

use crate::objects::Change;

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
        let asked = ResizeRequest::of(request).ok_or(FsError::NotSupported)?;
        let is_lock = |under: &LockHandle| !matches!(*under, LockHandle(0) | UNDER_MDT);
        Ok(Resize {
            object: asked.object,
            shape: asked.shape.checked()?,
            change: Change::by(asked.ticket, asked.mtime)?,
            under: Some(asked.under).filter(is_lock),
            boot_epoch: asked.boot_epoch,
        })
    }
}
