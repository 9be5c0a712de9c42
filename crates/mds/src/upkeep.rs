//! What time and durability bring about.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use base::{Fid, Tick, Timestamp};
use storage::{KeyRange, StorageError, Ticket};

use crate::core::Mds;
use crate::event::Output;
use crate::keys::{self, ClientUuid, Table};
use crate::mutation::Mutation;
use crate::namespace::end_orphan;
use crate::records::Orphan;
use crate::recovery::Event;
use crate::store::{Failure, missing, table_id};

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
        self.serve_newcomers(out);
        if !self.halted {
            self.ask_osts(out);
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
        self.step_recovery(Event::Due, out);
        if self.recovery.is_grace_over(now) {
            match self.end_grace() {
                Ok(true) => self.recovery.end_grace(),
                Ok(false) | Err(Failure::Refused(_)) => {}
                Err(Failure::Broken(cause)) => return self.halt(cause, out),
            }
        }
        self.end_waits_for_users(out);
        self.ask_osts(out);
    }

    /// When [`Mds::tick`] will next have something to do.
    pub fn next_deadline(&self) -> Option<Tick> {
        let locks = self.locks.table().next_deadline();
        let recovery = self.recovery.next();
        let (osts, busy) = (self.next_for_osts(), self.next_end_of_wait());
        [locks, recovery, osts, busy].into_iter().flatten().min()
    }

    /// Ends what clients that have not come back left behind; true if that is all.
    fn end_grace(&mut self) -> Result<bool, Failure> {
        if !self.end_some_orphans()? {
            return Ok(false);
        }
        self.forget_given_up()?;
        let here: BTreeSet<ClientUuid> = self.clients.values().map(|client| client.uuid).collect();
        let gone: Vec<ClientUuid> = self
            .answered_clients()?
            .into_iter()
            .filter(|client| !here.contains(client))
            .collect();
        self.upkeep(|txn, _| {
            gone.into_iter()
                .for_each(|client| txn.change(Mutation::RemoveClientReplies(client)));
            Ok(())
        })?;
        Ok(true)
    }

    /// The clients of which there are stored answers: one step of the table for each.
    fn answered_clients(&self) -> Result<Vec<ClientUuid>, Failure> {
        let (mut found, mut range) = (Vec::new(), KeyRange::all());
        loop {
            let mut next: Option<ClientUuid> = None;
            self.store
                .kv()
                .scan(table_id(Table::Replies), &range, |key, _| {
                    next = key.first_chunk().copied();
                    ControlFlow::Break(())
                })?;
            let Some(client) = next else {
                return Ok(found);
            };
            found.push(client);
            let Some(end) = KeyRange::prefix(&client).end else {
                return Ok(found);
            };
            range = KeyRange::from(end);
        }
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
