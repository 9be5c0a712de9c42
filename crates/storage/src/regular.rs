//! Opening and reading the regular files of a target. A FIFO or a device at such a path could make
//! its reader wait or read without end.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use nix::libc;

/// Opens `path` with `options`; fails at once if something other than a regular file is there.
pub(crate) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Without this flag the open of a FIFO waits for its other end.
    match options.custom_flags(libc::O_NONBLOCK).open(path) {
        Ok(file) => must_be(Kind::Regular, file.metadata()?.file_type()).map(|()| file),
        Err(error) => {
            // A FIFO without a reader and a socket only answer "no such device or address".
            if let Ok(found) = fs::metadata(path) {
                must_be(Kind::Regular, found.file_type())?;
            }
            Err(error)
        }
    }
}

/// The same where a block device may be, too; with these flags of open(2).
pub(crate) fn open_or_device(path: &Path, options: &OpenOptions, flags: i32) -> io::Result<File> {
    let mut options = options.clone();
    let file = options.custom_flags(libc::O_NONBLOCK | flags).open(path)?;
    must_be(Kind::RegularOrDevice, file.metadata()?.file_type()).map(|()| file)
}

/// The first `bytes_max` bytes of the regular file at `path`, all of it if it is shorter.
pub(crate) fn read(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    read_opened(open(path, OpenOptions::new().read(true))?, bytes_max)
}

/// The first `bytes_max` bytes of `file`, all of it if it is shorter.
pub(crate) fn read_opened(file: File, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What is expected at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Regular,
    RegularOrDevice,
}

fn must_be(wanted: Kind, found: FileType) -> io::Result<()> {
    let kind = match found {
        _ if found.is_file() => return Ok(()),
        _ if found.is_block_device() && wanted == Kind::RegularOrDevice => return Ok(()),
        _ if found.is_dir() => "directory",
        _ if found.is_fifo() => "FIFO",
        _ if found.is_socket() => "socket",
        _ => "device",
    };
    let wanted = match wanted {
        Kind::Regular => "a regular file",
        Kind::RegularOrDevice => "a regular file or block device",
    };
    let reason = format!("it is a {kind}, not {wanted}");
    Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
}
