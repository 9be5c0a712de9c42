//! The destroy log: objects of removed files, until their OSTs have removed them.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use base::{TargetIndex, Tick, Transno};
use layout::ObjectId;
use storage::KeyRange;

use crate::effect::{Effect, Standing};
use crate::event::Output;
use crate::inquiries::Inquiries;
use crate::keys::{self, Table};
use crate::mutation::Mutation;
use crate::records::Destroy;
use crate::store::{Failure, Store, missing};

/// Objects in one message to an OST.
const OBJECTS_MAX: usize = 1024;
/// Within that time a removed file that is not in use is closed, as a rule: that is told when its bytes are
/// durable.
const CLOSED_WITHIN: Duration = Duration::from_secs(10);

/// The part of the log that is in memory: the records themselves are the list. One message to each OST is
/// under way at a time, so memory does not grow with a large removal.
#[derive(Debug, Default)]
pub(crate) struct DestroyLog {
    /// OSTs that may have records.
    waiting: BTreeSet<TargetIndex>,
    inquiries: Inquiries,
    /// When a file lost its last name last that is, or may be, open.
    orphaned: Option<Tick>,
}

/// What happens to the log.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event<'a> {
    /// Time has passed, or changes have become durable.
    Due,
    /// The OST has removed these objects, durably.
    Destroyed(TargetIndex, &'a [ObjectId]),
    /// The OST could not be reached, or refused.
    Failed(TargetIndex),
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

    /// What is to be done about the event. Changes are to be stored before the next.
    pub fn step(
        &mut self,
        store: &Store,
        at: Standing,
        event: Event<'_>,
    ) -> Result<Vec<Effect>, Failure> {
        match event {
            Event::Due => self.ask(store, at),
            Event::Destroyed(ost, objects) => {
                self.inquiries.end(ost);
                let removed = objects.iter();
                let removed = removed.map(|of| Mutation::RemoveDestroy(ost, of.fid, of.stripe));
                Ok(vec![Effect::Change(removed.collect())])
            }
            Event::Failed(ost) => {
                self.inquiries.fail(at.now, ost);
                Ok(Vec::new())
            }
        }
    }

    /// Asks every OST that has durable records and was not asked.
    fn ask(&mut self, store: &Store, at: Standing) -> Result<Vec<Effect>, Failure> {
        let mut effects = Vec::new();
        for ost in self.waiting.clone() {
            if !self.inquiries.begin(at.now, ost) {
                continue;
            }
            let (objects, rest) = batch(store, ost, at.watermark.committed)?;
            if !rest && objects.is_empty() {
                self.waiting.remove(&ost);
            }
            if objects.is_empty() {
                self.inquiries.end(ost);
                continue;
            }
            effects.push(Effect::Say(Output::Destroy {
                ost,
                objects,
                watermark: at.watermark,
            }));
        }
        Ok(effects)
    }

    /// When an OST is to be asked again.
    pub fn next(&self) -> Option<Tick> {
        self.inquiries.next()
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

#[cfg(test)]
mod tests {
    use base::Fid;

    use super::*;
    use crate::inquiries::RETRY;
    use crate::rig::{said, standing, store_of};

    const OST: TargetIndex = TargetIndex(0);

    fn object(number: u32) -> ObjectId {
        ObjectId {
            fid: Fid::new(Fid::SEQUENCE_FIRST, number),
            stripe: 0,
        }
    }

    /// The object with that number is to be removed since the change with that number.
    fn record(number: u32) -> Mutation {
        let (open_epoch, transno) = (7, Transno(number.into()));
        let destroy = Destroy {
            open_epoch,
            transno,
        };
        Mutation::PutDestroy(OST, object(number).fid, 0, destroy)
    }

    /// What an OST is asked to remove.
    fn asked(log: &mut DestroyLog, store: &Store, at: Standing) -> Vec<Vec<ObjectId>> {
        let effects = log.step(store, at, Event::Due).expect("readable");
        let objects = said(effects).into_iter().map(|output| match output {
            Output::Destroy { objects, .. } => objects.into_iter().map(|(of, _)| of).collect(),
            other => panic!("{other:?}"),
        });
        objects.collect()
    }

    #[test]
    fn an_ost_is_asked_for_what_is_durable_and_once_at_a_time() {
        let store = store_of([2, 3, 9].map(record).to_vec());
        let mut log = DestroyLog::new(&[OST, TargetIndex(1)]);
        let at = standing(0, 5);
        assert_eq!(asked(&mut log, &store, at), [[object(2), object(3)]]);
        assert_eq!(log.len(), 1, "the other OST has none");
        assert!(asked(&mut log, &store, at).is_empty());
        let removed = [object(2), object(3)];
        let effects = log.step(&store, at, Event::Destroyed(OST, &removed));
        let gone = removed.map(|of| Mutation::RemoveDestroy(OST, of.fid, of.stripe));
        assert_eq!(effects.expect("done"), [Effect::Change(gone.to_vec())]);
        let store = store_of(vec![record(9)]);
        assert!(asked(&mut log, &store, at).is_empty() && log.len() == 1);
        assert_eq!(asked(&mut log, &store, standing(0, 9)), [[object(9)]]);
    }

    #[test]
    fn an_ost_that_refused_is_asked_again_in_a_while() {
        let store = store_of(vec![record(2)]);
        let mut log = DestroyLog::new(&[OST]);
        let at = standing(0, 5);
        assert_eq!(asked(&mut log, &store, at).len(), 1);
        let failed = log.step(&store, at, Event::Failed(OST)).expect("noted");
        assert!(failed.is_empty() && asked(&mut log, &store, at).is_empty());
        let due = log.next().expect("again");
        assert_eq!(due, at.now.after(RETRY));
        let later = Standing { now: due, ..at };
        assert_eq!(asked(&mut log, &store, later).len(), 1);
    }

    #[test]
    fn space_is_about_to_come_free_while_a_file_without_a_name_is_open() {
        let mut log = DestroyLog::new(&[]);
        assert!(!log.is_removing(Tick(0)));
        log.note(&[record(2)], Tick(0));
        assert!(log.is_removing(Tick(0)));
    }
}
