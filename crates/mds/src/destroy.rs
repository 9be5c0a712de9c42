//! The destroy log: objects of removed files, until their OSTs have removed them.
//!
//! Records are the list; in memory is only which OST has some, and which was asked. One message per
//! OST is under way, so memory does not grow with a large removal.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::{TargetIndex, Tick};

use crate::mutation::Mutation;

/// Objects in one message to an OST.
pub(crate) const OBJECTS_MAX: usize = 1024;
/// Within that time a removed file that is not in use is closed, as a rule: that is told when its bytes are
/// durable.
pub(crate) const CLOSED_WITHIN: Duration = Duration::from_secs(10);
/// After how long an OST that could not be reached is asked again.
pub(crate) const RETRY: Duration = Duration::from_secs(5);

/// What is known of the log without reading it.
#[derive(Debug, Default)]
pub(crate) struct DestroyLog {
    /// OSTs that may have records.
    pub waiting: BTreeSet<TargetIndex>,
    /// OSTs that were asked and have not answered.
    pub asked: BTreeSet<TargetIndex>,
    /// OSTs to ask again, and when.
    pub again: BTreeMap<TargetIndex, Tick>,
    /// When a file lost its last name last that is, or may be, open.
    pub orphaned: Option<Tick>,
}

impl DestroyLog {
    /// Nothing was asked yet; each of `osts` may have records from an earlier boot.
    pub fn new(osts: &[TargetIndex]) -> DestroyLog {
        let waiting = osts.iter().copied().collect();
        DestroyLog {
            waiting,
            ..DestroyLog::default()
        }
    }

    /// There are these OSTs too.
    pub fn add_osts(&mut self, osts: &[TargetIndex]) {
        self.waiting.extend(osts);
    }

    /// `mutations` are about to be stored.
    pub fn note(&mut self, mutations: &[Mutation], now: Tick) {
        for mutation in mutations {
            match mutation {
                Mutation::PutDestroy(ost, ..) => drop(self.waiting.insert(*ost)),
                Mutation::PutOrphan(..) => self.orphaned = Some(now),
                _ => {}
            }
        }
    }

    /// Space of removed files is about to come free. OSTs have something to remove, or may have in
    /// a moment, when it is told that a file without a name is closed.
    pub fn is_removing(&self, now: Tick) -> bool {
        let is_recent = |orphaned: Tick| now.since(orphaned) < CLOSED_WITHIN;
        !self.waiting.is_empty() || self.orphaned.is_some_and(is_recent)
    }

    /// OSTs that have, or may have, something to remove.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The OSTs that can be asked now.
    pub fn due(&self, now: Tick) -> Vec<TargetIndex> {
        let free = |ost: &&TargetIndex| {
            !self.asked.contains(ost) && self.again.get(ost).is_none_or(|at| *at <= now)
        };
        self.waiting.iter().filter(free).copied().collect()
    }

    pub fn next(&self) -> Option<Tick> {
        self.again.values().min().copied()
    }
}
