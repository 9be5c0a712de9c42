//! Changing where an object has bytes: its size, or what space a range takes.

use base::{ByteRange, ClientId, FsError, Tick};
use wire::ost::{AllocateMode, Reply};

use crate::failure::Outcome;
use crate::locks::Wish;
use crate::objects::file_range;
use crate::oss::Oss;
use crate::reshaping::{Reshape, Shape};
use crate::step::{Job, Need, Step};

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
