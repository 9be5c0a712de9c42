//! Peer watermarks: the last durable change of this target, which OSTs remember, and the last durable change
//! of each OST, which this target remembers. Each side recognizes an older copy of the other
//! (docs/recovery.md, section 6).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use base::{TargetIndex, Tick, Timestamp, Transno};
use storage::KeyRange;
use wire::ost::Watermark;

use crate::effect::{Effect, Standing};
use crate::event::Output;
use crate::inquiries::RETRY;
use crate::keys::{self, Table};
use crate::mutation::Mutation;
use crate::records::SeenOst;
use crate::store::{Failure, Store, missing};

/// Time between two reports to an OST while this target changes. An older copy that lacks less than this is
/// not recognized.
const SOON: Duration = Duration::from_secs(1);
/// Time between two reports while only the OST may change.
const SELDOM: Duration = Duration::from_secs(60);

/// The watermarks that an OST and this target acknowledged to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledged {
    /// The last durable change of this target.
    pub ours: Transno,
    /// That of the OST.
    pub committed: Transno,
}

/// The watermarks shared with one OST.
#[derive(Debug)]
struct PeerWatermark {
    acknowledged: Acknowledged,
    /// A report is under way.
    asked: bool,
    /// No report before this moment.
    rests: Tick,
    /// The next report at this moment at the latest.
    due: Tick,
}

impl PeerWatermark {
    fn of(seen: Transno) -> PeerWatermark {
        PeerWatermark {
            acknowledged: Acknowledged {
                ours: Transno(0),
                committed: seen,
            },
            asked: false,
            rests: Tick::default(),
            due: Tick::default(),
        }
    }

    fn next(&self, committed: Transno) -> Tick {
        match self.acknowledged.ours < committed {
            true => self.rests,
            false => self.due,
        }
    }

    fn rest(&mut self, now: Tick, (least, most): (Duration, Duration)) {
        self.asked = false;
        (self.rests, self.due) = (now.after(least), now.after(most));
    }
}

/// The watermarks shared with all OSTs.
#[derive(Debug, Default)]
pub(crate) struct PeerWatermarks {
    osts: BTreeMap<TargetIndex, PeerWatermark>,
    /// Watermarks of OSTs that are not listed yet.
    seen: BTreeMap<TargetIndex, Transno>,
    /// The last change of the boots before.
    begun: Transno,
    /// When this boot first told how far it has come.
    born: Option<Timestamp>,
}

/// What happens to the watermarks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    /// Time has passed, or changes have become durable.
    Due,
    /// The OST has acknowledged the report, with its own watermark.
    Heard(TargetIndex, Acknowledged),
    /// The OST could not be reached, or refused. The next report follows in a while.
    Failed(TargetIndex),
}

impl PeerWatermarks {
    /// Reads the watermarks that an earlier boot stored, `begun` being its last change.
    pub fn open(
        store: &Store,
        osts: &[TargetIndex],
        begun: Transno,
    ) -> Result<PeerWatermarks, Failure> {
        let mut watermarks = PeerWatermarks {
            seen: seen(store)?,
            begun,
            ..PeerWatermarks::default()
        };
        watermarks.add_osts(osts);
        Ok(watermarks)
    }

    /// Adds OSTs.
    pub fn add_osts(&mut self, osts: &[TargetIndex]) {
        for ost in osts {
            let seen = self.seen.get(ost).copied().unwrap_or_default();
            self.osts.entry(*ost).or_insert(PeerWatermark::of(seen));
        }
    }

    /// The OSTs have new addresses: each gets a report at once.
    pub fn hurry(&mut self) {
        for watermark in self.osts.values_mut() {
            (watermark.rests, watermark.due) = (Tick::default(), Tick::default());
        }
    }

    /// The last change of the boots before.
    pub fn begun(&self) -> Transno {
        self.begun
    }

    /// The watermark of this target, which has come as far as `committed`.
    pub fn own(&mut self, wall: Timestamp, committed: Transno) -> Watermark {
        Watermark {
            epoch_stamp: *self.born.get_or_insert(wall),
            begun: self.begun,
            committed,
        }
    }

