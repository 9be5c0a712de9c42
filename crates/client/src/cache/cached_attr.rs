//! The attributes of one file, and what keeps them valid.

use base::{Fid, Timestamp};
use wire::mdt::SetAttr;
use wire::{Attr, FileKind};

use crate::cache::attributes::apply_locally;

/// What keeps the attributes valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Covered {
    /// Nothing.
    No,
    /// Nothing, and the MDT would give nothing when it told them: others write to the file.
    Refused,
    /// CHILD of the lease on the directory it was seen in last, as long as its count is this.
    Parent { child_epoch: u64 },
    /// A lock on the file itself.
    Own,
    /// PERM alone of a lock on the file itself, others writing to the file as well. Mode and owner
    /// are valid, and whether there are extended attributes.
    Mode,
}

/// The attributes of one file, unknown at first.
#[derive(Debug)]
pub(crate) struct CachedAttr {
    /// The last attributes known; to be used only while covered.
    attr: Option<Attr>,
    covered: Covered,
    /// A directory in which the file was seen last; NONE if nowhere.
    dir: Fid,
}

impl Default for CachedAttr {
    fn default() -> CachedAttr {
        CachedAttr {
            attr: None,
            covered: Covered::No,
            dir: Fid::NONE,
        }
    }
}

impl CachedAttr {
    /// The last attributes known, valid or not.
    pub fn known(&self) -> Option<&Attr> {
        self.attr.as_ref()
    }

    /// What keeps them valid, if it is still held.
    pub fn covered(&self) -> Covered {
        self.covered
    }

    /// The lease of the directory that the file was seen in last covers them.
    pub fn is_covered_by_parent(&self) -> bool {
        matches!(self.covered, Covered::Parent { .. })
    }

    /// The directory in which the file was seen last; NONE if nowhere.
    pub fn dir(&self) -> Fid {
        self.dir
    }

    /// The file is a directory.
    pub fn is_directory(&self) -> bool {
        let attr = self.attr.as_ref();
        attr.is_some_and(|attr| attr.kind == FileKind::Directory)
    }

    /// The file was seen in `dir`. The lease of another directory covers the attributes no more.
    pub fn seen_in(&mut self, dir: Fid) {
        if self.dir != dir {
            self.lease_lost();
        }
        self.dir = dir;
    }

    /// Attributes came with an answer; those that are known may be newer. What covers them is as before.
    /// Returns whether they were taken.
    pub fn take(&mut self, attr: Attr) -> bool {
        let is_older = self.are_newer_than(&attr);
        if !is_older {
            self.attr = Some(attr);
        }
        !is_older
    }

    /// Those that are known are of a later change of the file.
    pub fn are_newer_than(&self, attr: &Attr) -> bool {
        self.known()
            .is_some_and(|known| known.version > attr.version)
    }

    /// Attributes came with an answer that says what covers them. Returns whether they were taken.
    pub fn take_covered(&mut self, attr: Attr, covered: Covered) -> bool {
        let is_taken = self.take(attr);
        if is_taken {
            self.covered = covered;
        }
        is_taken
    }

    /// Attributes came with an answer, and the truth is here, under the EX lock, but for what only the MDT
    /// changes. False: none are known here.
    pub fn take_beside_own(&mut self, attr: &Attr) -> bool {
        let Some(own) = &mut self.attr else {
            return false;
        };
        if attr.version >= own.version {
            own.nlink = attr.nlink;
            own.has_xattrs = attr.has_xattrs;
            own.ctime = own.ctime.later(attr.ctime);
            own.version = attr.version;
        }
        true
    }

    /// They were changed under the EX lock at `now`. Returns what they are then, if any are known.
    pub fn change_here(&mut self, change: &SetAttr, now: Timestamp) -> Option<&Attr> {
        let attr = self.attr.as_mut()?;
        apply_locally(attr, change, now);
        Some(attr)
    }

    /// Names of the directory were changed here at `now`; it has so many more subdirectories.
    pub fn names_changed_here(&mut self, subdirectories: i32, now: Timestamp) {
        if let Some(attr) = &mut self.attr {
            attr.nlink = attr.nlink.saturating_add_signed(subdirectories);
            // A time that a program has set ends, be it in the future.
            attr.mtime_set = attr.mtime_set.later(now);
            attr.mtime = attr.mtime_set;
            attr.ctime = attr.ctime.later(now);
        }
    }

    /// Bytes of the file were written at that time. A time that was set later stays.
    pub fn written_here(&mut self, at: Timestamp) {
        if let Some(attr) = self.attr.as_mut().filter(|attr| at > attr.mtime_set) {
            (attr.mtime, attr.mtime_set) = (at, at);
            attr.ctime = attr.ctime.later(at);
        }
    }

    /// The mtime is that one, and was set then.
    pub fn has_mtime_of(&mut self, known: &Attr) {
        if let Some(attr) = &mut self.attr {
            (attr.mtime, attr.mtime_set) = (known.mtime, known.mtime_set);
        }
    }

    /// The names of the file changed here at `now`; it has so many more.
    pub fn linked_here(&mut self, more: i32, now: Timestamp) {
        if let Some(attr) = &mut self.attr {
            attr.nlink = attr.nlink.saturating_add_signed(more);
            attr.ctime = attr.ctime.later(now);
        }
    }

