//! The destroy log: objects of removed files, until their OSTs have removed them.
//!
//! Records are the list; in memory is only which OST has some, and which was asked. One message per
//! OST is under way, so memory does not grow with a large removal.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use base::{TargetIndex, Tick, Timestamp, Transno};
use layout::ObjectId;
use storage::KeyRange;

use crate::core::Mds;
use crate::event::Output;
use crate::keys::{self, Table};
use crate::mutation::Mutation;
use crate::records::Destroy;
use crate::store::{Failure, Store, missing};

/// Objects in one message to an OST.
const OBJECTS_MAX: usize = 1024;
/// Within that time a removed file that is not in use is closed, as a rule: that is told when its bytes are
/// durable.
const CLOSED_WITHIN: Duration = Duration::from_secs(10);
/// After how long an OST that could not be reached is asked again.
const RETRY: Duration = Duration::from_secs(5);

/// What is known of the log without reading it.
#[derive(Debug, Default)]
pub(crate) struct DestroyLog {
    /// OSTs that may have records.
    waiting: BTreeSet<TargetIndex>,
    /// OSTs that were asked and have not answered.
    asked: BTreeSet<TargetIndex>,
    /// OSTs to ask again, and when.
    again: BTreeMap<TargetIndex, Tick>,
    /// When a file lost its last name last that is, or may be, open.
    orphaned: Option<Tick>,
}

impl DestroyLog {
    /// Nothing was asked yet; each of `osts` may have records from an earlier life.
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
    fn due(&self, now: Tick) -> Vec<TargetIndex> {
        let free = |ost: &&TargetIndex| {
            !self.asked.contains(ost) && self.again.get(ost).is_none_or(|at| *at <= now)
        };
        self.waiting.iter().filter(free).copied().collect()
    }

    fn next(&self) -> Option<Tick> {
        self.again.values().min().copied()
    }
}

impl Mds {
    /// Asks every OST that has durable records and was not asked.
    pub(crate) fn send_destroys(&mut self, out: &mut Vec<Output>) {
        for ost in self.destroys.due(self.now) {
            self.destroys.again.remove(&ost);
            match batch(&self.store, ost, self.committed) {
                Err(Failure::Broken(cause)) => return self.halt(cause, out),
                Err(Failure::Refused(_)) => {}
                Ok((objects, rest)) => {
                    if !rest && objects.is_empty() {
                        self.destroys.waiting.remove(&ost);
                    }
                    if !objects.is_empty() {
                        self.destroys.asked.insert(ost);
                        let progress = self.progress();
                        out.push(Output::Destroy {
                            ost,
                            objects,
                            progress,
                        });
                    }
                }
            }
        }
    }

    /// The OST has removed these, durably.
    pub fn destroyed(
        &mut self,
        now: Tick,
        wall: Timestamp,
        ost: TargetIndex,
        objects: &[ObjectId],
        out: &mut Vec<Output>,
    ) {
        self.set_time(now, wall);
        self.destroys.asked.remove(&ost);
        if self.halted {
            return;
        }
        let done = self.upkeep(|txn, _| {
            for object in objects {
                txn.change(Mutation::RemoveDestroy(ost, object.fid, object.stripe));
            }
            Ok(())
        });
        match done {
            Err(Failure::Broken(cause)) => self.halt(cause, out),
            _ => self.send_destroys(out),
        }
    }

    /// The OST could not be reached or refused: it is asked again in a while.
    pub fn destroy_failed(&mut self, now: Tick, ost: TargetIndex) {
        self.destroys.asked.remove(&ost);
        self.destroys.again.insert(ost, now.after(RETRY));
    }

    pub(crate) fn next_destroy(&self) -> Option<Tick> {
        self.destroys.next()
    }
}

/// Objects to remove now, and whether there are more that must wait.
fn batch(
    store: &Store,
    ost: TargetIndex,
    committed: Transno,
) -> Result<(Vec<(ObjectId, u64)>, bool), Failure> {
    let (mut objects, mut rest) = (Vec::new(), false);
    let range = KeyRange::prefix(&ost.0.to_be_bytes());
    store.scan(Table::Destroys, &range, |key, record: Destroy| {
        let (_, fid, stripe) = keys::parse_destroy(key).ok_or_else(|| missing("object", "OST"))?;
        if record.transno > committed {
            rest = true;
            return Ok(ControlFlow::Continue(()));
        }
        objects.push((ObjectId { fid, stripe }, record.open_epoch));
        let full = objects.len() >= OBJECTS_MAX;
        Ok(if full {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        })
    })?;
    Ok((objects, rest))
}
