//! The queue of one resource: who is granted, who waits, and what a waiter sets in motion.

use base::{ByteRange, ClientId, Xid};

use super::granted::Ask;
use super::resource::{Ahead, Extra, Party, Room, Running, Waiter};
use super::{Input, Kind, LockTable, Output, Refusal, TryGrant};
use crate::bits::Bits;
use crate::lock::{Cover, Grant, OpId, ResourceId, conflict};
use crate::mode::Mode;

/// A lock request, taken apart.
#[derive(Clone, Copy)]
struct Request {
    client: ClientId,
    request: Xid,
    resource: ResourceId,
    mode: Mode,
    cover: Cover,
    try_bits: Bits,
}

impl Request {
    fn waiter(&self) -> Waiter {
        Waiter {
            party: Party::Request {
                client: self.client,
                request: self.request,
                try_bits: self.try_bits,
            },
            mode: self.mode,
            cover: self.cover,
            served: false,
        }
    }
}

impl LockTable {
    /// A client wants a lock.
    pub(super) fn enqueue(&mut self, input: Input) {
        let Input::Enqueue {
            client,
            request,
            resource,
            mode,
            kind,
            nonblock,
        } = input
        else {
            return;
        };
        let (cover, try_bits) = match kind {
            Kind::Inode { bits, try_bits } => (Cover::Bits(bits), try_bits.without(bits)),
            Kind::Extent { range } => (Cover::Range(range), Bits::NONE),
        };
        if self.requests.contains_key(&(client, request)) {
            return self.misuse(client, "request number in use");
        }
        let asked = Request {
            client,
            request,
            resource,
            mode,
            cover,
            try_bits,
        };
        if let Err(why) = self.admit(&asked, nonblock) {
            self.out.push(Output::Refused {
                client,
                request,
                why,
            });
            self.tidy_client(client);
        }
    }

    fn admit(&mut self, asked: &Request, nonblock: bool) -> Result<(), Refusal> {
        if asked.cover.is_empty() {
            return Err(Refusal::Invalid);
        }
        if self.gives_no_lease(asked.resource, asked.cover.bits(), None) {
            return Err(Refusal::Contended);
        }
        if !self.has_room_for_lock(asked.client) {
            return Err(Refusal::TooManyLocks);
        }
        let waiter = asked.waiter();
        if !self.must_wait(asked.resource, &waiter) {
            let slot = self.grant_request(asked);
            self.warn_new_holder(slot);
            return Ok(());
        }
        if nonblock {
            return Err(Refusal::WouldBlock);
        }
        if !self.has_room_to_wait(asked.client) {
            return Err(Refusal::TooManyWaiting);
        }
        self.requests
            .insert((asked.client, asked.request), asked.resource);
        self.clients.entry(asked.client).or_default().waiting += 1;
        self.wait(asked.resource, waiter);
        Ok(())
    }

    /// The waiter cannot be served now: something held or waiting is in its way.
    pub(super) fn must_wait(&self, resource: ResourceId, waiter: &Waiter) -> bool {
        let extra = self.extra(resource);
        let mut waiting = extra.into_iter().flat_map(Extra::still_waiting);
        waiting.any(|earlier| earlier.conflicts(waiter.mode, waiter.cover))
            || self.is_held_up(resource, waiter)
    }

    /// Something held is in the waiter's way.
    pub(super) fn is_held_up(&self, resource: ResourceId, waiter: &Waiter) -> bool {
        let wish = (waiter.mode, waiter.cover);
        let ask = Ask {
            mode: waiter.mode,
            cover: waiter.cover,
            except: waiter.party.client(),
        };
        let others = |held: &&Running| Some(held.op) != waiter.party.op();
        let mut running = self.running(resource).iter().filter(others);
        running.any(|held| conflict((held.mode, held.cover), wish))
            || self.any_conflict(resource, ask)
    }

    /// Puts the waiter at the end of the queue and asks those in its way to let go.
    pub(super) fn wait(&mut self, resource: ResourceId, waiter: Waiter) {
        let record = self.resources.entry(resource).or_default();
        record
            .extra
            .get_or_insert_default()
            .waiting
            .push_back(waiter);
        let ask = Ask {
            mode: waiter.mode,
            cover: waiter.cover,
            except: waiter.party.client(),
        };
        for slot in self.conflicts(resource, ask) {
            let told = self.call_back(slot, waiter.mode, waiter.cover);
            if told && matches!(waiter.cover, Cover::Range(_)) {
                self.note_contention(resource, self.limits.extent_contention);
            }
        }
    }

