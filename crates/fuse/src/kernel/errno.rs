//! Error numbers, as the kernel expects them in answers.

use std::fmt;
use std::io;

/// A positive errno value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

macro_rules! errnos {
    ($($name:ident)*) => {
        #[expect(missing_docs, reason = "each is the error number of that name in errno(3)")]
        impl Errno { $(pub const $name: Errno = Errno(libc::$name);)* }

        const NAMES: &[(i32, &str)] = &[$((libc::$name, stringify!($name))),*];
    };
}

errnos! {
    EPERM ENOENT EINTR EIO ENXIO E2BIG EBADF EAGAIN EALREADY ENOMEM EACCES EBUSY EEXIST EXDEV ENODEV ENOTDIR
    EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK ERANGE EDEADLK
    ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP ENODATA EPROTO EOVERFLOW EOPNOTSUPP ENOTCONN
    ECONNABORTED ETIMEDOUT ESTALE EDQUOT
}

impl Errno {
    /// The number, if the kernel accepts it in an answer (1 to 511).
    pub fn from_number(number: i32) -> Option<Errno> {
        (1..512).contains(&number).then_some(Errno(number))
    }

    /// The positive number.
    pub fn number(self) -> i32 {
        self.0
    }

    /// What `error` came from, EIO where it came from no system call.
    pub(super) fn of(error: &io::Error) -> Errno {
        error
            .raw_os_error()
            .and_then(Errno::from_number)
            .unwrap_or(Errno::EIO)
    }
}

impl From<nix::errno::Errno> for Errno {
    fn from(errno: nix::errno::Errno) -> Errno {
        Errno::from_number(errno as i32).unwrap_or(Errno::EIO)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", io::Error::from_raw_os_error(self.0))
    }
}
