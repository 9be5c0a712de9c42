//! Everything this mount knows: one state under one lock, which is held for microseconds and never across
//! a wait.

pub(crate) mod bound;
mod durability;
mod uses;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{BootEpoch, Fid, FsError, LockHandle, TargetIndex, Tick, Timestamp, Transno};
use dlm::{Bits, Mode};
use handover::{Record, Records};
use wire::attr::{Cover, DirState, Grant, Node, SizeState};
use wire::mdt::{Lease, SizeUpdate, Space};
use wire::ost::ObjectAttr;
use wire::{Attr, FileKind};

use crate::cache::ahead::Sized;
use crate::cache::attributes::merge_object;
use crate::cache::bits::{EXCLUSIVE, own_bits};
use crate::cache::directory::Directory;
use crate::cache::ending::EndingUses;
use crate::cache::file::FileState;
use crate::cache::holder::Holder;
use crate::cache::inode::{Covered, Inode};
use crate::cache::invalidations::PendingInvalidations;
use crate::cache::local_changes::{LocalChange, LocalChanges, NameChange};
use crate::cache::stamps::{AskedExtent, Mark};
use crate::cache::write_errors::WriteErrors;
use crate::executor::WaitList;
use crate::journal::failures::Failures;
use crate::journal::nodes::FurtherNode;
use crate::journal::record::{self, CHANGE, ChangeBody, NODE};
use crate::journal::written::{WrittenBefore, remember_written};
use crate::policy::pending_updates::PendingUpdates;
use crate::policy::statahead::files::Files;
use crate::policy::statahead::name_order::NameOrder;
use crate::policy::statahead::sequences::SequencePatterns;
use crate::policy::statahead::sizes::Sizes;
use crate::policy::statahead::tree::Trees;
use crate::policy::writeback::WriteBack;
use crate::session::handles::Handles;
use crate::session::locks::Locks;

/// Everything this mount knows.
pub(crate) struct State {
    /// Boxed, so that the map's empty places cost little.
    inodes: HashMap<Fid, Box<Inode>>,
    /// What was done to names here.
    pub changes: LocalChanges,
    /// Names that the kernel is still to forget.
    pub invalidations: PendingInvalidations,
    pub locks: Locks,
    pub handles: Handles,
    /// What is to be sent, settled, closed and told.
    pub writeback: WriteBack,
    /// Changes that are being told to the MDT.
    pub pending_updates: PendingUpdates,
    /// Bytes written here and not yet sent, over all files.
    pub dirty_bytes: u64,
    /// Memory that bytes of files take here.
    pub cached_bytes: u64,
    /// Writers that wait until less is unsent.
    pub room: WaitList,
    /// Frames with file data on their way.
    pub frames_writing: u32,
    /// Files kept for what a call will ask next of what it has just looked up, and since when.
    pub pinned: Vec<(Tick, Fid)>,
    /// Calls of this client under way that remove names of files not known by those.
    pub blind_removals: u32,
    /// What the servers said of space, and when they were asked.
    pub space: Option<(Tick, Space)>,
    /// One past the last byte that an object can have, at each OST that was asked.
    pub size_limits: BTreeMap<TargetIndex, u64>,
    /// Of files that are not in use any more.
    pub write_errors: WriteErrors,
    /// Uses of files that others wait for to end.
    pub ending_uses: EndingUses,
    /// Calls that look again when a moment has passed.
    pub moments: WaitList,
    /// Targets that gave up the process before this one, as long as the kernel may write back what was
    /// stored under their locks.
    pub inherited_evictions: Vec<Holder>,
    /// Up to where each OST has said that its changes are durable. A new life goes on above that.
    pub durable: BTreeMap<TargetIndex, Transno>,
    /// Walks of trees.
    pub trees: Trees,
    /// Readers of small files.
    pub files: Files,
    /// Numbered names that are asked for in order.
    pub sequences: SequencePatterns,
    /// Directories with long lists.
    long: BTreeSet<Fid>,
    /// Not before there are more files than this are all of them looked at for what may go.
    crowded_at: usize,
    /// Readers who want sizes that only OSTs know.
    pub sizes: Sizes,
    /// Directories that are gone through by name.
    pub name_order: NameOrder,
    /// The newest stamp of a withdrawal from a directory that is not known any more.
    dropped_withdrawn: u64,
    /// The stamp when the MDT's present life began for this client.
    voided: u64,
    /// The stamp when the MDT last gave up on this client.
    evicted: u64,
    /// The stamp when each OST's present life began for this client.
    extents_voided: BTreeMap<TargetIndex, u64>,
    /// The life that each OST lives, since it is known here.
    lives: BTreeMap<TargetIndex, BootEpoch>,
    /// The same of the MDT.
    pub mdt_life: BootEpoch,
    /// Grows whenever something cached is withdrawn: an answer prepared before is used once.
    stamp: Arc<AtomicU64>,
    /// Where what the next process needs is remembered.
    pub records: Option<Records>,
    /// Of each file that the kernel knows.
    pub nodes: HashMap<Fid, Record>,
    /// Further nodes of directories in the kernel, which the process before had made.
    pub inherited_nodes: Vec<FurtherNode>,
    /// The next write's place in the order of all.
    pub write_order: u64,
    /// Requests of the kernel whose bytes a process before had written, and perhaps not said so.
    pub written_before: WrittenBefore,
    /// The same for changes of size or space, with what is kept until they are answered.
    pub resized_for: HashMap<u64, record::Noted>,
    /// What the process before left is not in order yet: no lock is this one's.
    pub unsettled: bool,
    /// Locks that came meanwhile.
    unkept: Vec<(Holder, LockHandle)>,
    /// How many files were looked at.
    #[cfg(test)]
    pub looked_at: std::cell::Cell<usize>,
}

