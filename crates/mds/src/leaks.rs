//! The search for leaked objects: objects of a file that a crash took from this target, and that its client
//! did not make again. Each OST lists the objects of that client's sequences, and those without a file are
//! removed (docs/recovery.md, section 6).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use base::{Fid, TargetIndex, Tick};
use layout::ObjectId;
use storage::KeyRange;

use crate::effect::{Effect, Standing};
use crate::event::Output;
use crate::fsck::objects::{Claim, claim};
use crate::inquiries::Inquiries;
use crate::keys::{self, ClientUuid, Table};
use crate::mutation::Mutation;
use crate::records::{Destroy, NO_CLIENT, SequenceOwner};
use crate::store::{Failure, Store, missing};
use crate::txn::Txn;

/// After how long an OST is asked for the second time.
const SOON: Duration = Duration::from_secs(5);
/// By how much longer it takes each time.
const SELDOM: u32 = 4;
/// The longest pause of a search. It ends after half an hour, far longer than a client that can reach an OST
/// keeps unwritten data from it.
const LATE: Duration = Duration::from_secs(3600);

/// What a client whose sequences end may have made, and the target not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MayLack {
    /// Nothing.
    Nothing,
    /// Files: it was waited for since the restart, and did not make them again.
    Files,
}

/// A sequence is nobody's any more. Where a repair was in doubt about objects of it, it is left to
/// nobody in particular, so that they stay.
pub(crate) fn end_sequence(
    txn: &mut Txn<'_>,
    sequence: u64,
    owner: ClientUuid,
    lacks: MayLack,
) -> Result<(), Failure> {
    if txn
        .store()
        .contains(Table::LeakSearches, &keys::sequence(sequence))?
    {
        let nobody = SequenceOwner { client: NO_CLIENT };
        txn.change(Mutation::RemoveLeakSearch(sequence));
        txn.change(Mutation::PutSequence(sequence, nobody));
        return Ok(());
    }
    txn.change(Mutation::RemoveSequence(sequence));
    if lacks == MayLack::Files {
        txn.change(Mutation::PutLeakSearch(
            sequence,
            SequenceOwner { client: owner },
        ));
    }
    Ok(())
}

/// Of one sequence at one OST.
#[derive(Debug)]
struct Search {
    /// Where it goes on.
    from: ObjectId,
    /// With those that lost their record.
    unrecorded: bool,
    /// When.
    due: Tick,
    /// How long it rests when it has come to the end.
    rest: Duration,
}

impl Search {
    fn new(sequence: u64) -> Search {
        Search {
            from: first_of(sequence),
            unrecorded: false,
            due: Tick::default(),
            rest: SOON,
        }
    }

    fn is_first(&self) -> bool {
        self.rest == SOON
    }
}

/// What is searched for, and where.
#[derive(Debug, Default)]
pub(crate) struct LeakSearches {
    sequences: BTreeSet<u64>,
    osts: BTreeSet<TargetIndex>,
    searches: BTreeMap<(TargetIndex, u64), Search>,
    inquiries: Inquiries,
}

/// What happens to the searches.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event<'a> {
    /// Time has passed, or changes have become durable.
    Due,
    /// The OST has these objects, from the one on that it was asked for.
    Listed {
        ost: TargetIndex,
        from: ObjectId,
        objects: &'a [ObjectId],
        /// From where on there may be more.
        next: Option<ObjectId>,
        /// The record that an object gets which is to be removed.
        removal: Destroy,
    },
    /// The OST could not be reached, or refused.
    Failed(TargetIndex),
}

