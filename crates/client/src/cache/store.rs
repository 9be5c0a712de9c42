//! Everything that is cached: all files, and the sums over them. Locks keep entries valid; `session::state`
//! brings the two together.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::{Fid, FsError, Name, TargetIndex, Timestamp};
use dlm::Bits;
use wire::Attr;

use crate::cache::cached_attr::Covered;
use crate::cache::directory::Directory;
use crate::cache::file::FileState;
use crate::cache::inode::Inode;
use crate::cache::invalidations::PendingInvalidations;
use crate::cache::local_changes::{LocalChange, LocalChanges, NameChange};
use crate::cache::memory::{Held, Memory};
use crate::cache::stamps::{AskedExtent, Mark, Withdrawals};
use crate::cache::withdrawn::{Entries, Withdrawn};
use crate::cache::write_errors::WriteErrors;
use crate::executor::Oneshot;
use crate::journal::errors::FoundFailures;

/// A list with more entries is long.
const LONG_LIST: u64 = 1 << 14;

/// The cache.
pub(crate) struct Cache {
    /// Boxed, so that the map's empty places cost little.
    inodes: HashMap<Fid, Box<Inode>>,
    memory: Memory,
    withdrawals: Withdrawals,
    /// What was done to names here.
    changes: LocalChanges,
    /// Names that the kernel is still to forget.
    invalidations: PendingInvalidations,
    /// Calls of this client under way that remove names of files not known by those.
    blind_removals: u32,
    /// Files in use that have write errors, and perhaps reported them since.
    failed: BTreeSet<Fid>,
    /// Of files that are not in use any more.
    write_errors: WriteErrors,
    /// Directories with long lists.
    long: BTreeSet<Fid>,
    /// Eviction looks at all files only above this number of them.
    crowded_at: usize,
    /// How many files were looked at.
    #[cfg(test)]
    looked_at: std::cell::Cell<usize>,
}

impl Cache {
    /// `stamp` is read without the state's lock by those who hand answers over.
    pub fn new(stamp: Arc<AtomicU64>) -> Cache {
        Cache {
            inodes: HashMap::new(),
            memory: Memory::default(),
            withdrawals: Withdrawals::new(stamp),
            changes: LocalChanges::default(),
            invalidations: PendingInvalidations::default(),
            blind_removals: 0,
            failed: BTreeSet::new(),
            write_errors: WriteErrors::default(),
            long: BTreeSet::new(),
            crowded_at: 0,
            #[cfg(test)]
            looked_at: std::cell::Cell::default(),
        }
    }

    /// For tests of how many files something looks at.
    fn counts_look(&self) {
        #[cfg(test)]
        self.looked_at.set(self.looked_at.get() + 1);
    }

    /// How many files were looked at.
    #[cfg(test)]
    pub fn looked_at(&self) -> usize {
        self.looked_at.get()
    }
}

/// Files.
impl Cache {
    /// The file, made unknown if it was not there.
    pub fn inode(&mut self, fid: Fid) -> &mut Inode {
        self.counts_look();
        self.inodes.entry(fid).or_default()
    }

    /// The file, if known.
    pub fn known(&self, fid: Fid) -> Option<&Inode> {
        self.counts_look();
        self.inodes.get(&fid).map(|inode| &**inode)
    }

    /// The file, if known.
    pub fn known_mut(&mut self, fid: Fid) -> Option<&mut Inode> {
        self.counts_look();
        self.inodes.get_mut(&fid).map(|inode| &mut **inode)
    }

    /// The file's open state, made if need be.
    pub fn file(&mut self, fid: Fid) -> &mut FileState {
        self.inode(fid).file()
    }

    /// The file's open state, if it has one.
    pub fn file_known(&mut self, fid: Fid) -> Option<&mut FileState> {
        self.known_mut(fid)?.file_known()
    }

    /// The same, to look at.
    pub fn file_of(&self, fid: Fid) -> Option<&FileState> {
        self.known(fid)?.as_file()
    }

    /// The last attributes known of the file, valid or not.
    pub fn attr_of(&self, fid: Fid) -> Option<&Attr> {
        self.known(fid)?.attrs.known()
    }

    /// What is known of the directory's names, if anything is.
    pub fn directory_known(&mut self, dir: Fid) -> Option<&mut Directory> {
        self.known_mut(dir)?.directory_known()
    }

    /// The same, to look at.
    pub fn directory_of(&self, dir: Fid) -> Option<&Directory> {
        self.known(dir)?.as_directory()
    }

