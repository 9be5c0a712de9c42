//! What is known of one file.

use base::{Fid, FsError, TargetIndex};
use wire::{Attr, FileKind};

use crate::cache::directory::Directory;
use crate::cache::file::FileState;
use crate::executor::{Oneshot, WaitList};

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

/// How a question came to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// By an open file, or by a name just looked up.
    Rightly,
    /// By its path, or for a directory something that can be asked again.
    ByPath,
    /// By a path or an open file: the kernel does not tell.
    Perhaps,
    /// The same of a question for attributes, which must not be answered with those of a file that
    /// its path has ceased to lead to.
    Stat,
    /// By its path, with a lock held in the kernel that forgetting a name may need.
    Held,
}

/// A file's extended attributes, name and value.
pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Names the kernel may still hold and believe that lead here no more, or that nothing covers.
/// Questions by path wait until they are gone and are then answered `Stale`, so that the kernel
/// looks the name up again (hazard 4).
#[derive(Default)]
struct StaleNames {
    count: u32,
    /// The kernel cannot forget them at once.
    late: bool,
    /// One of them leads elsewhere for certain.
    misled: bool,
    /// Who waits for the last of them to be gone.
    forgotten: WaitList,
}

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

/// One file in the cache, unknown at first. There are millions: what is rare is boxed.
pub(crate) struct Inode {
    /// The last attributes told; to be used only while covered.
    pub attr: Option<Attr>,
    pub covered: Covered,
    dir: Fid,
    /// References the kernel holds.
    pub lookups: u64,
    rare: Option<Box<Rare>>,
    /// Of a directory.
    pub directory: Option<Box<Directory>>,
    /// Of what is open or has data here.
    pub file: Option<Box<FileState>>,
}

impl Default for Inode {
    fn default() -> Inode {
        Inode {
            attr: None,
            covered: Covered::No,
            dir: Fid::NONE,
            lookups: 0,
            rare: None,
            directory: None,
            file: None,
        }
    }
}

impl Inode {
    /// The OST that has its bytes, once its attributes are known.
    pub fn ost(&self) -> Option<TargetIndex> {
        let attr = self.attr.as_ref()?;
        attr.layout.stripes.first().copied()
    }

    /// Nothing in it would be missed.
    pub fn is_idle(&self) -> bool {
        let referred = self.lookups > 0 || self.has_stale_names() || self.is_losing_names();
        !referred && self.file.is_none()
    }

    /// Nothing in it would be missed if the kernel let it go.
    pub fn is_only_in_kernel(&self) -> bool {
        let told = self.has_stale_names() || self.is_losing_names();
        self.lookups > 0 && !told && self.file.is_none()
    }

    /// A directory it was seen in last; NONE if nowhere.
    pub fn dir(&self) -> Fid {
        self.dir
    }

    /// It was seen in `dir`. The lease of another directory covers it no more.
    pub fn seen_in(&mut self, dir: Fid) {
        if self.dir != dir && matches!(self.covered, Covered::Parent { .. }) {
            self.covered = match self.is_exclusive() {
                true => Covered::Own,
                false => Covered::No,
            };
        }
        self.dir = dir;
    }

    /// This client has the EX lock: the truth about it is here.
    pub fn is_exclusive(&self) -> bool {
        let file = self.file.as_ref();
        file.is_some_and(|file| file.locks.is_exclusive())
    }

    fn change_rare<R>(&mut self, change: impl FnOnce(&mut Rare) -> R) -> R {
        let rare = self.rare.get_or_insert_default();
        let result = change(rare);
        if rare.is_empty() {
            self.rare = None;
        }
        result
    }

    fn stale(&self) -> Option<&StaleNames> {
        self.rare.as_ref()?.stale.as_ref()
    }

    fn stale_mut(&mut self) -> Option<&mut StaleNames> {
        self.rare.as_mut()?.stale.as_mut()
    }

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

    /// All extended attributes, valid under XATTR.
    pub fn xattrs(&self) -> Option<&Xattrs> {
        self.rare.as_ref()?.xattrs.as_ref()
    }

    /// The extended attributes are these, or are not known any more.
    pub fn set_xattrs(&mut self, xattrs: Option<Xattrs>) {
        if xattrs.is_some() || self.rare.is_some() {
            self.change_rare(|rare| rare.xattrs = xattrs);
        }
    }

    /// A symlink's target, if known.
    pub fn target(&self) -> Option<&[u8]> {
        self.rare.as_ref()?.target.as_deref()
    }

    /// A symlink's target, which never changes.
    pub fn set_target(&mut self, target: Box<[u8]>) {
        self.change_rare(|rare| rare.target = Some(target));
    }

    /// The kernel is about to forget one of its names.
    pub fn name_goes(&mut self) {
        self.change_rare(|rare| rare.stale.get_or_insert_default().count += 1);
    }

    /// A name that goes leads elsewhere for certain.
    pub fn name_misleads(&mut self) {
        self.change_rare(|rare| rare.stale.get_or_insert_default().misled = true);
    }

