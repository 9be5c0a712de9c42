//! Writing: into the cache, under a lock; sent later. SEMANTICS: op.write, op.append

use base::limits::FILE_BYTES_MAX;
use base::{ByteRange, Fid, FsError};
use dlm::Mode;

use crate::cache::file::FileState;
use crate::cache::handle::HandleId;
use crate::cache::kernel_pages::Moment;
use crate::calls::read::Pin;
use crate::coherence::cover::{By, Covering, covering};
use crate::executor::Oneshot;
use crate::session::client::Client;
use crate::session::kernel::Forget;
use crate::session::state::State;
use crate::session::stats::bump;

/// How bytes are to be written.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteWish {
    /// At the end of file, wherever that is by then.
    pub append: bool,
    /// More of the same append comes with the next request. Nothing of another mount comes in between.
    pub goes_on: bool,
    /// Pages the kernel writes back from a mapping: no caller, and its pages are locked.
    pub write_back: bool,
    /// Durable when it returns, as after `fsync`: `O_DSYNC`, `O_SYNC`, or `RWF_DSYNC` of this one call.
    pub durable: bool,
}

/// How often a write lets the kernel forget what it holds before it is made. A page that is read again
/// and again meanwhile is forgotten after.
const FORGET_TRIES: u32 = 64;

/// What came of trying to write.
enum Attempt {
    /// The bytes are in the cache.
    Put(Put),
    /// The kernel holds pages of this, which must go first. None that has yet to forget what was
    /// there before is beside a size that counts the new bytes.
    Held(ByteRange),
    /// A lock is being given back.
    Wait(Oneshot<()>),
    /// No lock allows it.
    Uncovered,
    /// Whether the OST can have bytes there is not known.
    Unbounded,
}

/// Where bytes went, and what is left to do before that is answered.
struct Put {
    at: u64,
    /// The next process would know of them.
    remembered: bool,
    outdated: Option<Outdated>,
    /// The end of a file that became longer, where others may watch that.
    grown: Option<u64>,
}

/// Bytes that are to be written.
#[derive(Clone, Copy)]
struct Given<'a> {
    fid: Fid,
    /// By this open file.
    handle: Option<HandleId>,
    /// The kernel writes pages back from a mapping.
    is_write_back: bool,
    /// They go to the end of file, wherever that is by then, and else to `offset`.
    is_append: bool,
    /// More of the append follows.
    goes_on: bool,
    offset: u64,
    data: &'a [u8],
}

/// What is to become of pages that the kernel holds where bytes are to be written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HeldPages {
    /// They go before the write.
    GoFirst,
    /// They may stay until after it.
    MayStay,
}

impl Put {
    /// Of bytes that are put nowhere.
    fn gone(at: u64) -> Put {
        Put {
            at,
            remembered: true,
            outdated: None,
            grown: None,
        }
    }
}

/// What of the kernel a write has made old.
struct Outdated {
    fid: Fid,
    range: ByteRange,
    /// It holds pages of the range.
    pages: bool,
    /// It takes another place for the end of file.
    end: bool,
    pin: Pin,
}

impl Client {
    /// Writes `data`; returns where it went. Durable after fsync.
    pub async fn write(
        &self,
        fid: Fid,
        handle: Option<HandleId>,
        offset: u64,
        data: &[u8],
        wish: WriteWish,
    ) -> Result<u64, FsError> {
        bump(&self.0.stats.write);
        let append = wish.append
            || handle.is_some_and(|id| {
                self.lock()
                    .handles
                    .file(id)
                    .is_some_and(|open| open.wish().append)
            });
        let given = Given {
            fid,
            handle,
            is_write_back: wish.write_back,
            is_append: append,
            goes_on: append && wish.goes_on,
            offset,
            data,
        };
        // Pages are written back for nobody, and again is right for those.
        let is_done = !wish.write_back && self.lock().journal.was_written();
        let (at, range) = match is_done {
            // Where an append went the process before knew.
            true => {
                self.announce_written(fid).await?;
                (offset, ByteRange::ALL)
            }
            false => {
                let put = self.put_somewhere(given).await;
                if append && (put.is_err() || !wish.goes_on) {
                    self.lock().end_append(fid);
                }
                let at = put?;
                (at, ByteRange::new(at, at.saturating_add(data.len() as u64)))
            }
        };
        if let (true, Some(handle)) = (wish.durable, handle) {
            self.fsync_range(handle, range).await?;
        }
        Ok(at)
    }