impl LeakSearches {
    /// What the records of an earlier boot say.
    pub fn open(store: &Store, osts: &[TargetIndex]) -> Result<LeakSearches, Failure> {
        let mut searches = LeakSearches::default();
        searches.add_osts(osts);
        let all = KeyRange::all();
        store.scan(Table::LeakSearches, &all, |key, owner: SequenceOwner| {
            let sequence = keys::parse_sequence(key).ok_or_else(|| missing("sequence", "MDT"))?;
            searches.search(sequence, owner);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(searches)
    }

    /// There are these OSTs too.
    pub fn add_osts(&mut self, osts: &[TargetIndex]) {
        for ost in osts {
            if self.osts.insert(*ost) {
                let begun = |sequence| ((*ost, sequence), Search::new(sequence));
                self.searches
                    .extend(self.sequences.iter().copied().map(begun));
            }
        }
    }

    /// `mutations` are about to be stored.
    pub fn note(&mut self, mutations: &[Mutation]) {
        for mutation in mutations {
            if let Mutation::PutLeakSearch(sequence, owner) = mutation {
                self.search(*sequence, *owner);
            }
        }
    }

    /// Those that are searched.
    pub fn sequences(&self) -> &BTreeSet<u64> {
        &self.sequences
    }

    /// Searches of which none has come to the end even once.
    pub fn len(&self) -> usize {
        self.searches
            .values()
            .filter(|search| search.is_first())
            .count()
    }

    fn search(&mut self, sequence: u64, owner: SequenceOwner) {
        if owner.client == NO_CLIENT {
            return;
        }
        self.sequences.insert(sequence);
        let begun = |ost| ((ost, sequence), Search::new(sequence));
        self.searches.extend(self.osts.iter().copied().map(begun));
    }

    /// What is to be done about the event. Changes are to be stored before the next.
    pub fn step(
        &mut self,
        store: &Store,
        at: Standing,
        event: Event<'_>,
    ) -> Result<Vec<Effect>, Failure> {
        match event {
            Event::Due => Ok(self.ask(at)),
            Event::Listed {
                ost,
                from,
                objects,
                next,
                removal,
            } => {
                let of = (ost, from.fid.sequence());
                let over = self.told(at.now, of, next);
                let mut effects = vec![Effect::Change(condemned(store, of, objects, removal)?)];
                if over {
                    effects.push(Effect::Change(vec![Mutation::RemoveLeakSearch(of.1)]));
                }
                Ok(effects)
            }
            Event::Failed(ost) => {
                self.inquiries.fail(at.now, ost);
                Ok(Vec::new())
            }
        }
    }

    /// Asks each OST that can be asked now.
    fn ask(&mut self, at: Standing) -> Vec<Effect> {
        let mut effects = Vec::new();
        for ((ost, _), search) in &self.searches {
            if search.due <= at.now && self.inquiries.begin(at.now, *ost) {
                effects.push(Effect::Say(Output::List {
                    ost: *ost,
                    from: search.from,
                    unrecorded: search.unrecorded,
                    watermark: at.watermark,
                }));
            }
        }
        effects
    }

    /// When an OST is to be asked.
    pub fn next(&self) -> Option<Tick> {
        let free = |((ost, _), search): (&(TargetIndex, u64), &Search)| {
            Some(self.inquiries.free_at(*ost)?.max(search.due))
        };
        self.searches.iter().filter_map(free).min()
    }

    /// An OST has told of objects of a sequence, up to `next`. True: nothing more is to be searched
    /// for of that sequence anywhere.
    fn told(
        &mut self,
        now: Tick,
        (ost, sequence): (TargetIndex, u64),
        next: Option<ObjectId>,
    ) -> bool {
        self.inquiries.end(ost);
        let Some(search) = self.searches.get_mut(&(ost, sequence)) else {
            return false;
        };
        // An answer that leads back, or elsewhere, would have no end.
        let ahead = next.filter(|next| *next > search.from && next.fid.sequence() == sequence);
        if let Some(next) = ahead {
            search.from = next;
            return false;
        }
        search.from = first_of(sequence);
        if search.is_first() && !std::mem::replace(&mut search.unrecorded, true) {
            return false;
        }
        search.unrecorded = false;
        if search.rest <= LATE {
            search.due = now.after(search.rest);
            search.rest *= SELDOM;
            return false;
        }
        self.searches.remove(&(ost, sequence));
        let over = self.searches.keys().all(|(_, other)| *other != sequence);
        over && self.sequences.remove(&sequence)
    }
}

fn first_of(sequence: u64) -> ObjectId {
    ObjectId {
        fid: Fid::new(sequence, 0),
        stripe: 0,
    }
}

/// What removes those of these objects of a sequence that no file has.
fn condemned(
    store: &Store,
    (ost, sequence): (TargetIndex, u64),
    objects: &[ObjectId],
    removal: Destroy,
) -> Result<Vec<Mutation>, Failure> {
    let mut removals = Vec::new();
    let of_sequence = objects.iter().filter(|of| of.fid.sequence() == sequence);
    for object in of_sequence {
        if claim(store, ost, *object)? == Claim::Nobodys {
            let ObjectId { fid, stripe } = *object;
            removals.push(Mutation::PutDestroy(ost, fid, stripe, removal));
        }
    }
    if !removals.is_empty() {
        tracing::info!(
            objects = removals.len(),
            "OST{}: objects of files that a client lost, and that are removed",
            ost.0
        );
    }
    Ok(removals)
}

#[cfg(test)]
mod tests {
    use base::Transno;

    use super::*;
    use crate::inquiries::RETRY;
    use crate::rig::{said, standing, store_after};

    const OST: TargetIndex = TargetIndex(0);
    const LOST: u64 = Fid::SEQUENCE_FIRST;
    const REMOVAL: Destroy = Destroy {
        open_epoch: 7,
        transno: Transno(3),
    };

    fn object(sequence: u64, number: u32) -> ObjectId {
        ObjectId {
            fid: Fid::new(sequence, number),
            stripe: 0,
        }
    }

    /// Searches for the objects of one sequence, and the store that says so. A second sequence is a
    /// client's still.
    fn searching() -> (Store, LeakSearches) {
        let owner = SequenceOwner { client: [9; 16] };
        let records = vec![
            Mutation::PutLeakSearch(LOST, owner),
            Mutation::PutSequence(LOST + 1, owner),
        ];
        let store = store_after(LOST + 2, records);
        let searches = LeakSearches::open(&store, &[OST]).expect("readable");
        (store, searches)
    }

    /// What the OST is asked at that hour: the first object, and whether of those without a record.
    fn asked(searches: &mut LeakSearches, store: &Store, now: Tick) -> Option<(ObjectId, bool)> {
        let at = Standing {
            now,
            ..standing(0, 5)
        };
        let effects = searches.step(store, at, Event::Due).expect("readable");
        match said(effects).pop()? {
            Output::List {
                from, unrecorded, ..
            } => Some((from, unrecorded)),
            other => panic!("{other:?}"),
        }
    }

    fn listed(
        searches: &mut LeakSearches,
        (store, now): (&Store, Tick),
        objects: &[ObjectId],
        next: Option<ObjectId>,
    ) -> Vec<Effect> {
        let event = Event::Listed {
            ost: OST,
            from: first_of(LOST),
            objects,
            next,
            removal: REMOVAL,
        };
        let at = Standing {
            now,
            ..standing(0, 5)
        };
        searches.step(store, at, event).expect("readable")
    }

    #[test]
    fn objects_of_nobody_are_removed_and_no_others() {
        let (store, mut searches) = searching();
        assert_eq!(
            asked(&mut searches, &store, Tick(0)),
            Some((first_of(LOST), false))
        );
        assert_eq!(asked(&mut searches, &store, Tick(0)), None, "it was asked");
        let objects = [object(LOST, 4), object(LOST + 1, 4)];
        let effects = listed(&mut searches, (&store, Tick(0)), &objects, None);
        let removal = Mutation::PutDestroy(OST, objects[0].fid, 0, REMOVAL);
        assert_eq!(effects, [Effect::Change(vec![removal])]);
    }

    #[test]
    fn a_search_goes_on_where_it_was_comes_back_and_ends() {
        let (store, mut searches) = searching();
        let mut now = Tick(0);
        asked(&mut searches, &store, now);
        let next = object(LOST, 100);
        listed(&mut searches, (&store, now), &[], Some(next));
        assert_eq!(asked(&mut searches, &store, now), Some((next, false)));
        listed(&mut searches, (&store, now), &[], None);
        // Once those that lost their record.
        assert_eq!(
            asked(&mut searches, &store, now),
            Some((first_of(LOST), true))
        );
        assert_eq!(searches.len(), 1);
        let mut effects = listed(&mut searches, (&store, now), &[], None);
        assert_eq!(searches.len(), 0);
        while let Some(due) = searches.next() {
            assert_eq!(effects, [Effect::Change(Vec::new())]);
            assert!(due > now && asked(&mut searches, &store, now).is_none());
            now = due;
            assert!(asked(&mut searches, &store, now).is_some());
            effects = listed(&mut searches, (&store, now), &[], None);
        }
        assert_eq!(
            effects[1],
            Effect::Change(vec![Mutation::RemoveLeakSearch(LOST)])
        );
        assert!(searches.sequences().is_empty());
    }

    #[test]
    fn an_ost_that_refused_is_asked_again_in_a_while() {
        let (store, mut searches) = searching();
        asked(&mut searches, &store, Tick(0));
        let failed = searches.step(&store, standing(0, 5), Event::Failed(OST));
        assert!(failed.expect("noted").is_empty());
        assert_eq!(asked(&mut searches, &store, Tick(0)), None);
        let due = searches.next().expect("again");
        assert!(due == Tick(0).after(RETRY) && asked(&mut searches, &store, due).is_some());
    }
}
