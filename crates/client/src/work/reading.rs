//! Small files' bytes: asked for ahead of their readers, and put into the cache.

use std::sync::atomic::Ordering;

use base::{ByteRange, Fid, LockHandle, TargetIndex};
use bytes::Bytes;
use dlm::Mode;
use rpc::Urgency;
use wire::frame::Bulk;
use wire::{FileKind, SizeState, ost};

use crate::cache::ahead::{Ahead, StreamId};
use crate::cache::inode::Inode;
use crate::cache::pages::Generation;
use crate::cache::stamps::AskedExtent;
use crate::calls::read::{Pin, part};
use crate::executor::{join_all, spawn};
use crate::policy::statahead::files::{Room, Spot};
use crate::policy::statahead::order::{Cursor, Gaps, Order, SORT_MAX};
use crate::session::client::Client;
use crate::session::cluster::{decode_ost, object_of};
use crate::session::state::State;
use crate::session::stats::bump;
use crate::work::walking::{is_listed, place};

/// Files up to this size are fetched whole.
pub const FETCHED_BYTES_MAX: u64 = 16 << 20;
/// Bytes and files of one request.
const BATCH_BYTES_MAX: u64 = 1 << 20;
const BATCH_FILES_MAX: usize = 256;
/// Entries after the file read last among which the next one is looked for first.
const NEAR: usize = 16;
/// Entries of a list that is looked through for a file and for the order it is in. Up to
/// [`SORT_MAX`], as long as files are in one.
const SEARCH_MAX: u64 = 4096;
/// Entries looked at in one go for files to ask for.
const LOOK_MAX: usize = 4096;

/// A request to one OST for many files.
pub(crate) type Wished = (TargetIndex, Vec<Wanted>);

/// A file that is asked for.
pub(crate) struct Wanted {
    pub fid: Fid,
    size: u64,
    asked: Generation,
    /// The lock that comes with them.
    asks: AskedExtent,
    _pin: Pin,
}

impl Client {
    /// The bytes of `fid` are read from their start, and nothing covers them. True: they are on
    /// their way, with those of the files after it.
    pub(crate) fn comes_with_others(&self, state: &mut State, fid: Fid) -> bool {
        match state.cache.file(fid).fetches.ahead() {
            Ahead::Coming => return true,
            Ahead::Refused => return false,
            Ahead::No | Ahead::Came(_) => {}
        }
        let ahead_max = self.bytes_ahead_max();
        let Some(size) = small_size(state, fid).filter(|_| ahead_max > 0) else {
            return false;
        };
        let Some(path) = spot_of(state, fid).and_then(|spot| path_to(state, spot)) else {
            return false;
        };
        if state.cache.file(fid).opens.is_written() {
            return false;
        }
        let comes = |state: &mut State, stream: Option<StreamId>| {
            let Some(stream) = stream else {
                return false;
            };
            self.ask_ahead(state, stream, Some((fid, size)));
            state.cache.file(fid).fetches.ahead() == Ahead::Coming
        };
        let waiting = state.policies.files.waits_within(&path);
        comes(state, waiting) || {
            let stream = turn(state, &path);
            comes(state, stream)
        }
    }

    /// The bytes of `fid` are read, and are at hand.
    pub(crate) fn read_on_with_others(&self, state: &mut State, fid: Fid) {
        let file = state.cache.file(fid);
        let Ahead::Came(stream) = file.fetches.ahead() else {
            return;
        };
        file.fetches.set_ahead(Ahead::No);
        let size = file.object.size();
        bump(&self.0.stats.statahead_files_hit);
        let now = state.locks.now();
        state.policies.files.read(stream, size, now);
        self.ask_ahead(state, stream, None);
    }

    fn bytes_ahead_max(&self) -> u64 {
        match self.0.params.statahead_max() {
            0 => 0,
            _ => self.0.params.statahead_bytes_max(),
        }
    }

    /// Asks for what there is room for, with what is `needed`, where there is any.
    fn ask_ahead(&self, state: &mut State, stream: StreamId, needed: Option<(Fid, u64)>) {
        let Some(room) = state.policies.files.room(stream, self.bytes_ahead_max()) else {
            return;
        };
        let Room {
            bytes,
            mut at,
            order,
        } = room;
        let mut files: Vec<(Fid, u64)> = needed.into_iter().collect();
        files.extend(next_files(state, &mut at, order, bytes));
        let bytes = files.iter().map(|(_, size)| size).sum();
        state
            .policies
            .files
            .asked(stream, files.len() as u32, bytes, at);
        let counter = &self.0.stats.statahead_files_total;
        counter.fetch_add(files.len() as u64, Ordering::Relaxed);
        for (target, batch) in self.batches(state, files) {
            let client = self.clone();
            spawn(async move {
                client.fetch_files(Some(stream), target, batch).await;
            });
        }
    }

