//! What time and durability bring about.

use std::ops::ControlFlow;

use base::{Fid, Tick, Timestamp};
use storage::{KeyRange, StorageError, Ticket};

use crate::core::Mds;
use crate::event::Output;
use crate::keys::{self, Table};
use crate::namespace::end_orphan;
use crate::records::Orphan;
use crate::store::{Failure, missing};

/// Orphans ended by one tick after the grace period.
const ORPHANS_PER_TICK: usize = 256;

impl Mds {
    /// The store has made everything up to `ticket` durable.
    pub fn durable(&mut self, now: Tick, wall: Timestamp, ticket: Ticket, out: &mut Vec<Output>) {
        self.set_time(now, wall);
        while let Some((made, transno)) = self.tickets.front().copied() {
            if made > ticket {
                break;
            }
            self.tickets.pop_front();
            self.committed = transno;
        }
        self.sharing.durable(self.committed);
        while let Some(first) = self.unanswered.first_entry() {
            if *first.key() > self.committed {
                break;
            }
            out.extend(
                first
                    .remove()
                    .into_iter()
                    .map(|answer| answer.into_output()),
            );
        }
        if !self.halted {
            self.send_destroys(out);
        }
    }

    /// The store has failed: nothing more will be durable.
    pub fn store_failed(&mut self, cause: StorageError, out: &mut Vec<Output>) {
        self.halt(cause, out);
    }

    /// Time has passed. To be called at least as soon as [`Mds::next_deadline`] says.
    pub fn tick(&mut self, now: Tick, wall: Timestamp, out: &mut Vec<Output>) {
        self.set_time(now, wall);
        let locked = self.locks.tick();
        self.follow(locked, &[], out);
        if self.halted {
            return;
        }
        if self.grace_until.is_some_and(|until| until <= now) {
            match self.end_some_orphans() {
                Ok(true) => self.grace_until = None,
                Ok(false) | Err(Failure::Refused(_)) => {}
                Err(Failure::Broken(cause)) => return self.halt(cause, out),
            }
        }
        self.send_destroys(out);
    }

    /// When [`Mds::tick`] will next have something to do.
    pub fn next_deadline(&self) -> Option<Tick> {
        let locks = self.locks.table().next_deadline();
        [locks, self.grace_until, self.next_destroy()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Ends orphans nobody has told of; true if there are no more such.
    fn end_some_orphans(&mut self) -> Result<bool, Failure> {
        let mut ended: Vec<Fid> = Vec::new();
        let opens = &self.opens;
        self.store
            .scan(Table::Orphans, &KeyRange::all(), |key, _: Orphan| {
                let fid = keys::parse_fid(key).ok_or_else(|| missing("orphan's id", "MDT"))?;
                if !opens.is_open(fid) {
                    ended.push(fid);
                }
                let full = ended.len() >= ORPHANS_PER_TICK;
                Ok(if full {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                })
            })?;
        let all = ended.len() < ORPHANS_PER_TICK;
        self.upkeep(|txn, opens| {
            for fid in ended {
                let file = txn.file(fid)?;
                end_orphan(txn, opens, &file);
            }
            Ok(())
        })?;
        Ok(all)
    }
}
