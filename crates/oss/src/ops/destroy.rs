//! Removing objects whose file is gone.

use base::{Tick, Timestamp};
use layout::ObjectId;

use crate::failure::Outcome;
use crate::locks;
use crate::oss::Oss;
use crate::step::Step;

impl Oss {
    /// Leaves a tombstone for each, from which on it is gone for everybody; its bytes follow.
    /// Answered when the tombstones are durable: the removal then happens whatever comes, and the
    /// MDT may forget about them.
    pub(crate) fn destroy(
        &mut self,
        now: Tick,
        wall: Timestamp,
        objects: &[(ObjectId, u64)],
    ) -> Outcome<Step> {
        for (object, _) in objects {
            locks::resource_of(*object)?;
        }
        for (object, epoch) in objects {
            self.modified(now, 0);
            self.objects.destroy(*object, *epoch, wall)?;
        }
        Ok(Step::Sync)
    }
}
