//! A thin layer over the kernel's FUSE protocol, versions 7.31 to 7.45. A reader thread of [`channel`] parses
//! a [`request`] and calls the [`Handler`]; [`notify`] makes the kernel forget. Every size of
//! `include/uapi/linux/fuse.h` is checked at compile time.

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
pub use handler::{Early, Handler, Heard};
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
