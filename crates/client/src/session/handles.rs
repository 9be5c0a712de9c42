//! Open files and directories of this mount.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base::{ByteRange, Fid, Tick};
use handover::Record;

use crate::cache::ending::EndingUses;
use crate::cache::handle::HandleId;
use crate::executor::{Oneshot, Sender};
use crate::journal::failures::Reported;
use crate::journal::handles::OpenedAs;
use crate::journal::store::Journal;
use crate::policy::readahead::WINDOW_BYTES_MAX;
use crate::policy::statahead::report::WalkReport;
use crate::session::dir_handle::DirHandle;
use crate::session::file_handle::{FileHandle, OpenWish};

/// Handles of one process: those of the next have greater numbers.
const HANDLES_PER_BOOT: u32 = 32;

/// All of them.
pub(crate) struct Handles {
    last: u64,
    files: HashMap<HandleId, FileHandle>,
    dirs: HashMap<HandleId, DirHandle>,
    /// The handle opened last on each directory.
    dir_by_fid: HashMap<Fid, HandleId>,
    /// How far ahead each file may be read, in bytes.
    readahead_max: u64,
    /// Something was read ahead since that was shared out.
    read_ahead: bool,
    remembered: HashMap<HandleId, Arc<Record>>,
    /// What the process before had opened, by the kernel's request.
    inherited: HashMap<u64, HandleId>,
    /// Files kept for what a call will ask next of what it has just looked up.
    pinned: Vec<Pinned>,
    /// Uses of files that others wait for to end.
    ending_uses: EndingUses,
}

/// A file that is kept for a call, and since when.
struct Pinned {
    since: Tick,
    fid: Fid,
    /// None: there is no next process, or no room.
    _record: Option<Record>,
}

impl Default for Handles {
    fn default() -> Handles {
        Handles {
            last: 0,
            files: HashMap::new(),
            dirs: HashMap::new(),
            dir_by_fid: HashMap::new(),
            readahead_max: WINDOW_BYTES_MAX,
            read_ahead: false,
            remembered: HashMap::new(),
            inherited: HashMap::new(),
            pinned: Vec::new(),
            ending_uses: EndingUses::default(),
        }
    }
}

impl Handles {
    fn next(&mut self) -> HandleId {
        self.last += 1;
        HandleId(self.last)
    }

    pub fn add_file(&mut self, handle: FileHandle, journal: &Journal) -> HandleId {
        let id = self.next();
        let OpenWish { access, append } = handle.wish();
        let opened = OpenedAs::File { access, append };
        let record = journal.put_handle(id.0, handle.fid(), opened, handle.reported());
        self.keep_record(id, record);
        self.files.insert(id, handle);
        id
    }

    fn keep_record(&mut self, id: HandleId, record: Option<Record>) {
        let record = record.map(|record| (id, Arc::new(record)));
        self.remembered.extend(record);
    }

    /// New handles have numbers greater than any of a process before: the kernel may yet close one of
    /// those once more.
    pub fn number_as(&mut self, incarnation: u64) {
        self.last = (incarnation - 1) << HANDLES_PER_BOOT;
    }

    /// A file that the process before had open.
    pub fn restore_file(&mut self, id: HandleId, open: FileHandle, left: (Record, u64)) {
        self.restore(id, left);
        self.files.insert(id, open);
    }

    /// A directory that it had.
    pub fn restore_dir(&mut self, id: HandleId, open: DirHandle, left: (Record, u64)) {
        self.restore(id, left);
        self.dir_by_fid.insert(open.fid(), id);
        self.dirs.insert(id, open);
    }

    fn restore(&mut self, id: HandleId, (record, origin): (Record, u64)) {
        self.remembered.insert(id, Arc::new(record));
        if origin != 0 {
            self.inherited.insert(origin, id);
        }
    }

    /// What the next process would know of it.
    pub fn record(&self, id: HandleId) -> Option<Arc<Record>> {
        self.remembered.get(&id).cloned()
    }

    /// What the process before had opened for this request of the kernel; true: a directory.
    pub fn opened_for(&mut self, origin: u64) -> Option<(HandleId, bool)> {
        let id = self.inherited.remove(&origin)?;
        Some((id, self.dirs.contains_key(&id)))
    }

    /// Who executes the file.
    pub fn executing(&self, fid: Fid) -> Vec<HandleId> {
        let open = self.files.iter();
        let open = open.filter(|(_, open)| open.fid() == fid && open.is_executed());
        open.map(|(id, _)| *id).collect()
    }

