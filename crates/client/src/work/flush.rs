//! Write-behind: cached bytes on their way to the OSTs, many files in one message.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::limits::BULK_BYTES_MAX;
use base::{ByteRange, Fid, FsError, LockHandle, TargetIndex, Tick, Transno};
use dlm::Mode;
use rpc::Urgency;
use wire::frame::Bulk;
use wire::mdt::WriteTicket;
use wire::ost::{ObjectAttr, Reply, Request, UNDER_MDT};

use crate::cache::file::FileState;
use crate::cache::holder::Holder;
use crate::cache::pages::{Loss, PageCache, WriteOut};
use crate::executor::{each_of, join_all, spawn};
use crate::policy::writeback::FRAMES_MAX;
use crate::session::client::Client;
use crate::session::cluster::{decode_ost, object_of};
use crate::session::state::State;

/// Writes in one frame.
const WRITES_MAX: usize = 512;
/// Files looked at for one frame. Of some the bytes are younger than they seemed, or cannot be sent yet.
const LOOKED_AT_MAX: usize = 4 * WRITES_MAX;

/// One write on its way.
struct Sent {
    fid: Fid,
    out: WriteOut,
    /// How often its OST had restarted then.
    restarts: u32,
    /// The right that it was sent with.
    ticket: WriteTicket,
    /// The lock that stays until it is answered; one that is being given back waits by itself.
    under: Option<(Holder, LockHandle)>,
}

/// A frame's worth of writes to one OST.
struct WriteFrame {
    target: TargetIndex,
    sent: Vec<Sent>,
    requests: Vec<Request>,
    bulk: Bulk,
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameEnd {
    /// The OST has all of it durably, or what it lacks is lost, and that is noted.
    Durable,
    /// The OST was asked for no durability, or it must be asked once more.
    Other,
}

impl WriteFrame {
    fn new(target: TargetIndex) -> WriteFrame {
        WriteFrame {
            target,
            sent: Vec::new(),
            requests: Vec::new(),
            bulk: Bulk::default(),
        }
    }

    /// Bytes and writes that it takes yet.
    fn room(&self) -> (u64, usize) {
        let bytes = BULK_BYTES_MAX - self.bulk.len();
        (bytes as u64, WRITES_MAX - self.requests.len())
    }

    fn add(&mut self, state: &mut State, fid: Fid, ticket: WriteTicket, mut out: WriteOut) {
        let range = ByteRange::new(out.offset, out.offset + out.bytes.len() as u64);
        let used = state.locks.use_extent(fid, Mode::PW, range);
        let under = used
            .map(|(_, handle)| handle)
            .or_else(|| state.locks.extent_even_revoked(fid, Mode::PW, range))
            .unwrap_or(LockHandle(0));
        let epoch = state.boot_epoch_of(fid);
        let file = state.cache.file(fid);
        file.durability.begin_write();
        let under = if file.locks.is_exclusive() {
            UNDER_MDT
        } else {
            under
        };
        self.requests.push(Request::Write {
            object: object_of(fid),
            offset: out.offset,
            bulk: (self.bulk.len() as u32, out.bytes.len() as u32),
            ticket,
            mtime: file.object.mtime(),
            under,
            boot_epoch: epoch,
        });
        self.bulk.append(std::mem::take(&mut out.bytes));
        let restarts = file.durability.restarts();
        self.sent.push(Sent {
            fid,
            out,
            restarts,
            ticket,
            under: used,
        });
    }
}

impl Client {
    /// Sends all dirty bytes of `range` and waits until the OST has them and all that was on its
    /// way before.
    pub(crate) async fn write_out(&self, fid: Fid, range: ByteRange) {
        self.report_births_first(&[fid]).await;
        self.write_out_some(vec![fid], range).await;
    }

    /// The same but for the last frame, after which the OST has all: that is returned instead.
    async fn write_out_but_last(&self, fid: Fid, range: ByteRange) -> Option<WriteFrame> {
        loop {
            let (frame, is_last, wait) = {
                let mut state = self.lock();
                let file = state.cache.file_known(fid)?;
                if file.pages.is_flushed(range) && !file.resizes.is_lost() {
                    return None;
                }
                let wait = file.waiters.wait();
                let frame = take_frame(&mut state, &[fid], range);
                let file = state.cache.file(fid);
                let sent = frame.as_ref().map_or(0, |frame| frame.sent.len());
                // Frames overtake each other: none may be on its way that this one is to follow.
                let is_last =
                    file.pages.is_sent(range) && file.durability.writing() as usize == sent;
                (frame, is_last, wait)
            };
            match frame {
                Some(frame) if is_last => return Some(frame),
                Some(frame) => {
                    self.send_frame(frame).await;
                }
                None => {
                    self.start_cut(fid);
                    wait.await;
                }
            }
        }
    }

