//! What is known of one file.

use base::{Fid, FsError, LockHandle, TargetIndex, Timestamp};
use wire::mdt::SetAttr;

use crate::cache::cached_attr::CachedAttr;
use crate::cache::directory::Directory;
use crate::cache::file::FileState;
use crate::cache::stale_names::{Entrance, Reached, StaleNames};
use crate::executor::Oneshot;

/// A file's extended attributes, name and value.
pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// What few files have.
#[derive(Default)]
struct Rare {
    /// Names of it that are to be forgotten by the kernel.
    stale: Option<StaleNames>,
    /// Calls of this client under way that remove one of its names.
    losing_names: u32,
    /// All extended attributes, valid under XATTR.
    xattrs: Option<Xattrs>,
    /// A symlink's target; never changes.
    target: Option<Box<[u8]>>,
}

impl Rare {
    fn is_empty(&self) -> bool {
        let Rare {
            stale,
            losing_names,
            xattrs,
            target,
        } = self;
        stale.is_none() && *losing_names == 0 && xattrs.is_none() && target.is_none()
    }
}

/// Set in `References` since the kernel has forgotten a name.
const NAME_FORGOTTEN: u64 = 1 << 63;

/// References that the kernel holds, and whether it has forgotten a name of the file since it holds any.
#[derive(Default)]
struct References(u64);

impl References {
    fn count(&self) -> u64 {
        self.0 & !NAME_FORGOTTEN
    }

    fn set_count(&mut self, count: u64) {
        self.0 = match count {
            0 => 0,
            count => count | (self.0 & NAME_FORGOTTEN),
        };
    }

    fn name_forgotten(&mut self) {
        if self.0 > 0 {
            self.0 |= NAME_FORGOTTEN;
        }
    }
}

/// One file in the cache, unknown at first. There are millions: what is rare is boxed.
#[derive(Default)]
pub(crate) struct Inode {
    /// Its attributes, and what keeps them valid.
    pub attrs: CachedAttr,
    references: References,
    rare: Option<Box<Rare>>,
    /// Of a directory.
    directory: Option<Box<Directory>>,
    /// Of what is open or has data here.
    file: Option<Box<FileState>>,
}

/// Parts.
impl Inode {
    /// The directory's names, made if need be.
    pub fn directory(&mut self) -> &mut Directory {
        self.directory.get_or_insert_default()
    }

    /// The directory's names, if anything is known of them.
    pub fn directory_known(&mut self) -> Option<&mut Directory> {
        self.directory.as_deref_mut()
    }

    /// The same, to look at.
    pub fn as_directory(&self) -> Option<&Directory> {
        self.directory.as_deref()
    }

    /// Its open state, made if need be.
    pub fn file(&mut self) -> &mut FileState {
        self.file.get_or_insert_default()
    }

    /// Its open state, if it has one.
    pub fn file_known(&mut self) -> Option<&mut FileState> {
        self.file.as_deref_mut()
    }

    /// The same, to look at.
    pub fn as_file(&self) -> Option<&FileState> {
        self.file.as_deref()
    }

    /// Drops the open state if `is_unused` says so. Returns it then.
    pub fn drop_file_if(
        &mut self,
        is_unused: impl FnOnce(&FileState) -> bool,
    ) -> Option<Box<FileState>> {
        self.file.take_if(|file| is_unused(file))
    }

    /// Nothing in it would be missed.
    pub fn is_idle(&self) -> bool {
        let referred = self.is_in_kernel() || self.has_stale_names() || self.is_losing_names();
        !referred && self.file.is_none()
    }

    /// Nothing in it would be missed if the kernel let it go.
    pub fn is_only_in_kernel(&self) -> bool {
        let names_go = self.has_stale_names() || self.is_losing_names();
        self.is_in_kernel() && !names_go && self.file.is_none()
    }

    /// Somebody has it open here.
    pub fn is_open(&self) -> bool {
        self.as_file().is_some_and(|file| file.opens.is_open())
    }