impl State {
    /// `stamp` is read without the state's lock by those who hand answers over.
    pub fn new(locks: Locks, stamp: Arc<AtomicU64>) -> State {
        State {
            inodes: HashMap::new(),
            changes: LocalChanges::default(),
            invalidations: PendingInvalidations::default(),
            locks,
            handles: Handles::default(),
            writeback: WriteBack::default(),
            pending_updates: PendingUpdates::default(),
            dirty_bytes: 0,
            cached_bytes: 0,
            room: WaitList::default(),
            frames_writing: 0,
            pinned: Vec::new(),
            blind_removals: 0,
            space: None,
            size_limits: BTreeMap::new(),
            write_errors: WriteErrors::default(),
            ending_uses: EndingUses::default(),
            moments: WaitList::default(),
            inherited_evictions: Vec::new(),
            durable: BTreeMap::new(),
            trees: Trees::default(),
            files: Files::default(),
            sequences: SequencePatterns::default(),
            long: BTreeSet::new(),
            crowded_at: 0,
            sizes: Sizes::default(),
            name_order: NameOrder::default(),
            dropped_withdrawn: 0,
            voided: 0,
            evicted: 0,
            extents_voided: BTreeMap::new(),
            lives: BTreeMap::new(),
            mdt_life: BootEpoch(0),
            stamp,
            records: None,
            nodes: HashMap::new(),
            inherited_nodes: Vec::new(),
            write_order: 0,
            written_before: WrittenBefore::default(),
            resized_for: HashMap::new(),
            unsettled: false,
            unkept: Vec::new(),
            #[cfg(test)]
            looked_at: std::cell::Cell::default(),
        }
    }

    /// Remembers from now on.
    pub fn remember_in(&mut self, records: Records) {
        self.handles.records = Some(records.clone());
        self.records = Some(records);
    }

    /// The kernel is about to have one more reference to `fid`.
    pub fn refer(&mut self, fid: Fid) {
        self.inode(fid).lookups += 1;
        self.note_lookups(fid);
    }

