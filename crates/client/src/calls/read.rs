//! Reading. SEMANTICS: op.read

use bytes::{Bytes, BytesMut};

use base::{ByteRange, Fid, FsError, LockHandle, TargetIndex};
use wire::ost;

use crate::cache::file::FileState;
use crate::cache::handle::HandleId;
use crate::cache::kernel_pages::ReadTo;
use crate::cache::pages::{Generation, Piece};
use crate::coherence::cover::{By, Covering, covering, read_mode};
use crate::coherence::glimpse::Glimpsing;
use crate::executor::{Oneshot, spawn};
use crate::policy::readahead::REQUEST_BYTES;
use crate::session::client::{Client, unexpected};
use crate::session::cluster::object_of;
use crate::session::file_handle::FileHandle;
use crate::session::state::State;
use crate::session::stats::bump;

/// Bytes read. As long as this lives the lock they were read under stays: the kernel rim drops it
/// after it has handed them over.
pub struct ReadData {
    /// The bytes, in pieces that follow each other; fewer than asked at the end of file.
    pub pieces: Vec<Bytes>,
    _pin: Option<Pin>,
}

/// A use of a file's locks that giving them back waits for.
pub(crate) struct Pin {
    client: Client,
    fid: Fid,
}

impl Pin {
    /// To be made under the state's lock, in which `users` was raised.
    pub fn new(client: &Client, fid: Fid) -> Pin {
        Pin {
            client: client.clone(),
            fid,
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut state = self.client.lock();
        if let Some(file) = state.cache.file_known(self.fid)
            && file.locks.end_use()
        {
            file.waiters.wake_all();
        }
    }
}

/// What to do about a read.
enum Plan {
    /// All of it is here.
    Done(Vec<Bytes>),
    /// These bytes are missing; the lock that covers them; when they were missing.
    Fetch {
        under: LockHandle,
        holes: Vec<ByteRange>,
        asked: Generation,
    },
    /// Somebody is fetching some of it already.
    Wait(Oneshot<()>),
    /// No lock: ask for one with the bytes.
    Ask,
}

impl Client {
    /// Up to `len` bytes at `offset`.
    pub async fn read(
        &self,
        handle: HandleId,
        offset: u64,
        len: u64,
        to: ReadTo,
    ) -> Result<ReadData, FsError> {
        bump(&self.0.stats.read);
        let fid = self
            .lock()
            .handles
            .file(handle)
            .ok_or(FsError::BadHandle)?
            .fid();
        let range = ByteRange::at(offset, len).ok_or(FsError::Invalid)?;
        let mut asked_already = false;
        loop {
            let (plan, pin) = self.plan_read(handle, fid, range, to)?;
            match plan {
                Plan::Done(pieces) => {
                    if !asked_already {
                        bump(&self.0.stats.read_hit);
                    }
                    let count = pieces.iter().map(|piece| piece.len() as u64).sum();
                    let counter = &self.0.stats.read_bytes;
                    counter.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
                    return Ok(ReadData { pieces, _pin: pin });
                }
                Plan::Wait(wait) => {
                    wait.await;
                }
                Plan::Fetch {
                    under,
                    holes,
                    asked,
                } => {
                    asked_already = true;
                    match self.fetch(fid, under, holes, asked).await {
                        // What it was asked under is of a boot that is over, or was lost with one.
                        Err(FsError::Stale) if !self.is_read_under(fid, range, under) => {}
                        fetched => fetched?,
                    }
                }
                Plan::Ask => {
                    asked_already = true;
                    self.read_with_lock(fid, range).await?;
                }
            }
        }
    }

    /// A read of the range would be asked for under this lock now.
    fn is_read_under(&self, fid: Fid, range: ByteRange, under: LockHandle) -> bool {
        let mut state = self.lock();
        let mode = read_mode(&mut state, fid);
        let covering = covering(&mut state, fid, range, mode, By::Read);
        matches!(covering, Ok(Covering::Lock(now)) if now == under)
    }

