//! The directory lease: withdrawing single entries from locks that stay, and readmitting them. Each
//! withdrawal, and the announcement or end of its operation, raises the table's version, by which a client
//! recognises a page that a callback overtook (docs/locks.md).

use std::collections::BTreeMap;

use base::{ClientId, LockHandle};

use super::outstanding::{Lease, Unacked};
use super::resource::Inflight;
use super::{LockTable, Output, Readmitted};
use crate::bits::Bits;
use crate::contention::ContentionRule;
use crate::lock::{Cover, Lock, OpId, ResourceId};
use crate::mode::Mode;

impl LockTable {
    /// Withdraws `key` from every lock of others with any of `bits`; returns how many answers
    /// `op` must wait for.
    pub(super) fn withdraw(
        &mut self,
        op: OpId,
        client: Option<ClientId>,
        resource: ResourceId,
        bits: Bits,
        key: u64,
    ) -> usize {
        self.version += 1;
        let version = self.version;
        let record = self.resources.entry(resource).or_default();
        let inflight = &mut record.extra.get_or_insert_default().inflight;
        inflight.push(Inflight { op, key, bits });
        let mut holders = self.holders_of_bits(resource, bits);
        holders.retain(|slot| Some(self.locks.at(*slot).lock.client) != client);
        let (mut unanswered, mut disturbed) = (0, false);
        for slot in holders {
            let (waits, told) = self.withdraw_from(slot, op, key, bits, version);
            unanswered += waits;
            disturbed |= told;
        }
        if disturbed && self.note_contention(resource, self.limits.lease_contention) {
            self.end_lease(resource, client);
        }
        unanswered
    }

    /// Returns how many answers of this holder to wait for, and whether it was told anything.
    fn withdraw_from(
        &mut self,
        slot: u32,
        op: OpId,
        key: u64,
        bits: Bits,
        version: u64,
    ) -> (usize, bool) {
        let Lock {
            handle,
            client,
            resource,
            cover,
            ..
        } = self.locks.at(slot).lock;
        let concerned = bits & cover.bits();
        let lease = self.leases.entry(handle).or_default();
        let mut waits = 0;
        for pending in lease.unacked.values_mut() {
            if pending.key == key && pending.bits.overlaps(concerned) {
                pending.ops.push(op);
                waits += 1;
            }
        }
        let known = lease.withdrawn.get(&key).copied().unwrap_or_default();
        let fresh = concerned.without(known);
        if fresh.is_empty() {
            return (waits, false);
        }
        if known.is_empty() && lease.withdrawn.len() >= self.limits.lease_withdrawn {
            self.tidy_lease(handle);
            self.revoke_for(slot, fresh, op);
            return (waits + 1, true);
        }
        lease.withdrawn.insert(key, known | fresh);
        let at = self.now.after(self.limits.callback_deadline);
        let pending = Unacked {
            key,
            bits: fresh,
            due: self.deadlines.add(at, client),
            ops: vec![op],
        };
        lease.unacked.insert(version, pending);
        let bits = fresh;
        self.out.push(Output::Withdraw {
            client,
            handle,
            resource,
            key,
            bits,
            version,
        });
        (waits + 1, true)
    }

    /// The directory is fought over: all others give their leases back, at their own pace.
    fn end_lease(&mut self, resource: ResourceId, client: Option<ClientId>) {
        for slot in self.holders_of_bits(resource, Bits::LEASE) {
            if Some(self.locks.at(slot).lock.client) != client {
                self.call_back(slot, Mode::EX, Cover::Bits(Bits::LEASE));
            }
        }
    }

    /// Counts one disturbance of the resource's holders; true if it has just become contended.
    pub(super) fn note_contention(&mut self, resource: ResourceId, rule: ContentionRule) -> bool {
        let now = self.now;
        let Some(extra) = self.extra_mut(resource) else {
            return false;
        };
        let contended = extra.contention.note(now, rule);
        if extra.cooling.is_none()
            && let Some(at) = extra.contention.forgotten_at(rule)
        {
            extra.cooling = Some(at);
            self.cooling.insert((at, resource));
        }
        contended
    }

    /// No lease bit among `bits` is given on the resource now: it is contended, or more entries
    /// are being withdrawn than a lock remembers.
    pub(super) fn gives_no_lease(
        &self,
        resource: ResourceId,
        bits: Bits,
        op: Option<OpId>,
    ) -> bool {
        let Some(extra) = self.extra(resource).filter(|_| bits.overlaps(Bits::LEASE)) else {
            return false;
        };
        let under_way = extra
            .inflight
            .iter()
            .filter(|withdrawal| Some(withdrawal.op) != op);
        extra.contention.holds(self.now) || under_way.count() > self.limits.lease_withdrawn
    }

    /// A new lock does not cover entries that other operations are withdrawing: it is born with
    /// them withdrawn.
    pub(super) fn withhold_inflight(&mut self, slot: u32, op: Option<OpId>) -> Vec<(u64, Bits)> {
        let Lock {
            handle,
            resource,
            cover,
            ..
        } = self.locks.at(slot).lock;
        let mut withheld: BTreeMap<u64, Bits> = BTreeMap::new();
        for (key, bits) in self.withdrawing(op, resource) {
            let bits = bits & cover.bits();
            if !bits.is_empty() {
                *withheld.entry(key).or_default() |= bits;
            }
        }
        if withheld.is_empty() {
            return Vec::new();
        }
        let list = withheld.iter().map(|(key, bits)| (*key, *bits)).collect();
        self.leases.entry(handle).or_default().withdrawn = withheld;
        list
    }