    /// LocalChanges a file's bytes, and the sums over all files.
    pub fn with_pages<R>(&mut self, fid: Fid, change: impl FnOnce(&mut FileState) -> R) -> R {
        let inode = self.inodes.entry(fid).or_default();
        let file = inode.file();
        let before = Held::by(&file.pages);
        let result = change(file);
        self.memory.change(before, Held::by(&file.pages));
        if file.errors.unsynced().is_some() {
            self.failed.insert(fid);
        }
        result
    }

    /// Every file with open state.
    pub fn files(&self) -> impl Iterator<Item = (Fid, &FileState)> {
        let known = self.inodes.iter();
        known.filter_map(|(fid, inode)| Some((*fid, inode.as_file()?)))
    }

    /// Every file known.
    pub fn fids(&self) -> impl Iterator<Item = Fid> {
        self.inodes.keys().copied()
    }

    /// How many files are known.
    pub fn len(&self) -> usize {
        self.inodes.len()
    }

    /// The OST that has the file's bytes, once its attributes are known.
    pub fn ost(&self, fid: Fid) -> Option<TargetIndex> {
        self.known(fid).and_then(Inode::ost)
    }

    /// Drops the open state of a file that is in use no more. Its write error stays. `is_locked`: a lock on
    /// its bytes is held.
    pub fn drop_unused_file(&mut self, fid: Fid, is_locked: bool) {
        let inode = self.inodes.get_mut(&fid);
        let is_unused = |file: &FileState| file.is_idle() && !is_locked;
        let Some(file) = inode.and_then(|inode| inode.drop_file_if(is_unused)) else {
            return;
        };
        self.memory.change(Held::by(&file.pages), Held::default());
        self.failed.remove(&fid);
        if let Some(error) = file.errors.unreported() {
            self.write_errors.add(fid, error);
        }
    }

    /// Nothing in the file would be missed, locks aside. Attributes of a file the kernel has dropped are
    /// kept while a lease still covers them: they are what the next lookup wants.
    pub fn is_unused(&self, fid: Fid) -> bool {
        self.inodes.get(&fid).is_some_and(|inode| {
            inode.is_idle() && matches!(inode.attrs.covered(), Covered::No | Covered::Refused)
        })
    }

    /// Nothing is known of the file any more.
    pub fn drop_inode(&mut self, fid: Fid) {
        let inode = self.inodes.remove(&fid);
        if let Some(directory) = inode.as_ref().and_then(|inode| inode.as_directory()) {
            self.long.remove(&fid);
            self.withdrawals.dropped(directory.withdrawn.last());
        }
    }
}

/// Memory.
impl Cache {
    /// Bytes written here and not yet sent.
    pub fn dirty_bytes(&self) -> u64 {
        self.memory.dirty_bytes()
    }

    /// Space that these will take at most.
    pub fn unsent_space(&self) -> u64 {
        self.memory.unsent_space()
    }

    /// Memory that bytes of files take here.
    pub fn cached_bytes(&self) -> u64 {
        self.memory.cached_bytes()
    }

    /// Resolves when there may be fewer than `max` unsent bytes. None: there are no more now.
    pub fn wait_for_room(&mut self, max: u64) -> Option<Oneshot<()>> {
        self.memory.wait_for_room(max)
    }

    /// Bytes were sent.
    pub fn make_room(&mut self) {
        self.memory.make_room();
    }

    /// The list of `dir` has grown.
    pub fn has_grown(&mut self, dir: Fid) {
        let directory = self.directory_of(dir);
        if directory.is_some_and(|directory| directory.listed() > LONG_LIST) {
            self.long.insert(dir);
        }
    }

    /// Directories with long lists.
    pub fn long_lists(&self) -> Vec<Fid> {
        self.long.iter().copied().collect()
    }

    /// What was let go lately is at the beginning of lists.
    pub fn sweep_anew(&mut self) {
        for dir in self.long_lists() {
            if let Some(directory) = self.directory_known(dir) {
                directory.swept_to(0);
            }
        }
    }

    /// Drops entries of a list that was looked at as far as `swept`.
    pub fn drop_entries(&mut self, dir: Fid, evicted: &[(u64, Fid)], swept: u64) {
        if !evicted.is_empty() {
            // A caller that was just told of one of these must not believe it for longer.
            self.withdraw();
        }
        evicted.iter().for_each(|(_, fid)| self.drop_inode(*fid));
        let cookies: Vec<u64> = evicted.iter().map(|(cookie, _)| *cookie).collect();
        if let Some(directory) = self.directory_known(dir) {
            directory.swept_to(swept);
            directory.forget_entries(&cookies);
        }
    }