    /// The same of as much of `data` as a file can have there, if that is anything; returns how many bytes.
    pub async fn write_what_fits(
        &self,
        fid: Fid,
        handle: Option<HandleId>,
        offset: u64,
        data: &[u8],
        wish: WriteWish,
    ) -> Result<usize, FsError> {
        let too_big = match self.write(fid, handle, offset, data, wish).await {
            Err(FsError::FileTooBig) => FsError::FileTooBig,
            written => return written.map(|_| data.len()),
        };
        let limit = self.lock().size_limit(fid).unwrap_or(FILE_BYTES_MAX);
        let fits = limit.saturating_sub(offset) as usize;
        let data = data.get(..fits).filter(|data| !data.is_empty());
        let data = data.ok_or(too_big)?;
        let written = self.write(fid, handle, offset, data, wish).await;
        written.map(|_| data.len())
    }

    /// Puts `data` where it belongs, which is what it returns. The kernel has forgotten what that makes old,
    /// and the next process knows of it.
    async fn put_somewhere(&self, given: Given<'_>) -> Result<u64, FsError> {
        let (fid, data) = (given.fid, given.data);
        self.wait_for_room(given.is_write_back).await;
        // Pages of a mapping are written by nobody who could be told.
        let through = match given.is_write_back {
            true => None,
            false => self.through(fid, data.len()).await,
        };
        let by = written_by(given.is_write_back);
        let mut forgotten = 0;
        let put = loop {
            let held = match forgotten < FORGET_TRIES {
                true => HeldPages::GoFirst,
                false => HeldPages::MayStay,
            };
            match self.put_covered(given, held)? {
                Attempt::Put(put) => break put,
                Attempt::Held(range) => {
                    forgotten += 1;
                    self.forget_range(fid, range).await;
                }
                Attempt::Wait(wait) => drop(wait.await),
                Attempt::Uncovered => self.enqueue(fid, Mode::PW, by).await?,
                Attempt::Unbounded => self.ask_size_limit(fid).await?,
            }
        };
        if let Some(outdated) = put.outdated {
            self.update_kernel(outdated).await;
        }
        if let Some(through) = through {
            self.write_through(through).await?;
        }
        if let Some(end) = put.grown {
            self.announce(fid, end).await?;
        }
        if !put.remembered {
            bump(&self.0.stats.unremembered);
            self.write_out_durably(fid, ByteRange::ALL, |_| true)
                .await?;
            if !given.is_write_back {
                self.lock().journal.note_written();
            }
        }
        let counter = &self.0.stats.write_bytes;
        counter.fetch_add(data.len() as u64, std::sync::atomic::Ordering::Relaxed);
        Ok(put.at)
    }

    /// Writes under a lock, if there is one.
    fn put_covered(&self, given: Given<'_>, held_pages: HeldPages) -> Result<Attempt, FsError> {
        let Given {
            fid, offset, data, ..
        } = given;
        let write_back = given.is_write_back;
        let mut state = self.lock();
        if write_back && state.cache.file(fid).kernel.is_lapsing() {
            // A failure would be told to the next call on the file, be it a read.
            state.with_pages(fid, FileState::lose_store);
            return Ok(Attempt::Put(Put::gone(offset)));
        }
        let file = state.cache.file(fid);
        if !write_back && file.resizes.is_cut() {
            return Ok(Attempt::Wait(file.waiters.wait()));
        }
        let Some((at, range)) = place(&mut state, fid, offset, data.len(), given.is_append)? else {
            return Ok(Attempt::Unbounded);
        };
        // Stored under locks of the process before, which stay until this is written, too.
        let is_inherited = write_back && !state.locks.is_settled();
        // From the first piece of an append to the last the lock is in use, and others wait for it.
        let goes_on = given.is_append && state.long_appends.is_under_way(fid);
        if !is_inherited {
            match covering(
                &mut state,
                fid,
                range,
                Mode::PW,
                written_by(write_back || goes_on),
            )? {
                Covering::Lock(_) => {}
                Covering::Wait(wait) => return Ok(Attempt::Wait(wait)),
                Covering::No => return Ok(Attempt::Uncovered),
            }
        }
        let handle = given.handle;
        if handle.is_some_and(|handle| !write_back && leaves_hole(&mut state, fid, handle, at)) {
            return Err(FsError::NoSpace);
        }
        if write_back {
            let remembered = self.put_back(&mut state, fid, at, data);
            return Ok(Attempt::Put(Put {
                at,
                remembered,
                outdated: None,
                grown: None,
            }));
        }
        let held = written_at(at, data);
        if let Some(range) = held.filter(|held| state.cache.file(fid).in_kernel.holds(*held))
            && held_pages == HeldPages::GoFirst
        {
            return Ok(Attempt::Held(range));
        }
        let end = at + data.len() as u64;
        let is_announced = end > state.cache.file(fid).object.size() && !state.grows_alone(fid);
        let remembered = self.put(&mut state, fid, at, data);
        if remembered {
            state.journal.note_written();
        }
        if given.goes_on {
            state.begin_append(fid, self.0.clock.tick());
        }
        Ok(Attempt::Put(Put {
            at,
            remembered,
            outdated: self.outdates(&mut state, fid, (offset, at), data),
            grown: is_announced.then_some(end),
        }))
    }