    /// The same of several files, many in one message.
    async fn write_out_some(&self, mut files: Vec<Fid>, range: ByteRange) {
        loop {
            let (frame, first, wait) = {
                let mut state = self.lock();
                files.retain(|fid| {
                    let file = state.cache.file_known(*fid);
                    file.is_some_and(|file| !file.pages.is_flushed(range) || file.resizes.is_lost())
                });
                let Some(first) = files.first().copied() else {
                    return;
                };
                let wait = state.cache.file(first).waiters.wait();
                (take_frame(&mut state, &files, range), first, wait)
            };
            match frame {
                Some(frame) => {
                    self.send_frame(frame).await;
                }
                None => {
                    self.start_cut(first);
                    wait.await;
                }
            }
        }
    }

    /// The same of all bytes of so many files that they take several messages. Of each OST some are
    /// on their way at once, and none waits for another OST.
    pub(crate) async fn write_out_files(&self, files: &[Fid]) {
        let mut by_target: BTreeMap<Option<TargetIndex>, Vec<Fid>> = BTreeMap::new();
        for fid in files {
            let target = self.lock().cache.ost(*fid);
            by_target.entry(target).or_default().push(*fid);
        }
        let some = |files: Vec<Fid>| self.write_out_some(files, ByteRange::ALL);
        let of_one = |files: Vec<Fid>| async move {
            let frames: Vec<_> = files.chunks(WRITES_MAX).map(<[Fid]>::to_vec).collect();
            each_of(frames, FRAMES_MAX as usize, some).await;
        };
        join_all(by_target.into_values().map(of_one).collect()).await;
    }

    /// The same; and where `is_needed` says so, what the OST has of the file is durable when this
    /// returns.
    pub(crate) async fn write_out_durably(
        &self,
        fid: Fid,
        range: ByteRange,
        is_needed: impl Fn(&mut State) -> bool,
    ) -> Result<(), FsError> {
        self.report_births_first(&[fid]).await;
        loop {
            let before = self.restarts(fid);
            // The last bytes and the wish that all be durable go in one frame.
            let end = match self.write_out_but_last(fid, range).await {
                Some(mut frame) => {
                    frame.requests.push(Request::Sync);
                    self.send_frame(frame).await
                }
                None => {
                    let needed = is_needed(&mut self.lock());
                    if needed {
                        self.sync_target(self.target_of(fid)?).await?;
                    }
                    FrameEnd::Durable
                }
            };
            // An OST that restarted meanwhile has synced all it still had, which may be less.
            if end == FrameEnd::Durable && self.restarts(fid) == before {
                return Ok(());
            }
        }
    }

    /// How often the OST of a file that is in use here has restarted.
    pub(crate) fn restarts(&self, fid: Fid) -> u32 {
        self.lock()
            .cache
            .file_known(fid)
            .map_or(0, |file| file.durability.restarts())
    }

    /// Sends what is of `target` and was dirty at `then`, and waits until the OST has it.
    pub(crate) async fn write_old_bytes(&self, target: TargetIndex, then: Tick) {
        loop {
            let (frame, wait) = {
                let mut state = self.lock();
                let fids = unwritten_since(&mut state, target, then);
                let Some(first) = fids.first() else {
                    return;
                };
                let wait = state.cache.file(*first).waiters.wait();
                (take_frame(&mut state, &fids, ByteRange::ALL), wait)
            };
            match frame {
                Some(frame) => {
                    self.send_frame(frame).await;
                }
                None => drop(wait.await),
            }
        }
    }

    /// Sends all that is dirty of an OST, and waits for it.
    pub(crate) async fn write_out_of(&self, target: TargetIndex) {
        let files: BTreeSet<Fid> = {
            let state = self.lock();
            let writeback = &state.policies.writeback;
            let of = |ost| writeback.unwritten_since(ost, Tick(u64::MAX));
            of(Some(target)).chain(of(None)).collect()
        };
        let files = Vec::from_iter(files);
        self.write_out_files(&files).await;
    }

    /// Sends everything dirty and waits for it.
    pub(crate) async fn write_out_all(&self) {
        // What has bytes to send, and what has lost a change of its size.
        let files = self.lock().policies.writeback.undurable();
        self.write_out_files(&Vec::from_iter::<BTreeSet<Fid>>(files))
            .await;
    }

    /// Sends what is old, or all if there is much of it.
    pub(crate) fn start_flushing(&self) {
        if !self.lock().births.is_empty() {
            self.start_reporting_births();
        }
        self.flush_some(Duration::ZERO);
    }

    /// Sends what is older than the limit.
    pub(crate) fn flush_aged(&self) {
        self.flush_some(Duration::from_millis(self.0.params.dirty_age_ms()));
    }

