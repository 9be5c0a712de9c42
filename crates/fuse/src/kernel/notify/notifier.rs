//! The calls themselves, one write of the device each.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::ByteRange;
use zerocopy::IntoBytes;

use crate::kernel::abi::notice::{self, Code};
use crate::kernel::device::Device;
use crate::kernel::errno::Errno;
use crate::kernel::intake::Intake;
use crate::kernel::negotiation::Granted;

/// What a notice did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeOutcome {
    /// The kernel had it, and has forgotten.
    Done,
    /// The kernel did not have it: nothing to forget.
    NotCached,
}

/// Why a notice had no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotifyError {
    /// The kernel is too old for it, or acts as if it were.
    Unsupported,
    /// The entry to delete is a mount point or a directory that is not empty.
    Busy,
    /// The mount is gone.
    Gone,
    /// Anything else; a bug here or there.
    Failed(Errno),
}

impl fmt::Display for NotifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotifyError::Unsupported => f.write_str("the kernel does not offer this notice"),
            NotifyError::Busy => f.write_str("the entry is in use"),
            NotifyError::Gone => f.write_str("the mount is gone"),
            NotifyError::Failed(errno) => write!(f, "the kernel refused a notice: {errno}"),
        }
    }
}

impl std::error::Error for NotifyError {}

impl From<io::Error> for NotifyError {
    fn from(error: io::Error) -> NotifyError {
        match Errno::of(&error) {
            Errno::ENODEV | Errno::ENOTCONN | Errno::ECONNABORTED | Errno::EPERM => {
                NotifyError::Gone
            }
            Errno::EBUSY | Errno::ENOTEMPTY => NotifyError::Busy,
            Errno::ENOSYS => NotifyError::Unsupported,
            errno => NotifyError::Failed(errno),
        }
    }
}

/// Which cached pages go when an inode is invalidated. Its attributes and ACLs go always.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// None: takes no inode or page lock, never blocks.
    Keep,
    /// Those that hold a byte of the range. Waits for reads of those pages, and for write-back of
    /// dirty ones, which are WRITE requests.
    Drop(ByteRange),
}

/// One notice, owned, for a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each is the call of that name on Notifier, with its arguments"
)]
pub enum Notice {
    InvalInode {
        nodeid: u64,
        pages: Pages,
    },
    InvalEntry {
        parent: u64,
        name: Box<[u8]>,
    },
    ExpireEntry {
        parent: u64,
        name: Box<[u8]>,
    },
    Delete {
        parent: u64,
        child: u64,
        name: Box<[u8]>,
    },
    Store {
        nodeid: u64,
        offset: u64,
        data: Box<[u8]>,
    },
    Extend {
        nodeid: u64,
        end: u64,
    },
    IncEpoch,
    Prune {
        nodeids: Box<[u64]>,
    },
}

/// Sends notices. Cheap to clone; calls may block, so make them from a thread that serves nothing.
#[derive(Debug, Clone)]
pub struct Notifier {
    device: Arc<Device>,
    intake: Arc<Intake>,
    granted: Granted,
    retrievals: Arc<AtomicU64>,
}

impl Notifier {
    pub(in crate::kernel) fn new(
        device: Arc<Device>,
        intake: Arc<Intake>,
        granted: &Granted,
    ) -> Notifier {
        Notifier {
            device,
            intake,
            granted: *granted,
            retrievals: Arc::default(),
        }
    }

    /// What the kernel can do.
    pub fn granted(&self) -> &Granted {
        &self.granted
    }

    /// Calls `then` when the handler has begun with everything that the kernel had asked by now: at
    /// once, or on a reader's thread.
    pub fn after_requests(&self, then: impl FnOnce() + Send + 'static) {
        let is_empty = || self.device.is_empty();
        self.intake.after_requests(is_empty, Box::new(then));
    }

