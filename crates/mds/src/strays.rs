//! Strays: objects of no file. A client makes a file and writes to it, durably at the OST; a crash
//! takes the file from the target, and the client does not come back in time to make it again.
//! docs/recovery.md, section 6.
//!
//! So OSTs are asked for the objects of that client's sequences, those that have a record and once,
//! since that is much work, those that lost theirs. What is not a file's is removed: of these
//! sequences no file is made any more. It is asked again, more and more seldom, for where the client
//! lives, what it had sent to an OST may come late.
//!
//! Records say of which sequences; where a search stands is in memory, and a restart begins anew. One
//! message per OST is under way.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use base::{Fid, TargetIndex, Tick, Timestamp};
use layout::ObjectId;
use storage::KeyRange;

use crate::core::Mds;
use crate::event::Output;
use crate::fsck::objects::{Claim, claim};
use crate::keys::{self, ClientUuid, Table};
use crate::mutation::Mutation;
use crate::records::{Destroy, NO_CLIENT, SequenceOwner};
use crate::store::{Failure, Store, missing};
use crate::txn::Txn;

/// After how long an OST is asked for the second time, or again where it could not be reached.
const SOON: Duration = Duration::from_secs(5);
/// By how much longer it takes each time.
const SELDOM: u32 = 4;
/// When the next time would be later than this after the one before, the search is over. After half
/// an hour, far longer than a client that can reach an OST keeps unwritten data from it.
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
        .contains(Table::Strays, &keys::sequence(sequence))?
    {
        let nobody = SequenceOwner { client: NO_CLIENT };
        txn.change(Mutation::RemoveStray(sequence));
        txn.change(Mutation::PutSequence(sequence, nobody));
        return Ok(());
    }
    txn.change(Mutation::RemoveSequence(sequence));
    if lacks == MayLack::Files {
        txn.change(Mutation::PutStray(
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
pub(crate) struct Strays {
    sequences: BTreeSet<u64>,
    osts: BTreeSet<TargetIndex>,
    searches: BTreeMap<(TargetIndex, u64), Search>,
    /// OSTs that were asked and have not answered.
    asked: BTreeSet<TargetIndex>,
}

impl Strays {
    /// What the records of an earlier life say.
    pub fn open(store: &Store, osts: &[TargetIndex]) -> Result<Strays, Failure> {
        let mut strays = Strays::default();
        strays.add_osts(osts);
        let all = KeyRange::all();
        store.scan(Table::Strays, &all, |key, owner: SequenceOwner| {
            let sequence = keys::parse_sequence(key).ok_or_else(|| missing("sequence", "MDT"))?;
            strays.search(sequence, owner);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(strays)
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
            if let Mutation::PutStray(sequence, owner) = mutation {
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

    /// Each OST that can be asked now, with the first object that is wanted, and of which kind.
    fn due(&mut self, now: Tick) -> Vec<(TargetIndex, ObjectId, bool)> {
        let mut due = Vec::new();
        for ((ost, _), search) in &self.searches {
            if search.due <= now && self.asked.insert(*ost) {
                due.push((*ost, search.from, search.unrecorded));
            }
        }
        due
    }

    fn next(&self) -> Option<Tick> {
        let free = |((ost, _), search): (&(TargetIndex, u64), &Search)| {
            (!self.asked.contains(ost)).then_some(search.due)
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
    fn failed(&mut self, now: Tick, ost: TargetIndex) {
        self.asked.remove(&ost);
        let of_ost = (ost, 0)..=(ost, u64::MAX);
        for (_, search) in self.searches.range_mut(of_ost) {
            search.due = search.due.max(now.after(SOON));
        }
    }
}

fn first_of(sequence: u64) -> ObjectId {
    ObjectId {
        fid: Fid::new(sequence, 0),
        stripe: 0,
    }
}

impl Mds {
    /// Asks every OST that can be asked now.
    pub(crate) fn send_searches(&mut self, out: &mut Vec<Output>) {
        let (due, progress) = (self.strays.due(self.now), self.progress());
        out.extend(due.into_iter().map(|(ost, from, unrecorded)| Output::List {
            ost,
            from,
            unrecorded,
            progress,
        }));
    }

    /// The OST has these objects, from the one on that [`Output::List`] asked for, up to `next`.
    pub fn listed(
        &mut self,
        now: Tick,
        wall: Timestamp,
        (ost, from): (TargetIndex, ObjectId),
        (objects, next): (&[ObjectId], Option<ObjectId>),
        out: &mut Vec<Output>,
    ) {
        self.set_time(now, wall);
        if self.halted {
            return;
        }
        let sequence = from.fid.sequence();
        let over = self.strays.told(now, (ost, sequence), next);
        let done = self.condemn_strays((ost, sequence), objects);
        let done = done.and_then(|()| match over {
            false => Ok(()),
            true => self.upkeep(|txn, _| {
                txn.change(Mutation::RemoveStray(sequence));
                Ok(())
            }),
        });
        match done {
            Err(Failure::Broken(cause)) => self.halt(cause, out),
            _ => self.send_searches(out),
        }
    }

    /// The OST could not be reached or refused: it is asked again in a while.
    pub fn list_failed(&mut self, now: Tick, ost: TargetIndex) {
        self.strays.failed(now, ost);
    }

    /// Of these objects those are to be removed that are nobody's.
    fn condemn_strays(
        &mut self,
        (ost, sequence): (TargetIndex, u64),
        objects: &[ObjectId],
    ) -> Result<(), Failure> {
        let mut strays = Vec::new();
        let of_sequence = objects.iter().filter(|of| of.fid.sequence() == sequence);
        for object in of_sequence {
            if claim(&self.store, ost, *object)? == Claim::Nobodys {
                strays.push(*object);
            }
        }
        if strays.is_empty() {
            return Ok(());
        }
        tracing::info!(
            objects = strays.len(),
            "OST{}: objects of files that a client lost, and that are removed",
            ost.0
        );
        self.upkeep(|txn, opens| {
            let destroy = Destroy {
                open_epoch: opens.last_epoch(),
                transno: txn.transno,
            };
            for ObjectId { fid, stripe } in strays {
                txn.change(Mutation::PutDestroy(ost, fid, stripe, destroy));
            }
            Ok(())
        })
    }

    pub(crate) fn next_search(&self) -> Option<Tick> {
        self.strays.next()
    }
}