    /// There are more files than there were when nothing more could be dropped.
    pub fn is_crowded(&self) -> bool {
        self.len() > self.crowded_at
    }

    /// Looking at all files is of no use before there are `more`.
    pub fn is_crowded_with(&mut self, more: usize) {
        self.crowded_at = self.len() + more;
    }

    /// Enough files were dropped.
    pub fn is_crowded_no_more(&mut self) {
        self.crowded_at = 0;
    }
}

/// Withdrawals.
impl Cache {
    /// When it is, in withdrawals.
    pub fn stamp(&self) -> u64 {
        self.withdrawals.stamp()
    }

    /// Something cached is withdrawn: answers being prepared are used once.
    pub fn withdraw(&mut self) {
        self.withdrawals.withdraw();
    }

    /// All of a directory is withdrawn: what is on its way about it teaches nothing.
    pub fn withdraw_from(&mut self, dir: Fid) -> &mut Directory {
        let stamp = self.withdrawals.withdraw();
        let directory = self.inode(dir).directory();
        directory.withdrawn.withdraw_all(stamp);
        directory
    }

    /// An entry of a directory is withdrawn: what is on its way teaches nothing of that.
    pub fn withdraw_entry(&mut self, dir: Fid, entry: Withdrawn) -> &mut Directory {
        let stamp = self.withdrawals.withdraw();
        let directory = self.inode(dir).directory();
        directory.withdrawn.withdraw(stamp, entry);
        directory
    }

    /// Something of every directory is withdrawn, of those that are not known as well. Returns when.
    pub fn withdraw_from_all(&mut self) -> u64 {
        let stamp = self.withdrawals.withdraw();
        self.withdrawals.dropped(stamp);
        stamp
    }

    /// To be taken before a question about `dir` is sent, and given with its answer.
    pub fn mark(&self, dir: Fid) -> Mark {
        Mark {
            dir,
            asked: self.stamp(),
            changes: self.changes.count(),
        }
    }

    /// Nothing of the directory was withdrawn since the question was asked.
    pub fn is_current(&self, mark: Mark) -> bool {
        let withdrawn = self.withdrawn(mark.dir).map_or(0, Entries::last);
        self.withdrawals.are_before(mark.asked, withdrawn)
    }

    fn withdrawn(&self, dir: Fid) -> Option<&Entries> {
        self.directory_of(dir).map(|directory| &directory.withdrawn)
    }

    /// The entries that were withdrawn since the question was asked; `None`: that may be all.
    pub fn withdrawn_since(&self, mark: Mark) -> Option<impl Iterator<Item = &Withdrawn>> {
        let entries = self.withdrawn(mark.dir);
        let whole = entries.map_or(0, Entries::last_whole);
        let since = entries.into_iter().flat_map(move |e| e.since(mark.asked));
        self.withdrawals
            .are_before(mark.asked, whole)
            .then_some(since)
    }

    /// The attributes of `child` were not withdrawn from the directory since the question was asked.
    pub fn is_child_current(&self, mark: Mark, child: Fid) -> bool {
        let is_child = |entry: &Withdrawn| entry.child == child && entry.bits.overlaps(Bits::CHILD);
        let since = self.withdrawn_since(mark);
        since.is_some_and(|mut since| !since.any(is_child))
    }

    /// A lock on the file's bytes is about to be asked for.
    pub fn asks_extent(&mut self, fid: Fid) -> AskedExtent {
        AskedExtent {
            written: self.file(fid).durability.written(),
            stamp: self.stamp(),
        }
    }
}

/// Names.
impl Cache {
    /// A call of this mount changed a name. `current`: a lease covers that.
    pub fn name_changed(&mut self, dir: Fid, name_change: NameChange, current: bool) {
        let change = LocalChange {
            name_change,
            current,
        };
        self.changes.push(dir, change.clone());
        self.inode(dir).directory().changed(change);
    }

    /// What this mount did to names of the mark's directory since then; `None`: more than is remembered.
    pub fn changes_since(&self, mark: Mark) -> Option<impl Iterator<Item = &LocalChange>> {
        self.changes.since(mark.dir, mark.changes)
    }

    /// This mount has perhaps changed `name` since then.
    pub fn may_have_changed(&self, mark: Mark, name: &Name) -> bool {
        self.changes.may_name(mark.dir, mark.changes, name)
    }

    /// How often the names of `dir` were withdrawn as a whole.
    pub fn child_epoch(&self, dir: Fid) -> Option<u64> {
        let directory = self.directory_of(dir);
        directory.map(Directory::child_epoch)
    }