    /// Sends an owned notice.
    pub fn send(&self, notice: &Notice) -> Result<NoticeOutcome, NotifyError> {
        match notice {
            Notice::InvalInode { nodeid, pages } => self.inval_inode(*nodeid, *pages),
            Notice::InvalEntry { parent, name } => self.inval_entry(*parent, name),
            Notice::ExpireEntry { parent, name } => self.expire_entry(*parent, name),
            Notice::Delete {
                parent,
                child,
                name,
            } => self.delete(*parent, *child, name),
            Notice::Store {
                nodeid,
                offset,
                data,
            } => self.store(*nodeid, *offset, data),
            Notice::Extend { nodeid, end } => self.extend(*nodeid, *end),
            Notice::IncEpoch => self.inc_epoch(),
            Notice::Prune { nodeids } => self.prune(nodeids),
        }
    }

    /// Forgets an inode's attributes, and cached pages as said. For a directory all cached
    /// entries of readdir go with any page.
    pub fn inval_inode(&self, nodeid: u64, pages: Pages) -> Result<NoticeOutcome, NotifyError> {
        let (offset, length) = match pages {
            Pages::Keep => (-1, 0),
            Pages::Drop(range) if range.is_empty() => (-1, 0),
            Pages::Drop(range) => (kernel_offset(range.start), kernel_length(range)),
        };
        let head = notice::InvalInode {
            nodeid,
            offset,
            length,
        };
        self.write(Code::InvalInode, &[head.as_bytes()])
    }

    /// Drops an entry, and everything below it where nothing holds that. Waits for the parent's
    /// inode lock, which any process may hold for long.
    pub fn inval_entry(&self, parent: u64, name: &[u8]) -> Result<NoticeOutcome, NotifyError> {
        self.entry(parent, name, 0)
    }

    /// Lets an entry expire, so that its next use looks it up; what is mounted or working below
    /// stays. Waits for the parent's inode lock too.
    pub fn expire_entry(&self, parent: u64, name: &[u8]) -> Result<NoticeOutcome, NotifyError> {
        if !self.granted.expires_entries() {
            return Err(NotifyError::Unsupported);
        }
        self.entry(parent, name, notice::EXPIRE_ONLY)
    }

    fn entry(&self, parent: u64, name: &[u8], flags: u32) -> Result<NoticeOutcome, NotifyError> {
        let head = notice::InvalEntry {
            parent,
            name_len: name.len() as u32,
            flags,
        };
        self.write(Code::InvalEntry, &[head.as_bytes(), name, b"\0"])
    }

    /// As [`Notifier::inval_entry`] where the name still leads to `child`, and tells watchers
    /// (inotify) that it was deleted.
    pub fn delete(
        &self,
        parent: u64,
        child: u64,
        name: &[u8],
    ) -> Result<NoticeOutcome, NotifyError> {
        let name_len = name.len() as u32;
        let head = notice::Delete {
            parent,
            child,
            name_len,
            padding: 0,
        };
        self.write(Code::Delete, &[head.as_bytes(), name, b"\0"])
    }

    /// Puts data into the page cache of an inode the kernel knows.
    pub fn store(
        &self,
        nodeid: u64,
        offset: u64,
        data: &[u8],
    ) -> Result<NoticeOutcome, NotifyError> {
        let size = data.len() as u32;
        let head = notice::Store {
            nodeid,
            offset,
            size,
            padding: 0,
        };
        self.write(Code::Store, &[head.as_bytes(), data])
    }

    /// The file reaches to `end` at least; no byte of it is changed. There is no notice for that. The
    /// kernel moves the end of file before it takes the bytes of a STORE: so it is told of the last
    /// one, and cannot have that. Waits for a read of the page in which it is.
    pub fn extend(&self, nodeid: u64, end: u64) -> Result<NoticeOutcome, NotifyError> {
        let Some(offset) = end.checked_sub(1) else {
            return Ok(NoticeOutcome::Done);
        };
        let head = notice::Store {
            nodeid,
            offset,
            size: 1,
            padding: 0,
        };
        let told = self.device.notify_of_a_byte(Code::Store, head.as_bytes());
        match told.as_ref().map_err(io::Error::raw_os_error) {
            Ok(()) | Err(Some(libc::EFAULT)) => Ok(NoticeOutcome::Done),
            Err(_) => outcome(told),
        }
    }

