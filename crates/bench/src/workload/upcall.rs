//! What one request of the kernel to a file system in user space costs. Attributes of an open file,
//! asked for in a way that no cache of the kernel answers.
#![allow(unsafe_code)] // statx has no safe form in the standard library or nix.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Instant;

use crate::error::{During, Result};

/// Requests before the clock runs.
const WARM_UP: u32 = 1000;

/// Seconds for each of `count` requests for the attributes of `file`, one after the other.
pub fn upcalls(file: &Path, count: u32) -> Result<f64> {
    let doing = || format!("asking for the attributes of {}", file.display());
    let open = File::open(file).during(doing)?;
    (0..WARM_UP).try_for_each(|_| ask(&open)).during(doing)?;
    let start = Instant::now();
    (0..count).try_for_each(|_| ask(&open)).during(doing)?;
    Ok(start.elapsed().as_secs_f64() / f64::from(count.max(1)))
}

/// AT_STATX_FORCE_SYNC is what makes FUSE ask, however long its answer of before holds (statx(2)).
fn ask(file: &File) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_FORCE_SYNC;
    let mut found = std::mem::MaybeUninit::<libc::statx>::uninit();
    // SAFETY: the descriptor is open, the path is an empty C string, and the kernel writes no more
    // than one struct statx, which is not read here.
    let done = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            flags,
            libc::STATX_BASIC_STATS,
            found.as_mut_ptr(),
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_can_be_asked_and_a_missing_one_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(upcalls(file.path(), 10).unwrap() > 0.0);
        let error = upcalls(Path::new("/no/such/file"), 1).unwrap_err();
        assert!(error.to_string().contains("/no/such/file"), "{error}");
    }
}
