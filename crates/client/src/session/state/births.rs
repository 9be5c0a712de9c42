//! Files that are made here and told to the MDT later (ADR 19): what is known of them, and their locks.

use base::{Fid, Name, Tick, Timestamp};
use dlm::Bits;
use wire::attr::Grant;
use wire::mdt::SetAttr;
use wire::{Attr, FileKind};

use super::State;
use crate::cache::births::{Birth, Standing};
use crate::cache::bits::EXCLUSIVE;
use crate::cache::cached_attr::Covered;
use crate::cache::holder::Holder;
use crate::cache::listed::Listed;
use crate::cache::local_changes::NameChange;
use crate::cache::stamps::Mark;
use crate::journal::births::BirthBody;
use crate::session::locks::WRITE_LEASE;

/// A file that is made here.
#[derive(Debug, Clone)]
pub(crate) struct NewFile {
    pub fid: Fid,
    pub attr: Attr,
    /// Where the list of its directory has it.
    pub cookie: u64,
    /// Of a symlink.
    pub target: Vec<u8>,
}

/// A place for a name in the list of a directory.
pub(crate) struct Spot {
    dir: Fid,
    name: Name,
    cookie: u64,
}

impl Spot {
    pub fn new((dir, name): (Fid, &Name), cookie: u64) -> Spot {
        let name = name.clone();
        Spot { dir, name, cookie }
    }
}

impl State {
    /// The file that the name leads to, if nobody has heard of it.
    pub fn unreported_at(&self, (dir, name): (Fid, &Name)) -> Option<Fid> {
        let fid = self.cache.directory_of(dir)?.get(name)?.fid;
        let birth = self.births.get(fid)?;
        let is_there = birth.names().any(|known| known == (dir, name));
        (is_there && birth.standing == Standing::Unreported).then_some(fid)
    }

    /// A file that nobody has heard of has this name from now on. What the name led to before is gone, or
    /// gets another at once. The old name is free, unless another file has it by now.
    pub fn rename_birth(&mut self, fid: Fid, from: (Fid, &Name), to: Spot, now: Timestamp) {
        let (dir, name) = from;
        let Some(kind) = self.cache.attr_of(fid).map(|attr| attr.kind) else {
            return;
        };
        self.date_names(dir, now);
        self.births.rename(fid, from, (to.dir, to.name.clone()));
        let links = i32::from(kind == FileKind::Directory);
        let named = self.cache.directory_of(dir).and_then(|dir| dir.get(name));
        if named.is_some_and(|named| named.fid == fid) {
            let gone = NameChange::Removed(name.clone());
            self.cache.name_changed(dir, gone, true);
        }
        self.names_changed(dir, -links, now);
        let inode = self.cache.inode(fid);
        inode.seen_in(to.dir);
        inode.attrs.linked_here(0, now);
        self.name_here(to, (fid, kind), links, now);
    }

    /// The record of a file has the name that it is about to get. False: there is no room for it.
    pub fn record_birth_at(&mut self, fid: Fid, to: Spot) -> bool {
        let Some(attr) = self.cache.attr_of(fid).cloned() else {
            return false;
        };
        let target = self.cache.inode(fid).target();
        let new = NewFile {
            fid,
            attr,
            cookie: to.cookie,
            target: target.map(<[u8]>::to_vec).unwrap_or_default(),
        };
        let birth = Birth::new(to.dir, to.name, Tick(0));
        self.journal.put_birth(body_of(&birth, &new), true)
    }

    /// A file that nobody has heard of, which is no directory, has one more name from now on.
    pub fn link_birth(&mut self, fid: Fid, to: Spot, now: Timestamp) {
        let Some(kind) = self.cache.attr_of(fid).map(|attr| attr.kind) else {
            return;
        };
        self.births.link(fid, (to.dir, to.name.clone()));
        self.cache.inode(fid).attrs.linked_here(1, now);
        self.name_here(to, (fid, kind), 0, now);
    }

    fn name_here(&mut self, spot: Spot, (fid, kind): (Fid, FileKind), links: i32, now: Timestamp) {
        let Spot { dir, name, cookie } = spot;
        let entry = Listed { name, fid, kind };
        let made = NameChange::Made { cookie, entry };
        self.cache.name_changed(dir, made, true);
        self.names_changed(dir, links, now);
    }

