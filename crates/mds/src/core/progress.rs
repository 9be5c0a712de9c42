//! OSTs are told how far this target has come, and say how far they have.

use base::{TargetIndex, Tick, Timestamp, Transno};
use storage::StorageError;
use wire::ost::Progress;

use super::Mds;
use crate::event::Output;
use crate::mutation::Mutation;
use crate::progress::{RETRY, SELDOM, SOON, Told};
use crate::records::SeenOst;
use crate::store::Failure;

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
