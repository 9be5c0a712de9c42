//! The asking half of a session, in either direction: xids, slots, unsent requests, and those to send again
//! after a reconnect. Pure. docs/recovery.md, section 1.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use base::{BootEpoch, Tick, Transno, Xid};
use wire::frame::Payload;
use wire::handshake::Lane;

/// How a request competes with others for slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Urgency {
    /// May wait at the other end (for a lock, say).
    Ordinary,
    /// Never waits at the other end, and others wait for it there (a cancel, a write-out under a
    /// lock called back). It may use slots that ordinary requests leave free, so that requests
    /// waiting for a lock can't keep out the one that would give them the lock.
    Urgent,
}

/// A request to send.
#[derive(Debug)]
pub struct Call<T> {
    /// What it carries.
    pub payload: Arc<Payload>,
    /// The connection it goes over.
    pub lane: Lane,
    /// How it competes for slots.
    pub urgency: Urgency,
    /// When to give up on it. None: never.
    pub deadline: Option<Tick>,
    /// Given back with the answer.
    pub token: T,
    /// Who remembers it for the process that may take this one's place.
    pub call_record: Option<Box<dyn CallRecord>>,
}

/// Remembers a request beyond the life of this process. Called with locks held: must only store.
pub trait CallRecord: Send + fmt::Debug {
    /// It is about to be sent, in this slot and with this number, for the first time.
    fn launched(&self, slot: u16, xid: Xid);
    /// It is answered; the slot may be used for another from now on. What is given back goes on
    /// remembering what was done, as long as it may be lost.
    fn answered(self: Box<Self>, answered: &Answered<'_>) -> Option<Box<dyn ReplayRecord>>;
}

/// A request and its answer.
#[derive(Debug)]
pub struct Answered<'a> {
    /// The slot and the number.
    pub place: (u16, Xid),
    /// What was asked.
    pub request: &'a Payload,
    /// What was answered.
    pub answer: &'a Payload,
    /// The boot of the target and the change that it made there, where that is kept for a replay.
    pub done: Option<(BootEpoch, Transno)>,
}

/// Remembers what is kept for a replay, until it is dropped. Called with locks held: must only store.
pub trait ReplayRecord: Send + fmt::Debug {
    /// It was done again, in a later boot of the target.
    fn done_again(&self, done: (BootEpoch, Transno));
}

/// A request that was answered.
#[derive(Debug)]
pub struct Settled<T> {
    /// What was asked.
    pub request: Arc<Payload>,
    /// Over what.
    pub lane: Lane,
    /// Of the caller, unless it has given up.
    pub token: Option<T>,
    /// Who remembers it.
    pub call_record: Option<Box<dyn CallRecord>>,
}

/// A request to put into a frame.
#[derive(Debug)]
pub struct Outgoing {
    /// The slot it occupies.
    pub slot: u16,
    /// Its number.
    pub xid: Xid,
    /// It was sent before.
    pub resent: bool,
    /// What it carries.
    pub payload: Arc<Payload>,
}

/// A request that was sent.
#[derive(Debug)]
struct Flight<T> {
    xid: Xid,
    lane: Lane,
    payload: Arc<Payload>,
    deadline: Option<Tick>,
    /// None: the caller was told that it timed out. The slot stays taken until the answer comes.
    token: Option<T>,
    call_record: Option<Box<dyn CallRecord>>,
}

/// One lane's queues.
#[derive(Debug)]
struct LaneQueue<T> {
    up: bool,
    /// Slots to send again, oldest xid first.
    resend: VecDeque<u16>,
    urgent: VecDeque<Call<T>>,
    ordinary: VecDeque<Call<T>>,
    in_flight: u16,
}

impl<T> LaneQueue<T> {
    fn new() -> LaneQueue<T> {
        LaneQueue {
            up: false,
            resend: VecDeque::new(),
            urgent: VecDeque::new(),
            ordinary: VecDeque::new(),
            in_flight: 0,
        }
    }
}

/// The asking half of a session; `T` is what the caller wants back with each answer.
///
/// A slot carries one request at a time, and is used for another only once the first is answered. So a newer
/// xid in a slot tells the other end that its stored reply has arrived.
#[derive(Debug)]
pub struct Requester<T> {
    next_xid: u64,
    /// Those before it were sent to an earlier boot of the other end, or by an earlier process.
    first_of_boot: u64,
    slots: Vec<Option<Flight<T>>>,
    free: BTreeSet<u16>,
    granted: u16,
    slots_max: u16,
    lanes: [LaneQueue<T>; Lane::COUNT],
    unsent: usize,
    unsent_max: usize,
}

