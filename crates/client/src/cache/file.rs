//! A file or directory that is open here, or a file that has data here.

use base::{ByteRange, Fid, FsError, LockHandle, Timestamp, Transno};
use handover::Records;
use wire::mdt::{Access, OpenHandle};
use wire::ost::ObjectAttr;

use crate::cache::durability::Durability;
use crate::cache::fetches::Fetches;
use crate::cache::file_errors::FileErrors;
use crate::cache::file_locks::FileLocks;
use crate::cache::kernel_pages::KernelPages;
use crate::cache::kernel_pages::ReadTo;
use crate::cache::kernel_view::KernelView;
use crate::cache::object::Object;
use crate::cache::opens::Opens;
use crate::cache::pages::PageCache;
use crate::cache::pending_change::PendingChange;
use crate::cache::registration::{Registration, Standing};
use crate::cache::resizes::Resizes;
use crate::executor::{Oneshot, WaitList};
use crate::journal::bytes::RememberedBytes;

/// Open counts, locks and bytes of one file.
#[derive(Default)]
pub(crate) struct FileState {
    /// Local uses.
    pub opens: Opens,
    /// Uses that the MDT has on record.
    pub registration: Registration,
    /// Locks in use here.
    pub locks: FileLocks,
    /// What was changed of its attributes here, until the MDT has acknowledged it.
    pub change: PendingChange,
    /// The bytes.
    pub pages: PageCache,
    /// Its size, times and space.
    pub object: Object,
    /// How far changes of its bytes have come at its OST.
    pub durability: Durability,
    /// What was changed of its size and space, which the OST may lose.
    pub resizes: Resizes,
    /// What the kernel has of it, or believes.
    pub kernel: KernelView,
    /// Which pages the kernel may have, as long as there are writers.
    pub in_kernel: KernelPages,
    /// What of the bytes is being fetched, or came ahead of its reader.
    pub fetches: Fetches,
    /// What could not be written.
    pub errors: FileErrors,
    /// What of the bytes is remembered for the next process.
    pub remembered: RememberedBytes,
    /// Who waits for any of the above to change.
    pub waiters: WaitList,
}

impl std::fmt::Debug for FileState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileState")
            .field("opens", &self.opens)
            .field("exclusive", &self.locks.exclusive())
            .finish_non_exhaustive()
    }
}

impl FileState {
    /// Nothing local needs it any more, locks aside.
    pub fn is_idle(&self) -> bool {
        self.opens.is_idle()
            && self.registration.is_idle()
            && self.locks.is_idle()
            && self.pages.dirty_bytes() == 0
            && self.resizes.is_empty()
            && self.durability.writing() == 0
            && !self.change.is_updating()
            && !self.kernel.is_lapsing()
    }

    /// No process and no call uses it: its last name may go here. Its bytes or its Close may be on their way.
    pub fn is_unused(&self) -> bool {
        self.opens.is_idle()
            && !self.registration.has_readers()
            && !self.locks.is_used()
            && !self.locks.is_revoking()
            && self.resizes.is_empty()
            && !self.change.is_updating()
            && !self.kernel.is_lapsing()
    }

    /// The kernel may hold bytes of it, or has been told its size.
    pub fn is_known_to_kernel(&self) -> bool {
        self.kernel.was_told() || self.opens.is_open()
    }

    /// Frees the records of bytes that are durable or no longer needed. Write errors among them are recorded
    /// first.
    pub fn forget_settled(&mut self, fid: Fid, records: Option<&Records>) {
        let settled = self.pages.take_settled();
        let Some(records) = records else {
            return;
        };
        self.errors.remember(records, fid);
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
        self.opens.remove_reader();
        self.uses_over()
    }

    /// The EX lock under which attributes were changed here, if the MDT does not know the changes and no
    /// Close on its way reports them.
    pub fn has_changes_to_report(&self) -> Option<LockHandle> {
        let is_changed = self.change.is_any() && !self.registration.is_closing();
        self.locks.exclusive().filter(|_| is_changed)
    }

    /// The same of a call that needed it.
    pub fn unpin(&mut self) -> Vec<OpenHandle> {
        self.opens.unpin();
        self.uses_over()
    }

    fn uses_over(&mut self) -> Vec<OpenHandle> {
        match self.opens.is_kept() {
            true => Vec::new(),
            false => self.registration.take_readers(),
        }
    }

