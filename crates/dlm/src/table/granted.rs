//! Granted locks: adding, changing and removing them, and finding those in somebody's way.

use base::{ByteRange, ClientId, LockHandle};

use super::LockTable;
use super::records::{BY_CLIENT, BY_RESOURCE, Held};
use super::resource::{Index, Room};
use crate::bits::Bits;
use crate::lock::{Cover, Lock, ResourceId, conflict};
use crate::mode::Mode;

/// A resource with more locks than this gets an index.
const INDEX_ABOVE: u32 = 8;
/// A resource with fewer locks than this loses it.
const INDEX_BELOW: u32 = 4;

/// Somebody's wish: whose locks are in its way?
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask {
    pub mode: Mode,
    pub cover: Cover,
    /// Locks of this client are not.
    pub except: Option<ClientId>,
}

impl LockTable {
    /// Adds a granted lock and returns its slot.
    pub(super) fn insert_lock(
        &mut self,
        client: ClientId,
        resource: ResourceId,
        mode: Mode,
        cover: Cover,
    ) -> u32 {
        let slot = self.locks.insert(|handle| {
            Held::new(Lock {
                handle,
                client,
                resource,
                mode,
                cover,
            })
        });
        let owner = self.clients.entry(client).or_default();
        owner.locks.push(&mut self.locks, BY_CLIENT, slot);
        let record = self.resources.entry(resource).or_default();
        record.granted.push(&mut self.locks, BY_RESOURCE, slot);
        self.index_lock(slot);
        slot
    }

    fn index_lock(&mut self, slot: u32) {
        let lock = self.locks.at(slot).lock;
        let Some(record) = self.resources.get_mut(&lock.resource) else {
            return;
        };
        if let Some(index) = record.extra.as_mut().and_then(|extra| extra.index.as_mut()) {
            index.insert(&lock, slot);
        } else if record.granted.len > INDEX_ABOVE {
            let mut index = Box::new(Index::default());
            for member in record.granted.iter(&self.locks, BY_RESOURCE) {
                index.insert(&self.locks.at(member).lock, member);
            }
            record.extra.get_or_insert_default().index = Some(index);
        }
    }

    fn unindex_lock(&mut self, slot: u32) {
        let lock = self.locks.at(slot).lock;
        let record = self.resources.get_mut(&lock.resource);
        let extra = record.and_then(|record| record.extra.as_mut());
        if let Some(index) = extra.and_then(|extra| extra.index.as_mut()) {
            index.remove(&lock, slot);
        }
    }

    /// Takes a granted lock out, with all that hangs on it. The resource is looked at again at the
    /// end of the step.
    pub(super) fn remove_lock(&mut self, slot: u32) {
        let lock = self.locks.at(slot).lock;
        self.pass_on_glimpse(slot);
        self.forget_callbacks(lock.handle);
        self.unindex_lock(slot);
        if let Some(record) = self.resources.get_mut(&lock.resource) {
            record.granted.remove(&mut self.locks, BY_RESOURCE, slot);
            if let Some(extra) = record.extra.as_mut()
                && record.granted.len < INDEX_BELOW
            {
                extra.index = None;
            }
        }
        if let Some(owner) = self.clients.get_mut(&lock.client) {
            owner.locks.remove(&mut self.locks, BY_CLIENT, slot);
        }
        self.locks.remove(slot);
        self.tidy_client(lock.client);
        self.touched.push(lock.resource);
    }

    /// Narrows a granted lock.
    pub(super) fn reshape_lock(&mut self, slot: u32, mode: Mode, cover: Cover) {
        self.unindex_lock(slot);
        let lock = &mut self.locks.at_mut(slot).lock;
        (lock.mode, lock.cover) = (mode, cover);
        let resource = lock.resource;
        self.index_lock(slot);
        self.touched.push(resource);
    }

    /// The slot of a lock of this client.
    pub(super) fn slot_of(&self, client: ClientId, handle: LockHandle) -> Option<u32> {
        let slot = self.locks.find(handle)?;
        (self.locks.at(slot).lock.client == client).then_some(slot)
    }

    /// Visits the granted locks in the way of `ask` until `visit` says no; false if it did.
    pub(super) fn each_conflict(
        &self,
        resource: ResourceId,
        ask: Ask,
        visit: &mut dyn FnMut(u32) -> bool,
    ) -> bool {
        let Some(record) = self.resources.get(&resource) else {
            return true;
        };
        let index = record.extra.as_ref().and_then(|extra| extra.index.as_ref());
        match (index, ask.cover) {
            (Some(index), Cover::Range(range)) => index
                .conflicting_trees(ask.mode)
                .all(|tree| tree.overlapping(range, ask.except, visit)),
            (Some(index), Cover::Bits(bits)) if !index.has_conflicting_bits(ask.mode, bits) => true,
            _ => record.granted.iter(&self.locks, BY_RESOURCE).all(|slot| {
                let lock = &self.locks.at(slot).lock;
                let clear = Some(lock.client) == ask.except
                    || !conflict((lock.mode, lock.cover), (ask.mode, ask.cover));
                clear || visit(slot)
            }),
        }
    }

    /// Some granted lock is in the way of `ask`.
    pub(super) fn any_conflict(&self, resource: ResourceId, ask: Ask) -> bool {
        !self.each_conflict(resource, ask, &mut |_| false)
    }

    /// The granted locks in the way of `ask`.
    pub(super) fn conflicts(&self, resource: ResourceId, ask: Ask) -> Vec<u32> {
        let mut slots = Vec::new();
        self.each_conflict(resource, ask, &mut |slot| {
            slots.push(slot);
            true
        });
        slots
    }

    /// The slots of every granted lock that has any of `bits`, oldest first.
    pub(super) fn holders_of_bits(&self, resource: ResourceId, bits: Bits) -> Vec<u32> {
        let Some(record) = self.resources.get(&resource) else {
            return Vec::new();
        };
        let has = |slot: &u32| self.locks.at(*slot).lock.cover.bits().overlaps(bits);
        record
            .granted
            .iter(&self.locks, BY_RESOURCE)
            .filter(has)
            .collect()
    }

    /// Takes the granted extents of others out of `room`.
    pub(super) fn exclude_granted(
        &self,
        resource: ResourceId,
        mode: Mode,
        client: ClientId,
        range: ByteRange,
        room: &mut Room,
    ) {
        let Some(record) = self.resources.get(&resource) else {
            return;
        };
        if let Some(index) = record.extra.as_ref().and_then(|extra| extra.index.as_ref()) {
            for tree in index.conflicting_trees(mode) {
                let end = tree.last_end_before(range.start, Some(client));
                room.exclude(ByteRange::new(0, end));
                if let Some(start) = tree.first_start_from(range.end, Some(client)) {
                    room.exclude(ByteRange::from(start));
                }
            }
            return;
        }
        for slot in record.granted.iter(&self.locks, BY_RESOURCE) {
            let lock = &self.locks.at(slot).lock;
            if let Cover::Range(taken) = lock.cover
                && lock.client != client
                && !lock.mode.compatible(mode)
            {
                room.exclude(taken);
            }
        }
    }
}