impl<T> Requester<T> {
    /// Numbers start at `first_xid`; at most `slots_max` requests are under way and `unsent_max`
    /// wait for a slot or a connection.
    pub fn new(first_xid: u64, slots_max: u16, unsent_max: usize) -> Requester<T> {
        Requester {
            next_xid: first_xid,
            first_of_boot: first_xid,
            slots: Vec::new(),
            free: BTreeSet::new(),
            granted: slots_max,
            slots_max,
            lanes: Lane::ALL.map(|_| LaneQueue::new()),
            unsent: 0,
            unsent_max,
        }
    }

    /// The other end grants `slots` from now on; those in use beyond run out.
    pub fn grant(&mut self, slots: u16) {
        self.granted = slots.clamp(1, self.slots_max);
    }

    /// Queues a request. At the bound it is shed: the token comes back.
    pub fn submit(&mut self, call: Call<T>) -> Result<(), T> {
        if self.unsent >= self.unsent_max {
            return Err(call.token);
        }
        self.unsent += 1;
        let lane = &mut self.lanes[call.lane.index()];
        match call.urgency {
            Urgency::Ordinary => lane.ordinary.push_back(call),
            Urgency::Urgent => lane.urgent.push_back(call),
        }
        Ok(())
    }

    /// The next request to send over `lane`, if it is up, has one of at least this urgency, and a
    /// slot is free.
    pub fn poll_send(&mut self, lane: Lane, least: Urgency) -> Option<Outgoing> {
        if !self.lanes[lane.index()].up {
            return None;
        }
        while let Some(slot) = self.lanes[lane.index()].resend.pop_front() {
            if let Some(flight) = &self.slots[usize::from(slot)] {
                return Some(Outgoing {
                    slot,
                    xid: flight.xid,
                    resent: true,
                    payload: flight.payload.clone(),
                });
            }
        }
        let call = self.next_call(lane, least)?;
        let slot = self.take_slot()?;
        Some(self.launch(slot, call))
    }

    /// The number of the next request that is sent.
    pub fn next_xid(&self) -> Xid {
        Xid(self.next_xid)
    }

    /// The other end restarts.
    pub fn new_boot(&mut self) {
        self.first_of_boot = self.next_xid;
    }

    /// Every slot is taken by a request that an earlier boot was asked: no other goes out before one of
    /// those is answered.
    pub fn is_full_of_the_past(&self) -> bool {
        let flights = self.slots.iter().flatten();
        let old = flights.filter(|flight| flight.xid.0 < self.first_of_boot);
        old.count() >= usize::from(self.granted)
    }

    fn in_flight(&self) -> u16 {
        self.lanes.iter().map(|lane| lane.in_flight).sum()
    }

    fn next_call(&mut self, lane: Lane, least: Urgency) -> Option<Call<T>> {
        let in_flight = self.in_flight();
        let ordinary = least == Urgency::Ordinary && in_flight < self.ordinary_max();
        // Bulk requests are few and large: they never take more than half of the slots.
        let bulk_in_flight = in_flight - self.lanes[Lane::Control.index()].in_flight;
        let bulk = lane == Lane::Control || bulk_in_flight < (self.granted / 2).max(1);
        let queue = &mut self.lanes[lane.index()];
        let call = if in_flight < self.granted && bulk && !queue.urgent.is_empty() {
            queue.urgent.pop_front()
        } else if ordinary && bulk {
            queue.ordinary.pop_front()
        } else {
            None
        }?;
        self.unsent -= 1;
        Some(call)
    }

    /// Ordinary requests leave an eighth of the slots to urgent ones.
    fn ordinary_max(&self) -> u16 {
        self.granted - self.granted / 8
    }

    /// Requests that are to go, or went, over `lane` and are not answered.
    pub fn load(&self, lane: Lane) -> usize {
        let queue = &self.lanes[lane.index()];
        queue.urgent.len() + queue.ordinary.len() + usize::from(queue.in_flight)
    }

    /// The lowest free slot. There is one: fewer requests are under way than slots granted.
    fn take_slot(&mut self) -> Option<u16> {
        self.free.pop_first().or_else(|| {
            let slot = u16::try_from(self.slots.len()).ok()?;
            self.slots.push(None);
            Some(slot)
        })
    }

