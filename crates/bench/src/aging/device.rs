//! A file or block device at hand in place of the model. Reads and writes are real, past the page cache and
//! one after the other, and their times are measured.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use allocator::{Extent, GROUP_BLOCKS};
use nix::fcntl::{FallocateFlags, FcntlArg, OFlag, fallocate, fcntl};

use super::medium::{BLOCK_BYTES, Direction, Medium, sorted_runs};
use crate::error::{BenchError, During, Result};

/// Of one call.
const CALL_BYTES: u64 = 4 << 20;

/// What may be overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Erase {
    /// Nothing: `--on` names a directory, and a file without a name is made there.
    Nothing,
    /// A block device and all that is on it.
    Device,
}

/// An open file, and when the work that is measured began.
pub struct Device {
    file: File,
    name: String,
    buffer: Vec<u8>,
    /// Where `buffer` is aligned as direct I/O needs it.
    aligned: usize,
    since: Instant,
}

fn refused(path: &Path, why: &str) -> BenchError {
    BenchError::Invalid(format!("{}: {why}", path.display()))
}

impl Device {
    /// `path` is a directory, or a block device that may be erased. Has room for `groups` groups.
    pub fn open(path: &Path, groups: u32, erase: Erase) -> Result<Device> {
        let metadata = std::fs::metadata(path).during(|| format!("finding {}", path.display()))?;
        let bytes = u64::from(groups) * u64::from(GROUP_BLOCKS) * BLOCK_BYTES;
        let is_device = metadata.file_type().is_block_device();
        let file = match (metadata.is_dir(), is_device, erase) {
            (true, _, _) => unnamed(path, bytes)?,
            (false, true, Erase::Device) => device(path, bytes)?,
            (false, true, Erase::Nothing) => {
                let why = "is a block device; --erase allows to overwrite all that is on it";
                return Err(refused(path, why));
            }
            (false, false, _) => {
                return Err(refused(path, "is neither a directory nor a block device"));
            }
        };
        let buffer = vec![0x5a; (CALL_BYTES + BLOCK_BYTES) as usize];
        Ok(Device {
            aligned: buffer.as_ptr().align_offset(BLOCK_BYTES as usize),
            buffer,
            file,
            name: path.display().to_string(),
            since: Instant::now(),
        })
    }

    fn transfer(&mut self, direction: Direction, start: u64, end: u64) -> Result<()> {
        let (mut at, end) = (start * BLOCK_BYTES, end * BLOCK_BYTES);
        while at < end {
            let bytes = (end - at).min(CALL_BYTES) as usize;
            let buffer = &mut self.buffer[self.aligned..self.aligned + bytes];
            let (done, doing) = match direction {
                Direction::Read => (self.file.read_exact_at(buffer, at), "reading"),
                Direction::Write => (self.file.write_all_at(buffer, at), "writing"),
            };
            done.during(|| format!("{doing} {bytes} bytes at {at} of {}", self.name))?;
            at += bytes as u64;
        }
        Ok(())
    }
}

/// A file in `directory` that is gone when it is closed.
fn unnamed(directory: &Path, bytes: u64) -> Result<File> {
    let doing = || format!("making a file of {bytes} bytes in {}", directory.display());
    let file = tempfile::tempfile_in(directory).during(doing)?;
    fallocate(&file, FallocateFlags::empty(), 0, bytes as i64).during(doing)?;
    let direct = FcntlArg::F_SETFL(OFlag::O_DIRECT);
    fcntl(&file, direct).during(|| format!("direct I/O in {}", directory.display()))?;
    Ok(file)
}

fn device(path: &Path, bytes: u64) -> Result<File> {
    let doing = || format!("opening {}", path.display());
    let flags = OFlag::O_DIRECT | OFlag::O_EXCL;
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags.bits());
    let mut file = options.open(path).during(doing)?;
    let size = file.seek(SeekFrom::End(0)).during(doing)?;
    match size >= bytes {
        true => Ok(file),
        false => {
            let why = format!("has {size} bytes, and the area needs {bytes}; give fewer --groups");
            Err(refused(path, &why))
        }
    }
}

impl Medium for Device {
    fn batch(&mut self, direction: Direction, extents: &[Extent]) -> Result<()> {
        let mut runs = sorted_runs(extents).into_iter();
        runs.try_for_each(|(start, end)| self.transfer(direction, start, end))
    }

    fn drain(&mut self) -> Result<f64> {
        let syncing = || format!("syncing {}", self.name);
        self.file.sync_data().during(syncing)?;
        let seconds = self.since.elapsed().as_secs_f64();
        self.since = Instant::now();
        Ok(seconds)
    }
}

#[cfg(test)]
mod tests {
    use allocator::Block;

    use super::*;

    #[test]
    fn bytes_are_written_and_read_and_take_time() {
        let directory = tempfile::tempdir().unwrap();
        let mut device = Device::open(directory.path(), 1, Erase::Nothing).unwrap();
        let extents = [Extent::new(Block(7), 3), Extent::new(Block(100), 2000)];
        device.batch(Direction::Write, &extents).unwrap();
        assert!(device.drain().unwrap() > 0.0);
        device.buffer.fill(0);
        device.batch(Direction::Read, &extents[..1]).unwrap();
        let read = &device.buffer[device.aligned..];
        assert_eq!(
            (read[0], read[3 * 4096 - 1], read[3 * 4096]),
            (0x5a, 0x5a, 0)
        );
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_somebody_needs_is_not_overwritten() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for erase in [Erase::Nothing, Erase::Device] {
            let error = Device::open(file.path(), 1, erase).err().unwrap();
            assert!(error.to_string().contains("neither"), "{error}");
        }
        let error = Device::open(Path::new("/none"), 1, Erase::Nothing);
        assert!(error.err().unwrap().to_string().contains("/none"));
    }
}
