//! Changes of files that the MDT knows, made under write leases and reported later (ADR 19).

use base::{Fid, Tick, Timestamp};
use wire::FileKind;
use wire::mdt::{Privileges, SetAttr};
use wire::update::AttrUpdate;

use super::State;
use crate::cache::attributes::dropped_privileges;
use crate::cache::edits::{Amendment, Bytes, Edit, Move, Removal};
use crate::cache::file::FileState;
use crate::cache::listed::Listed;
use crate::cache::local_changes::NameChange;
use crate::journal::edits::{EditBody, FoundEdit};

impl State {
    /// Names of the directory change here; it has so many more subdirectories.
    pub fn names_changed(&mut self, dir: Fid, subdirectories: i32, now: Timestamp) {
        let inode = self.cache.inode(dir);
        inode.attrs.names_changed_here(subdirectories, now);
        let is_time_set = |file: &&mut FileState| file.change.attrs().mtime.is_some();
        if let Some(file) = inode.file_known().filter(is_time_set) {
            file.change.drop_mtime();
            self.record_change(dir);
        }
        self.births.edits_mut().drop_mtime(dir);
    }

    /// The only name of a file goes, and with it the file.
    pub fn remove_known(&mut self, removal: Removal, since: Tick) {
        let (fid, dir, now) = (removal.fid, removal.dir, removal.ctime);
        let is_directory = self.cache.inode(fid).is_directory();
        let gone = NameChange::Removed(removal.name.clone());
        self.cache.name_changed(dir, gone, true);
        self.names_changed(dir, -i32::from(is_directory), now);
        self.remove_edit(removal, since);
        self.file_goes(fid, now);
    }

    /// The removal is to be reported, and what was changed of the file before is not.
    fn remove_edit(&mut self, removal: Removal, since: Tick) {
        if let Some(amended) = self.births.edits().amendment_of(removal.fid) {
            self.journal.end_edit(amended);
        }
        self.births.remove(removal, since);
    }

    /// A removal that is about to be made is written down for the next process. False: there is no room, and
    /// the MDT is to be asked.
    pub fn record_removal(&mut self, removal: &Removal) -> bool {
        let Removal {
            dir,
            name,
            fid,
            cookie,
            ctime,
        } = removal.clone();
        let edit = EditBody::Removal {
            dir,
            name,
            fid,
            cookie,
            ctime,
        };
        self.journal.put_edit(self.births.newest() + 1, edit)
    }

    /// The same of attributes, with what has changed of them before.
    fn record_amendment(&mut self, amendment: &Amendment) -> bool {
        let edits = self.births.edits();
        let number = edits.amendment_of(amendment.fid);
        let edit = EditBody::Amendment {
            lease: amendment.lease,
            fid: amendment.fid,
            attr: edits.amended_by(amendment),
        };
        let number = number.unwrap_or(self.births.newest() + 1);
        self.journal.put_edit(number, edit)
    }

    /// The MDT has not heard of a change that the process before has made.
    pub fn restore_edit(&mut self, found: FoundEdit) {
        let (since, number) = (Tick(0), self.births.newest() + 1);
        let number = match found.edit.clone() {
            EditBody::Removal {
                dir,
                name,
                fid,
                cookie,
                ctime,
            } => {
                let removal = Removal {
                    dir,
                    name,
                    fid,
                    cookie,
                    ctime,
                };
                self.restore_date_of_names(dir, ctime);
                self.births.edits_mut().drop_mtime(dir);
                self.remove_edit(removal, since);
                number
            }
            EditBody::Amendment { lease, fid, attr } => {
                let amendment = Amendment { lease, fid, attr };
                let known = self.births.edits().amendment_of(fid);
                self.births.amend(amendment, since);
                known.unwrap_or(number)
            }
        };
        self.journal.keep_edit(number, found);
    }

    /// The MDT has made the change, or never will.
    pub fn end_edit(&mut self, number: u64) -> Option<Edit> {
        self.journal.end_edit(number);
        self.births.edits_mut().end(number)
    }

    /// The file has no name any more.
    fn file_goes(&mut self, fid: Fid, now: Timestamp) {
        if let Some(at) = self.births.dated(fid) {
            self.end_date(fid, at);
        }
        // What is on its way ends with the Close.
        let file = self.cache.file_known(fid);
        if file.is_some_and(|file| file.is_idle()) {
            self.with_pages(fid, |file| file.pages.discard(base::ByteRange::ALL));
        }
        self.cache.inode(fid).attrs.removed_here(now);
        self.drop_if_idle(fid);
    }

    /// A file gets another name in its directory, which leads nowhere now. It is reported when its `bytes`
    /// are durable.
    pub fn move_known(&mut self, moved: Move, cookie: u64, bytes: Bytes, since: Tick) {
        let (dir, fid, now) = (moved.dir, moved.fid, moved.ctime);
        let Some(kind) = self.cache.attr_of(fid).map(|attr| attr.kind) else {
            return;
        };
        let gone = NameChange::Removed(moved.from.clone());
        self.cache.name_changed(dir, gone, true);
        let name = moved.to.clone();
        let entry = Listed { name, fid, kind };
        let made = NameChange::Made { cookie, entry };
        self.cache.name_changed(dir, made, true);
        self.names_changed(dir, 0, now);
        self.cache.inode(fid).attrs.linked_here(0, now);
        self.births.move_known(moved, bytes, since);
    }