    /// Another number of references to `fid` is with the kernel.
    pub fn note_lookups(&mut self, fid: Fid) {
        let Some(records) = &self.records else {
            return;
        };
        let lookups = self.inodes.get(&fid).map_or(0, |inode| inode.lookups);
        match (lookups, self.nodes.get(&fid)) {
            (0, _) => drop(self.nodes.remove(&fid)),
            (_, Some(node)) => node.set_mark(lookups),
            (_, None) => {
                let node = record::put(records, NODE, lookups, &record::encode(&fid));
                self.nodes.extend(node.map(|node| (fid, node)));
            }
        }
    }

    /// Remembers bytes that a program wrote. False: there is no room to, they must be sent at once.
    pub fn remember_bytes(&mut self, fid: Fid, mtime: Timestamp, at: u64, data: &[u8]) -> bool {
        let Some(records) = &self.records else {
            return true;
        };
        let (records, order) = (records.clone(), self.write_order);
        self.write_order += 1;
        let file = self.file(fid);
        file.remembered
            .wrote(&records, (fid, mtime, order), at, data)
    }

    /// Remembers what of the attributes was changed under the EX lock.
    pub fn remember_change(&mut self, fid: Fid) {
        self.writeback.is_changed(fid);
        let Some(records) = self.records.clone() else {
            return;
        };
        let order = self.write_order;
        self.write_order += 1;
        let life = self.mdt_life;
        let file = self.file(fid);
        if let Some(under) = file.exclusive {
            let change = file.changed.clone();
            let body = ChangeBody {
                fid,
                under,
                life,
                change,
                order,
            };
            // The new one is there before the old one goes.
            let body = record::encode(&body);
            file.remembered_change = record::put(&records, CHANGE, 0, &body);
        }
    }

