//! Changing where an object has bytes: its size, or what space a range takes.

use base::limits::FILE_BYTES_MAX;
use base::{BootEpoch, ByteRange, ClientId, FsError, LockHandle, Tick};
use layout::ObjectId;
use wire::ost::{AllocateMode, Reply, Request, UNDER_MDT};

use crate::failure::Outcome;
use crate::locks::Wish;
use crate::objects::{Change, file_range};
use crate::oss::{Job, Need, Oss, Step};

/// What is to become of it.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// So many bytes.
    Size(u64),
    /// A range reserved, freed or zeroed.
    Range(ByteRange, AllocateMode),
}

/// One change of an object's shape, and by which right.
#[derive(Debug)]
pub(crate) struct Reshape {
    object: ObjectId,
    shape: Shape,
    change: Change,
    /// A lock that is held over what changes; none: the target takes one of its own.
    under: Option<LockHandle>,
    /// The life it is meant for; zero: any.
    life: BootEpoch,
}

impl Reshape {
    /// What is asked, where that can be done.
    pub fn of(request: &Request) -> Result<Reshape, FsError> {
        let (object, shape, ticket, mtime, under, life) = match *request {
            Request::Truncate {
                object,
                size,
                ticket,
                mtime,
                under,
                life,
            } => (object, Shape::Size(size), ticket, mtime, under, life),
            Request::Allocate {
                object,
                range,
                mode,
                ticket,
                mtime,
                under,
                life,
            } => (
                object,
                Shape::Range(range, mode),
                ticket,
                mtime,
                under,
                life,
            ),
            _ => return Err(FsError::NotSupported),
        };
        Ok(Reshape {
            object,
            shape: shape.checked()?,
            change: Change::by(ticket, mtime)?,
            under: Some(under).filter(|under| !matches!(*under, LockHandle(0) | UNDER_MDT)),
            life,
        })
    }
}

impl Shape {
    fn checked(self) -> Result<Shape, FsError> {
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
    fn touches(self, size: u64) -> ByteRange {
        match self {
            Shape::Size(new) => ByteRange::from(new.min(size)),
            Shape::Range(range, AllocateMode::Extend | AllocateMode::Zero) => {
                ByteRange::from(range.start)
            }
            Shape::Range(range, _) => range,
        }
    }
}

impl Oss {
    /// Under a lock held, or as what was done before, at once; else under a lock of the target's
    /// own.
    pub(crate) fn reshape(
        &mut self,
        now: Tick,
        client: ClientId,
        reshape: Reshape,
    ) -> Outcome<Step> {
        if let Shape::Size(size) = reshape.shape {
            file_range(0, size)?;
        }
        self.is_meant_for_this_life(reshape.life)?;
        let object = reshape.object;
        if let Some(under) = reshape.under {
            let touched = reshape.shape.touches(self.objects.size(object)?);
            let wish = Wish::write(object, touched)?;
            return match self.locks.allows(client, under, wish) {
                true => self.reshape_locked(now, &reshape),
                false => Err(FsError::Stale.into()),
            };
        }
        if self.is_redone(now, client, Wish::write(object, ByteRange::ALL)?) {
            return self.reshape_locked(now, &reshape);
        }
        let wish = Wish::write(object, reshape.shape.touches(0))?;
        Ok(Step::Park(Job::Reshape(reshape), Need::Lock(wish)))
    }

    /// What an earlier life of the target did, or the process before of the client, is done once more.
    fn is_redone(&mut self, now: Tick, client: ClientId, wish: Wish) -> bool {
        let again = self.is_recovering() || self.left_behind.contains_key(&client);
        self.writes_for_who_was_before(client, wish)
            || again && self.locks.is_free(now, client, wish)
    }

    /// The lock is there.
    pub(crate) fn reshape_locked(&mut self, now: Tick, reshape: &Reshape) -> Outcome<Step> {
        let Reshape { object, change, .. } = *reshape;
        self.objects.admit(object, change.ticket)?;
        let transno = match reshape.shape {
            Shape::Size(size) => {
                let transno = self.modified(now, 0);
                self.objects.truncate(object, size, change)?;
                transno
            }
            Shape::Range(range, mode) => {
                if mode != AllocateMode::PunchHole {
                    self.objects.admit_growth(object, range)?;
                }
                let transno = self.modified(now, 0);
                self.objects.allocate(object, range, mode, change)?;
                transno
            }
        };
        let attr = self.objects.attr(object)?;
        Ok(Step::Done(Reply::Written { attr }.into(), transno))
    }
}
