//! Changes asked of the MDT, so that each happens once although the process that asked is gone.
//!
//! The kernel asks the next process again, under the same number; the change that the one before
//! had sent for it is sent again in its old place, and answered as it was.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::{FsError, Xid};
use handover::{Record, Records};
use rpc::{CallResult, Memo};
use serde::{Deserialize, Serialize};
use wire::frame::Payload;
use wire::mdt::{Reply, Request};

use super::{ANSWER, REQUEST, decode, encode};
use crate::executor::{self, Oneshot, Origin, Sender, oneshot};

/// Bits of a mark below the slot.
const XID_BITS: u32 = 48;

/// Body of a [`REQUEST`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RequestBody {
    /// The kernel's request that it is for; zero: none.
    pub origin: u64,
    pub request: Request,
}

/// Body of an [`ANSWER`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AnswerBody {
    pub origin: u64,
    /// The request's kind.
    pub name: String,
    pub status: u16,
    pub body: Vec<u8>,
}

/// Where a request with this mark was sent. None: it was not.
pub(crate) fn place_of(mark: u64) -> Option<(u16, Xid)> {
    let xid = mark & ((1 << XID_BITS) - 1);
    (mark != 0).then_some(((mark >> XID_BITS) as u16, Xid(xid)))
}

/// Remembers one change under way.
#[derive(Debug)]
pub(crate) struct RequestMemo {
    records: Records,
    request: Mutex<Option<Record>>,
    origin: Option<Arc<Origin>>,
    name: &'static str,
}

impl RequestMemo {
    /// None: it changes nothing that must not happen twice, or there is no room.
    pub fn new(records: &Records, request: &Request) -> Option<RequestMemo> {
        let counts = matches!(
            request,
            Request::Create { .. }
                | Request::Link { .. }
                | Request::Unlink { .. }
                | Request::Rename { .. }
                | Request::SetAttr { .. }
                | Request::SetXattr { .. }
                | Request::RemoveXattr { .. }
        );
        if !counts {
            return None;
        }
        let origin = executor::origin();
        let body = RequestBody {
            origin: origin.as_ref().map_or(0, |origin| origin.number()),
            request: request.clone(),
        };
        let record = records.put(REQUEST, 0, &[&encode(&body)])?;
        Some(RequestMemo {
            records: records.clone(),
            request: Mutex::new(Some(record)),
            origin,
            name: request.name(),
        })
    }

    /// Goes on remembering a change that the process before had asked for.
    pub fn of_earlier(
        records: &Records,
        record: Record,
        body: &RequestBody,
    ) -> (RequestMemo, Option<Arc<Origin>>) {
        let origin = (body.origin != 0).then(|| Origin::new(body.origin));
        let memo = RequestMemo {
            records: records.clone(),
            request: Mutex::new(Some(record)),
            origin: origin.clone(),
            name: body.request.name(),
        };
        (memo, origin)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memo for RequestMemo {
    fn launched(&self, slot: u16, xid: Xid) {
        if let Some(record) = &*lock(&self.request) {
            record.set_mark(u64::from(slot) << XID_BITS | xid.0);
        }
    }

    fn answered(&self, answer: &Payload) {
        if let (Some(origin), Some(sub)) = (&self.origin, answer.subs.first()) {
            let body = AnswerBody {
                origin: origin.number(),
                name: self.name.to_owned(),
                status: sub.status,
                body: sub.body.to_vec(),
            };
            // Without room the kernel's request may be done twice if this process ends just now.
            if let Some(record) = self.records.put(ANSWER, 0, &[&encode(&body)]) {
                origin.keep(record);
            }
        }
        // After that: one of the two is always there.
        drop(lock(&self.request).take());
    }
}

/// What became of a change that the process before had asked for.
type Outcome = Result<Reply, FsError>;

/// Those changes, by the kernel's request and their kind.
#[derive(Default)]
pub(crate) struct Redone(Mutex<HashMap<(u64, String), Waiting>>);

/// Its outcome, which may have to come yet, and what remembers it until the kernel is answered.
struct Waiting {
    outcome: Oneshot<Option<Outcome>>,
    kept: Arc<Origin>,
}

impl Redone {
    /// A change was asked for, and is asked for again: the outcome goes to the sender. `None` there:
    /// it did not happen.
    pub fn expect(
        &self,
        origin: Option<Arc<Origin>>,
        request: &Request,
    ) -> Sender<Option<Outcome>> {
        let (sender, outcome) = oneshot();
        if let Some(kept) = origin {
            let key = (kept.number(), request.name().to_owned());
            lock(&self.0).insert(key, Waiting { outcome, kept });
        }
        sender
    }

    /// A change was answered.
    pub fn add(&self, record: Record, answer: AnswerBody) {
        let (sender, outcome) = oneshot();
        sender.send(Some(outcome_of(answer.status, &answer.body)));
        let kept = Origin::new(answer.origin);
        kept.keep(record);
        let waiting = Waiting { outcome, kept };
        lock(&self.0).insert((answer.origin, answer.name), waiting);
    }

    /// What became of this change, if it was asked for already on behalf of the present task's origin.
    pub async fn take(&self, request: &Request) -> Option<Outcome> {
        let origin = executor::origin()?;
        let key = (origin.number(), request.name().to_owned());
        let Waiting { outcome, kept } = lock(&self.0).remove(&key)?;
        let outcome = outcome.await.flatten();
        kept.give_to(&origin);
        outcome
    }
}

fn outcome_of(status: u16, body: &[u8]) -> Outcome {
    wire::status_from(status)?;
    decode(body).ok_or(FsError::Io)
}

/// The outcome of a request that was sent again. None: it did not happen, or is to be asked anew.
pub(crate) fn outcome_of_resent(result: CallResult) -> Option<Outcome> {
    let batch = result.ok()?;
    let reply = batch.replies.first()?;
    match outcome_of(reply.status, &reply.body) {
        Err(FsError::TryAgain) => None,
        outcome => Some(outcome),
    }
}
