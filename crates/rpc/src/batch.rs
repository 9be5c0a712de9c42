//! What callers give and get: batches of opaque messages.

use std::sync::Arc;

use base::Transno;
use wire::frame::{Bulk, Payload, Sub};

/// One request inside a batch, or one callback.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// What is asked.
    pub opcode: u16,
    /// The rest, known to the layer above.
    pub body: Vec<u8>,
}

/// Requests that travel together, run in order and are answered together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// The requests, in order. At most `FRAME_REQUESTS_MAX`.
    pub messages: Vec<Message>,
    /// Raw file data that the requests point into. With all the rest at most `FRAME_BYTES_MAX`.
    pub bulk: Bulk,
}

impl Batch {
    /// What a replay carries: the requests, and what each was answered before. `None`: it makes no
    /// sense.
    pub(crate) fn replayed(payload: Arc<Payload>) -> Option<(Batch, Vec<ReplyMessage>)> {
        let (requests, answers) = Arc::unwrap_or_clone(payload).replayed()?;
        let answers = answers.into_iter().map(|sub| ReplyMessage {
            status: sub.status,
            body: sub.body,
        });
        Some((Batch::from(Arc::new(requests)), answers.collect()))
    }

    /// A batch of one request.
    pub fn of(opcode: u16, body: Vec<u8>) -> Batch {
        Batch {
            messages: vec![Message { opcode, body }],
            bulk: Bulk::default(),
        }
    }
}

/// The answer to one request of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplyMessage {
    /// How it went, in the numbers of the layer above.
    pub status: u16,
    /// The rest, known to the layer above.
    pub body: Vec<u8>,
}

/// The answers to a batch, in the order of its requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplyBatch {
    /// The answers; fewer than requests where the service stopped early.
    pub replies: Vec<ReplyMessage>,
    /// Raw file data that the answers point into.
    pub bulk: Bulk,
    /// The last change that the batch made. Zero: none.
    pub transno: Transno,
}

impl From<Message> for Sub {
    fn from(message: Message) -> Sub {
        Sub {
            opcode: message.opcode,
            status: 0,
            body: message.body,
        }
    }
}

impl From<Sub> for Message {
    fn from(sub: Sub) -> Message {
        Message {
            opcode: sub.opcode,
            body: sub.body,
        }
    }
}

impl From<Message> for Payload {
    fn from(message: Message) -> Payload {
        Payload {
            subs: vec![message.into()],
            bulk: Bulk::default(),
        }
    }
}

impl From<Batch> for Payload {
    fn from(batch: Batch) -> Payload {
        Payload {
            subs: batch.messages.into_iter().map(Sub::from).collect(),
            bulk: batch.bulk,
        }
    }
}

impl From<Arc<Payload>> for Batch {
    fn from(payload: Arc<Payload>) -> Batch {
        let payload = Arc::unwrap_or_clone(payload);
        Batch {
            messages: payload.subs.into_iter().map(Message::from).collect(),
            bulk: payload.bulk,
        }
    }
}

impl ReplyBatch {
    /// The payload of a reply frame; each answer carries its request's opcode.
    pub(crate) fn into_payload(self, opcodes: &[u16]) -> Payload {
        let opcodes = opcodes.iter().copied().chain(std::iter::repeat(0));
        let subs = self.replies.into_iter().zip(opcodes);
        Payload {
            subs: subs
                .map(|(reply, opcode)| Sub {
                    opcode,
                    status: reply.status,
                    body: reply.body,
                })
                .collect(),
            bulk: self.bulk,
        }
    }

    /// The inverse.
    pub(crate) fn from_payload(payload: Arc<Payload>, transno: Transno) -> ReplyBatch {
        let payload = Arc::unwrap_or_clone(payload);
        let replies = payload.subs.into_iter().map(|sub| ReplyMessage {
            status: sub.status,
            body: sub.body,
        });
        ReplyBatch {
            replies: replies.collect(),
            bulk: payload.bulk,
            transno,
        }
    }
}
