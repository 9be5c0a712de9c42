//! What the client asks of the kernel's caches: the rim, with one trait and fakes in tests.
//!
//! Everything handed to the kernel with a timeout is valid only while a lock covers it; before a
//! lock goes back, the kernel forgets first.

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
    /// A name. Waits for the directory's lock in the kernel, so nobody may wait for it who is
    /// waited for by a call in that directory, but with the fallback that `done` tells.
    Name {
        /// The directory.
        dir: Fid,
        /// The name.
        name: Name,
        /// It was a directory and still is one somewhere: expire, do not unhash (a process may
        /// stand in it, or something be mounted on it).
        expire: bool,
    },
}

/// The kernel's caches of one mount.
pub trait KernelCache: Send + Sync {
    /// Queues `what` on a thread of its own; `done` is told when the kernel has forgotten, or when
    /// nothing it still holds can be used without asking us.
    fn forget(&self, what: Forget, done: Sender<()>);
}

/// No kernel above: tools and tests that speak to the client directly.
#[derive(Debug, Default)]
pub struct NoKernel;

impl KernelCache for NoKernel {
    fn forget(&self, _what: Forget, done: Sender<()>) {
        done.send(());
    }
}
