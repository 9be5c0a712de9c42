//! A file or directory that is open here, or a file that has data here.

use base::{ByteRange, Fid, FsError, LockHandle, Timestamp, Transno};
use handover::{Record, Records};
use wire::mdt::{Access, OpenHandle, SetAttr, WriteTicket};
use wire::ost::ObjectAttr;

use crate::cache::ahead::Ahead;
use crate::cache::ahead::Sized;
use crate::cache::asking::Asking;
use crate::cache::holder::Holder;
use crate::cache::kernel_pages::KernelPages;
use crate::cache::kernel_pages::ReadTo;
use crate::cache::pages::PageCache;
use crate::cache::resizes::Resizes;
use crate::executor::{Oneshot, WaitList};
use crate::journal::bytes::RememberedBytes;
use crate::journal::errors::{RememberedFailures, remember as remember_failures};
use crate::journal::failures::Failures;

/// The one write-open of this client at the MDT, shared by all local handles.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteOpen {
    pub handle: OpenHandle,
    pub ticket: WriteTicket,
}

/// Where the giving back of a lock stands (hazard 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Revoking {
    /// Nothing is being given back.
    #[default]
    No,
    /// The kernel is forgetting pages. Reads and write-backs are still served under the old lock,
    /// for their pages are locked in the kernel and the forgetting waits for them.
    Forgetting,
    /// The kernel holds nothing: calls wait for a new lock.
    WritingOut,
}

/// Whether the MDT has the file that is open here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Standing {
    /// It has.
    #[default]
    Known,
    /// It gave this client up, and is being told: it may have lost the file, and then an OST has no
    /// bytes of it.
    InDoubt,
    /// It has lost it: the caller that has it open is told so.
    Gone,
}

/// Whether others tell this client how a file grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Watch {
    /// They do not.
    #[default]
    No,
    /// That is being asked for.
    Asked,
    /// They do, as long as this lock is used.
    Held(Holder, LockHandle),
}

/// Open counts, locks and bytes of one file.
#[derive(Default)]
pub(crate) struct FileState {
    /// Local handles open for reading only; of a directory, all.
    pub readers: u32,
    /// Local handles open for writing.
    pub writers: u32,
    /// Those of either by which it can be read: what the kernel takes for its size counts.
    pub lookers: u32,
    /// Whether this client is told that it grows.
    pub watch: Watch,
    /// The size that the kernel was told by a notice.
    pub raised: u64,
    /// Calls that must find it, no matter which client removes its name.
    pub pins: u32,
    /// The MDT's handle for this client's writers.
    pub write_open: Option<WriteOpen>,
    /// The MDT's handles of readers that had to be told to it (before an unlink, or after a
    /// restart), and of those that execute the file.
    pub read_opens: Vec<OpenHandle>,
    /// Whether the MDT has it, as far as that was told.
    pub standing: Standing,
    /// It is not its maker's alone, nor will it be again: that was seen to for who has it open here.
    pub shared: bool,
    /// The MDT's EX lock on the inode: attributes and data are this client's alone.
    pub exclusive: Option<LockHandle>,
    /// Attributes changed under the EX lock and not yet told.
    pub changed: SetAttr,
    /// The bytes.
    pub pages: PageCache,
    /// Size and last write as the bytes here make them, and the blocks that the OST has. Valid
    /// under EX, or under an extent lock to the end of file.
    pub known: ObjectAttr,
    /// The file was made here, is still this client's alone, and nothing of it was sent: there is no
    /// object to ask for.
    pub unsent: bool,
    /// The lock that goes when what is being written out is written: the kernel holds nothing that
    /// was read under it any more.
    pub leaving: Option<LockHandle>,
    /// The OST's transno of the last write sent.
    pub written: Transno,
    /// How often its OST restarted, which makes dirty again what was not durable.
    pub restarts: u32,
    /// The OST has all of it durably.
    pub committed: bool,
    /// Up to where the OST's transnos were durable when that was last looked at for this file.
    pub settled: Transno,
    /// The OST has no change of it, not durable yet, with a smaller number.
    pub first_unsettled: Transno,
    /// What was changed of its size and space, which the OST may lose.
    pub resizes: Resizes,
    /// The kernel may hold pages of it.
    pub kernel_pages: bool,
    /// Which it may, as long as there are writers.
    pub in_kernel: KernelPages,
    /// How often the kernel is forgetting pages whose lock an eviction has taken. What it writes
    /// back meanwhile was stored under that lock, and goes with it.
    pub lapsing: u32,
    /// Where the giving back of a lock stands.
    pub revoking: Revoking,
    /// Reads answered since the forgetting began: it must be repeated.
    pub refilled: bool,
    /// Ranges being fetched.
    pub fetching: Vec<ByteRange>,
    /// Extent locks asked for.
    pub asking: Asking,
    /// Calls and write-outs that use a lock this moment.
    pub users: u32,
    /// Frames with its data are on their way.
    pub writing: u32,
    /// Its Close is on the way.
    pub closing: Option<OpenHandle>,
    /// How often what was changed of it is being told.
    pub pending_updates: u32,
    /// A lock under which the Close can tell the size was tried for.
    pub size_asked: bool,
    /// It was emptied here, of bytes that it had, and not closed since.
    pub emptied: bool,
    /// What could not be written.
    pub failures: Failures,
    /// The same for the next process.
    pub remembered_failures: Option<RememberedFailures>,
    /// What was fetched of it ahead of its reader.
    pub ahead: Ahead,
    /// Whether its size was asked for ahead of who wants it: then the kernel may have been told it
    /// under an extent lock.
    pub sized: Sized,
    /// What of the bytes is remembered for the next process.
    pub remembered: RememberedBytes,
    /// The same of what was changed under the EX lock.
    pub remembered_change: Option<Record>,
    /// Who waits for any of the above to change.
    pub waiters: WaitList,
}

