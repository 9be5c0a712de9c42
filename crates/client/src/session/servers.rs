//! What this client knows of its servers: their lives, durability and space. What of an earlier life is void
//! says docs/recovery.md.

use std::collections::BTreeMap;
use std::time::Duration;

use base::{BootEpoch, TargetIndex, Tick, Transno};
use wire::mdt::Space;

use crate::cache::stamps::{AskedExtent, Mark};
use crate::executor::{Oneshot, WaitList};

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
    life: BootEpoch,
    /// The cache's stamp when that life began for this client.
    voided: u64,
    /// The stamp when the MDT last gave up on this client.
    evicted: u64,
}

/// One OST.
#[derive(Default)]
struct Ost {
    /// Zero: none was met yet.
    life: BootEpoch,
    /// The cache's stamp when that life began for this client.
    voided: u64,
    /// Up to where the OST has said that its changes are durable. A new life goes on above that.
    durable: Option<Transno>,
    /// One past the last byte that an object can have.
    size_limit: Option<u64>,
}

impl Servers {
    fn ost(&mut self, target: TargetIndex) -> &mut Ost {
        self.osts.entry(target).or_default()
    }

    /// The life that the MDT lives.
    pub fn mdt_life(&self) -> BootEpoch {
        self.mdt.life
    }

    /// The MDT lives this life, or a later one that is known already.
    pub fn mdt_connected(&mut self, life: BootEpoch) {
        self.mdt.life = self.mdt.life.max(life);
    }

    /// The MDT lives a new life.
    pub fn mdt_restarted(&mut self, life: BootEpoch) {
        self.mdt.life = life;
    }

    /// What the MDT was asked before `stamp` is void.
    pub fn void_answers(&mut self, stamp: u64) {
        self.mdt.voided = stamp;
    }

    /// The MDT has given up on this client at `stamp`: others may have changed since what it held.
    pub fn void_changes(&mut self, stamp: u64) {
        self.mdt.evicted = stamp;
    }

    /// What was changed here by then was not lost by an eviction since.
    pub fn may_report(&self, mark: Mark) -> bool {
        mark.asked >= self.mdt.evicted
    }

    /// What was asked at `mark` was asked of the life that the MDT has now.
    pub fn is_of_this_life(&self, mark: Mark) -> bool {
        mark.asked >= self.mdt.voided
    }

    /// Locks on bytes that the OST was asked for before `stamp` are void.
    pub fn void_extents(&mut self, target: TargetIndex, stamp: u64) {
        self.ost(target).voided = stamp;
    }

    /// The lock was asked for in the OST's present life.
    pub fn is_of_this_life_of(&self, target: TargetIndex, asked: AskedExtent) -> bool {
        let ost = self.osts.get(&target);
        ost.is_none_or(|ost| asked.stamp >= ost.voided)
    }

    /// Bytes are sent to this life of the OST from now on, which may be in another place.
    pub fn begin_life(&mut self, target: TargetIndex, life: BootEpoch) {
        let ost = self.ost(target);
        ost.life = life;
        ost.size_limit = None;
    }

    /// The life that the OST lives; zero: none was met yet, so none before it can have had anything.
    pub fn life_of(&self, target: TargetIndex) -> BootEpoch {
        let ost = self.osts.get(&target);
        ost.map_or(BootEpoch(0), |ost| ost.life)
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
    fn what_was_asked_before_a_restart_is_not_of_this_life() {
        let mut servers = Servers::default();
        assert!(servers.is_of_this_life(mark(0)) && servers.may_report(mark(0)));
        servers.void_answers(5);
        assert!(!servers.is_of_this_life(mark(4)) && servers.is_of_this_life(mark(5)));
        assert!(servers.may_report(mark(4)), "a restart loses no change");
        servers.void_changes(6);
        assert!(!servers.may_report(mark(5)) && servers.may_report(mark(6)));
        servers.mdt_connected(BootEpoch(3));
        servers.mdt_connected(BootEpoch(2));
        assert_eq!(servers.mdt_life(), BootEpoch(3));
    }

    #[test]
    fn each_ost_has_a_life_of_its_own() {
        let mut servers = Servers::default();
        let asked = |stamp| AskedExtent {
            written: Transno(0),
            stamp,
        };
        servers.void_extents(OST, 5);
        assert!(!servers.is_of_this_life_of(OST, asked(4)));
        assert!(servers.is_of_this_life_of(OST, asked(5)));
        assert!(servers.is_of_this_life_of(TargetIndex(0), asked(0)));
        servers.begin_life(OST, BootEpoch(2));
        assert_eq!(servers.life_of(OST), BootEpoch(2));
        assert_eq!(servers.life_of(TargetIndex(0)), BootEpoch(0));
    }

    #[test]
    fn durability_only_grows_and_a_new_life_may_have_another_limit() {
        let mut servers = Servers::default();
        assert_eq!(servers.durable(OST), None);
        servers.committed(OST, Transno(7));
        servers.committed(OST, Transno(5));
        servers.learn_size_limit(OST, 100);
        servers.begin_life(OST, BootEpoch(2));
        assert_eq!(servers.durable(OST), Some(Transno(7)));
        assert_eq!(servers.size_limit(OST), None);
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