    /// Serves the requests that can be served, in the order of arrival.
    pub(super) fn advance(&mut self, resource: ResourceId) {
        let count = self.extra(resource).map_or(0, |extra| extra.waiting.len());
        let (mut ahead, mut fresh) = (Ahead::default(), Vec::new());
        let mut served = false;
        for place in 0..count {
            let Some(waiter) = self.extra(resource).map(|extra| extra.waiting[place]) else {
                break;
            };
            if ahead.blocks(&waiter) || self.is_held_up(resource, &waiter) {
                ahead.add(&waiter);
                continue;
            }
            served = true;
            if let Some(extra) = self.extra_mut(resource) {
                extra.waiting[place].served = true;
            }
            fresh.extend(self.serve(resource, waiter));
        }
        if served && let Some(extra) = self.extra_mut(resource) {
            extra.waiting.retain(|waiter| !waiter.served);
        }
        for slot in fresh {
            self.warn_new_holder(slot);
        }
    }

    fn serve(&mut self, resource: ResourceId, waiter: Waiter) -> Option<u32> {
        match waiter.party {
            Party::Request {
                client,
                request,
                try_bits,
            } => {
                self.forget_request(client, request);
                let (mode, cover) = (waiter.mode, waiter.cover);
                Some(self.grant_request(&Request {
                    client,
                    request,
                    resource,
                    mode,
                    cover,
                    try_bits,
                }))
            }
            Party::Operation { op, .. } => {
                self.occupy(resource, op, waiter.mode, waiter.cover);
                self.op_acquired(op);
                None
            }
        }
    }

    /// Records a server-local lock of an operation.
    pub(super) fn occupy(&mut self, resource: ResourceId, op: OpId, mode: Mode, cover: Cover) {
        let record = self.resources.entry(resource).or_default();
        let running = &mut record.extra.get_or_insert_default().running;
        running.push(Running { op, mode, cover });
    }

    fn grant_request(&mut self, asked: &Request) -> u32 {
        let Request {
            client,
            request,
            resource,
            mode,
            cover,
            try_bits,
        } = *asked;
        let cover = match cover {
            Cover::Bits(bits) => {
                let taken = self.taken_bits(resource, mode, try_bits, client, None);
                Cover::Bits(bits | try_bits.without(taken))
            }
            Cover::Range(range) => Cover::Range(self.grown(resource, mode, range, client)),
        };
        let (slot, grant) = self.make_lock(client, resource, mode, cover, None);
        self.out.push(Output::Granted {
            client,
            request,
            grant,
        });
        slot
    }

    fn make_lock(
        &mut self,
        client: ClientId,
        resource: ResourceId,
        mode: Mode,
        cover: Cover,
        op: Option<OpId>,
    ) -> (u32, Grant) {
        self.version += 1;
        let slot = self.insert_lock(client, resource, mode, cover);
        let withdrawn = self.withhold_inflight(slot, op);
        let grant = Grant {
            handle: self.locks.at(slot).lock.handle,
            resource,
            mode,
            cover,
            version: self.version,
            withdrawn,
        };
        (slot, grant)
    }

    /// A new holder learns at once that others wait for what it was given.
    fn warn_new_holder(&mut self, slot: u32) {
        let lock = self.locks.at(slot).lock;
        let Some(extra) = self.extra(lock.resource) else {
            return;
        };
        let in_the_way = |waiter: &&Waiter| {
            waiter.party.client() != Some(lock.client) && waiter.conflicts(lock.mode, lock.cover)
        };
        let wishes: Vec<_> = extra
            .still_waiting()
            .filter(in_the_way)
            .map(|waiter| (waiter.mode, waiter.cover))
            .collect();
        for (mode, cover) in wishes {
            self.call_back(slot, mode, cover);
        }
    }