    /// A lock that was just granted, and that nobody has heard of, does not cover these entries: keys, each
    /// with its bits. They stay withdrawn until readmitted.
    pub fn withhold(&mut self, handle: LockHandle, entries: impl IntoIterator<Item = (u64, Bits)>) {
        let lease = self.leases.entry(handle).or_default();
        for (key, bits) in entries {
            *lease.withdrawn.entry(key).or_default() |= bits;
        }
        self.tidy_lease(handle);
    }

    /// What the lock does not cover: keys, each with its bits.
    pub fn withdrawn(&self, handle: LockHandle) -> impl Iterator<Item = (u64, Bits)> {
        let lease = self.leases.get(&handle).into_iter();
        lease.flat_map(|lease| lease.withdrawn.iter().map(|(key, bits)| (*key, *bits)))
    }

    /// The lock does not cover `bits` of the entry `key`.
    pub fn is_withdrawn(&self, handle: LockHandle, key: u64, bits: Bits) -> bool {
        let lease = self.leases.get(&handle);
        let withdrawn = lease.and_then(|lease| lease.withdrawn.get(&key));
        withdrawn.is_some_and(|withdrawn| withdrawn.contains(bits))
    }

    /// The holder no longer relies on what that callback withdrew.
    pub(super) fn withdraw_ack(&mut self, client: ClientId, handle: LockHandle, version: u64) {
        if self.slot_of(client, handle).is_none() {
            return;
        }
        let lease = self.leases.get_mut(&handle);
        if let Some(pending) = lease.and_then(|lease| lease.unacked.remove(&version)) {
            self.acknowledged(pending);
            self.tidy_lease(handle);
        }
    }

    /// What operations other than `op` withdraw from the leases on `resource` now: keys, each with its
    /// bits.
    pub fn withdrawing(
        &self,
        op: Option<OpId>,
        resource: ResourceId,
    ) -> impl Iterator<Item = (u64, Bits)> {
        let inflight = self
            .extra(resource)
            .map_or(&[][..], |extra| &extra.inflight);
        let others = inflight.iter().filter(move |other| Some(other.op) != op);
        others.map(|withdrawal| (withdrawal.key, withdrawal.bits))
    }

    /// What was withdrawn from the lock, and its holder has not acknowledged: keys, each with its bits.
    pub fn unacknowledged(&self, handle: LockHandle) -> impl Iterator<Item = (u64, Bits)> {
        let lease = self.leases.get(&handle).into_iter();
        let pending = lease.flat_map(|lease| lease.unacked.values());
        pending.map(|withdrawal| (withdrawal.key, withdrawal.bits))
    }

    fn acknowledged(&mut self, pending: Unacked) {
        self.deadlines.remove(pending.due);
        for op in pending.ops {
            self.op_answered(op);
        }
    }

    /// The lock goes away: nothing of it is covered, so everything is acknowledged.
    pub(super) fn forget_lease(&mut self, handle: LockHandle) {
        if let Some(lease) = self.leases.remove(&handle) {
            for pending in lease.unacked.into_values() {
                self.acknowledged(pending);
            }
        }
    }

    /// The lock has lost bits: what was withdrawn of those need not be remembered.
    pub(super) fn narrow_lease(&mut self, slot: u32) {
        let lock = self.locks.at(slot).lock;
        let Some(lease) = self.leases.get_mut(&lock.handle) else {
            return;
        };
        let left = lock.cover.bits();
        lease.withdrawn.retain(|_, bits| {
            *bits &= left;
            !bits.is_empty()
        });
        let (kept, done) = std::mem::take(&mut lease.unacked)
            .into_iter()
            .partition(|(_, pending)| pending.bits.overlaps(left));
        lease.unacked = kept;
        let done: BTreeMap<u64, Unacked> = done;
        for pending in done.into_values() {
            self.acknowledged(pending);
        }
        self.tidy_lease(lock.handle);
    }

    fn tidy_lease(&mut self, handle: LockHandle) {
        if self.leases.get(&handle).is_some_and(Lease::is_empty) {
            self.leases.remove(&handle);
        }
    }

    /// A reply of `op` carries the current state of the entry `key` (of every entry, where `None`)
    /// to the holder of `handle`. May its lease cover that again? `None` if it may not, because
    /// another operation is changing it or a withdrawal is not acknowledged, and also if nothing
    /// was withdrawn. Called after the operation's changes are made.
    pub fn readmit(
        &mut self,
        op: Option<OpId>,
        client: ClientId,
        handle: LockHandle,
        key: Option<u64>,
        bits: Bits,
    ) -> Option<Readmitted> {
        let slot = self.slot_of(client, handle)?;
        let resource = self.locks.at(slot).lock.resource;
        let meant = |entry: u64| key.is_none_or(|key| key == entry);
        let stands = |(other, changes): (u64, Bits)| meant(other) && changes.overlaps(bits);
        if self.withdrawing(op, resource).any(stands) || self.unacknowledged(handle).any(stands) {
            return None;
        }
        let lease = self.leases.get_mut(&handle)?;
        let mut readmitted = Bits::NONE;
        lease.withdrawn.retain(|entry, withdrawn| {
            if meant(*entry) {
                readmitted |= *withdrawn & bits;
                *withdrawn = withdrawn.without(bits);
            }
            !withdrawn.is_empty()
        });
        self.tidy_lease(handle);
        if readmitted.is_empty() {
            return None;
        }
        self.version += 1;
        let version = self.version;
        Some(Readmitted {
            handle,
            bits: readmitted,
            version,
        })
    }
}
