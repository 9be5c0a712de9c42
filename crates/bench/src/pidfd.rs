//! A file descriptor for a child process: waiting for its end with a timeout.
#![allow(unsafe_code)] // pidfd_open has no safe form in the standard library or nix.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::process::Child;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Becomes readable when the child has ended. The child is reaped elsewhere, so its id and its
/// process group cannot be reused while this is used.
#[derive(Debug)]
pub(crate) struct PidFd(OwnedFd);

impl PidFd {
    /// For a child that has not been waited for.
    pub(crate) fn of(child: &Child) -> io::Result<PidFd> {
        // SAFETY: pidfd_open takes two integers and returns a new descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id() as libc::pid_t, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor to us; nobody else owns it.
        Ok(PidFd(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// True when the child has ended, false when `patience` passed first.
    pub(crate) fn ended_within(&self, patience: Duration) -> io::Result<bool> {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