    fn flush_some(&self, age: Duration) {
        let now = self.0.clock.tick();
        loop {
            let frame = {
                let mut state = self.lock();
                if !state.policies.writeback.may_send() {
                    return;
                }
                let Some(fids) = due(&mut state, now, age) else {
                    return;
                };
                let Some(frame) = take_frame(&mut state, &fids, ByteRange::ALL) else {
                    return;
                };
                state.policies.writeback.begin_frame();
                frame
            };
            let client = self.clone();
            spawn(async move {
                client.send_frame(frame).await;
                client.lock().policies.writeback.end_frame();
                let much = client.lock().cache.dirty_bytes() > client.0.params.dirty_max() / 8;
                if much {
                    client.start_flushing();
                }
            });
        }
    }

    /// Sends it. The OST has all of its writes durably where the wish for that is its last request, and
    /// they went well.
    async fn send_frame(&self, frame: WriteFrame) -> FrameEnd {
        let WriteFrame {
            target,
            sent,
            requests,
            bulk,
        } = frame;
        let (shared, writes) = (&self.0, sent.len());
        let asked = shared.clock.tick();
        let answer = shared
            .cluster
            .ost_batch(&shared.stats, target, &requests, bulk, Urgency::Urgent)
            .await;
        let reply_to = |index| match &answer {
            Ok(answer) => decode_ost(answer, index),
            Err(error) => Err(*error),
        };
        let transno = answer.as_ref().map_or(Transno(0), |answer| answer.transno);
        let mut end = match requests.len() > writes && reply_to(writes) == Ok(Reply::Done) {
            true => FrameEnd::Durable,
            false => FrameEnd::Other,
        };
        let mut state = self.lock();
        for (index, sent) in sent.into_iter().enumerate() {
            let reply = reply_to(index);
            if let Some(max) = unsent_max(&reply) {
                state.servers.learn_unsent_max(target, asked, max);
            }
            if written(&mut state, sent, reply, transno) != Sending::Over {
                end = FrameEnd::Other;
            }
        }
        if end == FrameEnd::Durable {
            state.committed(target, transno);
        }
        state.cache.make_room();
        end
    }

    /// The OST has made everything up to `last_committed` durable.
    pub(crate) fn ost_committed(&self, target: TargetIndex, last_committed: Transno) {
        self.lock().committed(target, last_committed);
    }
}

/// Whether a write is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sending {
    /// The OST has the bytes, or they are lost.
    Over,
    /// The bytes are to be sent again.
    Again,
    /// The OST has no space for them: the file is to end before them.
    Cut,
}

/// How much may be unsent, as the OST says with the answer to a write.
fn unsent_max(reply: &Result<Reply, FsError>) -> Option<u64> {
    match reply {
        Ok(Reply::Written { unsent_max, .. }) => Some(*unsent_max),
        Err(FsError::NoSpace) => Some(0),
        _ => None,
    }
}

/// An answer to one write.
fn written(
    state: &mut State,
    sent: Sent,
    reply: Result<Reply, FsError>,
    transno: Transno,
) -> Sending {
    let Sent {
        fid,
        out,
        restarts,
        ticket,
        under,
    } = sent;
    if let Some(under) = under {
        state.locks.unused(under);
    }
    let attr = match reply {
        Ok(Reply::Written { attr, .. }) => Ok(attr),
        Ok(_) => Err(FsError::Io),
        Err(error) => Err(error),
    };
    let (is_again, loss) = state.with_pages(fid, |file| {
        file.durability.end_write();
        file.waiters.wake_all();
        let is_again = match attr {
            Err(FsError::TryAgain) => true,
            // The lock it was sent under is of the OST's old boot; or the ticket is of the MDT's, and a write
            // with the next one has overtaken it.
            Err(FsError::Stale) => {
                file.durability.restarts() != restarts || file.registration.ticket() != Some(ticket)
            }
            Err(FsError::NoSpace) => file.pages.has_no_space(out.id),
            _ => false,
        };
        match attr {
            Ok(attr) => note_written(file, out, attr, transno),
            Err(_) if is_again => {
                file.pages.failed(out.id);
                return (true, Loss::Nothing);
            }
            Err(error) => return (false, note_lost(file, fid, &out, error)),
        }
        (false, Loss::Nothing)
    });
    if is_again {
        return Sending::Again;
    }
    if attr.is_ok() {
        state.servers.forget_space();
        state.answered(fid);
    }
    let end = match loss {
        Loss::End(end) if attr == Err(FsError::NoSpace) => Some(end),
        _ => None,
    };
    let cut = end.filter(|end| state.is_cut_at(fid, *end));
    if loss != Loss::Nothing {
        // What is here of the file is not what the OST has, its size neither.
        let exclusive = state
            .cache
            .file_known(fid)
            .and_then(|file| file.locks.exclusive());
        state.locks.give_up_bytes(fid, exclusive);
    }
    match cut {
        Some(_) => Sending::Cut,
        None => Sending::Over,
    }
}

