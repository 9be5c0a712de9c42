//! The promise to answer one request, once, from any thread.

use std::sync::Arc;
use std::time::Duration;

use base::Timestamp;
use tracing::{debug, error, trace};
use zerocopy::IntoBytes;

use super::abi::{Opcode, answer};
use super::attributes::{Attributes, Entry};
use super::directory::DirectoryBuffer;
use super::errno::Errno;
use super::reply::{self, FileSystemStatus, LockReply, Opened};

/// What became of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The kernel has it.
    Taken,
    /// The kernel no longer waits for it, or the mount is gone. Lookups it carried do not count,
    /// handles it opened will not be released.
    Refused,
}

/// Where answers go: the device a request was read from, or another transport.
pub trait ReplyPort: Send + Sync {
    /// Sends the answer to `unique`: an error, or the parts in a row.
    fn reply(&self, unique: u64, outcome: Result<&[&[u8]], Errno>) -> Delivery;
}

/// Answers one request. Consumed by the answer; dropped without one it answers EIO.
pub struct Replier {
    port: Option<Arc<dyn ReplyPort>>,
    unique: u64,
    opcode: Opcode,
}

impl Replier {
    /// The promise to answer `unique` through `port`.
    pub fn new(port: Arc<dyn ReplyPort>, unique: u64, opcode: Opcode) -> Replier {
        Replier {
            port: Some(port),
            unique,
            opcode,
        }
    }

    /// The request's id.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// The request's kind.
    pub fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// Fails the request.
    ///
    /// ENOSYS to OPEN or OPENDIR goes out as EIO: the kernel would never send another one.
    pub fn error(self, errno: Errno) -> Delivery {
        let never_again = matches!(self.opcode, Opcode::Open | Opcode::Opendir);
        if errno == Errno::ENOSYS && never_again {
            error!(opcode = ?self.opcode, "ENOSYS would end these requests for good; sent EIO");
            return self.send(Err(Errno::EIO));
        }
        self.send(Err(errno))
    }

    /// Done, nothing to say: UNLINK, RMDIR, RENAME, RELEASE, FLUSH, FSYNC, SETXATTR, ACCESS …
    pub fn done(self) -> Delivery {
        self.send(Ok(&[]))
    }

    /// LOOKUP, MKNOD, MKDIR, SYMLINK, LINK.
    pub fn entry(self, entry: &Entry) -> Delivery {
        self.send(Ok(&[entry.encode().as_bytes()]))
    }

    /// GETATTR, SETATTR.
    pub fn attributes(self, valid: Duration, attributes: &Attributes) -> Delivery {
        self.send(Ok(&[reply::attributes(valid, attributes).as_bytes()]))
    }

    /// STATX.
    pub fn statx(
        self,
        valid: Duration,
        attributes: &Attributes,
        birth: Option<Timestamp>,
    ) -> Delivery {
        self.send(Ok(&[reply::statx(valid, attributes, birth).as_bytes()]))
    }

    /// OPEN, OPENDIR.
    pub fn opened(self, opened: &Opened) -> Delivery {
        self.send(Ok(&[opened.encode().as_bytes()]))
    }

    /// CREATE, TMPFILE.
    pub fn created(self, entry: &Entry, opened: &Opened) -> Delivery {
        self.send(Ok(&[entry.encode().as_bytes(), opened.encode().as_bytes()]))
    }

    /// WRITE, COPY_FILE_RANGE: bytes written. More than 32 bits hold are said as their most.
    pub fn written(self, bytes: u64) -> Delivery {
        if self.opcode == Opcode::CopyFileRange64 {
            return self.send(Ok(&[answer::Copied { bytes }.as_bytes()]));
        }
        let size = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.send(Ok(&[answer::Write { size, padding: 0 }.as_bytes()]))
    }

    /// READ, READLINK, GETXATTR and LISTXATTR with a buffer.
    pub fn data(self, data: &[u8]) -> Delivery {
        self.send(Ok(&[data]))
    }

    /// As [`Replier::data`], out of several pieces that follow each other.
    pub fn data_parts(self, parts: &[&[u8]]) -> Delivery {
        self.send(Ok(parts))
    }

    /// READDIR, READDIRPLUS.
    pub fn directory(self, entries: &DirectoryBuffer) -> Delivery {
        self.send(Ok(&[entries.as_bytes()]))
    }

