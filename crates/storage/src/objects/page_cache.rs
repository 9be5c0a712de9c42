//! What the system keeps of a file in memory.

#![allow(unsafe_code)] // The calls have no safe wrapper.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;

use base::ByteRange;

/// `cachestat(2)`, since Linux 6.5: the same number on every machine, which `libc` does not have
/// for all of them.
const CACHESTAT: libc::c_long = 451;

/// `RWF_DONTCACHE`, since Linux 6.14.
const DONT_KEEP: libc::c_int = 0x80;
/// Before, a page could be dropped while it was written again (mended in Linux 6.16, "gate
/// dropbehind invalidate on folio !dirty && !writeback").
const DONT_KEEP_SINCE: (u32, u32) = (6, 16);

/// As in the system's interface.
#[repr(C)]
struct Range {
    offset: u64,
    len: u64,
}

/// As in the system's interface: pages.
#[repr(C)]
#[derive(Default)]
struct Counts {
    cached: u64,
    dirty: u64,
    written_back: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Nothing of `range` is in memory; false also where the system does not say.
pub(crate) fn has_nothing_of(file: &File, range: ByteRange) -> bool {
    // A length of zero would stand for all the rest of the file.
    if range.is_empty() {
        return false;
    }
    let asked = Range {
        offset: range.start,
        len: range.len(),
    };
    let (mut counts, flags) = (Counts::default(), 0u32);
    // SAFETY: both structures are as the system defines them and live through the call, the
    // descriptor is open, and no flags are defined.
    let done = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &asked, &mut counts, flags) };
    done == 0 && counts.cached == 0
}

/// The system can do [`write_unkept`] without harm.
pub(super) fn has_unkept_writes() -> bool {
    let system = nix::sys::utsname::uname();
    let release = system
        .as_ref()
        .ok()
        .and_then(|name| name.release().to_str());
    release.is_some_and(|release| version(release) >= DONT_KEEP_SINCE)
}

/// The first two numbers of a release such as `6.18.44-1-amd64`; zero for what is none.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Writes at `offset`; the system starts to write it to the disk at once, and keeps in memory
/// only what was there before. Says how many bytes.
pub(super) fn write_unkept(file: &File, data: &[u8], offset: u64) -> io::Result<usize> {
    let part = libc::iovec {
        iov_base: data.as_ptr().cast_mut().cast(),
        iov_len: data.len(),
    };
    let offset = libc::off_t::try_from(offset).map_err(|_| ErrorKind::FileTooLarge)?;
    // SAFETY: the one part is `data`, which lives through the call and is only read, and the
    // descriptor is open.
    let count = unsafe { libc::pwritev2(file.as_raw_fd(), &part, 1, offset, DONT_KEEP) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(version("6.18.44-fc-v657"), (6, 18));
        assert_eq!(version("10.0-rc1"), (10, 0));
        assert_eq!(version("7"), (7, 0));
        assert_eq!(version("Linux"), (0, 0));
        assert!(version("6.8.0-45-generic") < DONT_KEEP_SINCE);
    }

    #[test]
    fn what_was_just_written_is_in_memory() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 8192]).unwrap();
        assert!(!has_nothing_of(&file, ByteRange::new(0, 8192)));
        assert!(!has_nothing_of(&file, ByteRange::new(4096, 4097)));
        assert!(!has_nothing_of(&file, ByteRange::new(5, 5)));
    }
}