    /// A name of a file that nobody has heard of goes; with the last one the file.
    pub fn unlink_birth(&mut self, fid: Fid, (dir, name): (Fid, &Name), now: Timestamp) {
        let birth = self.births.get(fid);
        if birth.is_some_and(|birth| birth.links.is_empty()) {
            return self.unbear(fid, now);
        }
        self.date_names(dir, now);
        self.births.unlink(fid, (dir, name));
        let gone = NameChange::Removed(name.clone());
        self.cache.name_changed(dir, gone, true);
        self.names_changed(dir, 0, now);
        let home = self.births.get(fid).map(|birth| birth.dir);
        let inode = self.cache.inode(fid);
        inode.attrs.linked_here(-1, now);
        if let Some(home) = home.filter(|_| inode.dir() == dir) {
            inode.seen_in(home);
        }
    }

    /// A directory has lost a name that the MDT does not know. Its own times are to be reported all the same.
    pub fn date_names(&mut self, dir: Fid, now: Timestamp) {
        let attr = self.cache.attr_of(dir);
        if attr.is_some_and(|attr| attr.nlink == 0) {
            // It has gone before what was in it.
            return;
        }
        self.births.date(dir, now);
        self.journal.date_directory(dir, now);
    }

    /// The MDT knows when names of the directory changed, as far as that was until `at`, or never will.
    pub fn end_date(&mut self, dir: Fid, at: Timestamp) {
        if self.births.end_date(dir, at) {
            self.journal.end_date(dir);
        }
    }

    /// Of directories that are no longer this mount's alone the MDT knows the times.
    pub fn lose_dates(&mut self) {
        for dir in self.births.lose_dates() {
            self.journal.end_date(dir);
        }
    }

    /// Names of the directory changed at that time, in the process before.
    pub fn restore_date(&mut self, dir: Fid, at: Timestamp) {
        self.births.date(dir, at);
        self.restore_date_of_names(dir, at);
    }

    /// Names of the directory changed at that time, in the process before; what has changed says so itself.
    pub fn restore_date_of_names(&mut self, dir: Fid, at: Timestamp) {
        let changed = |state: &mut State| {
            state.cache.inode(dir).attrs.names_changed_here(0, at);
        };
        self.keeping_time((dir, at), changed);
    }

    /// Names of the directory changed at that time. One that a program has set since stays.
    fn keeping_time(&mut self, (dir, at): (Fid, Timestamp), restore: impl FnOnce(&mut State)) {
        let known = self.cache.attr_of(dir);
        let known = known.filter(|attr| attr.mtime_set >= at).cloned();
        restore(self);
        if let Some(known) = known {
            self.cache.inode(dir).attrs.has_mtime_of(&known);
        }
    }

    /// The same, written down for the next process. False: there is no room, and the MDT is to be asked.
    pub fn bear_recorded(&mut self, birth: Birth, new: NewFile) -> bool {
        let body = body_of(&birth, &new);
        let is_recorded = self.journal.put_birth(body, true);
        if is_recorded {
            self.bear(birth, new);
        }
        is_recorded
    }

    /// The file is written down as it is by now. What was changed of it is about to be reported with it.
    pub fn record_birth_again(&mut self, fid: Fid, attr: &Attr, target: &[u8]) {
        let Some(birth) = self.births.get(fid).cloned() else {
            return;
        };
        let directory = self.cache.directory_of(birth.dir);
        let named = directory.and_then(|directory| directory.get(&birth.name));
        let new = NewFile {
            fid,
            attr: attr.clone(),
            cookie: named.map_or(0, |named| named.cookie),
            target: target.to_vec(),
        };
        // Without room the old record stays, and is as good as nothing was changed.
        let _ = self.journal.put_birth(body_of(&birth, &new), false);
    }

    /// A file of the process before that the MDT may not know.
    pub fn restore_birth(&mut self, body: BirthBody) {
        let BirthBody {
            fid,
            dir,
            name,
            attr,
            cookie,
            target,
            ..
        } = body;
        let new = NewFile {
            fid,
            attr,
            cookie,
            target,
        };
        let named = (dir, new.attr.btime);
        self.keeping_time(named, |state| {
            state.bear(Birth::new(dir, name, Tick(0)), new);
        });
    }