    /// What is to be done about the event.
    pub fn step(&mut self, at: Standing, event: Event) -> Vec<Effect> {
        match event {
            Event::Due => self.report(at),
            Event::Heard(ost, acknowledged) => {
                let Some(peer) = self.osts.get_mut(&ost) else {
                    return Vec::new();
                };
                let committed = acknowledged.committed;
                let is_news = committed > peer.acknowledged.committed;
                peer.acknowledged = acknowledged;
                peer.rest(at.now, (SOON, SELDOM));
                let note = || Effect::Change(vec![Mutation::PutOst(ost, SeenOst { committed })]);
                is_news.then(note).into_iter().collect()
            }
            Event::Failed(ost) => {
                if let Some(peer) = self.osts.get_mut(&ost) {
                    peer.rest(at.now, (RETRY, RETRY));
                }
                Vec::new()
            }
        }
    }

    /// Sends a report to every OST that is due.
    fn report(&mut self, at: Standing) -> Vec<Effect> {
        let mut effects = Vec::new();
        for (ost, peer) in &mut self.osts {
            if !peer.asked && peer.next(at.watermark.committed) <= at.now {
                peer.asked = true;
                effects.push(Effect::Say(Output::Watermark {
                    ost: *ost,
                    watermark: at.watermark,
                    seen: peer.acknowledged.committed,
                }));
            }
        }
        effects
    }

    /// When a report is due.
    pub fn next(&self, committed: Transno) -> Option<Tick> {
        let free = self.osts.values().filter(|ost| !ost.asked);
        free.map(|ost| ost.next(committed)).min()
    }
}

/// The stored watermark of each OST.
pub fn seen(store: &Store) -> Result<BTreeMap<TargetIndex, Transno>, Failure> {
    let mut seen = BTreeMap::new();
    store.scan(Table::Osts, &KeyRange::all(), |key, record: SeenOst| {
        let ost = keys::parse_ost(key).ok_or_else(|| missing("OST", "MDT"))?;
        seen.insert(ost, record.committed);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::{said, standing, store_of};

    const OST: TargetIndex = TargetIndex(0);

    fn heard(ours: u64, committed: u64) -> Event {
        let acknowledged = Acknowledged {
            ours: Transno(ours),
            committed: Transno(committed),
        };
        Event::Heard(OST, acknowledged)
    }

    fn reports(watermarks: &mut PeerWatermarks, at: Standing) -> usize {
        said(watermarks.step(at, Event::Due)).len()
    }

    #[test]
    fn an_ost_hears_of_changes_soon_and_of_none_seldom() {
        let store = store_of(Vec::new());
        let mut watermarks = PeerWatermarks::open(&store, &[OST], Transno(4)).expect("readable");
        let at = standing(0, 5);
        assert_eq!([0, 1].map(|_| reports(&mut watermarks, at)), [1, 0]);
        watermarks.step(at, heard(5, 0));
        assert_eq!(watermarks.next(Transno(5)), Some(at.now.after(SELDOM)));
        assert_eq!(watermarks.next(Transno(6)), Some(at.now.after(SOON)));
        assert_eq!(reports(&mut watermarks, standing(1, 6)), 1);
        watermarks.step(standing(1, 6), Event::Failed(OST));
        let again = standing(1, 6).now.after(RETRY);
        assert_eq!(watermarks.next(Transno(6)), Some(again));
        watermarks.hurry();
        assert_eq!(reports(&mut watermarks, standing(1, 6)), 1);
    }

    #[test]
    fn what_an_ost_says_is_stored_once_and_known_to_the_next_boot() {
        let store = store_of(Vec::new());
        let mut watermarks = PeerWatermarks::open(&store, &[OST], Transno(4)).expect("readable");
        let at = standing(0, 5);
        let committed = Transno(8);
        let note = Mutation::PutOst(OST, SeenOst { committed });
        assert_eq!(
            watermarks.step(at, heard(5, 8)),
            [Effect::Change(vec![note.clone()])]
        );
        assert!(watermarks.step(at, heard(5, 8)).is_empty());
        let store = store_of(vec![note]);
        let mut watermarks = PeerWatermarks::open(&store, &[OST], Transno(4)).expect("readable");
        match &said(watermarks.step(at, Event::Due))[..] {
            [Output::Watermark { seen, .. }] => assert_eq!(*seen, committed),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_boot_is_stamped_when_it_first_tells_how_far_it_is() {
        let mut watermarks = PeerWatermarks::default();
        let at = |secs| Timestamp { secs, nanos: 0 };
        let [first, second] = [7, 9].map(|secs| watermarks.own(at(secs), Transno(5)));
        assert_eq!((first.epoch_stamp, second.epoch_stamp), (at(7), at(7)));
    }
}