impl std::fmt::Debug for FileState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileState")
            .field("readers", &self.readers)
            .field("writers", &self.writers)
            .field("exclusive", &self.exclusive)
            .finish_non_exhaustive()
    }
}

impl FileState {
    /// Nothing local needs it any more, locks aside.
    pub fn is_idle(&self) -> bool {
        self.readers == 0
            && self.writers == 0
            && self.pins == 0
            && self.write_open.is_none()
            && self.read_opens.is_empty()
            && self.exclusive.is_none()
            && self.pages.dirty_bytes() == 0
            && self.resizes.is_empty()
            && self.writing == 0
            && self.closing.is_none()
            && self.pending_updates == 0
            && self.lapsing == 0
            && self.users == 0
            && self.asking.is_idle()
            && self.watch == Watch::No
            && self.revoking == Revoking::No
    }

    /// The kernel may hold bytes of it, or has been told its size.
    pub fn is_known_to_kernel(&self) -> bool {
        let told = self.kernel_pages || self.sized != Sized::No;
        told || self.writers > 0 || self.readers > 0
    }

    /// Bytes that the OST has durably, or that nobody wants any more, need not be remembered, once it
    /// is that some of them could not be written.
    pub fn forget_settled(&mut self, fid: Fid, records: Option<&Records>) {
        let settled = self.pages.take_settled();
        let Some(records) = records else {
            return;
        };
        remember_failures(&mut self.remembered_failures, records, fid, &self.failures);
        if self.remembered.is_empty() {
            return;
        }
        for range in settled {
            for durable in self.pages.durable_within(range) {
                self.remembered.settled(records, durable);
            }
        }
        if self.pages.is_flushed(ByteRange::ALL) && self.pages.undurable_bytes() == 0 {
            self.remembered.all_settled();
        }
    }

    /// A handle open for reading is gone; what of the MDT's handles nobody needs now.
    pub fn reader_gone(&mut self) -> Vec<OpenHandle> {
        self.readers -= 1;
        self.uses_over()
    }

    /// The EX lock under which attributes were changed here that the MDT has yet to hear of, but for what
    /// a Close on its way tells.
    pub fn has_changes_to_report(&self) -> Option<LockHandle> {
        let is_changed = self.changed != SetAttr::default() && !self.is_closing();
        self.exclusive.filter(|_| is_changed)
    }

    /// The same of a call that needed it.
    pub fn unpin(&mut self) -> Vec<OpenHandle> {
        self.pins -= 1;
        self.uses_over()
    }

    fn uses_over(&mut self) -> Vec<OpenHandle> {
        match self.is_kept() {
            true => Vec::new(),
            false => std::mem::take(&mut self.read_opens),
        }
    }

    /// Somebody reads it here, or must find it: it stays when its last name goes.
    pub fn is_kept(&self) -> bool {
        self.readers + self.pins > 0
    }

    /// The EX lock is gone: others may make the object and write to it.
    pub fn lose_exclusive(&mut self) -> Option<LockHandle> {
        self.unsent = false;
        self.exclusive.take()
    }

    /// The right to write it went with an eviction. Returns whether anything was lost, which is told.
    pub fn lose_unwritten(&mut self) -> bool {
        let lost = self.resizes.give_up(FsError::Io) || self.pages.may_be_lost();
        if lost {
            self.failures.add(FsError::Io);
        }
        self.pages.discard(ByteRange::ALL);
        lost
    }

    /// What was stored into a page of the kernel went with an eviction. Each open file is told once.
    pub fn lose_store(&mut self) {
        if self.failures.unreported().is_none() {
            self.failures.add(FsError::Io);
        }
    }

    /// What was changed under the EX lock and not told went with an eviction. Returns whether there
    /// was anything.
    pub fn lose_pending_updates(&mut self) -> bool {
        let lost = std::mem::take(&mut self.changed) != SetAttr::default();
        if lost {
            self.failures.add(FsError::Io);
        }
        lost
    }

    /// The MDT does not know it any more. `told`: what an eviction took of it was already.
    pub fn lose_open(&mut self, told: bool) {
        if !self.lose_unwritten() && !told {
            self.failures.add(FsError::Io);
        }
        self.write_open = None;
        self.stands(Standing::Gone);
    }

