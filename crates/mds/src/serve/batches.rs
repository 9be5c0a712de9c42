//! Request frames whose answers are not all there yet.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use base::{ClientId, FsError, Transno};
use rpc::{ReplyBatch, ReplyMessage, Responder};
use wire::mdt::Reply;

/// A frame, its requests answered so far, and who is told when all are.
struct Pending {
    responder: Responder,
    answers: Vec<Option<ReplyMessage>>,
    missing: usize,
    transno: Transno,
}

/// The frames under way. Each of their requests has a tag of its own.
#[derive(Default)]
pub(super) struct Batches {
    pending: HashMap<u64, Pending>,
    /// Tag -> its frame and its place there.
    places: HashMap<u64, (u64, usize)>,
    last: u64,
}

impl Batches {
    /// A frame of `count` requests came: their tags, in order. An empty one is answered.
    pub fn begin(&mut self, responder: Responder, count: usize) -> RangeInclusive<u64> {
        let first = self.last + 1;
        if count == 0 {
            responder.reply(ReplyBatch::default());
            return RangeInclusive::new(first, self.last);
        }
        self.last += count as u64;
        for (place, tag) in (first..=self.last).enumerate() {
            self.places.insert(tag, (first, place));
        }
        let answers = vec![None; count];
        let pending = Pending {
            responder,
            answers,
            missing: count,
            transno: Transno(0),
        };
        self.pending.insert(first, pending);
        first..=self.last
    }

    /// A request is answered; its frame goes out if it was the last.
    pub fn answer(&mut self, tag: u64, result: Result<Reply, FsError>, transno: Transno) {
        let Some((frame, place)) = self.places.remove(&tag) else {
            return;
        };
        let Some(pending) = self.pending.get_mut(&frame) else {
            return;
        };
        pending.answers[place] = Some(message(result));
        pending.transno = pending.transno.max(transno);
        pending.missing -= 1;
        if pending.missing == 0
            && let Some(pending) = self.pending.remove(&frame)
        {
            let replies = pending.answers.into_iter().flatten().collect();
            let transno = pending.transno;
            pending.responder.reply(ReplyBatch {
                replies,
                bulk: Vec::new(),
                transno,
            });
        }
    }

    /// The client is gone: nobody waits for its frames.
    pub fn forget(&mut self, client: ClientId) {
        let gone = |pending: &Pending| pending.responder.session().client() == client;
        for (_, pending) in self.pending.extract_if(|_, pending| gone(pending)) {
            // To a session that has ended this goes nowhere; it only says that it was not lost.
            pending.responder.reply(ReplyBatch::default());
        }
        let Batches {
            pending, places, ..
        } = self;
        places.retain(|_, (frame, _)| pending.contains_key(frame));
    }
}

fn message(result: Result<Reply, FsError>) -> ReplyMessage {
    match result {
        Ok(reply) => ReplyMessage {
            status: 0,
            body: wire::encode(&reply),
        },
        Err(error) => ReplyMessage {
            status: wire::status_of(Err(error)),
            body: Vec::new(),
        },
    }
}