/// Bytes that were dropped meanwhile are no loss, or were told with what dropped them.
fn note_lost(file: &mut FileState, fid: Fid, out: &WriteOut, error: FsError) -> Loss {
    let loss = file.pages.lost(out.id);
    if loss == Loss::Nothing {
        return loss;
    }
    let offset = out.offset;
    tracing::error!("{fid}: bytes from {offset} could not be written: {error}");
    file.errors.add(match error {
        // Their right to be written went with an eviction.
        FsError::Stale => FsError::Io,
        error => error,
    });
    loss
}

fn note_written(file: &mut FileState, out: WriteOut, attr: ObjectAttr, transno: Transno) {
    file.pages.written(out.id, transno);
    // Answers overtake each other, and a later change may have made it more blocks.
    if transno >= file.durability.written() {
        file.object.learn_blocks(attr.blocks);
    }
    file.sent(transno);
}

/// Dirty bytes of `fids` within `range`, as much as fits one frame: of those on the OST of the first
/// that has any. Without a ticket, which a restart of the MDT takes away for a while, nothing of a file
/// may be sent; and nothing before a change of its size that an OST has lost.
fn take_frame(state: &mut State, fids: &[Fid], range: ByteRange) -> Option<WriteFrame> {
    let mut begun: Option<WriteFrame> = None;
    for fid in fids {
        let Some(target) = state.cache.ost(*fid) else {
            continue;
        };
        let file = state.cache.file(*fid);
        let Some(ticket) = file
            .registration
            .ticket()
            .filter(|_| !file.resizes.is_lost())
        else {
            continue;
        };
        if begun.as_ref().is_some_and(|frame| frame.target != target) {
            continue;
        }
        let mut frame = begun.take().unwrap_or_else(|| WriteFrame::new(target));
        let (bytes, writes) = frame.room();
        if bytes == 0 || writes == 0 {
            return Some(frame);
        }
        let outs = state.with_pages(*fid, |file| file.pages.take_dirty(range, bytes, writes));
        for out in outs {
            frame.add(state, *fid, ticket, out);
        }
        begun = Some(frame).filter(|frame| !frame.requests.is_empty());
    }
    begun
}

/// Files of `target` with bytes that were not written at `then`, a frame's worth.
fn unwritten_since(state: &mut State, target: TargetIndex, then: Tick) -> Vec<Fid> {
    find_osts(state, then);
    let unwritten = state.policies.writeback.unwritten_since(Some(target), then);
    let perhaps: Vec<Fid> = unwritten.take(LOOKED_AT_MAX).collect();
    let old = perhaps.into_iter().filter(|fid| {
        let oldest = look_at_ages(state, *fid, PageCache::oldest_unwritten);
        oldest.is_some_and(|oldest| oldest <= then)
    });
    old.take(WRITES_MAX).collect()
}

/// Files of one OST with bytes older than `age`, a frame's worth: the oldest of each.
fn due(state: &mut State, now: Tick, age: Duration) -> Option<Vec<Fid>> {
    let then = now.before(age)?;
    find_osts(state, then);
    let osts = state.policies.writeback.osts().into_iter().flatten();
    let all = osts.map(|ost| due_at(state, ost, then));
    all.max_by_key(Vec::len).filter(|due| !due.is_empty())
}

fn due_at(state: &mut State, ost: TargetIndex, then: Tick) -> Vec<Fid> {
    let dirty = state.policies.writeback.dirty_since(Some(ost), then);
    let perhaps: Vec<Fid> = dirty.take(LOOKED_AT_MAX).collect();
    let due = perhaps.into_iter().filter(|fid| {
        let oldest = look_at_ages(state, *fid, PageCache::oldest_dirty);
        let file = state.cache.file_known(*fid);
        oldest.is_some_and(|oldest| oldest <= then)
            && file.is_some_and(|file| file.registration.has_writers())
    });
    due.take(WRITES_MAX).collect()
}

/// Files whose OST was not known when their bytes came have their place by it, if it is known now.
fn find_osts(state: &mut State, then: Tick) {
    let without = state.policies.writeback.unwritten_since(None, then);
    let without: Vec<Fid> = without.take(LOOKED_AT_MAX).collect();
    without.into_iter().for_each(|fid| state.note(fid));
}

/// How old bytes of the file are; from now on it has its place by that.
fn look_at_ages(
    state: &mut State,
    fid: Fid,
    oldest: impl Fn(&PageCache) -> Option<Tick>,
) -> Option<Tick> {
    let file = state.cache.file_known(fid)?;
    file.pages.look_at_ages();
    let oldest = oldest(&file.pages);
    state.note(fid);
    oldest
}

#[cfg(test)]
#[path = "flush_tests.rs"]
mod tests;