    /// The EX lock is gone: others may make the object and write to it.
    pub fn lose_exclusive(&mut self) -> Option<LockHandle> {
        self.object.sent();
        self.locks.take_exclusive()
    }

    /// The right to write it went with an eviction. Returns whether anything was lost, which is told.
    pub fn lose_unwritten(&mut self) -> bool {
        let lost = self.resizes.give_up(FsError::Io) || self.pages.may_be_lost();
        if lost {
            self.errors.add(FsError::Io);
        }
        self.pages.discard(ByteRange::ALL);
        lost
    }

    /// What was stored into a page of the kernel went with an eviction. Each open file is told once.
    pub fn lose_store(&mut self) {
        if self.errors.unreported().is_none() {
            self.errors.add(FsError::Io);
        }
    }

    /// What was changed under the EX lock and not told went with an eviction. Returns whether there
    /// was anything.
    pub fn lose_pending_updates(&mut self) -> bool {
        let lost = self.change.lose();
        if lost {
            self.errors.add(FsError::Io);
        }
        lost
    }

    /// The MDT does not know it any more. `is_reported`: what an eviction took of it was already.
    pub fn lose_open(&mut self, is_reported: bool) {
        if !self.lose_unwritten() && !is_reported {
            self.errors.add(FsError::Io);
        }
        self.registration.lose_writers();
        self.stands(Standing::Gone);
    }

    /// Whether the MDT has it is known now.
    pub fn stands(&mut self, standing: Standing) {
        self.registration.stands(standing);
        self.waiters.wake_all();
    }

    /// A read of `range` is answered with what is here now.
    pub fn answers_read(&mut self, range: ByteRange, to: ReadTo) {
        if to == ReadTo::Caller {
            return;
        }
        self.kernel.fill();
        // Without a writer nothing is written past them.
        if self.opens.is_written() {
            self.in_kernel.filled(range);
        }
    }

    /// A write reached the cache.
    pub fn wrote(&mut self, range: ByteRange, now: Timestamp) {
        let size = self.object.size();
        if range.end > size {
            self.pages
                .grew(ByteRange::new(range.start.max(size), range.end));
            self.object.grow(range.end);
        }
        self.content_changed(now);
    }

    /// Its OST has no space for the byte at `end`, and all from there on was written here since.
    pub fn ends(&mut self, end: u64) {
        self.pages.discard(ByteRange::from(end));
        self.object.cut(end);
        self.resizes.ends(end);
    }

    /// What was changed of it under the EX lock is being told: resolves when anything is another.
    pub fn being_told(&mut self) -> Option<Oneshot<()>> {
        self.change.is_updating().then(|| self.waiters.wait())
    }

    /// So it is, or is about to be, since the lock is on its way back: the same.
    pub fn exclusive_revoked(&mut self) -> Option<Oneshot<()>> {
        let is_revoked = self.locks.is_exclusive() && self.locks.is_revoking();
        (self.change.is_updating() || is_revoked).then(|| self.waiters.wait())
    }

    /// It was just made, and opened by that.
    pub fn made(&mut self, access: Access, handle: OpenHandle) {
        match access.write {
            true => self.object.made(self.locks.is_exclusive()),
            false => {
                self.registration.share();
                self.registration.register_readers(handle);
            }
        }
    }

    /// The object as `stat` shows it. What was not sent yet takes space, too, as bytes do on a
    /// local file system that has yet to choose their place.
    pub fn shown(&self) -> ObjectAttr {
        self.with_unsent_blocks(self.object.attr())
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
                mtime: self.object.mtime().later(object.mtime),
            },
        }
    }

    /// Its OST has made a change of it, which is not durable yet.
    pub fn sent(&mut self, transno: Transno) {
        self.object.sent();
        self.durability.sent(transno);
    }

    /// Everything up to `durable` is durable at its OST.
    pub fn settle(&mut self, durable: Transno) {
        self.pages.committed(durable);
        self.resizes.committed(durable);
        let firsts = [
            self.pages.first_uncommitted(),
            self.resizes.first_uncommitted(),
        ];
        let first = firsts.into_iter().flatten().min();
        self.durability.settle(durable, first);
    }

    /// All that was done to its bytes is durable at its OST.
    pub fn is_settled(&self) -> bool {
        self.pages.dirty_bytes() == 0 && self.resizes.is_empty() && self.durability.is_settled()
    }

    /// A time that was set before counts no more.
    pub fn content_changed(&mut self, now: Timestamp) {
        self.object.changed(now);
        self.change.drop_mtime();
    }
}
