//! How long a file may be here: a property of the local file system, which no call tells. It is found by
//! trying, once for each opened directory of objects, with a file that has no name and no bytes.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use base::limits::FILE_BYTES_MAX;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

/// The name for as long as the file is made, where one without a name cannot be.
const NAME: &str = "size-limit";

/// One past the last byte that a file in `dir`, which is at `path`, can have. Where that cannot be tried,
/// as on a disk without a free inode, nothing is refused ahead of the disk.
pub fn file_bytes_max(dir: &File, path: &Path) -> u64 {
    trial(dir).unwrap_or_else(|error| {
        let at = path.display();
        tracing::warn!("{at}: how long a file can be there cannot be tried: {error}");
        FILE_BYTES_MAX
    })
}

fn trial(dir: &File) -> io::Result<u64> {
    let file = match nameless(dir) {
        // There is no file that could be too long.
        Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem => return Ok(FILE_BYTES_MAX),
        made => made?,
    };
    // Who goes beyond this one is sent a signal.
    let (allowed, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
    let fits = |size| match file.set_len(size) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(Errno::EFBIG as i32) => Ok(false),
        Err(error) => Err(error),
    };
    largest(FILE_BYTES_MAX.min(allowed), fits)
}

/// The largest number up to `most` that `fits`, where all smaller ones do.
fn largest(most: u64, fits: impl Fn(u64) -> io::Result<bool>) -> io::Result<u64> {
    if fits(most)? {
        return Ok(most);
    }
    let (mut yes, mut no) = (0, most);
    while no - yes > 1 {
        let middle = yes + (no - yes) / 2;
        match fits(middle)? {
            true => yes = middle,
            false => no = middle,
        }
    }
    Ok(yes)
}

fn nameless(dir: &File) -> io::Result<File> {
    let (flags, mode) = (
        OFlag::O_RDWR | OFlag::O_CLOEXEC,
        Mode::S_IRUSR | Mode::S_IWUSR,
    );
    if let Ok(file) = openat(dir, ".", flags | OFlag::O_TMPFILE, mode) {
        return Ok(file.into());
    }
    let file = openat(dir, NAME, flags | OFlag::O_CREAT, mode)?;
    unlinkat(dir, NAME, UnlinkatFlags::NoRemoveDir)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_that_fits_is_found() {
        let below =
            |limit: u64| largest(FILE_BYTES_MAX, |size| Ok(size <= limit)).expect("no error");
        let limits = [0, 1, 4096, (1 << 44) - 4096, FILE_BYTES_MAX - 1, u64::MAX];
        for limit in limits {
            assert_eq!(below(limit), limit.min(FILE_BYTES_MAX));
        }
        let failing = largest(9, |_| Err(io::Error::other("broken")));
        assert!(failing.is_err());
    }

    #[test]
    fn a_file_of_that_size_can_be_and_none_that_is_longer() {
        let dir = tempfile::tempdir().expect("a directory");
        let opened = File::open(dir.path()).expect("it is there");
        let most = file_bytes_max(&opened, dir.path());
        let file = File::create(dir.path().join("file")).expect("it can be made");
        file.set_len(most).expect("it fits");
        assert!(most == FILE_BYTES_MAX || file.set_len(most + 1).is_err());
        let names = std::fs::read_dir(dir.path()).expect("it is there");
        assert_eq!(names.count(), 1);
    }
}