    /// The kernel may come to the file by a name that is about to go.
    pub fn has_stale_names(&self, fid: Fid) -> bool {
        self.known(fid).is_some_and(Inode::has_stale_names)
    }

    /// The kernel is told to forget a name of `fid`. Returns whether that is a directory.
    pub fn begin_invalidation(&mut self, dir: Fid, name: &Name, fid: Fid) -> bool {
        self.invalidations.begin(dir, name.clone(), fid);
        let inode = self.inode(fid);
        inode.name_goes();
        inode.is_directory()
    }

    /// The kernel has forgotten the name.
    pub fn end_invalidation(&mut self, dir: Fid, name: Name, fid: Fid) {
        self.invalidations.end(dir, name, fid);
        if let Some(inode) = self.known_mut(fid) {
            inode.name_forgotten();
        }
    }

    /// The names that the kernel is still to forget of `fid`.
    pub fn names_invalidated(&self, fid: Fid) -> Vec<(Fid, Name)> {
        self.invalidations.of(fid)
    }

    /// What the kernel may take `name` for, other than `fid`, to which it leads.
    pub fn mistaken(&self, dir: Fid, name: &Name, fid: Fid) -> Vec<Fid> {
        self.invalidations.mistaken(dir, name, fid)
    }

    /// A call of this client is about to remove the name of a file that is not known by it.
    pub fn begin_blind_removal(&mut self) {
        self.blind_removals += 1;
    }

    /// Such a call has ended.
    pub fn end_blind_removal(&mut self) {
        self.blind_removals -= 1;
    }

    /// A call of this client may be removing the file.
    pub fn may_be_removed(&self, fid: Fid) -> bool {
        self.blind_removals > 0 || self.known(fid).is_some_and(Inode::is_losing_names)
    }
}

/// Times, sizes and errors of files.
impl Cache {
    /// The time of a change of the file's content, made now. Later than what was set or written
    /// before, also where the MDT's clock, or that of another writer, is ahead of this one. So each
    /// change moves it.
    pub fn content_time(&self, fid: Fid, now: Timestamp) -> Timestamp {
        let Some(inode) = self.inodes.get(&fid) else {
            return now;
        };
        let set = inode.attrs.known().map(|attr| attr.mtime_set.next());
        let written = inode.as_file().map(|file| file.object.mtime().next());
        [set, written]
            .into_iter()
            .flatten()
            .fold(now, Timestamp::later)
    }

    /// The last time at which bytes were written, as far as it is known here.
    pub fn last_written(&self, fid: Fid) -> Option<Timestamp> {
        let file = self.file_of(fid)?;
        Some(file.object.mtime()).filter(|mtime| *mtime != Timestamp::default())
    }

    /// The attributes with the size as the MDT has it, which may be old. Not for who has it open
    /// here: what the kernel takes for the end of file is where reading ends.
    pub fn known_lazily(&self, fid: Fid) -> Option<Attr> {
        let inode = self.inodes.get(&fid)?;
        let is_open = |file: &FileState| file.opens.is_open() || !file.is_idle();
        match inode.as_file().is_some_and(is_open) {
            true => None,
            false => inode.attrs.known().cloned(),
        }
    }
}

/// Write errors.
impl Cache {
    /// Something of the file could not be written.
    pub fn add_write_error(&mut self, fid: Fid, error: FsError) {
        self.file(fid).errors.add(error);
        self.failed.insert(fid);
    }

    /// The process before knew of these.
    pub fn inherit_write_errors(&mut self, found: FoundFailures) {
        self.failed.insert(found.fid);
        self.file(found.fid).errors.inherit(found);
    }

    /// There is a write error that no `fsync` has reported.
    pub fn has_write_errors(&self) -> bool {
        let is_failed = |fid: &Fid| self.write_error(*fid).is_some();
        self.write_errors.len() > 0 || self.failed.iter().any(is_failed)
    }

    /// The write error of one file, if no `fsync` has reported it.
    pub fn write_error(&self, fid: Fid) -> Option<FsError> {
        let of_idle = self.write_errors.files.get(&fid).copied();
        let file = self.file_of(fid);
        let of_used = file.and_then(|file| file.errors.unsynced());
        of_used.or(of_idle)
    }

    /// Reports the write error of one file, if no `fsync` has. It counts as reported by one.
    pub fn take_write_error(&mut self, fid: Fid) -> Result<(), FsError> {
        let of_idle = self.write_errors.files.remove(&fid);
        let file = self.file_known(fid);
        let of_used = file.map_or(Ok(()), |file| file.errors.sync_unopened());
        of_used.and(of_idle.map_or(Ok(()), Err))
    }

