//! Call records: changes sent to the MDT, so that each happens once although the process that sent it died.
//! The kernel repeats its request to the next process, which sends the change again under its old number. A
//! change that was answered and is not durable is replayed to an MDT that has lost it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::{BootEpoch, FsError, Transno, Xid};
use handover::{Found, Record, Records};
use rpc::{Answered, CallRecord, CallResult, ReplayRecord, Undurable};
use serde::{Deserialize, Serialize};
use wire::frame::{Bulk, Payload, Sub};
use wire::mdt::{Reply, Request};

use super::record::{ANSWER, Marked, Noted, REQUEST, decode, encode};
use crate::executor::{self, Oneshot, Origin, Sender, oneshot};

/// Bits of a mark below the slot.
const XID_BITS: u32 = 48;
/// In the mark of an [`ANSWER`]: the kernel has it.
const TOLD: u64 = 1 << 63;
/// Bits of such a mark that count changes of one boot. Above them, up to [`TOLD`]: the boot.
const TRANSNO_BITS: u32 = 48;
/// Boots are told apart by so many.
const EPOCHS: u64 = 1 << (63 - TRANSNO_BITS);

/// A request that was found: in its record the origin stands before the bytes that were sent.
pub(crate) struct FoundRequest {
    record: Record,
    /// Where it was sent.
    pub place: (u16, Xid),
    origin: u64,
    /// What was sent.
    pub body: Vec<u8>,
    request: Request,
}

/// What stands before the messages in an [`ANSWER`]; its own length, in four bytes, before that.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AnswerHead {
    /// The kernel's request that it is for; zero: none.
    pub origin: u64,
    /// The request's kind.
    pub name: String,
    /// Where it was sent.
    pub place: (u16, Xid),
    /// The boot of the MDT in which it was done first, and its number there. None: nothing was
    /// changed that is not durable.
    pub first: Option<(BootEpoch, Transno)>,
    /// The requests, and the answers with how they went: opcode or status, and length.
    requests: Vec<(u16, u32)>,
    answers: Vec<(u16, u32)>,
}

/// An answer that was found.
pub(crate) struct FoundAnswer {
    pub head: AnswerHead,
    requests: Vec<Sub>,
    answers: Vec<Sub>,
    mark: u64,
    call_record: Arc<Marked>,
}

/// Where a request with this mark was sent. None: it was not.
fn place_of(mark: u64) -> Option<(u16, Xid)> {
    let xid = mark & ((1 << XID_BITS) - 1);
    (mark != 0).then_some(((mark >> XID_BITS) as u16, Xid(xid)))
}

/// Which change, as a mark says it.
fn mark_of((epoch, transno): (BootEpoch, Transno)) -> u64 {
    (epoch.0 % EPOCHS) << TRANSNO_BITS | transno.0 & ((1 << TRANSNO_BITS) - 1)
}

/// The inverse, of a boot not before `first`.
fn done_of(mark: u64, first: BootEpoch) -> (BootEpoch, Transno) {
    let epoch = (mark & !TOLD) >> TRANSNO_BITS;
    let later = epoch.wrapping_sub(first.0) % EPOCHS;
    let transno = mark & ((1 << TRANSNO_BITS) - 1);
    (BootEpoch(first.0 + later), Transno(transno))
}

/// The record of a frame of requests, while it is under way and after.
#[derive(Debug)]
pub(crate) struct RequestRecord {
    records: Records,
    /// Until it is answered. None: it may be asked once more without harm.
    request: Option<Record>,
    origin: Option<Arc<Origin>>,
    name: &'static str,
    forgotten: Forgotten,
}

/// Whether the answer could not be recorded. Then its change must be durable before a caller hears of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Forgotten(Arc<AtomicBool>);

