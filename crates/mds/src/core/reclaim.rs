//! Write leases outlive a boot of the target. Their holders claim them before anybody is served, and what was
//! under way under them is done then (docs/recovery.md, section 4).

use std::collections::HashSet;

use base::{ClientId, Fid, FsError};
use wire::mdt::{Reply, Request};

use super::Mds;
use crate::cover::{outside_of, to_wire};
use crate::event::{Call, Output};
use crate::reclaimed::{Claim, are_leased};
use crate::request::reply;
use crate::txn::{Result, Txn};

impl Mds {
    /// A client claims a write lease that it had in the boot before.
    pub(super) fn reclaim_lease(&mut self, call: Call, dir: Fid, out: &mut Vec<Output>) {
        let answer = self.give_lease_back(call.client, dir);
        let claim = match &answer {
            Ok(Reply::WriteLease { grant: Some(_), .. }) => Claim::Given,
            _ => Claim::Refused,
        };
        self.reclaimed.add(call.client, dir, claim);
        match answer {
            Ok(answer) => reply(out, call, Ok(answer)),
            Err(failure) => self.fail(call, failure, out),
        }
        self.serve_reclaimed(out);
    }

    /// Sets that were sent again before their leases were claimed wait no longer. Nor do those that will not
    /// get a lease: a set that was done before the restart is found by its reply record, others are refused.
    /// One may bring the lease that the next one needs, or empty the directory that it removes: those of a
    /// frame stay in their order.
    fn serve_reclaimed(&mut self, out: &mut Vec<Output>) {
        loop {
            let (locks, reclaimed) = (&self.locks, &self.reclaimed);
            let mut behind = HashSet::new();
            let is_next = |(call, request): &(Call, Request)| match request {
                Request::Update { dirs, .. } => {
                    let is_leased = are_leased((locks, reclaimed), call.client, dirs);
                    let is_answered = is_leased || reclaimed.lack(call.client, dirs);
                    let frame = (call.client, call.slot, call.xid);
                    let is_next = is_answered && !behind.contains(&frame);
                    if !is_next {
                        behind.insert(frame);
                    }
                    is_next
                }
                _ => false,
            };
            let served = self.recovery.take_waiting(is_next);
            if served.is_empty() {
                return;
            }
            for (call, request) in served {
                self.admit(call, request, out);
            }
        }
    }

    fn give_lease_back(&mut self, client: ClientId, dir: Fid) -> Result<Reply> {
        let session = self.clients.get(&client);
        // Once it is ready others are served, who may have got the directory since.
        if !session.is_some_and(|session| self.recovery.awaits(session.uuid)) {
            return Err(FsError::Stale.into());
        }
        let txn = Txn::new(&self.store, self.hasher, self.state, self.wall);
        let is_empty = txn.live_dir(dir)?.entries == 0;
        let used = self.used_children_so_far(client, dir)?;
        let grant = self.locks.try_write_lease_without(None, client, dir, &used);
        Ok(Reply::WriteLease {
            outside: grant.iter().flat_map(outside_of).collect(),
            grant: grant.as_ref().map(to_wire),
            is_empty,
        })
    }

    /// The request is a set under write leases that the client has claimed, or was refused, and none waits
    /// that its frame has before it.
    pub(crate) fn is_under_reclaimed(&self, call: Call, request: &Request) -> bool {
        let is_before = |(other, request): &(Call, Request)| {
            (other.client, other.slot, other.xid) == (call.client, call.slot, call.xid)
                && other.index < call.index
                && matches!(request, Request::Update { .. })
        };
        match request {
            Request::Update { dirs, .. } => {
                let is_answered = self.has_write_leases(call.client, dirs)
                    || self.reclaimed.lack(call.client, dirs);
                is_answered && !self.recovery.waiting().any(is_before)
            }
            _ => false,
        }
    }

    /// A client says that it has used the file since before the restart: write leases of others that were
    /// claimed before do not cover it.
    pub(crate) fn leave_to_user(&mut self, client: ClientId, fid: Fid) -> Result<()> {
        if !self.reclaimed.is_open() || !self.locks.has_write_leases() {
            return Ok(());
        }
        for dir in self.naming_dirs(fid)? {
            self.locks.leave_out(client, dir, fid);
        }
        Ok(())
    }
}