    /// What the kernel must forget or learn before this write is answered.
    fn outdates(
        &self,
        state: &mut State,
        fid: Fid,
        (asked, at): (u64, u64),
        data: &[u8],
    ) -> Option<Outdated> {
        let range = written_at(at, data)?;
        let file = state.cache.file(fid);
        let pages = file.in_kernel.changed(range);
        let end = asked != at;
        if !(pages || end) {
            return None;
        }
        // What the kernel holds is true as long as the lock stays.
        file.locks.begin_uses(1);
        Some(Outdated {
            range,
            pages,
            end,
            pin: Pin::new(self, fid),
            fid,
        })
    }

    async fn update_kernel(&self, outdated: Outdated) {
        let Outdated { fid, range, .. } = outdated;
        if outdated.pages {
            self.forget_range(fid, range).await;
        }
        if outdated.end {
            self.raise(fid, range.end).await;
        }
        drop(outdated.pin);
    }

    /// The kernel forgets the pages of `range`.
    pub(crate) async fn forget_range(&self, fid: Fid, range: ByteRange) {
        let since = match self.lock().cache.file_known(fid) {
            Some(file) => file.in_kernel.begin_forgetting(),
            None => Moment::default(),
        };
        self.0.forget(Forget::Pages { fid, range }).await;
        let mut state = self.lock();
        if let Some(file) = state.cache.file_known(fid) {
            file.in_kernel.forgotten(range, since);
            file.waiters.wake_all();
        }
    }

    /// Puts pages that the kernel writes back: what it stored into them. They may be older than what
    /// was written past the kernel since it read them, and reach beyond the end of file.
    fn put_back(&self, state: &mut State, fid: Fid, at: u64, data: &[u8]) -> bool {
        let knows_end = state.cache.file(fid).locks.is_exclusive() || state.locks.reaches_eof(fid);
        let file = state.cache.file(fid);
        let end = if knows_end {
            file.object.size()
        } else {
            u64::MAX
        };
        let pages =
            written_at(at, data).and_then(|pages| pages.intersection(ByteRange::new(0, end)));
        let Some(pages) = pages else {
            return true;
        };
        let mut remembered = true;
        for part in file.in_kernel.written_back(pages) {
            let (from, to) = ((part.start - at) as usize, (part.end - at) as usize);
            remembered &= self.put(state, fid, part.start, &data[from..to]);
        }
        remembered
    }

    /// False: these bytes are not remembered for the next process.
    fn put(&self, state: &mut State, fid: Fid, at: u64, data: &[u8]) -> bool {
        let tick = self.0.clock.tick();
        let now = state.cache.content_time(fid, self.0.clock.now());
        let told_time = state.with_pages(fid, |file| {
            file.pages.write(at, data, tick);
            let told_time = file.change.attrs().mtime.is_some();
            file.wrote(ByteRange::new(at, at + data.len() as u64), now);
            told_time
        });
        if told_time {
            state.journal_change(fid, tick);
        }
        state.journal_bytes(fid, now, at, data)
    }
}

/// A write behind the end of a file would make a hole of what had no space before. It is refused until its
/// open file was told.
fn leaves_hole(state: &mut State, fid: Fid, handle: HandleId, at: u64) -> bool {
    let Some(reported) = state.handles.file(handle).map(|open| open.reported()) else {
        return false;
    };
    let knows_end = state.cache.file(fid).locks.is_exclusive() || state.locks.reaches_eof(fid);
    let file = state.cache.file(fid);
    knows_end && at > file.object.size() && file.errors.lacks_space(reported)
}

/// Who wants the lock.
fn written_by(write_back: bool) -> By {
    match write_back {
        true => By::WriteBack,
        false => By::Call,
    }
}

/// The bytes that `data` takes up.
fn written_at(at: u64, data: &[u8]) -> Option<ByteRange> {
    ByteRange::at(at, data.len() as u64)
}

/// Any local file system has room in a file for as many bytes.
const ANY_OST_BYTES: u64 = (2 << 30) - 1;

/// Where `len` bytes go, and what must be locked for them. None: the OST has to be asked first whether it
/// can have them there.
fn place(
    state: &mut State,
    fid: Fid,
    offset: u64,
    len: usize,
    append: bool,
) -> Result<Option<(u64, ByteRange)>, FsError> {
    let at = match append {
        true => state.cache.file(fid).object.size(),
        false => offset,
    };
    let range = ByteRange::at(at, len as u64).ok_or(FsError::FileTooBig)?;
    if range.end > state.size_limit(fid).unwrap_or(FILE_BYTES_MAX) {
        return Err(FsError::FileTooBig);
    }
    if range.end > ANY_OST_BYTES && state.size_limit(fid).is_none() {
        return Ok(None);
    }
    // An append needs to know where the file ends: the lock reaches to there and beyond.
    let range = if append { ByteRange::ALL } else { range };
    Ok(Some((at, range)))
}
