//! The servers, and how to ask them.

use std::collections::BTreeMap;
use std::sync::{OnceLock, PoisonError};

use base::{Fid, FsError, TargetIndex, Transno};
use bytes::Bytes;
use handover::Records;
use layout::ObjectId;
use rpc::{Batch, CallFuture, Message, Peer, ReplyBatch, ReplyMessage, Urgency};
use threads::Mutex;
use wire::frame::Bulk;
use wire::{mdt, opcode, ost, status_from};

use crate::executor::{Oneshot, WaitList};
use crate::journal::call_records::{Forgotten, RequestRecord};
use crate::session::stats::{Stats, bump};

/// An answer of an OST with the bytes that came along.
#[derive(Debug)]
pub(crate) struct OstAnswer {
    pub reply: ost::Reply,
    pub bulk: Bytes,
    pub transno: Transno,
}

/// OSTs in the order in which they were met. One that is met stays.
#[derive(Default)]
struct Osts {
    met: Vec<(TargetIndex, Peer)>,
    later: OnceLock<Box<Osts>>,
}

impl Osts {
    fn iter(&self) -> impl Iterator<Item = &(TargetIndex, Peer)> {
        let lists = std::iter::successors(Some(self), |list| list.later.get().map(|next| &**next));
        lists.flat_map(|list| &list.met)
    }

    fn add(&self, index: TargetIndex, peer: Peer) {
        let mut list = self;
        let mut added = Box::new(Osts {
            met: vec![(index, peer)],
            later: OnceLock::new(),
        });
        while let Err(back) = list.later.set(added) {
            added = back;
            let Some(next) = list.later.get() else { return };
            list = next;
        }
    }
}

/// The targets of one file system.
pub(crate) struct Cluster {
    pub mdt: Peer,
    osts: Osts,
    /// OSTs that a file was found to be on and that were not met yet: added to the file system since
    /// the MGS was asked.
    wanted: Mutex<BTreeMap<TargetIndex, WaitList>>,
    /// Where requests that change something are remembered.
    pub records: Option<Records>,
}

impl Cluster {
    pub fn new(mdt: Peer, met: Vec<(TargetIndex, Peer)>, records: Option<Records>) -> Cluster {
        let osts = Osts {
            met,
            ..Osts::default()
        };
        Cluster {
            mdt,
            osts,
            wanted: Mutex::default(),
            records,
        }
    }

    /// The OSTs that were met.
    pub fn osts(&self) -> impl Iterator<Item = &(TargetIndex, Peer)> {
        self.osts.iter()
    }

    /// OSTs that calls wait to meet.
    pub fn wanted(&self) -> Vec<TargetIndex> {
        self.waiting().keys().copied().collect()
    }

    /// An OST that was wanted can be asked from now on.
    pub fn meet(&self, index: TargetIndex, peer: Peer) {
        self.osts.add(index, peer);
        self.give_up_meeting(index);
    }

    /// Those who wait for the OST wait no longer.
    pub fn give_up_meeting(&self, index: TargetIndex) {
        let waiting = self.waiting().remove(&index);
        waiting.unwrap_or_default().wake_all();
    }

    fn waiting(&self) -> threads::MutexGuard<'_, BTreeMap<TargetIndex, WaitList>> {
        // Changed in single steps.
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection to `target`, which may have been added to the file system just now.
    async fn met(&self, target: TargetIndex) -> Result<&Peer, FsError> {
        let wait = match self.ost_peer(target) {
            Ok(peer) => return Ok(peer),
            Err(_) => self.want(target),
        };
        if let Some(wait) = wait {
            wait.await;
        }
        self.ost_peer(target)
    }

    /// Resolves when it was met or cannot be. `None`: it was met meanwhile.
    fn want(&self, target: TargetIndex) -> Option<Oneshot<()>> {
        let mut waiting = self.waiting();
        let is_met = self.ost_peer(target).is_ok();
        (!is_met).then(|| waiting.entry(target).or_default().wait())
    }

    /// One request to the MDT.
    pub async fn mdt(&self, stats: &Stats, request: &mdt::Request) -> Result<mdt::Reply, FsError> {
        stats.sent(request.name());
        tracing::trace!(?request, "asks the MDT");
        let body = wire::encode(request);
        let records = self.records.as_ref();
        let call_record = records.and_then(|records| RequestRecord::new(records, request, &body));
        let batch = Batch::of(opcode::MDT, body);
        let answer = self
            .ask_mdt(stats, batch, Urgency::Ordinary, call_record)
            .await?;
        decode_mdt(answer.replies.first())
    }

    /// Sends a frame to the MDT, and waits for the answer. What it has changed is remembered when this
    /// returns, or durable.
    async fn ask_mdt(
        &self,
        stats: &Stats,
        batch: Batch,
        urgency: Urgency,
        call_record: Option<RequestRecord>,
    ) -> Result<ReplyBatch, FsError> {
        let Some(call_record) = call_record else {
            return call(&self.mdt, batch, urgency).await.map_err(FsError::from);
        };
        let forgotten: Forgotten = call_record.forgotten();
        let answer = self
            .mdt
            .call_remembered(batch, urgency, Box::new(call_record));
        let answer = answer.await.map_err(FsError::from)?;
        if forgotten.is_so() {
            bump(&stats.unremembered);
            stats.sent(mdt::Request::Sync.name());
            let sync = Batch::of(opcode::MDT, wire::encode(&mdt::Request::Sync));
            call(&self.mdt, sync, urgency)
                .await
                .map_err(FsError::from)?;
        }
        Ok(answer)
    }