    /// The files with write errors that were not reported yet. They count as reported hereby.
    pub fn take_write_errors(&mut self) -> WriteErrors {
        let mut write_errors = std::mem::take(&mut self.write_errors);
        for fid in &self.failed {
            let inode = self.inodes.get_mut(fid);
            let file = inode.and_then(|inode| inode.file_known());
            if let Some(error) = file.and_then(|file| file.errors.report()) {
                write_errors.add(*fid, error);
            }
        }
        write_errors
    }
}

#[cfg(test)]
mod tests {
    use base::Tick;

    use super::*;

    const DIR: Fid = Fid(7);
    const FILE: Fid = Fid(8);

    fn cache() -> Cache {
        Cache::new(Arc::new(AtomicU64::new(0)))
    }

    #[test]
    fn an_answer_is_current_until_something_of_its_directory_is_withdrawn() {
        let mut cache = cache();
        let mark = cache.mark(DIR);
        cache.withdraw();
        cache.withdraw_from(FILE);
        assert!(cache.is_current(mark), "that was of another");
        cache.withdraw_from(DIR);
        assert!(!cache.is_current(mark) && cache.is_current(cache.mark(DIR)));
        let mark = cache.mark(DIR);
        cache.withdraw_from(DIR);
        cache.drop_inode(DIR);
        assert!(
            !cache.is_current(mark),
            "also when it is not known any more"
        );
        let mark = cache.mark(DIR);
        assert_eq!(cache.withdraw_from_all(), cache.stamp());
        assert!(!cache.is_current(mark));
    }

    #[test]
    fn an_answer_is_current_but_for_the_entries_that_were_withdrawn() {
        let mut cache = cache();
        let withdrawn = |child| {
            let (bits, name) = (Bits::CHILD, None);
            Withdrawn { bits, name, child }
        };
        let mark = cache.mark(DIR);
        cache.withdraw_entry(DIR, withdrawn(FILE));
        assert!(!cache.is_current(mark) && !cache.is_child_current(mark, FILE));
        assert!(cache.is_child_current(mark, Fid(9)));
        let later = cache.mark(DIR);
        assert!(cache.is_child_current(later, FILE));
        cache.withdraw_from(DIR);
        assert!(!cache.is_child_current(mark, Fid(9)) && cache.withdrawn_since(later).is_none());
        let mark = cache.mark(DIR);
        cache.drop_inode(DIR);
        cache.withdraw_entry(DIR, withdrawn(FILE));
        assert!(cache.is_child_current(mark, Fid(9)));
        cache.drop_inode(DIR);
        assert!(
            !cache.is_child_current(mark, Fid(9)),
            "of which is not known"
        );
    }

    #[test]
    fn what_is_lost_of_a_file_is_told_once_although_the_file_is_dropped() {
        let mut cache = cache();
        cache.with_pages(FILE, |file| file.pages.write(0, b"lost", Tick(0)));
        cache.drop_unused_file(FILE, false);
        assert!(cache.file_known(FILE).is_some(), "it has bytes to send");
        cache.with_pages(FILE, FileState::lose_unwritten);
        assert_eq!(cache.dirty_bytes(), 0);
        cache.drop_unused_file(FILE, true);
        assert!(cache.file_known(FILE).is_some(), "a lock is held");
        cache.drop_unused_file(FILE, false);
        assert!(cache.file_known(FILE).is_none() && cache.is_unused(FILE));
        assert_eq!(cache.take_write_errors().len(), 1);
        assert_eq!(cache.take_write_errors().len(), 0);
    }

    #[test]
    fn a_file_may_be_removed_while_a_call_removes_its_name_or_an_unknown_one() {
        let mut cache = cache();
        cache.begin_blind_removal();
        assert!(cache.may_be_removed(FILE));
        cache.end_blind_removal();
        assert!(!cache.may_be_removed(FILE));
        cache.inode(FILE).begin_losing_name();
        assert!(cache.may_be_removed(FILE) && !cache.may_be_removed(DIR));
    }

    #[test]
    fn a_name_is_stale_until_the_kernel_has_forgotten_it() {
        let mut cache = cache();
        let name = Name::new(b"name").expect("a good name");
        assert!(!cache.begin_invalidation(DIR, &name, FILE));
        assert!(cache.has_stale_names(FILE));
        assert_eq!(cache.names_invalidated(FILE), [(DIR, name.clone())]);
        cache.end_invalidation(DIR, name, FILE);
        assert!(!cache.has_stale_names(FILE) && cache.names_invalidated(FILE).is_empty());
    }
}
