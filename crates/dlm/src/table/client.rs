//! What becomes of one client: how near it is to its bounds, its eviction, its successor.

use base::{ClientId, Xid};

use super::records::BY_CLIENT;
use super::{LockTable, Output};
use crate::lock::OpId;

impl LockTable {
    /// Somebody waits for this client to give back a lock, or a part of one.
    pub fn is_called_back(&self, client: ClientId) -> bool {
        let owner = self.clients.get(&client);
        owner.is_some_and(|owner| owner.called_back > 0)
    }

    /// The callback about one of its locks is answered.
    pub(super) fn callback_answered(&mut self, client: ClientId) {
        if let Some(owner) = self.clients.get_mut(&client) {
            owner.called_back -= 1;
        }
    }

    /// The client may have one more lock. Says `ShrinkYourLocks` when it nears its bound.
    pub(super) fn has_room_for_lock(&mut self, client: ClientId) -> bool {
        let max = self.limits.locks_per_client;
        let owner = self.clients.entry(client).or_default();
        let count = owner.locks.len as usize + owner.waiting;
        if count + 1 > max - max / 8 && !owner.shrinking {
            owner.shrinking = true;
            self.out.push(Output::ShrinkYourLocks { client });
        }
        count < max
    }

    /// The client may wait once more.
    pub(super) fn has_room_to_wait(&self, client: ClientId) -> bool {
        let waiting = self.clients.get(&client).map_or(0, |owner| owner.waiting);
        waiting < self.limits.waiting_per_client && self.waiting_count() < self.limits.waiting
    }

    /// Drops the client's record when there is nothing in it, and rearms the shrink request.
    pub(super) fn tidy_client(&mut self, client: ClientId) {
        let Some(owner) = self.clients.get_mut(&client) else {
            return;
        };
        let max = self.limits.locks_per_client;
        if (owner.locks.len as usize) < max - max / 4 {
            owner.shrinking = false;
        }
        if owner.locks.len == 0 && owner.waiting == 0 && !owner.eviction_due {
            self.clients.remove(&client);
        }
    }

    /// Reports the client for eviction, once.
    pub(super) fn eviction_due(&mut self, client: ClientId) {
        let owner = self.clients.entry(client).or_default();
        if !owner.eviction_due {
            owner.eviction_due = true;
            self.out.push(Output::EvictionDue { client });
        }
    }

    /// Removes all that the client waits for.
    pub(super) fn succeed(&mut self, client: ClientId) {
        let first = (client, Xid(0));
        let requests = self.requests.range(first..=(client, Xid(u64::MAX)));
        let requests: Vec<Xid> = requests.map(|((_, request), _)| *request).collect();
        for request in requests {
            self.abandon(client, request);
        }
        let ops = self
            .waiting_ops
            .range((client, OpId(0))..=(client, OpId(u64::MAX)));
        let ops: Vec<OpId> = ops.map(|(_, op)| *op).collect();
        for op in ops {
            self.finish(op);
            self.out.push(Output::Aborted { op });
        }
        self.tidy_client(client);
    }

    /// Removes all that the client holds or waits for.
    pub(super) fn evict(&mut self, client: ClientId) {
        self.succeed(client);
        if let Some(owner) = self.clients.get_mut(&client) {
            owner.eviction_due = false;
            let slots: Vec<u32> = owner.locks.iter(&self.locks, BY_CLIENT).collect();
            // Its other locks answer no more than these.
            for slot in &slots {
                self.forget_glimpse(self.locks.at(*slot).lock.handle);
            }
            for slot in slots {
                self.remove_lock(slot);
            }
        }
        self.tidy_client(client);
    }
}
