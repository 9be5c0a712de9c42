//! Peer watermarks: the last durable change of this target, which OSTs remember, and the last durable change
//! of each OST, which this target remembers. Each side recognizes an older copy of the other
//! (docs/recovery.md, section 6).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use base::{TargetIndex, Tick, Transno};
use storage::KeyRange;

use crate::keys::{self, Table};
use crate::records::SeenOst;
use crate::store::{Failure, Store, missing};

/// Time between two reports to an OST while this target changes. An older copy that lacks less than this is
/// not recognized.
pub(crate) const SOON: Duration = Duration::from_secs(1);
/// Time between two reports while only the OST may change.
pub(crate) const SELDOM: Duration = Duration::from_secs(60);
/// Time until an OST that could not be reached gets the next report.
pub(crate) const RETRY: Duration = Duration::from_secs(5);

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
pub(crate) struct PeerWatermark {
    pub acknowledged: Acknowledged,
    /// A report is under way.
    pub asked: bool,
    /// No report before this moment.
    pub rests: Tick,
    /// The next report at this moment at the latest.
    pub due: Tick,
}

impl PeerWatermark {
    pub fn of(seen: Transno) -> PeerWatermark {
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

    pub fn next(&self, committed: Transno) -> Tick {
        match self.acknowledged.ours < committed {
            true => self.rests,
            false => self.due,
        }
    }

    pub fn rest(&mut self, now: Tick, (least, most): (Duration, Duration)) {
        self.asked = false;
        (self.rests, self.due) = (now.after(least), now.after(most));
    }
}

/// The watermarks shared with all OSTs.
#[derive(Debug, Default)]
pub(crate) struct PeerWatermarks {
    pub osts: BTreeMap<TargetIndex, PeerWatermark>,
    /// Watermarks of OSTs that are not listed yet.
    pub seen: BTreeMap<TargetIndex, Transno>,
}

impl PeerWatermarks {
    /// Reads the watermarks that an earlier boot stored.
    pub fn open(store: &Store, osts: &[TargetIndex]) -> Result<PeerWatermarks, Failure> {
        let mut watermarks = PeerWatermarks {
            seen: seen(store)?,
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