    /// Fetches the bytes of those of the files that are not too large and not cached. How many came.
    pub async fn prefetch_files(&self, fids: &[Fid]) -> u64 {
        let batches = {
            let mut state = self.lock();
            let untouched = |state: &State, fid: Fid| {
                let file = state.cache.file_of(fid);
                file.is_none_or(|file| !file.opens.is_written() && file.pages.cached_bytes() == 0)
            };
            let wanted = fids.iter().filter(|fid| untouched(&state, **fid));
            let files = wanted.filter_map(|fid| Some((*fid, small_size(&state, *fid)?)));
            let files = files.collect();
            self.batches(&mut state, files)
        };
        let fetch = |(target, batch)| self.fetch_files(None, target, batch);
        let came = join_all(batches.into_iter().map(fetch).collect()).await;
        came.into_iter().sum()
    }

    /// Locks on whole files to try for, and with them their sizes.
    pub(crate) fn wish_for_sizes(&self, state: &mut State, fids: &[Fid]) -> Vec<Wished> {
        self.batches(state, fids.iter().map(|fid| (*fid, 0)).collect())
    }

    /// Tries for them.
    pub(crate) async fn learn_sizes(&self, (target, files): Wished) {
        self.fetch_files(None, target, files).await;
    }

    /// Files to ask for, in requests of a bounded size.
    fn batches(&self, state: &mut State, files: Vec<(Fid, u64)>) -> Vec<Wished> {
        let mut batches: Vec<Wished> = Vec::new();
        for (fid, size) in files {
            let Some(target) = state.cache.known(fid).and_then(Inode::ost) else {
                continue;
            };
            let asks = state.cache.asks_extent(fid);
            let file = state.cache.file(fid);
            file.locks.begin_uses(1);
            file.fetches.set_ahead(Ahead::Coming);
            let wanted = Wanted {
                fid,
                size,
                asked: file.pages.generation(),
                asks,
                _pin: Pin::new(self, fid),
            };
            let fits = |(other, batch): &&mut Wished| {
                let bytes: u64 = batch.iter().map(|wanted| wanted.size).sum();
                let small = bytes + size <= BATCH_BYTES_MAX && batch.len() < BATCH_FILES_MAX;
                *other == target && small
            };
            match batches.iter_mut().rev().find(fits) {
                Some((_, batch)) => batch.push(wanted),
                None => batches.push((target, vec![wanted])),
            }
        }
        batches
    }

    /// How many came.
    async fn fetch_files(
        &self,
        stream: Option<StreamId>,
        target: TargetIndex,
        files: Vec<Wanted>,
    ) -> u64 {
        let read = |wanted: &Wanted| ost::Request::Read {
            object: object_of(wanted.fid),
            offset: 0,
            len: wanted.size.min(BATCH_BYTES_MAX) as u32,
            // Tried for only: where a writer has it, the answer comes without lock and bytes.
            lock_mode: Mode::PR.index() as u8,
            under: LockHandle(0),
        };
        let requests: Vec<ost::Request> = files.iter().map(read).collect();
        let shared = &self.0;
        let (bulk, urgency) = (Bulk::default(), Urgency::Ordinary);
        let asked = shared
            .cluster
            .ost_batch(&shared.stats, target, &requests, bulk, urgency);
        let answer = asked.await.ok();
        let bytes = answer.as_ref().map(|answer| answer.bulk.joined());
        let mut count = 0;
        for (index, wanted) in files.iter().enumerate() {
            let reply = answer.as_ref().map(|answer| decode_ost(answer, index));
            let read = match (reply, &bytes) {
                (Some(Ok(ost::Reply::Read { bulk, grant, attr })), Some(bytes)) => {
                    let bytes = part(bytes.clone(), bulk).ok();
                    grant.zip(bytes).map(|(grant, bytes)| (grant, attr, bytes))
                }
                _ => None,
            };
            let came = read.is_some();
            if let Some((grant, attr, bytes)) = read {
                let lock = (target, &grant);
                let kept = self.keep_extent(wanted.fid, lock, attr, wanted.asks);
                if let Some(mut state) = kept.await {
                    self.fill_from(&mut state, wanted, &bytes, grant.handle);
                }
            }
            let mut state = self.lock();
            count += u64::from(came);
            let ahead = match (came, stream) {
                (true, Some(stream)) => Ahead::Came(stream),
                (true, None) => Ahead::No,
                (false, Some(stream)) => {
                    state.policies.files.refused(stream, wanted.size);
                    Ahead::Refused
                }
                (false, None) => Ahead::Refused,
            };
            let file = state.cache.file(wanted.fid);
            file.fetches.set_ahead(ahead);
            file.waiters.wake_all();
        }
        count
    }

