//! Changing where an object has bytes: its size, or what space a range takes.

use base::{ByteRange, ClientId, FsError, Tick};
use wire::ost::AllocateMode;
use wire::shape::Shape;

use crate::failure::Outcome;
use crate::locks::Wish;
use crate::objects::file_range;
use crate::oss::Oss;
use crate::resizing::Resize;
use crate::step::{Job, Need, Step};

impl Oss {
    /// Under a lock held, or as what was done before, at once; else under a lock of the target's
    /// own.
    pub(crate) fn resize(&mut self, now: Tick, client: ClientId, resize: Resize) -> Outcome<Step> {
        if let Shape::Size(size) = resize.shape {
            file_range(0, size)?;
        }
        self.is_meant_for_this_boot(resize.boot_epoch)?;
        let object = resize.object;
        if let Some(under) = resize.under {
            let touched = resize.shape.touches(self.objects.size(object)?);
            let wish = Wish::write(object, touched)?;
            return match self.locks.allows(client, under, wish) {
                true => self.resize_locked(now, &resize),
                false => Err(FsError::Stale.into()),
            };
        }
        if self.is_redone(now, client, Wish::write(object, ByteRange::ALL)?) {
            return self.resize_locked(now, &resize);
        }
        let wish = Wish::write(object, resize.shape.touches(0))?;
        Ok(Step::Park(Job::Resize(resize), Need::Lock(wish)))
    }

    /// What an earlier boot of the target did, or the process before of the client, is done once more.
    fn is_redone(&mut self, now: Tick, client: ClientId, wish: Wish) -> bool {
        let again = self.is_recovering() || self.left_behind.contains_key(&client);
        self.writes_for_who_was_before(client, wish)
            || again && self.locks.is_free(now, client, wish)
    }

    /// The lock is there.
    pub(crate) fn resize_locked(&mut self, now: Tick, resize: &Resize) -> Outcome<Step> {
        let Resize { object, change, .. } = *resize;
        self.objects.admit(object, change.ticket)?;
        let transno = match resize.shape {
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
        Ok(Step::Done(self.changed(attr).into(), transno))
    }
}
