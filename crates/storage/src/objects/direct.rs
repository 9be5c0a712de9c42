//! Large reads past the system's page cache (docs/adr/0006-reads-past-the-page-cache.md). A large read of
//! uncached bytes goes from the disk straight to a buffer of ours. A second read of the same place goes
//! through the page cache, which keeps it.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::ByteRange;
use bytes::Bytes;
use memory::buffers::{BUFFER_BYTES, Buffers};

use super::direct_io::DirectIo;
use super::page_cache;
use super::store::ObjectId;

/// Smaller reads gain from what the system reads ahead, and cost little.
const READ_BYTES_MIN: u64 = 64 << 10;
/// A smaller part of a buffer is copied out of it, because the caller may keep it for long.
const SHARED_BYTES_MIN: u64 = 1 << 20;
/// Buffers in use at once. Beyond: the ordinary way.
const BUFFERS_MAX: usize = 16;
/// What offsets and lengths are multiples of: no usual disk asks for more.
pub(super) const ALIGN: u64 = 4096;
/// Reads remembered, to know a second one by: some 16 GiB.
const REMEMBERED_MAX: usize = 1 << 14;

/// Reads past the page cache, for the files of one directory.
#[derive(Debug)]
pub(super) struct Direct {
    buffers: Arc<Buffers>,
    seen: Mutex<Seen>,
    direct_io: Arc<DirectIo>,
}

/// Where reads began lately.
#[derive(Debug, Default)]
struct Seen {
    places: HashSet<(ObjectId, u64)>,
    /// The same, oldest first, and some that have gone from there.
    order: VecDeque<(ObjectId, u64)>,
}

impl Direct {
    pub(super) fn new(direct_io: Arc<DirectIo>) -> Direct {
        Direct {
            buffers: Buffers::new(BUFFERS_MAX),
            seen: Mutex::default(),
            direct_io,
        }
    }

    // Whatever is in it is right: poisoning adds nothing.
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of `range`, fewer at the end of the file, if direct I/O suits them. To read so, `open` opens
    /// `file` once more.
    pub(super) fn read(
        &self,
        id: ObjectId,
        file: &File,
        range: ByteRange,
        open: impl FnOnce() -> io::Result<File>,
    ) -> io::Result<Option<Bytes>> {
        let aligned = aligned(range);
        let fits = range.len() >= READ_BYTES_MIN && aligned.len() <= BUFFER_BYTES as u64;
        if !fits
            || self.direct_io.is_refused()
            || !page_cache::has_nothing_of(file, aligned)
            || self.seen().is_again((id, range.start))
        {
            return Ok(None);
        }
        let Some(mut buffer) = self.buffers.take() else {
            return Ok(None);
        };
        let whole = &mut buffer.as_mut()[..aligned.len() as usize];
        let read = open().and_then(|file| read_aligned(&file, aligned.start, whole));
        let Some(count) = self.direct_io.tried(read)? else {
            return Ok(None);
        };
        let end = (count as u64).min(range.end - aligned.start);
        let skip = (range.start - aligned.start).min(end);
        let part = skip as usize..end as usize;
        Ok(Some(match end - skip < SHARED_BYTES_MIN {
            true => Bytes::copy_from_slice(&buffer.as_ref()[part]),
            false => Bytes::from_owner(buffer).slice(part),
        }))
    }
}

impl Seen {
    /// It was here before; if not, it is from now on. A third time is a first time again.
    fn is_again(&mut self, place: (ObjectId, u64)) -> bool {
        if self.places.remove(&place) {
            return true;
        }
        if self.order.len() >= REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.places.remove(&oldest);
        }
        self.places.insert(place);
        self.order.push_back(place);
        false
    }
}

fn aligned(range: ByteRange) -> ByteRange {
    let end = range.end.checked_next_multiple_of(ALIGN);
    ByteRange::new(range.start / ALIGN * ALIGN, end.unwrap_or(u64::MAX))
}

/// Reads until `buffer` is full or the file ends; says how many bytes.
fn read_aligned(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        // Only the end of the file is not aligned.
        if !(filled as u64).is_multiple_of(ALIGN) {
            break;
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use base::Fid;

    use super::*;

    fn id(n: u64) -> ObjectId {
        ObjectId::new(Fid(n), 0)
    }

    #[test]
    fn a_second_read_of_a_place_is_told_from_a_first() {
        let mut seen = Seen::default();
        assert!(!seen.is_again((id(1), 0)));
        assert!(!seen.is_again((id(1), 5)));
        assert!(!seen.is_again((id(2), 0)));
        assert!(seen.is_again((id(1), 0)));
        assert!(!seen.is_again((id(1), 0)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut seen = Seen::default();
        for n in 0..2 * REMEMBERED_MAX as u64 {
            assert!(!seen.is_again((id(n), 0)));
        }
        assert_eq!(seen.places.len(), REMEMBERED_MAX);
        assert_eq!(seen.order.len(), REMEMBERED_MAX);
        assert!(!seen.is_again((id(0), 0)), "long forgotten");
        assert!(seen.is_again((id(2 * REMEMBERED_MAX as u64 - 1), 0)));
    }

    #[test]
    fn ranges_grow_to_whole_blocks() {
        assert_eq!(aligned(ByteRange::new(1, 4097)), ByteRange::new(0, 8192));
        assert_eq!(
            aligned(ByteRange::new(4096, 8192)),
            ByteRange::new(4096, 8192)
        );
    }
}
