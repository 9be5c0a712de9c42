//! What this client knows of its servers: boot epochs, durability and space. docs/recovery.md says what of an
//! earlier boot is void.

use std::collections::BTreeMap;
use std::time::Duration;

use base::{BootEpoch, TargetIndex, Tick, Transno};
use wire::mdt::Space;

use crate::cache::stamps::{AskedExtent, Mark};
use crate::executor::{Oneshot, WaitList};

/// For how long it counts that an OST has plenty of space, while others may fill it.
const PLENTY_AGE_MAX: Duration = Duration::from_secs(10);
/// The same of one that is soon full.
const SCARCE_AGE_MAX: Duration = Duration::from_millis(500);

/// All servers.
#[derive(Default)]
pub(crate) struct Servers {
    mdt: Mdt,
    osts: BTreeMap<TargetIndex, Ost>,
    /// What the servers said of space, and when they were asked.
    space: Option<(Tick, Space)>,
    /// Calls that look again, at the next tick, whether a server is away.
    moments: WaitList,
}

/// The MDT.
#[derive(Default)]
struct Mdt {
    epoch: BootEpoch,
    /// The cache's stamp when that boot began for this client.
    epoch_stamp: u64,
    /// The stamp when the MDT last gave up on this client.
    evicted: u64,
}

/// One OST.
#[derive(Default)]
struct Ost {
    /// Zero: none was met yet.
    epoch: BootEpoch,
    /// The cache's stamp when that boot began for this client.
    epoch_stamp: u64,
    /// Up to where the OST has said that its changes are durable. A new boot goes on above that.
    durable: Option<Transno>,
    /// One past the last byte that an object can have.
    size_limit: Option<u64>,
    /// How many bytes may be unsent, and when it was asked for that.
    unsent_max: Option<(Tick, u64)>,
}

impl Servers {
    fn ost(&mut self, target: TargetIndex) -> &mut Ost {
        self.osts.entry(target).or_default()
    }

    /// The boot epoch of the MDT.
    pub fn mdt_epoch(&self) -> BootEpoch {
        self.mdt.epoch
    }

    /// The MDT is in this boot epoch, or in a later one that is known already.
    pub fn mdt_connected(&mut self, epoch: BootEpoch) {
        self.mdt.epoch = self.mdt.epoch.max(epoch);
    }

    /// The MDT has restarted.
    pub fn mdt_restarted(&mut self, epoch: BootEpoch) {
        self.mdt.epoch = epoch;
    }

    /// What the MDT was asked before `stamp` is void.
    pub fn void_answers(&mut self, stamp: u64) {
        self.mdt.epoch_stamp = stamp;
    }

    /// The MDT has given up on this client at `stamp`: others may have changed since what it held.
    pub fn void_changes(&mut self, stamp: u64) {
        self.mdt.evicted = stamp;
    }

    /// What was changed here by then was not lost by an eviction since.
    pub fn may_report(&self, mark: Mark) -> bool {
        mark.asked >= self.mdt.evicted
    }

    /// What was asked at `mark` was asked of the boot that the MDT has now.
    pub fn is_of_this_boot(&self, mark: Mark) -> bool {
        mark.asked >= self.mdt.epoch_stamp
    }

    /// Locks on bytes that the OST was asked for before `stamp` are void.
    pub fn void_extents(&mut self, target: TargetIndex, stamp: u64) {
        self.ost(target).epoch_stamp = stamp;
    }

    /// The lock was asked for in the OST's present boot.
    pub fn is_of_this_boot_of(&self, target: TargetIndex, asked: AskedExtent) -> bool {
        let ost = self.osts.get(&target);
        ost.is_none_or(|ost| asked.stamp >= ost.epoch_stamp)
    }

    /// Bytes are sent to this boot of the OST from now on, which may be in another place.
    pub fn begin_epoch(&mut self, target: TargetIndex, epoch: BootEpoch) {
        let ost = self.ost(target);
        ost.epoch = epoch;
        ost.size_limit = None;
        ost.unsent_max = None;
    }

    /// The boot epoch of the OST; zero: none was met yet, so none before it can have had anything.
    pub fn boot_epoch_of(&self, target: TargetIndex) -> BootEpoch {
        let ost = self.osts.get(&target);
        ost.map_or(BootEpoch(0), |ost| ost.epoch)
    }

    /// Everything up to `last_committed` is durable at the OST; each has numbers of its own.
    pub fn committed(&mut self, target: TargetIndex, last_committed: Transno) {
        let ost = self.ost(target);
        ost.durable = ost.durable.max(Some(last_committed));
    }

    /// Up to where the OST has said that its changes are durable.
    pub fn durable(&self, target: TargetIndex) -> Option<Transno> {
        self.osts.get(&target)?.durable
    }

    /// One past the last byte that an object of the OST can have, if it was asked.
    pub fn size_limit(&self, target: TargetIndex) -> Option<u64> {
        self.osts.get(&target)?.size_limit
    }

    /// The OST was asked for that.
    pub fn learn_size_limit(&mut self, target: TargetIndex, limit: u64) {
        self.ost(target).size_limit = Some(limit);
    }

    /// What the OST has said last of how many bytes may be unsent, however long ago that is.
    pub fn unsent_max_known(&self, target: TargetIndex) -> Option<u64> {
        self.osts.get(&target)?.unsent_max.map(|(_, max)| max)
    }