    /// A request for a stretch of a tree. `aside`: its answer is long, and nothing else waits for it.
    pub async fn mdt_walk(
        &self,
        stats: &Stats,
        request: mdt::Request,
        aside: bool,
    ) -> Result<mdt::Reply, FsError> {
        if !aside {
            return self.mdt(stats, &request).await;
        }
        stats.sent(request.name());
        tracing::trace!(?request, "asks the MDT");
        let batch = Batch::of(opcode::MDT, wire::encode(&request));
        let answer = self.mdt.call_bulk(batch).await.map_err(FsError::from)?;
        decode_mdt(answer.replies.first())
    }

    /// Many requests to the MDT in one message; each has its own answer.
    pub async fn mdt_batch(
        &self,
        stats: &Stats,
        requests: Vec<mdt::Request>,
        urgency: Urgency,
    ) -> Result<Vec<Result<mdt::Reply, FsError>>, FsError> {
        let count = requests.len();
        for request in &requests {
            stats.sent(request.name());
            tracing::trace!(?request, "asks the MDT");
        }
        let messages = requests
            .iter()
            .map(|request| Message {
                opcode: opcode::MDT,
                body: wire::encode(request),
            })
            .collect();
        let batch = Batch {
            messages,
            bulk: Bulk::default(),
        };
        let records = self.records.as_ref();
        let call_record = records.and_then(|records| RequestRecord::of_frame(records, &requests));
        let answer = self.ask_mdt(stats, batch, urgency, call_record).await?;
        let mut replies = Vec::with_capacity(count);
        replies.extend(answer.replies.iter().map(|reply| decode_mdt(Some(reply))));
        replies.resize_with(count, || Err(FsError::TryAgain));
        Ok(replies)
    }

    /// One request without data to the OST of `target`.
    pub async fn ost(
        &self,
        stats: &Stats,
        target: TargetIndex,
        request: ost::Request,
        urgency: Urgency,
    ) -> Result<OstAnswer, FsError> {
        let answer = self
            .ost_batch(stats, target, &[request], Bulk::default(), urgency)
            .await?;
        let transno = answer.transno;
        let reply = decode_ost(&answer, 0)?;
        Ok(OstAnswer {
            reply,
            bulk: answer.bulk.joined(),
            transno,
        })
    }

    /// Many requests to one OST in one message, with the data they name.
    pub async fn ost_batch(
        &self,
        stats: &Stats,
        target: TargetIndex,
        requests: &[ost::Request],
        bulk: Bulk,
        urgency: Urgency,
    ) -> Result<ReplyBatch, FsError> {
        for request in requests {
            stats.sent(request.name());
            tracing::trace!(?target, ?request, "asks the OST");
        }
        let writes = !bulk.is_empty();
        let is_read = |request: &ost::Request| matches!(request, ost::Request::Read { .. });
        let reads = requests.iter().any(is_read);
        let messages = requests
            .iter()
            .map(|request| Message {
                opcode: opcode::OST,
                body: wire::encode(request),
            })
            .collect();
        let batch = Batch { messages, bulk };
        let peer = self.met(target).await?;
        let answer = match (writes, reads) {
            (true, _) => peer.call_any_bulk(batch),
            // A reader waits for the first of what it asks for: answers that come side by side over
            // connections which all start slowly are later than those that follow each other.
            (false, true) => peer.call_bulk(batch),
            (false, false) => call(peer, batch, urgency),
        };
        answer.await.map_err(FsError::from)
    }

    /// The connection to `target`.
    pub fn ost_peer(&self, target: TargetIndex) -> Result<&Peer, FsError> {
        let found = self.osts().find(|(index, _)| *index == target);
        found.map(|(_, peer)| peer).ok_or(FsError::NoDevice)
    }

    /// The target of that number can be asked just now.
    pub fn is_connected(&self, target: TargetIndex) -> bool {
        let peer = self.ost_peer(target);
        peer.is_ok_and(|peer| matches!(peer.state(), rpc::PeerState::Connected))
    }

    /// Every connection.
    pub fn peers(&self) -> impl Iterator<Item = &Peer> {
        std::iter::once(&self.mdt).chain(self.osts().map(|(_, peer)| peer))
    }

    /// Request frames sent to all targets.
    pub fn rpcs_sent(&self) -> u64 {
        self.peers().map(|peer| peer.counters().rpcs_sent()).sum()
    }
}

fn call(peer: &Peer, batch: Batch, urgency: Urgency) -> CallFuture {
    match urgency {
        Urgency::Ordinary => peer.call(batch),
        Urgency::Urgent => peer.call_urgent(batch),
    }
}

/// The answer to one request; none: the MDT asks for it anew.
fn decode_mdt(reply: Option<&ReplyMessage>) -> Result<mdt::Reply, FsError> {
    let reply = reply.ok_or(FsError::TryAgain)?;
    let decoded = status_from(reply.status)
        .and_then(|()| wire::decode(&reply.body).map_err(|error| garbled(&error)));
    tracing::trace!(reply = ?decoded, "the MDT answers");
    decoded
}

/// The answer to the `index`th request of a batch.
pub(crate) fn decode_ost(answer: &ReplyBatch, index: usize) -> Result<ost::Reply, FsError> {
    let reply = answer.replies.get(index).ok_or(FsError::TryAgain)?;
    let decoded = status_from(reply.status)
        .and_then(|()| wire::decode(&reply.body).map_err(|error| garbled(&error)));
    tracing::trace!(reply = ?decoded, "the OST answers");
    decoded
}

/// The object that holds a file's bytes.
pub(crate) fn object_of(fid: Fid) -> ObjectId {
    ObjectId { fid, stripe: 0 }
}

fn garbled(error: &wire::DecodeError) -> FsError {
    tracing::error!("a server sent what cannot be read: {error}; are versions mixed?");
    FsError::Io
}