    /// Asks for cached data; it comes to [`crate::kernel::Handler::retrieved`] under the id
    /// returned. `None` where the inode is not cached.
    pub fn retrieve(
        &self,
        nodeid: u64,
        offset: u64,
        size: u32,
    ) -> Result<Option<u64>, NotifyError> {
        let unique = self.retrievals.fetch_add(1, Ordering::Relaxed) + 1;
        let head = notice::Retrieve {
            unique,
            nodeid,
            offset,
            size,
            padding: 0,
        };
        let outcome = self.write(Code::Retrieve, &[head.as_bytes()])?;
        Ok((outcome == NoticeOutcome::Done).then_some(unique))
    }

    /// Makes every cached entry be looked up again at its next use. Attributes and cached
    /// directory pages stay, and what is mounted below may be detached: a last resort.
    pub fn inc_epoch(&self) -> Result<NoticeOutcome, NotifyError> {
        if !self.granted.increments_epoch() {
            return Err(NotifyError::Unsupported);
        }
        self.write(Code::IncEpoch, &[])
    }

    /// Lets the kernel drop these inodes where nothing uses them.
    pub fn prune(&self, nodeids: &[u64]) -> Result<NoticeOutcome, NotifyError> {
        if !self.granted.prunes() {
            return Err(NotifyError::Unsupported);
        }
        let head = notice::Prune {
            count: nodeids.len() as u32,
            padding: 0,
            spare: 0,
        };
        self.write(Code::Prune, &[head.as_bytes(), nodeids.as_bytes()])
    }

    /// Asks for all unanswered requests once more, after another process took over the mount.
    pub fn resend(&self) -> Result<NoticeOutcome, NotifyError> {
        if !self.granted.resends() {
            return Err(NotifyError::Unsupported);
        }
        self.write(Code::Resend, &[])
    }

    /// Wakes who polls the file that POLL named with this handle.
    pub fn wake_poll(&self, kernel_handle: u64) -> Result<NoticeOutcome, NotifyError> {
        let head = notice::PollWakeup { kernel_handle };
        self.write(Code::Poll, &[head.as_bytes()])
    }

    fn write(&self, code: Code, parts: &[&[u8]]) -> Result<NoticeOutcome, NotifyError> {
        outcome(self.device.notify(code, parts))
    }
}

fn outcome(told: io::Result<()>) -> Result<NoticeOutcome, NotifyError> {
    match told {
        Ok(()) => Ok(NoticeOutcome::Done),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(NoticeOutcome::NotCached),
        Err(error) => Err(error.into()),
    }
}

fn kernel_offset(start: u64) -> i64 {
    i64::try_from(start).unwrap_or(i64::MAX)
}

/// 0 means "to the end" there.
fn kernel_length(range: ByteRange) -> i64 {
    let reaches_end = i64::try_from(range.end).is_err();
    if reaches_end {
        0
    } else {
        i64::try_from(range.len()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_become_offset_and_length() {
        assert_eq!(kernel_length(ByteRange::new(10, 30)), 20);
        assert_eq!(kernel_length(ByteRange::from(10)), 0);
        assert_eq!(
            kernel_length(ByteRange::new(10, i64::MAX as u64)),
            i64::MAX - 10
        );
        assert_eq!(kernel_offset(u64::MAX), i64::MAX);
    }

    #[test]
    fn errors_are_told_apart() {
        let of = |number| NotifyError::from(io::Error::from_raw_os_error(number));
        assert_eq!(of(libc::ENODEV), NotifyError::Gone);
        assert_eq!(of(libc::ENOTEMPTY), NotifyError::Busy);
        assert_eq!(of(libc::EINVAL), NotifyError::Failed(Errno::EINVAL));
    }
}