    /// It has extended attributes, or has none, by a change here at `now`.
    pub fn xattrs_changed_here(&mut self, has_xattrs: bool, now: Timestamp) {
        if let Some(attr) = &mut self.attr {
            attr.has_xattrs = has_xattrs;
            attr.ctime = attr.ctime.later(now);
        }
    }

    /// The MDT knows the file now, by a change of that number. None of its times is later than `at`.
    pub fn born(&mut self, version: u64, at: Timestamp) {
        if let Some(attr) = &mut self.attr {
            attr.version = version;
            // Times of the clock. One that a program has set stays.
            let (is_written, is_read) = (attr.mtime == attr.mtime_set, attr.atime == attr.ctime);
            for time in [&mut attr.mtime_set, &mut attr.ctime, &mut attr.btime] {
                *time = (*time).min(at);
            }
            attr.mtime = if is_written {
                attr.mtime_set
            } else {
                attr.mtime
            };
            attr.atime = if is_read { attr.ctime } else { attr.atime };
        }
    }

    /// The MDT has made a change of that number, and they were changed here since.
    pub fn is_version(&mut self, version: u64) {
        if let Some(attr) = &mut self.attr {
            attr.version = version;
        }
    }

    /// It has lost its last name here, at `now`.
    pub fn removed_here(&mut self, now: Timestamp) {
        if let Some(attr) = &mut self.attr {
            attr.nlink = 0;
            attr.ctime = attr.ctime.later(now);
        }
        self.cover_lost();
    }

    /// The MDT does not know the file any more: it was removed. False: it has bytes, or nothing is known of
    /// it.
    pub fn removed_elsewhere(&mut self) -> bool {
        let known = self.attr.as_mut();
        let without_bytes = known.filter(|attr| attr.kind != FileKind::Regular);
        without_bytes.map(|attr| attr.nlink = 0).is_some()
    }

    /// A lock on the file itself covers them now.
    pub fn own_lock_granted(&mut self) {
        self.covered = Covered::Own;
    }

    /// Nothing covers them any more.
    pub fn cover_lost(&mut self) {
        self.covered = Covered::No;
    }

    /// The lease on the directory covers the file no more.
    pub fn lease_lost(&mut self) {
        if self.is_covered_by_parent() {
            self.covered = Covered::No;
        }
    }

    /// The MDT has restarted, or given up on this client: nothing covers them, and versions to come may be
    /// lower than those before.
    pub fn void(&mut self) {
        self.cover_lost();
        self.restarted();
    }

    /// Versions to come may be lower than those before.
    pub fn restarted(&mut self) {
        if let Some(attr) = &mut self.attr {
            attr.version = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::attr_at;
    use base::TargetIndex;

    fn of_version(version: u64) -> Attr {
        Attr {
            version,
            ..attr_at(TargetIndex(0))
        }
    }

    #[test]
    fn the_lease_of_the_old_directory_covers_it_no_more() {
        let (mut attrs, leased) = (CachedAttr::default(), Covered::Parent { child_epoch: 3 });
        attrs.seen_in(Fid(7));
        attrs.take_covered(of_version(1), leased);
        attrs.seen_in(Fid(7));
        assert_eq!(attrs.covered(), leased);
        attrs.seen_in(Fid(8));
        assert_eq!(attrs.covered(), Covered::No);
    }

    #[test]
    fn a_lock_of_its_own_outlasts_a_lease() {
        let mut attrs = CachedAttr::default();
        attrs.take_covered(of_version(1), Covered::Own);
        attrs.seen_in(Fid(8));
        attrs.lease_lost();
        assert_eq!(attrs.covered(), Covered::Own);
        attrs.cover_lost();
        assert_eq!(attrs.covered(), Covered::No);
    }

    #[test]
    fn older_attributes_are_not_taken_and_their_cover_is_not() {
        let mut attrs = CachedAttr::default();
        assert!(attrs.take_covered(of_version(5), Covered::No));
        assert!(!attrs.take_covered(of_version(4), Covered::Own));
        assert_eq!(attrs.covered(), Covered::No);
        attrs.own_lock_granted();
        assert!(attrs.take(of_version(5)) && attrs.covered() == Covered::Own);
        attrs.void();
        assert!(attrs.covered() == Covered::No && attrs.take(of_version(1)));
    }

    #[test]
    fn under_the_own_lock_only_what_the_mdt_changes_is_taken() {
        let (mut attrs, mut answer) = (CachedAttr::default(), of_version(6));
        assert!(!attrs.take_beside_own(&answer) && attrs.known().is_none());
        attrs.take(of_version(5));
        (answer.nlink, answer.size, answer.has_xattrs) = (9, 1 << 20, true);
        assert!(attrs.take_beside_own(&answer));
        let known = attrs.known().expect("known").clone();
        assert_eq!((known.nlink, known.has_xattrs, known.version), (9, true, 6));
        assert_ne!(known.size, answer.size);
        answer.nlink = 1;
        answer.version = 5;
        assert!(attrs.take_beside_own(&answer) && attrs.known() == Some(&known));
    }

    #[test]
    fn only_what_has_no_bytes_stays_when_it_is_removed() {
        let mut attrs = CachedAttr::default();
        assert!(!attrs.removed_elsewhere());
        attrs.take(of_version(1));
        assert!(!attrs.removed_elsewhere());
        attrs.take(Attr {
            kind: FileKind::Directory,
            ..of_version(2)
        });
        assert!(attrs.removed_elsewhere() && attrs.is_directory());
        assert_eq!(attrs.known().map(|attr| attr.nlink), Some(0));
    }
}
