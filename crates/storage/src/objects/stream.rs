//! Large writes far into a file, past the system's page cache (docs/adr/0007-large-writes.md). A stream is
//! seldom read or written again soon, so it goes to the disk at once: from a buffer that is used again and
//! again, or, where that takes long, by way of pages that are freed when written.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use memory::buffers::{BUFFER_BYTES, Buffers};

use super::direct::ALIGN;
use super::direct_io::DirectIo;
use super::page_cache;

/// Files up to here are kept in memory as the system sees fit, in bytes.
const KEPT_BYTES: u64 = 64 << 20;
/// Smaller writes may come back to the same place, and cost the disk more than they do us.
const WRITE_BYTES_MIN: usize = 1 << 20;
/// Buffers in use at once: writes wait for the disk one after the other.
const BUFFERS_MAX: usize = 2;
/// What the disk may take for a buffer: others wait for the target meanwhile.
const BUFFER_TIME_MAX: Duration = Duration::from_millis(20);
/// Writes that are left to the system after the disk took longer.
const LEFT_TO_THE_SYSTEM: u32 = 16;

/// Writes to the files of one directory.
#[derive(Debug)]
pub(super) struct Stream {
    buffers: Arc<Buffers>,
    direct_io: Arc<DirectIo>,
    /// The file system or the system has no writes whose pages go.
    no_unkept: AtomicBool,
    /// Writes yet for which the disk is too slow to be waited for.
    too_slow: AtomicU32,
}

impl Stream {
    pub(super) fn new(direct_io: Arc<DirectIo>) -> Stream {
        Stream {
            buffers: Buffers::new(BUFFERS_MAX),
            direct_io,
            no_unkept: AtomicBool::new(!page_cache::has_unkept_writes()),
            too_slow: AtomicU32::new(0),
        }
    }

    /// Writes all of `data` at `offset` of `file`, by the way that suits place and size. For writes past the
    /// page cache `open` opens it once more.
    pub(super) fn write(
        &self,
        file: &File,
        data: &[u8],
        offset: u64,
        open: impl FnOnce() -> io::Result<File>,
    ) -> io::Result<()> {
        let mut done = 0;
        if offset >= KEPT_BYTES && data.len() >= WRITE_BYTES_MIN {
            done = self.write_direct(data, offset, open)?;
            done += self.write_unkept(file, &data[done..], offset + done as u64)?;
        }
        file.write_all_at(&data[done..], offset + done as u64)
    }

    /// From a buffer to the disk. Says how many bytes: what is left goes another way.
    fn write_direct(
        &self,
        data: &[u8],
        offset: u64,
        open: impl FnOnce() -> io::Result<File>,
    ) -> io::Result<usize> {
        let whole = data.len() / ALIGN as usize * ALIGN as usize;
        if self.direct_io.is_refused() || !offset.is_multiple_of(ALIGN) || self.stands_back() {
            return Ok(0);
        }
        let Some(mut buffer) = self.buffers.take() else {
            return Ok(0);
        };
        let Some(file) = self.direct_io.tried(open())? else {
            return Ok(0);
        };
        let mut done = 0;
        while done < whole {
            let part = &data[done..whole.min(done + BUFFER_BYTES)];
            let part_of_buffer = &mut buffer.as_mut()[..part.len()];
            part_of_buffer.copy_from_slice(part);
            let began = Instant::now();
            let written = match file.write_at(part_of_buffer, offset + done as u64) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                written => self.direct_io.tried(written)?,
            };
            let Some(count) = written else {
                break;
            };
            done += count;
            if count < part.len() {
                break;
            }
            if began.elapsed() > BUFFER_TIME_MAX {
                self.too_slow.store(LEFT_TO_THE_SYSTEM, Ordering::Relaxed);
                break;
            }
        }
        Ok(done)
    }

    /// The disk was slow of late.
    fn stands_back(&self) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        self.too_slow.fetch_update(set, fetch, one_less).is_ok()
    }

    /// By pages that go when they are written. Says how many bytes: what is left goes another way.
    fn write_unkept(&self, file: &File, data: &[u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < data.len() && !self.no_unkept.load(Ordering::Relaxed) {
            match page_cache::write_unkept(file, &data[done..], offset + done as u64) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    tracing::info!("the file system has no writes whose pages go");
                    self.no_unkept.store(true, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt;

    use super::*;

    /// By each way alone, and by all as it comes.
    #[test]
    fn every_way_writes_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let data: Vec<u8> = (0..5_000_000_u32).map(|n| (n ^ (n >> 9)) as u8).collect();
        for (way, skip) in [(0, 0), (1, 0), (2, 0), (0, 7), (3, 4096)] {
            let path = dir.path().join(format!("{way}.{skip}"));
            let stream = Stream::new(Arc::default());
            if way == 1 || way == 2 {
                let refusal = Err(ErrorKind::InvalidInput.into());
                assert_eq!(stream.direct_io.tried::<()>(refusal).unwrap(), None);
            }
            stream.no_unkept.fetch_or(way == 2, Ordering::Relaxed);
            stream
                .too_slow
                .store(u32::from(way == 3), Ordering::Relaxed);
            let file = File::create_new(&path).unwrap();
            let open = || {
                let mut options = File::options();
                options.write(true).custom_flags(libc::O_DIRECT).open(&path)
            };
            for _ in 0..2 {
                let written = stream.write(&file, &data, KEPT_BYTES + skip, open);
                written.unwrap();
                let mut found = vec![0; data.len()];
                let file = File::open(&path).unwrap();
                file.read_exact_at(&mut found, KEPT_BYTES + skip).unwrap();
                assert!(found == data, "way {way}, {skip} bytes in");
                assert_eq!(
                    file.metadata().unwrap().len(),
                    KEPT_BYTES + skip + 5_000_000
                );
            }
        }
    }

    #[test]
    fn a_slow_disk_is_left_alone_for_a_while() {
        let stream = Stream::new(Arc::default());
        assert!(!stream.stands_back());
        stream.too_slow.store(2, Ordering::Relaxed);
        assert!(stream.stands_back() && stream.stands_back());
        assert!(!stream.stands_back());
    }
}