    /// A file that has moved goes with its only name. Of a file that lost that name to it before, the MDT is
    /// still to hear that.
    pub fn remove_moved(&mut self, number: u64, (now, since): (Timestamp, Tick)) {
        let Some(Edit::Move(moved)) = self.end_edit(number) else {
            return;
        };
        let Move {
            dir,
            fid,
            from,
            cookie,
            to,
            ..
        } = moved;
        self.cache.name_changed(dir, NameChange::Removed(to), true);
        self.names_changed(dir, 0, now);
        if self.births.is_unborn(fid) {
            return self.unbear(fid, now);
        }
        let removal = Removal {
            dir,
            name: from,
            fid,
            cookie,
            ctime: now,
        };
        self.births.remove(removal, since);
        self.file_goes(fid, now);
    }

    /// The write lease of its directory, or of a directory its own, covers the attributes: which lease that
    /// is. Nobody writes the file, and it has one name.
    pub fn amended_under(&self, fid: Fid, change: &SetAttr) -> Option<Fid> {
        let inode = self.cache.known(fid)?;
        let attr = inode.attrs.known()?;
        // A call that removes the file, or moves it elsewhere, would be there first.
        let goes = self.births.edits().is_removed(fid) || self.cache.may_be_removed(fid);
        if self.births.is_unborn(fid) || goes {
            return None;
        }
        if attr.kind == FileKind::Directory {
            // A time that is set comes after those of names that changed before.
            let is_dated = change.mtime.is_some() && self.births.are_names_of(fid);
            return (!is_dated).then_some(fid);
        }
        // What others may write has times that its OST knows.
        let is_known = attr.size_state == wire::SizeState::Strict || change.mtime.is_none();
        let is_quiet = inode.as_file().is_none_or(is_quiet);
        let is_alone = attr.nlink == 1 && inode.dir() != Fid::NONE;
        (is_known && is_quiet && is_alone && change.size.is_none()).then(|| inode.dir())
    }

    /// That lease is here, and covers the file.
    pub fn may_amend(&self, fid: Fid, lease: Fid) -> bool {
        let is_covered = |inode: &crate::cache::inode::Inode| {
            let directory = self.cache.directory_of(lease);
            let is_outside = directory.is_some_and(|dir| dir.outside.contains(&fid));
            fid == lease || (inode.attrs.is_covered_by_parent() && !is_outside)
        };
        self.locks.is_settled()
            && self.locks.may_change_names(lease)
            && self.attr_valid(fid)
            && self.cache.known(fid).is_some_and(is_covered)
    }

    /// The write lease of its directory covers the file, which nobody else uses: others learn nothing of it
    /// before that is called back.
    pub fn is_alone_with(&self, fid: Fid) -> bool {
        let inode = self.cache.known(fid);
        let has_one_name = |inode: &&crate::cache::inode::Inode| {
            inode.attrs.known().is_some_and(|attr| attr.nlink == 1)
        };
        inode
            .filter(has_one_name)
            .is_some_and(|inode| self.may_amend(fid, inode.dir()))
    }

    /// Changes attributes of a file that the MDT knows. False: the MDT is to be asked.
    pub fn amend(
        &mut self,
        (fid, lease): (Fid, Fid),
        change: &SetAttr,
        now: (Timestamp, Tick),
    ) -> bool {
        let attrs = &mut self.cache.inode(fid).attrs;
        let Some(known) = attrs.known() else {
            return false;
        };
        let before = known.mtime_set.later(known.ctime);
        let Some(attr) = attrs.change_here(change, now.0.later(before)) else {
            return false;
        };
        let is_mode = change.mode.is_some()
            || (lease != fid && dropped_privileges(change) != Privileges::Keep);
        let attr = AttrUpdate {
            mode: is_mode.then_some(attr.mode),
            uid: change.uid,
            gid: change.gid,
            atime: change.atime.map(|_| attr.atime),
            mtime: change.mtime.map(|_| (attr.mtime, attr.mtime_set)),
            ctime: attr.ctime,
        };
        let amendment = Amendment { lease, fid, attr };
        if !self.record_amendment(&amendment) {
            // What the MDT answers is believed.
            self.cache.inode(fid).attrs.cover_lost();
            return false;
        }
        self.births.amend(amendment, now.1);
        true
    }
}

/// Nobody writes it here, and nothing of it is on its way.
fn is_quiet(file: &FileState) -> bool {
    !file.opens.is_written()
        && !file.registration.has_writers()
        && !file.registration.is_closing()
        && !file.locks.is_exclusive()
        && !file.locks.is_revoking()
        && !file.locks.is_used()
        && !file.change.is_any()
        && !file.change.is_updating()
        && file.pages.dirty_bytes() == 0
        && file.resizes.is_empty()
        && file.durability.writing() == 0
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use base::TargetIndex;
    use wire::{Attr, SizeState};

    use super::*;
    use crate::rig::attr_at;
    use crate::session::locks::Locks;

    #[test]
    fn attributes_of_a_file_that_a_call_may_remove_are_changed_by_a_request() {
        let mut state = State::new(Locks::new([]), Arc::new(AtomicU64::new(0)));
        let (dir, file) = (Fid(7), Fid(8));
        state.cache.inode(file).seen_in(dir);
        state.cache.inode(file).attrs.take(Attr {
            size_state: SizeState::Strict,
            nlink: 1,
            ..attr_at(TargetIndex(0))
        });
        let lease = |state: &State| state.amended_under(file, &SetAttr::default());
        assert_eq!(lease(&state), Some(dir));
        state.cache.inode(file).begin_losing_name();
        assert_eq!(lease(&state), None);
        state.cache.inode(file).end_losing_name();
        state.cache.begin_blind_removal();
        assert_eq!(lease(&state), None);
        state.cache.end_blind_removal();
        assert_eq!(lease(&state), Some(dir));
    }
}