    /// For tests of how many files something looks at.
    fn counts_look(&self) {
        #[cfg(test)]
        self.looked_at.set(self.looked_at.get() + 1);
    }

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
        self.inode(fid).file.get_or_insert_default()
    }

    /// The file's open state, if it has one.
    pub fn file_known(&mut self, fid: Fid) -> Option<&mut FileState> {
        self.counts_look();
        self.inodes.get_mut(&fid)?.file.as_deref_mut()
    }

    /// Files whose bytes a target had covered that gave up the process before this one. Of an MDT those
    /// that can be written: which of them it had given to this client alone nobody remembers.
    pub fn take_lapsed(&mut self) -> Vec<Fid> {
        let holders = std::mem::take(&mut self.inherited_evictions);
        let mut fids = self.fids();
        fids.retain(|fid| {
            let ost = self.ost(*fid);
            let file = self.file_known(*fid);
            file.is_some_and(|file| file.writers > 0)
                && holders.iter().any(|holder| match holder {
                    Holder::Mdt => true,
                    Holder::Ost(target) => ost.is_none_or(|ost| ost == *target),
                })
        });
        fids
    }

    /// Bytes that OSTs do not have, and those that they may yet lose.
    pub fn unsettled_bytes(&mut self) -> (u64, u64) {
        let fids: Vec<Fid> = self.writeback.uncommitted().collect();
        let files = fids.into_iter().filter_map(|fid| {
            let file = self.file_known(fid)?;
            Some(file.pages.undurable_bytes())
        });
        let undurable = files.sum();
        (self.dirty_bytes, undurable)
    }

    /// Changes a file's bytes and keeps the sum of what is unsent.
    pub fn with_pages<R>(&mut self, fid: Fid, change: impl FnOnce(&mut FileState) -> R) -> R {
        let file = self
            .inodes
            .entry(fid)
            .or_default()
            .file
            .get_or_insert_default();
        let before = (file.pages.dirty_bytes(), file.pages.cached_bytes());
        let result = change(file);
        file.forget_settled(fid, self.records.as_ref());
        let after = file.pages.dirty_bytes();
        self.cached_bytes = self.cached_bytes + file.pages.cached_bytes() - before.1;
        self.dirty_bytes = self.dirty_bytes + after - before.0;
        self.note(fid);
        result
    }

    /// Something was done to the file's bytes, or became durable.
    pub fn note(&mut self, fid: Fid) {
        if let Some(inode) = self.inodes.get(&fid)
            && let Some(file) = &inode.file
        {
            self.writeback.note(fid, inode.ost(), file);
        }
    }

    /// Every file with open state.
    pub fn files(&self) -> impl Iterator<Item = (Fid, &FileState)> {
        let known = self.inodes.iter();
        known.filter_map(|(fid, inode)| Some((*fid, inode.file.as_deref()?)))
    }

    /// Of files in use of which something could not be written, and nobody was told: what went wrong.
    /// It counts as reported hereby.
    pub fn report_failures(&mut self) -> Vec<(Fid, FsError)> {
        let mut found = Vec::new();
        for (fid, inode) in &mut self.inodes {
            let failures = inode.file.as_mut().map(|file| &mut file.failures);
            found.extend(
                failures
                    .and_then(Failures::report)
                    .map(|error| (*fid, error)),
            );
        }
        found
    }

    /// Every file known.
    pub fn fids(&self) -> Vec<Fid> {
        self.inodes.keys().copied().collect()
    }

    /// How many files are known.
    pub fn len(&self) -> usize {
        self.inodes.len()
    }

    /// Drops the file if nothing needs it.
    pub fn drop_if_idle(&mut self, fid: Fid) {
        let Some(inode) = self.inodes.get_mut(&fid) else {
            return;
        };
        let locked = self.locks.has_extents(fid);
        if let Some(file) = inode.file.take_if(|file| file.is_idle() && !locked) {
            self.cached_bytes -= file.pages.cached_bytes();
            if let Some(error) = file.failures.unreported() {
                self.write_errors.add(fid, error);
            }
        }
        // Attributes of a file the kernel has dropped are kept while a lease still covers them:
        // they are what the next lookup wants. A directory goes with its own lock.
        let covered = !matches!(inode.covered, Covered::No | Covered::Refused);
        if inode.is_idle() && !covered && !self.locks.holds_any(fid) {
            self.drop_inode(fid);
        }
    }

    fn drop_inode(&mut self, fid: Fid) {
        let directory = self.inodes.remove(&fid).and_then(|inode| inode.directory);
        if directory.is_some() {
            self.long.remove(&fid);
        }
        let withdrawn = directory.map_or(0, |directory| directory.withdrawn);
        self.dropped_withdrawn = self.dropped_withdrawn.max(withdrawn);
    }

    /// Something of a directory is withdrawn: what is on its way about it teaches nothing.
    pub fn withdraw_from(&mut self, dir: Fid) -> &mut Directory {
        self.withdraw();
        let stamp = self.stamp();
        let directory = self.inode(dir).directory();
        directory.withdrawn = stamp;
        directory
    }

    /// The attributes of `fid` are valid now.
    pub fn attr_valid(&self, fid: Fid) -> bool {
        let Some(inode) = self.inodes.get(&fid) else {
            return false;
        };
        let Some(attr) = &inode.attr else {
            return false;
        };
        // While a name is stale, the kernel must ask at each use.
        if inode.has_stale_names() {
            return false;
        }
        match inode.covered {
            Covered::No | Covered::Refused | Covered::Mode => false,
            Covered::Own => self.locks.holds(fid, own_bits(attr.kind)),
            Covered::Parent { child_epoch } => {
                let dir = inode.dir();
                self.locks.holds(dir, Bits::CHILD) && self.child_epoch(dir) == Some(child_epoch)
            }
        }
    }

    /// The mode and owner of `fid` are valid now, and whether it has extended attributes.
    pub fn mode_valid(&self, fid: Fid) -> bool {
        let known = self.inodes.get(&fid);
        let is_held = known.is_some_and(|inode| inode.covered == Covered::Mode)
            && self.locks.holds(fid, Bits::PERM);
        is_held || self.attr_valid(fid)
    }

    /// The attributes of `fid` with its size are valid now, and stay so until somebody is told. A size
    /// fetched ahead may be that of a lock which is being given back: it is right, but the kernel
    /// has been told to forget it already.
    pub fn stat_valid(&self, fid: Fid) -> bool {
        let file = self.inodes.get(&fid).and_then(|inode| inode.file.as_ref());
        let stays = file.is_none_or(|file| {
            file.sized == Sized::No || file.exclusive.is_some() || self.locks.holds_to_eof(fid)
        });
        stays && self.attr_valid(fid)
    }

    /// The kernel may keep the attributes for as long as [`State::stat_valid`]: not while space is an
    /// estimate.
    pub fn stat_stays(&self, fid: Fid) -> bool {
        let file = self.inodes.get(&fid).and_then(|inode| inode.file.as_ref());
        self.stat_valid(fid) && !file.is_some_and(|file| file.is_unsent())
    }

    /// The blocks that the file's OST is known to have for it, without those for unsent bytes.
    pub fn stored_blocks(&self, fid: Fid) -> Option<u64> {
        let inode = self.inodes.get(&fid).filter(|_| self.stat_valid(fid))?;
        match &inode.file {
            Some(file) if file.exclusive.is_some() || self.locks.reaches_eof(fid) => {
                Some(file.known.blocks)
            }
            _ => {
                let attr = inode.attr.as_ref();
                attr.filter(|attr| attr.size_state == SizeState::Strict)
                    .map(|attr| attr.blocks)
            }
        }
    }

    /// A call of this client may be removing the file.
    pub fn may_be_removed(&self, fid: Fid) -> bool {
        self.blind_removals > 0 || self.known(fid).is_some_and(Inode::is_losing_names)
    }

    fn child_epoch(&self, dir: Fid) -> Option<u64> {
        self.inodes
            .get(&dir)?
            .directory
            .as_ref()
            .map(|d| d.child_epoch)
    }

    /// The attributes, if valid.
    pub fn attr(&self, fid: Fid) -> Option<&Attr> {
        self.attr_valid(fid)
            .then(|| self.inodes.get(&fid)?.attr.as_ref())
            .flatten()
    }

    /// A lock came with a reply. False: it is being called back already, use the reply once.
    pub fn take_grant(&mut self, grant: &Grant) -> bool {
        if self.unsettled {
            self.refuse(Holder::Mdt, grant.handle);
            return false;
        }
        self.locks.granted(grant)
    }

    /// A lock came that nobody may count on. Where this process is not settled it may be one that the
    /// process before had, under which its changes are yet to be told: it is given back later. The
    /// server takes back all that it gave before it hears that this process is settled, but none that
    /// it gave since.
    pub fn refuse(&mut self, holder: Holder, handle: LockHandle) {
        match self.unsettled {
            true => self.unkept.push((holder, handle)),
            false => self.locks.refused(holder, handle),
        }
    }

    /// The servers were told that what the process before left is in order. Its locks are gone, and
    /// so are those that came with answers to what was asked before now.
    pub fn settle(&mut self, osts: impl Iterator<Item = TargetIndex>) {
        self.void_answers();
        osts.for_each(|target| self.void_extents(target));
        self.unsettled = false;
        for (holder, handle) in std::mem::take(&mut self.unkept) {
            self.locks.refused(holder, handle);
        }
    }

    /// The same with an answer to what was asked at `mark`. If that was before the MDT restarted,
    /// nobody knows here which of its lives granted the lock: it is given back unseen, or the life
    /// that is now would wait for it.
    pub fn take_asked(&mut self, grant: &Grant, mark: Mark) -> bool {
        let is_known = self.is_of_this_life(mark);
        match is_known {
            true => self.take_grant(grant),
            false => {
                self.refuse(Holder::Mdt, grant.handle);
                false
            }
        }
    }

    /// To be taken before a question about `dir` is sent, and given with its answer.
    pub fn mark(&self, dir: Fid) -> Mark {
        Mark {
            dir,
            asked: self.stamp(),
            changes: self.changes.count(),
        }
    }

    /// A call of this mount changed a name. `current`: a lease covers that.
    pub fn name_changed(&mut self, dir: Fid, name_change: NameChange, current: bool) {
        let change = LocalChange {
            name_change,
            current,
        };
        self.changes.push(dir, change.clone());
        self.inode(dir).directory().changed(change);
    }

    /// Nothing of the directory was withdrawn since the question was asked.
    pub fn is_current(&self, mark: Mark) -> bool {
        let inode = self.inodes.get(&mark.dir);
        let directory = inode.and_then(|inode| inode.directory.as_ref());
        let withdrawn = directory.map_or(0, |directory| directory.withdrawn);
        withdrawn.max(self.dropped_withdrawn) <= mark.asked
    }

    /// The MDT has restarted, or given up on this client. What it was asked before is void, and so
    /// are the locks that came with it, also where nothing was known of a directory.
    pub fn void_answers(&mut self) {
        self.withdraw();
        self.voided = self.stamp();
        self.dropped_withdrawn = self.voided;
    }

    /// The MDT has given up on this client: others may have changed since what it held.
    pub fn void_changes(&mut self) {
        self.evicted = self.stamp();
    }

    /// Answers of the OST's life before bring no locks.
    pub fn void_extents(&mut self, target: TargetIndex) {
        self.withdraw();
        let now = self.stamp();
        self.extents_voided.insert(target, now);
    }

    /// One past the last byte that the file can have, as far as that is known.
    pub fn size_limit(&self, fid: Fid) -> Option<u64> {
        self.size_limits.get(&self.ost(fid)?).copied()
    }

    /// Bytes are sent to this life of the OST from now on, which may be in another place.
    pub fn begin_life(&mut self, target: TargetIndex, life: BootEpoch) {
        self.size_limits.remove(&target);
        self.lives.insert(target, life);
    }

    /// Bytes are sent to this life of the OST already.
    pub fn is_life_of(&self, target: TargetIndex, life: BootEpoch) -> bool {
        self.lives.get(&target) == Some(&life)
    }

    /// The life of the file's OST; zero: none was met yet, so none before it can have had anything.
    pub fn life_of(&self, fid: Fid) -> BootEpoch {
        let life = self.ost(fid).and_then(|target| self.lives.get(&target));
        life.copied().unwrap_or(BootEpoch(0))
    }

    /// A lock on the file's bytes is about to be asked for.
    pub fn asks_extent(&mut self, fid: Fid) -> AskedExtent {
        AskedExtent {
            written: self.file(fid).written,
            stamp: self.stamp(),
        }
    }

    /// It was asked for in the OST's present life.
    pub fn is_extent_current(&self, target: TargetIndex, asked: AskedExtent) -> bool {
        !self.unsettled && self.is_of_this_life_of(target, asked)
    }

    /// The same, also before what the process before left is in order.
    pub fn is_of_this_life_of(&self, target: TargetIndex, asked: AskedExtent) -> bool {
        let voided = self.extents_voided.get(&target);
        voided.is_none_or(|voided| asked.stamp >= *voided)
    }

    /// What was changed here by then was not lost by an eviction since.
    pub fn may_report(&self, mark: Mark) -> bool {
        mark.asked >= self.evicted
    }

    /// What was asked at `mark` was asked of the life that the MDT has now.
    pub fn is_of_this_life(&self, mark: Mark) -> bool {
        mark.asked >= self.voided
    }

    /// The lease that came with an answer covers `bits` of the directory.
    pub fn take_lease(&mut self, lease: &Lease, bits: Bits, mark: Mark) -> bool {
        let Lease::Held(grant) = lease else {
            return false;
        };
        let held = grant.fid == mark.dir && self.take_asked(grant, mark);
        held && self.is_current(mark) && self.locks.holds(mark.dir, bits)
    }

    /// Attributes came in an answer about a child of the mark's directory.
    pub fn take_node(&mut self, node: &Node, mark: Mark) {
        let dir = mark.dir;
        let owned = self.take_cover(node, mark);
        // Of a lock that came to nobody's use this is so by one that came before.
        let has_mode = matches!(node.cover, Cover::Own(_))
            && self.is_of_this_life(mark)
            && self.locks.holds(node.fid, Bits::PERM);
        let child_epoch = match node.cover {
            Cover::Parent
                if dir != node.fid
                    && self.is_current(mark)
                    && self.locks.holds(dir, Bits::CHILD) =>
            {
                self.child_epoch(dir)
            }
            _ => None,
        };
        let inode = self.inodes.entry(node.fid).or_default();
        if dir != Fid::NONE && dir != node.fid {
            inode.seen_in(dir);
        }
        // Under the EX lock the truth is here, but for what only the MDT changes.
        if let (true, Some(attr)) = (inode.is_exclusive(), inode.attr.as_mut()) {
            if node.attr.version >= attr.version {
                attr.nlink = node.attr.nlink;
                attr.has_xattrs = node.attr.has_xattrs;
                attr.ctime = attr.ctime.later(node.attr.ctime);
                attr.version = node.attr.version;
            }
            return;
        }
        if !inode.take(node.attr.clone()) {
            return;
        }
        inode.covered = match (owned, child_epoch) {
            (true, _) => Covered::Own,
            (false, Some(child_epoch)) => Covered::Parent { child_epoch },
            (false, None) if node.cover == Cover::None => Covered::Refused,
            (false, None) if has_mode => Covered::Mode,
            (false, None) => Covered::No,
        };
        if !node.attr.has_xattrs {
            inode.set_xattrs(None);
        }
    }

    /// The file is this client's alone again, as it was before the MDT restarted: the truth about it
    /// is here.
    pub fn regain(&mut self, grant: &Grant, node: &Node, mark: Mark) {
        let file = self.file(node.fid);
        file.exclusive = Some(grant.handle);
        file.waiters.wake_all();
        self.take_node(node, mark);
        let is_held = self.locks.holds(node.fid, own_bits(node.attr.kind));
        match is_held {
            true => self.inode(node.fid).covered = Covered::Own,
            // It is called back already.
            false => drop(self.lose_exclusive(node.fid)),
        }
    }

    /// The EX lock on the inode is gone, if there was one, and what it covered is valid no more. The
    /// bytes are left to the caller.
    pub fn lose_exclusive(&mut self, fid: Fid) -> Option<LockHandle> {
        let handle = self.file_known(fid)?.lose_exclusive()?;
        let inode = self.inode(fid);
        inode.covered = Covered::No;
        inode.set_xattrs(None);
        Some(handle)
    }

    /// Takes the lock that came with a node; true if it covers the attributes.
    fn take_cover(&mut self, node: &Node, mark: Mark) -> bool {
        let Cover::Own(grant) = &node.cover else {
            return false;
        };
        if !self.take_asked(grant, mark) {
            return false;
        }
        // What is left of such a lock, after most of it was called back, is not it.
        let is_exclusive = Bits(grant.bits).contains(EXCLUSIVE);
        if is_exclusive && Mode::from_index(grant.mode) == Some(Mode::EX) {
            let attr = &node.attr;
            let known = ObjectAttr {
                size: attr.size,
                blocks: attr.blocks,
                // A time that was set to the future is not one of bytes.
                mtime: attr.mtime.min(attr.mtime_set),
            };
            let file = self.file(node.fid);
            // Later answers tell of the same lock; then what is known here is newer.
            if file.exclusive != Some(grant.handle) {
                file.exclusive = Some(grant.handle);
                file.known = known;
            }
        }
        self.locks.holds(node.fid, own_bits(node.attr.kind))
    }

    /// A directory's attributes after an operation of this client in it. False: no lease covers its
    /// names, or a withdrawal has overtaken the answer, so what it says of names is not to be kept.
    pub fn take_dir(&mut self, dir: &DirState, mark: Mark) -> bool {
        // Version zero: others are changing the directory too, nothing here covers it.
        let current = self.is_current(mark) && dir.version != 0;
        let inode = self.inodes.entry(dir.fid).or_default();
        if inode.take(dir.attr.clone()) && !current {
            inode.covered = Covered::No;
        }
        // What no lease covers is not to be kept: a lease that comes later would not make it true.
        current && self.locks.holds(dir.fid, Bits::NAMES)
    }

    /// A directory's attributes came with a lease on it.
    pub fn take_leased_dir(&mut self, dir: &DirState, lease_holds_attr: bool) {
        let inode = self.inodes.entry(dir.fid).or_default();
        if inode.take(dir.attr.clone()) {
            inode.covered = if lease_holds_attr {
                Covered::Own
            } else {
                Covered::No
            };
        }
    }

    /// The attributes a user sees: the MDT's, with what this client knows of the bytes. `None`
    /// where somebody must be asked for the size.
    pub fn seen(&self, fid: Fid) -> Option<Attr> {
        let inode = self.inodes.get(&fid)?;
        let mut attr = inode.attr.clone()?;
        if attr.kind != FileKind::Regular {
            return Some(attr);
        }
        let Some(file) = &inode.file else {
            return (attr.size_state == SizeState::Strict).then_some(attr);
        };
        if file.exclusive.is_some() || self.locks.reaches_eof(fid) {
            merge_object(&mut attr, file.shown());
            return Some(attr);
        }
        (attr.size_state == SizeState::Strict).then_some(attr)
    }

    /// The attributes with the size as the MDT has it, which may be old. Not for who has it open
    /// here: what the kernel takes for the end of file is where reading ends.
    pub fn known_lazily(&self, fid: Fid) -> Option<Attr> {
        let inode = self.inodes.get(&fid)?;
        let is_open = |file: &FileState| file.readers + file.writers > 0 || !file.is_idle();
        match inode.file.as_deref().is_some_and(is_open) {
            true => None,
            false => inode.attr.clone(),
        }
    }

    /// The kernel may come to the file by a name that is about to go.
    pub fn has_stale_names(&self, fid: Fid) -> bool {
        self.known(fid).is_some_and(Inode::has_stale_names)
    }

    /// The OST that has the file's bytes, once its attributes are known.
    pub fn ost(&self, fid: Fid) -> Option<TargetIndex> {
        self.known(fid).and_then(Inode::ost)
    }

    /// What this client may say of the size: only what its locks let nobody else change.
    pub fn size_to_report(&self, fid: Fid, committed: bool) -> Option<SizeUpdate> {
        let file = self.inodes.get(&fid)?.file.as_ref()?;
        if file.exclusive.is_none() && !self.locks.reaches_eof(fid) {
            return None;
        }
        // Bytes that are lost do not count: the OST knows where those end that are not.
        if file.failures.is_any() {
            return None;
        }
        let ObjectAttr {
            size,
            blocks,
            mtime,
        } = file.shown();
        Some(SizeUpdate {
            size,
            blocks,
            mtime,
            committed,
        })
    }

    /// The time of a change of the file's content, made now. Later than what was set or written
    /// before, also where the MDT's clock, or that of another writer, is ahead of this one. So each
    /// change moves it.
    pub fn content_time(&self, fid: Fid, now: Timestamp) -> Timestamp {
        let Some(inode) = self.inodes.get(&fid) else {
            return now;
        };
        let set = inode.attr.as_ref().map(|attr| attr.mtime_set.next());
        let written = inode.file.as_ref().map(|file| file.known.mtime.next());
        [set, written]
            .into_iter()
            .flatten()
            .fold(now, Timestamp::later)
    }

    /// The last time at which bytes were written, as far as it is known here.
    pub fn last_written(&self, fid: Fid) -> Option<Timestamp> {
        let file = self.inodes.get(&fid)?.file.as_ref()?;
        Some(file.known.mtime).filter(|mtime| *mtime != Timestamp::default())
    }

    /// When it is, in withdrawals.
    pub fn stamp(&self) -> u64 {
        self.stamp.load(Ordering::SeqCst)
    }

    /// Something cached is withdrawn: answers being prepared are used once.
    pub fn withdraw(&mut self) {
        self.stamp.fetch_add(1, Ordering::SeqCst);
    }

    /// What the present task's origin asked for is written, and remembered: it must not be written again.
    pub fn remember_written(&self) {
        if let Some(records) = &self.records {
            remember_written(records);
        }
    }
}
