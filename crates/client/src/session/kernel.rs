//! The kernel's caches as the client knows them: one trait, with fakes in tests.

use base::{ByteRange, Fid, Name};

use crate::executor::Sender;

/// What the kernel shall forget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forget {
    /// Attributes of one file. Takes no lock in the kernel. `dir`: where it may be linked just now
    /// by a reply that the kernel has not digested yet; zero if nowhere.
    Attributes {
        /// The file.
        fid: Fid,
        /// A directory it is in.
        dir: Fid,
    },
    /// Cached pages of a file (or of a directory's listing) and its attributes.
    Pages {
        /// The file.
        fid: Fid,
        /// Which bytes.
        range: ByteRange,
    },
}

/// A name the kernel shall forget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgetName {
    /// The directory.
    pub dir: Fid,
    /// The name.
    pub name: Name,
    /// What it led to.
    pub fid: Fid,
    /// It leads to a directory: expire, do not unhash (a process may stand in it, or something be
    /// mounted on it).
    pub expire: bool,
}

/// The kernel's caches of one mount. Everything that the kernel was given with a timeout is valid only while
/// a lock covers it: before the lock goes back, the kernel forgets.
pub trait KernelCache: Send + Sync {
    /// Queues `what` on a thread of its own; `done` is told when the kernel has forgotten.
    fn forget(&self, what: Forget, done: Sender<()>);

    /// The same for a name. That waits for the directory's lock in the kernel, which a call may hold
    /// that waits for us: where it takes long, `late` is told.
    fn forget_name(&self, what: ForgetName, late: Sender<()>, done: Sender<()>);

    /// Every name is looked up again before it is used. False: the kernel cannot be asked that.
    fn forget_all_names(&self) -> bool;

    /// The file reaches to `end` at least. What the kernel has of its bytes stays as it is.
    fn extend(&self, fid: Fid, end: u64, done: Sender<()>);

    /// What programs have closed by now is closed here, too, when `done` is sent or dropped: the kernel may
    /// say so late.
    fn after_closes(&self, done: Sender<()>);

    /// A program is in a call that has appended to the file and goes on, as far as can be known.
    fn is_appending(&self, fid: Fid) -> bool;

    /// The kernel shall drop what it has of these files, all of it true, as far as nobody uses them.
    /// A kernel that cannot be asked drops them when it needs the memory.
    fn let_go(&self, files: Vec<Fid>);
}

/// No kernel above: tools and tests that speak to the client directly.
#[derive(Debug, Default)]
pub struct NoKernel;

impl KernelCache for NoKernel {
    fn forget(&self, _what: Forget, done: Sender<()>) {
        done.send(());
    }

    fn forget_name(&self, _what: ForgetName, _late: Sender<()>, done: Sender<()>) {
        done.send(());
    }

    fn forget_all_names(&self) -> bool {
        true
    }

    fn extend(&self, _fid: Fid, _end: u64, done: Sender<()>) {
        done.send(());
    }

    fn after_closes(&self, done: Sender<()>) {
        done.send(());
    }

    fn is_appending(&self, _fid: Fid) -> bool {
        false
    }

    fn let_go(&self, _files: Vec<Fid>) {}
}