    /// Somebody has it open here, or a call uses a lock of it.
    pub fn is_used(&self) -> bool {
        let is_used = |file: &FileState| file.opens.is_open() || file.locks.is_used();
        self.as_file().is_some_and(is_used)
    }

    fn change_rare<R>(&mut self, change: impl FnOnce(&mut Rare) -> R) -> R {
        let rare = self.rare.get_or_insert_default();
        let result = change(rare);
        if rare.is_empty() {
            self.rare = None;
        }
        result
    }
}

/// References of the kernel.
impl Inode {
    /// How many there are.
    pub fn lookups(&self) -> u64 {
        self.references.count()
    }

    /// There are some.
    pub fn is_in_kernel(&self) -> bool {
        self.lookups() > 0
    }

    /// The kernel is about to have one more.
    pub fn refer(&mut self) {
        self.references.set_count(self.lookups() + 1);
    }

    /// The kernel has `count` less.
    pub fn unrefer(&mut self, count: u64) {
        let left = self.lookups().saturating_sub(count);
        self.references.set_count(left);
    }

    /// The kernel has `lookups` from the process before, in which it may have forgotten names.
    pub fn inherit_lookups(&mut self, lookups: u64) {
        self.references.set_count(lookups);
        self.references.name_forgotten();
    }
}

/// Attributes.
impl Inode {
    /// The OST that has its bytes, once its attributes are known.
    pub fn ost(&self) -> Option<TargetIndex> {
        self.attrs.known()?.layout.stripes.first().copied()
    }

    /// A directory it was seen in last; NONE if nowhere.
    pub fn dir(&self) -> Fid {
        self.attrs.dir()
    }

    /// It was seen in `dir`. The lease of another directory covers it no more, but the EX lock does.
    pub fn seen_in(&mut self, dir: Fid) {
        let was_leased = self.attrs.is_covered_by_parent();
        self.attrs.seen_in(dir);
        if was_leased && !self.attrs.is_covered_by_parent() && self.is_exclusive() {
            self.attrs.own_lock_granted();
        }
    }

    /// It is a directory.
    pub fn is_directory(&self) -> bool {
        self.attrs.is_directory()
    }

    /// This client has the EX lock: the truth about it is here.
    pub fn is_exclusive(&self) -> bool {
        self.as_file().is_some_and(|file| file.locks.is_exclusive())
    }

    /// Attributes are changed here, at `now` at the earliest, to be reported later. False: the truth about
    /// them is not here, and nothing was changed.
    pub fn change_here(&mut self, change: &SetAttr, now: Timestamp) -> bool {
        let Some(file) = self.file.as_mut().filter(|file| file.locks.is_exclusive()) else {
            return false;
        };
        let Some(attr) = self.attrs.known() else {
            return false;
        };
        let before = attr.mtime_set.later(attr.ctime);
        let before = before.later(file.object.mtime());
        let changed = self.attrs.change_here(change, now.later(before));
        changed
            .map(|attr| file.change.merge(change, attr))
            .is_some()
    }

    /// The EX lock is gone, if there was one, and what it covered is valid no more. The bytes are left to
    /// the caller.
    pub fn lose_exclusive(&mut self) -> Option<LockHandle> {
        let handle = self.file_known()?.lose_exclusive()?;
        self.attrs.cover_lost();
        self.forget_xattrs();
        Some(handle)
    }

    /// The MDT has restarted, or given up on this client: no attributes are valid.
    pub fn void(&mut self) {
        self.attrs.void();
        self.forget_xattrs();
    }

    /// All extended attributes, valid under XATTR.
    pub fn xattrs(&self) -> Option<&Xattrs> {
        self.rare.as_ref()?.xattrs.as_ref()
    }

    /// The extended attributes are these.
    pub fn learn_xattrs(&mut self, xattrs: Xattrs) {
        self.change_rare(|rare| rare.xattrs = Some(xattrs));
    }

    /// The extended attributes are these from now on, by a change here.
    pub fn change_xattrs_here(&mut self, xattrs: Xattrs, now: Timestamp) {
        self.attrs.xattrs_changed_here(!xattrs.is_empty(), now);
        match xattrs.is_empty() {
            true => self.forget_xattrs(),
            false => self.learn_xattrs(xattrs),
        }
    }