    fn launch(&mut self, slot: u16, call: Call<T>) -> Outgoing {
        let xid = Xid(self.next_xid);
        self.next_xid += 1;
        self.lanes[call.lane.index()].in_flight += 1;
        if let Some(call_record) = &call.call_record {
            call_record.launched(slot, xid);
        }
        self.slots[usize::from(slot)] = Some(Flight {
            xid,
            lane: call.lane,
            payload: call.payload.clone(),
            deadline: call.deadline,
            token: Some(call.token),
            call_record: call.call_record,
        });
        Outgoing {
            slot,
            xid,
            resent: false,
            payload: call.payload,
        }
    }

    /// A request of an earlier process is under way in its slot: it will be sent again.
    pub fn restore(
        &mut self,
        (slot, xid): (u16, Xid),
        payload: Arc<Payload>,
        (token, call_record): (T, Box<dyn CallRecord>),
    ) {
        let lane = Lane::Control;
        let index = usize::from(slot);
        for unused in self.slots.len()..index {
            self.free.insert(unused as u16);
        }
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        self.free.remove(&slot);
        self.lanes[lane.index()].in_flight += 1;
        self.slots[index] = Some(Flight {
            xid,
            lane,
            payload,
            deadline: None,
            token: Some(token),
            call_record: Some(call_record),
        });
    }

    /// The answer to (`slot`, `xid`) came. None: it came before.
    pub fn answered(&mut self, slot: u16, xid: Xid) -> Option<Settled<T>> {
        let entry = self.slots.get_mut(usize::from(slot))?;
        if entry.as_ref()?.xid != xid {
            return None;
        }
        let flight = entry.take()?;
        self.free.insert(slot);
        self.lanes[flight.lane.index()].in_flight -= 1;
        Some(Settled {
            request: flight.payload,
            lane: flight.lane,
            token: flight.token,
            call_record: flight.call_record,
        })
    }

    /// Something is to be sent again over `lane`, before anything new.
    pub fn has_resends(&self, lane: Lane) -> bool {
        !self.lanes[lane.index()].resend.is_empty()
    }

    /// `lane` has a new connection: what was sent over the last one and not answered goes again.
    pub fn lane_up(&mut self, lane: Lane) {
        let mut again: Vec<(Xid, u16)> = self.flights(lane).collect();
        again.sort_unstable();
        let queue = &mut self.lanes[lane.index()];
        queue.up = true;
        queue.resend = again.into_iter().map(|(_, slot)| slot).collect();
    }

    fn flights(&self, lane: Lane) -> impl Iterator<Item = (Xid, u16)> + '_ {
        self.slots
            .iter()
            .zip(0..)
            .filter_map(move |(flight, slot)| {
                let flight = flight.as_ref().filter(|flight| flight.lane == lane)?;
                Some((flight.xid, slot))
            })
    }

    /// `lane` lost its connection.
    pub fn lane_down(&mut self, lane: Lane) {
        let queue = &mut self.lanes[lane.index()];
        queue.up = false;
        queue.resend.clear();
    }

    /// Gives up on every request whose deadline has come.
    pub fn expire(&mut self, now: Tick) -> Vec<T> {
        self.give_up(|deadline| deadline.is_some_and(|deadline| deadline <= now))
    }

    /// Gives up on every request; those sent keep their slots, as their effect is unknown.
    pub fn abandon(&mut self) -> Vec<T> {
        self.give_up(|_| true)
    }

    fn give_up(&mut self, over: impl Fn(Option<Tick>) -> bool) -> Vec<T> {
        let mut tokens = Vec::new();
        for flight in self.slots.iter_mut().flatten() {
            if over(flight.deadline) {
                tokens.extend(flight.token.take());
            }
        }
        for lane in &mut self.lanes {
            for queue in [&mut lane.urgent, &mut lane.ordinary] {
                let mut kept = VecDeque::with_capacity(queue.len());
                for call in queue.drain(..) {
                    match over(call.deadline) {
                        true => tokens.push(call.token),
                        false => kept.push_back(call),
                    }
                }
                *queue = kept;
            }
        }
        self.unsent = self
            .lanes
            .iter()
            .map(|l| l.urgent.len() + l.ordinary.len())
            .sum();
        tokens
    }

    /// The session is gone: every slot is free again, every request is given up.
    pub fn reset(&mut self) -> Vec<T> {
        let tokens = self.abandon();
        self.slots.clear();
        self.free.clear();
        for lane in &mut self.lanes {
            *lane = LaneQueue::new();
        }
        tokens
    }

    /// Requests wait for a slot or a connection.
    pub fn has_unsent(&self) -> bool {
        self.unsent != 0
    }

    /// Requests waiting for an answer or for their turn.
    pub fn outstanding(&self) -> usize {
        self.unsent + self.slots.iter().flatten().count()
    }
}
