//! Recomputes what must hold of a table, from scratch. For tests and the simulator.

use std::collections::{HashMap, HashSet};

use base::{ClientId, LockHandle};

use super::LockTable;
use super::records::{BY_CLIENT, BY_RESOURCE, Stage};
use super::resource::{Party, Resource, Waiter};
use crate::lock::{Lock, OpId, ResourceId, conflict};

type Verdict = Result<(), String>;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}

impl LockTable {
    /// Checks every invariant of the table between steps; says which one is broken.
    pub fn audit(&self) -> Result<(), String> {
        ensure(
            self.touched.is_empty() && self.progressed.is_empty(),
            || "a step is unfinished".into(),
        )?;
        let mut threaded = 0;
        for (id, record) in &self.resources {
            threaded += self.audit_resource(*id, record)?;
        }
        ensure(threaded == self.locks.len(), || {
            "a lock is on no resource's list".into()
        })?;
        self.audit_clients()?;
        self.audit_operations()?;
        self.audit_names()?;
        self.audit_callbacks()
    }

    fn audit_resource(&self, id: ResourceId, record: &Resource) -> Result<usize, String> {
        let slots: Vec<u32> = record.granted.iter(&self.locks, BY_RESOURCE).collect();
        ensure(slots.len() == record.granted.len as usize, || {
            format!("{id:?}: length of list")
        })?;
        let locks: Vec<&Lock> = slots
            .iter()
            .map(|slot| &self.locks.at(*slot).lock)
            .collect();
        for (place, lock) in locks.iter().enumerate() {
            ensure(lock.resource == id, || {
                format!("{lock:?} is on the list of {id:?}")
            })?;
            ensure(!lock.cover.is_empty(), || {
                format!("{lock:?} covers nothing")
            })?;
            let mut later = locks[place + 1..].iter();
            let clash = later.find(|other| {
                other.client != lock.client
                    && conflict((other.mode, other.cover), (lock.mode, lock.cover))
            });
            ensure(clash.is_none(), || {
                format!("{lock:?} is held beside {clash:?}")
            })?;
        }
        let Some(extra) = record.extra.as_deref() else {
            ensure(!locks.is_empty(), || {
                format!("{id:?} is empty but recorded")
            })?;
            return Ok(locks.len());
        };
        ensure(!(extra.is_idle() && locks.is_empty()), || {
            format!("{id:?} is idle but recorded")
        })?;
        for held in &extra.running {
            let client = self
                .operations
                .get(&held.op)
                .and_then(|operation| operation.client);
            let beside = locks.iter().find(|lock| {
                Some(lock.client) != client
                    && conflict((lock.mode, lock.cover), (held.mode, held.cover))
            });
            ensure(beside.is_none(), || {
                format!("{held:?} is held beside {beside:?}")
            })?;
            let other = extra.running.iter().find(|other| {
                other.op != held.op && conflict((other.mode, other.cover), (held.mode, held.cover))
            });
            ensure(other.is_none(), || {
                format!("{held:?} is held beside {other:?}")
            })?;
        }
        for (place, waiter) in extra.waiting.iter().enumerate() {
            self.audit_waiter(id, waiter, extra.waiting.iter().take(place))?;
        }
        self.audit_index(id, record)?;
        Ok(locks.len())
    }