    /// The extended attributes are not known any more.
    pub fn forget_xattrs(&mut self) {
        if self.rare.is_some() {
            self.change_rare(|rare| rare.xattrs = None);
        }
    }

    /// A symlink's target, if known.
    pub fn target(&self) -> Option<&[u8]> {
        self.rare.as_ref()?.target.as_deref()
    }

    /// A symlink's target is this, and will be.
    pub fn learn_target(&mut self, target: Box<[u8]>) {
        self.change_rare(|rare| rare.target = Some(target));
    }
}

/// Names that go.
impl Inode {
    /// A call of this client is about to remove one of its names.
    pub fn begin_losing_name(&mut self) {
        self.change_rare(|rare| rare.losing_names += 1);
    }

    /// Such a call has ended.
    pub fn end_losing_name(&mut self) {
        self.change_rare(|rare| rare.losing_names -= 1);
    }

    /// A call of this client may be removing one of its names.
    pub fn is_losing_names(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.losing_names > 0)
    }

    /// The kernel is about to forget one of its names.
    pub fn name_goes(&mut self) {
        self.change_rare(|rare| rare.stale.get_or_insert_default().add());
    }

    /// A name that goes leads elsewhere for certain.
    pub fn name_misleads(&mut self) {
        self.change_rare(|rare| rare.stale.get_or_insert_default().mislead());
    }

    /// The kernel may come here by a name that is about to go.
    pub fn has_stale_names(&self) -> bool {
        self.stale().is_some()
    }

    /// The kernel has forgotten a name since it knows the file. A call that came by that name may still wait
    /// in the kernel.
    pub fn has_forgotten_names(&self) -> bool {
        self.references.0 & NAME_FORGOTTEN != 0
    }

    /// The kernel has forgotten one of the stale names.
    pub fn name_forgotten(&mut self) {
        self.references.name_forgotten();
        if self.stale_known().is_some_and(StaleNames::forget) {
            self.change_rare(|rare| rare.stale = None);
        }
    }

    /// Forgetting one takes long: nobody waits for it any more.
    pub fn name_late(&mut self) {
        if let Some(stale) = self.stale_known() {
            stale.is_forgotten_late();
        }
    }

    /// Resolves when the stale names are gone, or are late. `None`: there are none, or nobody is to
    /// wait for them.
    pub fn wait_for_names(&mut self) -> Option<Oneshot<()>> {
        self.stale_known()?.wait()
    }

    /// Some names may lead a call that came to the file so astray.
    pub fn may_lead_astray(&self, reached: Reached) -> bool {
        self.has_stale_names() || (reached == Reached::HeldFirst && self.has_forgotten_names())
    }

    /// While a name is stale: a question by a path is to look it up again.
    pub fn answer_astray(&self, reached: Reached) -> Result<(), FsError> {
        let entrance = match (self.is_directory(), self.is_open()) {
            (true, _) => Entrance::Directory,
            (false, true) => Entrance::Open,
            (false, false) => Entrance::NamesOnly,
        };
        match self.stale() {
            Some(stale) if stale.lead_astray(entrance, reached) => Err(FsError::Stale),
            None if reached == Reached::HeldFirst && self.has_forgotten_names() => {
                Err(FsError::Stale)
            }
            _ => Ok(()),
        }
    }

    fn stale(&self) -> Option<&StaleNames> {
        self.rare.as_ref()?.stale.as_ref()
    }

    fn stale_known(&mut self) -> Option<&mut StaleNames> {
        self.rare.as_mut()?.stale.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use base::LockHandle;
    use wire::Attr;

    use super::*;
    use crate::cache::cached_attr::Covered;
    use crate::rig::attr_at;

    #[test]
    fn a_file_takes_little_memory() {
        // After a listing this is most of what a mount has grown by, once a file.
        assert!(size_of::<Inode>() <= 192, "{} bytes", size_of::<Inode>());
        assert!(size_of::<Attr>() <= 136, "{} bytes", size_of::<Attr>());
    }

    #[test]
    fn what_few_files_have_takes_no_memory_afterwards() {
        let mut inode = Inode::default();
        inode.name_goes();
        inode.begin_losing_name();
        inode.learn_xattrs(Vec::new());
        assert!(inode.has_stale_names() && inode.is_losing_names() && !inode.is_idle());
        inode.name_forgotten();
        inode.end_losing_name();
        inode.forget_xattrs();
        assert!(inode.rare.is_none() && inode.is_idle());
        inode.forget_xattrs();
        assert!(inode.rare.is_none());
    }

    #[test]
    fn a_question_by_path_is_astray_while_a_name_is_stale_and_no_longer() {
        let mut inode = Inode::default();
        inode.file().opens.add_reader();
        assert!(inode.answer_astray(Reached::ByPath).is_ok());
        inode.name_goes();
        assert!(inode.answer_astray(Reached::ByPath).is_err());
        assert!(inode.answer_astray(Reached::Perhaps).is_ok(), "it is open");
        inode.file().opens.remove_reader();
        assert!(inode.answer_astray(Reached::Perhaps).is_err());
        inode.name_forgotten();
        assert!(inode.answer_astray(Reached::ByPath).is_ok());
    }

    #[test]
    fn a_link_looks_a_file_up_again_of_which_the_kernel_has_forgotten_a_name() {
        let mut inode = Inode::default();
        inode.refer();
        assert!(inode.answer_astray(Reached::HeldFirst).is_ok());
        inode.name_goes();
        inode.name_forgotten();
        assert!(inode.may_lead_astray(Reached::HeldFirst) && !inode.may_lead_astray(Reached::Held));
        assert!(inode.answer_astray(Reached::HeldFirst).is_err());
        assert!(inode.answer_astray(Reached::Held).is_ok(), "it has");
        inode.unrefer(1);
        inode.refer();
        assert!(inode.answer_astray(Reached::HeldFirst).is_ok());
    }

    #[test]
    fn the_kernel_has_what_it_has_not_let_go() {
        let mut inode = Inode::default();
        inode.inherit_lookups(1);
        inode.refer();
        assert!(inode.is_only_in_kernel() && !inode.is_idle());
        inode.unrefer(1);
        assert!(inode.is_in_kernel());
        inode.unrefer(7);
        assert!(!inode.is_in_kernel() && inode.is_idle());
    }

    #[test]
    fn the_truth_about_a_file_is_here_as_long_as_its_lock_is() {
        let (mut inode, now) = (Inode::default(), Timestamp::default().next());
        let mode = SetAttr {
            mode: Some(0o600),
            ..SetAttr::default()
        };
        inode.attrs.take(attr_at(TargetIndex(0)));
        assert!(!inode.change_here(&mode, now));
        inode.file().locks.grant_exclusive(LockHandle(1));
        assert!(inode.change_here(&mode, now));
        let attr = inode.attrs.known().expect("known");
        assert_eq!((attr.mode, attr.ctime), (0o600, now));
        assert!(inode.file().change.is_any());
        inode.attrs.own_lock_granted();
        inode.learn_xattrs(Vec::new());
        assert_eq!(inode.lose_exclusive(), Some(LockHandle(1)));
        assert!(inode.attrs.covered() == Covered::No && inode.xattrs().is_none());
        assert_eq!(inode.lose_exclusive(), None);
    }

    #[test]
    fn what_the_mount_has_alone_it_has_in_another_directory_too() {
        let (mut inode, leased) = (Inode::default(), Covered::Parent { child_epoch: 3 });
        for (is_exclusive, covered) in [(false, Covered::No), (true, Covered::Own)] {
            if is_exclusive {
                inode.file().locks.grant_exclusive(LockHandle(1));
            }
            inode.seen_in(Fid(7));
            inode.attrs.take_covered(attr_at(TargetIndex(0)), leased);
            inode.seen_in(Fid(8));
            assert_eq!(inode.attrs.covered(), covered);
        }
    }
}