    pub fn add_dir(&mut self, handle: DirHandle, journal: &Journal) -> HandleId {
        let id = self.next();
        let (fid, opened) = (handle.fid(), OpenedAs::Directory);
        let record = journal.put_handle(id.0, fid, opened, Reported::default());
        self.keep_record(id, record);
        self.dir_by_fid.insert(fid, id);
        self.dirs.insert(id, handle);
        id
    }

    pub fn file(&mut self, id: HandleId) -> Option<&mut FileHandle> {
        self.files.get_mut(&id)
    }

    pub fn dir(&mut self, id: HandleId) -> Option<&mut DirHandle> {
        self.dirs.get_mut(&id)
    }

    pub fn remove_file(&mut self, id: HandleId) -> Option<FileHandle> {
        self.remembered.remove(&id);
        self.files.remove(&id)
    }

    pub fn remove_dir(&mut self, id: HandleId) -> Option<DirHandle> {
        self.remembered.remove(&id);
        let handle = self.dirs.remove(&id)?;
        if self.dir_by_fid.get(&handle.fid()) == Some(&id) {
            self.dir_by_fid.remove(&handle.fid());
        }
        Some(handle)
    }

    /// All that is open: files, directories.
    pub fn ids(&self) -> (Vec<HandleId>, Vec<HandleId>) {
        let files = self.files.keys().copied().collect();
        (files, self.dirs.keys().copied().collect())
    }

    /// All below the directory is being fetched.
    pub fn fetches_tree(&self, id: HandleId) -> bool {
        self.dirs.get(&id).is_some_and(DirHandle::fetches_tree)
    }

    /// That begins, unless it is so for `most` directories already.
    pub fn begin_tree(&mut self, id: HandleId, most: usize) -> bool {
        let fetching = self
            .dirs
            .values()
            .filter(|open| open.fetches_tree())
            .count();
        let open = self.dirs.get_mut(&id).filter(|_| fetching < most);
        open.map(DirHandle::begin_tree).is_some()
    }

    /// That ends.
    pub fn end_tree(&mut self, id: HandleId) {
        if let Some(open) = self.dirs.get_mut(&id) {
            open.end_tree();
        }
    }

    /// What is fetched ahead of those who read directories.
    pub fn walks(&self) -> impl Iterator<Item = WalkReport> {
        let dirs = self.dirs.values();
        dirs.map(|open| open.statahead.report(open.fid()))
    }

    /// The places of those who read the directory.
    pub fn readers(&self, fid: Fid) -> impl Iterator<Item = u64> {
        let dirs = self.dirs.values().filter(move |dir| dir.fid() == fid);
        dirs.map(DirHandle::at)
    }

    /// A handle open on the directory.
    pub fn dir_open_on(&self, fid: Fid) -> Option<HandleId> {
        self.dir_by_fid.get(&fid).copied()
    }

    /// What to fetch ahead now that `read`, an offset and a length, of a file of `size` bytes is read.
    pub fn read_ahead(&mut self, id: HandleId, read: (u64, u64), size: u64) -> Option<ByteRange> {
        let open = self.files.get_mut(&id)?;
        let ahead = open.read_ahead(read, size, self.readahead_max);
        self.read_ahead |= ahead.is_some();
        ahead
    }

    /// Shares `bytes` of memory among all who read in order now. To be called at a steady pace:
    /// who starts meanwhile gets at first what the others got, but must read as much before.
    pub fn share_readahead(&mut self, bytes: u64) {
        if !std::mem::take(&mut self.read_ahead) {
            return;
        }
        let open = self.files.values_mut();
        let readers = open.filter_map(|open| open.is_read_ahead().then_some(()));
        self.readahead_max = bytes / (readers.count() as u64).max(1);
    }

    /// The cached bytes of a file are gone: what was read ahead must be read again.
    pub fn forget_readahead(&mut self, fid: Fid) {
        let open = self.files.values_mut().filter(|open| open.fid() == fid);
        open.for_each(FileHandle::forget_readahead);
    }

    /// Every file and directory that is open.
    pub fn open_files(&self) -> Vec<Fid> {
        let files = self.files.values().map(FileHandle::fid);
        let mut fids: Vec<Fid> = files.chain(self.dir_by_fid.keys().copied()).collect();
        fids.sort_unstable();
        fids.dedup();
        fids
    }

