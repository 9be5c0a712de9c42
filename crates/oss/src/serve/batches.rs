//! Request frames whose answers are not all there yet.

use std::collections::HashMap;

use base::limits::BULK_BYTES_MAX;
use base::{FsError, Transno};
use rpc::{ReplyBatch, ReplyMessage, Responder};
use wire::ost::Reply;

use crate::outbox::Answer;

/// A frame, its sub-requests answered so far, and who is told when all are.
struct Pending {
    responder: Responder,
    answers: Vec<Option<Result<Answer, FsError>>>,
    missing: usize,
    transno: Transno,
}

/// The frames under way. Each of their sub-requests has a tag of its own.
#[derive(Default)]
pub(super) struct Batches {
    pending: HashMap<u64, Pending>,
    /// Tag -> its frame and its place there.
    places: HashMap<u64, (u64, usize)>,
    last: u64,
}

impl Batches {
    /// A frame of `count` sub-requests came: their tags, in order. An empty one is answered.
    pub fn begin(&mut self, responder: Responder, count: usize) -> std::ops::RangeInclusive<u64> {
        let first = self.last + 1;
        if count == 0 {
            responder.reply(ReplyBatch::default());
            return std::ops::RangeInclusive::new(first, self.last);
        }
        self.last += count as u64;
        for (place, tag) in (first..=self.last).enumerate() {
            self.places.insert(tag, (first, place));
        }
        let answers = std::iter::repeat_with(|| None).take(count).collect();
        let pending = Pending {
            responder,
            answers,
            missing: count,
            transno: Transno(0),
        };
        self.pending.insert(first, pending);
        first..=self.last
    }

    /// A sub-request is answered; its frame goes out if it was the last. False: its client is
    /// gone.
    pub fn answer(&mut self, tag: u64, result: Result<Answer, FsError>, transno: Transno) -> bool {
        let Some((frame, place)) = self.places.remove(&tag) else {
            return false;
        };
        let Some(pending) = self.pending.get_mut(&frame) else {
            return false;
        };
        pending.answers[place] = Some(result);
        pending.transno = pending.transno.max(transno);
        pending.missing -= 1;
        if pending.missing == 0
            && let Some(pending) = self.pending.remove(&frame)
        {
            let Pending {
                responder,
                answers,
                transno,
                ..
            } = pending;
            responder.reply(ReplyBatch {
                transno,
                ..packed(answers.into_iter().flatten())
            });
        }
        true
    }

    /// The client is gone: nobody waits for its frames.
    pub fn forget(&mut self, client: base::ClientId) {
        let gone = |pending: &Pending| pending.responder.session().client() == client;
        for pending in self
            .pending
            .extract_if(|_, pending| gone(pending))
            .map(|(_, p)| p)
        {
            // To a session that has ended this goes nowhere; it only says that it was not lost.
            pending.responder.reply(ReplyBatch::default());
        }
        let Batches {
            pending, places, ..
        } = self;
        places.retain(|_, (frame, _)| pending.contains_key(frame));
    }
}

/// The answers of one frame. The data of a single read moves; of several it is put together.
fn packed(answers: impl Iterator<Item = Result<Answer, FsError>>) -> ReplyBatch {
    let mut batch = ReplyBatch::default();
    for answer in answers {
        let fits = |answer: &Answer| batch.bulk.len() + answer.data.len() <= BULK_BYTES_MAX;
        let message = match answer {
            Ok(answer) if fits(&answer) => packed_one(answer, &mut batch.bulk),
            // Nothing was changed by it: only reads have data. The client asks again, alone.
            Ok(_) => failed(FsError::TryAgain),
            Err(error) => failed(error),
        };
        batch.replies.push(message);
    }
    batch
}

fn packed_one(Answer { mut reply, data }: Answer, bulk: &mut Vec<u8>) -> ReplyMessage {
    if let Reply::Read { bulk: place, .. } = &mut reply {
        place.0 = bulk.len() as u32;
    }
    if bulk.is_empty() {
        *bulk = data;
    } else {
        bulk.extend_from_slice(&data);
    }
    ReplyMessage {
        status: 0,
        body: wire::encode(&reply),
    }
}

fn failed(error: FsError) -> ReplyMessage {
    ReplyMessage {
        status: wire::status_of(Err(error)),
        body: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ost::ObjectAttr;

    fn read(data: &[u8]) -> Result<Answer, FsError> {
        let bulk = (0, data.len() as u32);
        let reply = Reply::Read {
            bulk,
            grant: None,
            attr: ObjectAttr::default(),
        };
        Ok(Answer {
            reply,
            data: data.to_vec(),
        })
    }

    #[test]
    fn data_of_several_reads_shares_the_bulk_region() {
        let answers = [
            read(b"one"),
            Err(FsError::Stale),
            Ok(Reply::Done.into()),
            read(b"three"),
        ];
        let batch = packed(answers.into_iter());
        assert_eq!(batch.bulk, b"onethree");
        assert_eq!(
            wire::status_from(batch.replies[1].status),
            Err(FsError::Stale)
        );
        assert_eq!(wire::decode(&batch.replies[2].body), Ok(Reply::Done));
        let place = |body| match wire::decode(body) {
            Ok(Reply::Read { bulk, .. }) => bulk,
            other => panic!("{other:?}"),
        };
        assert_eq!(place(&batch.replies[0].body), (0, 3));
        assert_eq!(place(&batch.replies[3].body), (3, 5));
    }

    #[test]
    fn reads_beyond_what_a_frame_holds_are_to_be_asked_again() {
        let half = vec![7; BULK_BYTES_MAX / 2 + 1];
        let batch = packed([read(&half), read(&half), read(b"x")].into_iter());
        assert_eq!(batch.bulk.len(), half.len() + 1);
        assert_eq!(
            wire::status_from(batch.replies[1].status),
            Err(FsError::TryAgain)
        );
        assert_eq!((batch.replies[0].status, batch.replies[2].status), (0, 0));
    }
}
