//! Large writes far into a file, past the system's page cache.
//!
//! What reaches that far is a stream: it is not written again soon, seldom read before much else
//! was, and there is more of it than is good to keep. So it starts for the disk at once, instead of
//! filling the memory first and the disk when somebody waits for it, and the memory it went through
//! is used again for what follows.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::page_cache;

/// Files up to here are kept in memory as the system sees fit, in bytes.
const KEPT_BYTES: u64 = 64 << 20;
/// Smaller writes may come back to the same place, and cost the disk more than they do us.
const WRITE_BYTES_MIN: usize = 1 << 20;

/// Writes to the files of one directory.
#[derive(Debug)]
pub(super) struct Stream {
    /// The file system or the system has no such writes.
    refused: AtomicBool,
}

impl Stream {
    pub(super) fn new() -> Stream {
        Stream {
            refused: AtomicBool::new(!page_cache::has_unkept_writes()),
        }
    }

    /// Writes all of `data` at `offset`, by the way that suits the place and its size.
    pub(super) fn write(&self, file: &File, mut data: &[u8], mut offset: u64) -> io::Result<()> {
        let is_stream = offset >= KEPT_BYTES && data.len() >= WRITE_BYTES_MIN;
        while is_stream && !data.is_empty() && !self.refused.load(Ordering::Relaxed) {
            match page_cache::write_unkept(file, data, offset) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    offset += count as u64;
                    data = &data[count..];
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    tracing::info!("the file system has no writes past its page cache");
                    self.refused.store(true, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
        file.write_all_at(data, offset)
    }
}
