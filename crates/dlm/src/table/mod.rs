//! The server's half: who holds what, who waits, and whom to ask to let go.

mod audit;
mod callback;
mod client;
mod glimpse;
mod granted;
mod lease;
mod message;
mod names;
mod operation;
mod queue;
mod resource;

use std::collections::{BTreeMap, BTreeSet};

use base::{ClientId, LockHandle, Tick, Xid};

use self::callback::{Blocking, Deadlines};
use self::client::Client;
use self::glimpse::Glimpse;
use self::granted::{BY_CLIENT, BY_RESOURCE, Held};
use self::lease::Lease;
pub use self::message::{
    Glimpsed, Input, Kind, Limits, Output, Readmitted, Refusal, TryGrant, Want,
};
use self::names::Names;
use self::operation::Operation;
use self::resource::{Extra, Resource, Running};
use crate::ids::IdMap;
use crate::lock::{Cover, Lock, OpId, ResourceId};
use crate::mode::Mode;
use crate::slab::Slab;

/// All locks of one target. Empty at every start: locks do not survive a boot.
#[derive(Default)]
pub struct LockTable {
    limits: Limits,
    now: Tick,
    locks: Slab<Held>,
    resources: IdMap<ResourceId, Resource>,
    clients: IdMap<ClientId, Client>,
    operations: IdMap<OpId, Operation>,
    /// Operations that have not been told to run; how many, and those of each client.
    acquiring: usize,
    waiting_ops: BTreeSet<(ClientId, OpId)>,
    /// Where each waiting request waits.
    requests: BTreeMap<(ClientId, Xid), ResourceId>,
    names: Names,
    blocking: IdMap<LockHandle, Blocking>,
    leases: IdMap<LockHandle, Lease>,
    glimpses: IdMap<LockHandle, Glimpse>,
    deadlines: Deadlines,
    /// Resources that remember contention, by when they may forget it.
    cooling: BTreeSet<(Tick, ResourceId)>,
    version: u64,
    /// Resources where something was let go in this step.
    touched: Vec<ResourceId>,
    /// Operations that may move on in this step.
    progressed: Vec<OpId>,
    /// What this step says.
    out: Vec<Output>,
}

impl LockTable {
    /// An empty table with these bounds.
    pub fn new(limits: Limits) -> LockTable {
        LockTable {
            limits,
            ..LockTable::default()
        }
    }

    /// The same, whose handles mean nothing to the boots before and after this one. What a client
    /// says of a lock that an earlier boot granted harms none of this one.
    pub fn of_boot(limits: Limits, boot_epoch: u64) -> LockTable {
        LockTable {
            locks: Slab::of_boot(boot_epoch),
            ..LockTable::new(limits)
        }
    }

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

    /// The lock behind `handle`, if `client` still holds it.
    pub fn holds(&self, client: ClientId, handle: LockHandle) -> Option<&Lock> {
        let slot = self.slot_of(client, handle)?;
        Some(&self.locks.at(slot).lock)
    }

    /// All locks that `client` holds.
    pub fn handles(&self, client: ClientId) -> Vec<LockHandle> {
        let owner = self.clients.get(&client);
        let slots = owner.map(|owner| owner.locks.iter(&self.locks, BY_CLIENT));
        let slots = slots.into_iter().flatten();
        slots.map(|slot| self.locks.at(slot).lock.handle).collect()
    }

    /// All locks that are granted.
    pub fn locks(&self) -> impl Iterator<Item = &Lock> {
        self.locks.iter().map(|(_, granted)| &granted.lock)
    }

    /// `client` holds a lock that covers this.
    pub fn covers(
        &self,
        client: ClientId,
        (resource, mode): (ResourceId, Mode),
        cover: Cover,
    ) -> bool {
        let Some(known) = self.resources.get(&resource) else {
            return false;
        };
        let mut granted = known.granted.iter(&self.locks, BY_RESOURCE);
        granted.any(|slot| {
            let lock = &self.locks.at(slot).lock;
            lock.client == client && lock.allows(resource, mode, cover)
        })
    }

    /// Its bounds.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The version that everything read from the server now carries. It only grows.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Granted locks.
    pub fn lock_count(&self) -> usize {
        self.locks.len()
    }

    /// Resources with a record.
    pub fn resource_count(&self) -> usize {
        self.resources.len()
    }

    /// Requests and operations that wait.
    pub fn waiting_count(&self) -> usize {
        self.requests.len() + self.acquiring
    }

    /// Callbacks not answered yet.
    pub fn callback_count(&self) -> usize {
        self.deadlines.len()
    }

    /// When a `Tick` will next have something to do.
    pub fn next_deadline(&self) -> Option<Tick> {
        let cooling = self.cooling.first().map(|(at, _)| *at);
        self.deadlines.next().into_iter().chain(cooling).min()
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

    fn extra(&self, resource: ResourceId) -> Option<&Extra> {
        self.resources.get(&resource)?.extra.as_deref()
    }

    fn extra_mut(&mut self, resource: ResourceId) -> Option<&mut Extra> {
        self.resources.get_mut(&resource)?.extra.as_deref_mut()
    }

    fn running(&self, resource: ResourceId) -> &[Running] {
        self.extra(resource).map_or(&[], |extra| &extra.running)
    }

    fn misuse(&mut self, client: ClientId, reason: &'static str) {
        self.out.push(Output::Misuse { client, reason });
    }
}
