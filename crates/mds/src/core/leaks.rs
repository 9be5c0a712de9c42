//! Asks OSTs for leaked objects, which no file has, and has them removed.

use base::{TargetIndex, Tick, Timestamp};
use layout::ObjectId;

use super::Mds;
use crate::event::Output;
use crate::fsck::objects::{Claim, claim};
use crate::mutation::Mutation;
use crate::records::Destroy;
use crate::store::Failure;

impl Mds {
    /// Asks every OST that can be asked now.
    pub(crate) fn send_searches(&mut self, out: &mut Vec<Output>) {
        let (due, watermark) = (self.leaks.due(self.now), self.watermark());
        out.extend(due.into_iter().map(|(ost, from, unrecorded)| Output::List {
            ost,
            from,
            unrecorded,
            watermark,
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
        let over = self.leaks.told(now, (ost, sequence), next);
        let done = self.condemn_leaked_objects((ost, sequence), objects);
        let done = done.and_then(|()| match over {
            false => Ok(()),
            true => self.upkeep(|txn, _| {
                txn.change(Mutation::RemoveLeakSearch(sequence));
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
        self.leaks.failed(now, ost);
    }

    /// Removes those of these objects that no file has.
    fn condemn_leaked_objects(
        &mut self,
        (ost, sequence): (TargetIndex, u64),
        objects: &[ObjectId],
    ) -> Result<(), Failure> {
        let mut leaked = Vec::new();
        let of_sequence = objects.iter().filter(|of| of.fid.sequence() == sequence);
        for object in of_sequence {
            if claim(&self.store, ost, *object)? == Claim::Nobodys {
                leaked.push(*object);
            }
        }
        if leaked.is_empty() {
            return Ok(());
        }
        tracing::info!(
            objects = leaked.len(),
            "OST{}: objects of files that a client lost, and that are removed",
            ost.0
        );
        self.upkeep(|txn, opens| {
            let destroy = Destroy {
                open_epoch: opens.last_epoch(),
                transno: txn.transno,
            };
            for ObjectId { fid, stripe } in leaked {
                txn.change(Mutation::PutDestroy(ost, fid, stripe, destroy));
            }
            Ok(())
        })
    }

    pub(crate) fn next_search(&self) -> Option<Tick> {
        self.leaks.next()
    }
}
