//! A request on its way: how far it came, and what it waits for.

use base::{ClientId, Transno};
use dlm::ResourceId;
use layout::ObjectId;
use wire::ost::Request;

use crate::failure::Outcome;
use crate::locks::Wish;
use crate::objects::Change;
use crate::outbox::Answer;
use crate::resizing::Resize;
use crate::work::{ListWork, ReadWork};

/// A request, as it came.
#[derive(Debug)]
pub struct Call<'a> {
    /// Whose.
    pub client: ClientId,
    /// The caller's name for it; the reply carries it.
    pub tag: u64,
    /// What is asked.
    pub request: Request,
    /// The bulk region of the frame it came in.
    pub bulk: &'a [u8],
}

/// Who waits for a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    pub client: ClientId,
    pub tag: u64,
}

/// A request that waits, with all it needs to be done.
#[derive(Debug)]
pub(crate) enum Job {
    Enqueue,
    Append(Append),
    Resize(Resize),
    Seek(Seek),
    Map { object: ObjectId, offset: u64 },
    Glimpse { object: ObjectId },
    Announce { object: ObjectId, size: u64 },
}

/// How far a request came.
pub(crate) enum Step {
    /// Answer it; the modification it made, or zero.
    Done(Answer, Transno),
    /// It waits for locks or answers.
    Park(Job, Need),
    /// It waits for everything so far to be durable.
    Sync,
    /// The bytes are read outside, and the answer comes from there.
    Read(ReadWork),
    /// Objects without a record are looked for outside.
    List(ListWork),
}

/// What a parked request waits for.
pub(crate) enum Need {
    /// A lock for the client.
    Grant(Wish),
    /// A lock of the target's own.
    Lock(Wish),
    /// How those who write an object see it.
    Values { of: ResourceId, speculative: bool },
    /// That those who watch an object have heard.
    Watchers(ResourceId),
}

impl Step {
    /// Done, nothing changed.
    pub fn answer(answer: impl Into<Answer>) -> Outcome<Step> {
        Ok(Step::Done(answer.into(), Transno(0)))
    }
}

/// What is to be appended.
#[derive(Debug)]
pub(crate) struct Append {
    pub object: ObjectId,
    pub data: Vec<u8>,
    pub change: Change,
    /// The end of the object when the lock was asked for; the lock starts there.
    pub from: u64,
}

/// What is to be found.
#[derive(Debug)]
pub(crate) struct Seek {
    pub object: ObjectId,
    pub offset: u64,
    pub hole: bool,
}
