//! Inquiries at OSTs: an OST has one of a kind to answer at a time. An OST that could not be reached, or
//! refused, is asked again in a while.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::{TargetIndex, Tick};

/// After how long an OST that could not be reached is asked again.
pub(crate) const RETRY: Duration = Duration::from_secs(5);

/// The inquiries of one kind.
#[derive(Debug, Default)]
pub(crate) struct Inquiries {
    /// OSTs that were asked and have not answered.
    under_way: BTreeSet<TargetIndex>,
    /// OSTs to ask again, and when.
    again: BTreeMap<TargetIndex, Tick>,
}

impl Inquiries {
    /// The earliest moment at which the OST can be asked. None: it has not answered yet.
    pub fn free_at(&self, ost: TargetIndex) -> Option<Tick> {
        let again = self.again.get(&ost).copied().unwrap_or_default();
        (!self.under_way.contains(&ost)).then_some(again)
    }

    /// Asks the OST. False: it cannot be asked now.
    pub fn begin(&mut self, now: Tick, ost: TargetIndex) -> bool {
        let is_free = self.free_at(ost).is_some_and(|at| at <= now);
        if is_free {
            self.under_way.insert(ost);
            self.again.remove(&ost);
        }
        is_free
    }

    /// The OST has answered, or there was nothing to ask.
    pub fn end(&mut self, ost: TargetIndex) {
        self.under_way.remove(&ost);
    }

    /// The OST could not be reached, or refused.
    pub fn fail(&mut self, now: Tick, ost: TargetIndex) {
        self.end(ost);
        self.again.insert(ost, now.after(RETRY));
    }

    /// When an OST that failed is to be asked again.
    pub fn next(&self) -> Option<Tick> {
        self.again.values().min().copied()
    }
}
