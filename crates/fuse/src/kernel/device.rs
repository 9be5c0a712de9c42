//! One open /dev/fuse: where requests are read and answers written.
#![allow(
    unsafe_code,
    reason = "the clone ioctl, and a notice of which a part cannot be read, have no safe wrapper"
)]

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::io::{self, IoSlice, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::OnceLock;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tracing::error;
use zerocopy::IntoBytes;

use super::abi::{OutHeader, notice::Code};
use super::errno::Errno;
use super::replier::{Delivery, ReplyPort};

nix::ioctl_read!(
    /// Ties a fresh descriptor to the connection of the one whose number is passed.
    fuse_dev_clone, 229, 0, u32
);

/// Where the kernel hands out connections.
const PATH: &str = "/dev/fuse";
/// Parts of an answer that are sent without an allocation.
const PARTS_INLINE: usize = 8;

/// Largest body of a message that is put together in one piece.
const SMALL_BYTES_MAX: usize = 240;

/// What a read of the device gave.
#[derive(Debug)]
pub(super) enum Received {
    /// A request of that many bytes.
    Request(usize),
    /// Nothing: the queue is empty.
    Nothing,
    /// What was there is not wanted any more; read again.
    Missed,
    /// The mount is gone.
    Gone,
}

/// A descriptor of /dev/fuse. What was read through it must be answered through it.
#[derive(Debug)]
pub struct Device {
    file: File,
}

impl Device {
    /// A fresh descriptor, not yet part of a mount.
    pub fn open() -> io::Result<Device> {
        Device::open_path(Path::new(PATH))
    }

    pub(super) fn open_path(path: &Path) -> io::Result<Device> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK);
        let file = options.open(path)?;
        Ok(Device { file })
    }

    /// Takes over a descriptor that another process opened or mounted.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Device> {
        let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL)?);
        fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        Ok(Device {
            file: File::from(fd),
        })
    }

    /// A second queue of the same connection, so that readers do not contend.
    ///
    /// Closing it fails what was read through it and not yet answered.
    pub fn try_clone_queue(&self) -> io::Result<Device> {
        let clone = Device::open()?;
        clone.join(self)?;
        Ok(clone)
    }

    /// Makes this fresh descriptor another queue of the connection of `other`.
    pub(super) fn join(&self, other: &Device) -> io::Result<()> {
        let mut source = other.file.as_raw_fd() as u32;
        // SAFETY: the ioctl reads one u32, which lives across the call, and keeps no pointer.
        unsafe { fuse_dev_clone(self.file.as_raw_fd(), &mut source) }?;
        Ok(())
    }

    /// The connection that it belongs to, which is also the minor number of what is mounted on it.
    /// None: it belongs to none, or the kernel does not say.
    pub(super) fn connection(&self) -> Option<u32> {
        let path = format!("/proc/self/fdinfo/{}", self.file.as_raw_fd());
        let told = std::fs::read_to_string(path).ok()?;
        let number = |line: &str| line.strip_prefix("fuse_connection:")?.trim().parse().ok();
        told.lines().find_map(number)
    }

    /// Waits until [`Device::receive`] would probably find something.
    pub(super) fn wait(&self) {
        let mut asked = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        // That the mount is gone is an event as well, and an error is told by the read.
        let _ = poll(&mut asked, PollTimeout::NONE);
    }

    /// [`Device::receive`] would find nothing.
    pub(super) fn is_empty(&self) -> bool {
        let mut asked = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        poll(&mut asked, PollTimeout::ZERO) == Ok(0)
    }

    /// Takes a request if there is one: one that was there a moment ago may have been given up.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        match (&self.file).read(buffer) {
            Ok(0) => Ok(Received::Gone),
            Ok(count) => Ok(Received::Request(count)),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN) => Ok(Received::Nothing),
                // ENOENT: the caller gave up before the request was read.
                Some(libc::ENOENT | libc::EINTR) => Ok(Received::Missed),
                Some(libc::ENODEV | libc::ECONNABORTED) => Ok(Received::Gone),
                _ => Err(error),
            },
        }
    }

    /// Writes a notice; its parts follow each other.
    pub(super) fn notify(&self, code: Code, parts: &[&[u8]]) -> io::Result<()> {
        self.send(0, code as i32, parts)
    }

    /// Writes a notice of which the last part is one byte that cannot be read.
    pub(super) fn notify_of_a_byte(&self, code: Code, part: &[u8]) -> io::Result<()> {
        let header = OutHeader {
            len: (size_of::<OutHeader>() + part.len() + 1) as u32,
            error: code as i32,
            unique: 0,
        };
        let mut message = [header.as_bytes(), part].concat();
        let slice = |base: *mut libc::c_void, len| libc::iovec {
            iov_base: base,
            iov_len: len,
        };
        let parts = [
            slice(message.as_mut_ptr().cast(), message.len()),
            slice(unreadable()?, 1),
        ];
        // SAFETY: the kernel reads the first part, which lives across the call, and finds that it must
        // not read the second.
        let sent = unsafe { libc::writev(self.file.as_raw_fd(), parts.as_ptr(), 2) };
        match sent {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn send(&self, unique: u64, error: i32, parts: &[&[u8]]) -> io::Result<()> {
        let body: usize = parts.iter().map(|part| part.len()).sum();
        let len = u32::try_from(size_of::<OutHeader>() + body)
            .map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
        let header = OutHeader { len, error, unique };
        if body <= SMALL_BYTES_MAX {
            return self.send_small(&header, parts, body);
        }
        if parts.len() <= PARTS_INLINE {
            let mut slices = [IoSlice::new(&[]); PARTS_INLINE + 1];
            return self.send_slices(&header, parts, &mut slices);
        }
        self.send_slices(
            &header,
            parts,
            &mut vec![IoSlice::new(&[]); parts.len() + 1],
        )
    }

    /// In one piece: the kernel takes every piece of a message by the page it lies in.
    fn send_small(&self, header: &OutHeader, parts: &[&[u8]], body: usize) -> io::Result<()> {
        let mut message = [0; size_of::<OutHeader>() + SMALL_BYTES_MAX];
        let mut rest = &mut message[..];
        for part in std::iter::once(&header.as_bytes()).chain(parts) {
            rest.write_all(part)?;
        }
        (&self.file)
            .write(&message[..size_of::<OutHeader>() + body])
            .map(drop)
    }

    fn send_slices<'a>(
        &self,
        header: &'a OutHeader,
        parts: &[&'a [u8]],
        slices: &mut [IoSlice<'a>],
    ) -> io::Result<()> {
        slices[0] = IoSlice::new(header.as_bytes());
        for (slice, part) in slices[1..].iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        // The kernel takes a message whole or not at all.
        (&self.file)
            .write_vectored(&slices[..=parts.len()])
            .map(drop)
    }
}

/// A place in memory that nobody may read.
fn unreadable() -> io::Result<*mut libc::c_void> {
    static PLACE: OnceLock<usize> = OnceLock::new();
    if let Some(place) = PLACE.get() {
        return Ok(*place as *mut libc::c_void);
    }
    let (access, kind) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at a place of the kernel's choice touches nothing that is there.
    let made = unsafe { libc::mmap(std::ptr::null_mut(), 1, access, kind, -1, 0) };
    match made {
        libc::MAP_FAILED => Err(io::Error::last_os_error()),
        // Of two that are made at once one stays unused.
        made => Ok(*PLACE.get_or_init(|| made as usize) as *mut libc::c_void),
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl ReplyPort for Device {
    fn reply(&self, unique: u64, outcome: Result<&[&[u8]], Errno>) -> Delivery {
        let sent = match outcome {
            Ok(parts) => self.send(unique, 0, parts),
            Err(errno) => self.send(unique, -errno.number(), &[]),
        };
        match sent {
            Ok(()) => Delivery::Taken,
            Err(error) => {
                // ENOENT: interrupted and given up. ENODEV, ENOTCONN, EPERM: unmounted.
                let expected = [libc::ENOENT, libc::ENODEV, libc::ENOTCONN, libc::EPERM];
                if !error
                    .raw_os_error()
                    .is_some_and(|number| expected.contains(&number))
                {
                    error!(unique, %error, "the kernel did not accept an answer");
                }
                Delivery::Refused
            }
        }
    }
}