    fn plan_read(
        &self,
        handle: HandleId,
        fid: Fid,
        range: ByteRange,
        to: ReadTo,
    ) -> Result<(Plan, Option<Pin>), FsError> {
        let mut state = self.lock();
        if let Some(wait) = wait_for_kernel(&mut state, fid, range, to) {
            return Ok((Plan::Wait(wait), None));
        }
        let mode = read_mode(&mut state, fid);
        let under = match covering(&mut state, fid, range, mode, By::Read)? {
            Covering::Lock(under) => under,
            Covering::Wait(wait) => return Ok((Plan::Wait(wait), None)),
            Covering::No if range.start == 0 && self.comes_with_others(&mut state, fid) => {
                return Ok((Plan::Wait(state.cache.file(fid).waiters.wait()), None));
            }
            Covering::No => return Ok((Plan::Ask, None)),
        };
        let size = self.size_under(&mut state, fid, under);
        let end = range.end.min(size.unwrap_or(u64::MAX));
        let file = state.cache.file(fid);
        if range.start >= end {
            file.locks.begin_uses(1);
            file.answers_read(range, to);
            return Ok((Plan::Done(Vec::new()), Some(Pin::new(self, fid))));
        }
        let wanted = ByteRange::new(range.start, end);
        let (pieces, holes) = gather(file, wanted);
        if holes.is_empty() {
            file.locks.begin_uses(1);
            file.answers_read(range, to);
            let pin = Pin::new(self, fid);
            self.read_on_with_others(&mut state, fid);
            // In this order: what is handed over is not to be fetched again.
            self.read_ahead(&mut state, handle, fid, wanted, size, under);
            self.hand_over(&mut state, handle, fid, wanted);
            return Ok((Plan::Done(pieces), Some(pin)));
        }
        if holes.iter().any(|hole| file.fetches.overlap(*hole)) {
            return Ok((Plan::Wait(file.waiters.wait()), None));
        }
        file.locks.begin_uses(1);
        file.fetches.begin(&holes);
        let asked = file.pages.generation();
        Ok((
            Plan::Fetch {
                under,
                holes,
                asked,
            },
            Some(Pin::new(self, fid)),
        ))
    }

    /// The kernel gets `range` and keeps it in its page cache, so nothing is kept here. Of a file
    /// open for writing it keeps nothing (docs/adr/0004-writers-bypass-kernel-pages.md).
    fn hand_over(&self, state: &mut State, handle: HandleId, fid: Fid, range: ByteRange) {
        let is_kept = |open: &mut FileHandle| !open.is_writer();
        if state.handles.file(handle).is_some_and(is_kept) {
            state.with_pages(fid, |file| file.pages.let_go(range));
        }
    }

    /// The size, where the lock tells it.
    fn size_under(&self, state: &mut State, fid: Fid, under: LockHandle) -> Option<u64> {
        let knows = under == LockHandle(0) || state.locks.reaches_eof(fid);
        knows.then(|| state.cache.file(fid).object.size())
    }

    /// Brings missing bytes into the cache. What the OST does not have reads as zeros.
    async fn fetch(
        &self,
        fid: Fid,
        under: LockHandle,
        holes: Vec<ByteRange>,
        asked: Generation,
    ) -> Result<(), FsError> {
        let result = self.fetch_holes(fid, under, &holes, asked).await;
        let mut state = self.lock();
        if let Some(file) = state.cache.file_known(fid) {
            file.fetches.end(&holes);
            file.waiters.wake_all();
        }
        result
    }

    async fn fetch_holes(
        &self,
        fid: Fid,
        under: LockHandle,
        holes: &[ByteRange],
        asked: Generation,
    ) -> Result<(), FsError> {
        let target = self.target_of(fid)?;
        for hole in holes {
            let unsent = self.lock().cache.file(fid).object.is_unsent();
            let bytes = match unsent {
                true => Bytes::new(),
                false => self.read_object(fid, target, *hole, under).await?,
            };
            let whole = self.pad(fid, *hole, bytes).await?;
            self.lock()
                .with_pages(fid, |file| file.pages.fill(hole.start, &whole, asked));
        }
        Ok(())
    }

    async fn read_object(
        &self,
        fid: Fid,
        target: TargetIndex,
        range: ByteRange,
        under: LockHandle,
    ) -> Result<Bytes, FsError> {
        let len = range.len() as u32;
        let object = object_of(fid);
        let request = ost::Request::Read {
            object,
            offset: range.start,
            len,
            lock_mode: 0,
            under,
        };
        let answer = self.0.ost(target, request).await?;
        let ost::Reply::Read { bulk, .. } = answer.reply else {
            return Err(unexpected(&answer.reply));
        };
        part(answer.bulk, bulk)
    }

    /// A short answer is a hole up to the end of file: zeros.
    async fn pad(&self, fid: Fid, range: ByteRange, mut bytes: Bytes) -> Result<Bytes, FsError> {
        let wanted = range.len() as usize;
        if bytes.len() >= wanted {
            bytes.truncate(wanted);
            return Ok(bytes);
        }
        let known = {
            let mut state = self.lock();
            let exclusive = state.cache.file(fid).locks.is_exclusive();
            let knows = exclusive || state.locks.reaches_eof(fid);
            knows.then(|| state.cache.file(fid).object.size())
        };
        let size = match known {
            Some(size) => size,
            None => self.glimpse_object(fid, Glimpsing::Alone).await?.size,
        };
        let end = size.clamp(range.start, range.end);
        let mut padded = BytesMut::from(bytes);
        padded.resize(((end - range.start) as usize).max(padded.len()), 0);
        Ok(padded.freeze())
    }

