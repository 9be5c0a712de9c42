//! What is known of one file.

use base::{Fid, FsError};
use wire::{Attr, FileKind};

use crate::cache::directory::Directory;
use crate::executor::{Oneshot, WaitList};
use crate::io::file::FileState;

/// What keeps the attributes valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Covered {
    /// Nothing.
    No,
    /// CHILD of the lease on this directory, as long as its count is this.
    Parent { dir: Fid, child_epoch: u64 },
    /// A lock on the file itself.
    Own,
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
    /// By its path, with a lock held in the kernel that forgetting a name may need.
    Held,
}

/// A file's extended attributes, name and value.
pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Names the kernel may still hold and believe that lead here no more, or that nothing covers:
/// questions by path wait until they are gone and are then answered `Stale`, so that the kernel looks
/// the name up again (hazard 4).
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

/// One file in the cache. There are millions: what is rare is boxed.
pub(crate) struct Inode {
    /// The last attributes told; to be used only while covered.
    pub attr: Option<Attr>,
    pub covered: Covered,
    /// A directory it was seen in last; NONE if nowhere.
    pub dir: Fid,
    /// References the kernel holds.
    pub lookups: u64,
    /// Names of it that are to be forgotten by the kernel.
    stale: Option<Box<StaleNames>>,
    /// Calls of this client under way that remove one of its names.
    pub losing_names: u32,
    /// All extended attributes, valid under XATTR.
    pub xattrs: Option<Box<Xattrs>>,
    /// A symlink's target; never changes.
    pub target: Option<Box<[u8]>>,
    /// Of a directory.
    pub directory: Option<Box<Directory>>,
    /// Of what is open or has data here.
    pub file: Option<Box<FileState>>,
}

impl Inode {
    pub fn new() -> Inode {
        Inode {
            attr: None,
            covered: Covered::No,
            dir: Fid::NONE,
            lookups: 0,
            stale: None,
            losing_names: 0,
            xattrs: None,
            target: None,
            directory: None,
            file: None,
        }
    }

    /// Nothing in it would be missed.
    pub fn is_idle(&self) -> bool {
        let referred = self.lookups > 0 || self.has_stale_names() || self.losing_names > 0;
        !referred && self.file.is_none()
    }

    /// The kernel is about to forget one of its names.
    pub fn name_goes(&mut self) {
        self.stale.get_or_insert_default().count += 1;
    }

    /// A name that goes leads elsewhere for certain.
    pub fn name_misleads(&mut self) {
        self.stale.get_or_insert_default().misled = true;
    }

    /// The kernel may come here by a name that is about to go.
    pub fn has_stale_names(&self) -> bool {
        self.stale.is_some()
    }

    /// The kernel has forgotten one of the stale names.
    pub fn name_forgotten(&mut self) {
        let Some(stale) = &mut self.stale else { return };
        stale.count -= 1;
        if stale.count == 0 {
            stale.forgotten.wake_all();
            self.stale = None;
        }
    }

    /// Forgetting one takes long: nobody waits for it any more.
    pub fn name_late(&mut self) {
        if let Some(stale) = &mut self.stale {
            stale.late = true;
            stale.forgotten.wake_all();
        }
    }

    /// Resolves when the stale names are gone, or are late. `None`: there are none, or nobody is to
    /// wait for them.
    pub fn wait_for_names(&mut self) -> Option<Oneshot<()>> {
        let stale = self.stale.as_mut()?;
        (!stale.late).then(|| stale.forgotten.wait())
    }

    /// While a name is stale: who comes by a path is to look it up again. Who has the file open may
    /// have come by that, and who stands in a directory without any name: those get their answer.
    pub fn answer_astray(&self, reached: Reached) -> Result<(), FsError> {
        let Some(stale) = &self.stale else {
            return Ok(());
        };
        let astray = match (self.is_directory(), reached) {
            (_, Reached::Rightly) | (true, Reached::Perhaps) => false,
            (true, Reached::ByPath | Reached::Held) => stale.misled,
            (false, Reached::ByPath | Reached::Held) => true,
            (false, Reached::Perhaps) => !self.is_open(),
        };
        match astray {
            true => Err(FsError::Stale),
            false => Ok(()),
        }
    }

    /// Somebody has it open here.
    pub fn is_open(&self) -> bool {
        let file = self.file.as_ref();
        file.is_some_and(|file| file.readers + file.writers > 0)
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