    /// The kernel may come here by a name that is about to go.
    pub fn has_stale_names(&self) -> bool {
        self.stale().is_some()
    }

    /// The kernel has forgotten one of the stale names.
    pub fn name_forgotten(&mut self) {
        let Some(stale) = self.stale_mut() else {
            return;
        };
        stale.count -= 1;
        if stale.count == 0 {
            stale.forgotten.wake_all();
            self.change_rare(|rare| rare.stale = None);
        }
    }

    /// Forgetting one takes long: nobody waits for it any more.
    pub fn name_late(&mut self) {
        if let Some(stale) = self.stale_mut() {
            stale.late = true;
            stale.forgotten.wake_all();
        }
    }

    /// Resolves when the stale names are gone, or are late. `None`: there are none, or nobody is to
    /// wait for them.
    pub fn wait_for_names(&mut self) -> Option<Oneshot<()>> {
        let stale = self.stale_mut()?;
        (!stale.late).then(|| stale.forgotten.wait())
    }

    /// While a name is stale: who comes by a path is to look it up again. Who has the file open may
    /// have come by that, and who stands in a directory without any name: those get their answer.
    pub fn answer_astray(&self, reached: Reached) -> Result<(), FsError> {
        let Some(stale) = self.stale() else {
            return Ok(());
        };
        let astray = match (self.is_directory(), reached) {
            (_, Reached::Rightly) | (true, Reached::Perhaps) => false,
            // A client that changes the name waits until it is forgotten, so the question came
            // before.
            (true, Reached::ByPath | Reached::Held | Reached::Stat) => stale.misled && stale.late,
            (false, Reached::ByPath | Reached::Held) => true,
            (false, Reached::Perhaps) => !self.is_open(),
            // The same.
            (false, Reached::Stat) => !self.is_open() || !stale.misled || stale.late,
        };
        match astray {
            true => Err(FsError::Stale),
            false => Ok(()),
        }
    }

    /// Somebody has it open here.
    pub fn is_open(&self) -> bool {
        let file = self.file.as_ref();
        file.is_some_and(|file| file.opens.is_open())
    }

    pub fn is_directory(&self) -> bool {
        self.attr
            .as_ref()
            .is_some_and(|attr| attr.kind == FileKind::Directory)
    }

    /// The directory's names, made if need be.
    pub fn directory(&mut self) -> &mut Directory {
        self.directory.get_or_insert_default()
    }

    /// Takes attributes from a reply unless newer ones are known. True if they were taken.
    pub fn take(&mut self, attr: Attr) -> bool {
        match &self.attr {
            Some(known) if known.version > attr.version => false,
            _ => {
                self.attr = Some(attr);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        inode.set_xattrs(Some(Vec::new()));
        assert!(inode.has_stale_names() && inode.is_losing_names() && !inode.is_idle());
        inode.name_forgotten();
        inode.end_losing_name();
        inode.set_xattrs(None);
        assert!(inode.rare.is_none() && inode.is_idle());
    }

    #[test]
    fn an_open_file_answers_for_itself_while_a_name_of_it_goes() {
        let mut inode = Inode::default();
        inode.file.get_or_insert_default().opens.add_reader();
        inode.name_goes();
        let stat = |inode: &Inode| inode.answer_astray(Reached::Stat).is_ok();
        assert!(
            !stat(&inode),
            "who gives the name away does not wait for us"
        );
        inode.name_misleads();
        assert!(stat(&inode) && inode.answer_astray(Reached::ByPath).is_err());
        inode.name_late();
        assert!(!stat(&inode), "nor any longer");
        inode.name_forgotten();
        assert!(stat(&inode));
    }

    #[test]
    fn who_stands_in_a_directory_is_answered_while_its_name_goes() {
        let attr = Attr {
            kind: FileKind::Directory,
            mode: 0o755,
            uid: 0,
            gid: 0,
            nlink: 2,
            rdev: 0,
            has_xattrs: false,
            size_state: wire::SizeState::Strict,
            layout: layout::Layout::none(),
            atime: base::Timestamp::default(),
            mtime: base::Timestamp::default(),
            mtime_set: base::Timestamp::default(),
            ctime: base::Timestamp::default(),
            btime: base::Timestamp::default(),
            size: 0,
            blocks: 0,
            version: 1,
        };
        let mut inode = Inode::default();
        inode.take(attr);
        let told = |inode: &Inode| inode.answer_astray(Reached::Stat).is_ok();
        inode.name_goes();
        assert!(told(&inode), "it may lead there still");
        inode.name_misleads();
        assert!(told(&inode), "who takes the name away waits for us");
        inode.name_late();
        assert!(!told(&inode), "nor any longer");
    }

    #[test]
    fn the_lease_of_the_old_directory_covers_it_no_more() {
        let mut inode = Inode::default();
        inode.seen_in(Fid(7));
        inode.covered = Covered::Parent { child_epoch: 3 };
        inode.seen_in(Fid(7));
        assert_eq!(inode.covered, Covered::Parent { child_epoch: 3 });
        inode.seen_in(Fid(8));
        assert_eq!(inode.covered, Covered::No);
    }
}