    /// The file is there from now on. `birth` says where.
    pub fn bear(&mut self, birth: Birth, new: NewFile) {
        let NewFile {
            fid,
            attr,
            cookie,
            target,
        } = new;
        let (kind, now) = (attr.kind, attr.ctime);
        let own = match kind {
            FileKind::Directory => EXCLUSIVE | WRITE_LEASE,
            _ => EXCLUSIVE | Bits::LOOKUP,
        };
        let handle = self.locks.bear(fid, own);
        let inode = self.cache.inode(fid);
        inode.seen_in(birth.dir);
        inode.attrs.take_covered(attr, Covered::Own);
        inode.file().locks.grant_exclusive(handle);
        match kind {
            FileKind::Regular => inode.file().object.made(true),
            FileKind::Directory => inode.directory().extend(0, std::iter::empty(), true),
            FileKind::Symlink => inode.learn_target(target.into()),
            _ => {}
        }
        let (dir, name) = (birth.dir, birth.name.clone());
        let entry = Listed { name, fid, kind };
        let made = NameChange::Made { cookie, entry };
        self.cache.name_changed(dir, made, true);
        let links = i32::from(kind == FileKind::Directory);
        self.names_changed(dir, links, now);
        self.births.add(fid, birth);
    }

    /// A file that nobody has heard of goes, and leaves nothing.
    pub fn unbear(&mut self, fid: Fid, now: Timestamp) {
        let Some(birth) = self.births.end(fid) else {
            return;
        };
        self.journal.end_birth(fid);
        if let Some(at) = self.births.dated(fid) {
            self.end_date(fid, at);
        }
        let is_directory = self.cache.inode(fid).is_directory();
        self.lose_own_locks(fid);
        self.with_pages(fid, |file| file.pages.discard(base::ByteRange::ALL));
        let links = -i32::from(is_directory);
        for (dir, name) in birth.names() {
            self.date_names(dir, now);
            let named = self.cache.directory_of(dir).and_then(|dir| dir.get(name));
            if named.is_none_or(|named| named.fid == fid) {
                let gone = NameChange::Removed(name.clone());
                self.cache.name_changed(dir, gone, true);
            }
            self.names_changed(dir, links, now);
        }
        self.cache.inode(fid).attrs.removed_here(now);
        self.drop_if_idle(fid);
    }

    /// The write lease of the mark's directory came, and what it does not cover. False: it does not count.
    pub fn take_write_lease(&mut self, grant: &Grant, outside: &[Fid], mark: Mark) -> bool {
        if !self.servers.is_of_this_boot(mark) {
            self.locks.refuse(Holder::Mdt, grant.handle);
            return false;
        }
        let is_kept = self.locks.take_write_lease(grant, outside);
        if is_kept {
            let directory = self.cache.inode(mark.dir).directory();
            directory.outside = outside.iter().copied().collect();
        }
        is_kept
    }

    /// This mount's own locks on the file have ended: those of the MDT cover it now, or nothing does.
    pub fn lose_own_locks(&mut self, fid: Fid) {
        self.locks.born(fid);
        if let Some(file) = self.cache.file_known(fid) {
            file.locks.take_exclusive();
            file.waiters.wake_all();
        }
    }

    /// What was changed of the file since it is on its way to the MDT.
    pub fn changed_on_the_way(&mut self, fid: Fid) -> Option<SetAttr> {
        let file = self.cache.file_known(fid)?;
        let (change, _) = file.change.take();
        (change != SetAttr::default()).then_some(change)
    }
}

fn body_of(birth: &Birth, new: &NewFile) -> BirthBody {
    BirthBody {
        fid: new.fid,
        dir: birth.dir,
        name: birth.name.clone(),
        attr: new.attr.clone(),
        cookie: new.cookie,
        target: new.target.clone(),
        order: 0,
        origin: 0,
    }
}

#[cfg(test)]
#[path = "births_tests.rs"]
mod tests;