    /// Whether the MDT has it is known now.
    pub fn stands(&mut self, standing: Standing) {
        self.standing = standing;
        self.waiters.wake_all();
    }

    /// A read of `range` is answered with what is here now.
    pub fn answers_read(&mut self, range: ByteRange, to: ReadTo) {
        if to == ReadTo::Caller {
            return;
        }
        self.kernel_pages = true;
        self.refilled = true;
        // Without a writer nothing is written past them.
        if self.writers > 0 {
            self.in_kernel.filled(range);
        }
    }

    /// A write reached the cache.
    pub fn wrote(&mut self, range: ByteRange, now: Timestamp) {
        let size = self.known.size;
        if range.end > size {
            self.pages
                .grew(ByteRange::new(range.start.max(size), range.end));
            self.known.size = range.end;
        }
        self.content_changed(now);
    }

    /// Its OST has no space for the byte at `end`, and all from there on was written here since.
    pub fn ends(&mut self, end: u64) {
        self.pages.discard(ByteRange::from(end));
        self.known.size = self.known.size.min(end);
        self.resizes.ends(end);
    }

    /// The MDT keeps it for the writers here: no Close of their use is on its way, after which it would
    /// know of nobody.
    pub fn is_kept_by_writers(&self) -> bool {
        let closing = self.closing;
        self.write_open
            .is_some_and(|open| Some(open.handle) != closing)
    }

    /// A Close of the use for writing is on its way.
    pub fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// What was changed of it under the EX lock is being told: resolves when anything is another.
    pub fn being_told(&mut self) -> Option<Oneshot<()>> {
        (self.pending_updates > 0).then(|| self.waiters.wait())
    }

    /// So it is, or is about to be, since the lock is on its way back: the same.
    pub fn exclusive_revoked(&mut self) -> Option<Oneshot<()>> {
        let is_revoked = self.exclusive.is_some() && self.revoking != Revoking::No;
        (self.pending_updates > 0 || is_revoked).then(|| self.waiters.wait())
    }

    /// It was just made, and opened by that.
    pub fn made(&mut self, access: Access, handle: OpenHandle) {
        match access.write {
            true => self.unsent = self.exclusive.is_some(),
            false => {
                self.shared = true;
                self.read_opens.push(handle);
            }
        }
    }

    /// The object as `stat` shows it. What was not sent yet takes space, too, as bytes do on a
    /// local file system that has yet to choose their place.
    pub fn shown(&self) -> ObjectAttr {
        self.with_unsent_blocks(self.known)
    }

    /// No more blocks than bytes without holes take, or than there are: which of the unsent bytes replace
    /// others only the OST knows.
    pub fn with_unsent_blocks(&self, object: ObjectAttr) -> ObjectAttr {
        const UNITS: u64 = 8;
        let full = object.size.div_ceil(4096).saturating_mul(UNITS);
        if self.pages.dirty_bytes() == 0 || object.blocks >= full {
            return object;
        }
        let blocks = object.blocks + self.pages.unsent_blocks() * UNITS;
        ObjectAttr {
            blocks: blocks.min(full),
            ..object
        }
    }

    /// Bytes of it are on their way to its OST, or have yet to be sent: what `stat` shows of its space is
    /// an estimate.
    pub fn is_unsent(&self) -> bool {
        self.pages.dirty_bytes() > 0
    }

    /// The object as its OST knows it, with what was written here and not sent yet.
    pub fn with_unsent(&self, object: ObjectAttr) -> ObjectAttr {
        match self.pages.dirty_end() {
            None => object,
            Some(end) => ObjectAttr {
                size: object.size.max(end),
                blocks: object.blocks,
                mtime: self.known.mtime.later(object.mtime),
            },
        }
    }

    /// Its OST has made a change of it, which is not durable yet.
    pub fn sent(&mut self, transno: Transno) {
        self.unsent = false;
        self.first_unsettled = match self.committed || self.written == Transno(0) {
            true => transno,
            false => self.first_unsettled.min(transno),
        };
        self.committed = false;
        self.written = self.written.max(transno);
    }

    /// Whether something of it may be durable that was not before, where everything up to `durable`
    /// is.
    pub fn can_settle(&self, durable: Transno) -> bool {
        durable > self.settled || durable >= self.written
    }

    /// Everything up to `durable` is durable at its OST.
    pub fn settle(&mut self, durable: Transno) {
        self.settled = self.settled.max(durable);
        self.pages.committed(durable);
        self.resizes.committed(durable);
        self.committed = durable >= self.written;
        let firsts = [
            self.pages.first_uncommitted(),
            self.resizes.first_uncommitted(),
        ];
        self.first_unsettled = firsts
            .into_iter()
            .flatten()
            .fold(self.written, Transno::min);
    }

    /// All that was done to its bytes is durable at its OST.
    pub fn is_settled(&self) -> bool {
        self.pages.dirty_bytes() == 0
            && self.resizes.is_empty()
            && (self.committed || self.written == Transno(0))
    }

    /// A time that was set before counts no more.
    pub fn content_changed(&mut self, now: Timestamp) {
        self.known.mtime = now;
        self.changed.mtime = None;
    }
}
