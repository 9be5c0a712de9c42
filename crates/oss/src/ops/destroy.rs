//! Removing objects whose file is gone.

use base::{Tick, Timestamp};
use layout::ObjectId;

use crate::failure::Outcome;
use crate::locks;
use crate::oss::{Oss, Step};

impl Oss {
    /// Removes each and leaves a tombstone for it. Answered when that is durable, so that the MDT
    /// may forget about them.
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
            self.modified(now);
            self.objects.destroy(*object, *epoch, wall)?;
        }
        Ok(Step::Sync)
    }
}
