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
mod outstanding;
mod queue;
mod records;
mod resource;
mod step;

use std::collections::{BTreeMap, BTreeSet};

use base::{ClientId, LockHandle, Tick, Xid};

pub use self::message::{
    Glimpsed, Input, Kind, Limits, Output, Readmitted, Refusal, TryGrant, Want,
};
use self::names::Names;
use self::outstanding::{Blocking, Deadlines, Glimpse, Lease};
use self::records::{BY_CLIENT, BY_RESOURCE, Client, Held, Operation};
use self::resource::{Extra, Resource, Running};
use crate::ids::IdMap;
use crate::lock::{Cover, Lock, OpId, ResourceId};
use crate::mode::Mode;
use crate::slab::Slab;

/// All locks of one target. Empty at every start: locks do not survive a boot.
///
/// Different clients never hold locks that conflict, nor a lock that conflicts with a running operation.
/// Every waiting request is granted once the holders of its locks have given way.
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

    /// A client other than `client`, or an operation that is not for `client`, holds, awaits or changes
    /// something on the resource.
    pub fn is_used_by_others(&self, client: ClientId, resource: ResourceId) -> bool {
        let Some(record) = self.resources.get(&resource) else {
            return false;
        };
        let mut granted = record.granted.iter(&self.locks, BY_RESOURCE);
        if granted.any(|slot| self.locks.at(slot).lock.client != client) {
            return true;
        }
        let Some(extra) = record.extra.as_deref() else {
            return false;
        };
        let for_others = |op: OpId| {
            let operation = self.operations.get(&op);
            operation.is_none_or(|operation| operation.client != Some(client))
        };
        extra.running.iter().any(|held| for_others(held.op))
            || extra.inflight.iter().any(|entry| for_others(entry.op))
            || extra
                .still_waiting()
                .any(|waiter| waiter.party.client() != Some(client))
    }

    /// Another client than `client` holds a lock on `resource`.
    pub fn is_shared(&self, client: ClientId, resource: ResourceId) -> bool {
        let Some(known) = self.resources.get(&resource) else {
            return false;
        };
        let mut granted = known.granted.iter(&self.locks, BY_RESOURCE);
        granted.any(|slot| self.locks.at(slot).lock.client != client)
    }

    /// The resources that have a lock, an operation or a memory of contention.
    pub fn resources(&self) -> impl Iterator<Item = ResourceId> {
        self.resources.keys().copied()
    }

    /// The holder was asked to give the lock back, and has not answered in full.
    pub fn is_wanted_back(&self, handle: LockHandle) -> bool {
        self.blocking.contains_key(&handle)
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
