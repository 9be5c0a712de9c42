//! Request frames whose answers are not all there yet.

use std::collections::HashMap;

use base::limits::FRAME_REQUESTS_MAX;
use base::{ClientId, Transno};

use super::Machine;
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
        }
    }
}

impl<A> Frames<A> {
    /// A frame of `count` requests came, at least one, which may be charged to `classes`: the tag
    /// of the first. Those of the others follow it.
    pub(super) fn begin(&mut self, responder: Responder, count: usize, classes: Classes) -> u64 {
        self.last += 1;
        let pending = Pending {
            responder,
            answers: std::iter::repeat_with(|| None).take(count).collect(),
            missing: count,
            transno: Transno(0),
            classes,
        };
        self.pending.insert(self.last, pending);
        self.last << PLACE_BITS
    }

    /// A request is answered: its frame, if it was the last. Of a frame that was forgotten, and of
    /// a request that was answered before, nothing comes.
    pub(super) fn answer(&mut self, tag: u64, answer: A, transno: Transno) -> Option<Complete<A>> {
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
            return None;
        }
        let pending = self.pending.remove(&frame)?;
        Some(Complete {
            responder: pending.responder,
            answers: pending.answers.into_iter().flatten().collect(),
            transno: pending.transno,
            classes: pending.classes,
        })
    }

    /// The client is gone: nobody waits for its frames.
    pub(super) fn forget(&mut self, client: ClientId) {
        let gone = |pending: &Pending<A>| pending.responder.session().client() == client;
        for (_, pending) in self.pending.extract_if(|_, pending| gone(pending)) {
            // To a session that has ended this goes nowhere; it only says that it was not lost.
            pending.responder.reply(ReplyBatch::default());
        }
    }
}
