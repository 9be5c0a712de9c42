//! Request frames whose answers are not all there yet.

use std::collections::HashMap;

use base::limits::{FRAME_REQUESTS_MAX, UNANSWERED_BYTES_MAX};
use base::{ClientId, Transno};

use super::machine::Machine;
use super::unanswered::Unanswered;
use crate::batch::ReplyBatch;
use crate::scheduler::Classes;
use crate::server::Responder;

/// Bits of a tag below the frame's number: the request's place in the frame.
const PLACE_BITS: u32 = 16;
const _: () = assert!(FRAME_REQUESTS_MAX <= 1 << PLACE_BITS);

/// A frame, its requests answered so far, and who is told when all are.
struct Pending<A> {
    responder: Responder,
    answers: Vec<Option<A>>,
    missing: usize,
    transno: Transno,
    classes: Classes,
    /// Those of its requests, and of its answers so far.
    bytes: usize,
}

impl<A> Pending<A> {
    fn client(&self) -> ClientId {
        self.responder.session().client()
    }
}

/// A frame whose answers are all there.
pub(super) struct Complete<A> {
    pub responder: Responder,
    /// One for each request, in their order.
    pub answers: Vec<A>,
    /// The last change that one of them made; zero: none.
    pub transno: Transno,
    /// Whom they may be charged to.
    pub classes: Classes,
}

/// The frames under way. Each of their requests has a tag of its own.
pub(super) struct Frames<A> {
    pending: HashMap<u64, Pending<A>>,
    last: u64,
    unanswered: Unanswered,
}

impl<A> Complete<A> {
    pub(super) fn send<M: Machine<Answer = A>>(self) {
        let reply = M::pack(self.answers);
        self.responder.reply(ReplyBatch {
            transno: self.transno,
            ..reply
        });
    }
}

impl<A> Default for Frames<A> {
    fn default() -> Frames<A> {
        Frames {
            pending: HashMap::new(),
            last: 0,
            unanswered: Unanswered::new(UNANSWERED_BYTES_MAX),
        }
    }
}

impl<A> Frames<A> {
    /// There is memory for a frame of the client that keeps so many bytes until it is answered.
    pub(super) fn has_room(&self, client: ClientId, bytes: usize) -> bool {
        self.unanswered.has_room(client, bytes)
    }

    /// A frame of `count` requests came, at least one, which may be charged to `classes` and keep `bytes`:
    /// the tag of the first. Those of the others follow it.
    pub(super) fn begin(
        &mut self,
        responder: Responder,
        count: usize,
        classes: Classes,
        bytes: usize,
    ) -> u64 {
        self.last += 1;
        self.unanswered.add(responder.session().client(), bytes);
        let pending = Pending {
            responder,
            answers: std::iter::repeat_with(|| None).take(count).collect(),
            missing: count,
            transno: Transno(0),
            classes,
            bytes,
        };
        self.pending.insert(self.last, pending);
        self.last << PLACE_BITS
    }

    /// A request is answered, with so many bytes: its frame, if it was the last. Of a frame that was
    /// forgotten, and of a request that was answered before, nothing comes.
    pub(super) fn answer(
        &mut self,
        tag: u64,
        (answer, bytes): (A, usize),
        transno: Transno,
    ) -> Option<Complete<A>> {
        let (frame, place) = (tag >> PLACE_BITS, tag & ((1 << PLACE_BITS) - 1));
        let pending = self.pending.get_mut(&frame)?;
        let slot = pending.answers.get_mut(place as usize)?;
        if slot.is_some() {
            return None;
        }
        *slot = Some(answer);
        pending.transno = pending.transno.max(transno);
        pending.missing -= 1;
        if pending.missing > 0 {
            pending.bytes += bytes;
            self.unanswered.add(pending.client(), bytes);
            return None;
        }
        let pending = self.pending.remove(&frame)?;
        self.unanswered.remove(pending.client(), pending.bytes);
        Some(Complete {
            responder: pending.responder,
            answers: pending.answers.into_iter().flatten().collect(),
            transno: pending.transno,
            classes: pending.classes,
        })
    }

    /// The answer of a request is waited for: its frame was not forgotten.
    pub(super) fn is_awaited(&self, tag: u64) -> bool {
        self.pending.contains_key(&(tag >> PLACE_BITS))
    }

    /// The client is gone: nobody waits for its frames.
    pub(super) fn forget(&mut self, client: ClientId) {
        let gone = |pending: &Pending<A>| pending.client() == client;
        for (_, pending) in self.pending.extract_if(|_, pending| gone(pending)) {
            self.unanswered.remove(client, pending.bytes);
            // To a session that has ended this goes nowhere; it only says that it was not lost.
            pending.responder.reply(ReplyBatch::default());
        }
    }
}
