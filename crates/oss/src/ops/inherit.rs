//! Locks that outlive the process that was given them: the next process of the mount inherits one.

use base::{ClientId, FsError, Tick};
use dlm::Mode;
use layout::ObjectId;
use wire::ost::{ExtentGrant, Reply};

use crate::failure::Outcome;
use crate::locks::{self, Wish};
use crate::oss::Oss;
use crate::step::Step;

impl Oss {
    /// The strongest lock on the object that the process before had stays when this one is settled. Where it
    /// had none the file may have been its maker's alone: then nobody else has a lock here, and the client
    /// gets one.
    pub(crate) fn inherit(
        &mut self,
        now: Tick,
        client: ClientId,
        object: ObjectId,
    ) -> Outcome<Step> {
        let wish = Wish::all(object, Mode::PW)?;
        let grant = match self.take_left_behind(client, wish) {
            Some(grant) => grant,
            // In a window locks are nobody's yet.
            None if !self.left_behind.contains_key(&client) || self.recovery.window.is_open() => {
                return Err(FsError::Stale.into());
            }
            None => {
                let grant = self.locks.try_grant(now, client, wish);
                locks::told(&grant.ok_or(FsError::Stale)?)
            }
        };
        let attr = self.objects.attr(object)?;
        Step::answer(Reply::Locked { grant, attr })
    }

    fn take_left_behind(&mut self, client: ClientId, wish: Wish) -> Option<ExtentGrant> {
        let left = self.left_behind.get_mut(&client)?;
        let table = self.locks.table();
        let held = left
            .iter()
            .filter_map(|handle| table.holds(client, *handle));
        let caches = held.filter(|lock| lock.resource == wish.resource && lock.mode >= Mode::PR);
        let lock = caches.max_by_key(|lock| lock.mode)?;
        let grant = ExtentGrant {
            handle: lock.handle,
            object: locks::object_of(lock.resource),
            mode: lock.mode.index() as u8,
            range: locks::range_of(lock.cover),
        };
        left.retain(|handle| *handle != grant.handle);
        Some(grant)
    }
}
