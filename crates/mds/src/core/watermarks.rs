//! Reports the watermark of this target to OSTs, and stores theirs.

use base::{TargetIndex, Tick, Timestamp, Transno};
use storage::StorageError;
use wire::ost::Watermark;

use super::Mds;
use crate::event::Output;
use crate::mutation::Mutation;
use crate::records::SeenOst;
use crate::store::Failure;
use crate::watermarks::{Acknowledged, RETRY, SELDOM, SOON};

impl Mds {
    /// The watermark of this target.
    pub(crate) fn watermark(&mut self) -> Watermark {
        Watermark {
            epoch_stamp: *self.born.get_or_insert(self.wall),
            begun: self.begun,
            committed: self.committed,
        }
    }

    /// Sends a report to every OST that is due.
    pub(crate) fn send_watermarks(&mut self, out: &mut Vec<Output>) {
        let (now, watermark) = (self.now, self.watermark());
        for (ost, peer) in &mut self.watermarks.osts {
            if !peer.asked && peer.next(watermark.committed) <= now {
                peer.asked = true;
                out.push(Output::Watermark {
                    ost: *ost,
                    watermark,
                    seen: peer.acknowledged.committed,
                });
            }
        }
    }

    /// An OST has acknowledged the report, with its own watermark.
    pub fn watermark_heard(
        &mut self,
        (now, wall): (Tick, Timestamp),
        ost: TargetIndex,
        acknowledged: Acknowledged,
        out: &mut Vec<Output>,
    ) {
        self.set_time(now, wall);
        let Some(watermark) = self.watermarks.osts.get_mut(&ost) else {
            return;
        };
        let news = acknowledged.committed > watermark.acknowledged.committed;
        watermark.acknowledged = acknowledged;
        watermark.rest(now, (SOON, SELDOM));
        if self.halted || !news {
            return;
        }
        let committed = acknowledged.committed;
        let noted = self.upkeep(|txn, _| {
            txn.change(Mutation::PutOst(ost, SeenOst { committed }));
            Ok(())
        });
        if let Err(Failure::Broken(cause)) = noted {
            self.halt(cause, out);
        }
    }

    /// An OST could not be reached or refused. The next report follows in a while.
    pub fn watermark_failed(&mut self, now: Tick, ost: TargetIndex) {
        if let Some(watermark) = self.watermarks.osts.get_mut(&ost) {
            watermark.rest(now, (RETRY, RETRY));
        }
    }

    pub(crate) fn next_watermark(&self) -> Option<Tick> {
        self.watermarks.next(self.committed)
    }

    /// An OST remembers durable changes that this target lacks: the target is an older copy of itself.
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
        self.watermark_failed(now, ost);
        let name = self.store.kv().name();
        self.halt(StorageError::damaged(name, "history", reason), out);
    }
}
