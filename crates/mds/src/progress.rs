//! How far the target has come, told to OSTs with all that it asks of them, and now and then
//! without. They know a target that is an older copy of what it was, and do nothing for it. And how
//! far they have come, so that they are known in the same way. docs/recovery.md, section 6.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use base::{TargetIndex, Tick, Timestamp, Transno};
use storage::{KeyRange, StorageError};
use wire::ost::Progress;

use crate::core::Mds;
use crate::event::Output;
use crate::keys::{self, Table};
use crate::mutation::Mutation;
use crate::records::SeenOst;
use crate::store::{Failure, Store, missing};

/// Between two words to an OST while we change: so much of our history an older copy may lack and not
/// be known by it.
const SOON: Duration = Duration::from_secs(1);
/// Between two words while we do not: the OST may.
const SELDOM: Duration = Duration::from_secs(60);
/// After how long an OST that could not be reached is told again.
const RETRY: Duration = Duration::from_secs(5);

/// What an OST and we told each other to be durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// Our changes.
    pub ours: Transno,
    /// The OST's.
    pub committed: Transno,
}

/// An OST, as far as it knows of us and we of it.
#[derive(Debug)]
struct Witness {
    told: Told,
    /// It was told and has not answered.
    asked: bool,
    /// It is not told again before,
    rests: Tick,
    /// and is told then, in any case.
    due: Tick,
}

impl Witness {
    fn of(seen: Transno) -> Witness {
        Witness {
            told: Told {
                ours: Transno(0),
                committed: seen,
            },
            asked: false,
            rests: Tick::default(),
            due: Tick::default(),
        }
    }

    fn next(&self, committed: Transno) -> Tick {
        match self.told.ours < committed {
            true => self.rests,
            false => self.due,
        }
    }

    fn rest(&mut self, now: Tick, (least, most): (Duration, Duration)) {
        self.asked = false;
        (self.rests, self.due) = (now.after(least), now.after(most));
    }
}

/// All OSTs.
#[derive(Debug, Default)]
pub(crate) struct Witnesses {
    osts: BTreeMap<TargetIndex, Witness>,
    /// How far those had come that are not named yet.
    seen: BTreeMap<TargetIndex, Transno>,
}

impl Witnesses {
    /// With what an earlier life knew of them.
    pub fn open(store: &Store, osts: &[TargetIndex]) -> Result<Witnesses, Failure> {
        let mut witnesses = Witnesses {
            seen: seen(store)?,
            ..Witnesses::default()
        };
        witnesses.add_osts(osts);
        Ok(witnesses)
    }

    /// There are these OSTs too.
    pub fn add_osts(&mut self, osts: &[TargetIndex]) {
        for ost in osts {
            let seen = self.seen.get(ost).copied().unwrap_or_default();
            self.osts.entry(*ost).or_insert(Witness::of(seen));
        }
    }

    /// They can be reached from now on, or elsewhere: the client that could not be told is told at
    /// once.
    pub fn hurry(&mut self) {
        for witness in self.osts.values_mut() {
            (witness.rests, witness.due) = (Tick::default(), Tick::default());
        }
    }

    fn next(&self, committed: Transno) -> Option<Tick> {
        let free = self.osts.values().filter(|ost| !ost.asked);
        free.map(|ost| ost.next(committed)).min()
    }
}

/// How far each OST had come, by what it told.
pub fn seen(store: &Store) -> Result<BTreeMap<TargetIndex, Transno>, Failure> {
    let mut seen = BTreeMap::new();
    store.scan(Table::Osts, &KeyRange::all(), |key, record: SeenOst| {
        let ost = keys::parse_ost(key).ok_or_else(|| missing("OST", "MDT"))?;
        seen.insert(ost, record.committed);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(seen)
}

impl Mds {
    /// How far the target has come, for those who are to know it again.
    pub(crate) fn progress(&mut self) -> Progress {
        Progress {
            life: *self.born.get_or_insert(self.wall),
            begun: self.begun,
            committed: self.committed,
        }
    }

    /// Tells every OST that is to be told now.
    pub(crate) fn send_witnesses(&mut self, out: &mut Vec<Output>) {
        let (now, progress) = (self.now, self.progress());
        for (ost, witness) in &mut self.witnesses.osts {
            if !witness.asked && witness.next(progress.committed) <= now {
                witness.asked = true;
                out.push(Output::Witness {
                    ost: *ost,
                    progress,
                    seen: witness.told.committed,
                });
            }
        }
    }

    /// An OST knows now how far we had come, and has come so far itself.
    pub fn witnessed(
        &mut self,
        (now, wall): (Tick, Timestamp),
        ost: TargetIndex,
        told: Told,
        out: &mut Vec<Output>,
    ) {
        self.set_time(now, wall);
        let Some(witness) = self.witnesses.osts.get_mut(&ost) else {
            return;
        };
        let news = told.committed > witness.told.committed;
        witness.told = told;
        witness.rest(now, (SOON, SELDOM));
        if self.halted || !news {
            return;
        }
        let committed = told.committed;
        let noted = self.upkeep(|txn, _| {
            txn.change(Mutation::PutOst(ost, SeenOst { committed }));
            Ok(())
        });
        if let Err(Failure::Broken(cause)) = noted {
            self.halt(cause, out);
        }
    }

    /// An OST could not be reached or refused: it is told again in a while.
    pub fn witness_failed(&mut self, now: Tick, ost: TargetIndex) {
        if let Some(witness) = self.witnesses.osts.get_mut(&ost) {
            witness.rest(now, (RETRY, RETRY));
        }
    }

    pub(crate) fn next_witness(&self) -> Option<Tick> {
        self.witnesses.next(self.committed)
    }

    /// An OST knows of changes, as durable, that are not here: the target is an older copy of what it
    /// was.
    pub fn is_behind(
        &mut self,
        now: Tick,
        ost: TargetIndex,
        committed: Transno,
        out: &mut Vec<Output>,
    ) {
        let ours = self.begun;
        let reason = format!(
            "OST{} was told that changes up to {committed} are durable, and there are those up to {ours}: \
             it is damaged or was restored from an older copy",
            ost.0
        );
        self.destroy_failed(now, ost);
        self.list_failed(now, ost);
        self.witness_failed(now, ost);
        let name = self.store.kv().name();
        self.halt(StorageError::damaged(name, "history", reason), out);
    }
}
