//! What comes with answers of servers: locks, and what they cover. An answer to what was asked before
//! something was withdrawn, or before its server restarted, brings less.

use std::collections::HashSet;

use base::{Fid, LockHandle, Name, TargetIndex};
use dlm::{Bits, Mode};
use wire::FileKind;
use wire::attr::{Cover, DirState, Grant, Node};
use wire::mdt::{DirEntry, Lease, Page};
use wire::ost::ObjectAttr;

use super::State;
use crate::cache::bits::{EXCLUSIVE, own_bits};
use crate::cache::cached_attr::Covered;
use crate::cache::holder::Holder;
use crate::cache::stamps::{AskedExtent, Mark};

/// How much of a page is covered.
pub(crate) struct PageCover {
    /// The list, and the directory's own attributes.
    pub list: bool,
    /// The names that are not.
    pub outside: HashSet<Name>,
}

impl State {
    /// The servers were told that what the process before left is in order. Its locks are gone, and
    /// so are those that came with answers to what was asked before now.
    pub fn settle(&mut self, osts: impl Iterator<Item = TargetIndex>) {
        self.void_answers();
        osts.for_each(|target| self.void_extents(target));
        self.locks.settle();
    }

    /// A lock came with an answer to what was asked at `mark`. False: the answer is to be used once, as with
    /// [`Locks::take_grant`]. If that was before the MDT restarted,
    /// nobody knows here which of its boots granted the lock: it is given back unseen, or the boot
    /// that is now would wait for it.
    pub fn take_asked(&mut self, grant: &Grant, mark: Mark) -> bool {
        match self.servers.is_of_this_boot(mark) {
            true => self.locks.take_grant(grant),
            false => {
                self.locks.refuse(Holder::Mdt, grant.handle);
                false
            }
        }
    }

    /// The MDT has restarted, or given up on this client. What it was asked before is void, and so
    /// are the locks that came with it, also where nothing was known of a directory.
    pub fn void_answers(&mut self) {
        let stamp = self.cache.withdraw_from_all();
        self.servers.void_answers(stamp);
    }

    /// The MDT has given up on this client: others may have changed since what it held.
    pub fn void_changes(&mut self) {
        self.servers.void_changes(self.cache.stamp());
    }

    /// Answers of the OST's boot before bring no locks.
    pub fn void_extents(&mut self, target: TargetIndex) {
        self.cache.withdraw();
        self.servers.void_extents(target, self.cache.stamp());
    }

    /// It was asked for in the OST's present boot, and its lock is this process's.
    pub fn is_extent_current(&self, target: TargetIndex, asked: AskedExtent) -> bool {
        self.locks.is_settled() && self.servers.is_of_this_boot_of(target, asked)
    }

    /// The lease that came with an answer covers `bits` of the directory.
    pub fn take_lease(&mut self, lease: &Lease, bits: Bits, mark: Mark) -> bool {
        let Lease::Held(grant) = lease else {
            return false;
        };
        let held = grant.fid == mark.dir && self.take_asked(grant, mark);
        held && self.cache.is_current(mark) && self.locks.holds(mark.dir, bits)
    }

    /// A page came that was asked for at `mark`. `None`: no lease came with it, it is to be used once.
    pub fn take_page_lease(&mut self, page: &Page, mark: Mark) -> Option<PageCover> {
        let Lease::Held(grant) = &page.lease else {
            return None;
        };
        let dir = mark.dir;
        let held = grant.fid == dir && self.take_asked(grant, mark);
        if !held || !self.locks.holds(dir, Bits::NAMES) {
            return None;
        }
        let outside = page.entries.iter().filter(|entry| entry.is_outside);
        let mut cover = PageCover {
            list: page.covers_list && self.locks.holds(dir, Bits::LIST),
            outside: outside.map(|entry| entry.name.clone()).collect(),
        };
        for entry in self.cache.withdrawn_since(mark)? {
            cover.list &= !entry.bits.overlaps(Bits::LIST);
            cover.outside.extend(entry.name.clone());
        }
        // Without one of its names it is none.
        cover.list &= cover.outside.is_empty();
        Some(cover)
    }