    /// One request for lock and bytes; where the lock is not free, waits for it.
    async fn read_with_lock(&self, fid: Fid, range: ByteRange) -> Result<(), FsError> {
        let target = self.target_of(fid)?;
        let (mode, (asked, asks), small) = {
            let mut state = self.lock();
            let mode = read_mode(&mut state, fid);
            let size = state.cache.attr_of(fid).map_or(0, |attr| attr.size);
            let asks = state.cache.asks_extent(fid);
            (mode, (state.cache.file(fid).pages.generation(), asks), size)
        };
        // A small file is read whole at the first touch.
        let len = match small <= crate::policy::readahead::WHOLE_FILE_BYTES_MAX && range.start == 0
        {
            true => range.len().max(small),
            false => range.len(),
        };
        let request = ost::Request::Read {
            object: object_of(fid),
            offset: range.start,
            len: len as u32,
            lock_mode: mode.index() as u8,
            under: LockHandle(0),
        };
        let answer = self.0.ost(target, request).await?;
        let ost::Reply::Read { bulk, grant, attr } = answer.reply else {
            return Err(unexpected(&answer.reply));
        };
        let Some(grant) = grant else {
            return self.enqueue(fid, mode, By::Read).await;
        };
        let bytes = part(answer.bulk, bulk)?;
        if let Some(mut state) = self.keep_extent(fid, (target, &grant), attr, asks).await {
            state.with_pages(fid, |file| file.pages.fill(range.start, &bytes, asked));
        }
        Ok(())
    }

    /// Starts to fetch what a sequential reader will want next.
    fn read_ahead(
        &self,
        state: &mut State,
        handle: HandleId,
        fid: Fid,
        read: ByteRange,
        size: Option<u64>,
        under: LockHandle,
    ) {
        let Some(size) = size else { return };
        let read = (read.start, read.len());
        let Some(ahead) = state.handles.read_ahead(handle, read, size) else {
            return;
        };
        let ahead = ByteRange::new(ahead.start, ahead.end.min(size).max(ahead.start));
        self.start_fetching(state, fid, ahead, under);
    }

    /// Starts to fetch what of `range` is neither here nor on its way.
    pub(crate) fn start_fetching(
        &self,
        state: &mut State,
        fid: Fid,
        range: ByteRange,
        under: LockHandle,
    ) {
        let file = state.cache.file(fid);
        let holes = file.pages.holes(range).into_iter().flat_map(requests);
        let free = |hole: &ByteRange| !file.fetches.overlap(*hole);
        let free: Vec<ByteRange> = holes.filter(free).collect();
        file.locks.begin_uses(free.len() as u32);
        file.fetches.begin(&free);
        let asked = file.pages.generation();
        for hole in free {
            let (pin, client) = (Pin::new(self, fid), self.clone());
            spawn(async move {
                if let Err(error) = client.fetch(fid, under, vec![hole], asked).await {
                    tracing::debug!("read-ahead of {fid} failed: {error}");
                }
                drop(pin);
            });
        }
    }
}

/// What was just written is seen by a caller when it can be seen in the kernel's pages, too. Of two
/// that look one after the other none sees older bytes than the first.
fn wait_for_kernel(
    state: &mut State,
    fid: Fid,
    range: ByteRange,
    to: ReadTo,
) -> Option<Oneshot<()>> {
    let file = state.cache.file(fid);
    let waits = to == ReadTo::Caller && file.in_kernel.is_older_in(range);
    waits.then(|| file.waiters.wait())
}

/// A range cut into what one request asks for, at borders that are the same for all.
fn requests(range: ByteRange) -> impl Iterator<Item = ByteRange> {
    let first = range.start / REQUEST_BYTES;
    let numbers = first..range.end.div_ceil(REQUEST_BYTES).max(first);
    numbers.filter_map(move |number| {
        let whole = ByteRange::at(number * REQUEST_BYTES, REQUEST_BYTES)?;
        range.intersection(whole)
    })
}

/// The cached bytes of `wanted`, and what is missing.
fn gather(file: &mut FileState, wanted: ByteRange) -> (Vec<Bytes>, Vec<ByteRange>) {
    let (mut hits, mut holes) = (Vec::new(), Vec::new());
    for piece in file.pages.read(wanted) {
        match piece {
            Piece::Hit { bytes, .. } => hits.push(bytes),
            Piece::Hole(range) => holes.push(range),
        }
    }
    (hits, holes)
}

/// The part of a bulk region that an answer names.
pub(crate) fn part(bulk: Bytes, (start, len): (u32, u32)) -> Result<Bytes, FsError> {
    let start = start as usize;
    let end = start.checked_add(len as usize);
    match end.filter(|end| *end <= bulk.len()) {
        Some(end) => Ok(bulk.slice(start..end)),
        None => Err(FsError::Io),
    }
}