    /// Which of `bits` are not free for `client` in `mode`: held by others, awaited, or part of a
    /// lease that is not given now.
    fn taken_bits(
        &self,
        resource: ResourceId,
        mode: Mode,
        bits: Bits,
        client: ClientId,
        op: Option<OpId>,
    ) -> Bits {
        let mut taken = Bits::NONE;
        if bits.is_empty() {
            return taken;
        }
        if self.gives_no_lease(resource, bits, op) {
            taken |= Bits::LEASE;
        }
        let cover = Cover::Bits(bits);
        let except = Some(client);
        self.each_conflict(
            resource,
            Ask {
                mode,
                cover,
                except,
            },
            &mut |slot| {
                taken |= self.locks.at(slot).lock.cover.bits();
                !taken.contains(bits)
            },
        );
        for held in self.running(resource) {
            if Some(held.op) != op && conflict((held.mode, held.cover), (mode, cover)) {
                taken |= held.cover.bits();
            }
        }
        let waiting = self
            .extra(resource)
            .into_iter()
            .flat_map(Extra::still_waiting);
        for waiter in waiting.filter(|waiter| waiter.conflicts(mode, cover)) {
            taken |= waiter.cover.bits();
        }
        taken & bits
    }

    /// The largest aligned range around `range` that nobody else holds or waits for.
    fn grown(
        &self,
        resource: ResourceId,
        mode: Mode,
        range: ByteRange,
        client: ClientId,
    ) -> ByteRange {
        let extra = self.extra(resource);
        if extra.is_some_and(|extra| extra.contention.holds(self.now)) {
            return range;
        }
        let mut room = Room::around(range);
        self.exclude_granted(resource, mode, client, range, &mut room);
        for held in self.running(resource) {
            exclude(&mut room, mode, (held.mode, held.cover));
        }
        for waiter in extra.into_iter().flat_map(Extra::still_waiting) {
            if waiter.party.client() != Some(client) {
                exclude(&mut room, mode, (waiter.mode, waiter.cover));
            }
        }
        room.aligned(self.limits.extent_align)
    }

    /// Grants `required` and the free part of `optional`, without waits or callbacks. Grants nothing if a
    /// part of `required` is held by another client or awaited.
    pub fn try_grant(
        &mut self,
        now: base::Tick,
        ask: TryGrant,
        required: Bits,
        optional: Bits,
    ) -> Option<Grant> {
        self.now = now;
        let TryGrant {
            op,
            client,
            resource,
            mode,
        } = ask;
        let wanted = required | optional;
        let taken = self.taken_bits(resource, mode, wanted, client, op);
        let granted = wanted.without(taken);
        if required.overlaps(taken) || granted.is_empty() || !self.has_room_for_lock(client) {
            self.tidy_client(client);
            return None;
        }
        Some(
            self.make_lock(client, resource, mode, Cover::Bits(granted), op)
                .1,
        )
    }

    /// Grants at least `range`, like [`LockTable::try_grant`].
    pub fn try_grant_extent(
        &mut self,
        now: base::Tick,
        ask: TryGrant,
        range: ByteRange,
    ) -> Option<Grant> {
        self.now = now;
        let TryGrant {
            op,
            client,
            resource,
            mode,
        } = ask;
        let cover = Cover::Range(range);
        let party = match op {
            Some(op) => Party::Operation {
                op,
                client: Some(client),
            },
            None => Party::Request {
                client,
                request: Xid::default(),
                try_bits: Bits::NONE,
            },
        };
        let waiter = Waiter {
            party,
            mode,
            cover,
            served: false,
        };
        if range.is_empty() || self.must_wait(resource, &waiter) || !self.has_room_for_lock(client)
        {
            self.tidy_client(client);
            return None;
        }
        let cover = Cover::Range(self.grown(resource, mode, range, client));
        Some(self.make_lock(client, resource, mode, cover, op).1)
    }

    /// The client waits for that request no longer.
    pub(super) fn abandon(&mut self, client: ClientId, request: Xid) {
        let Some(resource) = self.forget_request(client, request) else {
            return;
        };
        if let Some(extra) = self.extra_mut(resource) {
            extra.waiting.retain(|waiter| {
                !matches!(waiter.party, Party::Request { client: whose, request: which, .. }
                    if (whose, which) == (client, request))
            });
        }
        self.tidy_client(client);
        self.touched.push(resource);
    }

    fn forget_request(&mut self, client: ClientId, request: Xid) -> Option<ResourceId> {
        let resource = self.requests.remove(&(client, request))?;
        if let Some(owner) = self.clients.get_mut(&client) {
            owner.waiting -= 1;
        }
        Some(resource)
    }
}

fn exclude(room: &mut Room, mode: Mode, taken: (Mode, Cover)) {
    if let (held, Cover::Range(range)) = taken
        && !held.compatible(mode)
    {
        room.exclude(range);
    }
}