    /// Keeps the bytes that a file begins with, and starts to fetch the others.
    fn fill_from(&self, state: &mut State, wanted: &Wanted, bytes: &Bytes, under: LockHandle) {
        state.with_pages(wanted.fid, |file| {
            file.pages.fill(0, bytes, wanted.asked);
        });
        let came = bytes.len() as u64;
        let rest = ByteRange::new(came, wanted.size.max(came));
        self.start_fetching(state, wanted.fid, rest, under);
    }
}

/// The size of a file that is read whole, where it is known for certain.
fn small_size(state: &State, fid: Fid) -> Option<u64> {
    let attr = state.attr(fid)?;
    let small = attr.kind == FileKind::Regular
        && attr.size_state == SizeState::Strict
        && (1..=FETCHED_BYTES_MAX).contains(&attr.size)
        && !attr.layout.stripes.is_empty();
    small.then_some(attr.size)
}

/// Where a file is in its directory's list.
fn spot_of(state: &State, fid: Fid) -> Option<Spot> {
    let dir = state.cache.known(fid)?.dir();
    if !is_listed(state, dir) {
        return None;
    }
    let directory = state.cache.directory_of(dir)?;
    let find = |after: u64, count: usize| {
        let mut entries = directory.after(after).0.take(count);
        let (cookie, _) = entries.find(|(_, entry)| entry.fid == fid)?;
        Some(Spot { dir, cookie })
    };
    let recent = state.policies.files.recent(dir);
    let near = recent.and_then(|recent| find(recent.cookie, NEAR));
    let throughout = || {
        is_looked_through(state, dir)
            .then(|| find(0, usize::MAX))
            .flatten()
    };
    near.or_else(throughout)
}

/// The directory is looked through for a file, and for the order it is in.
fn is_looked_through(state: &State, dir: Fid) -> bool {
    let known = state.cache.directory_of(dir);
    let entries = known.map_or(u64::MAX, |directory| directory.listed());
    entries <= SEARCH_MAX || (entries <= SORT_MAX && state.policies.files.may_be_in_order(dir))
}

/// The file at `path` is read, and was not at hand: the stream that begins there, if it is in order.
fn turn(state: &mut State, path: &[Spot]) -> Option<StreamId> {
    let here = *path.last()?;
    let gaps = match state.policies.files.recent(here.dir) {
        Some(recent) => gaps_after(state, recent, here)?,
        None => Gaps::default(),
    };
    let in_order = gaps != Gaps::default();
    state.policies.files.note(here, in_order);
    let now = state.locks.now();
    in_order.then(|| state.policies.files.turn(path, &gaps, now))?
}

fn gaps_after(state: &State, recent: Spot, here: Spot) -> Option<Gaps> {
    let directory = state.cache.directory_of(here.dir)?;
    let thoroughly = is_looked_through(state, here.dir);
    let between = (recent.cookie, here.cookie);
    let gaps = Gaps::between(directory, between, thoroughly, |fid| {
        is_untouched(state, fid)
    });
    Some(gaps)
}

/// Nobody has opened or fetched it.
fn is_untouched(state: &State, fid: Fid) -> bool {
    let inode = state.cache.known(fid);
    inode.is_some_and(|inode| inode.as_file().is_none())
}

/// The same with the directories above, outermost first.
fn path_to(state: &State, at: Spot) -> Option<Vec<Spot>> {
    let levels = place(state, at.dir, at.cookie)?.levels;
    let spot = |level: wire::mdt::WalkLevel| Spot {
        dir: level.dir,
        cookie: level.cookie,
    };
    Some(levels.into_iter().map(spot).collect())
}

/// Files after `at`, as a depth-first reader comes to them in that order, of `room` bytes; `at`
/// moves on. Stops at a directory whose list is not known yet.
fn next_files(state: &State, at: &mut Vec<Cursor>, order: Order, room: u64) -> Vec<(Fid, u64)> {
    let (mut files, mut bytes) = (Vec::new(), 0);
    for _ in 0..LOOK_MAX {
        let Some(cursor) = at.last_mut().filter(|_| bytes < room) else {
            break;
        };
        let known = state.cache.directory_of(cursor.dir);
        let Some(directory) = known.filter(|_| is_listed(state, cursor.dir)) else {
            break;
        };
        let next = cursor.next(directory, order);
        let Some((fid, kind)) = next.map(|entry| (entry.fid, entry.kind)) else {
            at.pop();
            continue;
        };
        if kind == FileKind::Directory {
            at.push(Cursor::new(fid, 0));
            continue;
        }
        if let Some(size) = small_size(state, fid).filter(|_| is_untouched(state, fid)) {
            files.push((fid, size));
            bytes += size;
        }
    }
    files
}