    /// STATFS.
    pub fn status(self, status: &FileSystemStatus) -> Delivery {
        self.send(Ok(&[status.encode().as_bytes()]))
    }

    /// GETXATTR and LISTXATTR when asked for the size.
    pub fn xattr_size(self, size: u32) -> Delivery {
        self.send(Ok(&[answer::Getxattr { size, padding: 0 }.as_bytes()]))
    }

    /// GETLK.
    pub fn lock(self, lock: &LockReply) -> Delivery {
        self.send(Ok(&[lock.encode().as_bytes()]))
    }

    /// LSEEK.
    pub fn offset(self, offset: u64) -> Delivery {
        self.send(Ok(&[answer::Lseek { offset }.as_bytes()]))
    }

    /// POLL.
    pub fn polled(self, revents: u32) -> Delivery {
        self.send(Ok(&[answer::Poll {
            revents,
            padding: 0,
        }
        .as_bytes()]))
    }

    /// BMAP.
    pub fn block(self, block: u64) -> Delivery {
        self.send(Ok(&[answer::Bmap { block }.as_bytes()]))
    }

    /// IOCTL: the call's result and the bytes it gives back.
    pub fn ioctl(self, result: i32, data: &[u8]) -> Delivery {
        let head = answer::Ioctl {
            result,
            ..answer::Ioctl::default()
        };
        self.send(Ok(&[head.as_bytes(), data]))
    }

    fn send(mut self, outcome: Result<&[&[u8]], Errno>) -> Delivery {
        let Some(port) = self.port.take() else {
            return Delivery::Refused;
        };
        let result = outcome.map(|parts| parts.iter().map(|part| part.len()).sum::<usize>());
        trace!(unique = self.unique, opcode = ?self.opcode, ?result, "answered");
        let delivery = port.reply(self.unique, outcome);
        if delivery == Delivery::Refused {
            debug!(unique = self.unique, opcode = ?self.opcode, "answer not taken");
        }
        delivery
    }
}

impl Drop for Replier {
    fn drop(&mut self) {
        if let Some(port) = self.port.take() {
            error!(unique = self.unique, opcode = ?self.opcode, "request left unanswered; sent EIO");
            port.reply(self.unique, Err(Errno::EIO));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    type Sent = Result<Vec<u8>, Errno>;

    #[derive(Default)]
    struct Log(Mutex<Vec<(u64, Sent)>>);

    impl ReplyPort for Log {
        fn reply(&self, unique: u64, outcome: Result<&[&[u8]], Errno>) -> Delivery {
            self.0
                .lock()
                .unwrap()
                .push((unique, outcome.map(|parts| parts.concat())));
            Delivery::Taken
        }
    }

    fn answers(act: impl FnOnce(&dyn Fn(Opcode) -> Replier)) -> Vec<Sent> {
        let log = Arc::new(Log::default());
        act(&|opcode| Replier::new(log.clone(), 4, opcode));
        let log = log.0.lock().unwrap();
        assert!(log.iter().all(|(unique, _)| *unique == 4));
        log.iter().map(|(_, outcome)| outcome.clone()).collect()
    }

    #[test]
    fn answers_once_and_eio_when_dropped() {
        assert_eq!(answers(|new| drop(new(Opcode::Lookup))), [Err(Errno::EIO)]);
        let done = answers(|new| assert_eq!(new(Opcode::Unlink).done(), Delivery::Taken));
        assert_eq!(done, [Ok(vec![])]);
    }

    #[test]
    fn never_tells_the_kernel_to_stop_opening() {
        let sent = answers(|new| {
            for opcode in [Opcode::Open, Opcode::Opendir, Opcode::Getxattr] {
                new(opcode).error(Errno::ENOSYS);
            }
        });
        assert_eq!(sent, [Err(Errno::EIO), Err(Errno::EIO), Err(Errno::ENOSYS)]);
    }

    #[test]
    fn long_copies_answer_in_their_own_form() {
        let sent = answers(|new| {
            new(Opcode::CopyFileRange64).written(1 << 33);
            new(Opcode::CopyFileRange).written(1 << 33);
        });
        assert_eq!(sent[0], Ok((1u64 << 33).to_ne_bytes().to_vec()));
        assert_eq!(sent[1], Ok([u32::MAX.to_ne_bytes(), [0; 4]].concat()));
    }
}
