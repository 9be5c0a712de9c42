//! A thin layer over the kernel's FUSE protocol, versions 7.31 to 7.45.
//!
//! What happens to a request: the reader thread of [`channel`] that is on watch takes its bytes
//! from a [`device`], [`request`] parses them, the [`Handler`] gets a borrowed [`Request`] and a [`Replier`]. The
//! handler answers at once or keeps the replier and answers later, from any thread. It never
//! waits: a waiting handler holds a reader, and with all readers held the WRITE that would end
//! the wait is never read. Thus no reserved thread for WRITE, FLUSH, RELEASE, FORGET and
//! INTERRUPT is needed: every reader is always free for them.
//!
//! The other direction is [`notify`]: what tells the kernel to forget. Those calls may block for
//! as long as a process holds a directory's lock, so they belong on the threads of a
//! [`NotifyQueue`], never on a reader.
//!
//! The seam for another transport (io_uring) is `replier::ReplyPort`: the thread that reads
//! requests hands out repliers over its own port and calls the same [`Handler`].
//!
//! Layout and meaning of the messages follow `include/uapi/linux/fuse.h` as a description of an
//! interface; every structure's size is checked at compile time.

mod abi;

pub mod attributes;
pub mod channel;
pub mod device;
pub mod directory;
pub mod errno;
pub mod flusher;
pub mod handler;
mod intake;
pub mod mount;
pub mod negotiation;
pub mod notify;
pub mod open;
pub mod replier;
pub mod reply;
pub mod request;
pub mod setattr;
mod watch;

pub use abi::Opcode;
pub use attributes::{Attributes, Entry, FOREVER};
pub use channel::{Session, SessionConfig, SessionError};
pub use device::Device;
pub use directory::{DirEntry, DirectoryBuffer};
pub use errno::Errno;
pub use handler::{Handler, Heard};
pub use mount::{Mount, MountError, MountOptions, mount};
pub use negotiation::{Granted, InitFlags, InitOffer, InitWish, KernelLevel};
pub use notify::{Lane, Notice, NoticeOutcome, Notifier, NotifyError, NotifyQueue, Pages};
pub use open::{Access, OpenFlags};
pub use replier::{Delivery, Replier};
pub use reply::{FileSystemStatus, LockReply, Opened};
pub use request::{IoctlRequest, Op, Request};
pub use setattr::{SetAttributes, SetTime};

/// The nodeid of a mount's root directory, fixed by the protocol.
pub const ROOT_NODEID: u64 = abi::ROOT_NODEID;
