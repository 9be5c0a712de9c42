//! Everything this mount knows: one state under one lock, which is held for microseconds and never across
//! a wait.

pub(crate) mod answers;
pub(crate) mod births;
pub(crate) mod bound;
mod durability;
mod edits;
mod uses;
mod validity;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::{BootEpoch, Fid, Tick, Timestamp};

use crate::cache::births::Births;
use crate::cache::file::FileState;
use crate::cache::handle::HandleId;
use crate::cache::holder::Holder;
use crate::cache::inode::Inode;
use crate::cache::store::Cache;
use crate::journal::store::Journal;
use crate::policy::Policies;
use crate::session::birth_reporter::BirthReporter;
use crate::session::dir_handle::DirHandle;
use crate::session::file_handle::FileHandle;
use crate::session::handles::Handles;
use crate::session::idle_executions::IdleExecutions;
use crate::session::lease_wishes::LeaseWishes;
use crate::session::locks::Locks;
use crate::session::long_appends::LongAppends;
use crate::session::servers::Servers;

/// Everything this mount knows, in parts. Each changes only by its own methods; a caller that needs two
/// borrows both.
pub(crate) struct State {
    /// Files, names, attributes and bytes.
    pub cache: Cache,
    /// What covers them.
    pub locks: Locks,
    /// Open files and directories.
    pub handles: Handles,
    /// The epochs of servers, their durability and space.
    pub servers: Servers,
    /// What to fetch ahead, and what to send when.
    pub policies: Policies,
    /// What is written down for the next process.
    pub journal: Journal,
    /// Files that the MDT does not know yet.
    pub births: Births,
    /// Who tells the MDT of files that were made here.
    pub birth_reporter: BirthReporter,
    /// Write leases that are asked for.
    pub lease_wishes: LeaseWishes,
    /// Programs that ran here.
    pub idle_executions: IdleExecutions,
    /// Appends that come in several requests.
    pub long_appends: LongAppends,
}

impl State {
    /// `stamp` is read without the state's lock by those who hand answers over.
    pub fn new(locks: Locks, stamp: Arc<AtomicU64>) -> State {
        State {
            cache: Cache::new(stamp),
            locks,
            handles: Handles::default(),
            servers: Servers::default(),
            policies: Policies::default(),
            journal: Journal::default(),
            births: Births::default(),
            birth_reporter: BirthReporter::default(),
            lease_wishes: LeaseWishes::default(),
            idle_executions: IdleExecutions::default(),
            long_appends: LongAppends::default(),
        }
    }

    /// The kernel is about to have one more reference to `fid`.
    pub fn refer(&mut self, fid: Fid) {
        self.cache.inode(fid).refer();
        self.note_lookups(fid);
    }

    /// The kernel has `count` references to `fid` less. Drops the file if nothing needs it.
    pub fn unrefer(&mut self, fid: Fid, count: u64) {
        let Some(inode) = self.cache.known_mut(fid) else {
            return;
        };
        inode.unrefer(count);
        let is_gone = !inode.is_in_kernel();
        self.note_lookups(fid);
        if is_gone {
            self.drop_if_idle(fid);
        }
    }

    /// Another number of references to `fid` is with the kernel.
    fn note_lookups(&mut self, fid: Fid) {
        let lookups = self.cache.known(fid).map_or(0, Inode::lookups);
        self.journal.note_lookups(fid, lookups);
    }

    /// A file is opened.
    pub fn add_file(&mut self, open: FileHandle) -> HandleId {
        self.handles.add_file(open, &self.journal)
    }

    /// A directory is opened.
    pub fn add_dir(&mut self, open: DirHandle) -> HandleId {
        self.handles.add_dir(open, &self.journal)
    }

    /// A program wrote these bytes. False: the journal has no room for them, they must be sent at once.
    pub fn journal_bytes(&mut self, fid: Fid, mtime: Timestamp, at: u64, data: &[u8]) -> bool {
        let file = self.cache.file(fid);
        self.journal
            .put_bytes(&mut file.remembered, (fid, mtime), at, data)
    }

    /// Attributes of the file were changed under the EX lock.
    pub fn journal_change(&mut self, fid: Fid, now: Tick) {
        self.policies.writeback.is_changed(fid, now);
        self.record_change(fid);
    }

    /// What is to be reported of the file is something else by now.
    pub fn record_change(&mut self, fid: Fid) {
        let file = self.cache.file(fid);
        if let Some(under) = file.locks.exclusive() {
            let under = (under, self.servers.mdt_epoch());
            // The new one is there before the old one goes.
            let record = self.journal.put_change(fid, under, file.change.attrs());
            file.change.keep_record(record);
        }
    }

    /// Files whose bytes a target had covered that gave up the process before this one. Of an MDT those
    /// that can be written: which of them it had given to this client alone nobody remembers.
    pub fn take_lapsed(&mut self) -> Vec<Fid> {
        let holders = self.locks.take_inherited_evictions();
        let mut fids = Vec::from_iter(self.cache.fids());
        fids.retain(|fid| {
            let ost = self.cache.ost(*fid);
            let file = self.cache.file_known(*fid);
            file.is_some_and(|file| file.opens.is_written())
                && holders.iter().any(|holder| match holder {
                    Holder::Mdt => true,
                    Holder::Ost(target) => ost.is_none_or(|ost| ost == *target),
                })
        });
        fids
    }

    /// Bytes that OSTs do not have, and those that they may yet lose.
    pub fn unsettled_bytes(&mut self) -> (u64, u64) {
        let fids: Vec<Fid> = self.policies.writeback.uncommitted().collect();
        let files = fids.into_iter().filter_map(|fid| {
            let file = self.cache.file_known(fid)?;
            Some(file.pages.undurable_bytes())
        });
        let undurable = files.sum();
        (self.cache.dirty_bytes(), undurable)
    }

    /// Changes a file's bytes and keeps the sum of what is unsent.
    pub fn with_pages<R>(&mut self, fid: Fid, change: impl FnOnce(&mut FileState) -> R) -> R {
        let State { cache, journal, .. } = self;
        let result = cache.with_pages(fid, |file| {
            let result = change(file);
            file.forget_settled(fid, journal.records());
            result
        });
        self.note(fid);
        result
    }

    /// Something was done to the file's bytes, or became durable.
    pub fn note(&mut self, fid: Fid) {
        // Bytes of a file that the MDT does not know have no right to go to an OST yet.
        if self.births.is_unborn(fid) {
            return;
        }
        if let Some(inode) = self.cache.known(fid)
            && let Some(file) = inode.as_file()
        {
            self.policies.writeback.note(fid, inode.ost(), file);
        }
    }

    /// Drops the file if nothing needs it.
    pub fn drop_if_idle(&mut self, fid: Fid) {
        self.cache
            .drop_unused_file(fid, self.locks.has_extents(fid));
        // A directory goes with its own lock.
        if self.cache.is_unused(fid) && !self.locks.holds_any(fid) {
            self.cache.drop_inode(fid);
        }
    }

    /// One past the last byte that the file can have, as far as that is known.
    pub fn size_limit(&self, fid: Fid) -> Option<u64> {
        self.servers.size_limit(self.cache.ost(fid)?)
    }

    /// The boot of the file's OST; zero: none was met yet.
    pub fn boot_epoch_of(&self, fid: Fid) -> BootEpoch {
        let ost = self.cache.ost(fid);
        ost.map_or(BootEpoch(0), |ost| self.servers.boot_epoch_of(ost))
    }
}