    /// The file is kept from `now` on, for what a call will ask next.
    pub fn keep_pinned(&mut self, now: Tick, fid: Fid, record: Option<Record>) {
        self.pinned.push(Pinned {
            since: now,
            fid,
            _record: record,
        });
    }

    /// Calls can ask from `now` on about the files that are kept for them.
    pub fn renew_pinned(&mut self, now: Tick) {
        self.pinned.iter_mut().for_each(|pinned| pinned.since = now);
    }

    /// The files that were kept for `age` by now: they are not any more.
    pub fn take_pinned(&mut self, now: Tick, age: Duration) -> Vec<Fid> {
        let is_old = |pinned: &mut Pinned| now.since(pinned.since) >= age;
        let old = self.pinned.extract_if(.., is_old);
        old.map(|pinned| pinned.fid).collect()
    }

    /// How many are kept.
    pub fn pinned_count(&self) -> usize {
        self.pinned.len()
    }

    /// Resolves when the use of `fid` is over, or it seems that it goes on.
    pub fn wait_for_end_of_use(&mut self, fid: Fid, now: Tick) -> Oneshot<()> {
        self.ending_uses.wait(fid, now)
    }

    /// A use of `fid` that excluded others is over here, and the MDT is about to be told.
    pub fn begin_report_of_end(&mut self, fid: Fid) {
        self.ending_uses.begin_report(fid);
    }

    /// The MDT has been told of one.
    pub fn end_report_of_end(&mut self, fid: Fid) {
        self.ending_uses.end_report(fid);
    }

    /// The MDT may not know yet that a use of `fid` is over.
    pub fn is_end_reported(&self, fid: Fid) -> bool {
        self.ending_uses.is_reported(fid)
    }

    /// Somebody waits for the end of a use of `fid`.
    pub fn is_end_awaited(&self, fid: Fid) -> bool {
        self.ending_uses.is_awaited(fid)
    }

    /// Somebody waits for the end of a use.
    pub fn are_ends_awaited(&self) -> bool {
        !self.ending_uses.is_empty()
    }

    /// The use of `fid` is over: those that wait for that hear of it when this is dropped.
    #[must_use]
    pub fn end_use(&mut self, fid: Fid) -> Vec<Sender<()>> {
        self.ending_uses.of(fid)
    }

    /// Uses seem to go on: those that have waited too long hear of it when this is dropped.
    #[must_use]
    pub fn late_ends(&mut self, now: Tick) -> Vec<Sender<()>> {
        self.ending_uses.late(now)
    }

    /// Files open, directories open.
    pub fn counts(&self) -> (usize, usize) {
        (self.files.len(), self.dirs.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::failures::Failures;

    const MIB: u64 = 1 << 20;

    fn open(handles: &mut Handles) -> HandleId {
        let reported = Failures::default().at_open();
        let open = FileHandle::new(Fid(1), OpenWish::default(), reported);
        handles.add_file(open, &Journal::default())
    }

    /// Bytes asked for beyond what was read, by all of them.
    #[test]
    fn many_readers_share_the_memory_for_what_is_read_ahead() {
        let (mut handles, memory, step) = (Handles::default(), 64 * MIB, 128 << 10);
        let readers: Vec<HandleId> = (0..100).map(|_| open(&mut handles)).collect();
        let mut ahead = vec![0; readers.len()];
        for at in (0..40 * MIB).step_by(step as usize) {
            for (reader, ahead) in readers.iter().zip(&mut ahead) {
                let range = handles.read_ahead(*reader, (at, step), 1 << 30);
                *ahead = range.map_or(*ahead, |range| range.end).max(at + step);
            }
            handles.share_readahead(memory);
            let unread: u64 = ahead.iter().map(|ahead| ahead - at - step).sum();
            assert!(unread <= memory, "{unread} at {at}");
        }
        for reader in &readers[1..] {
            handles.remove_file(*reader);
        }
        let range = |handles: &mut Handles, at| handles.read_ahead(readers[0], (at, MIB), 1 << 30);
        assert!(range(&mut handles, 40 * MIB).is_some());
        handles.share_readahead(memory);
        let alone = (41..60).filter_map(|at| range(&mut handles, at * MIB));
        assert!(alone.last().unwrap().end >= 59 * MIB + WINDOW_BYTES_MAX);
    }
}