    /// How many bytes may be unsent, if the OST has said so lately. With `plenty` that counts for longer.
    pub fn unsent_max(&self, target: TargetIndex, now: Tick, plenty: u64) -> Option<u64> {
        let (asked, max) = self.osts.get(&target)?.unsent_max?;
        let age_max = match max >= plenty {
            true => PLENTY_AGE_MAX,
            false => SCARCE_AGE_MAX,
        };
        (now.since(asked) < age_max).then_some(max)
    }

    /// The OST says so, having been asked at `asked`.
    pub fn learn_unsent_max(&mut self, target: TargetIndex, asked: Tick, max: u64) {
        let known = &mut self.ost(target).unsent_max;
        *known = known.filter(|(at, _)| *at > asked).or(Some((asked, max)));
    }

    /// What the servers said of space, if they were asked within `age_max`.
    pub fn space(&self, now: Tick, age_max: Duration) -> Option<Space> {
        let recent = self.space.filter(|(asked, _)| now.since(*asked) < age_max);
        recent.map(|(_, space)| space)
    }

    /// What the servers say of space, having been asked at `now`.
    pub fn learn_space(&mut self, now: Tick, space: Space) {
        self.space = Some((now, space));
    }

    /// Something was changed since that takes space or frees some.
    pub fn forget_space(&mut self) {
        self.space = None;
    }

    /// Resolves at the next tick.
    pub fn wait_a_moment(&mut self) -> Oneshot<()> {
        self.moments.wait()
    }

    /// A tick has come.
    pub fn tick(&mut self) {
        self.moments.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use base::Fid;

    use super::*;

    const OST: TargetIndex = TargetIndex(3);

    fn mark(asked: u64) -> Mark {
        Mark {
            dir: Fid::NONE,
            asked,
            changes: 0,
        }
    }

    #[test]
    fn what_was_asked_before_a_restart_is_not_of_this_boot() {
        let mut servers = Servers::default();
        assert!(servers.is_of_this_boot(mark(0)) && servers.may_report(mark(0)));
        servers.void_answers(5);
        assert!(!servers.is_of_this_boot(mark(4)) && servers.is_of_this_boot(mark(5)));
        assert!(servers.may_report(mark(4)), "a restart loses no change");
        servers.void_changes(6);
        assert!(!servers.may_report(mark(5)) && servers.may_report(mark(6)));
        servers.mdt_connected(BootEpoch(3));
        servers.mdt_connected(BootEpoch(2));
        assert_eq!(servers.mdt_epoch(), BootEpoch(3));
    }

    #[test]
    fn each_ost_has_an_epoch_of_its_own() {
        let mut servers = Servers::default();
        let asked = |stamp| AskedExtent {
            written: Transno(0),
            stamp,
        };
        servers.void_extents(OST, 5);
        assert!(!servers.is_of_this_boot_of(OST, asked(4)));
        assert!(servers.is_of_this_boot_of(OST, asked(5)));
        assert!(servers.is_of_this_boot_of(TargetIndex(0), asked(0)));
        servers.begin_epoch(OST, BootEpoch(2));
        assert_eq!(servers.boot_epoch_of(OST), BootEpoch(2));
        assert_eq!(servers.boot_epoch_of(TargetIndex(0)), BootEpoch(0));
    }

    #[test]
    fn durability_only_grows_and_a_new_boot_may_have_another_limit() {
        let mut servers = Servers::default();
        assert_eq!(servers.durable(OST), None);
        servers.committed(OST, Transno(7));
        servers.committed(OST, Transno(5));
        servers.learn_size_limit(OST, 100);
        servers.begin_epoch(OST, BootEpoch(2));
        assert_eq!(servers.durable(OST), Some(Transno(7)));
        assert_eq!(servers.size_limit(OST), None);
    }

    #[test]
    fn what_an_ost_has_space_for_counts_for_a_while_for_longer_where_that_is_much() {
        let (mut servers, plenty) = (Servers::default(), 100);
        assert_eq!(servers.unsent_max(OST, Tick(0), plenty), None);
        let at = |age: Duration| Tick(5).after(age);
        servers.learn_unsent_max(OST, Tick(5), 100);
        servers.learn_unsent_max(OST, Tick(4), 7);
        assert_eq!(
            servers.unsent_max(OST, at(SCARCE_AGE_MAX), plenty),
            Some(100)
        );
        assert_eq!(servers.unsent_max(OST, at(PLENTY_AGE_MAX), plenty), None);
        servers.learn_unsent_max(OST, Tick(5), 99);
        assert_eq!(servers.unsent_max(OST, Tick(6), plenty), Some(99));
        assert_eq!(servers.unsent_max(OST, at(SCARCE_AGE_MAX), plenty), None);
        assert_eq!(servers.unsent_max_known(OST), Some(99));
    }

    #[test]
    fn what_was_said_of_space_counts_for_a_while() {
        let (mut servers, age) = (Servers::default(), Duration::from_nanos(10));
        servers.learn_space(Tick(5), Space::default());
        assert!(servers.space(Tick(14), age).is_some());
        assert!(servers.space(Tick(15), age).is_none());
        servers.forget_space();
        assert!(servers.space(Tick(5), age).is_none());
    }
}
