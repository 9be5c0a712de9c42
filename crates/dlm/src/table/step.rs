//! One step of the table: an event, all that it makes room for, and what time ends.

use base::{ClientId, LockHandle, Tick};

use super::{Input, LockTable, Output};
use crate::lock::ResourceId;

impl LockTable {
    /// Takes one event and appends what is to be done for it, in order.
    pub fn step(&mut self, now: Tick, input: Input, out: &mut Vec<Output>) {
        self.now = now;
        match input {
            Input::Enqueue { .. } => self.enqueue(input),
            Input::Abandon { client, request } => self.abandon(client, request),
            Input::Begin { op, client, wants } => self.begin(op, client, wants),
            Input::End { op } | Input::Abort { op } => self.finish(op),
            Input::Cancel { client, handles } => self.cancel(client, &handles),
            Input::Convert {
                client,
                handle,
                keep,
            } => self.convert(client, handle, keep),
            Input::WithdrawAck {
                client,
                handle,
                version,
            } => {
                self.withdraw_ack(client, handle, version);
            }
            Input::GlimpseReply {
                client,
                handle,
                value,
            } => {
                self.glimpse_reply(client, handle, value);
            }
            Input::Succeed { client } => self.succeed(client),
            Input::Evict { client } => self.evict(client),
            Input::Tick => self.pass_time(),
        }
        self.settle();
        out.append(&mut self.out);
    }

    fn cancel(&mut self, client: ClientId, handles: &[LockHandle]) {
        for handle in handles {
            if let Some(slot) = self.slot_of(client, *handle) {
                self.remove_lock(slot);
            }
        }
    }

    fn pass_time(&mut self) {
        while let Some(client) = self.deadlines.pop_expired(self.now) {
            self.eviction_due(client);
        }
        while let Some((at, resource)) = self
            .cooling
            .first()
            .copied()
            .filter(|(at, _)| *at <= self.now)
        {
            self.cooling.remove(&(at, resource));
            self.cool(resource);
        }
    }

    /// Forgets the contention of a resource, or looks again later.
    fn cool(&mut self, resource: ResourceId) {
        let now = self.now;
        // A resource is of one kind, and which is not recorded: remember as long as either asks.
        let (lease, extent) = (self.limits.lease_contention, self.limits.extent_contention);
        let rule = if lease.window > extent.window {
            lease
        } else {
            extent
        };
        let Some(extra) = self.extra_mut(resource) else {
            return;
        };
        extra.contention.expire(now, rule);
        extra.cooling = extra.contention.forgotten_at(rule);
        if let Some(again) = extra.cooling {
            self.cooling.insert((again, resource));
        }
        self.touched.push(resource);
    }

    /// Serves those that what was let go makes room for, and drops empty records.
    fn settle(&mut self) {
        let touched = std::mem::take(&mut self.touched);
        for resource in &touched {
            self.advance(*resource);
            self.tidy_resource(*resource);
        }
        let progressed = std::mem::take(&mut self.progressed);
        for op in progressed {
            self.next_stage(op);
        }
    }

    fn tidy_resource(&mut self, resource: ResourceId) {
        let Some(record) = self.resources.get_mut(&resource) else {
            return;
        };
        if record.extra.as_ref().is_some_and(|extra| extra.is_idle()) {
            record.extra = None;
        }
        if record.extra.is_none() && record.granted.len == 0 {
            self.resources.remove(&resource);
        }
    }
}