    /// Attributes came in an answer about a child of the mark's directory.
    pub fn take_node(&mut self, node: &Node, mark: Mark) {
        let dir = mark.dir;
        let owned = self.take_cover(node, mark);
        // A lock of a directory's own stays when something in the directory is withdrawn.
        let own = Mark {
            dir: node.fid,
            ..mark
        };
        let is_directory = node.attr.kind == FileKind::Directory;
        let owned = owned && (!is_directory || self.cache.is_current(own));
        // Of a lock that came to nobody's use this is so by one that came before.
        let has_mode = matches!(node.cover, Cover::Own(_))
            && self.servers.is_of_this_boot(mark)
            && self.locks.holds(node.fid, Bits::PERM);
        let child_epoch = match node.cover {
            Cover::Parent
                if dir != node.fid
                    && self.cache.is_child_current(mark, node.fid)
                    && self.locks.holds(dir, Bits::CHILD) =>
            {
                self.cache.child_epoch(dir)
            }
            _ => None,
        };
        if child_epoch.is_some() {
            self.cache.inode(dir).directory().outside.remove(&node.fid);
        }
        // Of its names, or of itself, more is known here.
        let edits = self.births.edits();
        let is_known = self.births.are_in(node.fid) || edits.is_amended(node.fid);
        if edits.is_removed(node.fid) || (is_known && self.attr_valid(node.fid)) {
            return;
        }
        let has_moved = edits.move_of(node.fid).is_some();
        let inode = self.cache.inode(node.fid);
        // Since an older answer was asked for, the file may have moved elsewhere.
        let is_older = inode.attrs.are_newer_than(&node.attr);
        if dir != Fid::NONE && dir != node.fid && !is_older {
            inode.seen_in(dir);
        }
        // Under the EX lock the truth is here, but for what only the MDT changes.
        if inode.is_exclusive() && inode.attrs.take_beside_own(&node.attr) {
            return;
        }
        let covered = match (owned, child_epoch) {
            (true, _) => Covered::Own,
            (false, Some(child_epoch)) => Covered::Parent { child_epoch },
            (false, None) if node.cover == Cover::None => Covered::Refused,
            (false, None) if has_mode => Covered::Mode,
            (false, None) => Covered::No,
        };
        let mut attr = node.attr.clone();
        if let Some(known) = inode.attrs.known().filter(|_| has_moved) {
            attr.ctime = attr.ctime.later(known.ctime);
        }
        if inode.attrs.take_covered(attr, covered) && !node.attr.has_xattrs {
            inode.forget_xattrs();
        }
    }

    /// A list of the mark's directory has the file, and does not bring its attributes. The file may have
    /// moved elsewhere since the list was asked for.
    pub fn take_listed(&mut self, entry: &DirEntry, mark: Mark) {
        if !self.cache.may_have_changed(mark, &entry.name) {
            self.cache.inode(entry.fid).seen_in(mark.dir);
        }
    }

    /// The file is this client's alone again, as it was before the MDT restarted: the truth about it
    /// is here.
    pub fn regain(&mut self, grant: &Grant, node: &Node, mark: Mark) {
        let file = self.cache.file(node.fid);
        file.locks.grant_exclusive(grant.handle);
        file.waiters.wake_all();
        self.take_node(node, mark);
        let is_held = self.locks.holds(node.fid, own_bits(node.attr.kind));
        match is_held {
            true => self.cache.inode(node.fid).attrs.own_lock_granted(),
            // It is called back already.
            false => drop(self.lose_exclusive(node.fid)),
        }
    }

    /// The EX lock on the inode is gone, if there was one, and what it covered is valid no more. The
    /// bytes are left to the caller.
    pub fn lose_exclusive(&mut self, fid: Fid) -> Option<LockHandle> {
        self.cache.known_mut(fid)?.lose_exclusive()
    }

    /// Attributes after a change of this client's own: what covered them before still does. Changes made
    /// here since are newer.
    pub fn take_changed(&mut self, node: &Node, mark: Mark) {
        let fid = node.fid;
        let is_exclusive = self
            .cache
            .known(fid)
            .is_some_and(|inode| inode.is_exclusive());
        let is_amended = self.births.edits().is_amended(fid);
        let stays = !is_exclusive && !is_amended;
        let is_valid = stays && self.attr_valid(fid) && self.cache.is_current(mark);
        match (is_valid, &node.cover) {
            (true, Cover::None | Cover::Parent) => {
                self.cache.inode(fid).attrs.take(node.attr.clone());
            }
            _ => self.take_node(node, mark),
        }
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
            let file = self.cache.file(node.fid);
            // Later answers tell of the same lock; then what is known here is newer.
            if file.locks.exclusive() != Some(grant.handle) {
                file.locks.grant_exclusive(grant.handle);
                file.object.learn(known);
            }
        }
        self.locks.holds(node.fid, own_bits(node.attr.kind))
    }

    /// A directory's attributes after an operation of this client in it. False: no lease covers its
    /// names, or a withdrawal has overtaken the answer, so what it says of names is not to be kept.
    pub fn take_dir(&mut self, dir: &DirState, mark: Mark) -> bool {
        // Version zero: others are changing the directory too, nothing here covers it.
        let current = self.cache.is_current(mark) && dir.version != 0;
        let is_all = current && !self.births.are_in(dir.fid);
        let attrs = &mut self.cache.inode(dir.fid).attrs;
        if attrs.take(dir.attr.clone()) && !is_all {
            attrs.cover_lost();
        }
        // What no lease covers is not to be kept: a lease that comes later would not make it true.
        current && self.locks.holds(dir.fid, Bits::NAMES)
    }

    /// A directory's attributes came with a lease on it.
    pub fn take_leased_dir(&mut self, dir: &DirState, lease_holds_attr: bool) {
        let covered = match lease_holds_attr {
            true => Covered::Own,
            false => Covered::No,
        };
        // Of its names more is known here.
        if self.births.are_in(dir.fid) && self.attr_valid(dir.fid) {
            return;
        }
        let inode = self.cache.inode(dir.fid);
        inode.attrs.take_covered(dir.attr.clone(), covered);
    }
}

#[cfg(test)]
#[path = "answers_tests.rs"]
mod tests;
