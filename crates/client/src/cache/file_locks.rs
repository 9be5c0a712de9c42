//! The locks of one file in use here: the MDT's EX lock, requests for extent locks, and the giving back of
//! either.

use base::{FsError, LockHandle};
use dlm::Mode;

use crate::cache::asking::Asking;
use crate::cache::holder::Holder;
use crate::executor::Oneshot;

/// Where the giving back of a lock stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Revoking {
    /// Nothing is being given back.
    #[default]
    No,
    /// The kernel is forgetting pages. Reads and write-backs are still served under the old lock,
    /// for their pages are locked in the kernel and the forgetting waits for them.
    Forgetting,
    /// The kernel holds nothing: calls wait for a new lock.
    WritingOut,
}

/// Whether others tell this client how a file grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Watch {
    /// They do not.
    #[default]
    No,
    /// That is being asked for.
    Asked,
    /// They do, as long as this lock is used.
    Held(Holder, LockHandle),
}

/// The locks of one file.
#[derive(Default)]
pub(crate) struct FileLocks {
    /// The MDT's EX lock on the inode: attributes and data are this client's alone.
    exclusive: Option<LockHandle>,
    /// Where the giving back of a lock stands.
    revoking: Revoking,
    /// The lock that goes when what is being written out is written: the kernel holds nothing that
    /// was read under it any more.
    leaving: Option<LockHandle>,
    /// Calls and write-outs that use a lock this moment.
    users: u32,
    /// Extent locks asked for.
    asking: Asking,
    /// Whether this client is told that the file grows.
    watch: Watch,
}

impl FileLocks {
    /// None is held, used, asked for or given back.
    pub fn is_idle(&self) -> bool {
        self.exclusive.is_none()
            && self.users == 0
            && self.asking.is_idle()
            && self.watch == Watch::No
            && !self.is_revoking()
    }

    /// The MDT's EX lock.
    pub fn exclusive(&self) -> Option<LockHandle> {
        self.exclusive
    }

    /// The file is this client's alone.
    pub fn is_exclusive(&self) -> bool {
        self.exclusive.is_some()
    }

    /// The MDT has granted its EX lock.
    pub fn grant_exclusive(&mut self, handle: LockHandle) {
        self.exclusive = Some(handle);
    }

    /// The MDT's EX lock is gone.
    pub fn take_exclusive(&mut self) -> Option<LockHandle> {
        self.exclusive.take()
    }

    /// Where the giving back of a lock stands.
    pub fn revoking(&self) -> Revoking {
        self.revoking
    }

    /// A lock is being given back.
    pub fn is_revoking(&self) -> bool {
        self.revoking != Revoking::No
    }

    /// A lock is to be given back: first the kernel forgets.
    pub fn begin_revoking(&mut self) {
        self.revoking = Revoking::Forgetting;
    }

    /// The kernel has forgotten: what was written under the lock goes out, and then the lock.
    pub fn begin_writing_out(&mut self, handle: LockHandle) {
        self.revoking = Revoking::WritingOut;
        self.leaving = Some(handle);
    }

    /// The lock is given back, or stays.
    pub fn end_revoking(&mut self) {
        self.revoking = Revoking::No;
        self.leaving = None;
    }

    /// The lock that goes with what is being written out.
    pub fn leaving(&self) -> Option<LockHandle> {
        self.leaving
    }

    /// So many more calls or write-outs use a lock.
    pub fn begin_uses(&mut self, count: u32) {
        self.users += count;
    }

    /// One of them has ended. Returns whether none is left.
    pub fn end_use(&mut self) -> bool {
        self.users -= 1;
        self.users == 0
    }

    /// A lock is being used.
    pub fn is_used(&self) -> bool {
        self.users > 0
    }

    /// One more waits for an extent lock; true if the caller is to ask for it, because nobody has.
    pub fn wait_for_extent(&mut self, mode: Mode) -> (Oneshot<Result<(), FsError>>, bool) {
        self.asking.wait(mode)
    }

    /// The request for an extent lock in `mode` is answered.
    pub fn extent_answered(&mut self, mode: Mode, result: Result<(), FsError>) {
        self.asking.answered(mode, result);
    }

    /// There is an extent lock to look at.
    pub fn look_again(&mut self) {
        self.asking.look_again();
    }

    /// Whether this client is told that the file grows.
    pub fn watch(&self) -> Watch {
        self.watch
    }

    /// This client is told that the file grows.
    pub fn is_watched(&self) -> bool {
        matches!(self.watch, Watch::Held(..))
    }

    /// A lock to watch the file is about to be asked for.
    pub fn ask_to_watch(&mut self) {
        self.watch = Watch::Asked;
    }

    /// That is answered.
    pub fn watch_answered(&mut self) {
        if self.watch == Watch::Asked {
            self.watch = Watch::No;
        }
    }

    /// This lock watches the file.
    pub fn hold_watch(&mut self, holder: Holder, handle: LockHandle) {
        self.watch = Watch::Held(holder, handle);
    }

    /// The file is not watched any more. Returns the lock that watched it.
    pub fn take_watch(&mut self) -> Option<(Holder, LockHandle)> {
        match std::mem::take(&mut self.watch) {
            Watch::Held(holder, handle) => Some((holder, handle)),
            Watch::Asked | Watch::No => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_leaves_when_the_kernel_has_forgotten() {
        let mut locks = FileLocks::default();
        locks.begin_revoking();
        assert_eq!(
            (locks.revoking(), locks.leaving()),
            (Revoking::Forgetting, None)
        );
        locks.begin_writing_out(LockHandle(1));
        assert_eq!(locks.leaving(), Some(LockHandle(1)));
        assert!(locks.is_revoking() && !locks.is_idle());
        locks.end_revoking();
        assert!(locks.leaving().is_none() && locks.is_idle());
    }

    #[test]
    fn uses_end_with_the_last() {
        let mut locks = FileLocks::default();
        locks.begin_uses(2);
        assert!(!locks.end_use() && locks.is_used());
        assert!(locks.end_use() && !locks.is_used());
    }

    #[test]
    fn a_watch_that_came_meanwhile_stays_when_the_request_is_answered() {
        let (mut locks, holder) = (FileLocks::default(), Holder::Mdt);
        locks.ask_to_watch();
        locks.watch_answered();
        assert_eq!(locks.watch(), Watch::No);
        locks.ask_to_watch();
        assert!(!locks.is_watched() && !locks.is_idle());
        locks.hold_watch(holder, LockHandle(1));
        locks.watch_answered();
        assert_eq!(locks.take_watch(), Some((holder, LockHandle(1))));
        assert_eq!(locks.take_watch(), None);
    }
}
