//! The search for leaked objects: objects of a file that a crash took from this target, and that its client
//! did not make again. Each OST lists the objects of that client's sequences, and those without a file are
//! removed (docs/recovery.md, section 6).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use base::{Fid, TargetIndex, Tick};
use layout::ObjectId;
use storage::KeyRange;

use crate::keys::{self, ClientUuid, Table};
use crate::mutation::Mutation;
use crate::records::{NO_CLIENT, SequenceOwner};
use crate::store::{Failure, Store, missing};
use crate::txn::Txn;

/// After how long an OST is asked for the second time, or again where it could not be reached.
pub(crate) const SOON: Duration = Duration::from_secs(5);
/// By how much longer it takes each time.
pub(crate) const SELDOM: u32 = 4;
/// The longest pause of a search. It ends after half an hour, far longer than a client that can reach an OST
/// keeps unwritten data from it.
pub(crate) const LATE: Duration = Duration::from_secs(3600);

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
pub(crate) struct Search {
    /// Where it goes on.
    pub from: ObjectId,
    /// With those that lost their record.
    pub unrecorded: bool,
    /// When.
    pub due: Tick,
    /// How long it rests when it has come to the end.
    pub rest: Duration,
}

impl Search {
    pub fn new(sequence: u64) -> Search {
        Search {
            from: first_of(sequence),
            unrecorded: false,
            due: Tick::default(),
            rest: SOON,
        }
    }

    pub fn is_first(&self) -> bool {
        self.rest == SOON
    }
}

/// What is searched for, and where.
#[derive(Debug, Default)]
pub(crate) struct LeakSearches {
    pub sequences: BTreeSet<u64>,
    pub osts: BTreeSet<TargetIndex>,
    pub searches: BTreeMap<(TargetIndex, u64), Search>,
    /// OSTs that were asked and have not answered.
    pub asked: BTreeSet<TargetIndex>,
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

    pub fn search(&mut self, sequence: u64, owner: SequenceOwner) {
        if owner.client == NO_CLIENT {
            return;
        }
        self.sequences.insert(sequence);
        let begun = |ost| ((ost, sequence), Search::new(sequence));
        self.searches.extend(self.osts.iter().copied().map(begun));
    }

    /// Each OST that can be asked now, with the first object that is wanted, and of which kind.
    pub fn due(&mut self, now: Tick) -> Vec<(TargetIndex, ObjectId, bool)> {
        let mut due = Vec::new();
        for ((ost, _), search) in &self.searches {
            if search.due <= now && self.asked.insert(*ost) {
                due.push((*ost, search.from, search.unrecorded));
            }
        }
        due
    }

    pub fn next(&self) -> Option<Tick> {
        let free = |((ost, _), search): (&(TargetIndex, u64), &Search)| {
            (!self.asked.contains(ost)).then_some(search.due)
        };
        self.searches.iter().filter_map(free).min()
    }

    /// An OST has told of objects of a sequence, up to `next`. True: nothing more is to be searched
    /// for of that sequence anywhere.
    pub fn told(
        &mut self,
        now: Tick,
        (ost, sequence): (TargetIndex, u64),
        next: Option<ObjectId>,
    ) -> bool {
        self.asked.remove(&ost);
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

    /// It could not be reached, or refused.
    pub fn failed(&mut self, now: Tick, ost: TargetIndex) {
        self.asked.remove(&ost);
        let of_ost = (ost, 0)..=(ost, u64::MAX);
        for (_, search) in self.searches.range_mut(of_ost) {
            search.due = search.due.max(now.after(SOON));
        }
    }
}

pub(crate) fn first_of(sequence: u64) -> ObjectId {
    ObjectId {
        fid: Fid::new(sequence, 0),
        stripe: 0,
    }
}
