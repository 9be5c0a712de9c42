//! How far the target has come, told to OSTs with all that it asks of them, and now and then
//! without. They know a target that is an older copy of what it was, and do nothing for it. And how
//! far they have come, so that they are known in the same way. docs/recovery.md, section 6.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use base::{TargetIndex, Tick, Transno};
use storage::KeyRange;

use crate::keys::{self, Table};
use crate::records::SeenOst;
use crate::store::{Failure, Store, missing};

/// Between two words to an OST while we change: so much of our history an older copy may lack and not
/// be known by it.
pub(crate) const SOON: Duration = Duration::from_secs(1);
/// Between two words while we do not: the OST may.
pub(crate) const SELDOM: Duration = Duration::from_secs(60);
/// After how long an OST that could not be reached is told again.
pub(crate) const RETRY: Duration = Duration::from_secs(5);

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
pub(crate) struct Witness {
    pub told: Told,
    /// It was told and has not answered.
    pub asked: bool,
    /// It is not told again before,
    pub rests: Tick,
    /// and is told then, in any case.
    pub due: Tick,
}

impl Witness {
    pub fn of(seen: Transno) -> Witness {
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

    pub fn next(&self, committed: Transno) -> Tick {
        match self.told.ours < committed {
            true => self.rests,
            false => self.due,
        }
    }

    pub fn rest(&mut self, now: Tick, (least, most): (Duration, Duration)) {
        self.asked = false;
        (self.rests, self.due) = (now.after(least), now.after(most));
    }
}

/// All OSTs.
#[derive(Debug, Default)]
pub(crate) struct Witnesses {
    pub osts: BTreeMap<TargetIndex, Witness>,
    /// How far those had come that are not named yet.
    pub seen: BTreeMap<TargetIndex, Transno>,
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

    pub fn next(&self, committed: Transno) -> Option<Tick> {
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
