//! The one table from failures of the file system to error numbers.

use base::FsError;

use crate::kernel::Errno;

/// The number a program sees.
pub fn errno(error: FsError) -> Errno {
    match error {
        FsError::NotFound => Errno::ENOENT,
        FsError::Exists => Errno::EEXIST,
        FsError::NotDirectory => Errno::ENOTDIR,
        FsError::IsDirectory => Errno::EISDIR,
        FsError::NotEmpty => Errno::ENOTEMPTY,
        FsError::AccessDenied => Errno::EACCES,
        FsError::NotPermitted => Errno::EPERM,
        // POSIX: a directory moved below itself is EINVAL; ELOOP is for symlinks.
        FsError::Invalid | FsError::Loop => Errno::EINVAL,
        FsError::NameTooLong => Errno::ENAMETOOLONG,
        FsError::FileTooBig => Errno::EFBIG,
        FsError::NoSpace => Errno::ENOSPC,
        FsError::TooManyLinks => Errno::EMLINK,
        FsError::CrossDevice => Errno::EXDEV,
        FsError::NoAttribute => Errno::ENODATA,
        FsError::NotSupported => Errno::EOPNOTSUPP,
        FsError::Range => Errno::ERANGE,
        FsError::TooLarge => Errno::E2BIG,
        FsError::Busy => Errno::EBUSY,
        FsError::TextBusy => Errno::ETXTBSY,
        FsError::Stale => Errno::ESTALE,
        FsError::BadHandle => Errno::EBADF,
        FsError::ReadOnly => Errno::EROFS,
        FsError::TryAgain => Errno::EAGAIN,
        FsError::Interrupted => Errno::EINTR,
        FsError::Io => Errno::EIO,
        FsError::NoDevice => Errno::ENODEV,
        FsError::NoData => Errno::ENXIO,
    }
}
