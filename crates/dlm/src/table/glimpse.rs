//! Glimpses: asking writers for their current values without taking their locks. A lock has one glimpse under
//! way at most. Operations that come meanwhile share the next one: an answer that was on its way before they
//! began could be too old for them. So it is with those who watch an object in CR, and are told how it grows.

use std::collections::BTreeMap;

use base::{ByteRange, ClientId, LockHandle};

use super::granted::Ask;
use super::outstanding::Glimpse;
use super::{Glimpsed, LockTable, Output, Want};
use crate::lock::{Cover, OpId, ResourceId};
use crate::mode::Mode;

impl LockTable {
    /// Asks all that the operation's wants name.
    pub(super) fn send_glimpses(&mut self, op: OpId) {
        let Some(operation) = self.operations.get(&op) else {
            return;
        };
        let client = operation.client;
        let wants = operation.wants.clone();
        let (mut slots, mut busy) = (Vec::new(), false);
        for want in wants {
            match want {
                Want::Glimpse { resource, bits } => {
                    slots.extend(self.writers(resource, Cover::Bits(bits), client));
                }
                Want::GlimpseExtent {
                    resource,
                    speculative,
                } => {
                    let writers = self.highest_writers(resource, client);
                    busy |= speculative && !writers.is_empty();
                    slots.extend(writers.into_iter().filter(|_| !speculative));
                }
                Want::Tell { resource } => slots.extend(self.watchers(resource, client)),
                _ => {}
            }
        }
        if let Some(operation) = self.operations.get_mut(&op) {
            operation.unglimpsed = slots.len();
            operation.busy = busy;
        }
        for slot in slots {
            self.glimpse(slot, vec![op]);
        }
    }

    /// Locks of others than `client` under which values may be newer than the server's.
    fn writers(&self, resource: ResourceId, cover: Cover, client: Option<ClientId>) -> Vec<u32> {
        let ask = Ask {
            mode: Mode::PR,
            cover,
            except: client,
        };
        let mut slots = self.conflicts(resource, ask);
        slots.retain(|slot| self.locks.at(*slot).lock.mode.covers(Mode::PW));
        slots
    }

    /// Locks of others than `client` whose holders only watch the object.
    fn watchers(&self, resource: ResourceId, client: Option<ClientId>) -> Vec<u32> {
        let ask = Ask {
            mode: Mode::EX,
            cover: Cover::Range(ByteRange::ALL),
            except: client,
        };
        let mut slots = self.conflicts(resource, ask);
        slots.retain(|slot| self.locks.at(*slot).lock.mode == Mode::CR);
        slots
    }

    /// Of every client that writes the object, its highest extent, by client.
    fn highest_writers(&self, resource: ResourceId, client: Option<ClientId>) -> Vec<u32> {
        let mut highest: BTreeMap<ClientId, (u64, u64, u32)> = BTreeMap::new();
        for slot in self.writers(resource, Cover::Range(ByteRange::ALL), client) {
            let lock = &self.locks.at(slot).lock;
            if let Cover::Range(range) = lock.cover {
                let best = highest.entry(lock.client).or_default();
                *best = (*best).max((range.end, range.start, slot));
            }
        }
        highest.into_values().map(|(.., slot)| slot).collect()
    }

    /// The highest extent that `client` writes under, other than `slot`.
    fn next_writer(&self, resource: ResourceId, client: ClientId, slot: u32) -> Option<u32> {
        let mut slots = self.writers(resource, Cover::Range(ByteRange::ALL), None);
        slots.retain(|other| *other != slot && self.locks.at(*other).lock.client == client);
        let place = |slot: &u32| match self.locks.at(*slot).lock.cover {
            Cover::Range(range) => (range.end, range.start),
            Cover::Bits(_) => (0, 0),
        };
        slots.into_iter().max_by_key(place)
    }

    fn glimpse(&mut self, slot: u32, ops: Vec<OpId>) {
        let handle = self.locks.at(slot).lock.handle;
        if let Some(glimpse) = self.glimpses.get_mut(&handle) {
            glimpse.next.extend(ops);
        } else {
            self.ask_for_values(slot, ops);
        }
    }

    /// An extent goes away unanswered. What was written under it was sent, but its holder may
    /// have written under a lower one too, which was not asked because this one was.
    pub(super) fn pass_on_glimpse(&mut self, slot: u32) {
        let lock = self.locks.at(slot).lock;
        let writes = matches!(lock.cover, Cover::Range(_)) && lock.mode.covers(Mode::PW);
        if !writes || !self.glimpses.contains_key(&lock.handle) {
            return;
        }
        let Some(other) = self.next_writer(lock.resource, lock.client, slot) else {
            return;
        };
        if let Some(glimpse) = self.glimpses.remove(&lock.handle) {
            self.deadlines.remove(glimpse.due);
            self.glimpse(other, [glimpse.asked, glimpse.next].concat());
        }
    }

    fn ask_for_values(&mut self, slot: u32, asked: Vec<OpId>) {
        let lock = self.locks.at(slot).lock;
        let at = self.now.after(self.limits.callback_deadline);
        let due = self.deadlines.add(at, lock.client);
        let watches = lock.mode == Mode::CR;
        let ops = if watches { asked.clone() } else { Vec::new() };
        self.glimpses.insert(
            lock.handle,
            Glimpse {
                due,
                asked,
                next: Vec::new(),
            },
        );
        let (client, handle, resource) = (lock.client, lock.handle, lock.resource);
        self.out.push(match watches {
            true => Output::Tell {
                client,
                handle,
                resource,
                ops,
            },
            false => Output::Glimpse {
                client,
                handle,
                resource,
            },
        });
    }

    /// A holder's answer.
    pub(super) fn glimpse_reply(&mut self, client: ClientId, handle: LockHandle, value: Vec<u8>) {
        let Some(slot) = self.slot_of(client, handle) else {
            return;
        };
        let Some(glimpse) = self.glimpses.remove(&handle) else {
            return;
        };
        self.deadlines.remove(glimpse.due);
        let resource = self.locks.at(slot).lock.resource;
        for op in glimpse.asked {
            let value = value.clone();
            self.op_glimpsed(
                op,
                Some(Glimpsed {
                    resource,
                    client,
                    value,
                }),
            );
        }
        let next: Vec<OpId> = glimpse
            .next
            .into_iter()
            .filter(|op| self.operations.contains_key(op))
            .collect();
        if !next.is_empty() {
            self.ask_for_values(slot, next);
        }
    }

    /// The lock goes away: its holder has sent all it had, and says nothing more.
    pub(super) fn forget_glimpse(&mut self, handle: LockHandle) {
        if let Some(glimpse) = self.glimpses.remove(&handle) {
            self.deadlines.remove(glimpse.due);
            for op in glimpse.asked.into_iter().chain(glimpse.next) {
                self.op_glimpsed(op, None);
            }
        }
    }
}
