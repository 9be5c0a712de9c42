//! OSTs: they are asked to remove objects, searched for leaked ones, and told how far the target has come.

use base::{TargetIndex, Tick, Timestamp, Transno};
use layout::ObjectId;
use storage::StorageError;

use super::Mds;
use crate::effect::Standing;
use crate::event::{OstInquiry, Output};
use crate::records::Destroy;
use crate::watermarks::{self, Acknowledged};
use crate::{destroy, leaks};

impl Mds {
    /// Whatever is to be asked of OSTs now.
    pub(crate) fn ask_osts(&mut self, out: &mut Vec<Output>) {
        self.step_destroys(destroy::Event::Due, out);
        self.step_leaks(leaks::Event::Due, out);
        self.step_watermarks(watermarks::Event::Due, out);
    }

    /// When an OST is to be asked something next.
    pub(crate) fn next_for_osts(&self) -> Option<Tick> {
        let watermark = self.watermarks.next(self.committed);
        let all = [self.destroys.next(), self.leaks.next(), watermark];
        all.into_iter().flatten().min()
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
        self.step_destroys(destroy::Event::Destroyed(ost, objects), out);
        if !self.halted {
            self.step_destroys(destroy::Event::Due, out);
        }
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
        let event = leaks::Event::Listed {
            ost,
            from,
            objects,
            next,
            removal: Destroy {
                open_epoch: self.opens.last_epoch(),
                transno: Transno(self.state.transno.0 + 1),
            },
        };
        self.step_leaks(event, out);
        if !self.halted {
            self.step_leaks(leaks::Event::Due, out);
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
        self.step_watermarks(watermarks::Event::Heard(ost, acknowledged), out);
    }

    /// The OST could not be reached or refused: it is asked the same again in a while.
    pub fn ost_failed(
        &mut self,
        now: Tick,
        ost: TargetIndex,
        inquiry: OstInquiry,
        out: &mut Vec<Output>,
    ) {
        self.set_time(now, self.wall);
        match inquiry {
            OstInquiry::Destroy => self.step_destroys(destroy::Event::Failed(ost), out),
            OstInquiry::List => self.step_leaks(leaks::Event::Failed(ost), out),
            OstInquiry::Watermark => self.step_watermarks(watermarks::Event::Failed(ost), out),
        }
    }

    /// An OST remembers durable changes that this target lacks: the target is an older copy of itself.
    pub fn is_behind(
        &mut self,
        now: Tick,
        ost: TargetIndex,
        committed: Transno,
        out: &mut Vec<Output>,
    ) {
        let ours = self.watermarks.begun();
        let reason = format!(
            "OST{} was told that changes up to {committed} are durable, and there are those up to {ours}: \
             it is damaged or was restored from an older copy",
            ost.0
        );
        for inquiry in OstInquiry::ALL {
            self.ost_failed(now, ost, inquiry, out);
        }
        let name = self.store.kv().name();
        self.halt(StorageError::damaged(name, "history", reason), out);
    }

    fn standing(&mut self) -> Standing {
        Standing {
            now: self.now,
            watermark: self.watermarks.own(self.wall, self.committed),
        }
    }

    fn step_destroys(&mut self, event: destroy::Event<'_>, out: &mut Vec<Output>) {
        let at = self.standing();
        let effects = self.destroys.step(&self.store, at, event);
        self.carry_out(effects, out);
    }

    fn step_leaks(&mut self, event: leaks::Event<'_>, out: &mut Vec<Output>) {
        let at = self.standing();
        let effects = self.leaks.step(&self.store, at, event);
        self.carry_out(effects, out);
    }

    fn step_watermarks(&mut self, event: watermarks::Event, out: &mut Vec<Output>) {
        let at = self.standing();
        let effects = self.watermarks.step(at, event);
        self.carry_out(Ok(effects), out);
    }
}