    /// A waiter waits for something, and all whose lock is in its way were asked for it.
    fn audit_waiter<'a>(
        &self,
        id: ResourceId,
        waiter: &Waiter,
        mut earlier: impl Iterator<Item = &'a Waiter>,
    ) -> Verdict {
        let behind = earlier.any(|other| other.conflicts(waiter.mode, waiter.cover));
        let held_up = self.is_held_up(id, waiter);
        ensure(behind || held_up, || {
            format!("{id:?}: {waiter:?} waits for nothing")
        })?;
        ensure(!waiter.served, || {
            format!("{id:?}: {waiter:?} was served and is still there")
        })?;
        let ask = super::granted::Ask {
            mode: waiter.mode,
            cover: waiter.cover,
            except: waiter.party.client(),
        };
        for slot in self.conflicts(id, ask) {
            let lock = &self.locks.at(slot).lock;
            let asked = self.blocking.get(&lock.handle).is_some_and(|blocking| {
                blocking.modes.implies(waiter.mode)
                    && blocking
                        .bits
                        .contains(lock.cover.bits() & waiter.cover.bits())
            });
            ensure(asked, || {
                format!("{lock:?} was not asked to make room for {waiter:?}")
            })?;
        }
        let known = match waiter.party {
            Party::Request {
                client, request, ..
            } => self.requests.get(&(client, request)) == Some(&id),
            Party::Operation { op, .. } => self.operations.contains_key(&op),
        };
        ensure(known, || format!("{id:?}: nobody knows {waiter:?}"))
    }

    /// The index finds what the list has.
    fn audit_index(&self, id: ResourceId, record: &Resource) -> Verdict {
        let Some(index) = record.extra.as_ref().and_then(|extra| extra.index.as_ref()) else {
            return Ok(());
        };
        for slot in record.granted.iter(&self.locks, BY_RESOURCE) {
            let lock = &self.locks.at(slot).lock;
            let Some(against) = lock.mode.conflicts().iter().next() else {
                continue;
            };
            let found = match lock.cover {
                crate::lock::Cover::Bits(bits) => index.has_conflicting_bits(against, bits),
                crate::lock::Cover::Range(range) => index
                    .conflicting_trees(against)
                    .any(|tree| !tree.overlapping(range, None, &mut |found| found != slot)),
            };
            ensure(found, || format!("{id:?}: {lock:?} is not in the index"))?;
        }
        Ok(())
    }

    fn audit_clients(&self) -> Verdict {
        let mut waiting: HashMap<ClientId, usize> = HashMap::new();
        for (client, _) in self.requests.keys() {
            *waiting.entry(*client).or_default() += 1;
        }
        let mut held = 0;
        for (client, owner) in &self.clients {
            let slots: Vec<u32> = owner.locks.iter(&self.locks, BY_CLIENT).collect();
            held += slots.len();
            ensure(slots.len() == owner.locks.len as usize, || {
                format!("{client}: length of list")
            })?;
            let own = slots
                .iter()
                .all(|slot| self.locks.at(*slot).lock.client == *client);
            ensure(own, || {
                format!("{client}: somebody else's lock on its list")
            })?;
            let count = waiting.remove(client).unwrap_or(0);
            ensure(count == owner.waiting, || {
                format!("{client}: {count} requests wait")
            })?;
        }
        ensure(held == self.locks.len(), || {
            "a lock is on no client's list".into()
        })?;
        ensure(waiting.is_empty(), || {
            format!("requests of unknown clients: {waiting:?}")
        })
    }

    /// Each operation waits for exactly what is still to come.
    fn audit_operations(&self) -> Verdict {
        let mut missing: HashMap<OpId, usize> = HashMap::new();
        let mut unanswered: HashMap<OpId, usize> = HashMap::new();
        let mut unglimpsed: HashMap<OpId, usize> = HashMap::new();
        let waiters = self
            .resources
            .values()
            .filter_map(|record| record.extra.as_ref());
        for waiter in waiters.flat_map(|extra| &extra.waiting) {
            if let Party::Operation { op, .. } = waiter.party {
                *missing.entry(op).or_default() += 1;
            }
        }
        for (op, _) in self.names.queues().flat_map(|(_, waiting)| waiting) {
            *missing.entry(*op).or_default() += 1;
        }
        let acks = self
            .leases
            .values()
            .flat_map(|lease| lease.unacked.values());
        let revocations = self
            .blocking
            .values()
            .flat_map(|blocking| &blocking.revokers);
        let answers = acks
            .flat_map(|pending| &pending.ops)
            .chain(revocations.map(|(op, _)| op));
        for op in answers {
            *unanswered.entry(*op).or_default() += 1;
        }
        for op in self
            .glimpses
            .values()
            .flat_map(|glimpse| glimpse.asked.iter().chain(&glimpse.next))
        {
            *unglimpsed.entry(*op).or_default() += 1;
        }
        let mut acquiring = 0;
        for (op, operation) in &self.operations {
            let counts = (
                operation.missing,
                operation.unanswered,
                operation.unglimpsed,
            );
            let of = |map: &HashMap<OpId, usize>| map.get(op).copied().unwrap_or(0);
            let real = (of(&missing), of(&unanswered), of(&unglimpsed));
            ensure(counts == real, || {
                format!("{op:?} waits for {counts:?}, there is {real:?}")
            })?;
            let waits = operation.stage != Stage::Running;
            acquiring += usize::from(waits);
            ensure(waits == (real != (0, 0, 0)), || {
                format!("{op:?} waits for nothing or runs")
            })?;
            if let Some(client) = operation.client {
                let listed = self.waiting_ops.contains(&(client, *op));
                ensure(listed == waits, || {
                    format!("{op:?} is listed as waiting: {listed}")
                })?;
            }
        }
        ensure(acquiring == self.acquiring, || {
            format!("{acquiring} operations wait")
        })
    }

    fn audit_names(&self) -> Verdict {
        for (running, waiting) in self.names.queues() {
            ensure(!running.is_empty(), || {
                format!("{waiting:?} wait for a free name")
            })?;
            for (op, mode) in running {
                let clash = running
                    .iter()
                    .find(|(other, held)| other != op && !held.compatible(*mode));
                ensure(clash.is_none(), || {
                    format!("{op:?} has a name beside {clash:?}")
                })?;
            }
        }
        Ok(())
    }

    fn audit_callbacks(&self) -> Verdict {
        let mut outstanding = HashSet::new();
        let mut note = |handle: &LockHandle, due| -> Verdict {
            let slot = self
                .locks
                .find(*handle)
                .ok_or_else(|| format!("callback on lost {handle}"))?;
            let client = self.locks.at(slot).lock.client;
            let reported = self
                .clients
                .get(&client)
                .is_some_and(|owner| owner.eviction_due);
            if self.deadlines.contains(due) {
                outstanding.insert(due);
            }
            let watched = self.deadlines.contains(due) || reported;
            ensure(watched, || {
                format!("{handle}: a callback without a deadline")
            })
        };
        for (handle, blocking) in &self.blocking {
            note(handle, blocking.due)?;
        }
        for (client, owner) in &self.clients {
            let theirs = self.blocking.values().filter(|b| b.client == *client);
            ensure(theirs.count() == owner.called_back, || {
                format!("{client}: {} called back", owner.called_back)
            })?;
        }
        for (handle, glimpse) in &self.glimpses {
            note(handle, glimpse.due)?;
        }
        for (handle, lease) in &self.leases {
            ensure(self.locks.find(*handle).is_some(), || {
                format!("lease of lost {handle}")
            })?;
            for pending in lease.unacked.values() {
                note(handle, pending.due)?;
            }
        }
        let known = outstanding.len();
        ensure(known == self.deadlines.len(), || {
            format!("{known} callbacks are outstanding")
        })?;
        for (at, id) in &self.cooling {
            let expected = self
                .extra(*id)
                .is_some_and(|extra| extra.cooling == Some(*at));
            ensure(expected, || format!("{id:?} cools without knowing it"))?;
        }
        Ok(())
    }
}