impl Forgotten {
    pub fn is_so(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The replay record of a change. Dropped when the change is durable, or lost.
#[derive(Debug)]
struct ForReplay(Arc<Marked>);

impl Drop for ForReplay {
    /// The record may stay for the kernel, and says that no target need be told.
    fn drop(&mut self) {
        self.0.change(|mark| mark & TOLD);
    }
}

impl ReplayRecord for ForReplay {
    fn done_again(&self, done: (BootEpoch, Transno)) {
        self.0.change(|mark| mark & TOLD | mark_of(done));
    }
}

impl RequestRecord {
    /// Of a request that is sent as `body`. None: it changes nothing.
    pub fn new(records: &Records, request: &Request, body: &[u8]) -> Option<RequestRecord> {
        let once = matches!(
            request,
            Request::Create { .. }
                | Request::CreateNameless { .. }
                | Request::Link { .. }
                | Request::Unlink { .. }
                | Request::Rename { .. }
                | Request::SetAttr { .. }
                | Request::SetXattr { .. }
                | Request::RemoveXattr { .. }
        );
        let mut call_record = RequestRecord::of_frame(records, std::slice::from_ref(request))?;
        if once {
            let origin = executor::origin();
            let number = origin.as_ref().map_or(0, |origin| origin.number());
            // Without room for it the kernel's request may be done twice if this process ends now.
            call_record.request = records.put(REQUEST, 0, &[&number.to_le_bytes(), body]);
            call_record.origin = origin;
        }
        Some(call_record)
    }

    /// Of requests that may be asked once more without harm. None: they change nothing.
    pub fn of_frame(records: &Records, requests: &[Request]) -> Option<RequestRecord> {
        let changes = requests.iter().any(Request::is_modification);
        changes.then(|| RequestRecord {
            records: records.clone(),
            request: None,
            origin: None,
            name: requests.first().map_or("", Request::name),
            forgotten: Forgotten::default(),
        })
    }

    /// To be looked at when the answer is there.
    pub fn forgotten(&self) -> Forgotten {
        self.forgotten.clone()
    }

    /// Puts the answer there. None: there is no room.
    fn put(&self, answered: &Answered<'_>, origin: u64) -> Option<Arc<Marked>> {
        let Answered { place, done, .. } = *answered;
        let requests = match done {
            Some(_) => &answered.request.subs[..],
            None => &[],
        };
        let answers = &answered.answer.subs[..];
        let length = |sub: &Sub| sub.body.len() as u32;
        let head = encode(&AnswerHead {
            origin,
            name: self.name.to_owned(),
            place,
            first: done,
            requests: requests.iter().map(|s| (s.opcode, length(s))).collect(),
            answers: answers.iter().map(|s| (s.status, length(s))).collect(),
        });
        let head_len = (head.len() as u32).to_le_bytes();
        let messages = requests.iter().chain(answers);
        let mut parts = vec![&head_len[..], &head];
        parts.extend(messages.map(|sub| &sub.body[..]));
        let mark = done.map_or(0, mark_of) | if origin == 0 { TOLD } else { 0 };
        let record = self.records.put(ANSWER, mark, &parts)?;
        Some(Marked::new(record))
    }
}

/// Reads the record of a request. None: it was not sent.
pub(crate) fn found_request(found: Found) -> Option<FoundRequest> {
    let (origin, body) = found.bytes.split_first_chunk()?;
    Some(FoundRequest {
        place: place_of(found.mark)?,
        origin: u64::from_le_bytes(*origin),
        request: decode(body)?,
        body: body.to_vec(),
        record: found.record,
    })
}

impl FoundRequest {
    /// Goes on remembering it; its outcome goes to the sender.
    pub fn go_on(
        self,
        records: &Records,
        redone: &Redone,
    ) -> (RequestRecord, Sender<Option<Outcome>>) {
        let origin = (self.origin != 0).then(|| Origin::new(self.origin));
        let call_record = RequestRecord {
            records: records.clone(),
            request: Some(self.record),
            origin: origin.clone(),
            name: self.request.name(),
            forgotten: Forgotten::default(),
        };
        (call_record, redone.expect(origin, &self.request))
    }
}

/// Reads the record of an answer.
pub(crate) fn found_answer(found: Found) -> Option<FoundAnswer> {
    let (length, rest) = found.bytes.split_first_chunk()?;
    let (head, mut rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let head: AnswerHead = decode(head)?;
    let mut take = |length: u32| {
        let (body, more) = rest.split_at_checked(length as usize)?;
        rest = more;
        Some(body.to_vec())
    };
    let mut requests = Vec::with_capacity(head.requests.len());
    for (opcode, length) in &head.requests {
        requests.push(Sub {
            opcode: *opcode,
            status: 0,
            body: take(*length)?,
        });
    }
    let mut answers = Vec::with_capacity(head.answers.len());
    for (status, length) in &head.answers {
        answers.push(Sub {
            opcode: requests.get(answers.len()).map_or(0, |sub| sub.opcode),
            status: *status,
            body: take(*length)?,
        });
    }
    Some(FoundAnswer {
        head,
        requests,
        answers,
        mark: found.mark,
        call_record: Marked::new(found.record),
    })
}

impl FoundAnswer {
    /// The kernel may ask for it.
    pub fn is_wanted(&self) -> bool {
        self.mark & TOLD == 0
    }

    /// What is to be told again to an MDT that has lost it.
    pub fn undurable(&self) -> Option<Undurable> {
        let first = self.head.first.filter(|_| self.mark & !TOLD != 0)?;
        let payload = |subs: &[Sub]| {
            Arc::new(Payload {
                subs: subs.to_vec(),
                bulk: Bulk::default(),
            })
        };
        Some(Undurable {
            place: self.head.place,
            first,
            done: done_of(self.mark, first.0),
            request: payload(&self.requests),
            answer: payload(&self.answers),
            replay_record: Box::new(ForReplay(self.call_record.clone())),
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CallRecord for RequestRecord {
    fn launched(&self, slot: u16, xid: Xid) {
        if let Some(record) = &self.request {
            record.set_mark(u64::from(slot) << XID_BITS | xid.0);
        }
    }

    fn answered(self: Box<Self>, answered: &Answered<'_>) -> Option<Box<dyn ReplayRecord>> {
        let status = answered.answer.subs.first().map(|sub| sub.status);
        // It is asked anew, and that is what its origin waits for.
        let again = wire::status_of(Err(FsError::TryAgain));
        let origin = self
            .origin
            .as_ref()
            .filter(|_| status.is_some_and(|status| status != again));
        if origin.is_none() && answered.done.is_none() {
            return None;
        }
        let call_record = self.put(answered, origin.map_or(0, |origin| origin.number()));
        let Some(call_record) = call_record else {
            self.forgotten.0.store(true, Ordering::Release);
            return None;
        };
        if let Some(origin) = origin {
            origin.keep(Box::new(Noted::on_drop(&call_record, TOLD)));
        }
        // Only now the request goes: one of the two is always there.
        answered
            .done
            .map(|_| Box::new(ForReplay(call_record)) as Box<dyn ReplayRecord>)
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
    fn expect(&self, origin: Option<Arc<Origin>>, request: &Request) -> Sender<Option<Outcome>> {
        let (sender, outcome) = oneshot();
        if let Some(kept) = origin {
            let key = (kept.number(), request.name().to_owned());
            lock(&self.0).insert(key, Waiting { outcome, kept });
        }
        sender
    }

    /// How many are known.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        lock(&self.0).len()
    }

    /// A change was answered.
    pub fn add(&self, answer: FoundAnswer) {
        let FoundAnswer {
            head,
            answers,
            call_record,
            ..
        } = answer;
        let Some(first) = answers.first() else {
            return;
        };
        let (sender, outcome) = oneshot();
        sender.send(Some(outcome_of(first.status, &first.body)));
        let kept = Origin::new(head.origin);
        kept.keep(Box::new(Noted::on_drop(&call_record, TOLD)));
        let waiting = Waiting { outcome, kept };
        lock(&self.0).insert((head.origin, head.name), waiting);
    }

    /// The process before has asked for a change on behalf of the present task's origin.
    pub fn knows_origin(&self) -> bool {
        let Some(origin) = executor::origin() else {
            return false;
        };
        let is_its = |(number, _): &(u64, String)| *number == origin.number();
        lock(&self.0).keys().any(is_its)
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

/// The outcome of a request that was sent again. None: it did not happen, or is to be asked anew. One
/// that went with an eviction may have happened: others may have undone it since.
pub(crate) fn outcome_of_resent(result: CallResult) -> Option<Outcome> {
    let outcome = result.map_err(FsError::from).and_then(|batch| {
        let reply = batch.replies.first().ok_or(FsError::TryAgain)?;
        outcome_of(reply.status, &reply.body)
    });
    match outcome {
        Err(FsError::TryAgain) => None,
        outcome => Some(outcome),
    }
}
