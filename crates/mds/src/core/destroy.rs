//! OSTs are asked to remove the bytes of removed files.

use std::ops::ControlFlow;

use base::{TargetIndex, Tick, Timestamp, Transno};
use layout::ObjectId;
use storage::KeyRange;

use super::Mds;
use crate::destroy::{OBJECTS_MAX, RETRY};
use crate::event::Output;
use crate::keys::{self, Table};
use crate::mutation::Mutation;
use crate::records::Destroy;
use crate::store::{Failure, Store, missing};

impl Mds {
    /// Asks every OST that has durable records and was not asked.
    pub(crate) fn send_destroys(&mut self, out: &mut Vec<Output>) {
        for ost in self.destroys.due(self.now) {
            self.destroys.again.remove(&ost);
            match batch(&self.store, ost, self.committed) {
                Err(Failure::Broken(cause)) => return self.halt(cause, out),
                Err(Failure::Refused(_)) => {}
                Ok((objects, rest)) => {
                    if !rest && objects.is_empty() {
                        self.destroys.waiting.remove(&ost);
                    }
                    if !objects.is_empty() {
                        self.destroys.asked.insert(ost);
                        let watermark = self.watermark();
                        out.push(Output::Destroy {
                            ost,
                            objects,
                            watermark,
                        });
                    }
                }
            }
        }
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
        self.destroys.asked.remove(&ost);
        if self.halted {
            return;
        }
        let done = self.upkeep(|txn, _| {
            for object in objects {
                txn.change(Mutation::RemoveDestroy(ost, object.fid, object.stripe));
            }
            Ok(())
        });
        match done {
            Err(Failure::Broken(cause)) => self.halt(cause, out),
            _ => self.send_destroys(out),
        }
    }

    /// The OST could not be reached or refused: it is asked again in a while.
    pub fn destroy_failed(&mut self, now: Tick, ost: TargetIndex) {
        self.destroys.asked.remove(&ost);
        self.destroys.again.insert(ost, now.after(RETRY));
    }

    pub(crate) fn next_destroy(&self) -> Option<Tick> {
        self.destroys.next()
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
